//! The half of a queue that enters the kernel: its backend, the fallback pool beside it, and what
//! is registered. What operations are in flight is the other half's business
//! ([`Table`](super::Table)).

use super::fixed::Fixed;
use super::{BackendKind, Explanation, Options};
use crate::backend::threads::Threads;
use crate::backend::{Answer, Backend, Event};
use crate::fork::Home;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// The backends of a [`Table`](super::Table): made with it by [`Options::build_halves`].
///
/// Dropped by itself it is leaked; [`Table::shut_down`](super::Table::shut_down) ends both halves.
pub struct Backends {
    pub(super) main: ManuallyDrop<Box<dyn Backend>>,
    /// Threads for the operations that the main backend does not support; started at the first
    /// need.
    pub(super) side: ManuallyDrop<Option<Threads>>,
    /// Jobs that the main backend has not answered.
    pub(super) carried: usize,
    pub(super) events: Vec<Event>,
    pub(super) fixed: Fixed,
    pub(super) options: Options,
    pub(super) explanation: Explanation,
    pub(super) ring_fd: Option<RawFd>,
    pub(super) home: Home,
    /// The main backend has been ended: nothing is in its place.
    pub(super) ended: bool,
    /// The descriptor has been asked for.
    pub(super) polled: bool,
    /// The main backend waits for the threads too.
    watching: bool,
    /// It has been shut down, and is freed when it is dropped.
    pub(super) is_over: bool,
    /// Which table it belongs to.
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
            side: ManuallyDrop::new(None),
            carried: 0,
            events: Vec::new(),
            fixed: Fixed::default(),
            options: options.clone(),
            explanation,
            ring_fd,
            home: Home::here(),
            ended: false,
            polled: false,
            watching: false,
            is_over: false,
            pair,
        }
    }

    /// The backend.
    pub fn kind(&self) -> BackendKind {
        self.explanation.backend
    }

    /// Which backend it has, what that was granted, and what was refused and why.
    pub fn explain(&self) -> Explanation {
        let mut explanation = self.explanation.clone();
        explanation.refusals.extend_from_slice(self.main.refusals());
        explanation
            .refusals
            .extend_from_slice(self.side.as_ref().map_or(&[], |side| side.refusals()));
        explanation
    }

    /// System calls made for I/O so far, by the threads too.
    pub fn system_calls(&self) -> u64 {
        // A lock of the threads may have been taken when this process was forked, and then is for
        // ever.
        match self.home.is_here() {
            true => {
                self.main.system_calls() + self.side.as_ref().map_or(0, |side| side.system_calls())
            }
            false => 0,
        }
    }

    /// The descriptor that is readable when there may be something to reap:
    /// [`Queue::poll_fd`](super::Queue::poll_fd).
    ///
    /// Errors: as there.
    pub fn poll_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        if !self.home.is_here() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        let fd = self.main.poll_fd()?;
        // The ring watches the threads' own descriptor. Later there might be none left for it, and
        // then nothing would tell of what the threads have done.
        if self.explanation.backend == BackendKind::Uring
            && let Some(side) = self.side()
        {
            side.eventfd()?;
        }
        self.polled = true;
        self.echo();
        // SAFETY: the descriptor belongs to the backend, which lives at least as long as this
        // borrow.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    pub(super) fn side(&mut self) -> Option<&mut Threads> {
        if self.side.is_none() {
            *self.side = Threads::new(self.options.thread_options()).ok();
            self.echo();
        }
        self.side.as_mut()
    }

    /// Where a program polls the main backend's eventfd, the threads signal it too.
    fn echo(&mut self) {
        if self.polled
            && let (Some(side), Some(eventfd)) = (self.side.as_mut(), self.main.echo())
        {
            side.echo(eventfd);
        }
    }

    /// What the threads have not answered.
    pub(super) fn beside(&self) -> usize {
        self.side.as_ref().map_or(0, Threads::pending)
    }

    /// Submits what the table has given, and gathers what has completed, for
    /// [`Table::sort_out`](super::Table::sort_out). Does not wait.
    ///
    /// Errors: of the backend as a whole; nothing is lost by one.
    pub fn submit(&mut self) -> io::Result<()> {
        match self.home.is_here() {
            true => self.enter(0, None),
            false => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }

    /// As [`submit`](Self::submit), and waits until something completes, at most until then.
    pub fn wait(&mut self, until: Instant) -> io::Result<()> {
        match self.home.is_here() {
            true => self.enter(1, Some(until)),
            false => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }

    /// Enters the backends; events go to `self.events`.
    pub(super) fn enter(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        let beside = self.beside();
        if beside == 0 && !self.side_has_timers() {
            if std::mem::take(&mut self.watching) {
                self.main.watch(-1, false);
            }
            return self.enter_main(want.min(self.carried), until);
        }
        let eventfd = self.side.as_mut().and_then(|side| side.poll_fd().ok());
        if let Some(eventfd) = eventfd {
            self.main.watch(eventfd, true);
            self.watching = true;
        }
        if self.carried == 0 && !self.polled {
            self.enter_main(0, None)?;
            return self.enter_side(want, until);
        }
        self.enter_side(0, None)?;
        let want = if self.events.is_empty() { want.min(1) } else { 0 };
        // Without a descriptor to wait for both, they are looked at in turn.
        let until = match (eventfd, want) {
            (None, 1) => Some(Instant::now() + Duration::from_millis(1)),
            _ => until,
        };
        // The threads are looked at last, and in any case: the main backend may have made the
        // descriptor unreadable that told of them.
        let entered = self.enter_main(want, until);
        self.enter_side(0, None)?;
        entered
    }

    pub(super) fn enter_main(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        let before = self.events.len();
        let entered = self.main.enter(want, until, &mut self.events);
        let answered =
            self.events[before..].iter().filter(|event| event.answer != Answer::Expired).count();
        self.carried = self.carried.saturating_sub(answered);
        entered
    }

    pub(super) fn enter_side(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        match self.side.as_mut() {
            Some(side) => side.enter(want, until, &mut self.events),
            None => Ok(()),
        }
    }

    /// Timers of operations that the main backend has are with the threads where it has none of its
    /// own.
    fn side_has_timers(&self) -> bool {
        self.side.is_some() && self.explanation.backend == BackendKind::Kaio
    }
}

impl Drop for Backends {
    fn drop(&mut self) {
        if self.is_over {
            // SAFETY: this is the last use of the two. Jobs that they have not answered point into
            // slots that are leaked with their table.
            unsafe {
                ManuallyDrop::drop(&mut self.side);
                ManuallyDrop::drop(&mut self.main);
            }
        }
    }
}

impl std::fmt::Debug for Backends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backends").field("kind", &self.kind()).finish_non_exhaustive()
    }
}
