//! Conditional updates: what `PutMode::Update` guarantees.

use super::object_store::path::Path;
use super::object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutResult, UpdateVersion};
use super::{RELEASE, RingwayFileSystem};
use crate::common::{
    engines, is_staged, names, runtime, scratch, until, until_idle, until_unstaged,
};
use crate::process::in_child;
use futures::FutureExt;
use std::collections::HashSet;
use std::path::Path as FilePath;
use std::process::Command;
use std::time::Duration;
use tokio::time::timeout;

/// How long an update is given the chance to ignore a lock.
const WHILE: Duration = Duration::from_millis(20);
/// Names the directory of a counter for a child process.
const SHARED: &str = "RINGWAY_TEST_SHARED";

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
    const VERSIONS: usize = 200;
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

/// Adds one to the number in `counter` this many times. Every successful update is one that read
/// the version before it.
async fn count(store: RingwayFileSystem, updates: usize) {
    let path = Path::from("counter");
    let mut done = 0;
    while done < updates {
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
}

fn counted(dir: &FilePath) -> usize {
    std::fs::read_to_string(dir.join("counter")).unwrap().parse().unwrap()
}

#[test]
fn updates_of_two_processes_are_not_lost() {
    const UPDATES: usize = 200;
    let count = |dir: &FilePath| {
        let store = RingwayFileSystem::new_with_prefix(dir).unwrap();
        runtime().block_on(count(store, UPDATES));
    };
    let test = format!("{RELEASE}::update::updates_of_two_processes_are_not_lost");
    if let Some(dir) = std::env::var_os(SHARED) {
        return in_child(&test, |_| (), || count(dir.as_ref()));
    }
    let dir = scratch();
    std::fs::write(dir.path().join("counter"), "1000").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let prepare = |command: &mut Command| _ = command.env(SHARED, dir.path());
            in_child(&test, prepare, || unreachable!("this is the parent"));
        });
        runtime().block_on(until("the other process to count", || counted(dir.path()) > 1000));
        count(dir.path());
    });
    assert_eq!(counted(dir.path()), 1000 + 2 * UPDATES);
}

#[allow(clippy::incompatible_msrv)] // Tests are compiled with the current Rust.
fn lock(dir: &FilePath) -> std::fs::File {
    let dir = std::fs::File::open(dir).unwrap();
    dir.lock().unwrap();
    dir
}

#[test]
fn a_locked_directory_delays_updates_only() {
    for engine in engines() {
        let dir = scratch();
        let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
        runtime().block_on(async {
            let [object, moved, gone] = ["object", "moved", "gone"].map(Path::from);
            let put = store.put(&object, "old".into()).await.unwrap();
            let held = lock(dir.path());
            // More than run closures at a time, none of which waits for the lock.
            let updates: Vec<_> =
                (0..100).map(|_| update(&store, &object, "new", put.e_tag.clone())).collect();
            let mut updates = futures::future::join_all(updates).boxed();
            assert!(timeout(WHILE, &mut updates).await.is_err(), "an update did not wait");
            store.put(&gone, "gone".into()).await.unwrap();
            let mut upload = store.put_multipart(&moved).await.unwrap();
            upload.put_part("moved".into()).await.unwrap();
            upload.complete().await.unwrap();
            store.copy(&gone, &moved).await.unwrap();
            store.rename(&moved, &gone).await.unwrap();
            store.delete(&gone).await.unwrap();
            assert_eq!(std::fs::read(dir.path().join("object")).unwrap(), b"old");
            drop(held);
            let results = updates.await;
            // The first one, and then none.
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
            assert_eq!(std::fs::read(dir.path().join("object")).unwrap(), b"new");
        });
    }
}

/// An update that was given up while the directory was locked does not happen later.
#[test]
fn a_dropped_update_does_not_happen_later() {
    for engine in engines() {
        let dir = scratch();
        let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
        runtime().block_on(async {
            let path = Path::from("object");
            for len in [10, 100_000] {
                let put = store.put(&path, "old".into()).await.unwrap();
                let held = lock(dir.path());
                let mut updated = store
                    .put_opts(&path, vec![7; len].into(), version(put.e_tag.clone()).into())
                    .boxed();
                let is_staged = || names(dir.path()).iter().any(|name| is_staged(name));
                let staged = until("the update to be staged", is_staged);
                futures::pin_mut!(staged);
                futures::future::select(&mut updated, staged).await;
                assert!(timeout(WHILE, &mut updated).await.is_err(), "the update did not wait");
                drop(updated);
                // An attempt that has begun still runs to its end.
                until_idle(&engine).await;
                drop(held);
                until_unstaged(dir.path()).await;
                assert_eq!(std::fs::read(dir.path().join("object")).unwrap(), b"old");
                update(&store, &path, "new", put.e_tag).await.unwrap();
            }
        });
    }
}
