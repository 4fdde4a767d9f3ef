//! The thread that submits to a ring does not copy large buffered transfers; kernel workers do.

// Other systems have no ring.
#![cfg(ringway_linux)]

use ringway_core::{BackendKind, File, Options, op};
use std::time::Duration;

/// Processor time that `clock` has counted.
fn processor_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one time into the live value.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn large_buffered_reads_are_left_to_workers() {
    const LEN: usize = 64 << 20;
    let mut queue = match Options::new().backend(BackendKind::Uring).build() {
        Ok(queue) => queue,
        Err(error) => return println!("skipped: {error}"),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; LEN]).unwrap();
    let file = File::open(&path).unwrap();
    for len in [64 << 10, 1 << 20, LEN] {
        let (mut submitting, mut all) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..4 * LEN / len / 32.min(LEN / len) {
            let group = 32.min(LEN / len);
            for at in 0..group {
                queue.push(op::read(&file, vec![0; len], (at * len) as u64)).unwrap();
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
        // The workers are threads of this process. Where the submitting thread copies, nearly all
        // the processor time is its own, however fast or busy the machine is.
        assert!(submitting < all / 2, "{submitting:?} of {all:?} for reads of {len} bytes");
        println!("{submitting:?} of {all:?} for reads of {len} bytes");
    }
}
