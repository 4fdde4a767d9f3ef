//! Direct reads on io_uring: the kernel gets each one once, also where it must wait for pages of
//! the file before it can start, and the rest of one that it cut short at once.

// Other systems have no ring.
#![cfg(ringway_linux)]

use ringway_core::{
    AlignedBuffer, BackendKind, FaultPlan, FaultStep, File, OpenOptions, Options, op,
};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;
const SOON: Duration = Duration::from_secs(20);

/// A direct file of zeroes, its folder, and the same file opened for buffered I/O; `None` where
/// there is no direct I/O.
fn scratch() -> Option<(File, std::fs::File, tempfile::TempDir)> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![0; BLOCKS * BLOCK]).unwrap();
    let buffered = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    buffered.sync_all().unwrap();
    match OpenOptions::new().read(true).direct(true).open(&path) {
        Ok(file) => Some((file, buffered, folder)),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

fn read(file: &File, block: usize) -> op::Operation {
    op::read(file, AlignedBuffer::new(BLOCK, BLOCK), (block * BLOCK) as u64)
}

/// The kernel writes dirty pages before it reads from the disk. With `RWF_NOWAIT` it would refuse
/// such a read instead, and every one of them would have to be submitted twice.
#[test]
fn a_read_of_dirty_pages_is_submitted_once() {
    let Some((file, buffered, _folder)) = scratch() else { return };
    let mut queue = match Options::new().backend(BackendKind::Uring).build() {
        Ok(queue) => queue,
        Err(error) => return println!("skipped: {error}"),
    };
    let before = queue.stats().system_calls;
    for round in 1..=BLOCKS as u8 {
        let block = usize::from(round) % BLOCKS;
        buffered.write_all_at(&[round; BLOCK], (block * BLOCK) as u64).unwrap();
        queue.push(read(&file, block)).unwrap();
        let done = queue.reap(1).unwrap().next().unwrap();
        assert_eq!(done.result, Ok(BLOCK as u64));
        let buffer = done.into_buffer().unwrap();
        assert!(buffer.as_slice().iter().all(|byte| *byte == round));
    }
    let stats = queue.stats();
    // (One enter submits a read and waits for it. A signal may end a few of the waits.)
    let calls = stats.system_calls - before;
    assert!(calls <= BLOCKS as u64 + BLOCKS as u64 / 8, "{calls} calls: {stats:?}");
    assert_eq!(stats.retries, 0, "{stats:?}");
}

/// A wait that ends early leaves nothing behind that only another call would submit: here the rest
/// of a transfer of which the kernel has done a part.
#[test]
fn a_read_that_is_continued_is_in_flight_when_a_wait_ends() {
    let Some((file, _buffered, _folder)) = scratch() else { return };
    let faults = FaultPlan::new(1).cut(FaultStep::Job(0));
    let mut queue = Options::new().faults(faults).build().unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let reader = File::from(std::os::fd::OwnedFd::from(reader));
    let fd = queue.poll_fd().unwrap().as_raw_fd();
    queue.push(op::read(&file, AlignedBuffer::new(8 * BLOCK, BLOCK), 0).exact()).unwrap();
    queue.push(read(&file, 0)).unwrap();
    queue.push(op::poll(&reader, op::Readiness::READABLE)).unwrap();
    let until = Instant::now() + Duration::from_millis(50);
    let mut left = 2 - queue.reap_until(3, until).unwrap().count();
    while left > 0 {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, on this stack, for the length of the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, SOON.as_millis() as i32) };
        assert_eq!(ready, 1, "{:?}", queue.stats());
        left -= queue.reap(0).unwrap().count();
    }
    assert_eq!(queue.stats().continued, 1);
}
