//! The part of a queue that enters the kernel: its backend, the fallback pool, and registered files
//! and buffers. The operations are in the other part, [`Table`](super::Table).

use super::fixed::Fixed;
use super::options::ChosenBackend;
use super::routing::{Route, Routing};
use super::submit::submit_to_fallback;
use super::{BackendKind, Explanation, Options, QueueStats};
use crate::backend::idle::Idle;
use crate::backend::kaio::Kaio;
use crate::backend::threads::Threads;
use crate::backend::{Backend, Event, Job, Wait};
use crate::fork::OwnerProcess;
use crate::refusal::{Feature, Refusal};
use crate::sys::{self, BorrowedFd, RawFd, libc};
use std::io;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// How long to wait for the main backend while KAIO has jobs that signal nothing.
const SILENT_WAIT: Duration = Duration::from_micros(100);

/// After a transfer had to be submitted again, this many waits are for one completion each.
pub(super) const WARY_ENTERS: u32 = 64;

/// The backends of a [`Table`](super::Table), made together with it by [`Options::build_parts`].
///
/// [`Table::shut_down`](super::Table::shut_down) frees both. Dropped before that, this value leaks
/// its contents. In a forked child it closes the inherited descriptors and frees nothing.
pub struct Backends {
    pub(super) main: ManuallyDrop<Box<dyn Backend>>,
    /// Threads for the operations that the main backend does not support; started when first
    /// needed.
    pub(super) fallback: ManuallyDrop<Option<Threads>>,
    /// KAIO for the transfers that the main backend would punt; made when first needed.
    pub(super) kaio: ManuallyDrop<Option<Kaio>>,
    /// Jobs of `kaio` that are not completed.
    pub(super) kaio_in_flight: usize,
    /// How direct transfers are submitted.
    pub(super) routing: Routing,
    /// Jobs were submitted again since the last enter.
    pub(super) resubmitted: bool,
    /// Waits for several completions at once are avoided this many times: some may be transfers
    /// that have to be submitted again.
    pub(super) wary: u32,
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

/// Which backend has a transfer that was submitted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resubmitted {
    Main,
    Kaio,
    Fallback,
}

impl Backends {
    pub(super) fn new(chosen: ChosenBackend, options: &Options, pair: u64) -> Self {
        let ChosenBackend { backend: main, ring_fd, routing, explanation } = chosen;
        Self {
            main: ManuallyDrop::new(main),
            fallback: ManuallyDrop::new(None),
            kaio: ManuallyDrop::new(None),
            kaio_in_flight: 0,
            routing,
            resubmitted: false,
            wary: 0,
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
        explanation.refusals.extend(self.routing.refusal());
        explanation
    }

    /// The statistics of the table, completed by those of the backends.
    pub fn complete_stats(&self, mut stats: QueueStats) -> QueueStats {
        (stats.punted, stats.routed) = (self.routing.punted(), self.routing.routed());
        // In a forked child, a lock that a thread held during the fork is locked forever.
        if self.owner.is_current() {
            stats.system_calls = self.main.system_calls()
                + self.kaio.as_ref().map_or(0, Kaio::system_calls)
                + self.fallback.as_ref().map_or(0, Threads::system_calls);
        }
        stats
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
        self.wake_for_silent_jobs();
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

    /// Passes a transfer to KAIO. Returns false if it does not take it.
    pub(super) fn push_to_kaio(&mut self, job: &Job) -> bool {
        let signals = self.polled || self.main_in_flight + self.fallback_in_flight() > 0;
        let Some(kaio) = self.kaio() else { return false };
        kaio.signal_all(signals);
        // SAFETY: as for the main backend.
        let pushed = unsafe { kaio.push(job) }.is_ok();
        if pushed {
            self.kaio_in_flight += 1;
            self.routing.count_routed();
        }
        pushed
    }

    /// Submits a transfer again that the main backend would have punted.
    pub(super) fn resubmit(&mut self, job: &Job, route: Route) -> Resubmitted {
        self.resubmitted = true;
        if route == Route::Kaio && self.push_to_kaio(job) {
            return Resubmitted::Kaio;
        }
        // SAFETY: the table keeps the operation in its slot until the event of this job, as for
        // its first submission.
        if self.main.supports(job) && unsafe { self.main.push(job) }.is_ok() {
            self.main_in_flight += 1;
            return Resubmitted::Main;
        }
        let pushed = submit_to_fallback(job, self);
        debug_assert!(pushed.is_ok(), "the pool takes every job");
        Resubmitted::Fallback
    }

    /// The KAIO backend, if there is one. It signals the eventfd of the fallback pool, so that the
    /// main backend waits for both.
    fn kaio(&mut self) -> Option<&mut Kaio> {
        if self.kaio.is_none() && self.routing.goes_to_kaio() {
            let eventfd = self.fallback().and_then(|fallback| fallback.eventfd().ok());
            let built = match eventfd {
                Some(eventfd) => self.options.build_kaio_signalling(eventfd),
                None => Err(libc::EMFILE),
            };
            match built {
                Ok(kaio) => *self.kaio = Some(kaio),
                Err(errno) => {
                    self.routing.without_kaio();
                    self.explanation.refusals.push(Refusal::new(Feature::Kaio, errno));
                }
            }
        }
        self.kaio.as_mut()
    }

    /// Keeps the polled descriptor readable while KAIO has jobs that do not signal: the program
    /// then polls in a loop until they are done.
    fn wake_for_silent_jobs(&mut self) {
        if self.polled && self.kaio.as_ref().is_some_and(Kaio::has_silent_jobs) {
            self.main.wake();
        }
    }

    /// Jobs of all backends that are not completed.
    pub(super) fn in_flight(&self) -> usize {
        self.main_in_flight + self.kaio_in_flight + self.fallback_in_flight()
    }

    /// For a cancel of an event's making, which the kernel has not seen yet.
    pub(super) fn note_resubmission(&mut self) {
        self.resubmitted = true;
    }

    /// True if jobs or cancels were submitted again that the kernel has not seen yet. Call
    /// [`submit`](Self::submit).
    pub fn has_resubmitted(&self) -> bool {
        self.resubmitted
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
        self.resubmitted = false;
        let in_fallback = self.fallback_in_flight();
        if in_fallback + self.kaio_in_flight == 0 && !self.fallback_has_timers() {
            if std::mem::take(&mut self.watching) {
                self.main.watch(-1, false);
            }
            return self.enter_main(want.min(self.main_in_flight), until);
        }
        if in_fallback + self.main_in_flight == 0 && !self.polled && !self.fallback_has_timers() {
            self.enter_main(0, None)?;
            let want = want.saturating_sub(self.events.len());
            return self.enter_kaio(want.min(self.kaio_in_flight), until);
        }
        let eventfd = self.fallback.as_mut().and_then(|fallback| fallback.poll_fd().ok());
        if let Some(eventfd) = eventfd {
            self.main.watch(eventfd, true);
            self.watching = true;
        }
        if self.main_in_flight + self.kaio_in_flight == 0 && !self.polled {
            self.enter_main(0, None)?;
            return self.enter_fallback(want, until);
        }
        self.enter_fallback(0, None)?;
        self.enter_kaio(0, None)?;
        let want = if self.events.is_empty() { want.min(1) } else { 0 };
        // Without a descriptor there is no way to wait for both, so they are checked alternately.
        let until = match (eventfd, want) {
            (None, 1) => Some(Instant::now() + Duration::from_millis(1)),
            (_, 1) if self.kaio.as_ref().is_some_and(Kaio::has_silent_jobs) => {
                let soon = Instant::now() + SILENT_WAIT;
                Some(until.map_or(soon, |until| until.min(soon)))
            }
            _ => until,
        };
        // The threads are always checked last: the main backend may have drained the eventfd that
        // signalled their completions.
        let entered = self.enter_main(want, until);
        self.enter_fallback(0, None)?;
        // KAIO last of all: the threads may have drained the eventfd that it signals too.
        self.enter_kaio(0, None)?;
        self.wake_for_silent_jobs();
        entered
    }

    /// Enters KAIO, if it has jobs.
    pub(super) fn enter_kaio(&mut self, want: usize, until: Option<Instant>) -> io::Result<Wait> {
        let Some(kaio) = self.kaio.as_mut().filter(|_| self.kaio_in_flight > 0) else {
            return Ok(Wait::Ended);
        };
        let before = self.events.len();
        let entered = kaio.enter(want, until, &mut self.events);
        self.kaio_in_flight -= self.events.len() - before;
        entered
    }

    pub(super) fn enter_main(&mut self, want: usize, until: Option<Instant>) -> io::Result<Wait> {
        let before = self.events.len();
        let entered = self.main.enter(want, until, &mut self.events);
        let completed =
            self.events[before..].iter().filter(|event| event.kind.is_completion()).count();
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
        let kaio = ManuallyDrop::new(self.kaio.take());
        let in_fallback = fallback.iter().flat_map(Backend::descriptors);
        let in_kaio = kaio.iter().flat_map(Backend::descriptors);
        for fd in main.descriptors().into_iter().chain(in_fallback).chain(in_kaio) {
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
                ManuallyDrop::drop(&mut self.kaio);
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
