//! A defect of kernels from 7.0 on, and of late releases of 6.18 and 6.19: an operation that needs
//! a worker (io-wq) may never start.
//!
//! A thread's workers serve all rings that it submits to. Those kernels let them exit when the last
//! of these rings is released, some milliseconds after it was closed. An operation of a new ring
//! may then be handed to a worker that is about to exit, and lies there until another operation for
//! a worker comes. Seen on an emulated 7.2 in one of 60 rings that were made soon after another one
//! was closed. So a thread that submits soon after a ring was closed first makes sure that it has a
//! worker.

use crate::fork::OwnerProcess;
use crate::lookup::Lookup;
use crate::sys::{is_since, kernel_release};
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::cell::Cell;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first kernel some of whose releases have workers that exit.
const SINCE: (u32, u32) = (6, 18);

/// The kernel has released a closed ring by then, if nothing was in flight on it.
const SOON: Duration = Duration::from_secs(1);

/// A worker that exits has gone by then.
const EXITED: Duration = Duration::from_millis(20);

/// How often to try. The second time is enough, unless all the workers that the thread may have are
/// busy for other rings of it; but then they do not exit.
const TRIES: u32 = 3;

/// The most threads that a ring remembers.
const MAX_THREADS: usize = 64;

/// The mark of the process that last closed a ring, and the time, in the upper and the lower half;
/// 0: none did. A forked child has the parent's value, but none of its workers.
static LAST_CLOSED: AtomicU64 = AtomicU64::new(0);

/// How many rings were closed.
static CLOSES: AtomicU64 = AtomicU64::new(0);

/// Whether this kernel may have the defect.
static IS_AFFECTED: Lookup<bool> = Lookup::new();

thread_local! {
    /// The value of [`CLOSES`] for which this thread has nothing left to do.
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Notes the time at which it is dropped: a ring is closed.
pub(super) struct Closing;

impl Drop for Closing {
    fn drop(&mut self) {
        let mark = u64::from(OwnerProcess::current().mark());
        LAST_CLOSED.store(mark << 32 | u64::from(now()), Ordering::Relaxed);
        // Release: whoever sees the number sees this time, or a later one.
        CLOSES.fetch_add(1, Ordering::Release);
    }
}

/// The threads that submit to a ring.
#[derive(Default)]
pub(super) struct Submitters {
    /// Those whose workers do not exit, because they submit to this ring.
    safe: Vec<libc::pid_t>,
}

impl Submitters {
    /// Call it before a submission. It waits only if a ring was closed within a second and this
    /// thread has not submitted to this ring yet: some 0.1 ms as a rule, and 60 ms at most.
    #[inline]
    pub fn prepare(&mut self, ring: RawFd) {
        let closes = CLOSES.load(Ordering::Acquire);
        if closes != SEEN.get() {
            self.prepare_after(closes, ring);
        }
    }

    #[cold]
    fn prepare_after(&mut self, closes: u64, ring: RawFd) {
        let closed = LAST_CLOSED.load(Ordering::Relaxed);
        // SAFETY: the call takes no arguments and cannot fail.
        let thread = unsafe { libc::gettid() };
        if !self.safe.contains(&thread)
            && is_soon_after(closed, OwnerProcess::current().mark(), now())
            && *IS_AFFECTED.get_or_look_up(|| is_since(SINCE, &kernel_release()))
            && add_submitter(ring)
        {
            // (Without a worker, an operation that needs one is as likely to wait as before.)
            if let Ok(mut other) = IoUring::new(2) {
                start_worker(&mut other);
            }
            if self.safe.len() == MAX_THREADS {
                self.safe.clear();
            }
            self.safe.push(thread);
        }
        SEEN.set(closes);
    }
}

/// Makes this thread one that submits to the ring, as its first submission would. It then has
/// workers, with the ring's limits, and they stay while the ring is open. Returns whether that is
/// so: another thread's ring and a filter refuse it. (Then another ring, as the only one of this
/// thread, would make it worse.)
fn add_submitter(ring: RawFd) -> bool {
    /// `struct io_uring_rsrc_update`.
    #[repr(C)]
    struct Update {
        offset: u32,
        reserved: u32,
        data: u64,
    }
    const IORING_REGISTER_RING_FDS: libc::c_uint = 20;
    // That is the first thing that the kernel does when a ring is registered (5.18). There is no
    // ring -1, so it does nothing else: EBADF.
    let nothing = Update { offset: u32::MAX, reserved: 0, data: u64::from(u32::MAX) };
    // SAFETY: the kernel reads one `Update`.
    let done = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            IORING_REGISTER_RING_FDS,
            &raw const nothing,
            1,
        )
    };
    done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
}

/// Whether the process with this mark closed a ring within [`SOON`] before this time.
fn is_soon_after(closed: u64, mark: u32, now: u32) -> bool {
    let since = Duration::from_micros(u64::from(now.wrapping_sub(closed as u32)));
    (closed >> 32) as u32 == mark && since < SOON
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

/// Microseconds. They wrap around after an hour, which at worst starts a worker that is not needed.
fn now() -> u32 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes for the length of the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u32).wrapping_mul(1_000_000).wrapping_add((time.tv_nsec / 1000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

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
        let Ok(ring) = IoUring::new(2) else {
            return println!("skipped: no io_uring");
        };
        let ring = ring.as_raw_fd();
        let is_affected = is_since(SINCE, &kernel_release());
        let mut submitters = Submitters::default();
        // (Other tests close rings, too; that changes nothing here.)
        for round in 0..200 {
            drop(Closing);
            submitters.prepare(ring);
            assert_eq!(submitters.safe.len(), usize::from(is_affected), "only once");
            let mut others = Submitters::default();
            drop(Closing);
            others.prepare(ring);
            assert_eq!(others.safe.len(), usize::from(is_affected), "{round}: every close counts");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(Closing);
                submitters.prepare(ring);
                assert_eq!(submitters.safe.len(), 2 * usize::from(is_affected), "each thread");
            });
        });
    }

    #[test]
    fn a_ring_remembers_not_too_many_threads() {
        let Ok(ring) = IoUring::new(2) else {
            return println!("skipped: no io_uring");
        };
        let mut submitters = Submitters { safe: vec![0; MAX_THREADS] };
        drop(Closing);
        submitters.prepare(ring.as_raw_fd());
        let is_affected = is_since(SINCE, &kernel_release());
        assert_eq!(submitters.safe.len(), if is_affected { 1 } else { MAX_THREADS });
    }

    /// The workers of a thread have the limits of the ring that it submits to first.
    #[test]
    fn a_new_thread_gets_the_workers_of_its_ring() {
        let Ok(ring) = IoUring::new(64) else {
            return println!("skipped: no io_uring");
        };
        if !is_since((5, 18), &kernel_release()) {
            return println!("skipped: registered rings are of 5.18");
        }
        ring.submitter().register_iowq_max_workers(&mut [5, 6]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(add_submitter(ring.as_raw_fd()));
                start_worker(&mut IoUring::new(2).unwrap());
                let mut limits = [0, 0];
                ring.submitter().register_iowq_max_workers(&mut limits).unwrap();
                assert_eq!(limits, [5, 6]);
            });
        });
    }

    #[test]
    fn a_ring_of_another_thread_gets_no_submitter() {
        let built: Result<IoUring, _> = IoUring::builder().setup_single_issuer().build(2);
        let Ok(ring) = built else {
            return println!("skipped: no io_uring with one issuer");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut submitters = Submitters::default();
                drop(Closing);
                submitters.prepare(ring.as_raw_fd());
                assert!(!add_submitter(ring.as_raw_fd()) && submitters.safe.is_empty());
            });
        });
    }

    #[test]
    fn soon_after_a_close() {
        let soon = SOON.as_micros() as u32;
        assert!(!is_soon_after(0, 1, 5));
        let at = |time: u32| 2 << 32 | u64::from(time);
        assert!(is_soon_after(at(5), 2, 5) && is_soon_after(at(5), 2, 5 + soon - 1));
        assert!(is_soon_after(at(u32::MAX), 2, 3));
        assert!(!is_soon_after(at(5), 2, 5 + soon));
        assert!(!is_soon_after(at(5), 3, 5), "in a forked child");
    }

    #[test]
    fn a_worker_starts() {
        let Ok(mut ring) = IoUring::new(2) else {
            return println!("skipped: no io_uring");
        };
        // (On a slow machine it takes more than one call.)
        assert!((0..100).any(|_| start_worker(&mut ring)));
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
