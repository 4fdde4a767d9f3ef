//! EINTR that a FUSE server answers: for ever, which holds no thread after a cancel, and once for
//! data that is lost, which a sync reports.

#![cfg(ringway_linux)]

#[path = "common/skip.rs"]
mod skip;

use ringway_core::{BackendKind, File, OpenOptions, Options, Queue, op};
use ringway_hostile::Hostile;
use ringway_torture::watchdog::Watchdog;
use skip::skip;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

/// Long enough on any machine; what takes longer hangs.
const SOON: Duration = Duration::from_secs(20);
const KINDS: [BackendKind; 3] = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];

fn queues() -> impl Iterator<Item = (BackendKind, Queue)> {
    KINDS.into_iter().filter_map(|kind| {
        let queue = Options::new().backend(kind).build();
        let queue = queue.inspect_err(|error| println!("skipped: {kind}: {error}"));
        Some((kind, queue.ok()?))
    })
}

fn errno(queue: &mut Queue) -> Result<u64, i32> {
    let done = queue.reap_until(1, Instant::now() + SOON).unwrap().next().expect("it ends");
    done.result.map_err(|error| error.errno())
}

/// The number of reads that the server was asked for, once that does not grow any more.
fn final_reads(hostile: &Hostile) -> Option<u64> {
    let until = Instant::now() + SOON;
    let count = || hostile.count("read").unwrap().requests;
    let mut before = count();
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
        match count() {
            now if now == before => return Some(now),
            now => before = now,
        }
    }
    None
}

#[test]
fn a_read_that_is_interrupted_for_ever_can_be_cancelled() {
    let _watched = Watchdog::new("a read that is interrupted for ever");
    let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
    std::fs::write(hostile.backing().join("file"), vec![1; 8192]).unwrap();
    let path = hostile.path().join("file");
    hostile.set("file read fail 4").unwrap();
    let plain = std::fs::File::open(&path).unwrap().read_at(&mut [0], 0);
    hostile.set("clear").unwrap();
    if plain.is_err_and(|error| error.raw_os_error() == Some(libc::EIO)) {
        return println!("skipped: this kernel makes EIO of each error of a cached read");
    }
    for (kind, mut queue) in queues() {
        hostile.set("file read fail 4").unwrap();
        let file = File::open(&path).unwrap();
        let read = || op::read(&file, vec![0; 4096], 0);
        let id = queue.push(read()).unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        let shown = queue.reap_until(1, until).unwrap().next().map(|done| done.result);
        assert_eq!(shown, None, "{kind}");
        assert!(queue.cancel(id));
        assert_eq!(errno(&mut queue), Err(libc::ECANCELED), "{kind}");
        queue.push(read().timeout(Duration::from_millis(50))).unwrap();
        assert_eq!(errno(&mut queue), Err(libc::ETIMEDOUT), "{kind}");
        // A drop cancels.
        queue.push(read()).unwrap();
        queue.submit().unwrap();
        drop(queue);
        assert!(final_reads(&hostile).is_some(), "{kind}: a thread goes on after the drop");
        hostile.set("clear").unwrap();
        // A few EINTR are retried.
        hostile.set("file read fail 4 30").unwrap();
        let mut queue = Options::new().backend(kind).build().unwrap();
        queue.push(read()).unwrap();
        assert_eq!(errno(&mut queue), Ok(4096), "{kind}");
        hostile.set("clear").unwrap();
    }
}

/// A server whose files the kernel caches, and writes later.
fn with_cached_writes() -> Option<Hostile> {
    Hostile::mount(&["writeback-cache"]).inspect_err(|error| skip(&error.to_string())).ok()
}

/// The kernel keeps the errno with which a server failed the write-back of cached data, and the
/// next sync returns it, once.
#[test]
fn an_interrupted_write_back_fails_the_sync() {
    let _watched = Watchdog::new("an interrupted write-back");
    let Some(hostile) = with_cached_writes() else { return };
    for (kind, mut queue) in queues() {
        for data_only in [false, true] {
            let name = format!("{kind}-{data_only}");
            let file: File = OpenOptions::new()
                .write(true)
                .create(true)
                .open(hostile.path().join(&name))
                .unwrap();
            hostile.set(&format!("{name} write fail 4 1")).unwrap();
            queue.push(op::write(&file, b"lost".to_vec(), 0)).unwrap();
            assert_eq!(errno(&mut queue), Ok(4));
            queue.push(if data_only { op::fdatasync(&file) } else { op::fsync(&file) }).unwrap();
            assert_eq!(errno(&mut queue), Err(libc::EINTR), "{name}");
            let behind = std::fs::read(hostile.backing().join(&name)).unwrap();
            assert_ne!(behind, b"lost", "the data was not lost");
            // A time limit that is far away does not change that.
            hostile.set(&format!("{name} write fail 4 1")).unwrap();
            queue.push(op::write(&file, b"lost".to_vec(), 0)).unwrap();
            assert_eq!(errno(&mut queue), Ok(4));
            let sync = if data_only { op::fdatasync(&file) } else { op::fsync(&file) };
            queue.push(sync.timeout(10 * SOON)).unwrap();
            assert_eq!(errno(&mut queue), Err(libc::EINTR), "{name} with a time limit");
        }
    }
}

/// Who cancels a sync may make another one, which would succeed: the error of lost data is told
/// once.
#[test]
fn a_sync_that_is_cancelled_still_returns_an_interrupted_write_back() {
    let _watched = Watchdog::new("a cancelled sync");
    let Some(hostile) = with_cached_writes() else { return };
    let limit = Duration::from_secs(1);
    for (kind, mut queue) in queues() {
        for (number, limit) in [None, Some(limit)].into_iter().enumerate() {
            let name = format!("{kind}-{number}");
            let mut options = OpenOptions::new();
            options.write(true).create(true);
            let file = options.open(hostile.path().join(&name)).unwrap();
            let delay = if limit.is_some() { 3000 } else { 500 };
            let rules = format!("{name} write delay {delay}\n{name} write fail 4 1");
            hostile.set(&rules).unwrap();
            queue.push(op::write(&file, b"lost".to_vec(), 0)).unwrap();
            assert_eq!(errno(&mut queue), Ok(4));
            let sync = op::fsync(&file);
            let written = || hostile.count("write").unwrap().requests;
            let before = written();
            // What is chained behind a sync that was cancelled does not begin.
            let next = op::write(&file, b"next".to_vec(), 0);
            let id = match limit {
                Some(limit) => queue.push(sync.timeout(limit)).unwrap(),
                None => queue.push_chain([sync.continue_on_error(), next]).unwrap(),
            };
            queue.submit().unwrap();
            if limit.is_none() {
                while written() == before {
                    std::thread::sleep(Duration::from_millis(1));
                }
                queue.cancel(id);
            }
            assert_eq!(errno(&mut queue), Err(libc::EINTR), "{name}");
            if limit.is_none() {
                assert_eq!(errno(&mut queue), Err(libc::ECANCELED), "{name}: behind the sync");
            }
        }
    }
}
