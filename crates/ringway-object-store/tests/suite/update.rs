//! Conditional updates: what `PutMode::Update` guarantees.

use super::RingwayFileSystem;
use super::object_store::path::Path;
use super::object_store::{
    CopyMode, CopyOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutResult, UpdateVersion,
};
use crate::common::{engines, names, runtime, scratch};
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::timeout;

/// How long writes are given the chance to ignore a lock.
const WHILE: Duration = Duration::from_millis(20);

fn version(e_tag: Option<String>) -> PutMode {
    PutMode::Update(UpdateVersion { e_tag, version: None })
}

async fn update(
    store: &RingwayFileSystem,
    path: &Path,
    content: &str,
    e_tag: Option<String>,
) -> Result<PutResult, Error> {
    store.put_opts(path, content.to_owned().into(), version(e_tag).into()).await
}

#[test]
fn an_update_needs_the_present_version() {
    for engine in engines() {
        let dir = scratch();
        let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
        runtime().block_on(async {
            let path = Path::from("object");
            let first = store.put(&path, "one".into()).await.unwrap();
            let second = update(&store, &path, "two", first.e_tag.clone()).await.unwrap();
            assert_eq!(store.head(&path).await.unwrap().e_tag, second.e_tag);
            let old = update(&store, &path, "three", first.e_tag).await.unwrap_err();
            assert!(
                matches!(&old, Error::Precondition { path, .. }
                if path == dir.path().join("object").to_str().unwrap()),
                "{old}"
            );
            let missing = update(&store, &"missing".into(), "x", second.e_tag.clone()).await;
            assert!(matches!(missing, Err(Error::Precondition { .. })), "{missing:?}");
            let without = update(&store, &path, "x", None).await.unwrap_err();
            assert!(matches!(without, Error::Generic { .. }), "{without}");
            let versioned = PutMode::Update(UpdateVersion {
                e_tag: second.e_tag.clone(),
                version: Some("7".into()),
            });
            let versioned = store.put_opts(&path, "x".into(), versioned.into()).await;
            assert!(matches!(versioned, Err(Error::Precondition { .. })), "{versioned:?}");
            assert_eq!(std::fs::read(dir.path().join("object")).unwrap(), b"two");
            assert_eq!(names(dir.path()), ["object"]);
            // A version that was deleted and written again is another one.
            store.delete(&path).await.unwrap();
            store.put(&path, "two".into()).await.unwrap();
            update(&store, &path, "three", second.e_tag).await.unwrap_err();
        });
    }
}

/// Versions that follow each other fast, with the same length and often the same inode, differ.
#[test]
fn no_two_versions_have_the_same_etag() {
    const VERSIONS: usize = 500;
    for engine in engines() {
        let dir = scratch();
        let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
        runtime().block_on(async {
            let path = Path::from("object");
            let mut seen = HashSet::new();
            for number in 0..VERSIONS {
                let e_tag = store.put(&path, "same".into()).await.unwrap().e_tag.unwrap();
                assert!(seen.insert(e_tag.clone()), "version {number} has the old ETag {e_tag}");
                if number % 5 == 0 {
                    store.delete(&path).await.unwrap();
                }
            }
        });
    }
}

/// Every successful update is one that read the version before it, whatever else happens to the
/// object meanwhile, through any store of the directory.
#[test]
fn updates_are_never_lost() {
    const TASKS: usize = 6;
    const UPDATES: usize = 30;
    for engine in engines() {
        let dir = scratch();
        let new = || RingwayFileSystem::new_with_prefix(dir.path()).unwrap();
        let path = Path::from("counter");
        runtime().block_on(async {
            new().put(&path, "1000".into()).await.unwrap();
            let count = |store: RingwayFileSystem, path: Path| async move {
                let mut done = 0;
                while done < UPDATES {
                    let got = store.get(&path).await.unwrap();
                    let e_tag = got.meta.e_tag.clone();
                    let text = String::from_utf8(got.bytes().await.unwrap().into()).unwrap();
                    let next = (text.parse::<usize>().unwrap() + 1).to_string();
                    match update(&store, &path, &next, e_tag).await {
                        Ok(_) => done += 1,
                        Err(Error::Precondition { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            };
            let tasks: Vec<_> = (0..TASKS)
                // Half of them on another engine.
                .map(|task| if task % 2 == 0 { new() } else { new().with_engine(&engine) })
                .map(|store| tokio::spawn(count(store, path.clone())))
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        let count = std::fs::read_to_string(dir.path().join("counter")).unwrap();
        assert_eq!(count, (1000 + TASKS * UPDATES).to_string());
    }
}

/// Other writes wait for the lock of an update, too: here the test holds it.
#[test]
fn all_writes_take_the_lock() {
    for engine in engines() {
        let dir = scratch();
        let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
        runtime().block_on(async {
            let [object, other] = ["a/object", "b/object"].map(Path::from);
            let put = store.put(&object, "old".into()).await.unwrap();
            store.put(&other, "other".into()).await.unwrap();
            let mut upload = store.put_multipart(&object).await.unwrap();
            let lock = std::fs::File::open(dir.path().join("a")).unwrap();
            lock.lock().unwrap();
            let create = CopyOptions::new().with_mode(CopyMode::Create);
            let copied = Path::from("a/copied");
            let mut waiting = [
                store.put_opts(&object, "new".into(), PutMode::Overwrite.into()),
                store.put_opts(&object, "new".into(), version(put.e_tag.clone()).into()),
            ];
            for write in &mut waiting {
                assert!(timeout(WHILE, write).await.is_err(), "a put did not wait");
            }
            let mut complete = Box::pin(async { upload.complete().await.is_ok() });
            let mut copy =
                Box::pin(async { store.copy_opts(&other, &copied, create).await.is_ok() });
            let moved = Path::from("a/moved");
            let mut rename = Box::pin(async { store.rename(&object, &moved).await.is_ok() });
            let gone = Path::from("a/gone");
            let mut delete = Box::pin(async { store.delete(&gone).await.is_ok() });
            assert!(timeout(WHILE, &mut complete).await.is_err(), "complete did not wait");
            assert!(timeout(WHILE, &mut copy).await.is_err(), "copy did not wait");
            assert!(timeout(WHILE, &mut rename).await.is_err(), "rename did not wait");
            assert!(timeout(WHILE, &mut delete).await.is_err(), "delete did not wait");
            assert_eq!(std::fs::read(dir.path().join("a/object")).unwrap(), b"old");
            drop(lock);
            // In any order, so the update may fail.
            let [first, second] = waiting;
            first.await.unwrap();
            let _ = second.await;
            assert!(complete.await && copy.await && rename.await && !delete.await);
        });
    }
}
