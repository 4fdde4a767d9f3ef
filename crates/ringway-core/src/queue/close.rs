//! Cancelling operations, and closing, failing and shutting down the queue.

use super::backends::Backends;
use super::id::OpId;
use super::in_flight::{CancelCause, InFlight};
use super::options::BackendKind;
use super::table::Table;
use crate::backend::Backend;
use crate::backend::idle::Idle;
use crate::file::File;
use crate::op::{Opcode, Open, Resources, Transfer};
use crate::refusal::{Feature, Refusal, errno_of};
use crate::slots::{Key, SlotState, Token};
use crate::sys::libc;
use std::io;
use std::time::{Duration, Instant};

impl<T: Default> Table<T> {
    /// See [`Queue::cancel`](super::Queue::cancel).
    pub fn cancel(&mut self, backends: &mut Backends, id: OpId) -> bool {
        self.assert_paired(backends);
        let state = self.slots.state(id.0);
        let known = self.owner.is_current()
            && !matches!(state, None | Some(SlotState::New | SlotState::Done));
        if known {
            self.cancel_for(id.0, CancelCause::Cancelled, backends);
        }
        known
    }

    /// See [`Queue::cancel_all`](super::Queue::cancel_all).
    pub fn cancel_all(&mut self, backends: &mut Backends) -> usize {
        let unfinished =
            |key: &Key| !matches!(self.slots.state(*key), Some(SlotState::New | SlotState::Done));
        let keys: Vec<Key> = self.slots.keys().filter(unfinished).collect();
        // Cancelling one may end the rest of its chain too.
        for key in &keys {
            _ = self.cancel(backends, OpId(*key))
        }
        if self.owner.is_current() { keys.len() } else { 0 }
    }

    /// Cancels an operation for this cause.
    pub(super) fn cancel_for(
        &mut self,
        key: Key,
        cancel_cause: CancelCause,
        backends: &mut Backends,
    ) {
        let state = self.slots.state(key);
        let Some(flight) = self.slots.get_mut(key) else { return };
        if state == Some(SlotState::Done) {
            return;
        }
        flight.leave_fast_path(state == Some(SlotState::Submitted));
        flight.retries = 0;
        if flight.cancel_cause == CancelCause::None {
            flight.cancel_cause = cancel_cause;
        }
        match state {
            Some(SlotState::Held) => self.fail_operation(key, libc::ECANCELED),
            Some(SlotState::Pending | SlotState::Submitted) => {
                if matches!(flight.operation.raw.transfer(), Transfer::None) {
                    if state == Some(SlotState::Pending) {
                        return self.finish(key, -i64::from(libc::ECANCELED));
                    }
                } else if let Some(attempt) = flight.progress.stop() {
                    return self.finish_attempt(key, attempt);
                }
                // An abandoned operation need not be cancelled if that would not end it sooner.
                let is_storage = || flight.operation.file.as_ref().is_some_and(File::is_storage);
                if flight.abandoned
                    && !flight.use_fallback
                    && !self.closed
                    && !backends.main.ends_by_cancel(&flight.operation.raw, is_storage())
                {
                    return;
                }
                let mixed = !flight.progress.is_single();
                let use_fallback = flight.use_fallback;
                for number in flight.progress.in_flight_numbers() {
                    let token = Token::new(key, number);
                    let fallback = backends.fallback.as_mut().filter(|_| use_fallback);
                    // Earlier pieces, submitted before the backend refused one, are still in the
                    // main backend.
                    if fallback.is_none() || mixed {
                        backends.main.cancel(token);
                    }
                    if let Some(fallback) = fallback {
                        fallback.cancel(token);
                    }
                }
            }
            _ => {}
        }
    }

    /// See [`Queue::close`](super::Queue::close). Operations that were not started stay as they
    /// are.
    pub fn close(&mut self, backends: &mut Backends, wait: Duration) -> io::Result<usize> {
        if !self.owner.is_current() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        let until = Instant::now() + wait.min(Duration::from_secs(1 << 30));
        self.begin_close(backends);
        while self.continue_close(backends, until) {
            let waited = backends.wait(until);
            self.handle_close_wait(backends, waited, until);
        }
        // The kernel may not have seen the last cancels, and the owner may only poll from now on.
        while self.unfinished() > 0
            && !backends.ended
            && backends.submit().is_ok()
            && self.process_events(backends)
            && backends.has_unsubmitted_cancels()
        {}
        Ok(self.unfinished())
    }

    /// The first step of [`close`](Self::close), for a table under a lock: stops starting
    /// operations and cancels those in flight. After it, call [`Backends::wait`] without the lock,
    /// and then [`handle_close_wait`](Self::handle_close_wait), while
    /// [`continue_close`](Self::continue_close) returns true.
    pub fn begin_close(&mut self, backends: &mut Backends) {
        self.closed = true;
        self.cancel_all(backends);
    }

    /// Submits pending operations. Returns true if operations are in flight and `until` has not
    /// come.
    pub fn continue_close(&mut self, backends: &mut Backends, until: Instant) -> bool {
        if self.unfinished() == 0 || backends.ended || Instant::now() >= until {
            return false;
        }
        self.submit_pending(backends);
        true
    }

    /// Processes what [`Backends::wait`] has reaped. A backend that cannot be entered is ended.
    pub fn handle_close_wait(
        &mut self,
        backends: &mut Backends,
        waited: io::Result<()>,
        until: Instant,
    ) {
        self.process_events(backends);
        if waited.is_err() {
            self.end_main_backend(backends, until);
        }
    }

    /// Operations that were started and are not done, including abandoned ones.
    fn unfinished(&self) -> usize {
        self.slots.in_flight() - self.ready - self.new
    }

    /// Completes every operation, after a close that followed an error of the whole backend; see
    /// [`Queue::fail`](super::Queue::fail).
    pub fn fail(&mut self, backends: &mut Backends, error: &io::Error) {
        let feature = match backends.explanation.backend {
            BackendKind::Uring => Feature::Uring,
            BackendKind::Kaio => Feature::Kaio,
            BackendKind::Threads => Feature::Threads,
            #[cfg(feature = "testing")]
            BackendKind::Null => Feature::Threads,
        };
        backends.explanation.refusals.push(Refusal {
            feature,
            errno: errno_of(error),
            meaning: "the backend failed during use and was closed; the queue takes no more \
            operations"
                .into(),
            fix: "find what refuses its system calls (a seccomp filter, a security module) and \
            restart the program"
                .into(),
        });
        for key in self.slots.keys().collect::<Vec<_>>() {
            let Some((state, flight)) = self.slots.entry(key) else { continue };
            if matches!(state, SlotState::New | SlotState::Done) {
                continue;
            }
            std::mem::forget(std::mem::replace(&mut flight.operation.resources, Resources::None));
            std::mem::forget(flight.operation.file.take());
            flight.owns_descriptor = false;
            self.has_leaked = true;
            self.fail_operation(key, libc::EIO);
        }
    }

    /// Ends the main backend, which cannot be entered, and completes its operations.
    fn end_main_backend(&mut self, backends: &mut Backends, until: Instant) {
        let nothing: Box<dyn Backend> = Box::<Idle>::default();
        let main = std::mem::replace(&mut *backends.main, nothing);
        let drained = main.end(until, &mut backends.events);
        backends.ended = true;
        backends.ring_fd = None;
        backends.main_in_flight = 0;
        self.process_events(backends);
        while backends.fallback_in_flight() > 0
            && Instant::now() < until
            && backends.enter_fallback(1, Some(until)).is_ok()
        {
            self.process_events(backends);
        }
        if !drained {
            return;
        }
        for key in self.slots.keys().collect::<Vec<_>>() {
            let threads_have_it = backends.fallback_in_flight() > 0;
            let Some((state, flight)) = self.slots.entry(key) else { continue };
            let is_theirs = flight.use_fallback && threads_have_it;
            if !matches!(state, SlotState::New | SlotState::Done) && !is_theirs {
                // It is unknown whether a close took place: closing the number again might close
                // another file.
                flight.owns_descriptor = false;
                self.fail_operation(key, libc::ECANCELED);
            }
        }
    }

    /// Fails an operation in any state before done.
    fn fail_operation(&mut self, key: Key, errno: i32) {
        // `held` counts operations behind another one of their chain; those behind a barrier are in
        // `staged`.
        if self.slots.state(key) == Some(SlotState::Held) && !self.staged.contains(&key) {
            self.held -= 1;
        }
        self.finish(key, -i64::from(errno));
    }

    /// Closes, and lets both parts be freed if nothing is in flight after `wait`; otherwise leaks
    /// what the kernel may still touch. Drops results that were not taken and operations that were
    /// not started.
    ///
    /// In a forked child it only closes descriptors: those of the backends, and files that nothing
    /// but these operations keeps open. The parent's operations go on.
    pub fn shut_down(&mut self, backends: &mut Backends, wait: Duration) {
        if self.is_shut_down {
            return;
        }
        if !self.owner.is_current() {
            backends.close_inherited();
            return self.drop_inherited_files();
        }
        // If the queue cannot be closed, the state of its operations is unknown: free nothing.
        let left = self.close(backends, wait).unwrap_or(usize::MAX);
        self.is_shut_down = left == 0 && !self.has_leaked;
        // Destroying a Linux AIO context waits for its requests without a bound.
        backends.is_shut_down =
            self.is_shut_down || backends.explanation.backend != BackendKind::Kaio;
        if self.is_shut_down {
            for key in self.slots.keys().collect::<Vec<_>>() {
                match self.slots.state(key) {
                    Some(SlotState::New) => drop(self.slots.orphan(key, InFlight::withdraw)),
                    _ => drop(self.slots.orphan(key, |flight| flight.orphan(key))),
                }
            }
            (self.ready, self.new) = (0, 0);
        }
        self.clear();
    }

    /// In a forked child: drops the files of all operations, and the files that they have opened.
    /// The rest is leaked, since dropping a buffer may take a lock of its pool.
    ///
    /// The descriptor of a close stays open: the parent's close may have taken place before the
    /// fork, and another file may have its number.
    fn drop_inherited_files(&mut self) {
        for key in self.slots.keys().collect::<Vec<_>>() {
            let Some((state, flight)) = self.slots.entry(key) else { continue };
            drop(flight.operation.file.take_if(|file| file.is_owned()));
            if *state == SlotState::Done && flight.operation.opcode() == Opcode::Open {
                let result = std::mem::replace(&mut flight.result, -i64::from(libc::ECANCELED));
                drop(Open::opened(result));
            }
        }
        self.clear();
    }
}
