//! A file system whose server is slow or hangs: what waits for it delays nothing else.

use crate::common::watchdog::Watchdog;
use crate::common::{Blocked, MS, available, current_thread, skip, wait_for};
use futures::executor::block_on;
use futures::future::{join_all, poll_immediate};
use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Engine};
use ringway_hostile::Hostile;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs a test on each backend, with a hostile file system of its own.
fn on_each_backend(name: &str, test: impl Fn(BackendKind, &Hostile)) {
    for kind in available() {
        let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
        let _watch = Watchdog::new(&format!("{kind} {name}"));
        test(kind, &hostile);
    }
}

fn put(directory: PathBuf, names: impl IntoIterator<Item = String>) -> Vec<PathBuf> {
    let paths = names.into_iter().map(|name| directory.join(name));
    paths.inspect(|path| std::fs::write(path, b"content").unwrap()).collect()
}

/// Runs `work` in a runtime of one thread. Returns the longest time for which the thread was
/// blocked and ran nothing else.
fn longest_stall(work: impl Future<Output = ()>) -> Duration {
    current_thread().block_on(async {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        let ticks = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let blocked = Blocked::measure();
                tokio::time::sleep(MS).await;
                longest = longest.max(blocked.time());
            }
            longest
        });
        tokio::task::yield_now().await;
        work.await;
        over.store(true, Ordering::Relaxed);
        ticks.await.unwrap()
    })
}

/// Whatever closes a file does not hold up the runtime's thread while the server answers the FLUSH.
#[test]
fn closes_hold_up_no_runtime() {
    on_each_backend("closes_hold_up_no_runtime", |kind, hostile| {
        let engine = Engine::builder().backend(kind).shards(1).build().unwrap();
        let dir = hostile.path();
        put(dir.clone(), ["file", "late", "slow"].map(str::to_owned));
        let opened = || hostile.count("open").unwrap().requests;
        let opened = || opened() + hostile.count("create").unwrap().requests;
        let released = || hostile.count("release").unwrap().requests;
        wait_for("the files to be closed", || released() == opened());
        hostile.set("* flush delay 3000\nlate read delay 300\nslow open delay 300").unwrap();
        let path = |name: &str| dir.join(name);
        let fs = engine.fs();
        let stall = longest_stall(async {
            let read = async {
                assert_eq!(fs.read(path("file")).await.unwrap(), b"content");
            };
            let write = async { fs.write(path("written"), b"content".to_vec()).await.unwrap() };
            let copy = async { assert_eq!(fs.copy(path("file"), path("copy")).await.unwrap(), 7) };
            let atomic = async {
                fs.write_atomic(path("atomic"), b"content".to_vec()).await.unwrap();
                drop(fs.create_atomic(path("dropped")).await.unwrap());
            };
            let dropped = async { drop(engine.open(path("file")).await.unwrap()) };
            let held_by_a_read = async {
                let file = engine.open(path("late")).await.unwrap();
                let mut read = Box::pin(file.read_at(vec![0; 7], 0));
                assert!(poll_immediate(&mut read).await.is_none());
                drop(read);
            };
            let dropped_open = async {
                let mut open = Box::pin(engine.open(path("slow")));
                assert!(poll_immediate(&mut open).await.is_none());
                tokio::time::sleep(50 * MS).await;
                drop(open);
                let mut open = Box::pin(engine.open(path("slow")));
                assert!(poll_immediate(&mut open).await.is_none());
                // It is done, and nobody polls it.
                tokio::time::sleep(1000 * MS).await;
                drop(open);
            };
            let dropped_close = async {
                let mut close = Box::pin(engine.open(path("file")).await.unwrap().close());
                assert!(poll_immediate(&mut close).await.is_none());
            };
            tokio::join!(
                read,
                write,
                copy,
                atomic,
                dropped,
                held_by_a_read,
                dropped_open,
                dropped_close
            );
            tokio::time::sleep(500 * MS).await;
        });
        assert!(stall < 1500 * MS, "{kind}: the thread stood still for {stall:?}");
        // Those of the engine's files that are not closed yet are closed without it.
        drop(engine);
        wait_for("the files to be closed", || released() == opened());
        hostile.set("clear").unwrap();
        for name in ["written", "copy", "atomic"] {
            assert_eq!(std::fs::read(path(name)).unwrap(), b"content", "{name}");
        }
        assert!(!path("dropped").exists());
        wait_for("the name of the dropped file to go", || {
            let names = std::fs::read_dir(&dir).unwrap();
            names.flatten().all(|entry| entry.path().extension().is_none_or(|end| end != "tmp"))
        });
    });
}

type Waiting<'a, T> = Vec<Pin<Box<dyn Future<Output = std::io::Result<T>> + 'a>>>;

/// Polls each of them once. None is ready.
fn begin<T>(waiting: &mut Waiting<'_, T>) {
    for one in waiting {
        assert!(block_on(poll_immediate(one)).is_none());
    }
}

/// A thousand syncs of a file system that does not answer delay one elsewhere by less than a second
/// or so (by 16 seconds if the limit of syncs in flight did not grow).
#[test]
fn a_thousand_hung_syncs_delay_no_other() {
    on_each_backend("a_thousand_hung_syncs_delay_no_other", |kind, hostile| {
        let engine = Engine::builder().backend(kind).shards(1).build().unwrap();
        // One that answers. (A sync of a disk waits for what others write there.)
        let Some(elsewhere) = Hostile::mount_or_skip(skip) else { return };
        let open = |path: &Path| -> File {
            block_on(OpenOptions::new().write(true).create(true).engine(&engine).open(path))
                .unwrap()
        };
        let other = open(&elsewhere.path().join("file"));
        let files: Vec<File> = put(hostile.path(), (0..1000).map(|number| number.to_string()))
            .iter()
            .map(|path| open(path))
            .collect();
        hostile.set("* fsync freeze").unwrap();
        let mut syncs: Waiting<'_, ()> = Vec::new();
        syncs.extend(files.iter().map(|file| Box::pin(file.sync_all()) as _));
        begin(&mut syncs);
        let begun = Instant::now();
        block_on(other.sync_all()).unwrap();
        let time = begun.elapsed();
        println!("{kind}: {time:?}");
        assert!(time < Duration::from_secs(5), "{kind}: {time:?}");
        hostile.set("clear").unwrap();
        assert!(block_on(join_all(syncs)).into_iter().all(|synced| synced.is_ok()));
    });
}

/// The same for calls.
#[test]
fn hundreds_of_hung_calls_delay_no_other() {
    on_each_backend("hundreds_of_hung_calls_delay_no_other", |kind, hostile| {
        let engine = Engine::builder().backend(kind).shards(1).build().unwrap();
        let [path] = &put(hostile.path(), ["file".to_owned()])[..] else { unreachable!() };
        hostile.set("* setattr freeze").unwrap();
        let permissions = std::fs::metadata(path).unwrap().permissions();
        let mut calls: Waiting<'_, ()> = Vec::new();
        let call = || Box::pin(engine.fs().set_permissions(path, permissions.clone())) as _;
        calls.extend((0..400).map(|_| call()));
        begin(&mut calls);
        let begun = Instant::now();
        block_on(engine.fs().canonicalize("/")).unwrap();
        let time = begun.elapsed();
        println!("{kind}: {time:?}");
        assert!(time < Duration::from_secs(6), "{kind}: {time:?}");
        hostile.set("clear").unwrap();
        assert!(block_on(join_all(calls)).into_iter().all(|called| called.is_ok()));
    });
}

/// Whoever writes with a duplicate of the descriptor has the lock of its position until the server
/// answers. The conversion to a file of the standard library sets that position.
#[test]
fn a_conversion_holds_up_no_runtime() {
    use std::io::{Seek as _, SeekFrom, Write as _};
    use tokio::io::AsyncSeekExt as _;
    on_each_backend("a_conversion_holds_up_no_runtime", |kind, hostile| {
        let engine = Engine::builder().backend(kind).shards(1).build().unwrap();
        let [path] = &put(hostile.path(), ["file".to_owned()])[..] else { unreachable!() };
        let mut file = block_on(OpenOptions::new().write(true).engine(&engine).open(path)).unwrap();
        let at = SeekFrom::Start(3);
        assert_eq!(current_thread().block_on(file.seek(at)).unwrap(), 3);
        let duplicate = std::os::fd::AsFd::as_fd(&file).try_clone_to_owned().unwrap();
        hostile.set("* write freeze").unwrap();
        let writer = std::thread::spawn(move || std::fs::File::from(duplicate).write_all(b"new"));
        wait_for("the write", || hostile.count("write").unwrap().inside > 0);
        let mut converted = Box::pin(file.into_std());
        let (sender, polled) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            // A poll that waits for the server would never end.
            scope.spawn(move || {
                let is_over = polled.recv_timeout(Duration::from_secs(5)).is_ok();
                hostile.set("clear").unwrap();
                assert!(is_over, "{kind}: a poll waits for the server");
            });
            assert!(block_on(poll_immediate(&mut converted)).is_none());
            sender.send(()).unwrap();
        });
        let mut converted = block_on(converted).unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(converted.stream_position().unwrap(), 3);
    });
}
