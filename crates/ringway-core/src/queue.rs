//! The queue: push operations, submit them, reap completions.
//!
//! It owns every operation from its push on, decides whose turn it is (chains, barriers), cuts long
//! transfers and continues short ones, tries again what was interrupted, and hands the results out.
//! How an operation reaches the kernel is the backend's business; beside a backend that cannot
//! carry all of them stand threads.

mod answer;
mod backends;
mod carry;
#[cfg(any(test, debug_assertions))]
mod check;
mod completion;
mod end;
mod fixed;
mod in_flight;
#[cfg(test)]
mod life;
mod options;
mod table;
mod turn;

pub use backends::Backends;
pub use completion::Completion;
pub use options::{BackendKind, Explanation, Options, SqPoll};
pub use table::{GivenUp, Orphan, Table};

use crate::backend::Backend;
use crate::error::{PushError, Reason};
use crate::op::Operation;
use crate::slots::{Counts, Key, State};
use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// Names an operation in flight; never used for another one while it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(Key);

impl OpId {
    /// A number for it, more than 0 and less than 2^56: for interfaces to other languages.
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.generation.get()) << 24 | u64::from(self.0.index)
    }

    /// The number of its place in the queue, less than [`Options::in_flight`]: for a table beside
    /// the queue. No other operation has it before this one's completion has been handed out.
    pub fn slot(self) -> u32 {
        self.0.index
    }

    /// The id that the number stands for; `None` for one that stands for none.
    pub fn from_bits(bits: u64) -> Option<Self> {
        let generation = NonZeroU32::new(u32::try_from(bits >> 24).ok()?)?;
        Some(Self(Key { index: (bits & 0xff_ffff) as u32, generation }))
    }
}

/// A completion queue with one owner. It may move between threads (not with
/// [`Options::single_issuer`]), but is used by one at a time.
///
/// Made by [`Options::build`]. It has no thread and no runtime of its own: things move when it is
/// called, and what waits for something else (the rest of a chain, what stands behind a barrier) is
/// submitted by [`reap`](Self::reap).
///
/// Dropping it cancels what is in flight and waits for it, at most for [`Options::close_wait`];
/// what will not end is leaked, never freed, since the kernel may still touch it.
pub struct Queue {
    table: Table,
    backends: Backends,
    /// Of the chain that is being pushed.
    batch: Vec<Operation>,
    ids: Vec<OpId>,
}

/// What the queue has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Operations: pushed = delivered + orphaned + in flight, at every moment.
    pub counts: Counts,
    /// System calls made for I/O, by the threads too.
    pub system_calls: u64,
    /// Answers that were not shown but led to another try (EINTR, EAGAIN, ECANCELED that nobody
    /// asked for).
    pub retries: u64,
    /// Short transfers that were continued.
    pub continued: u64,
    /// Operations that went to the threads because the backend could not carry them.
    pub to_threads: u64,
    /// Answers for operations that were over.
    pub late: u64,
}

impl Queue {
    fn assemble(
        main: Box<dyn Backend>,
        ring_fd: Option<RawFd>,
        options: &Options,
        explanation: Explanation,
    ) -> Self {
        let (table, backends) = halves(main, ring_fd, options, explanation, options.cap());
        Self { table, backends, batch: Vec::new(), ids: Vec::new() }
    }

    /// Takes an operation in. Nothing is submitted yet, and nothing blocks.
    ///
    /// Errors, all before anything is submitted, the operation coming back with them: the queue is
    /// full ([`PushError::is_full`]) or closed, the operation is invalid, or this is a forked
    /// child.
    // Inlined with the function that makes the operation, so that it is made in its slot.
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

    /// Takes in operations of which each begins when the one before it has succeeded, and gives the
    /// first one's id.
    ///
    /// When one fails, or transfers less than it was to, what follows answers ECANCELED; behind
    /// [`Operation::always`] it begins all the same. Cancelling one ends the chain there: all that
    /// follows answers ECANCELED. Where the kernel has links they are used; elsewhere, and where a
    /// chain has members that it cannot take whole, [`reap`](Self::reap) moves it along.
    ///
    /// A barrier among them ([`Operation::drain`]) makes one of the first: the chain waits for
    /// everything pushed before it, and what is pushed after it waits for the chain's first
    /// operation, not for all of it.
    ///
    /// Errors: as for [`push`](Self::push), for all of them together: none is taken. EINVAL for a
    /// chain of none, and for one of more operations than may be in flight, for which there never
    /// is room.
    pub fn push_chain(
        &mut self,
        chain: impl IntoIterator<Item = Operation>,
    ) -> Result<OpId, PushError> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.extend(chain);
        let refused = match batch.len() {
            0 => Some(Reason::Invalid("a chain of no operations")),
            count => batch.iter().find_map(|one| self.table.refuse(one, count)),
        };
        if let Some(reason) = refused {
            return Err(PushError::new(reason, batch));
        }
        self.ids.clear();
        self.ids
            .extend(batch.drain(..).filter_map(|operation| self.table.insert(operation, ()).ok()));
        self.batch = batch;
        self.table.start_chain(&self.ids);
        // There was room for all of them.
        self.ids.first().copied().ok_or_else(|| PushError::new(Reason::Full, Vec::new()))
    }

    /// The operation behind this one in its chain; `None` for the last, and when this one is over.
    pub fn behind(&self, id: OpId) -> Option<OpId> {
        self.table.behind(id)
    }

    /// Submits what was pushed: one system call for any number on uring and kaio. Does not wait.
    ///
    /// Gives the number of completions that are there to be reaped without waiting. Errors: of the
    /// backend as a whole (EEXIST: another thread than the single issuer; ECHILD: a forked child);
    /// nothing is lost by one.
    pub fn submit(&mut self) -> io::Result<usize> {
        self.advance(0, None)?;
        self.announce();
        Ok(self.table.ready)
    }

    /// Submits what was pushed, waits until at least `at_least` completions are there, and hands
    /// out all that are.
    ///
    /// With 0 it does not wait. It never waits for more than are in flight: with nothing in flight
    /// it returns at once. Completions come in no particular order but that of chains and barriers.
    /// What is not taken from the iterator stays for the next call. A signal does not end the wait.
    ///
    /// Errors: as for [`submit`](Self::submit).
    #[inline]
    pub fn reap(&mut self, at_least: usize) -> io::Result<Completions<'_>> {
        self.advance(at_least, None)?;
        Ok(Completions { queue: self })
    }

    /// As [`reap`](Self::reap), and returns at the latest at `deadline` with what there is, which
    /// may be nothing.
    pub fn reap_until(
        &mut self,
        at_least: usize,
        deadline: Instant,
    ) -> io::Result<Completions<'_>> {
        self.advance(at_least, Some(deadline))?;
        Ok(Completions { queue: self })
    }

    /// Submits what was pushed, waits until at least `at_least` completions of operations with such
    /// user data are there, and gives all of those that are to `take`. The others stay for the next
    /// reap, in their order.
    ///
    /// For a caller that reads some ranges and waits for them on a queue that others use as well.
    /// It waits for its own operations alone, and never for more than are in flight.
    ///
    /// Errors: as for [`submit`](Self::submit).
    pub fn reap_those(
        &mut self,
        at_least: usize,
        mut is_one: impl FnMut(u64) -> bool,
        mut take: impl FnMut(Completion),
    ) -> io::Result<()> {
        let mut missing = at_least.saturating_sub(self.deliver_those(&mut is_one, &mut take));
        loop {
            if missing > 0 {
                missing = missing.min(self.count_those(&mut is_one));
            }
            // All that is there now is others': so many more are as many of its own, or others'
            // before them.
            let others = self.table.ready;
            self.advance(others + missing, None)?;
            let moved = self.table.ready > others;
            missing = missing.saturating_sub(self.deliver_those(&mut is_one, &mut take));
            if missing == 0 || !moved {
                self.announce();
                return Ok(());
            }
        }
    }

    /// Delivers the completions of operations with such user data that are there; how many.
    fn deliver_those(
        &mut self,
        is_one: &mut impl FnMut(u64) -> bool,
        take: &mut impl FnMut(Completion),
    ) -> usize {
        let table = &mut self.table;
        let mut delivered = 0;
        // (Not as many as there are entries: some may be of operations that were given up.)
        for _ in 0..table.ready {
            let Some(id) = table.next_done() else { break };
            if table.slots.get(id.0).is_some_and(|flight| !is_one(flight.operation.user_data)) {
                table.done.push_back(id.0);
            } else if let Some(completion) = table.take(id) {
                delivered += 1;
                take(completion);
            }
        }
        delivered
    }

    /// Operations with such user data that somebody waits for and that are not done.
    fn count_those(&self, is_one: &mut impl FnMut(u64) -> bool) -> usize {
        let slots = &self.table.slots;
        let lasts = |key: &Key| slots.state(*key) != Some(State::Done);
        let flights = slots.keys().filter(lasts).filter_map(|key| slots.get(key));
        flights.filter(|flight| !flight.abandoned && is_one(flight.operation.user_data)).count()
    }

    /// Submits, waits for `want` completions, and sorts out what has been answered.
    fn advance(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        let (table, backends) = (&mut self.table, &mut self.backends);
        if !table.home.is_here() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        if table.closed && table.slots.in_flight() == table.ready {
            return Ok(()); // Every result is known: the backend, which this thread perhaps may not enter, has nothing to add.
        }
        let want = want.min(table.slots.in_flight() - table.abandoned);
        loop {
            table.carry(backends);
            let missing = want.saturating_sub(table.ready);
            // Several are waited for at once only where no answer makes anything else begin: the
            // others may be waiting for just that.
            let next = table.held + table.staged.len() + table.pending.len() + table.going_on;
            let patient = if next == 0 { missing } else { missing.min(1) };
            let entered = backends.enter(patient, until);
            let moved = table.sort_out(backends);
            table.clear();
            entered?;
            let served = table.ready >= want;
            // With no room in the backend for what is pending, and nobody waiting, it stays
            // pending.
            if served && (table.pending.is_empty() || !moved) {
                return Ok(());
            }
            if !moved && backends.carried + backends.beside() == 0 && table.pending.is_empty() {
                return Ok(());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
        }
    }

    /// Something is there to be reaped that no backend knows of: whoever polls the descriptor must
    /// learn of it.
    fn announce(&mut self) {
        if self.backends.polled && self.table.ready > 0 {
            self.backends.main.wake();
        }
    }

    /// The descriptor that is readable when there may be something to reap, for `poll(2)` and its
    /// like.
    ///
    /// From the first call on, it is kept right: never is something there to be reaped and the
    /// descriptor not readable. The contrary happens: it may be readable for nothing. So: when it
    /// is, [`reap`](Self::reap) with 0 until that gives nothing, then wait for it again.
    ///
    /// Errors: EOPNOTSUPP for a ring that polls for completions ([`Options::iopoll`]); EMFILE.
    pub fn poll_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.backends.poll_fd()?;
        self.announce();
        self.backends.poll_fd()
    }

    /// Asks that an operation be cancelled; true if it is in flight and its result not known yet.
    ///
    /// Its completion comes in any case: with ECANCELED, or, when it could not be stopped any more
    /// (a transfer that the device has begun), with its result. Does not block; a cancel of
    /// something submitted takes effect with the next submit or reap.
    pub fn cancel(&mut self, id: OpId) -> bool {
        let known = self.table.cancel(&mut self.backends, id);
        self.table.clear();
        if known {
            self.announce();
        }
        known
    }

    /// Asks that everything in flight be cancelled; how many operations that were.
    pub fn cancel_all(&mut self) -> usize {
        let count = self.table.cancel_all(&mut self.backends);
        self.table.clear();
        self.announce();
        count
    }

    /// Gives an operation up: it is cancelled if that is still possible, its completion is not
    /// handed out, and what it owns is dropped when the kernel is done with it; a file that it
    /// opens is closed. False if there is no such operation in flight.
    ///
    /// Its place in the queue is free again with its completion, not before.
    pub fn abandon(&mut self, id: OpId) -> bool {
        if !self.table.home.is_here() {
            return false;
        }
        let given_up = self.table.give_up(id);
        if matches!(given_up, Some(GivenUp::InFlight)) {
            self.table.cancel(&mut self.backends, id);
        }
        self.table.clear();
        given_up.is_some()
    }

    /// Takes no more operations, cancels everything in flight and waits for it, at most for `wait`.
    /// How many operations are still in flight after that: the device has them.
    ///
    /// Completions, those of the cancelled included, can be reaped as before. Closing again waits
    /// again.
    ///
    /// A ring that cannot be entered, since it has failed or is another thread's by
    /// [`single_issuer`](Options::single_issuer), is closed here and now. The kernel then cancels
    /// what is in flight on it, and its completions are lost: such an operation answers ECANCELED,
    /// whether or not it took place, when the kernel is done with it.
    ///
    /// Errors: ECHILD: a forked child.
    pub fn close(&mut self, wait: Duration) -> io::Result<usize> {
        let left = self.table.close(&mut self.backends, wait);
        self.table.clear();
        self.announce();
        left
    }

    /// Closes the queue after an error of the backend as a whole, as [`close`](Self::close) does,
    /// and answers everything: what the kernel or a thread still has when `wait` is over answers
    /// EIO, whether or not it takes place. Its memory may be touched at any time and is leaked, so
    /// its completion has no buffer. [`explain`](Self::explain) tells of `error` from then on.
    ///
    /// Errors: ECHILD: a forked child.
    pub fn give_up(&mut self, error: &io::Error, wait: Duration) -> io::Result<()> {
        self.table.close(&mut self.backends, wait)?;
        self.table.fail(&mut self.backends, error);
        self.table.clear();
        Ok(())
    }

    /// Operations that were pushed and whose completions have not been handed out.
    pub fn in_flight(&self) -> usize {
        self.table.in_flight()
    }

    /// True after [`close`](Self::close).
    pub fn is_closed(&self) -> bool {
        self.table.closed
    }

    /// How many more operations there is room for.
    pub fn room(&self) -> usize {
        self.table.slots.room()
    }

    /// Which backend it has, what that was granted, and what was refused and why.
    pub fn explain(&self) -> Explanation {
        self.backends.explain()
    }

    /// The backend.
    pub fn backend(&self) -> BackendKind {
        self.backends.kind()
    }

    /// What it has done so far.
    pub fn stats(&self) -> QueueStats {
        QueueStats { system_calls: self.backends.system_calls(), ..self.table.stats() }
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

/// A table for at most `cap` operations, and its backends.
fn halves<T: Default>(
    main: Box<dyn Backend>,
    ring_fd: Option<RawFd>,
    options: &Options,
    explanation: Explanation,
    cap: u32,
) -> (Table<T>, Backends) {
    let backends = Backends::new(main, ring_fd, options, explanation, Table::<T>::new_pair());
    (Table::new(&backends, cap), backends)
}

/// Completions that are there; each comes once. From [`Queue::reap`].
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
        self.queue.announce();
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
            .field("backend", &self.backends.kind())
            .field("counts", &self.table.counts())
            .finish()
    }
}
