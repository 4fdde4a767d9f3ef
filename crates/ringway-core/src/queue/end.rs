//! The end before the end: cancelling operations, giving them up, closing and dropping the queue.

use super::flight::{Ending, Flight};
use super::{BackendKind, OpId, Queue};
use crate::backend::Backend;
use crate::backend::idle::Idle;
use crate::op::{Held, Shape};
use crate::refusal::{Feature, Refusal, errno_of};
use crate::slots::{Key, State, Token};
use std::io;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

impl Queue {
    /// Asks that an operation be cancelled; true if it is in flight and its result not known yet.
    ///
    /// Its completion comes in any case: with ECANCELED, or, when it could not be stopped any more (a transfer that the device
    /// has begun), with its result. Does not block; a cancel of something submitted takes effect with the next submit or reap.
    pub fn cancel(&mut self, id: OpId) -> bool {
        let known = self.home.is_here()
            && !matches!(self.slots.state(id.0), None | Some(State::Done))
            && self.slots.get(id.0).is_some();
        if known {
            self.end_early(id.0, Ending::Cancelled);
            self.announce();
        }
        known
    }

    /// Asks that everything in flight be cancelled; how many operations that were.
    pub fn cancel_all(&mut self) -> usize {
        if !self.home.is_here() {
            return 0;
        }
        let lasts = |key: &Key| self.slots.state(*key) != Some(State::Done);
        let keys: Vec<Key> = self.slots.keys().filter(lasts).collect();
        // One of them may take others with it, the rest of its chain.
        keys.iter().for_each(|key| _ = self.cancel(OpId(*key)));
        keys.len()
    }

    /// Gives an operation up: it is cancelled if that is still possible, its completion is not handed out, and what it owns is
    /// dropped when the kernel is done with it; a file that it opens is closed. False if there is no such operation in flight.
    ///
    /// Its place in the queue is free again with its completion, not before.
    pub fn abandon(&mut self, id: OpId) -> bool {
        let key = id.0;
        if !self.home.is_here() {
            return false;
        }
        match self.slots.state(key) {
            None => false,
            Some(State::Done) => {
                self.ready -= 1;
                self.slots.orphan(key, Flight::let_go);
                true
            }
            Some(_) => {
                let Some(flight) = self.slots.get_mut(key) else { return false };
                if !std::mem::replace(&mut flight.abandoned, true) {
                    self.abandoned += 1;
                    self.end_early(key, Ending::Cancelled);
                }
                true
            }
        }
    }

    /// Cancels, for the reason given.
    pub(super) fn end_early(&mut self, key: Key, ending: Ending) {
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
                    let side = self.side.as_mut().filter(|_| to_side);
                    // The pieces before the one that the main backend could not carry are still there.
                    if side.is_none() || mixed {
                        self.main.cancel(token);
                    }
                    if let Some(side) = side {
                        side.cancel(token);
                    }
                }
            }
            _ => {}
        }
    }

    /// Something is there to be reaped that no backend knows of: whoever polls the descriptor must learn of it.
    pub(super) fn announce(&mut self) {
        if self.polled && self.ready > 0 {
            self.main.wake();
        }
    }

    /// Takes no more operations, cancels everything in flight and waits for it, at most for `wait`. How many
    /// operations are still in flight after that: the device has them.
    ///
    /// Completions, those of the cancelled included, can be reaped as before. Closing again waits again.
    ///
    /// A ring that cannot be entered, since it has failed or is another thread's by
    /// [`single_issuer`](super::Options::single_issuer), is closed here and now. The kernel then cancels what is in flight on it, and
    /// its completions are lost: such an operation answers ECANCELED, whether or not it took place, when the kernel is done with it.
    ///
    /// Errors: ECHILD: a forked child.
    pub fn close(&mut self, wait: Duration) -> io::Result<usize> {
        if !self.home.is_here() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        self.closed = true;
        self.cancel_all();
        let until = Instant::now() + wait.min(Duration::from_secs(1 << 30));
        loop {
            // Abandoned operations are waited for too, though nobody will be handed their completions.
            let left = self.slots.in_flight() - self.ready;
            if left == 0 || self.ended || Instant::now() >= until {
                return Ok(left);
            }
            self.carry();
            let entered = self.enter(1, Some(until));
            self.sort_out();
            if entered.is_err() {
                self.end_main(until);
            }
        }
    }

    /// Closes the queue after an error of the backend as a whole, as [`close`](Self::close) does, and answers everything: what the kernel
    /// or a thread still has when `wait` is over answers EIO, whether or not it takes place. Its memory may be touched at any time
    /// and is leaked, so its completion has no buffer. [`explain`](Self::explain) tells of `error` from then on.
    ///
    /// Errors: ECHILD: a forked child.
    pub fn give_up(&mut self, error: &io::Error, wait: Duration) -> io::Result<()> {
        self.close(wait)?;
        let feature = match self.explanation.backend {
            BackendKind::Uring => Feature::Uring,
            BackendKind::Kaio => Feature::Kaio,
            BackendKind::Threads => Feature::Threads,
            #[cfg(feature = "testing")]
            BackendKind::Null => Feature::Threads,
        };
        self.explanation.refusals.push(Refusal {
            feature,
            errno: errno_of(error),
            meaning: "the backend failed while it was in use, and was closed: nothing is taken any more".into(),
            mend: "find what refuses its system calls since (a seccomp filter, a security module), and start anew"
                .into(),
        });
        for key in self.slots.keys().collect::<Vec<_>>() {
            let Some((state, flight)) = self.slots.entry(key) else { continue };
            if *state == State::Done {
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
    fn end_main(&mut self, until: Instant) {
        let nothing: Box<dyn Backend> = Box::<Idle>::default();
        let main = std::mem::replace(&mut *self.main, nothing);
        let over = main.end(until, &mut self.events);
        self.ended = true;
        self.ring_fd = None;
        self.carried = 0;
        self.sort_out();
        while self.beside() > 0 && Instant::now() < until && self.enter_side(1, Some(until)).is_ok() {
            self.sort_out();
        }
        if !over {
            return;
        }
        for key in self.slots.keys().collect::<Vec<_>>() {
            let threads_have_it = self.beside() > 0;
            let Some((state, flight)) = self.slots.entry(key) else { continue };
            if *state != State::Done && !(flight.to_side && threads_have_it) {
                // Whether a close took place is not known: to close the number again might hit somebody else's file.
                flight.owns_descriptor = false;
                self.finish(key, -i64::from(libc::ECANCELED));
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.home.is_here() {
            return; // All of it is the parent's.
        }
        // A queue that cannot be closed is one whose kernel side does not answer: then nothing is freed below.
        let mut left = self.close(self.options.drop_wait()).unwrap_or(usize::MAX);
        if self.leaks {
            left = usize::MAX;
        }
        // SAFETY: this is the last use of the two.
        unsafe {
            ManuallyDrop::drop(&mut self.side);
            // Giving a KAIO context back waits for what is in it, without a bound.
            if left == 0 || self.explanation.backend != BackendKind::Kaio {
                ManuallyDrop::drop(&mut self.main);
            }
        }
        if left == 0 {
            // Nothing is in flight any more, so nothing in the slots is the kernel's.
            for key in self.slots.keys().collect::<Vec<_>>() {
                self.slots.orphan(key, Flight::let_go);
            }
            // SAFETY: this is its last use.
            unsafe { ManuallyDrop::drop(&mut self.slots) }
        }
    }
}
