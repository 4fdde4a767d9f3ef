//! A defect of kernels from 7.0 on, and of late releases of 6.18 and 6.19: an operation that needs
//! a worker (io-wq) may never start.
//!
//! A thread's workers serve all rings that it submits to. Those kernels let them exit when the last
//! of these rings is released, some milliseconds after it was closed. An operation of a new ring
//! may then be handed to a worker that is about to exit, and lies there until another operation for
//! a worker comes. Seen on an emulated 7.2 in one of 60 rings that were made soon after another one
//! was closed. So a thread that submits soon after a ring was closed gets a worker first, on a ring
//! of its own, which is closed when the thread has submitted to another one.

use crate::fork::OwnerProcess;
use crate::lookup::Lookup;
use crate::sys::kernel_release;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first kernel some of whose releases have workers that exit.
const SINCE: (u32, u32) = (6, 18);

/// The kernel has released a closed ring by then, if nothing was in flight on it. In milliseconds.
const SOON: u32 = 1000;

/// A worker that exits has gone by then.
const EXITED: Duration = Duration::from_millis(20);

/// How often to try. The second time is enough, unless all the workers that the thread may have are
/// busy for other rings of it; but then they do not exit.
const TRIES: u32 = 5;

/// The mark of the process that last closed a ring, and the time, in the upper and the lower half;
/// 0: none did. A forked child has the parent's value, but none of its workers.
static LAST_CLOSED: AtomicU64 = AtomicU64::new(0);

/// Whether this kernel may have the defect.
static IS_AFFECTED: Lookup<bool> = Lookup::new();

thread_local! {
    /// The value of [`LAST_CLOSED`] for which this thread has nothing left to do.
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Notes the time at which it is dropped: a ring is closed.
pub(super) struct Closing;

impl Drop for Closing {
    fn drop(&mut self) {
        let mark = u64::from(OwnerProcess::current().mark());
        LAST_CLOSED.store(mark << 32 | u64::from(now()), Ordering::Relaxed);
    }
}

/// Keeps a worker of the thread that made it, until the thread has submitted to another ring.
#[must_use]
pub(super) struct Worker {
    /// `None` if the thread needs no worker, or can have none.
    ring: Option<(IoUring, Closing)>,
    closed: u64,
}

impl Worker {
    /// Call it before a submission. It waits only if a ring was closed within a second, and only
    /// once after each: some 0.1 ms as a rule, and 100 ms at most.
    #[inline]
    pub fn of_thread() -> Self {
        let closed = LAST_CLOSED.load(Ordering::Relaxed);
        if closed == SEEN.get() { Self { ring: None, closed } } else { Self::after(closed) }
    }

    #[cold]
    fn after(closed: u64) -> Self {
        let is_needed = is_soon_after(closed, OwnerProcess::current().mark(), now())
            && *IS_AFFECTED.get_or_look_up(|| is_since(SINCE, &kernel_release()));
        let mut ring = if is_needed { IoUring::new(2).ok() } else { None };
        // (Without a worker, an operation that needs one is as likely to wait as before.)
        if let Some(ring) = &mut ring {
            start_worker(ring);
        }
        Self { ring: ring.map(|ring| (ring, Closing)), closed }
    }

    /// The thread has submitted to another ring, so its workers do not exit.
    #[inline]
    pub fn has_submitted(self) {
        SEEN.set(self.closed);
        if let Some((_ring, closing)) = self.ring {
            std::mem::forget(closing);
        }
    }
}

/// Whether the process with this mark closed a ring within [`SOON`] before this time.
fn is_soon_after(closed: u64, mark: u32, now: u32) -> bool {
    (closed >> 32) as u32 == mark && now.wrapping_sub(closed as u32) < SOON
}

/// Runs operations that do nothing on workers until one is done. Returns whether that is so.
fn start_worker(ring: &mut IoUring) -> bool {
    let wait = Timespec::from(EXITED);
    let args = SubmitArgs::new().timespec(&wait);
    for _ in 0..TRIES {
        if ring.submission().is_empty() {
            let nop = opcode::Nop::new().build().flags(squeue::Flags::ASYNC);
            // SAFETY: the operation refers to no memory.
            let pushed = unsafe { ring.submission().push(&nop) };
            debug_assert!(pushed.is_ok(), "the queue is empty");
        }
        // An error (ETIME, EINTR) leaves entries and completions for the next call.
        let _ = ring.submitter().submit_with_args(1, &args);
        if ring.completion().count() > 0 {
            return true;
        }
    }
    false
}

/// Milliseconds of a clock that costs little. They wrap around after 49 days.
fn now() -> u32 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes for the length of the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    (time.tv_sec as u32).wrapping_mul(1000).wrapping_add((time.tv_nsec / 1_000_000) as u32)
}

/// Whether the release is of this kernel or of a later one.
fn is_since(kernel: (u32, u32), release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= kernel,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_whose_workers_exit() {
        for (release, expected) in [
            ("7.0.0", true),
            ("7.2.13+deb14-cloud-amd64", true),
            ("10.1", true),
            ("6.18.44", true),
            ("6.17.5", false),
            ("5.10.0-46-cloud-amd64", false),
            ("", false),
            ("unknown", false),
            ("8", false),
        ] {
            assert_eq!(is_since(SINCE, release), expected, "{release}");
        }
        assert!(kernel_release().contains('.'));
    }

    #[test]
    fn a_thread_gets_a_worker_soon_after_a_ring_was_closed() {
        let is_affected = is_since(SINCE, &kernel_release()) && IoUring::new(2).is_ok();
        drop(Closing);
        let worker = Worker::of_thread();
        assert_eq!(worker.ring.is_some(), is_affected);
        // It did not submit: the next time it gets one again, since that ring is closed too.
        drop(worker);
        let worker = Worker::of_thread();
        assert_eq!(worker.ring.is_some(), is_affected);
        let closed = worker.closed;
        worker.has_submitted();
        // (Another test may close a ring at any time.)
        if closed == LAST_CLOSED.load(Ordering::Relaxed) {
            let worker = Worker::of_thread();
            assert!(worker.ring.is_none() || worker.closed != closed);
        }
        std::thread::spawn(move || assert!(SEEN.get() != closed, "each thread has workers"))
            .join()
            .unwrap();
    }

    #[test]
    fn soon_after_a_close() {
        assert!(!is_soon_after(0, 1, 5));
        let at = |time: u32| 2 << 32 | u64::from(time);
        assert!(is_soon_after(at(5), 2, 5) && is_soon_after(at(5), 2, 5 + SOON - 1));
        assert!(is_soon_after(at(u32::MAX), 2, 3));
        assert!(!is_soon_after(at(5), 2, 5 + SOON));
        assert!(!is_soon_after(at(5), 3, 5), "in a forked child");
    }

    #[test]
    fn a_worker_starts() {
        let Ok(mut ring) = IoUring::new(2) else {
            return println!("skipped: no io_uring");
        };
        for _ in 0..3 {
            assert!(start_worker(&mut ring));
            assert_eq!(ring.submission().len(), 0);
            assert_eq!(ring.completion().len(), 0);
        }
        // (Before 5.12 workers were no threads of the process.)
        if is_since((5, 12), &kernel_release()) {
            // SAFETY: the call takes no arguments and cannot fail.
            let worker = format!("iou-wrk-{}\n", unsafe { libc::gettid() });
            let names = std::fs::read_dir("/proc/self/task")
                .unwrap()
                .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
            assert!(names.into_iter().any(|name| name == worker), "no {worker}");
        }
    }
}
