//! Backends: how jobs reach the kernel and their results return. What an operation is, is in
//! [`crate::op`]; its state is kept by the queue ([`crate::slots`]).

#[cfg(feature = "testing")]
pub(crate) mod faulty;
pub(crate) mod idle;
#[cfg(ringway_linux)]
pub(crate) mod kaio;
#[cfg(feature = "testing")]
pub(crate) mod null;
pub(crate) mod threads;
#[cfg(ringway_linux)]
pub(crate) mod uring;

use crate::file::FileKind;
use crate::op::{NvmeStatus, Raw};
use crate::refusal::Refusal;
use crate::slots::Token;
use crate::sys::eventfd::EventFd;
use crate::sys::{RawFd, libc};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One operation, or one piece of a long transfer, for a backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Identifies the job in its event.
    pub token: Token,
    /// The operation. What it points at stays valid until the job has completed.
    pub raw: Raw,
    /// The type of the file, if it was checked.
    pub file: FileKind,
    /// True if the file is open for direct I/O.
    pub direct: bool,
    /// A transfer that the kernel's queue is not known to make as the system call does: only
    /// threads support it.
    pub for_threads: bool,
    /// Index among the registered files.
    pub fixed_file: Option<u32>,
    /// Index among the registered buffers.
    pub fixed_buffer: Option<u16>,
    /// The file is a socket, or the kernel refuses the job with ENOTSOCK (uring only).
    pub socket: bool,
    /// The kernel starts the next job only if this one succeeds (uring only).
    pub link: bool,
    /// Submitting the job may wait in the kernel, so a thread that may wait submits it.
    pub may_wait: bool,
    /// The thread first has the kernel read the list of the file's extents.
    pub reads_extents: bool,
    /// The job is cancelled at this time, by its [`LimitKeeper`].
    pub deadline: Option<Instant>,
}

impl Job {
    /// A job without links, deadline or registrations.
    pub fn new(token: Token, raw: Raw, file: FileKind, direct: bool) -> Self {
        Self {
            token,
            raw,
            file,
            direct,
            for_threads: false,
            fixed_file: None,
            fixed_buffer: None,
            socket: false,
            link: false,
            may_wait: false,
            reads_extents: false,
            deadline: None,
        }
    }
}

/// An event of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobEvent {
    pub token: Token,
    pub kind: EventKind,
}

/// What happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The kernel's result: at least 0, or minus errno.
    Result(i64),
    /// An NVMe device failed the job with this status (uring only).
    NvmeStatus(NvmeStatus),
    /// The backend does not support the job and has not started it: it must run on threads.
    Unsupported,
    /// The time of [`Backend::set_timer`] has come.
    TimerExpired,
    /// The backend did not find the job of a [`Backend::cancel`]. If it has not completed by now,
    /// it is not cancelled.
    CancelMissed,
}

impl EventKind {
    /// Whether the backend is done with the job.
    pub fn is_completion(self) -> bool {
        !matches!(self, Self::TimerExpired | Self::CancelMissed)
    }
}

/// The pauses before a cancel that has found nothing several times is repeated.
pub(crate) const CANCEL_PAUSES: [Duration; 8] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(4),
    Duration::from_millis(8),
    Duration::from_millis(16),
    Duration::from_millis(32),
    Duration::from_millis(64),
    Duration::from_millis(128),
];

/// What keeps the time limits of a backend's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitKeeper {
    /// The backend, from [`Job::deadline`].
    Backend,
    /// A [timer](Backend::set_timer) of the backend.
    Timer,
    /// A timer of the fallback pool.
    Fallback,
    /// Nothing: its jobs end by themselves.
    Nothing,
}

/// How the wait of [`Backend::enter`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// There are events, the time has come, or there was nothing to wait for.
    Ended,
    /// A signal ended it: there are fewer events than wanted, and the time has not come.
    Interrupted,
}

impl Wait {
    /// How a wait ended that returned with less than it waited for.
    pub fn cut_short(until: Option<Instant>) -> Self {
        match until {
            Some(until) if Instant::now() >= until => Self::Ended,
            _ => Self::Interrupted,
        }
    }
}

/// The backend took nothing: it is full until some of its jobs complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackendFull;

/// Passes jobs to the kernel, for one queue, with which it may move between threads.
///
/// For every job there is exactly one event with [`EventKind::Result`], [`EventKind::NvmeStatus`]
/// or [`EventKind::Unsupported`], returned by [`enter`](Self::enter), unless the backend is dropped
/// first.
pub(crate) trait Backend: Send {
    /// Takes a job. The kernel need not see it before [`enter`](Self::enter).
    ///
    /// # Safety
    ///
    /// What `job.raw` points at must stay valid until `enter` has returned the job's event, even if
    /// the backend is dropped before that.
    unsafe fn push(&mut self, job: &Job) -> Result<(), BackendFull>;

    /// Submits all jobs taken so far, waits until there are at least `want` events (or until
    /// `until`, or, after a signal or a spurious wakeup, less long), and appends all events to
    /// `events`. With `want` 0 it does not wait, nor with an [`EventKind::Unsupported`] among the
    /// events. [`Threads`](threads::Threads) wait on after a signal unless made otherwise.
    ///
    /// Errors are those of the whole backend, such as EEXIST for a ring that belongs to another
    /// thread; no job is lost by them.
    fn enter(
        &mut self,
        want: usize,
        until: Option<Instant>,
        events: &mut Vec<JobEvent>,
    ) -> io::Result<Wait>;

    /// Requests that a job be cancelled if that is still possible; its event follows in any case. A
    /// backend that did not find the job may return [`EventKind::CancelMissed`].
    fn cancel(&mut self, token: Token);

    /// As [`cancel`](Self::cancel), after the one of [`CANCEL_PAUSES`] with this index. No thread
    /// waits for it. A job has one pause at a time. For backends that return
    /// [`EventKind::CancelMissed`].
    fn cancel_later(&mut self, token: Token, _pause: usize) {
        self.cancel(token);
    }

    /// Whether a cancel may still prevent this submitted operation; otherwise the device has it.
    fn ends_by_cancel(&self, _raw: &Raw, _is_storage: bool) -> bool {
        true
    }

    /// The descriptor that is readable when there may be events, from this call on.
    fn poll_fd(&mut self) -> io::Result<RawFd>;

    /// The eventfd of [`poll_fd`](Self::poll_fd), for the fallback pool to signal too and for
    /// threads that poll it; `None` if the descriptor becomes readable with the watched eventfd by
    /// itself.
    fn poll_eventfd(&self) -> Option<Arc<EventFd>> {
        None
    }

    /// Makes the descriptor of [`poll_fd`](Self::poll_fd) readable, for completions that the queue
    /// made itself.
    fn wake(&mut self);

    /// Makes `enter` also wait for this eventfd (of the fallback pool) while `active` is true. It
    /// causes no event.
    fn watch(&mut self, eventfd: RawFd, active: bool);

    /// Makes `enter` return [`EventKind::TimerExpired`] at that time. For [`LimitKeeper::Timer`],
    /// and for the fallback pool.
    fn set_timer(&mut self, token: Token, at: Instant);

    /// Whether the backend may be given this job.
    fn supports(&self, job: &Job) -> bool;

    /// Whether a push that needs so many entries would enter the kernel.
    fn push_would_enter(&self, _entries: usize) -> bool {
        false
    }

    /// How many linked jobs it can take now; 0 if it has no links.
    fn chain_capacity(&self) -> usize;

    /// Whether this job may be part of a linked chain: the kernel is certain to take it as it is.
    fn can_link(&self, _job: &Job) -> bool {
        false
    }

    /// What keeps the time limits of its jobs; always the same.
    fn limit_keeper(&self) -> LimitKeeper;

    /// Registers memory as fixed buffers with consecutive indices; returns the first.
    ///
    /// # Safety
    ///
    /// The memory must stay valid until the backend has been dropped.
    unsafe fn register_buffers(&mut self, _memory: &[libc::iovec]) -> Result<u16, i32> {
        Err(libc::EOPNOTSUPP)
    }

    /// Registers a descriptor as a fixed file; returns its index.
    fn register_file(&mut self, _fd: RawFd) -> Result<u32, i32> {
        Err(libc::EOPNOTSUPP)
    }

    /// Ends a registration; jobs in flight on it are not affected.
    fn unregister_file(&mut self, _index: u32) {}

    /// Ends a backend that cannot be entered: its ring has failed, or belongs to another thread.
    /// Cancels all jobs in flight and waits for them, up to `until`; events that are there are
    /// appended to `events`.
    ///
    /// True: the kernel has finished with all jobs, and no further events will come. False: the
    /// kernel may still touch what jobs point at.
    fn end(self: Box<Self>, _until: Instant, _events: &mut Vec<JobEvent>) -> bool {
        // Dropping it might wait without a bound.
        std::mem::forget(self);
        false
    }

    /// The descriptors that it owns, which a forked child inherits. In a child nothing else may be
    /// called: this takes no lock that a thread of the parent may have held during the fork, and
    /// reads no memory that is shared with the kernel.
    fn descriptors(&self) -> Vec<RawFd>;

    /// Refusals since it was made.
    fn refusals(&self) -> &[Refusal] {
        &[]
    }

    /// System calls made for I/O so far, including those of its threads.
    fn system_calls(&self) -> u64;
}
