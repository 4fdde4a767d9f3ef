//! `with_fsync`: which files and directories are synced, in which order, and what a failing sync
//! leaves. Every sync fails in turn, and its error tells what was synced.

use super::RingwayFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, ObjectStoreExt, Result};
use crate::common::{build_or_skip, runtime, scratch_on_disk, tree, until_idle};
use futures::future::BoxFuture;
use ringway::{BackendKind, Engine};
use std::path::Path as FilePath;

/// What a write does, and the paths that it is to sync: `.` is the root.
struct Case {
    name: &'static str,
    write: fn(RingwayFileSystem) -> BoxFuture<'static, Result<()>>,
    syncs: &'static [&'static str],
    /// How many of the syncs come before the write is visible.
    before: usize,
}

fn at(path: &str) -> Path {
    Path::from(path)
}

const CASES: &[Case] = &[
    Case {
        name: "put",
        write: |store| Box::pin(async move { store.put(&at("old"), "new".into()).await.map(drop) }),
        syncs: &["old#1", "."],
        before: 1,
    },
    Case {
        name: "put into new directories",
        write: |store| {
            Box::pin(async move { store.put(&at("a/b/new"), "new".into()).await.map(drop) })
        },
        syncs: &["a", ".", "a/b/new#1", "a/b"],
        before: 3,
    },
    Case {
        name: "put that creates",
        write: |store| {
            Box::pin(async move {
                let mode = super::object_store::PutMode::Create;
                store.put_opts(&at("new"), "new".into(), mode.into()).await.map(drop)
            })
        },
        syncs: &["new#1", "."],
        before: 1,
    },
    Case {
        name: "multipart upload",
        write: |store| {
            Box::pin(async move {
                let mut upload = store.put_multipart(&at("a/new")).await?;
                upload.put_part("one".into()).await?;
                upload.put_part("two".into()).await?;
                upload.complete().await.map(drop)
            })
        },
        syncs: &[".", "a/new#1", "a"],
        before: 2,
    },
    Case {
        name: "copy",
        write: |store| Box::pin(async move { store.copy(&at("old"), &at("a/b/new")).await }),
        syncs: &["a", ".", "a/b/new#1", "a/b"],
        before: 3,
    },
    Case {
        name: "put into directories that others made",
        write: |store| {
            Box::pin(async move {
                std::fs::create_dir_all(store.path_to_filesystem(&at("a/b/x"))?).unwrap();
                store.put(&at("a/b/new"), "new".into()).await?;
                // The directories are known to be durable now.
                store.put(&at("a/b/new"), "new".into()).await.map(drop)
            })
        },
        syncs: &["a", ".", "a/b/new#1", "a/b", "a/b/new#1", "a/b"],
        before: 3,
    },
    Case {
        name: "rename",
        write: |store| Box::pin(async move { store.rename(&at("dir/old"), &at("new")).await }),
        syncs: &["dir/old", ".", "dir"],
        before: 1,
    },
    Case {
        name: "rename that creates",
        write: |store| {
            Box::pin(async move { store.rename_if_not_exists(&at("dir/old"), &at("new")).await })
        },
        syncs: &["dir/old", ".", "dir"],
        before: 1,
    },
];

fn store(dir: &FilePath, engine: &Engine) -> RingwayFileSystem {
    std::fs::create_dir(dir.join("dir")).unwrap();
    std::fs::write(dir.join("old"), b"old").unwrap();
    std::fs::write(dir.join("dir/old"), b"old").unwrap();
    RingwayFileSystem::new_with_prefix(dir).unwrap().with_engine(engine).with_fsync(true)
}

/// The files, without directories: those that a failed write created remain.
fn objects(dir: &FilePath) -> Vec<(String, Vec<u8>)> {
    let files = tree(dir).into_iter();
    files.filter_map(|(name, (_, content))| Some((name, content?))).collect()
}

/// A case whose sync with this number fails. Returns false if the case has fewer syncs.
async fn fails(case: &Case, kind: BackendKind, number: usize) -> Option<bool> {
    let plan = format!("fail=fsync.{number}/EIO").parse().unwrap();
    let engine = build_or_skip(kind, Engine::builder().shards(1).faults(plan))?;
    let dir = scratch_on_disk();
    let store = store(dir.path(), &engine);
    let before = objects(dir.path());
    let result = (case.write)(store).await;
    until_idle(&engine).await;
    let after = objects(dir.path());
    let Some(synced) = case.syncs.get(number) else {
        result.unwrap();
        assert_ne!(before, after);
        return Some(false);
    };
    let path = match *synced {
        "." => dir.path().to_owned(),
        name => dir.path().join(name),
    };
    let error = result.expect_err("a sync failed").to_string();
    let expected = format!("Unable to sync data to disk for {}: ", path.display());
    let what = format!("{kind} {}: sync {number}", case.name);
    assert!(error.contains(&expected), "{what}: {error}, not {expected}");
    assert!(error.contains("os error 5"), "{what}: {error}");
    assert_eq!(before == after, number < case.before, "{what}: {before:?}, {after:?}");
    Some(true)
}

#[test]
fn every_sync_is_made_in_order_and_its_error_is_reported() {
    // Faults do not reach the syncs of Linux AIO, which go to the fallback pool.
    for kind in [BackendKind::Uring, BackendKind::Threads] {
        for case in CASES {
            runtime().block_on(async {
                for number in 0.. {
                    if fails(case, kind, number).await != Some(true) {
                        break;
                    }
                }
            });
        }
    }
}

#[test]
fn without_fsync_nothing_is_synced() {
    for kind in [BackendKind::Uring, BackendKind::Threads] {
        let plan = "fail=fsync.0/EIO".parse().unwrap();
        let builder = Engine::builder().shards(1).faults(plan);
        let Some(engine) = build_or_skip(kind, builder) else { continue };
        for case in CASES {
            let dir = scratch_on_disk();
            let store = store(dir.path(), &engine).with_fsync(false);
            runtime().block_on((case.write)(store)).unwrap();
        }
    }
}
