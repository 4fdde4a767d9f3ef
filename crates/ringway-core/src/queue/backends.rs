//! The part of a queue that enters the kernel: its backend, the fallback pool, and registered files
//! and buffers. The operations are in the other part, [`Table`](super::Table).

use super::fixed::Fixed;
use super::{BackendKind, Explanation, Options};
use crate::backend::idle::Idle;
use crate::backend::threads::Threads;
use crate::backend::{Backend, Event, EventKind, Wait};
use crate::fork::OwnerProcess;
use crate::sys::{self, BorrowedFd, RawFd, libc};
use std::io;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// The backends of a [`Table`](super::Table), made together with it by [`Options::build_parts`].
///
/// [`Table::shut_down`](super::Table::shut_down) frees both. Dropped before that, this value leaks
/// its contents. In a forked child it closes the inherited descriptors and frees nothing.
pub struct Backends {
    pub(super) main: ManuallyDrop<Box<dyn Backend>>,
    /// Threads for the operations that the main backend does not support; started when first
    /// needed.
    pub(super) fallback: ManuallyDrop<Option<Threads>>,
    /// Jobs of the main backend that are not completed.
    pub(super) main_in_flight: usize,
    pub(super) events: Vec<Event>,
    pub(super) fixed: Fixed,
    pub(super) options: Options,
    pub(super) explanation: Explanation,
    pub(super) ring_fd: Option<RawFd>,
    pub(super) owner: OwnerProcess,
    /// The main backend has ended and was replaced by [`Idle`].
    pub(super) ended: bool,
    /// `poll_fd` was called.
    pub(super) polled: bool,
    /// The main backend also waits for the eventfd of the fallback pool.
    watching: bool,
    /// Shut down: dropping this value frees its contents.
    pub(super) is_shut_down: bool,
    /// Identifies the table that it belongs to.
    pub(super) pair: u64,
}

impl Backends {
    pub(super) fn new(
        main: Box<dyn Backend>,
        ring_fd: Option<RawFd>,
        options: &Options,
        explanation: Explanation,
        pair: u64,
    ) -> Self {
        Self {
            main: ManuallyDrop::new(main),
            fallback: ManuallyDrop::new(None),
            main_in_flight: 0,
            events: Vec::new(),
            fixed: Fixed::default(),
            options: options.clone(),
            explanation,
            ring_fd,
            owner: OwnerProcess::current(),
            ended: false,
            polled: false,
            watching: false,
            is_shut_down: false,
            pair,
        }
    }

    /// The main backend.
    pub fn backend(&self) -> BackendKind {
        self.explanation.backend
    }

    /// The backend, its available features, and those that were refused, with reasons.
    pub fn explain(&self) -> Explanation {
        let mut explanation = self.explanation.clone();
        explanation.refusals.extend_from_slice(self.main.refusals());
        explanation
            .refusals
            .extend_from_slice(self.fallback.as_ref().map_or(&[], |fallback| fallback.refusals()));
        explanation
    }

    /// System calls made for I/O so far, including those of the threads.
    pub fn system_calls(&self) -> u64 {
        // In a forked child, a lock that a thread held during the fork is locked forever.
        match self.owner.is_current() {
            true => {
                self.main.system_calls()
                    + self.fallback.as_ref().map_or(0, |fallback| fallback.system_calls())
            }
            false => 0,
        }
    }

    /// A descriptor that is readable when there may be completions to reap; see
    /// [`Queue::poll_fd`](super::Queue::poll_fd).
    ///
    /// Errors: those of [`Queue::poll_fd`](super::Queue::poll_fd).
    pub fn poll_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        if !self.owner.is_current() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        let fd = self.main.poll_fd()?;
        // The ring polls the eventfd of the fallback pool. It is made now: later there may be no
        // descriptor left, and the ring would miss what the threads complete.
        if self.explanation.backend == BackendKind::Uring
            && let Some(fallback) = self.fallback()
        {
            fallback.eventfd()?;
        }
        self.polled = true;
        self.forward_fallback_signal();
        // SAFETY: the backend owns the descriptor and lives at least as long as this borrow.
        Ok(unsafe { sys::borrowed(fd) })
    }

    pub(super) fn fallback(&mut self) -> Option<&mut Threads> {
        if self.fallback.is_none() {
            *self.fallback = Threads::new(self.options.thread_options()).ok();
            self.forward_fallback_signal();
        }
        self.fallback.as_mut()
    }

    /// Makes the threads signal the eventfd of the main backend too, if the program polls it.
    fn forward_fallback_signal(&mut self) {
        if self.polled
            && let (Some(fallback), Some(eventfd)) =
                (self.fallback.as_mut(), self.main.poll_eventfd())
        {
            fallback.forward_signal_to(eventfd);
        }
    }

    /// Jobs of the fallback pool that are not completed.
    pub(super) fn fallback_in_flight(&self) -> usize {
        self.fallback.as_ref().map_or(0, Threads::pending)
    }

    /// Submits the operations that the table has passed on, and collects completions for
    /// [`Table::process_events`](super::Table::process_events). Does not wait.
    ///
    /// Errors: those of the whole backend; no operation is lost by them.
    pub fn submit(&mut self) -> io::Result<()> {
        match self.owner.is_current() {
            true => self.enter(0, None).map(drop),
            false => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }

    /// As [`submit`](Self::submit), and waits until something completes or `until` has come.
    pub fn wait(&mut self, until: Instant) -> io::Result<()> {
        match self.owner.is_current() {
            true => self.enter(1, Some(until)).map(drop),
            false => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }

    /// Enters the backends. Their events are appended to `self.events`.
    pub(super) fn enter(&mut self, want: usize, until: Option<Instant>) -> io::Result<Wait> {
        let in_fallback = self.fallback_in_flight();
        if in_fallback == 0 && !self.fallback_has_timers() {
            if std::mem::take(&mut self.watching) {
                self.main.watch(-1, false);
            }
            return self.enter_main(want.min(self.main_in_flight), until);
        }
        let eventfd = self.fallback.as_mut().and_then(|fallback| fallback.poll_fd().ok());
        if let Some(eventfd) = eventfd {
            self.main.watch(eventfd, true);
            self.watching = true;
        }
        if self.main_in_flight == 0 && !self.polled {
            self.enter_main(0, None)?;
            return self.enter_fallback(want, until);
        }
        self.enter_fallback(0, None)?;
        let want = if self.events.is_empty() { want.min(1) } else { 0 };
        // Without a descriptor there is no way to wait for both, so they are checked alternately.
        let until = match (eventfd, want) {
            (None, 1) => Some(Instant::now() + Duration::from_millis(1)),
            _ => until,
        };
        // The threads are always checked last: the main backend may have drained the eventfd that
        // signalled their completions.
        let entered = self.enter_main(want, until);
        self.enter_fallback(0, None)?;
        entered
    }

    pub(super) fn enter_main(&mut self, want: usize, until: Option<Instant>) -> io::Result<Wait> {
        let before = self.events.len();
        let entered = self.main.enter(want, until, &mut self.events);
        let completed = self.events[before..]
            .iter()
            .filter(|event| event.kind != EventKind::TimerExpired)
            .count();
        self.main_in_flight = self.main_in_flight.saturating_sub(completed);
        entered
    }

    pub(super) fn enter_fallback(
        &mut self,
        want: usize,
        until: Option<Instant>,
    ) -> io::Result<Wait> {
        match self.fallback.as_mut() {
            Some(fallback) => fallback.enter(want, until, &mut self.events),
            None => Ok(Wait::Ended),
        }
    }

    /// In a forked child: closes the descriptors that the child inherited. All else is leaked: the
    /// memory is the parent's or shared with its kernel threads, and a thread of the parent may
    /// have held a lock during the fork.
    pub(super) fn close_inherited(&mut self) {
        let none: Box<dyn Backend> = Box::<Idle>::default();
        let main = ManuallyDrop::new(std::mem::replace(&mut *self.main, none));
        let fallback = ManuallyDrop::new(self.fallback.take());
        let in_fallback = fallback.iter().flat_map(Backend::descriptors);
        for fd in main.descriptors().into_iter().chain(in_fallback) {
            // SAFETY: the descriptor is the child's copy. Its owner has just been leaked, so nobody
            // uses it or closes it again.
            unsafe { libc::close(fd) };
        }
        self.ring_fd = None;
    }

    /// KAIO has no timers: the fallback pool keeps those of its operations.
    fn fallback_has_timers(&self) -> bool {
        self.fallback.is_some() && self.explanation.backend == BackendKind::Kaio
    }
}

impl Drop for Backends {
    fn drop(&mut self) {
        if self.is_shut_down {
            // SAFETY: neither is used after this. Jobs that are not completed point into slots that
            // their table leaks.
            unsafe {
                ManuallyDrop::drop(&mut self.fallback);
                ManuallyDrop::drop(&mut self.main);
            }
        }
    }
}

impl std::fmt::Debug for Backends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backends").field("backend", &self.backend()).finish_non_exhaustive()
    }
}
