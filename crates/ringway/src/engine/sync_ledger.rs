//! Which operations in flight on a file may take the kernel's report of a lost write, and which
//! errors no sync has returned yet.
//!
//! Linux reports a write that was lost on its way to the device once for each open file, to the
//! first operation that asks: a sync, a durable write or `sync_file_range(2)`. Each of them has a
//! [`Ticket`] here until the kernel has completed it, whether or not a future still waits for it.
//! So a sync that succeeds can wait for those that were in flight with it and return their errors.
//! Who shares a sync is decided in `fs/sync.rs`.

use super::wake::wake_all;
use ringway_core::{Error, OwnerProcess};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

/// The ledger of one open file.
#[derive(Debug)]
pub(crate) struct SyncLedger {
    state: Mutex<LedgerState>,
    owner: OwnerProcess,
}

#[derive(Debug, Default)]
struct LedgerState {
    /// The number of the next ticket.
    next: u64,
    /// The numbers of the tickets whose operations have not ended.
    in_flight: BTreeSet<u64>,
    /// How many operations have returned an error that may stand for lost writes.
    errors: u64,
    /// The value of `errors` when a sync last returned one of them.
    reported: u64,
    last: Option<Error>,
    /// Futures that wait until all tickets below a number have ended, by this number and the
    /// future's own.
    waiting: BTreeMap<(u64, u64), Waker>,
    /// The number of the next future.
    next_wait: u64,
}

/// How many errors there were at some moment: later ones are news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since(u64);

/// An operation that may take the kernel's report.
#[derive(Debug)]
pub(crate) struct Ticket {
    ledger: Arc<SyncLedger>,
    number: u64,
    outcome: OnceLock<Outcome>,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) result: Result<(), Error>,
    /// The number of the first ticket that began after that.
    pub(crate) before: u64,
}

impl SyncLedger {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), owner: OwnerProcess::current() })
    }

    /// A ticket for an operation that is about to be pushed.
    pub(crate) fn begin(self: &Arc<Self>) -> Arc<Ticket> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.in_flight.insert(number);
        Arc::new(Ticket { ledger: Arc::clone(self), number, outcome: OnceLock::new() })
    }

    /// Errors from now on.
    pub(crate) fn since_now(&self) -> Since {
        Since(self.lock().errors)
    }

    /// Errors that no sync has returned, and those from now on.
    pub(crate) fn since_reported(&self) -> Since {
        Since(self.lock().reported)
    }

    /// The last error since then. With `reports`, the caller returns it from a sync, so that syncs
    /// that begin later do not.
    pub(crate) fn error(&self, since: Since, reports: bool) -> Option<Error> {
        let mut state = self.lock();
        let error = state.last.filter(|_| state.errors > since.0);
        if reports && error.is_some() {
            state.reported = state.errors;
        }
        error
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        // No code of the program runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerState {
    /// All tickets below this number have ended.
    fn floor(&self) -> u64 {
        self.in_flight.first().copied().unwrap_or(self.next)
    }

    /// Removes a ticket. Returns the futures to wake.
    fn remove(&mut self, number: u64) -> Vec<Waker> {
        self.in_flight.remove(&number);
        let later = self.waiting.split_off(&(self.floor() + 1, 0));
        std::mem::replace(&mut self.waiting, later).into_values().collect()
    }
}

impl Ticket {
    /// The number of the first ticket after this one.
    pub(crate) fn next(&self) -> u64 {
        self.number + 1
    }

    /// How its operation ended, once it has.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome.get().copied()
    }

    /// Records how its operation ended. The caller calls the wakers, outside all locks.
    #[must_use]
    pub(crate) fn end(&self, result: Result<(), Error>) -> Vec<Waker> {
        let mut state = self.ledger.lock();
        if self.outcome.set(Outcome { result, before: state.next }).is_err() {
            return Vec::new();
        }
        if let Err(error) = result
            && may_stand_for_lost_writes(error)
        {
            state.errors += 1;
            state.last = Some(error);
        }
        state.remove(self.number)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // An operation that was never started. In a forked child, the lock may be held forever.
        if self.outcome.get().is_none() && self.ledger.owner.is_current() {
            let wakers = self.ledger.lock().remove(self.number);
            wake_all(&mut { wakers });
        }
    }
}

/// Whether an operation that failed with this error may have taken the kernel's report. Not if it
/// was cancelled or if the call is invalid or missing, which is found before the file is synced. (A
/// missing permission is not: a server that has withdrawn it refuses data that was accepted before,
/// and the kernel reports that as the error of the lost write.)
fn may_stand_for_lost_writes(error: Error) -> bool {
    let is_refusal = matches!(
        io::Error::from(error).kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::NotSeekable
    );
    !error.is_cancelled() && !is_refusal
}

/// A future's place among those that wait for tickets to end.
#[derive(Debug)]
pub(crate) struct TicketWait {
    ledger: Arc<SyncLedger>,
    key: u64,
    /// It waits for all tickets below this number.
    until: Option<u64>,
}

impl TicketWait {
    pub(crate) fn new(ledger: &Arc<SyncLedger>) -> Self {
        let mut state = ledger.lock();
        let key = state.next_wait;
        state.next_wait += 1;
        drop(state);
        Self { ledger: Arc::clone(ledger), key, until: None }
    }

    /// Waits until all tickets below this number have ended.
    pub(crate) fn poll(&mut self, until: u64, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.ledger.lock();
        let before = self.until.take().and_then(|until| state.waiting.remove(&(until, self.key)));
        let is_over = state.floor() >= until;
        if !is_over {
            let waker = before.as_ref().filter(|before| before.will_wake(cx.waker()));
            let waker = waker.unwrap_or_else(|| cx.waker()).clone();
            state.waiting.insert((until, self.key), waker);
            self.until = Some(until);
        }
        drop(state);
        // Dropped without the lock, because a waker may own anything.
        drop(before);
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for TicketWait {
    fn drop(&mut self) {
        if let Some(until) = self.until
            && self.ledger.owner.is_current()
        {
            let waker = self.ledger.lock().waiting.remove(&(until, self.key));
            drop(waker);
        }
    }
}

#[cfg(all(test, not(ringway_loom)))]
mod tests {
    use super::*;
    use ringway_core::{BackendKind, FaultPlan, FaultStep, Options, op};

    /// An error with this number.
    fn error(errno: i32) -> Error {
        let plan = FaultPlan::new(0).fail(FaultStep::Job(0), errno);
        let options = Options::new().backend(BackendKind::Null).faults(plan);
        let mut queue = options.build().unwrap();
        queue.push(op::nop()).unwrap();
        queue.reap(1).unwrap().next().unwrap().result.unwrap_err()
    }

    fn is_over(wait: &mut TicketWait, until: u64) -> bool {
        wait.poll(until, &mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn an_error_is_returned_until_a_sync_has_reported_it() {
        let ledger = SyncLedger::new();
        let (now, unreported) = (ledger.since_now(), ledger.since_reported());
        assert!(ledger.begin().end(Err(error(libc::EIO))).is_empty());
        for reports in [false, true, true] {
            assert_eq!(ledger.error(now, reports).map(|error| error.errno()), Some(libc::EIO));
            assert!(ledger.error(unreported, reports).is_some(), "it began before the error");
        }
        assert_eq!(ledger.error(ledger.since_reported(), true), None, "it began after the report");
        assert_eq!(ledger.error(ledger.since_now(), true), None);
    }

    #[test]
    fn refusals_are_not_remembered() {
        let remembered = |errno| {
            let ledger = SyncLedger::new();
            let _ = ledger.begin().end(Err(error(errno)));
            ledger.error(ledger.since_reported(), true).is_some()
        };
        for errno in [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP, libc::ESPIPE] {
            assert!(!remembered(errno), "{errno}");
        }
        // What a server answers to the write of data that it had allowed before.
        for errno in [libc::EIO, libc::ENOSPC, libc::EROFS, libc::EACCES, libc::EPERM] {
            assert!(remembered(errno), "{errno}");
        }
    }

    /// Tickets may end in any order, with or without a result.
    #[test]
    fn a_wait_is_for_all_tickets_below_its_number() {
        let ledger = SyncLedger::new();
        let (first, second, third) = (ledger.begin(), ledger.begin(), ledger.begin());
        let (mut wait, mut all) = (TicketWait::new(&ledger), TicketWait::new(&ledger));
        assert!(is_over(&mut wait, 0));
        assert!(!is_over(&mut wait, second.next()) && !is_over(&mut all, third.next()));
        assert!(second.end(Ok(())).is_empty());
        assert!(!is_over(&mut wait, second.next()));
        assert_eq!(first.end(Ok(())).len(), 1);
        assert!(is_over(&mut wait, second.next()) && !is_over(&mut all, third.next()));
        assert_eq!(second.outcome().map(|outcome| outcome.before), Some(third.next()));
        drop(third); // Its operation was never started.
        assert!(is_over(&mut all, 3));
        assert_eq!(ledger.begin().number, 3);
        drop((wait, all));
        assert!(ledger.lock().waiting.is_empty());
    }
}
