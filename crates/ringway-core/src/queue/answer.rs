//! What the backends answer: a result, or a reason to go on or to try again.

use super::in_flight::Ending;
use super::{BackendKind, Backends, Table};
use crate::backend::{Answer, Event};
use crate::file::File;
use crate::op::Shape;
use crate::slots::{Key, State};
use crate::split::Round;

/// After so many tries in vain an operation goes to the threads, where it may block.
pub(super) const PATIENCE: u8 = 8;

impl<T: Default> Table<T> {
    /// Sees to what the backends have answered; true if they have answered anything.
    pub fn sort_out(&mut self, backends: &mut Backends) -> bool {
        self.assert_pair(backends);
        let mut events = std::mem::take(&mut backends.events);
        let moved = !events.is_empty();
        for event in events.drain(..) {
            self.sort_out_one(event, backends);
        }
        backends.events = events;
        #[cfg(debug_assertions)]
        self.check_now_and_then();
        moved
    }

    #[inline]
    fn sort_out_one(&mut self, event: Event, backends: &mut Backends) {
        let Some(key) = event.token.key() else { return };
        let Some((state, flight)) = self.slots.entry(key) else {
            self.late += u64::from(event.answer != Answer::Expired);
            return;
        };
        if flight.plain {
            if let Answer::Result(result) = event.answer
                && flight.is_outcome(result)
            {
                *state = State::Done;
                flight.result = result;
                // Behind its last operation a file may be closed: a completion does not hold it.
                if let Some(fd) = flight.operation.file.take().and_then(File::let_go) {
                    self.closing.push(fd);
                }
                self.active -= 1;
                self.ready += 1;
                self.done.push_back(key);
                if !self.staged.is_empty() {
                    self.unstage();
                }
                return;
            }
            flight.make_intricate(true);
        }
        let result = match event.answer {
            Answer::Result(result) => result,
            Answer::CannotCarry => {
                flight.to_side = true;
                self.to_threads += 1;
                // As an answer that is to be tried again: this time on the threads, unless it was
                // called off, or another piece has decided it.
                let whole = matches!(flight.operation.raw.shape(), Shape::Whole)
                    && flight.ending == Ending::Natural;
                match flight.progress.answered(event.token.piece(), -i64::from(libc::EAGAIN)) {
                    Some(round) if whole => self.again(key, round),
                    Some(round) => self.settle(key, round),
                    None => {}
                }
                return;
            }
            Answer::Expired => return self.end_early(key, Ending::TimedOut, backends),
        };
        if matches!(flight.operation.raw.shape(), Shape::Whole) {
            // Without a length there are no pieces: the answer is the outcome, or a reason to ask
            // again.
            let errno = if result < 0 { i32::try_from(-result).unwrap_or(libc::EIO) } else { 0 };
            flight.progress.answered(0, 0);
            if errno != 0 && flight.is_to_be_tried_again(errno) {
                return self.again(key, Round { done: 0, gained: 0, errno });
            }
            if self.backend == BackendKind::Uring && flight.is_to_wait_for_a_reader(errno) {
                flight.to_side = true;
                self.to_threads += 1;
                return self.again(key, Round { done: 0, gained: 0, errno: libc::EAGAIN });
            }
            return self.finish(key, result);
        }
        match flight.progress.answered(event.token.piece(), result) {
            Some(round) => self.settle(key, round),
            None => {
                let more = flight.progress.has_more();
                if more && self.slots.state(key) == Some(State::Carried) {
                    self.slots.set_state(key, State::Carried, State::Queued);
                    self.pending.push_back(key);
                }
            }
        }
    }

    /// A round of a transfer is over: is that the result, or does it go on?
    #[inline]
    pub(super) fn settle(&mut self, key: Key, round: Round) {
        if self.slots.state(key) == Some(State::Queued) {
            // More pieces were wanted when the last answer came; they are not any more.
            self.slots.set_state(key, State::Queued, State::Carried);
        }
        let Some(flight) = self.slots.get_mut(key) else { return };
        let total = flight.progress.total();
        if round.errno == 0 {
            let exact = flight.operation.exact;
            let complete = round.done == total || !exact || flight.is_end_of_file(round);
            if !complete && flight.ending != Ending::Natural {
                return self.finish(key, -i64::from(libc::ECANCELED));
            }
            if complete {
                let done = i64::try_from(round.done).unwrap_or(i64::MAX);
                return self.finish(key, done);
            }
            if round.gained == 0 {
                // A write that comes to nothing has no room, whatever the reason, and never will.
                return self.finish(key, -i64::from(libc::ENOSPC));
            }
            self.continued += 1;
            return self.again(key, round);
        }
        if flight.is_to_be_tried_again(round.errno) {
            return self.again(key, round);
        }
        if self.backend == BackendKind::Uring && flight.is_to_go_without_an_offset(round.errno) {
            flight.to_side = true;
            self.to_threads += 1;
            return self.again(key, Round { errno: libc::EAGAIN, ..round });
        }
        // What was transferred before the error is the result, as for the system call, unless all
        // was asked for.
        let result = if round.done > 0 && !flight.operation.exact {
            i64::try_from(round.done).unwrap_or(i64::MAX)
        } else {
            -i64::from(round.errno)
        };
        self.finish(key, result);
    }

    /// Once more from where it stopped.
    fn again(&mut self, key: Key, round: Round) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        if round.errno != 0 {
            self.retries += 1;
        }
        if round.gained > 0 {
            flight.retries = 0;
        } else if matches!(round.errno, libc::EAGAIN | libc::EFAULT) {
            flight.retries = flight.retries.saturating_add(1);
            if flight.retries > PATIENCE && !flight.to_side && self.backend != BackendKind::Threads
            {
                flight.to_side = true;
                self.to_threads += 1;
            }
        }
        let done = round.done;
        let before = flight.after.take();
        let limit = flight.progress.limit();
        flight.progress.restart(done, limit);
        // The kernel cancelled it because what it was linked behind came back early; that one goes
        // on, and so it waits again.
        let waits = round.errno == libc::ECANCELED
            && before.is_some_and(|before| {
                !matches!(self.slots.state(before), None | Some(State::Done))
            });
        if waits {
            self.slots.set_state(key, State::Carried, State::Held);
            self.held += 1;
            return;
        }
        self.slots.set_state(key, State::Carried, State::Queued);
        self.pending.push_back(key);
    }

    /// The result is known; with it, that of what follows in its chain and will not begin.
    #[inline]
    pub(super) fn finish(&mut self, key: Key, result: i64) {
        let mut broken = self.finish_one(key, result);
        while let Some(key) = broken {
            broken = self.finish_one(key, -i64::from(libc::ECANCELED));
        }
        if !self.staged.is_empty() {
            self.unstage();
        }
    }

    /// The result of one is known. Gives what follows in its chain, if that will not begin.
    #[inline]
    fn finish_one(&mut self, key: Key, result: i64) -> Option<Key> {
        let flight = self.slots.get_mut(key)?;
        flight.result = flight.final_result(result);
        self.closing.extend(flight.still_open());
        let complete = flight.succeeded();
        let next = flight.next.take();
        let drain = flight.operation.drain;
        // A cancel ends the whole of the chain: it may stand behind a barrier, or a member before
        // this one still runs.
        let cancelled =
            flight.ending == Ending::Cancelled && flight.result == -i64::from(libc::ECANCELED);
        let always = flight.operation.always && !cancelled;
        let counted = std::mem::take(&mut flight.counted);
        let goes_on = std::mem::take(&mut flight.goes_on);
        let abandoned = flight.abandoned;
        // Behind its last operation a file may be closed: a completion does not hold it.
        self.closing.extend(flight.operation.file.take().and_then(File::let_go));
        let from = self.slots.state(key).unwrap_or(State::Free);
        self.slots.set_state(key, from, State::Done);
        let broken = match next {
            Some(next) if complete || always => {
                self.go_on(next);
                None
            }
            Some(next) => {
                self.break_off(next, if cancelled { Ending::Cancelled } else { Ending::Broken })
            }
            None => None,
        };
        self.active -= usize::from(counted);
        self.going_on -= usize::from(goes_on);
        if abandoned {
            self.abandoned -= 1;
            self.orphans.extend(self.slots.orphan(key, |flight| flight.orphan(key)));
        } else {
            self.ready += 1;
            self.done.push_back(key);
        }
        // (A barrier that was cancelled before it was let through leaves one that was in force.)
        if drain && counted {
            self.draining = false;
        }
        broken
    }
}
