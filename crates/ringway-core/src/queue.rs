//! The queue: push operations, submit them, reap completions.
//!
//! The queue owns each operation from its push on. It orders operations (chains, barriers), splits
//! long transfers, continues short ones, retries interrupted ones and returns the results. Backends
//! pass operations to the kernel; a pool of threads runs those that the backend does not support.

mod backends;
mod build;
#[cfg(any(test, debug_assertions))]
mod check;
mod close;
mod completion;
mod events;
mod fixed;
mod id;
mod in_flight;
#[cfg(test)]
mod model_tests;
mod options;
mod ordering;
#[cfg(ringway_linux)]
mod passthrough;
#[cfg(not(ringway_linux))]
#[path = "queue/passthrough/elsewhere.rs"]
mod passthrough;
mod register;
mod stats;
mod submit;
mod table;
mod trait_lookup;

pub use backends::Backends;
pub use completion::Completion;
pub use id::OpId;
pub use in_flight::Orphan;
pub use options::{BackendKind, Explanation, ForcedBy, Options, ParseBackendError, SqPoll};
pub use stats::QueueStats;
pub use table::{Abandoned, Table};

use crate::backend::Wait;
use crate::error::{PushError, Reason};
use crate::op::Operation;
use crate::slots::{Key, SlotState};
use crate::sys::{BorrowedFd, RawFd, libc};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// A queue of operations and their completions, with one owner. It may move between threads (unless
/// built with [`Options::single_issuer`]), but one thread uses it at a time.
///
/// Made by [`Options::build`]. It has no runtime of its own: it makes progress when it is called.
/// Operations that wait for another one (the rest of a chain, operations behind a barrier) are
/// submitted by [`reap`](Self::reap).
///
/// ```
/// use ringway_core::{Options, op};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut queue = Options::new().build()?;
/// let id = queue.push(op::timeout(std::time::Duration::from_secs(60)))?;
/// queue.cancel(id);
/// let done = queue.reap(1)?.next().unwrap();
/// assert!(done.result.unwrap_err().is_cancelled());
/// # Ok(()) }
/// ```
///
/// Dropping the queue cancels all operations in flight and waits for them, up to
/// [`Options::close_wait`]. Operations that have not ended by then are leaked, never freed, since
/// the kernel may still touch their memory.
///
/// Dropped in a forked child, the queue closes the descriptors that the child has inherited from
/// it, and files that only its operations keep open. It does not wait, and the parent's operations
/// go on. Memory of operations in flight is leaked.
pub struct Queue {
    table: Table,
    backends: Backends,
    /// The operations of the chain that is being pushed.
    batch: Vec<Operation>,
    ids: Vec<OpId>,
}

impl Queue {
    fn new(table: Table, backends: Backends) -> Self {
        Self { table, backends, batch: Vec::new(), ids: Vec::new() }
    }

    /// Takes an operation. It does not submit it yet, and never blocks.
    ///
    /// Errors: the queue is full ([`PushError::is_full`]) or closed, the operation is invalid, or
    /// this process is a forked child. The error returns the operation; nothing was submitted.
    // Inlined into the caller together with the function that makes the operation, so that the
    // operation is made in its slot.
    #[inline(always)]
    pub fn push(&mut self, operation: Operation) -> Result<OpId, PushError> {
        match self.table.insert(operation, ()) {
            Ok(id) => {
                self.table.start(id);
                Ok(id)
            }
            Err((reason, operation)) => Err(PushError::new(reason, vec![operation])),
        }
    }

    /// Takes a chain of operations, in which each starts when the one before it has succeeded.
    /// Returns the id of the first.
    ///
    /// When an operation of the chain fails, or transfers less than requested, all that follow it
    /// fail with ECANCELED; after [`Operation::continue_on_error`] the next one starts anyway.
    /// Cancelling one operation ends the chain there. The chain is linked in the kernel where
    /// possible; otherwise [`reap`](Self::reap) starts each member when it is due.
    ///
    /// A barrier ([`Operation::drain`]) anywhere in the chain makes its first operation a barrier:
    /// the chain waits for all operations pushed before it, and operations pushed after it wait for
    /// the first operation of the chain, not for all of it.
    ///
    /// Errors: as for [`push`](Self::push); either all operations are taken or none. EINVAL for an
    /// empty chain, and for a chain that is longer than the queue, since it would never fit.
    pub fn push_chain(
        &mut self,
        chain: impl IntoIterator<Item = Operation>,
    ) -> Result<OpId, PushError> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.extend(chain);
        let refused = match batch.len() {
            0 => Some(Reason::Invalid("the chain is empty")),
            count => batch.iter().find_map(|one| self.table.rejection(one, count)),
        };
        if let Some(reason) = refused {
            return Err(PushError::new(reason, batch));
        }
        self.ids.clear();
        self.ids
            .extend(batch.drain(..).filter_map(|operation| self.table.insert(operation, ()).ok()));
        self.batch = batch;
        self.table.start_chain(&self.ids);
        // `rejection` has checked that all of them fit.
        self.ids.first().copied().ok_or_else(|| PushError::new(Reason::Full, Vec::new()))
    }

    /// The next operation of the chain; `None` for the last one, and when this one has ended.
    pub fn next_in_chain(&self, id: OpId) -> Option<OpId> {
        self.table.next_in_chain(id)
    }

    /// Submits the pushed operations: with one system call for any number of them on uring and
    /// kaio. Does not wait.
    ///
    /// Returns the number of completions that can be reaped without waiting. Errors are those of
    /// the whole backend (EEXIST: the thread is not the single issuer; ECHILD: a forked child); no
    /// operation is lost by them.
    pub fn submit(&mut self) -> io::Result<usize> {
        self.advance(0, None, false)?;
        self.signal_ready();
        Ok(self.table.ready)
    }

    /// Submits the pushed operations, waits until at least `at_least` completions are there, and
    /// returns all of them.
    ///
    /// With 0 it does not wait (except, from Linux 6.18 on, for a worker of the kernel: up to 60
    /// ms, if this thread submits to the queue for the first time and another queue was closed
    /// within a second). It never waits for more operations than are in flight, so with none
    /// in flight it returns at once. Completions come in no particular order except that of chains
    /// and barriers. Completions that the caller does not take from the iterator stay for the next
    /// call. A signal does not end the wait, unless the queue is
    /// [`interruptible`](Options::interruptible).
    ///
    /// Errors: as for [`submit`](Self::submit).
    #[inline]
    pub fn reap(&mut self, at_least: usize) -> io::Result<Completions<'_>> {
        self.advance(at_least, None, self.backends.options.is_interruptible())?;
        Ok(Completions { queue: self })
    }

    /// As [`reap`](Self::reap), but returns at `deadline` at the latest, with the completions that
    /// are there by then, perhaps none. (With [`Options::iopoll`], when a transfer completes.)
    pub fn reap_until(
        &mut self,
        at_least: usize,
        deadline: Instant,
    ) -> io::Result<Completions<'_>> {
        self.advance(at_least, Some(deadline), self.backends.options.is_interruptible())?;
        Ok(Completions { queue: self })
    }

    /// Submits the pushed operations, waits until at least `at_least` completions with matching
    /// user data are there, and passes all matching ones to `take`. The others stay for the next
    /// reap, in their order.
    ///
    /// For a caller that waits for its own operations on a queue that it shares. It never waits for
    /// more matching operations than are in flight. A signal does not end the wait.
    ///
    /// Errors: as for [`submit`](Self::submit).
    pub fn reap_matching(
        &mut self,
        at_least: usize,
        mut is_one: impl FnMut(u64) -> bool,
        mut take: impl FnMut(Completion),
    ) -> io::Result<()> {
        // What has completed is the parent's, too.
        if !self.table.owner.is_current() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        let mut missing = at_least.saturating_sub(self.deliver_matching(&mut is_one, &mut take));
        loop {
            if missing > 0 {
                missing = missing.min(self.count_matching(&mut is_one));
            }
            // The completions that are there now do not match. `missing` more of them include the
            // matching ones or others that came first.
            let others = self.table.ready;
            self.advance(others + missing, None, false)?;
            let progressed = self.table.ready > others;
            missing = missing.saturating_sub(self.deliver_matching(&mut is_one, &mut take));
            if missing == 0 || !progressed {
                self.signal_ready();
                return Ok(());
            }
        }
    }

    /// Delivers the matching completions that are there; returns how many.
    fn deliver_matching(
        &mut self,
        is_one: &mut impl FnMut(u64) -> bool,
        take: &mut impl FnMut(Completion),
    ) -> usize {
        let table = &mut self.table;
        let mut delivered = 0;
        // (`ready` may be less than the entries in `done`: some may be of abandoned operations.)
        for _ in 0..table.ready {
            // (It leaves the list only after `is_one`, which may panic.)
            let Some(id) = table.first_done() else { break };
            let user_data = table.slots.get(id.0).map(|flight| flight.operation.user_data);
            let matches = user_data.is_none_or(&mut *is_one);
            table.done.pop_front();
            if !matches {
                table.done.push_back(id.0);
            } else if let Some(completion) = table.take(id) {
                delivered += 1;
                take(completion);
            }
        }
        delivered
    }

    /// Counts the matching operations that are neither done nor abandoned.
    fn count_matching(&self, is_one: &mut impl FnMut(u64) -> bool) -> usize {
        let slots = &self.table.slots;
        let unfinished = |key: &Key| slots.state(*key) != Some(SlotState::Done);
        let flights = slots.keys().filter(unfinished).filter_map(|key| slots.get(key));
        flights.filter(|flight| !flight.abandoned && is_one(flight.operation.user_data)).count()
    }

    /// Submits, waits for `want` completions, and processes the events of the backends. If
    /// `interruptible`, a signal ends the wait.
    fn advance(
        &mut self,
        want: usize,
        until: Option<Instant>,
        interruptible: bool,
    ) -> io::Result<()> {
        let (table, backends) = (&mut self.table, &mut self.backends);
        if !table.owner.is_current() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        if table.closed && table.slots.in_flight() == table.ready {
            // All results are known. The backend has nothing to add, and this thread may not be
            // allowed to enter it.
            return Ok(());
        }
        let want = want.min(table.slots.in_flight() - table.abandoned);
        loop {
            table.submit_pending(backends);
            let missing = want.saturating_sub(table.ready);
            // Wait for several completions at once only if no completion can cause another
            // submission: the others may depend on it. (A job that a backend does not support ends
            // the wait.)
            let next = table.held + table.staged.len() + table.pending.len() + table.resubmittable;
            let wait_for = if next == 0 { missing } else { missing.min(1) };
            let entered = backends.enter(wait_for, until);
            let progressed = table.process_events(backends);
            table.clear();
            let wait = entered?;
            let enough = table.ready >= want;
            // If the backend is full and the caller does not wait, the pending operations stay
            // pending.
            if enough && !backends.has_cancels && (table.pending.is_empty() || !progressed) {
                return Ok(());
            }
            if !progressed && backends.in_flight() == 0 && table.pending.is_empty() {
                return Ok(());
            }
            if until.is_some_and(|until| Instant::now() >= until)
                || interruptible && wait == Wait::Interrupted
            {
                return self.submit_rest();
            }
        }
    }

    /// Passes to the kernel what the results have left to do, as far as the backends take it: the
    /// owner may not call again for long.
    fn submit_rest(&mut self) -> io::Result<()> {
        let (table, backends) = (&mut self.table, &mut self.backends);
        while backends.has_unsubmitted_cancels() || !table.pending.is_empty() {
            table.submit_pending(backends);
            backends.submit()?;
            let progressed = table.process_events(backends);
            table.clear();
            if !progressed {
                break;
            }
        }
        Ok(())
    }

    /// Makes the polled descriptor readable for completions that no backend has signalled. A forked
    /// child must not: the descriptor is its parent's, and a ring's memory is not there.
    fn signal_ready(&mut self) {
        if self.backends.polled && self.table.ready > 0 && self.table.owner.is_current() {
            self.backends.main.wake();
        }
    }

    /// A descriptor that is readable when there may be completions to reap, for `poll(2)` and its
    /// like.
    ///
    /// From the first call on, no wakeup is lost; spurious ones are possible. When it is readable,
    /// [`reap`](Self::reap) with 0 until that returns nothing, then poll again.
    ///
    /// Errors: EOPNOTSUPP for a ring that polls for completions ([`Options::iopoll`]); EMFILE.
    pub fn poll_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.backends.poll_fd()?;
        self.signal_ready();
        self.backends.poll_fd()
    }

    /// Requests that an operation be cancelled. Returns true if it is in flight and its result is
    /// not known yet.
    ///
    /// The operation completes in any case: with ECANCELED, or with its result if it could not be
    /// stopped any more (a transfer that the device has started). Does not block; cancelling a
    /// submitted operation takes effect with the next submit or reap.
    pub fn cancel(&mut self, id: OpId) -> bool {
        let known = self.table.cancel(&mut self.backends, id);
        self.table.clear();
        if known {
            self.signal_ready();
        }
        known
    }

    /// Requests that all operations in flight be cancelled. Returns their number.
    pub fn cancel_all(&mut self) -> usize {
        let count = self.table.cancel_all(&mut self.backends);
        self.table.clear();
        self.signal_ready();
        count
    }

    /// Abandons an operation: cancels it if that is still possible, and delivers no completion.
    /// What it owns is dropped when the kernel has finished with it, and a file that it opens is
    /// closed. Returns false if no such operation is in flight.
    ///
    /// Its slot is free only after that.
    pub fn abandon(&mut self, id: OpId) -> bool {
        if !self.table.owner.is_current() {
            return false;
        }
        let abandoned = self.table.abandon(id);
        if matches!(abandoned, Some(Abandoned::InFlight)) {
            self.table.cancel(&mut self.backends, id);
        }
        self.table.clear();
        abandoned.is_some()
    }

    /// Stops taking operations, cancels all in flight and waits for them, up to `wait`. Returns the
    /// number that is still in flight then: the device has them.
    ///
    /// Completions, including those of the cancelled operations, can be reaped as before. Calling
    /// close again waits again.
    ///
    /// A ring that cannot be entered, because it has failed or because another thread is its
    /// [`single_issuer`](Options::single_issuer), is closed immediately. The kernel then cancels
    /// the operations in flight on it, and their completions are lost: each fails with ECANCELED,
    /// whether or not it took place, once the kernel has finished with it.
    ///
    /// Errors: ECHILD in a forked child.
    pub fn close(&mut self, wait: Duration) -> io::Result<usize> {
        let left = self.table.close(&mut self.backends, wait);
        self.table.clear();
        self.signal_ready();
        left
    }

    /// Closes the queue after an error of the whole backend, as [`close`](Self::close) does, and
    /// completes every operation. Those that the kernel or a thread still has after `wait` fail
    /// with EIO, whether or not they take place. Their memory may still be touched, so it is
    /// leaked, and their completions return no buffer. From then on [`explain`](Self::explain)
    /// includes `error`.
    ///
    /// Errors: ECHILD in a forked child.
    pub fn fail(&mut self, error: &io::Error, wait: Duration) -> io::Result<()> {
        self.table.close(&mut self.backends, wait)?;
        self.table.fail(&mut self.backends, error);
        self.table.clear();
        Ok(())
    }

    /// Operations that were pushed and whose completions were not delivered yet.
    pub fn in_flight(&self) -> usize {
        self.table.in_flight()
    }

    /// True after [`close`](Self::close).
    pub fn is_closed(&self) -> bool {
        self.table.closed
    }

    /// How many operations can be pushed before the queue is full.
    pub fn free_slots(&self) -> usize {
        self.table.slots.free_slots()
    }

    /// The backend and what forced it, its available features, and those that were refused, with
    /// reasons.
    pub fn explain(&self) -> Explanation {
        self.backends.explain()
    }

    /// The backend.
    pub fn backend(&self) -> BackendKind {
        self.backends.backend()
    }

    /// Statistics since the queue was built.
    pub fn stats(&self) -> QueueStats {
        self.backends.complete_stats(self.table.stats())
    }

    /// The ring, for another queue to attach to.
    fn ring_fd(&self) -> Option<RawFd> {
        self.backends.ring_fd
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let wait = self.backends.options.drop_wait();
        self.table.shut_down(&mut self.backends, wait);
    }
}

/// The completions that are there, each delivered once. From [`Queue::reap`].
pub struct Completions<'a> {
    queue: &'a mut Queue,
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        let table = &mut self.queue.table;
        let id = table.next_done()?;
        table.take(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.queue.table.ready, Some(self.queue.table.ready))
    }
}

impl ExactSizeIterator for Completions<'_> {}

impl Drop for Completions<'_> {
    fn drop(&mut self) {
        self.queue.signal_ready();
    }
}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completions({})", self.queue.table.ready)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("backend", &self.backends.backend())
            .field("counts", &self.table.counts())
            .finish()
    }
}
