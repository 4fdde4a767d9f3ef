//! What the backends answer: a result, or a reason to go on or to try again.

use super::in_flight::CancelCause;
use super::{BackendKind, Backends, Table};
use crate::backend::{Event, EventKind};
use crate::file::File;
use crate::op::Transfer;
use crate::slots::{Key, State};
use crate::split::Attempt;

/// After so many tries in vain an operation goes to the threads, where it may block.
pub(super) const MAX_RETRIES: u8 = 8;

impl<T: Default> Table<T> {
    /// Sees to what the backends have answered; true if they have answered anything.
    pub fn process_events(&mut self, backends: &mut Backends) -> bool {
        self.assert_paired(backends);
        let mut events = std::mem::take(&mut backends.events);
        let moved = !events.is_empty();
        for event in events.drain(..) {
            self.process_event(event, backends);
        }
        backends.events = events;
        #[cfg(debug_assertions)]
        self.check_now_and_then();
        moved
    }

    #[inline]
    fn process_event(&mut self, event: Event, backends: &mut Backends) {
        let Some(key) = event.token.key() else { return };
        let Some((state, flight)) = self.slots.entry(key) else {
            self.late += u64::from(event.kind != EventKind::TimerExpired);
            return;
        };
        if flight.fast_path {
            if let EventKind::Result(result) = event.kind
                && flight.is_final(result)
            {
                *state = State::Done;
                flight.result = result;
                // Behind its last operation a file may be closed: a completion does not hold it.
                if let Some(fd) = flight.operation.file.take().and_then(File::into_last_fd) {
                    self.fds_to_close.push(fd);
                }
                self.active -= 1;
                self.ready += 1;
                self.done.push_back(key);
                if !self.staged.is_empty() {
                    self.unstage();
                }
                return;
            }
            flight.leave_fast_path(true);
        }
        let result = match event.kind {
            EventKind::Result(result) => result,
            EventKind::Unsupported => {
                flight.use_fallback = true;
                self.to_threads += 1;
                // As an answer that is to be tried again: this time on the threads, unless it was
                // called off, or another piece has decided it.
                let whole = matches!(flight.operation.raw.transfer(), Transfer::None)
                    && flight.cancel_cause == CancelCause::None;
                match flight.progress.complete(event.token.piece(), -i64::from(libc::EAGAIN)) {
                    Some(attempt) if whole => self.retry(key, attempt),
                    Some(attempt) => self.finish_attempt(key, attempt),
                    None => {}
                }
                return;
            }
            EventKind::TimerExpired => {
                return self.cancel_for(key, CancelCause::TimedOut, backends);
            }
        };
        if matches!(flight.operation.raw.transfer(), Transfer::None) {
            // Without a length there are no pieces: the answer is the outcome, or a reason to ask
            // again.
            let errno = if result < 0 { i32::try_from(-result).unwrap_or(libc::EIO) } else { 0 };
            flight.progress.complete(0, 0);
            if errno != 0 && flight.should_retry(errno) {
                return self.retry(key, Attempt { done: 0, gained: 0, errno });
            }
            if self.backend == BackendKind::Uring && flight.should_wait_for_reader(errno) {
                flight.use_fallback = true;
                self.to_threads += 1;
                return self.retry(key, Attempt { done: 0, gained: 0, errno: libc::EAGAIN });
            }
            return self.finish(key, result);
        }
        match flight.progress.complete(event.token.piece(), result) {
            Some(attempt) => self.finish_attempt(key, attempt),
            None => {
                let more = flight.progress.has_more();
                if more && self.slots.state(key) == Some(State::Submitted) {
                    self.slots.set_state(key, State::Submitted, State::Pending);
                    self.pending.push_back(key);
                }
            }
        }
    }

    /// A round of a transfer is over: is that the result, or does it go on?
    #[inline]
    pub(super) fn finish_attempt(&mut self, key: Key, attempt: Attempt) {
        if self.slots.state(key) == Some(State::Pending) {
            // More pieces were wanted when the last answer came; they are not any more.
            self.slots.set_state(key, State::Pending, State::Submitted);
        }
        let Some(flight) = self.slots.get_mut(key) else { return };
        let total = flight.progress.total();
        if attempt.errno == 0 {
            let exact = flight.operation.exact;
            let complete = attempt.done == total || !exact || flight.is_end_of_file(attempt);
            if !complete && flight.cancel_cause != CancelCause::None {
                return self.finish(key, -i64::from(libc::ECANCELED));
            }
            if complete {
                let done = i64::try_from(attempt.done).unwrap_or(i64::MAX);
                return self.finish(key, done);
            }
            if attempt.gained == 0 {
                // A write that comes to nothing has no room, whatever the reason, and never will.
                return self.finish(key, -i64::from(libc::ENOSPC));
            }
            self.continued += 1;
            return self.retry(key, attempt);
        }
        if flight.should_retry(attempt.errno) {
            return self.retry(key, attempt);
        }
        if self.backend == BackendKind::Uring && flight.should_drop_offset(attempt.errno) {
            flight.use_fallback = true;
            self.to_threads += 1;
            return self.retry(key, Attempt { errno: libc::EAGAIN, ..attempt });
        }
        // What was transferred before the error is the result, as for the system call, unless all
        // was asked for.
        let result = if attempt.done > 0 && !flight.operation.exact {
            i64::try_from(attempt.done).unwrap_or(i64::MAX)
        } else {
            -i64::from(attempt.errno)
        };
        self.finish(key, result);
    }

    /// Once more from where it stopped.
    fn retry(&mut self, key: Key, attempt: Attempt) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        if attempt.errno != 0 {
            self.retries += 1;
        }
        if attempt.gained > 0 {
            flight.retries = 0;
        } else if matches!(attempt.errno, libc::EAGAIN | libc::EFAULT) {
            flight.retries = flight.retries.saturating_add(1);
            if flight.retries > MAX_RETRIES
                && !flight.use_fallback
                && self.backend != BackendKind::Threads
            {
                flight.use_fallback = true;
                self.to_threads += 1;
            }
        }
        let done = attempt.done;
        let before = flight.after.take();
        let limit = flight.progress.limit();
        flight.progress.restart(done, limit);
        // The kernel cancelled it because what it was linked behind came back early; that one goes
        // on, and so it waits again.
        let waits = attempt.errno == libc::ECANCELED
            && before.is_some_and(|before| {
                !matches!(self.slots.state(before), None | Some(State::Done))
            });
        if waits {
            self.slots.set_state(key, State::Submitted, State::Held);
            self.held += 1;
            return;
        }
        self.slots.set_state(key, State::Submitted, State::Pending);
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
        self.fds_to_close.extend(flight.take_unclosed_fd());
        let complete = flight.succeeded();
        let next = flight.next.take();
        let drain = flight.operation.drain;
        // A cancel ends the whole of the chain: it may stand behind a barrier, or a member before
        // this one still runs.
        let cancelled = flight.cancel_cause == CancelCause::Cancelled
            && flight.result == -i64::from(libc::ECANCELED);
        let always = flight.operation.continue_on_error && !cancelled;
        let is_active = std::mem::take(&mut flight.is_active);
        let counted_resubmittable = std::mem::take(&mut flight.counted_resubmittable);
        let abandoned = flight.abandoned;
        // Behind its last operation a file may be closed: a completion does not hold it.
        self.fds_to_close.extend(flight.operation.file.take().and_then(File::into_last_fd));
        let from = self.slots.state(key).unwrap_or(State::Free);
        self.slots.set_state(key, from, State::Done);
        let broken = match next {
            Some(next) if complete || always => {
                self.release_next(next);
                None
            }
            Some(next) => self.cancel_next(
                next,
                if cancelled { CancelCause::Cancelled } else { CancelCause::ChainBroken },
            ),
            None => None,
        };
        self.active -= usize::from(is_active);
        self.resubmittable -= usize::from(counted_resubmittable);
        if abandoned {
            self.abandoned -= 1;
            self.orphans.extend(self.slots.orphan(key, |flight| flight.orphan(key)));
        } else {
            self.ready += 1;
            self.done.push_back(key);
        }
        // (A barrier that was cancelled before it was let through leaves one that was in force.)
        if drain && is_active {
            self.draining = false;
        }
        broken
    }
}
