//! The part of a queue that holds its operations: a slot for each, from insertion until its result
//! is taken. It makes no system calls except through the [`Backends`] that are passed in.
//!
//! A [`Queue`](super::Queue) is a table and its backends with one owner. An engine that many
//! threads share keeps the table under a lock that is held briefly, and the backends with the
//! thread that enters the kernel.

use super::backends::Backends;
use super::completion::Completion;
use super::id::OpId;
use super::in_flight::{InFlight, Orphan};
use super::options::BackendKind;
use super::passthrough::Passthrough;
use super::stats::QueueStats;
use super::trait_lookup::TraitLookup;
use crate::error::{Error, Reason};
use crate::fork::OwnerProcess;
use crate::op::{CURRENT_POSITION, InvalidOperation, Operation};
use crate::slots::{Counts, Key, SlotState, Slots};
use crate::sys::{OwnedFd, libc};
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

/// The operations of a queue, each with an attachment of its owner, for example a waker.
///
/// An operation is [inserted](Self::insert), [started](Self::start), submitted by
/// [`submit_pending`](Self::submit_pending) and [`Backends::submit`], completed by
/// [`process_events`](Self::process_events), and [taken](Self::take). It stays in the same slot
/// throughout.
///
/// [`shut_down`](Self::shut_down) frees both parts. Dropped before that, the table leaks its
/// operations, since the kernel may still touch their memory.
pub struct Table<T = ()> {
    /// Freed only if nothing is in flight: see [`shut_down`](Self::shut_down).
    pub(super) slots: ManuallyDrop<Slots<InFlight<T>>>,
    /// Operations that were not started.
    pub(super) new: usize,
    /// Operations to submit.
    pub(super) pending: VecDeque<Key>,
    /// Barriers, and operations behind them, in the order they were started.
    pub(super) staged: VecDeque<Key>,
    pub(super) done: VecDeque<Key>,
    /// Operations that are done and not abandoned.
    pub(super) ready: usize,
    /// Operations that are abandoned and not done.
    pub(super) abandoned: usize,
    /// Abandoned operations that have ended.
    pub(super) orphans: Vec<Orphan<T>>,
    /// Descriptors that were last held by an operation that has ended.
    pub(super) fds_to_close: Vec<OwnedFd>,
    /// Operations that are pending or submitted, and those behind them that were submitted linked.
    pub(super) active: usize,
    /// Operations that were submitted and [may be submitted again](InFlight::may_resubmit).
    pub(super) resubmittable: usize,
    /// Operations that wait for another one of their chain.
    pub(super) held: usize,
    /// A barrier was released and is not done.
    pub(super) draining: bool,
    pub(super) trait_lookup: TraitLookup,
    pub(super) passthrough: Passthrough,
    pub(super) backend: BackendKind,
    pub(super) owner: OwnerProcess,
    pub(super) closed: bool,
    /// An operation was completed that the kernel may still have.
    pub(super) has_leaked: bool,
    /// Shut down, with nothing in flight.
    pub(super) is_shut_down: bool,
    pub(super) retries: u64,
    pub(super) continued: u64,
    pub(super) to_threads: u64,
    pub(super) late: u64,
    /// Identifies the backends that it belongs to.
    pair: u64,
}

/// What became of an operation that was abandoned.
#[derive(Debug)]
pub enum Abandoned<T> {
    /// It had not been started.
    New(Operation, T),
    /// It had completed.
    Done(Completion, T),
    /// It is in flight, and will be among the [orphans](Table::orphans).
    /// [Cancelling](Table::cancel) it may end it sooner.
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
            fds_to_close: Vec::new(),
            active: 0,
            resubmittable: 0,
            held: 0,
            draining: false,
            trait_lookup: TraitLookup::for_backend(&backends.explanation),
            passthrough: Passthrough::of(&backends.explanation),
            backend: backends.backend(),
            owner: OwnerProcess::current(),
            closed: false,
            has_leaked: false,
            is_shut_down: false,
            retries: 0,
            continued: 0,
            to_threads: 0,
            late: 0,
            pair: backends.pair,
        }
    }

    /// A number that identifies a table and its backends.
    pub(super) fn new_pair() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// # Panics
    ///
    /// With the backends of another table: slots might be freed while those backends still have
    /// their operations.
    #[inline]
    pub(super) fn assert_paired(&self, backends: &Backends) {
        assert!(self.pair == backends.pair, "these are another table's backends");
    }

    /// Puts an operation into a slot, to be [started](Self::start).
    ///
    /// Errors: why it was rejected, with the operation.
    // Inlined into the caller together with the function that makes the operation, so that it is
    // made in its slot: copying it from the caller's frame costs as much as everything else here.
    #[inline(always)]
    #[allow(clippy::result_large_err)] // The operation is returned whole, without an allocation.
    pub fn insert(
        &mut self,
        operation: Operation,
        attachment: T,
    ) -> Result<OpId, (Reason, Operation)> {
        if let Some(reason) = self.rejection(&operation, 1) {
            return Err((reason, operation));
        }
        match self.slots.insert() {
            Some((key, flight)) => {
                flight.operation = ManuallyDrop::new(operation);
                self.new += 1;
                flight.attach(self.backend, attachment);
                Ok(OpId(key))
            }
            None => Err((Reason::Full, operation)),
        }
    }

    /// As [`insert`](Self::insert), but an operation that was rejected stays where it is. A caller
    /// that has it in place saves copies.
    #[inline(always)]
    pub fn insert_from(
        &mut self,
        operation: &mut Option<Operation>,
        attachment: T,
    ) -> Result<OpId, Reason> {
        let Some(own) = operation else { return Err(Reason::Invalid("there is no operation")) };
        if let Some(reason) = self.rejection(own, 1) {
            return Err(reason);
        }
        let (key, flight) = self.slots.insert().ok_or(Reason::Full)?;
        if let Some(own) = operation.take() {
            flight.operation = ManuallyDrop::new(own);
        }
        self.new += 1;
        flight.attach(self.backend, attachment);
        Ok(OpId(key))
    }

    /// Why `count` operations, of which this is one, would be rejected now; `None` if they would
    /// not.
    pub fn rejection(&self, operation: &Operation, count: usize) -> Option<Reason> {
        if !self.owner.is_current() {
            return Some(Reason::Forked);
        }
        if self.closed {
            return Some(Reason::Closed);
        }
        if let Some(invalid) = operation.invalid {
            return Some(match invalid {
                InvalidOperation::Untorn(problem) => Reason::Untorn(problem),
                invalid => Reason::Invalid(invalid.text()),
            });
        }
        if operation
            .raw
            .offset()
            .is_some_and(|offset| offset != CURRENT_POSITION && offset > i64::MAX as u64)
        {
            return Some(Reason::Invalid(
                "the offset is greater than 9223372036854775807, the largest offset of a file",
            ));
        }
        if operation.misses_pages() {
            return Some(Reason::Invalid(
                "the driver of this device (zram) transfers whole pages only: align the memory of \
                 direct I/O to 4096 bytes",
            ));
        }
        if count > self.slots.capacity() {
            return Some(Reason::Invalid(
                "the chain is longer than the queue: split it, or raise in_flight",
            ));
        }
        (self.slots.free_slots() < count).then_some(Reason::Full)
    }

    /// Starts an operation: the next [`submit_pending`](Self::submit_pending) submits it, unless it
    /// waits behind a barrier. In a closed table it fails with ESHUTDOWN.
    #[inline]
    pub fn start(&mut self, id: OpId) {
        let key = id.0;
        let Some((state @ SlotState::New, flight)) = self.slots.entry(key) else { return };
        *state = SlotState::Held;
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

    /// Starts a chain of operations, in which each starts when the one before it has succeeded. A
    /// barrier anywhere in it makes the first one a barrier.
    pub fn start_chain(&mut self, ids: &[OpId]) {
        let Some(first) = ids.first().map(|id| id.0) else { return };
        let (mut last, mut drain) = (None, false);
        for key in ids.iter().map(|id| id.0) {
            let Some((state @ SlotState::New, flight)) = self.slots.entry(key) else { continue };
            *state = SlotState::Held;
            self.new -= 1;
            flight.begin();
            flight.fast_path = false;
            drain |= std::mem::take(&mut flight.operation.drain);
            if let Some(before) = last.replace(key).and_then(|last| self.slots.get_mut(last)) {
                before.next = Some(key);
                self.held += 1;
            }
        }
        let Some(flight) = self.slots.get_mut(first) else { return };
        flight.operation.drain = drain;
        if self.closed {
            self.finish(first, -i64::from(libc::ESHUTDOWN))
        } else {
            self.stage(first)
        }
    }

    /// What is attached to an operation, until its result is taken.
    #[inline]
    pub fn attachment(&mut self, id: OpId) -> Option<&mut T> {
        self.slots.get_mut(id.0).map(|flight| &mut flight.attachment)
    }

    /// The operation with this id, until its result is taken.
    pub fn operation(&self, id: OpId) -> Option<&Operation> {
        self.slots.get(id.0).map(|flight| &*flight.operation)
    }

    /// Makes another thread submit this transfer than the one that enters the kernel, which would
    /// wait for the device if its queue is full: an io-wq worker, or a thread. For an operation
    /// that was not started; nothing happens otherwise.
    pub fn submit_by_worker(&mut self, id: OpId) {
        if let Some((SlotState::New, flight)) = self.slots.entry(id.0) {
            flight.operation.by_worker = true;
        }
    }

    /// True if operations wait to be submitted, or for capacity in the backend.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The next operation that is done, each returned once.
    #[inline]
    pub fn next_done(&mut self) -> Option<OpId> {
        loop {
            let key = self.done.pop_front()?;
            // An operation that was abandoned after it was done is gone.
            if self.slots.state(key) == Some(SlotState::Done) {
                return Some(OpId(key));
            }
        }
    }

    /// The operation that [`next_done`](Self::next_done) returns next.
    pub(super) fn first_done(&mut self) -> Option<OpId> {
        let id = self.next_done()?;
        self.done.push_front(id.0);
        Some(id)
    }

    /// Whether an operation that is done has succeeded, or its error. `None` if it is not done.
    pub fn result(&self, id: OpId) -> Option<Result<(), Error>> {
        if self.slots.state(id.0)? != SlotState::Done {
            return None;
        }
        self.slots.get(id.0).map(|flight| flight.error().map_or(Ok(()), Err))
    }

    /// Takes the completion of an operation that is done.
    #[inline]
    pub fn take(&mut self, id: OpId) -> Option<Completion> {
        if self.slots.state(id.0)? != SlotState::Done {
            return None;
        }
        self.ready -= 1;
        self.slots.deliver(id.0, |flight| flight.complete(id.0))
    }

    /// True if it was not started; `None` if it has ended.
    pub fn is_new(&self, id: OpId) -> Option<bool> {
        self.slots.state(id.0).map(|state| state == SlotState::New)
    }

    /// Abandons an operation: its owner does not wait for it any more.
    pub fn abandon(&mut self, id: OpId) -> Option<Abandoned<T>> {
        let key = id.0;
        let in_table = self.slots.state(key)?;
        if in_table == SlotState::New {
            self.new -= 1;
            let taken = self.slots.orphan(key, InFlight::withdraw)?;
            return Some(Abandoned::New(taken.0, taken.1));
        }
        if in_table == SlotState::Done {
            self.ready -= 1;
            let orphan = self.slots.orphan(key, |flight| flight.orphan(key))?;
            return Some(Abandoned::Done(orphan.completion, orphan.attachment));
        }
        let flight = self.slots.get_mut(key)?;
        // The fast path does not handle abandoned operations.
        flight.leave_fast_path(in_table == SlotState::Submitted);
        if !std::mem::replace(&mut flight.abandoned, true) {
            self.abandoned += 1;
        }
        Some(Abandoned::InFlight)
    }

    /// Abandoned operations that have ended. Drop them without holding a lock, since their buffers
    /// may be the program's own types.
    pub fn orphans(&mut self) -> &mut Vec<Orphan<T>> {
        &mut self.orphans
    }

    /// Descriptors that were last held by operations that have ended. Drop them without holding a
    /// lock, since closing one may take long.
    pub fn fds_to_close(&mut self) -> &mut Vec<OwnedFd> {
        &mut self.fds_to_close
    }

    /// Drops abandoned operations that have ended, and closes their files.
    pub(super) fn clear(&mut self) {
        self.orphans.clear();
        self.fds_to_close.clear();
    }

    /// Counts of operations; "pushed" means inserted.
    pub fn counts(&self) -> Counts {
        self.slots.counts()
    }

    /// Operations that were inserted and neither taken nor, if abandoned, ended.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// The next operation of the chain; `None` for the last one, and when this one has ended.
    pub(super) fn next_in_chain(&self, id: OpId) -> Option<OpId> {
        self.slots.get(id.0).and_then(|flight| flight.next).map(OpId)
    }

    /// Statistics so far, without those of the backends: see [`Backends::complete_stats`].
    pub fn stats(&self) -> QueueStats {
        QueueStats {
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
        if self.is_shut_down {
            // SAFETY: the slots are not used after this. `shut_down` found nothing in flight, so
            // the kernel has no address in them.
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
