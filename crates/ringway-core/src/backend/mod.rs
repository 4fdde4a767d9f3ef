//! Backends: how operations reach the kernel. They only carry operations; what an operation is
//! stands in [`crate::op`], and its life is the queue's business ([`crate::slots`]).

#[cfg(feature = "testing")]
pub(crate) mod faulty;
pub(crate) mod idle;
pub(crate) mod kaio;
#[cfg(feature = "testing")]
pub(crate) mod null;
pub(crate) mod threads;
pub(crate) mod uring;

use crate::file::FileKind;
use crate::op::Raw;
use crate::refusal::Refusal;
use crate::slots::Token;
use crate::sys::eventfd::EventFd;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

/// One operation, or one piece of a long transfer, as a backend is given it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Comes back with the answer.
    pub token: Token,
    /// What to do. What it points at stays valid until the answer has been given.
    pub raw: Raw,
    /// What is known of the file.
    pub file: FileKind,
    /// The file is open for direct I/O.
    pub direct: bool,
    /// Index among the registered files.
    pub fixed_file: Option<u32>,
    /// Index among the registered buffers.
    pub fixed_buffer: Option<u16>,
    /// The kernel begins the next job only when this one has succeeded (uring only).
    pub link: bool,
    /// Cancelled at this time (uring carries it out by itself; elsewhere the queue does).
    pub deadline: Option<Instant>,
}

impl Job {
    /// A job that stands by itself, on nothing that is registered.
    pub fn new(token: Token, raw: Raw, file: FileKind, direct: bool) -> Self {
        Self {
            token,
            raw,
            file,
            direct,
            fixed_file: None,
            fixed_buffer: None,
            link: false,
            deadline: None,
        }
    }
}

/// The answer to one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub token: Token,
    pub kind: EventKind,
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The kernel's result: at least 0, or minus errno.
    Result(i64),
    /// This backend cannot carry it, and has not begun: it is to go to the threads.
    Unsupported,
    /// The time set with [`Backend::set_timer`] has come.
    TimerExpired,
}

/// Nothing was taken: the backend has no room before some of what it holds has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackendFull;

/// A way to the kernel. Owned by one queue; may move between threads with it.
///
/// Every job taken is answered by exactly one event with [`EventKind::Result`] or
/// [`EventKind::Unsupported`], out of [`enter`](Self::enter), unless the backend is dropped before.
pub(crate) trait Backend: Send {
    /// Takes a job; the kernel need not see it before [`enter`](Self::enter).
    ///
    /// # Safety
    ///
    /// What `job.raw` points at must stay valid until the job's answer has come out of `enter`,
    /// also when the backend is dropped before that.
    unsafe fn push(&mut self, job: &Job) -> Result<(), BackendFull>;

    /// Makes the kernel see everything taken so far, waits until at least `want` events are there
    /// (or `until` has come, or, after a signal or a spurious wake-up, earlier), and appends what
    /// there is to `events`. With `want` 0 it does not wait.
    ///
    /// Errors are those of the backend as a whole, such as EEXIST for a ring that belongs to
    /// another thread; nothing that was taken is lost by one.
    fn enter(
        &mut self,
        want: usize,
        until: Option<Instant>,
        events: &mut Vec<Event>,
    ) -> io::Result<()>;

    /// Asks that a job be cancelled, if that is still possible; its event comes all the same.
    fn cancel(&mut self, token: Token);

    /// Whether a cancel may end this operation before it is carried out; else the device has it.
    fn ends_by_cancel(&self, _raw: &Raw, _is_storage: bool) -> bool {
        true
    }

    /// The descriptor that becomes readable when there may be events, from this call on.
    fn poll_fd(&mut self) -> io::Result<RawFd>;

    /// The eventfd that [`poll_fd`](Self::poll_fd) gives out, for the threads beside this backend
    /// to tell it of theirs; `None` where it is told of the watched one by other means.
    fn poll_eventfd(&self) -> Option<Arc<EventFd>> {
        None
    }

    /// Makes [`poll_fd`](Self::poll_fd)'s descriptor readable: the queue has something by itself.
    fn wake(&mut self);

    /// Has `enter` wait for this eventfd too (the threads that stand beside this backend), as long
    /// as `active` is true. Its becoming readable is no event.
    fn watch(&mut self, eventfd: RawFd, active: bool);

    /// Have [`EventKind::TimerExpired`] come out of `enter` at that time, unless the backend keeps
    /// [`Job::deadline`] by itself.
    fn set_timer(&mut self, token: Token, at: Instant);

    /// Whether it may be given this job at all.
    fn supports(&self, job: &Job) -> bool;

    /// How many linked jobs it can take now; 0 where it has no links.
    fn chain_capacity(&self) -> usize;

    /// Whether this job may be part of a linked chain: it is certain to be taken as it is.
    fn can_link(&self, _job: &Job) -> bool {
        false
    }

    /// True when [`Job::deadline`] is kept by the backend itself.
    fn keeps_deadlines(&self) -> bool {
        false
    }

    /// Registers memory as fixed buffers, one after the other; the index of the first.
    ///
    /// # Safety
    ///
    /// The memory must stay valid until the backend has been dropped.
    unsafe fn register_buffers(&mut self, _memory: &[libc::iovec]) -> Result<u16, i32> {
        Err(libc::EOPNOTSUPP)
    }

    /// Registers a descriptor as a fixed file; its index.
    fn register_file(&mut self, _fd: RawFd) -> Result<u32, i32> {
        Err(libc::EOPNOTSUPP)
    }

    /// Ends a registration; what is in flight on it is not touched.
    fn unregister_file(&mut self, _index: u32) {}

    /// Ends a backend that cannot be entered: its ring has failed, or belongs to another thread.
    /// Everything in flight is cancelled and waited for, at most until `until`; answers that are
    /// there go to `events`.
    ///
    /// True: the kernel is done with all of it, and what has not been answered never will be.
    /// False: the kernel may still touch what jobs point at.
    fn end(self: Box<Self>, _until: Instant, _events: &mut Vec<Event>) -> bool {
        // To drop it might wait without a bound.
        std::mem::forget(self);
        false
    }

    /// What it had to do without since it was made.
    fn refusals(&self) -> &[Refusal] {
        &[]
    }

    /// System calls made for I/O so far, by all threads of the backend.
    fn system_calls(&self) -> u64;
}
