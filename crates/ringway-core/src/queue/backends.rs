//! The part of a queue that enters the kernel: its backend, the fallback pool, and registered files
//! and buffers. The operations are in the other part, [`Table`](super::Table).

use super::fixed::Fixed;
use super::options::{BackendKind, Explanation, Options};
use super::stats::QueueStats;
use crate::backend::idle::Idle;
use crate::backend::threads::Threads;
use crate::backend::{Backend, JobEvent, LimitKeeper, Wait};
use crate::fork::OwnerProcess;
use crate::slots::Token;
use crate::sys::{self, BorrowedFd, Number, RawFd, libc};
use crate::wait::PollFd;
use std::io;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// The chosen backend, and the explanation of the choice.
pub(super) struct ChosenBackend {
    pub(super) backend: Box<dyn Backend>,
    pub(super) ring_fd: Option<RawFd>,
    pub(super) explanation: Explanation,
}

/// The backends of a [`Table`](super::Table), made together with it by [`Options::build_parts`].
///
/// [`Table::shut_down`](super::Table::shut_down) frees both. Dropped before that, this value leaks
/// its contents. In a forked child it closes the inherited descriptors and frees nothing.
pub struct Backends {
    pub(super) main: ManuallyDrop<Box<dyn Backend>>,
    /// Threads for the operations that the main backend does not support; started when first
    /// needed.
    pub(super) fallback: ManuallyDrop<Option<Threads>>,
    /// Events have led to cancels since the last enter.
    pub(super) has_cancels: bool,
    /// Jobs of the main backend that are not completed.
    pub(super) main_in_flight: usize,
    /// What keeps the time limits of those.
    pub(super) limit_keeper: LimitKeeper,
    /// The fallback pool keeps some, or has when [`enter`](Self::enter) last looked.
    fallback_has_timers: bool,
    pub(super) events: Vec<JobEvent>,
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
    pub(super) fn new(chosen: ChosenBackend, options: &Options, pair: u64) -> Self {
        let ChosenBackend { backend: main, ring_fd, explanation } = chosen;
        Self {
            limit_keeper: main.limit_keeper(),
            fallback_has_timers: false,
            main: ManuallyDrop::new(main),
            fallback: ManuallyDrop::new(None),
            has_cancels: false,
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

    /// The backend and what forced it, its available features, and those that were refused, with
    /// reasons.
    pub fn explain(&self) -> Explanation {
        let mut explanation = self.explanation.clone();
        explanation.refusals.extend_from_slice(self.main.refusals());
        explanation
            .refusals
            .extend_from_slice(self.fallback.as_ref().map_or(&[], |fallback| fallback.refusals()));
        explanation
    }

    /// The number of refusals that [`explain`](Self::explain) lists. Takes no memory.
    pub fn refusals(&self) -> usize {
        let in_fallback = self.fallback.as_ref().map_or(0, |fallback| fallback.refusals().len());
        self.explanation.refusals.len() + self.main.refusals().len() + in_fallback
    }

    /// The statistics of the table, completed by those of the backends.
    pub fn complete_stats(&self, mut stats: QueueStats) -> QueueStats {
        // In a forked child, a lock that a thread held during the fork is locked forever.
        if self.owner.is_current() {
            stats.system_calls =
                self.main.system_calls() + self.fallback.as_ref().map_or(0, Threads::system_calls);
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
        // SAFETY: the backend owns the descriptor and lives at least as long as this borrow.
        Ok(unsafe { sys::borrowed(fd) })
    }

    /// As [`poll_fd`](Self::poll_fd), for threads that do not own the backends: the descriptor is
    /// open for as long as the result lives. Takes no descriptor of its own if the backend has an
    /// eventfd.
    ///
    /// Errors: those of [`poll_fd`](Self::poll_fd); EMFILE.
    pub fn shared_poll_fd(&mut self) -> io::Result<PollFd> {
        let number = self.poll_fd()?.number();
        match self.main.poll_eventfd() {
            Some(eventfd) if eventfd.number() == number => Ok(PollFd::shared(eventfd)),
            _ => self.poll_fd()?.try_clone_to_owned().map(PollFd::copied),
        }
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

    /// Jobs of all backends that are not completed.
    pub(super) fn in_flight(&self) -> usize {
        self.main_in_flight + self.fallback_in_flight()
    }

    /// An event has led to a cancel, which the kernel has not seen yet.
    pub(super) fn note_cancel(&mut self) {
        self.has_cancels = true;
    }

    /// True if events have led to cancels that the kernel has not seen yet. Call
    /// [`submit`](Self::submit).
    pub fn has_unsubmitted_cancels(&self) -> bool {
        self.has_cancels
    }

    /// Jobs of the fallback pool that are not completed.
    pub(super) fn fallback_in_flight(&self) -> usize {
        self.fallback.as_ref().map_or(0, Threads::pending)
    }

    /// Submits the operations that the table has passed on, and reaps completions for
    /// [`Table::process_events`](super::Table::process_events). Does not wait.
    ///
    /// Errors: those of the whole backend; no operation is lost by them.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.owner.is_current() {
            self.enter(0, None).map(drop)
        } else {
            Err(io::Error::from_raw_os_error(libc::ECHILD))
        }
    }

    /// As [`submit`](Self::submit), and waits until something completes or `until` has come.
    pub fn wait(&mut self, until: Instant) -> io::Result<()> {
        if self.owner.is_current() {
            self.enter(1, Some(until)).map(drop)
        } else {
            Err(io::Error::from_raw_os_error(libc::ECHILD))
        }
    }

    /// Enters the backends. Their events are appended to `self.events`.
    pub(super) fn enter(&mut self, want: usize, until: Option<Instant>) -> io::Result<Wait> {
        self.has_cancels = false;
        let in_fallback = self.fallback_in_flight();
        if in_fallback == 0 && self.fallback_has_timers {
            self.fallback_has_timers = self.fallback.as_ref().is_some_and(Threads::has_timers);
        }
        if in_fallback == 0 && !self.fallback_has_timers {
            if std::mem::take(&mut self.watching) {
                self.main.watch(-1, false);
            }
            // What no thread could take has been called at once, and has ended.
            let want = want.saturating_sub(self.events.len());
            return self.enter_main(want.min(self.main_in_flight), until);
        }
        let eventfd = self.fallback.as_mut().and_then(|fallback| fallback.poll_fd().ok());
        if let Some(eventfd) = eventfd {
            self.main.watch(eventfd, true);
            self.watching = true;
        }
        if self.main_in_flight == 0 && !self.polled {
            self.enter_main(0, None)?;
            return self.enter_fallback(want.saturating_sub(self.events.len()), until);
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
        let in_fallback = fallback.iter().flat_map(Backend::descriptors);
        for fd in main.descriptors().into_iter().chain(in_fallback) {
            // SAFETY: the descriptor is the child's copy. Its owner has just been leaked, so nobody
            // uses it or closes it again.
            unsafe { libc::close(fd) };
        }
        self.ring_fd = None;
    }

    /// Sets a timer of the fallback pool for a job that may be the main backend's. (Without a pool
    /// there are no time limits.)
    pub(super) fn set_fallback_timer(&mut self, token: Token, at: Instant) {
        if let Some(fallback) = self.fallback() {
            fallback.set_timer(token, at);
            self.fallback_has_timers = true;
        }
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

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::slots::Key;
    use std::num::NonZeroU32;

    /// A queue whose threads keep a time limit waits for those threads, too; but not for ever.
    #[test]
    fn the_threads_are_watched_until_their_timers_have_expired() {
        let (mut table, mut backends) =
            Options::new().backend(BackendKind::Null).build_parts::<()>().unwrap();
        let slot = Key { index: 0, generation: NonZeroU32::MIN };
        let (soon, late) = (Instant::now() + Duration::from_millis(1), Duration::from_secs(60));
        backends.set_fallback_timer(Token::new(slot, 0), soon);
        backends.submit().unwrap();
        let begun = Instant::now();
        while backends.watching {
            assert!(begun.elapsed() < late, "the timer has not expired");
            backends.wait(Instant::now() + Duration::from_millis(10)).unwrap();
        }
        assert!(!backends.fallback_has_timers);
        // Its event is not lost.
        assert!(table.process_events(&mut backends));
        table.shut_down(&mut backends, Duration::ZERO);
    }
}
