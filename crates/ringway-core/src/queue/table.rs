//! The half of a queue that knows its operations: a slot for each, from its making until its result
//! is taken. No system call is made here but by the [`Backends`] that are handed in.
//!
//! A [`Queue`](super::Queue) is a table and its backends with one owner. An engine that many
//! threads share keeps the table under a lock that is held for moments, and the backends with
//! whichever thread enters the kernel.

use super::carry::Asks;
use super::in_flight::InFlight;
use super::{BackendKind, Backends, Completion, OpId};
use crate::error::Reason;
use crate::fork::Home;
use crate::op::{CURRENT_POSITION, Operation};
use crate::slots::{Counts, Key, Slots, State};
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// The operations of a queue, each with an attachment of its owner's: who waits for it, say.
///
/// An operation is [inserted](Self::insert), [started](Self::start), submitted by
/// [`carry`](Self::carry) and [`Backends::submit`], done by [`sort_out`](Self::sort_out), and
/// [taken](Self::take); it stays in its slot all the while.
///
/// Dropped by itself, everything in it is leaked, since the kernel may still touch it;
/// [`shut_down`](Self::shut_down) ends both halves.
pub struct Table<T = ()> {
    /// Freed only when nothing is in flight: see [`shut_down`](Self::shut_down).
    pub(super) slots: ManuallyDrop<Slots<InFlight<T>>>,
    /// Operations that have not been started.
    pub(super) new: usize,
    /// Operations whose turn it is.
    pub(super) pending: VecDeque<Key>,
    /// Operations behind a barrier, and barriers, in the order they were started.
    pub(super) staged: VecDeque<Key>,
    pub(super) done: VecDeque<Key>,
    /// Operations that are done, and that somebody waits for.
    pub(super) ready: usize,
    /// Operations that nobody waits for and that are not over.
    pub(super) abandoned: usize,
    /// Abandoned operations that are over.
    pub(super) orphans: Vec<Orphan<T>>,
    /// Descriptors that nobody has any more.
    pub(super) closing: Vec<OwnedFd>,
    /// Operations of which something is queued or submitted, or that such a one's chain will reach.
    pub(super) active: usize,
    /// Operations that a backend has been given and that [may go on](InFlight::may_go_on).
    pub(super) going_on: usize,
    /// Operations held behind another one of their chain.
    pub(super) held: usize,
    /// A barrier has been let through and is not done.
    pub(super) draining: bool,
    pub(super) asks: Asks,
    pub(super) backend: BackendKind,
    pub(super) home: Home,
    pub(super) closed: bool,
    /// Something was answered that the kernel may still have.
    pub(super) leaks: bool,
    /// It has been shut down, with nothing left in flight.
    pub(super) is_over: bool,
    pub(super) retries: u64,
    pub(super) continued: u64,
    pub(super) to_threads: u64,
    pub(super) late: u64,
    /// Which backends it belongs to.
    pair: u64,
}

/// An abandoned operation that is over, with what it owned.
#[derive(Debug)]
pub struct Orphan<T> {
    /// What was attached to it.
    pub attachment: T,
    /// Its completion; dropped, it closes a file that was opened.
    pub completion: Completion,
}

/// What became of an operation that was given up.
#[derive(Debug)]
pub enum GivenUp<T> {
    /// It had not been started.
    New(Operation, T),
    /// It was over.
    Done(Completion, T),
    /// It is in flight, and will be among the [orphans](Table::orphans); to [cancel](Table::cancel)
    /// it may end it sooner.
    InFlight,
}

impl<T: Default> Table<T> {
    pub(super) fn new(backends: &Backends, cap: u32) -> Self {
        Self {
            slots: ManuallyDrop::new(Slots::new(cap)),
            new: 0,
            pending: VecDeque::new(),
            staged: VecDeque::new(),
            done: VecDeque::new(),
            ready: 0,
            abandoned: 0,
            orphans: Vec::new(),
            closing: Vec::new(),
            active: 0,
            going_on: 0,
            held: 0,
            draining: false,
            asks: Asks::for_backend(&backends.explanation),
            backend: backends.kind(),
            home: Home::here(),
            closed: false,
            leaks: false,
            is_over: false,
            retries: 0,
            continued: 0,
            to_threads: 0,
            late: 0,
            pair: backends.pair,
        }
    }

    /// A number for a table and its backends.
    pub(super) fn new_pair() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// # Panics
    ///
    /// With the backends of another table: its slots might be freed while these had their
    /// operations.
    #[inline]
    pub(super) fn assert_pair(&self, backends: &Backends) {
        assert!(self.pair == backends.pair, "these are another table's backends");
    }

    /// Puts an operation into a slot, to be [started](Self::start).
    ///
    /// Errors: why it is not taken, with the operation.
    // Inlined with the function that makes the operation, so that it is made in its slot: copying
    // it there from the caller's frame costs as much as all the rest.
    #[inline(always)]
    #[allow(clippy::result_large_err)] // The operation comes back whole, without an allocation.
    pub fn insert(
        &mut self,
        operation: Operation,
        attachment: T,
    ) -> Result<OpId, (Reason, Operation)> {
        if let Some(reason) = self.refuse(&operation, 1) {
            return Err((reason, operation));
        }
        match self.slots.insert() {
            Some((key, flight)) => {
                flight.operation = ManuallyDrop::new(operation);
                flight.attachment = attachment;
                #[cfg(feature = "testing")]
                if self.backend == BackendKind::Null
                    && let crate::op::Held::Spare(spare) = &mut flight.operation.held
                {
                    spare.zero(); // Nobody reads into it.
                }
                self.new += 1;
                Ok(OpId(key))
            }
            None => Err((Reason::Full, operation)),
        }
    }

    /// Why this operation, and as many others as `room` needs with it, cannot be taken in, if so.
    pub fn refuse(&self, operation: &Operation, room: usize) -> Option<Reason> {
        if !self.home.is_here() {
            return Some(Reason::Forked);
        }
        if self.closed {
            return Some(Reason::Closed);
        }
        if let Some(fault) = operation.fault {
            return Some(Reason::Invalid(fault.text()));
        }
        if operation
            .raw
            .offset()
            .is_some_and(|offset| offset != CURRENT_POSITION && offset > i64::MAX as u64)
        {
            return Some(Reason::Invalid("an offset over i64::MAX"));
        }
        if room > self.slots.capacity() {
            return Some(Reason::Invalid(
                "a chain longer than the queue: more than may ever be in flight",
            ));
        }
        (self.slots.room() < room).then_some(Reason::Full)
    }

    /// An operation's turn has come: it is submitted with the next [`carry`](Self::carry), unless
    /// it waits behind a barrier. In a table that is closed it answers ESHUTDOWN.
    #[inline]
    pub fn start(&mut self, id: OpId) {
        let key = id.0;
        let Some((state @ State::New, flight)) = self.slots.entry(key) else { return };
        *state = State::Held;
        self.new -= 1;
        flight.begin();
        if self.closed {
            return self.finish(key, -i64::from(libc::ESHUTDOWN));
        }
        if flight.operation.drain || self.draining || !self.staged.is_empty() {
            self.stage(key);
        } else {
            self.release(key);
        }
    }

    /// Starts operations of which each begins when the one before it has succeeded. A barrier among
    /// them makes one of the first.
    pub fn start_chain(&mut self, ids: &[OpId]) {
        let Some(first) = ids.first().map(|id| id.0) else { return };
        let (mut last, mut drain) = (None, false);
        for key in ids.iter().map(|id| id.0) {
            let Some((state @ State::New, flight)) = self.slots.entry(key) else { continue };
            *state = State::Held;
            self.new -= 1;
            flight.begin();
            flight.plain = false;
            drain |= std::mem::take(&mut flight.operation.drain);
            if let Some(before) = last.replace(key).and_then(|last| self.slots.get_mut(last)) {
                before.next = Some(key);
                self.held += 1;
            }
        }
        let Some(flight) = self.slots.get_mut(first) else { return };
        flight.operation.drain = drain;
        match self.closed {
            true => self.finish(first, -i64::from(libc::ESHUTDOWN)),
            false => self.stage(first),
        }
    }

    /// What is attached to an operation that has not been taken.
    #[inline]
    pub fn attachment(&mut self, id: OpId) -> Option<&mut T> {
        self.slots.get_mut(id.0).map(|flight| &mut flight.attachment)
    }

    /// An operation that is not over.
    pub fn operation(&self, id: OpId) -> Option<&Operation> {
        self.slots.get(id.0).map(|flight| &*flight.operation)
    }

    /// Something waits to be submitted, or for room in the backend.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The next operation that is done and that nobody has been told of.
    #[inline]
    pub fn next_done(&mut self) -> Option<OpId> {
        loop {
            let key = self.done.pop_front()?;
            // One that was given up after it was done is gone.
            if self.slots.state(key) == Some(State::Done) {
                return Some(OpId(key));
            }
        }
    }

    /// The completion of an operation that is done.
    #[inline]
    pub fn take(&mut self, id: OpId) -> Option<Completion> {
        if self.slots.state(id.0)? != State::Done {
            return None;
        }
        self.ready -= 1;
        self.slots.deliver(id.0, |flight| flight.complete(id.0))
    }

    /// It has not been started; `None` when it is over.
    pub fn is_new(&self, id: OpId) -> Option<bool> {
        self.slots.state(id.0).map(|state| state == State::New)
    }

    /// An operation's owner does not wait for it any more.
    pub fn give_up(&mut self, id: OpId) -> Option<GivenUp<T>> {
        let key = id.0;
        let in_table = self.slots.state(key)?;
        if in_table == State::New {
            self.new -= 1;
            let taken = self.slots.orphan(key, InFlight::withdraw)?;
            return Some(GivenUp::New(taken.0, taken.1));
        }
        if in_table == State::Done {
            self.ready -= 1;
            let orphan = self.slots.orphan(key, |flight| flight.orphan(key))?;
            return Some(GivenUp::Done(orphan.completion, orphan.attachment));
        }
        let flight = self.slots.get_mut(key)?;
        // The short way is for those that somebody waits for.
        flight.make_intricate(in_table == State::Carried);
        if !std::mem::replace(&mut flight.abandoned, true) {
            self.abandoned += 1;
        }
        Some(GivenUp::InFlight)
    }

    /// Abandoned operations that are over: to be dropped where no lock is held, since buffers may
    /// be the program's own.
    pub fn orphans(&mut self) -> &mut Vec<Orphan<T>> {
        &mut self.orphans
    }

    /// Descriptors of files that operations which are over were the last to hold: to be dropped
    /// where no lock is held, since to close one may take long.
    pub fn closing(&mut self) -> &mut Vec<OwnedFd> {
        &mut self.closing
    }

    /// Drops what is over and nobody waits for.
    pub(super) fn clear(&mut self) {
        self.orphans.clear();
        self.closing.clear();
    }

    /// Operations that were inserted, and what became of them.
    pub fn counts(&self) -> Counts {
        self.slots.counts()
    }

    /// Operations that were inserted and are neither taken nor given up and over.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// The operation behind this one in its chain; `None` for the last, and when this one is over.
    pub(super) fn behind(&self, id: OpId) -> Option<OpId> {
        self.slots.get(id.0).and_then(|flight| flight.next).map(OpId)
    }

    /// What has been done so far; `system_calls` is the backends' to tell.
    pub fn stats(&self) -> super::QueueStats {
        super::QueueStats {
            counts: self.slots.counts(),
            system_calls: 0,
            retries: self.retries,
            continued: self.continued,
            to_threads: self.to_threads,
            late: self.late,
        }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        if self.is_over {
            // SAFETY: this is its last use. `shut_down` has found nothing in flight, so the kernel
            // has nothing of it.
            unsafe { ManuallyDrop::drop(&mut self.slots) }
        }
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("backend", &self.backend)
            .field("ready", &self.ready)
            .finish_non_exhaustive()
    }
}
