//! `with_fsync`: which files and directories are synced, in which order, and what a failing sync
//! leaves. Every sync fails in turn, and its error tells what was synced.

use super::object_store::path::Path;
use super::object_store::{ObjectStore, ObjectStoreExt, Result};
use super::{RELEASE, RingwayFileSystem};
use crate::common::{build_or_skip, mount_tmpfs, runtime, scratch_on_disk, tree, until_idle};
use crate::process::{become_ordinary, in_child};
use futures::future::BoxFuture;
use ringway::{BackendKind, Engine};
use std::os::unix::fs::PermissionsExt;
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

/// What refuses a sync of a directory in which only others have made names does not refuse a write.
/// (EACCES is not among the errors because the engine repeats such an operation on a thread.)
#[test]
fn a_refused_sync_is_an_error_only_where_the_store_made_a_directory() {
    for (kind, name) in [BackendKind::Uring, BackendKind::Threads]
        .into_iter()
        .flat_map(|kind| ["EPERM", "EINVAL", "EROFS", "EIO"].map(|name| (kind, name)))
    {
        let engine = || {
            let plan = format!("fail=fsync.0/{name}").parse().unwrap();
            build_or_skip(kind, Engine::builder().shards(1).faults(plan))
        };
        let put = |engine: Engine, path: &'static str| {
            let dir = scratch_on_disk();
            let store = store(dir.path(), &engine);
            runtime().block_on(async { store.put(&at(path), "new".into()).await.map(drop) })
        };
        let Some(found) = engine() else { continue };
        assert_eq!(put(found, "dir/new").is_ok(), name != "EIO", "{kind} {name}");
        let error = put(engine().unwrap(), "made/new").expect_err(name).to_string();
        assert!(error.contains("Unable to sync data to disk"), "{kind} {name}: {error}");
    }
}

#[test]
fn directories_that_cannot_be_read() {
    in_child(
        &format!("{RELEASE}::durable::directories_that_cannot_be_read"),
        |_| {},
        || {
            become_ordinary();
            let dir = tempfile::tempdir().unwrap();
            let store = store(dir.path(), Engine::global().unwrap());
            let locked = dir.path().join("locked");
            let set_mode = |mode| {
                std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(mode)).unwrap();
            };
            std::fs::create_dir_all(locked.join("found")).unwrap();
            set_mode(0o311);
            runtime().block_on(async {
                store.put(&at("locked/found/put"), "new".into()).await.unwrap();
                let mut upload = store.put_multipart(&at("locked/found/upload")).await.unwrap();
                upload.put_part("part".into()).await.unwrap();
                upload.complete().await.unwrap();
                store.copy(&at("old"), &at("locked/found/copy")).await.unwrap();
                store.rename(&at("old"), &at("locked/found/renamed")).await.unwrap();
                // Those that the store makes must be durable. That is so for the next try, too.
                for _ in 0..2 {
                    let put = store.put(&at("locked/made/new"), "new".into()).await;
                    let error = put.expect_err("the name may be lost").to_string();
                    assert!(error.contains("Unable to sync data to disk"), "{error}");
                }
                let rename = store.rename(&at("dir/old"), &at("locked/renamed/new")).await;
                rename.expect_err("the name may be lost");
            });
            set_mode(0o700);
        },
    );
}

/// What is above a mount point is in another file system.
#[test]
fn a_mount_point() {
    in_child(
        &format!("{RELEASE}::durable::a_mount_point"),
        |_| {},
        || {
            let dir = scratch_on_disk();
            let mounted = dir.path().join("a/mounted");
            std::fs::create_dir_all(&mounted).unwrap();
            if let Err(error) = mount_tmpfs(&mounted, None) {
                println!("skipped: no mounts: {error}");
                return;
            }
            for kind in [BackendKind::Uring, BackendKind::Threads] {
                let plan = "fail=fsync.1/EIO".parse().unwrap();
                let builder = Engine::builder().shards(1).faults(plan);
                let Some(engine) = build_or_skip(kind, builder) else { continue };
                let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
                let store = store.with_engine(&engine).with_fsync(true);
                let put = runtime().block_on(store.put(&at("a/mounted/new"), "new".into()));
                let error = put.expect_err("a sync failed").to_string();
                // The first one was that of the content.
                let expected = format!("Unable to sync data to disk for {}: ", mounted.display());
                assert!(error.contains(&expected), "{kind}: {error}");
            }
        },
    );
}
