//! The end before the end: cancelling operations, giving them up, closing and dropping the queue.

use super::flight::{Ending, Flight};
use super::{BackendKind, Backends, OpId, Table};
use crate::backend::Backend;
use crate::backend::null::Null;
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
            Some(State::Held) => {
                // One behind another of its chain is counted as held; one behind a barrier stands in `staged`.
                if !self.staged.contains(&key) {
                    self.held -= 1;
                }
                self.finish(key, -i64::from(libc::ECANCELED));
            }
            Some(State::Queued | State::Carried) => {
                if matches!(flight.operation.raw.shape(), Shape::Whole) {
                    if state == Some(State::Queued) {
                        return self.finish(key, -i64::from(libc::ECANCELED));
                    }
                } else if let Some(round) = flight.progress.stop() {
                    return self.settle(key, round);
                }
                let mixed = !flight.progress.is_single();
                let to_side = flight.to_side;
                for number in flight.progress.numbers() {
                    let token = Token::new(key, number);
                    let side = backends.side.as_mut().filter(|_| to_side);
                    // The pieces before the one that the main backend could not carry are still there.
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

    /// As [`Queue::close`](super::Queue::close). Operations that have not been started stay as they are.
    pub fn close(&mut self, backends: &mut Backends, wait: Duration) -> io::Result<usize> {
        self.assert_pair(backends);
        if !self.home.is_here() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        self.closed = true;
        self.cancel_all(backends);
        let until = Instant::now() + wait.min(Duration::from_secs(1 << 30));
        loop {
            // Abandoned operations are waited for too, though nobody will be handed their completions.
            let left = self.slots.in_flight() - self.ready - self.new;
            if left == 0 || backends.ended || Instant::now() >= until {
                return Ok(left);
            }
            self.carry(backends);
            let entered = backends.enter(1, Some(until));
            self.sort_out(backends);
            if entered.is_err() {
                self.end_main(backends, until);
            }
        }
    }

    /// As [`Queue::give_up`](super::Queue::give_up).
    pub fn fail(&mut self, backends: &mut Backends, error: &io::Error, wait: Duration) -> io::Result<()> {
        self.close(backends, wait)?;
        let feature = match backends.explanation.backend {
            BackendKind::Uring => Feature::Uring,
            BackendKind::Kaio => Feature::Kaio,
            BackendKind::Threads | BackendKind::Null => Feature::Threads,
        };
        backends.explanation.refusals.push(Refusal {
            feature,
            errno: errno_of(error),
            meaning: "the backend failed while it was in use, and was closed: nothing is taken any more".into(),
            mend: "find what refuses its system calls since (a seccomp filter, a security module), and start anew"
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
            self.finish(key, -i64::from(libc::EIO));
        }
        Ok(())
    }

    /// Ends the main backend, which cannot be entered, and answers what it will not answer any more.
    fn end_main(&mut self, backends: &mut Backends, until: Instant) {
        let nothing: Box<dyn Backend> = Box::new(Null::new());
        let main = std::mem::replace(&mut *backends.main, nothing);
        let over = main.end(until, &mut backends.events);
        backends.ended = true;
        backends.ring_fd = None;
        backends.carried = 0;
        self.sort_out(backends);
        while backends.beside() > 0 && Instant::now() < until && backends.enter_side(1, Some(until)).is_ok() {
            self.sort_out(backends);
        }
        if !over {
            return;
        }
        for key in self.slots.keys().collect::<Vec<_>>() {
            let threads_have_it = backends.beside() > 0;
            let Some((state, flight)) = self.slots.entry(key) else { continue };
            if !matches!(state, State::New | State::Done) && !(flight.to_side && threads_have_it) {
                // Whether a close took place is not known: to close the number again might hit somebody else's file.
                flight.owns_descriptor = false;
                self.finish(key, -i64::from(libc::ECANCELED));
            }
        }
    }

    /// The end of both halves: closes, and lets them be freed if nothing is in flight after `wait`; else what the kernel
    /// may still touch is leaked. Results that have not been taken, and operations that have not been started, are dropped.
    pub fn shut_down(&mut self, backends: &mut Backends, wait: Duration) {
        if !self.home.is_here() || self.is_over {
            return; // All of it is the parent's, or over.
        }
        // A queue that cannot be closed is one whose kernel side does not answer: then nothing is freed.
        let left = self.close(backends, wait).unwrap_or(usize::MAX);
        self.is_over = left == 0 && !self.leaks;
        // Giving a KAIO context back waits for what is in it, without a bound.
        backends.is_over = self.is_over || backends.explanation.backend != BackendKind::Kaio;
        if self.is_over {
            for key in self.slots.keys().collect::<Vec<_>>() {
                match self.slots.state(key) {
                    Some(State::New) => drop(self.slots.orphan(key, Flight::withdraw)),
                    _ => drop(self.slots.orphan(key, |flight| flight.orphan(key))),
                }
            }
            (self.ready, self.new) = (0, 0);
        }
    }
}
