//! Directories that somebody else has locked, and paths on which a write must not wait for ever.

use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, ObjectStoreExt, PutMode, Result};
use super::{RELEASE, RingwayFileSystem};
use crate::common::{
    build_or_skip, engines, is_staged, names, runtime, scratch, tree, until, until_idle,
    until_unstaged,
};
use crate::process::in_child;
use futures::future::{BoxFuture, FutureExt, join_all};
use ringway::{BackendKind, Engine};
use std::path::Path as FilePath;
use std::time::Duration;
use tokio::time::timeout;

/// How long a dropped write is given the chance to reach the lock.
const WHILE: Duration = Duration::from_millis(20);
/// Longer than any write takes that waits for nobody.
const LONG: Duration = Duration::from_secs(60);

fn lock(dir: &FilePath) -> std::fs::File {
    let dir = std::fs::File::open(dir).unwrap();
    dir.lock().unwrap();
    dir
}

/// How many threads of this process have this name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

/// However many writes wait for a lock, one thread waits, and writes elsewhere go on.
#[test]
fn a_locked_directory_stops_only_its_own_writes() {
    const WRITES: usize = 1000;
    let test = || {
        let Some(engine) = build_or_skip(BackendKind::Threads, Engine::builder().shards(1)) else {
            return;
        };
        let dir = scratch();
        let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
        for name in ["locked", "free"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        runtime().block_on(async {
            let locked = dir.path().join("locked");
            let held = lock(&locked);
            let put = |number: usize| {
                let (store, path) = (store.clone(), Path::from(format!("locked/{number}")));
                let len = if number.is_multiple_of(100) { 100_000 } else { 10 };
                tokio::spawn(async move { store.put(&path, vec![7; len].into()).await.map(drop) })
            };
            let waiting: Vec<_> = (0..WRITES).map(put).collect();
            let staged = || names(&locked).iter().filter(|name| is_staged(name)).count();
            until("all objects to be staged", || staged() == WRITES).await;
            for number in 0..20 {
                let path = Path::from(format!("free/{number}"));
                let put = timeout(LONG, store.put(&path, "new".into()));
                put.await.expect("it must not wait").unwrap();
            }
            until("one thread to wait", || threads("ringway-lock") == 1).await;
            // As many as run closures at a time, and some if the machine is slow.
            assert!(threads("ringway-call") < 100, "{} threads", threads("ringway-call"));
            assert_eq!(staged(), WRITES);
            drop(held);
            join_all(waiting).await.into_iter().for_each(|put| put.unwrap().unwrap());
            assert_eq!(names(&locked).len(), WRITES);
            assert_eq!(staged(), 0);
            until("the thread to end", || threads("ringway-lock") == 0).await;
        });
    };
    let name = format!("{RELEASE}::locks::a_locked_directory_stops_only_its_own_writes");
    in_child(&name, |_| {}, test);
}

/// A write that was given up while it waited for the lock does not happen when the lock is free.
#[test]
fn a_dropped_write_does_not_happen_later() {
    for engine in engines() {
        let dir = scratch();
        let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
        runtime().block_on(async {
            for name in ["a", "b"] {
                store.put(&Path::from(name), name.into()).await.unwrap();
            }
            let [a, b, c] = ["a", "b", "c"].map(Path::from);
            let mut upload = store.put_multipart(&a).await.unwrap();
            upload.put_part("new".into()).await.unwrap();
            let before = tree(dir.path());
            let held = lock(dir.path());
            let writes: [BoxFuture<'_, Result<()>>; 7] = [
                store.put(&a, "new".into()).map(|put| put.map(drop)).boxed(),
                store.put(&a, vec![7; 100_000].into()).map(|put| put.map(drop)).boxed(),
                store.put_opts(&c, "c".into(), PutMode::Create.into()).map(|p| p.map(drop)).boxed(),
                upload.complete().map(|put| put.map(drop)).boxed(),
                store.copy(&a, &b).boxed(),
                store.rename(&a, &b).boxed(),
                store.delete(&b).boxed(),
            ];
            let waited = timeout(WHILE, join_all(writes)).await;
            assert!(waited.is_err(), "a write did not wait: {waited:?}");
            drop(held);
            until_idle(&engine).await;
            until_unstaged(dir.path()).await;
            let after = tree(dir.path());
            let objects = |name: &&String| !is_staged(name);
            assert_eq!(
                after.keys().collect::<Vec<_>>(),
                before.keys().filter(objects).collect::<Vec<_>>()
            );
            assert!(after.iter().all(|(name, object)| before[name] == *object), "{after:?}");
        });
    }
}

/// A program may keep a future without polling it, for example in `select!`.
#[test]
fn a_future_that_is_not_polled_keeps_no_lock() {
    for engine in engines() {
        let dir = scratch();
        let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
        runtime().block_on(async {
            let [a, b, c] = ["a", "b", "c"].map(Path::from);
            let held = lock(dir.path());
            let mut first = store.put(&a, "a".into()).boxed();
            let mut second = store.put(&b, "b".into()).boxed();
            assert!(timeout(WHILE, &mut first).await.is_err(), "the first did not wait");
            assert!(timeout(WHILE, &mut second).await.is_err(), "the second did not wait");
            drop(held);
            timeout(LONG, second).await.expect("it must not wait for the first").unwrap();
            timeout(LONG, store.put(&c, "c".into())).await.expect("nor must others").unwrap();
            first.await.unwrap();
            assert_eq!(names(dir.path()), ["a", "b", "c"]);
        });
    }
}

/// Paths below a FIFO, and in a file system without new files: errors as in `LocalFileSystem`.
#[test]
fn odd_paths_are_errors() {
    let Some(engine) = build_or_skip(BackendKind::Threads, Engine::builder()) else { return };
    let dir = scratch();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    std::fs::write(dir.path().join("a"), b"a").unwrap();
    let store = RingwayFileSystem::new_with_prefix(dir.path()).unwrap().with_engine(&engine);
    let local = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
    runtime().block_on(async {
        let [a, below] = ["a", "fifo/below"].map(Path::from);
        let outcomes = async |store: &dyn ObjectStore| {
            let errors = [
                store.put(&below, "new".into()).await.unwrap_err(),
                store.copy(&a, &below).await.unwrap_err(),
                store.rename(&a, &below).await.unwrap_err(),
                store.delete(&below).await.unwrap_err(),
            ];
            errors.map(|error| error.to_string().replace("RingwayFileSystem", "LocalFileSystem"))
        };
        let ours = timeout(LONG, outcomes(&store)).await.expect("it must not wait for a writer");
        assert_eq!(ours, outcomes(&local).await);
        // `LocalFileSystem` tries this for ever.
        let everywhere = RingwayFileSystem::new().with_engine(&engine);
        let path = Path::from("proc/object");
        let put = timeout(LONG, everywhere.put(&path, "new".into()));
        let text = put.await.expect("it must end").unwrap_err().to_string();
        assert!(text.contains("/proc/object#1: No such file"), "{text}");
    });
}
