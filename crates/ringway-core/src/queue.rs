//! The queue: push operations, submit them, reap completions.
//!
//! It owns every operation from its push on, decides whose turn it is (chains, barriers), cuts long transfers and
//! continues short ones, tries again what was interrupted, and hands the results out. How an operation reaches
//! the kernel is the backend's business; beside a backend that cannot carry all of them stand threads.

mod answer;
mod carry;
mod completion;
mod end;
mod fixed;
mod flight;
mod options;
mod turn;

pub use completion::Completion;
pub use options::{BackendKind, Explanation, Options, SqPoll};

use crate::backend::threads::Threads;
use crate::backend::{Backend, Event};
use crate::error::{PushError, Reason};
use crate::fork::Home;
use crate::op::{CURSOR, Fault, Held, Operation};
use crate::slots::{Counts, Key, Slots, State};
use carry::Asks;
use fixed::Fixed;
use flight::Flight;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Instant;

/// Names an operation in flight; never used for another one while it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(Key);

impl OpId {
    /// A number for it, more than 0 and less than 2^56: for interfaces to other languages.
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.generation.get()) << 24 | u64::from(self.0.index)
    }

    /// The number of its place in the queue, less than [`Options::in_flight`]: for a table beside the queue. No other operation
    /// has it before this one's completion has been handed out.
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
/// Made by [`Options::build`]. It has no thread and no runtime of its own: things move when it is called, and what waits for
/// something else (the rest of a chain, what stands behind a barrier) is submitted by [`reap`](Self::reap).
///
/// Dropping it cancels what is in flight and waits for it, at most for [`Options::close_wait`]; what will not end is
/// leaked, never freed, since the kernel may still touch it.
pub struct Queue {
    main: ManuallyDrop<Box<dyn Backend>>,
    /// Threads beside a backend that does not carry everything; started at the first need.
    side: ManuallyDrop<Option<Threads>>,
    slots: ManuallyDrop<Slots<Flight>>,
    /// Operations whose turn it is.
    pending: VecDeque<Key>,
    /// Operations behind a barrier, and barriers, in the order they were pushed.
    staged: VecDeque<Key>,
    done: VecDeque<Key>,
    /// Of `done`, those that somebody waits for.
    ready: usize,
    /// Operations that nobody waits for and that are not over.
    abandoned: usize,
    /// Operations of which something is queued or carried, or that such a one's chain will reach.
    active: usize,
    /// Operations held behind another one of their chain.
    held: usize,
    /// A barrier has been let through and is not done.
    draining: bool,
    /// Jobs that the main backend has not answered.
    carried: usize,
    events: Vec<Event>,
    batch: Vec<Operation>,
    fixed: Fixed,
    asks: Asks,
    options: Options,
    explanation: Explanation,
    ring_fd: Option<RawFd>,
    home: Home,
    closed: bool,
    /// The main backend has been ended: nothing is in its place.
    ended: bool,
    /// Something was answered that the kernel may still have.
    leaks: bool,
    /// The descriptor has been asked for.
    polled: bool,
    /// The main backend waits for the threads too.
    watching: bool,
    retries: u64,
    continued: u64,
    to_threads: u64,
    late: u64,
}

/// What the queue has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Operations: pushed = delivered + orphaned + in flight, at every moment.
    pub counts: Counts,
    /// System calls made for I/O, by the threads too.
    pub system_calls: u64,
    /// Answers that were not shown but led to another try (EINTR, EAGAIN, ECANCELED that nobody asked for).
    pub retries: u64,
    /// Short transfers that were continued.
    pub continued: u64,
    /// Operations that went to the threads because the backend could not carry them.
    pub to_threads: u64,
    /// Answers for operations that were over.
    pub late: u64,
}

impl Queue {
    fn assemble(main: Box<dyn Backend>, ring_fd: Option<RawFd>, options: &Options, explanation: Explanation) -> Self {
        Self {
            main: ManuallyDrop::new(main),
            side: ManuallyDrop::new(None),
            slots: ManuallyDrop::new(Slots::new(options.cap())),
            pending: VecDeque::new(),
            staged: VecDeque::new(),
            done: VecDeque::new(),
            ready: 0,
            abandoned: 0,
            active: 0,
            held: 0,
            draining: false,
            carried: 0,
            events: Vec::new(),
            batch: Vec::new(),
            fixed: Fixed::default(),
            asks: Asks::for_backend(&explanation),
            options: options.clone(),
            explanation,
            ring_fd,
            home: Home::here(),
            closed: false,
            ended: false,
            leaks: false,
            polled: false,
            watching: false,
            retries: 0,
            continued: 0,
            to_threads: 0,
            late: 0,
        }
    }

    /// Takes an operation in. Nothing is submitted yet, and nothing blocks.
    ///
    /// Errors, all before anything is submitted, the operation coming back with them: the queue is full
    /// ([`PushError::is_full`]) or closed, the operation is invalid, or this is a forked child.
    // Inlined with the function that makes the operation, so that it is made in its slot: copying it there from the caller's
    // frame costs as much as all the rest of a push.
    #[inline(always)]
    pub fn push(&mut self, operation: Operation) -> Result<OpId, PushError> {
        match self.refuse(operation.fault, operation.raw.offset(), 1) {
            Some(reason) => Err(PushError::new(reason, vec![operation])),
            None => {
                let (key, flight) = self.slots.insert().expect("there is room");
                flight.operation = ManuallyDrop::new(operation);
                self.pushed(key);
                Ok(OpId(key))
            }
        }
    }

    /// An operation is in its slot, and may have its turn.
    fn pushed(&mut self, key: Key) {
        let Some(flight) = self.slots.get_mut(key) else { return };
        flight.begin();
        if self.explanation.backend == BackendKind::Null
            && let Held::Spare(spare) = &mut flight.operation.held
        {
            spare.zero(); // Nobody reads into it.
        }
        if flight.operation.drain || self.draining || !self.staged.is_empty() {
            self.stage(key);
        } else {
            self.release(key);
        }
    }

    /// Takes in operations of which each begins when the one before it has succeeded, and gives the first one's id.
    ///
    /// When one fails, or transfers less than it was to, what follows answers ECANCELED; behind
    /// [`Operation::always`] it begins all the same. Cancelling one ends the chain there: all that follows answers
    /// ECANCELED. Where the kernel has links
    /// they are used; elsewhere, and where a chain has members that it cannot take whole, [`reap`](Self::reap) moves it along.
    ///
    /// A barrier among them ([`Operation::drain`]) makes one of the first: the chain waits for everything pushed before it, and
    /// what is pushed after it waits for the chain's first operation, not for all of it.
    ///
    /// Errors: as for [`push`](Self::push), for all of them together: none is taken. EINVAL for a chain of none, and for one
    /// of more operations than may be in flight, for which there never is room.
    pub fn push_chain(&mut self, chain: impl IntoIterator<Item = Operation>) -> Result<OpId, PushError> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.extend(chain);
        let refused = match batch.len() {
            0 => Some(Reason::Invalid("a chain of no operations")),
            count => batch.iter().find_map(|one| self.refuse(one.fault, one.raw.offset(), count)),
        };
        if let Some(reason) = refused {
            return Err(PushError::new(reason, batch));
        }
        let drain = batch.iter().any(|operation| operation.drain);
        let mut first: Option<Key> = None;
        let mut last: Option<Key> = None;
        for mut operation in batch.drain(..) {
            operation.drain = drain && first.is_none();
            let (key, flight) = self.slots.insert().expect("there is room for all of them");
            flight.operation = ManuallyDrop::new(operation);
            flight.begin();
            match last.and_then(|last| self.slots.get_mut(last)) {
                Some(before) => {
                    before.next = Some(key);
                    before.plain = false;
                    self.held += 1;
                }
                None => first = Some(key),
            }
            last = Some(key);
        }
        if let Some(flight) = last.and_then(|last| self.slots.get_mut(last)) {
            flight.plain = false;
        }
        self.batch = batch;
        match first {
            Some(first) => {
                self.stage(first);
                Ok(OpId(first))
            }
            None => Err(PushError::new(Reason::Full, Vec::new())),
        }
    }

    /// The operation behind this one in its chain; `None` for the last, and when this one is over.
    pub fn behind(&self, id: OpId) -> Option<OpId> {
        self.slots.get(id.0).and_then(|flight| flight.next).map(OpId)
    }

    /// Why an operation cannot be taken in, if it cannot.
    fn refuse(&self, fault: Option<Fault>, offset: Option<u64>, room: usize) -> Option<Reason> {
        if !self.home.is_here() {
            return Some(Reason::Forked);
        }
        if self.closed {
            return Some(Reason::Closed);
        }
        if let Some(fault) = fault {
            return Some(Reason::Invalid(fault.text()));
        }
        if offset.is_some_and(|offset| offset != CURSOR && offset > i64::MAX as u64) {
            return Some(Reason::Invalid("an offset over i64::MAX"));
        }
        if room > self.slots.capacity() {
            return Some(Reason::Invalid("a chain longer than the queue: more than may ever be in flight"));
        }
        (self.slots.room() < room).then_some(Reason::Full)
    }

    /// Submits what was pushed: one system call for any number on uring and kaio. Does not wait.
    ///
    /// Gives the number of completions that are there to be reaped without waiting.
    /// Errors: of the backend as a whole (EEXIST: another thread than the single issuer; ECHILD: a forked child); nothing is lost by one.
    pub fn submit(&mut self) -> io::Result<usize> {
        self.advance(0, None)?;
        if self.ready > 0 && self.polled {
            self.main.wake();
        }
        Ok(self.ready)
    }

    /// Submits what was pushed, waits until at least `at_least` completions are there, and hands out all that are.
    ///
    /// With 0 it does not wait. It never waits for more than are in flight: with nothing in flight it returns at once.
    /// Completions come in no particular order but that of chains and barriers. What is not taken from the iterator
    /// stays for the next call. A signal does not end the wait.
    ///
    /// Errors: as for [`submit`](Self::submit).
    #[inline]
    pub fn reap(&mut self, at_least: usize) -> io::Result<Completions<'_>> {
        self.advance(at_least, None)?;
        Ok(Completions { queue: self })
    }

    /// As [`reap`](Self::reap), and returns at the latest at `deadline` with what there is, which may be nothing.
    pub fn reap_until(&mut self, at_least: usize, deadline: Instant) -> io::Result<Completions<'_>> {
        self.advance(at_least, Some(deadline))?;
        Ok(Completions { queue: self })
    }

    /// Submits what was pushed, waits until at least `at_least` completions of operations with such user data are there, and gives all
    /// of those that are to `take`. The others stay for the next reap, in their order.
    ///
    /// For a caller that reads some ranges and waits for them on a queue that others use as well. It waits for its own operations
    /// alone, and never for more than are in flight.
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
            // All that is there now is others': so many more are as many of its own, or others' before them.
            let others = self.ready;
            self.advance(others + missing, None)?;
            let moved = self.ready > others;
            missing = missing.saturating_sub(self.deliver_those(&mut is_one, &mut take));
            if missing == 0 || !moved {
                self.announce();
                return Ok(());
            }
        }
    }

    /// Delivers the completions of operations with such user data that are there; how many.
    fn deliver_those(&mut self, is_one: &mut impl FnMut(u64) -> bool, take: &mut impl FnMut(Completion)) -> usize {
        let mut delivered = 0;
        for _ in 0..self.done.len() {
            let Some(key) = self.done.pop_front() else { break };
            if self.slots.get(key).is_some_and(|flight| !is_one(flight.operation.user_data)) {
                self.done.push_back(key);
            } else if let Some(completion) = self.slots.deliver(key, |flight| flight.complete(key)) {
                self.ready -= 1;
                delivered += 1;
                take(completion);
            }
        }
        delivered
    }

    /// Operations with such user data that somebody waits for and that are not done.
    fn count_those(&self, is_one: &mut impl FnMut(u64) -> bool) -> usize {
        let lasts = |key: &Key| self.slots.state(*key) != Some(State::Done);
        let flights = self.slots.keys().filter(lasts).filter_map(|key| self.slots.get(key));
        flights.filter(|flight| !flight.abandoned && is_one(flight.operation.user_data)).count()
    }

    /// Submits, waits for `want` completions, and sorts out what has been answered.
    fn advance(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        if !self.home.is_here() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        if self.closed && self.slots.in_flight() == self.ready {
            return Ok(()); // Every result is known: the backend, which this thread perhaps may not enter, has nothing to add.
        }
        let want = want.min(self.slots.in_flight() - self.abandoned);
        loop {
            self.carry();
            let missing = want.saturating_sub(self.ready);
            // Operations whose turn has not come may be what is waited for, and only an answer brings it.
            let waiting = self.held + self.staged.len() + self.pending.len();
            let patient = missing.saturating_sub(waiting).max(usize::from(missing > 0));
            let entered = self.enter(patient, until);
            let moved = !self.events.is_empty();
            self.sort_out();
            entered?;
            let served = self.ready >= want;
            // With no room in the backend for what is pending, and nobody waiting, it stays pending.
            if served && (self.pending.is_empty() || !moved) {
                return Ok(());
            }
            if !moved && self.carried + self.beside() == 0 && self.pending.is_empty() {
                return Ok(());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
        }
    }

    /// The descriptor that is readable when there may be something to reap, for `poll(2)` and its like.
    ///
    /// From the first call on, it is kept right: never is something there to be reaped and the descriptor not readable. The contrary happens:
    /// it may be readable for nothing. So: when it is, [`reap`](Self::reap) with 0 until that gives nothing, then wait for it again.
    ///
    /// Errors: EOPNOTSUPP for a ring that polls for completions ([`Options::iopoll`]); EMFILE.
    pub fn poll_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        if !self.home.is_here() {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        let fd = self.main.poll_fd()?;
        // The ring watches the threads' own descriptor. Later there might be none left for it, and then nothing would
        // tell of what the threads have done.
        if self.explanation.backend == BackendKind::Uring
            && let Some(side) = self.side()
        {
            side.eventfd()?;
        }
        self.polled = true;
        self.echo();
        self.announce();
        // SAFETY: the descriptor belongs to the backend, which lives at least as long as this borrow of the queue.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Operations that were pushed and whose completions have not been handed out.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// True after [`close`](Self::close).
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// How many more operations there is room for.
    pub fn room(&self) -> usize {
        self.slots.room()
    }

    /// Which backend it has, what that was granted, and what was refused and why.
    pub fn explain(&self) -> Explanation {
        let mut explanation = self.explanation.clone();
        explanation.refusals.extend_from_slice(self.main.refusals());
        explanation.refusals.extend_from_slice(self.side.as_ref().map_or(&[], |side| side.refusals()));
        explanation
    }

    /// The backend.
    pub fn backend(&self) -> BackendKind {
        self.explanation.backend
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        Stats {
            counts: self.slots.counts(),
            // A lock of the threads may have been taken when this process was forked, and then is for ever.
            system_calls: match self.home.is_here() {
                true => self.main.system_calls() + self.side.as_ref().map_or(0, |side| side.system_calls()),
                false => 0,
            },
            retries: self.retries,
            continued: self.continued,
            to_threads: self.to_threads,
            late: self.late,
        }
    }

    /// The ring, for another queue to attach to.
    fn ring_fd(&self) -> Option<RawFd> {
        self.ring_fd
    }
}

/// Completions that are there; each comes once. From [`Queue::reap`].
pub struct Completions<'a> {
    queue: &'a mut Queue,
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        loop {
            let key = self.queue.done.pop_front()?;
            // One that was abandoned after it was done is gone.
            if let Some(completion) = self.queue.slots.deliver(key, |flight| flight.complete(key)) {
                self.queue.ready -= 1;
                return Some(completion);
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.queue.ready, Some(self.queue.ready))
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
        write!(f, "Completions({})", self.queue.ready)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("backend", &self.explanation.backend)
            .field("counts", &self.slots.counts())
            .finish()
    }
}
