//! ext4 reads each block of a file's list of extents when a transfer first needs it, in the thread
//! that submits the transfer. After the first transfer of a file, the whole list is in memory.

#![cfg(ringway_linux)]

use ringway_core::{AlignedBuffer, BackendKind, File, OpenOptions, Options, op};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
/// In three blocks of the list, and a half.
const EXTENTS: usize = 1200;
const SOON: Duration = Duration::from_secs(20);

/// `EXT4_IOC_CLEAR_ES_CACHE`: the kernel forgets what it knows of the file's extents.
const FORGET: libc::Ioctl = 0x6628;
/// `EXT4_IOC_GET_ES_CACHE`: what it knows, in the form of `FS_IOC_FIEMAP`.
const KNOWN: libc::Ioctl = 0xc020_662a_u32 as libc::Ioctl;

/// `struct fiemap`, without room for extents: they are counted only.
#[repr(C)]
#[derive(Default)]
struct Fiemap {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// How many extents the kernel knows.
fn known(file: &fs::File) -> io::Result<u32> {
    let mut fiemap = Fiemap { len: u64::MAX, ..Fiemap::default() };
    // SAFETY: `fiemap` has room for `count` extents, and is valid during the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), KNOWN, &raw mut fiemap) } {
        0 => Ok(fiemap.mapped),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A file with many extents of which the kernel knows none, or `None` where that cannot be had.
fn fragmented(direct: bool) -> Option<(fs::File, File)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("extents-{}-{number}", std::process::id()));
    let file = fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    for number in 0..EXTENTS {
        file.write_all_at(&[7; BLOCK], (2 * number * BLOCK) as u64).unwrap();
    }
    file.sync_all().unwrap();
    let opened = OpenOptions::new().read(true).write(true).direct(direct).open(&path);
    fs::remove_file(&path).unwrap();
    // SAFETY: the call takes no argument.
    if unsafe { libc::ioctl(file.as_raw_fd(), FORGET) } != 0 {
        let error = io::Error::last_os_error();
        println!("skipped: {} is not on ext4 of Linux 5.4: {error}", path.display());
        return None;
    }
    assert_eq!(known(&file).unwrap(), 0);
    Some((file, opened.unwrap()))
}

/// The kernel knows all extents of the file that `test` returns, if there is one. Where other
/// programs need memory it forgets some again, so one of several files suffices.
fn becomes_known(what: &str, mut test: impl FnMut() -> Option<fs::File>) {
    let mut counts = Vec::new();
    while counts.len() < 10 {
        let Some(file) = test() else { return };
        counts.push(known(&file).unwrap());
        if counts.last().is_some_and(|known| *known as usize >= EXTENTS) {
            return;
        }
    }
    panic!("{what}: {counts:?} extents known");
}

#[test]
fn the_first_transfer_has_the_whole_list_read() {
    for backend in [BackendKind::Uring, BackendKind::Kaio] {
        let mut queue = match Options::new().backend(backend).build() {
            Ok(queue) => queue,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "{error}");
                println!("skipped: {error}");
                continue;
            }
        };
        for (direct, write) in [(true, false), (true, true), (false, false)] {
            becomes_known(&format!("{backend}, direct {direct}"), || {
                let (file, opened) = fragmented(direct)?;
                if !direct {
                    // A buffered write reads nothing of the list, and does not count.
                    queue.push(op::write(&opened, vec![7; 100], 0)).unwrap();
                    let mut done = queue.reap_until(1, Instant::now() + SOON).unwrap();
                    assert_eq!(done.next().unwrap().result, Ok(100));
                    drop(done);
                    // SAFETY: the call takes no argument.
                    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), FORGET) }, 0);
                }
                let buffer = AlignedBuffer::new(BLOCK, BLOCK);
                let operation = if write {
                    op::write(&opened, buffer, 0)
                } else {
                    op::read(&opened, buffer, 0)
                };
                queue.push(operation).unwrap();
                let mut done = queue.reap_until(1, Instant::now() + SOON).unwrap();
                assert_eq!(done.next().unwrap().result, Ok(BLOCK as u64));
                Some(file)
            });
        }
    }
}

/// Of many first transfers one has the list read, and none after the list was read: a walk through
/// it makes one call for each 32 extents.
#[test]
fn the_list_is_read_once() {
    for backend in [BackendKind::Uring, BackendKind::Kaio] {
        let Ok(mut queue) = Options::new().backend(backend).build() else { continue };
        let Some((_, opened)) = fragmented(true) else { return };
        for round in 0..3 {
            let before = queue.stats().system_calls;
            for at in 0..16 {
                let buffer = AlignedBuffer::new(BLOCK, BLOCK);
                queue.push(op::read(&opened, buffer, 2 * at * BLOCK as u64)).unwrap();
            }
            let mut left = 16;
            while left > 0 {
                for done in queue.reap_until(1, Instant::now() + SOON).unwrap() {
                    assert_eq!(done.result, Ok(BLOCK as u64));
                    left -= 1;
                }
            }
            let calls = queue.stats().system_calls - before;
            let most = if round == 0 { 2 * EXTENTS as u64 / 32 } else { EXTENTS as u64 / 32 };
            assert!(calls < most, "{backend}, round {round}: {calls} system calls");
        }
    }
}

/// One that was cancelled before it could have the list read leaves that to the next.
#[test]
fn a_cancelled_transfer_leaves_the_list_to_the_next() {
    for backend in [BackendKind::Uring, BackendKind::Kaio] {
        let Ok(mut queue) = Options::new().backend(backend).threads(1).build() else { continue };
        becomes_known(&backend.to_string(), || {
            let (file, opened) = fragmented(true)?;
            // The only thread is busy.
            let (release, wait) = std::sync::mpsc::channel::<()>();
            let fifo = std::sync::Mutex::new(wait);
            queue.push(op::blocking(move || _ = fifo.lock().unwrap().recv())).unwrap();
            let read = || op::read(&opened, AlignedBuffer::new(BLOCK, BLOCK), 0);
            let id = queue.push(read()).unwrap();
            queue.cancel(id);
            drop(release);
            while queue.in_flight() > 0 {
                for done in queue.reap_until(1, Instant::now() + SOON).unwrap() {
                    drop(done);
                }
            }
            queue.push(read()).unwrap();
            let mut done = queue.reap_until(1, Instant::now() + SOON).unwrap();
            assert_eq!(done.next().unwrap().result, Ok(BLOCK as u64));
            Some(file)
        });
    }
}
