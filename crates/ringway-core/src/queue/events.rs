//! Processing of backend events: a result completes an operation, continues it or retries it.
//! Cancelling and closing are in `close`.

use super::backends::Backends;
use super::in_flight::{CancelCause, MAX_RETRIES, ends_by_itself};
use super::options::BackendKind;
use super::table::Table;
use crate::backend::{CANCEL_PAUSES, EventKind, JobEvent};
use crate::error::ErrorDetail;
use crate::file::File;
use crate::op::{Raw, Transfer};
use crate::rw_flags::RwFlags;
use crate::slots::{Key, SlotState, Token};
use crate::split::Attempt;
use crate::sys::{OwnedFd, libc};
use std::time::Instant;

/// A cancel that found nothing is repeated as often at once. A worker has nearly always taken the
/// operation long before that; after it, the worker gets time, up to some eighth of a second for
/// what no cancel ever finds.
const QUICK_MISSED: u8 = 50;

/// The result with which the kernel refuses a transfer of a file that has none.
const EINVAL: i64 = -(libc::EINVAL as i64);

/// The file of an operation that has completed. Returns its descriptor if nobody else has it.
#[inline]
fn release(file: File, raw: &Raw, result: i64, reads_extents: bool) -> Option<OwnedFd> {
    if raw.is_transfer() && result >= 0 {
        file.note_completed(raw.is_write());
        if raw.rw_flags().has(RwFlags::DONT_CACHE) {
            file.note_dont_cache_accepted();
        }
    }
    if reads_extents {
        file.end_reading_extents(result >= 0);
    }
    file.into_last_fd()
}

impl<T: Default> Table<T> {
    /// Processes the events that the backends have produced. Returns true if there were any.
    pub fn process_events(&mut self, backends: &mut Backends) -> bool {
        self.assert_paired(backends);
        let mut events = std::mem::take(&mut backends.events);
        let progressed = !events.is_empty();
        for event in events.drain(..) {
            self.process_event(event, backends);
        }
        backends.events = events;
        #[cfg(debug_assertions)]
        self.check_now_and_then();
        progressed
    }

    #[inline]
    fn process_event(&mut self, event: JobEvent, backends: &mut Backends) {
        let Some(key) = event.token.key() else { return };
        let Some((state, flight)) = self.slots.entry(key) else {
            self.late += u64::from(event.kind.is_completion());
            return;
        };
        if flight.fast_path {
            if let EventKind::Result(result) = event.kind
                && flight.is_final(result)
            {
                *state = SlotState::Done;
                flight.result = result;
                // A completion does not keep the file open: after its last operation it may be
                // closed.
                if let Some(file) = flight.operation.file.take()
                    && let Some(fd) =
                        release(file, &flight.operation.raw, result, flight.reads_extents)
                {
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
        self.process_slowly(key, event, backends);
    }

    /// Processes an event of an operation that is not a single piece, or whose result is not final.
    fn process_slowly(&mut self, key: Key, event: JobEvent, backends: &mut Backends) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        let result = match event.kind {
            EventKind::Result(result) => {
                if result == EINVAL
                    && flight.operation.raw.is_transfer()
                    && let Some(file) = &flight.operation.file
                    && self.passthrough.lacks(file)
                {
                    flight.detail = Some(ErrorDetail::NEEDS_PASSTHROUGH);
                }
                result
            }
            EventKind::NvmeStatus(status) => {
                flight.detail = Some(ErrorDetail::of_status(status));
                -i64::from(status.errno())
            }
            EventKind::Unsupported => return self.piece_unsupported(key, event.token),
            EventKind::TimerExpired => {
                self.cancel_for(key, CancelCause::TimedOut, backends);
                return backends.note_cancel();
            }
            EventKind::CancelMissed => return self.cancel_missed(key, event.token, backends),
        };
        if matches!(flight.operation.raw.transfer(), Transfer::None) {
            return self.whole_ended(key, result);
        }
        match flight.progress.complete(event.token.piece(), result) {
            Some(attempt) => self.finish_attempt(key, attempt),
            None => {
                let more = flight.progress.has_more();
                if more && self.slots.state(key) == Some(SlotState::Submitted) {
                    self.slots.set_state(key, SlotState::Submitted, SlotState::Pending);
                    self.pending.push_back(key);
                }
            }
        }
    }

    /// The backend does not take a piece: the operation is retried as after EAGAIN, now on the
    /// threads, unless it was cancelled before it began or another piece has decided the result.
    fn piece_unsupported(&mut self, key: Key, token: Token) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        if std::mem::take(&mut flight.progress.asks_ring) {
            flight.progress.complete(token.piece(), 0);
            return self.ring_answered(key, 0);
        }
        flight.use_fallback = true;
        self.to_threads += 1;
        let cancelled = flight.cancel_cause != CancelCause::None;
        let whole = matches!(flight.operation.raw.transfer(), Transfer::None) && !cancelled;
        let errno = if cancelled { libc::ECANCELED } else { libc::EAGAIN };
        match flight.progress.complete(token.piece(), -i64::from(errno)) {
            Some(attempt) if whole => self.retry(key, attempt),
            Some(attempt) => self.finish_attempt(key, attempt),
            None => {}
        }
    }

    /// The kernel has not found the job to cancel. It is cancelled again, unless it is elsewhere,
    /// completed or ends by itself: the kernel never finds what a device has.
    fn cancel_missed(&mut self, key: Key, token: Token, backends: &mut Backends) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        if flight.cancel_cause == CancelCause::None
            || flight.use_fallback
            || flight.progress.in_flight_piece(token.piece()).is_none()
            || ends_by_itself(&flight.operation)
        {
            return;
        }
        match flight.retries.checked_sub(QUICK_MISSED) {
            None => backends.main.cancel(token),
            Some(paused) => {
                let pause = usize::from(paused).min(CANCEL_PAUSES.len() - 1);
                backends.main.cancel_later(token, pause);
            }
        }
        flight.retries = flight.retries.saturating_add(1);
        backends.note_cancel();
    }

    /// An operation without a length has ended, which has no pieces: this is its result, or a
    /// reason to retry.
    fn whole_ended(&mut self, key: Key, result: i64) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        let errno = if result < 0 { i32::try_from(-result).unwrap_or(libc::EIO) } else { 0 };
        flight.progress.complete(0, 0);
        if std::mem::take(&mut flight.progress.asks_ring) {
            return self.ring_answered(key, errno);
        }
        let by_thread = flight.use_fallback || self.backend == BackendKind::Threads;
        if errno != 0 && flight.should_retry(errno, by_thread) {
            return self.retry(key, Attempt { done: 0, gained: 0, errno });
        }
        let is_ring = self.backend == BackendKind::Uring && !self.passthrough.is_on();
        let is_denied = is_ring && flight.may_be_denied_by_ring(errno);
        let waits_for_reader =
            self.backend == BackendKind::Uring && flight.should_wait_for_reader(errno);
        let (asks_ring, before) = (is_denied && flight.on_nothing().is_some(), flight.after);
        // (One behind another that has not ended was not made: the ring has denied it.)
        if asks_ring && !before.is_some_and(|before| self.is_unfinished(before)) {
            self.retry(key, Attempt { done: 0, gained: 0, errno });
            if let Some(flight) = self.slots.get_mut(key) {
                flight.progress.asks_ring = true;
            }
            return;
        }
        if is_denied || waits_for_reader {
            return self.retry_on_threads(key, Attempt { done: 0, gained: 0, errno });
        }
        self.finish(key, result);
    }

    /// The ring has answered whether it denies such operations: this one was denied.
    fn ring_answered(&mut self, key: Key, errno: i32) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        if !flight.may_be_denied_by_ring(errno) {
            // (After a cancel nobody knows.)
            return self.finish(key, -i64::from(libc::EACCES));
        }
        self.retry_on_threads(key, Attempt { done: 0, gained: 0, errno });
    }

    /// An attempt of a transfer has ended: finishes the operation or starts another attempt.
    #[inline]
    pub(super) fn finish_attempt(&mut self, key: Key, attempt: Attempt) {
        if self.slots.state(key) == Some(SlotState::Pending) {
            // After the previous result another piece was to be issued; now none is needed.
            self.slots.set_state(key, SlotState::Pending, SlotState::Submitted);
        }
        let Some(flight) = self.slots.get_mut(key) else { return };
        let total = flight.progress.total();
        if attempt.errno == 0 {
            if let Some(result) = flight.untorn_result(attempt) {
                return self.finish(key, result);
            }
            // What was submitted without some of its buffers is no short transfer.
            let exact = std::mem::take(&mut flight.progress.was_cut_short)
                && flight.cancel_cause == CancelCause::None
                || flight.operation.exact;
            let complete = attempt.done == total || !exact || flight.is_end_of_file(attempt);
            if !complete && flight.cancel_cause != CancelCause::None {
                return self.finish(key, -i64::from(libc::ECANCELED));
            }
            if complete {
                let done = i64::try_from(attempt.done).unwrap_or(i64::MAX);
                return self.finish(key, done);
            }
            if attempt.gained == 0 {
                // A write of zero bytes without an error: no space is left, and a retry would not
                // help.
                return self.finish(key, -i64::from(libc::ENOSPC));
            }
            self.continued += 1;
            return self.retry(key, attempt);
        }
        let by_thread = flight.use_fallback || self.backend == BackendKind::Threads;
        if flight.should_retry(attempt.errno, by_thread) {
            return self.retry(key, attempt);
        }
        if flight.is_refused_beyond_end(attempt) {
            return self.finish(key, i64::try_from(attempt.done).unwrap_or(i64::MAX));
        }
        if flight.was_not_a_socket(attempt.errno) && flight.cancel_cause == CancelCause::None {
            flight.forget_socket();
            return self.retry(key, attempt);
        }
        if flight.may_lack_dont_cache(attempt) {
            // (After its time limit it would take effect although it is reported as timed out.)
            let is_late = flight.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if is_late || flight.cancel_cause != CancelCause::None {
                return self.finish(key, -i64::from(libc::ECANCELED));
            }
            flight.leave_dont_cache(attempt.errno);
            return self.retry(key, attempt);
        }
        let is_ring = self.backend == BackendKind::Uring && !self.passthrough.is_on();
        if is_ring && flight.may_be_denied_by_ring(attempt.errno)
            || self.backend == BackendKind::Uring && flight.should_drop_offset(attempt.errno)
        {
            return self.retry_on_threads(key, attempt);
        }
        if let Some(result) = flight.untorn_result(attempt) {
            return self.finish(key, result);
        }
        // As for the system call, the bytes before the error are the result, unless all were
        // required.
        let result = if attempt.done > 0 && !flight.operation.exact {
            i64::try_from(attempt.done).unwrap_or(i64::MAX)
        } else {
            -i64::from(attempt.errno)
        };
        self.finish(key, result);
    }

    /// As [`Self::retry`], on the threads and as after EAGAIN.
    fn retry_on_threads(&mut self, key: Key, attempt: Attempt) {
        if let Some(flight) = self.slots.get_mut(key) {
            flight.use_fallback = true;
            self.to_threads += 1;
            self.retry(key, Attempt { errno: libc::EAGAIN, ..attempt });
        }
    }

    /// Continues the operation where the attempt stopped.
    fn retry(&mut self, key: Key, attempt: Attempt) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        if attempt.errno != 0 {
            self.retries += 1;
        }
        let done = attempt.done;
        let before = flight.after.take();
        // Before kernel 6.5 a read of a pipe needs an io-wq worker, and the kernel cancels it if it
        // can start none (RLIMIT_NPROC).
        let is_cancelled = attempt.errno == libc::ECANCELED && before.is_none();
        if attempt.gained > 0 {
            flight.retries = 0;
        } else if matches!(attempt.errno, libc::EAGAIN | libc::EFAULT) || is_cancelled {
            flight.retries = flight.retries.saturating_add(1);
            if flight.retries > MAX_RETRIES
                && !flight.use_fallback
                && self.backend != BackendKind::Threads
            {
                flight.use_fallback = true;
                self.to_threads += 1;
            }
        }
        let limit = flight.progress.limit();
        flight.progress.restart(done, limit);
        // The kernel cancelled it because the operation before it in the chain was short or
        // interrupted, or has refused it when the chain was submitted. That one is retried, so this
        // one waits for it again.
        if before.is_some_and(|before| self.is_unfinished(before)) {
            self.slots.set_state(key, SlotState::Submitted, SlotState::Held);
            self.held += 1;
            return;
        }
        self.slots.set_state(key, SlotState::Submitted, SlotState::Pending);
        self.pending.push_back(key);
    }

    fn is_unfinished(&self, key: Key) -> bool {
        !matches!(self.slots.state(key), None | Some(SlotState::Done))
    }

    /// Records the result of an operation, and fails the operations of its chain that will not
    /// start.
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

    /// Records the result of one operation. Returns the next one of its chain if that will not
    /// start.
    #[inline]
    fn finish_one(&mut self, key: Key, result: i64) -> Option<Key> {
        let flight = self.slots.get_mut(key)?;
        // (It ends before the ring has answered: it may have been made.)
        let result = if flight.progress.asks_ring { -i64::from(libc::EACCES) } else { result };
        flight.result = flight.final_result(result);
        self.fds_to_close.extend(flight.take_unclosed_fd(result));
        let complete = flight.succeeded();
        let next = flight.next.take();
        let drain = flight.operation.drain;
        // A cancel ends the whole chain: the chain may wait behind a barrier, or an earlier
        // operation of it may still run.
        let is_from_cancel = |errno| matches!(errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN);
        let cancelled = flight.cancel_cause == CancelCause::Cancelled
            && i32::try_from(-flight.result).is_ok_and(is_from_cancel);
        let always = flight.operation.continue_on_error && !cancelled;
        let is_active = std::mem::take(&mut flight.is_active);
        let counted_resubmittable = std::mem::take(&mut flight.counted_resubmittable);
        let abandoned = flight.abandoned;
        // A completion does not keep the file open: after its last operation it may be closed.
        let file = flight.operation.file.take();
        let (result, reads_extents) = (flight.result, flight.reads_extents);
        if result >= 0
            && flight.dont_cache_errno != 0
            && let Some(file) = &file
        {
            file.note_dont_cache_refused(flight.dont_cache_errno);
        }
        self.fds_to_close.extend(
            file.and_then(|file| release(file, &flight.operation.raw, result, reads_extents)),
        );
        let from = self.slots.state(key).unwrap_or(SlotState::Free);
        self.slots.set_state(key, from, SlotState::Done);
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
        // (A barrier that was cancelled while it waited was never in force.)
        if drain && is_active {
            self.draining = false;
        }
        broken
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::{Options, op};
    use std::time::Duration;

    /// A member of a chain that the kernel has cut, for example. (The error of a close says whether
    /// the descriptor is still open.)
    #[test]
    fn what_is_cancelled_before_the_backend_refuses_it_has_not_begun() {
        let path = if cfg!(windows) { "NUL" } else { "/dev/null" };
        let open = || File::from(std::fs::File::open(path).unwrap());
        for operation in
            [op::fdatasync(&open()), op::read(&open(), vec![0; 8], 0), op::close(open())]
        {
            let (mut table, mut backends) =
                Options::new().backend(BackendKind::Null).build_parts::<()>().unwrap();
            let id = table.insert(operation, ()).map_err(|(reason, _)| reason).unwrap();
            table.start(id);
            // As if the backend had taken it; the null backend would execute it.
            assert_eq!(table.pending.pop_front(), Some(id.0));
            table.take_descriptor(id.0).unwrap();
            let flight = table.slots.get_mut(id.0).unwrap();
            flight.leave_fast_path(false);
            flight.progress.next_piece().unwrap();
            table.slots.set_state(id.0, SlotState::Pending, SlotState::Submitted);
            backends.main_in_flight += 1;
            assert!(table.cancel(&mut backends, id));
            let token = Token::new(id.0, 0);
            backends.events.push(JobEvent { token, kind: EventKind::Unsupported });
            table.process_events(&mut backends);
            let result = table.take(id).unwrap().result;
            assert_eq!(result.unwrap_err().errno(), libc::ECANCELED);
            table.shut_down(&mut backends, Duration::ZERO);
        }
    }

    /// A server that has denied the close has closed the descriptor, whose number may be another
    /// file's by now.
    #[cfg(ringway_linux)]
    #[test]
    fn a_denied_close_that_is_cancelled_is_not_repeated() {
        use crate::{FaultPlan, FaultStep};
        let plan = FaultPlan::new(1).fail(FaultStep::Job(0), libc::EACCES);
        let options = Options::new().backend(BackendKind::Uring).faults(plan);
        let Ok((mut table, mut backends)) = options.build_parts::<()>() else {
            return println!("skipped: no io_uring");
        };
        let close = op::close(File::from(std::fs::File::open("/dev/null").unwrap()));
        let id = table.insert(close, ()).map_err(|(reason, _)| reason).unwrap();
        table.start(id);
        table.submit_pending(&mut backends);
        backends.wait(Instant::now() + Duration::from_secs(20)).unwrap();
        assert!(table.process_events(&mut backends));
        // The ring is to be asked.
        assert!(table.has_pending() && table.cancel(&mut backends, id));
        assert_eq!(table.take(id).unwrap().result.unwrap_err().errno(), libc::EACCES);
        assert!(table.fds_to_close().is_empty());
        table.shut_down(&mut backends, Duration::from_secs(20));
    }
}
