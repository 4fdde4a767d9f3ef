//! The end before the end: cancelling operations, giving them up, closing and dropping the queue.

use super::in_flight::{Ending, InFlight};
use super::{BackendKind, Backends, OpId, Table};
use crate::backend::Backend;
use crate::backend::idle::Idle;
use crate::file::File;
use crate::op::{Held, Shape};
use crate::refusal::{Feature, Refusal, errno_of};
use crate::slots::{Key, State, Token};
use std::io;
use std::time::{Duration, Instant};

impl<T: Default> Table<T> {
    /// As [`Queue::cancel`](super::Queue::cancel).
    pub fn cancel(&mut self, backends: &mut Backends, id: OpId) -> bool {
        self.assert_pair(backends);
        let state = self.slots.state(id.0);
        let known = self.home.is_here() && !matches!(state, None | Some(State::New | State::Done));
        if known {
            self.end_early(id.0, Ending::Cancelled, backends);
        }
        known
    }

    /// As [`Queue::cancel_all`](super::Queue::cancel_all).
    pub fn cancel_all(&mut self, backends: &mut Backends) -> usize {
        let lasts = |key: &Key| !matches!(self.slots.state(*key), Some(State::New | State::Done));
        let keys: Vec<Key> = self.slots.keys().filter(lasts).collect();
        // One of them may take others with it, the rest of its chain.
        keys.iter().for_each(|key| _ = self.cancel(backends, OpId(*key)));
        if self.home.is_here() { keys.len() } else { 0 }
    }

    /// Cancels, for the reason given.
    pub(super) fn end_early(&mut self, key: Key, ending: Ending, backends: &mut Backends) {
        let state = self.slots.state(key);
        let Some(flight) = self.slots.get_mut(key) else { return };
        if state == Some(State::Done) {
            return;
        }
        flight.make_intricate(state == Some(State::Carried));
        if flight.ending == Ending::Natural {
            flight.ending = ending;
        }
        match state {
            Some(State::Held) => self.finish_wherever(key, libc::ECANCELED),
            Some(State::Queued | State::Carried) => {
                if matches!(flight.operation.raw.shape(), Shape::Whole) {
                    if state == Some(State::Queued) {
                        return self.finish(key, -i64::from(libc::ECANCELED));
                    }
                } else if let Some(round) = flight.progress.stop() {
                    return self.settle(key, round);
                }
                // Nobody waits for it, and when the kernel is done with it is all the same.
                let is_storage = || flight.operation.file.as_ref().is_some_and(File::is_storage);
                if flight.abandoned
                    && !self.closed
                    && !backends.main.ends_by_cancel(&flight.operation.raw, is_storage())
                {
                    return;
                }
                let mixed = !flight.progress.is_single();
                let to_side = flight.to_side;
                for number in flight.progress.numbers() {
                    let token = Token::new(key, number);
                    let side = backends.side.as_mut().filter(|_| to_side);
                    // The pieces before the one that the main backend could not carry are still
                    // there.
                    if side.is_none() || mixed {
                        backends.main.cancel(token);
                    }
                    if let Some(side) = side {
                        side.cancel(token);
                    }
                }
            }
            _ => {}
        }
    }

    /// As [`Queue::close`](super::Queue::close). Operations that have not been started stay as they
    /// are.
    pub fn close(&mut self, backends: &mut Backends, wait: Duration) -> io::Result<usize> {
        if !self.home.is_here() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        let until = Instant::now() + wait.min(Duration::from_secs(1 << 30));
        self.begin_close(backends);
        while self.goes_on_closing(backends, until) {
            let waited = backends.wait(until);
            self.waited(backends, waited, until);
        }
        Ok(self.unfinished())
    }

    /// The beginning of [`close`](Self::close), for a table under a lock: starts no more
    /// operations, and cancels all that is in flight. It is followed by [`Backends::wait`] without
    /// the lock, and [`waited`](Self::waited), for as long as
    /// [`goes_on_closing`](Self::goes_on_closing) says so.
    pub fn begin_close(&mut self, backends: &mut Backends) {
        self.closed = true;
        self.cancel_all(backends);
    }

    /// Something is in flight that is worth waiting for.
    pub fn goes_on_closing(&mut self, backends: &mut Backends, until: Instant) -> bool {
        if self.unfinished() == 0 || backends.ended || Instant::now() >= until {
            return false;
        }
        self.carry(backends);
        true
    }

    /// What [`Backends::wait`] came to. A backend that cannot be entered is ended.
    pub fn waited(&mut self, backends: &mut Backends, waited: io::Result<()>, until: Instant) {
        self.sort_out(backends);
        if waited.is_err() {
            self.end_main(backends, until);
        }
    }

    /// Operations that were started and are not done. Abandoned ones count, though nobody is handed
    /// their completions.
    fn unfinished(&self) -> usize {
        self.slots.in_flight() - self.ready - self.new
    }

    /// Answers everything, after a close that followed an error of the backend as a whole: see
    /// [`Queue::give_up`](super::Queue::give_up).
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
            meaning: "the backend failed while it was in use, and was closed: nothing is taken any more".into(),
            fix: "find what refuses its system calls since (a seccomp filter, a security module), and start anew"
                .into(),
        });
        for key in self.slots.keys().collect::<Vec<_>>() {
            let Some((state, flight)) = self.slots.entry(key) else { continue };
            if matches!(state, State::New | State::Done) {
                continue;
            }
            std::mem::forget(std::mem::replace(&mut flight.operation.held, Held::Nothing));
            std::mem::forget(flight.operation.file.take());
            flight.owns_descriptor = false;
            self.leaks = true;
            self.finish_wherever(key, libc::EIO);
        }
    }

    /// Ends the main backend, which cannot be entered, and answers what it will not answer any
    /// more.
    fn end_main(&mut self, backends: &mut Backends, until: Instant) {
        let nothing: Box<dyn Backend> = Box::<Idle>::default();
        let main = std::mem::replace(&mut *backends.main, nothing);
        let over = main.end(until, &mut backends.events);
        backends.ended = true;
        backends.ring_fd = None;
        backends.carried = 0;
        self.sort_out(backends);
        while backends.beside() > 0
            && Instant::now() < until
            && backends.enter_side(1, Some(until)).is_ok()
        {
            self.sort_out(backends);
        }
        if !over {
            return;
        }
        for key in self.slots.keys().collect::<Vec<_>>() {
            let threads_have_it = backends.beside() > 0;
            let Some((state, flight)) = self.slots.entry(key) else { continue };
            let is_theirs = flight.to_side && threads_have_it;
            if !matches!(state, State::New | State::Done) && !is_theirs {
                // Whether a close took place is not known: to close the number again might hit
                // somebody else's file.
                flight.owns_descriptor = false;
                self.finish_wherever(key, libc::ECANCELED);
            }
        }
    }

    /// An operation fails, which may still wait for others.
    fn finish_wherever(&mut self, key: Key, errno: i32) {
        // One behind another of its chain is counted as held; one behind a barrier stands in
        // `staged`.
        if self.slots.state(key) == Some(State::Held) && !self.staged.contains(&key) {
            self.held -= 1;
        }
        self.finish(key, -i64::from(errno));
    }

    /// The end of both halves: closes, and lets them be freed if nothing is in flight after `wait`;
    /// else what the kernel may still touch is leaked. Results that have not been taken, and
    /// operations that have not been started, are dropped.
    pub fn shut_down(&mut self, backends: &mut Backends, wait: Duration) {
        if !self.home.is_here() || self.is_over {
            return; // All of it is the parent's, or over.
        }
        // A queue that cannot be closed is one whose kernel side does not answer: then nothing is
        // freed.
        let left = self.close(backends, wait).unwrap_or(usize::MAX);
        self.is_over = left == 0 && !self.leaks;
        // Giving a KAIO context back waits for what is in it, without a bound.
        backends.is_over = self.is_over || backends.explanation.backend != BackendKind::Kaio;
        if self.is_over {
            for key in self.slots.keys().collect::<Vec<_>>() {
                match self.slots.state(key) {
                    Some(State::New) => drop(self.slots.orphan(key, InFlight::withdraw)),
                    _ => drop(self.slots.orphan(key, |flight| flight.orphan(key))),
                }
            }
            (self.ready, self.new) = (0, 0);
        }
        self.clear();
    }
}
