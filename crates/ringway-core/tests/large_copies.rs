//! The thread that submits to a ring does not copy large buffered transfers, nor touches the memory
//! of large direct ones; kernel workers do.

// Other systems have no ring.
#![cfg(ringway_linux)]

use ringway_core::{AlignedBuffer, BackendKind, Buffer, File, OpenOptions, Options, Queue, op};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Processor time that `clock` has counted.
fn processor_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one time into the live value.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

const LEN: usize = 64 << 20;

/// A queue on a ring, and a file of [`LEN`] bytes in a directory that goes with the guard.
fn ring_and_file() -> Option<(Queue, tempfile::TempDir, PathBuf)> {
    let queue = match Options::new().backend(BackendKind::Uring).build() {
        Ok(queue) => queue,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; LEN]).unwrap();
    Some((queue, dir, path))
}

/// Reads the file four times, up to 32 reads of `len` bytes at once. The submitting thread must use
/// less than half of the processor time.
fn workers_read(queue: &mut Queue, file: &File, len: usize, buffer: fn(usize) -> Buffer) {
    let group = 32.min(LEN / len);
    let (mut submitting, mut all) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..4 * LEN / len / group {
        for at in 0..group {
            queue.push(op::read(file, buffer(len), (at * len) as u64)).unwrap();
        }
        let begun =
            [libc::CLOCK_THREAD_CPUTIME_ID, libc::CLOCK_PROCESS_CPUTIME_ID].map(processor_time);
        queue.submit().unwrap();
        submitting += processor_time(libc::CLOCK_THREAD_CPUTIME_ID) - begun[0];
        for _ in 0..group {
            let done = queue.reap(1).unwrap().next().unwrap();
            assert_eq!(done.result, Ok(len as u64));
        }
        all += processor_time(libc::CLOCK_PROCESS_CPUTIME_ID) - begun[1];
    }
    // The workers are threads of this process. Where the submitting thread copies, nearly all the
    // processor time is its own, however fast or busy the machine is.
    assert!(submitting < all / 2, "{submitting:?} of {all:?} for reads of {len} bytes");
    println!("{submitting:?} of {all:?} for reads of {len} bytes");
}

#[test]
fn large_buffered_reads_are_left_to_workers() {
    let Some((mut queue, _dir, path)) = ring_and_file() else { return };
    let file = File::open(&path).unwrap();
    for len in [64 << 10, 1 << 20, LEN] {
        workers_read(&mut queue, &file, len, |len| vec![0; len].into());
    }
}

/// The kernel pins the memory of a direct read, and fills each page with zeros that was not touched
/// before.
#[test]
fn large_direct_reads_are_left_to_workers() {
    let Some((mut queue, _dir, path)) = ring_and_file() else { return };
    let file = match open_direct(&path) {
        Ok(file) => file,
        Err(error) => return println!("skipped: no direct I/O here: {error}"),
    };
    for len in [1 << 20, 16 << 20] {
        // Mapped for each read.
        workers_read(&mut queue, &file, len, |len| AlignedBuffer::new(len, 4096).into());
    }
}

fn open_direct(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).direct(true).open(path)
}
