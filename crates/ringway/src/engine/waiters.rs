//! What is known of each future that waits: its operations, its waker, its completions. Pure data.
//!
//! A waiter lives from the first poll of its future until all of its operations have been answered, whatever became of the
//! future. So there is always somebody to receive an answer, and every operation is counted once: pushed = delivered +
//! orphaned + in flight.

use ringway_core::{Completion, Counts, OpId, Operation, Reason};
use smallvec::SmallVec;
use std::task::Waker;
use std::time::Instant;

/// Names a waiter; never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

/// Mostly one: it lies in the waiter itself, and another place in memory need not be looked up for it.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// What became of one operation.
pub(crate) type Outcome = Result<Completion, Box<Refused>>;

/// An operation that was not taken, with the buffer that it owned.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    pub(crate) operation: Operation,
}

/// One future that waits.
#[derive(Debug)]
struct Waiter {
    generation: u32,
    /// When its operations were pushed, if that is recorded.
    begun: Option<Instant>,
    waker: Option<Waker>,
    /// Operations whose turn has not come, the next one last.
    waiting: Few<Operation>,
    /// Those that the queue has, or has answered: where to cancel.
    carried: Few<OpId>,
    /// What became of those that are over, each with its place among the waiter's operations.
    done: Few<(u32, Outcome)>,
    /// Operations in all.
    total: u32,
    /// Operations that are not over.
    missing: u32,
    /// The future has gone.
    orphan: bool,
}

impl Waiter {
    fn new() -> Self {
        Self {
            generation: 0,
            begun: None,
            waker: None,
            waiting: Few::new(),
            carried: Few::new(),
            done: Few::new(),
            total: 0,
            missing: 0,
            orphan: false,
        }
    }
}

/// Of how many pushes one's time is recorded: looking at the clock for each would be seen in the figures.
const SAMPLE: u64 = 8;

/// A list that has grown beyond this is given back with its waiter.
const KEPT: usize = 64;

/// All futures that wait on one shard.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiters: Vec<Waiter>,
    free: Vec<u32>,
    counts: Counts,
}

/// An operation, taken out to be given to the queue.
pub(crate) struct Next {
    pub(crate) operation: Operation,
    /// Its place among the waiter's operations.
    pub(crate) place: u32,
    /// The waiter has no more.
    pub(crate) last: bool,
}

impl Waiters {
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Operations that are not over, or whose results have not been looked at.
    pub(crate) fn in_flight(&self) -> u64 {
        self.counts.in_flight
    }

    /// A new one, with its operations in `fill`'s order; each operation's turn comes in that order.
    pub(crate) fn insert(&mut self, waker: &Waker, fill: impl FnOnce(&mut Few<Operation>)) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.waiters.push(Waiter::new());
            self.waiters.len() as u32 - 1
        });
        let waiter = &mut self.waiters[index as usize];
        fill(&mut waiter.waiting);
        waiter.waiting.reverse();
        waiter.total = waiter.waiting.len() as u32;
        waiter.missing = waiter.total;
        waiter.waker = Some(waker.clone());
        waiter.begun = self.counts.pushed.is_multiple_of(SAMPLE).then(Instant::now);
        self.counts.pushed += u64::from(waiter.total);
        self.counts.in_flight += u64::from(waiter.total);
        Key { index, generation: waiter.generation }
    }

    fn get(&mut self, key: Key) -> Option<&mut Waiter> {
        self.waiters.get_mut(key.index as usize).filter(|waiter| waiter.generation == key.generation)
    }

    /// The next of a waiter's operations, to be given to the queue. `None` when the future has gone.
    pub(crate) fn next(&mut self, key: Key) -> Option<Next> {
        let waiter = self.get(key)?;
        let place = waiter.total - waiter.waiting.len() as u32;
        let operation = waiter.waiting.pop()?;
        Some(Next { operation, place, last: waiter.waiting.is_empty() })
    }

    /// Operations of a waiter whose turn has not come.
    pub(crate) fn waiting(&self, key: Key) -> usize {
        let waiter = self.waiters.get(key.index as usize).filter(|waiter| waiter.generation == key.generation);
        waiter.map_or(0, |waiter| waiter.waiting.len())
    }

    /// The queue has taken an operation.
    pub(crate) fn carried(&mut self, index: u32, id: OpId) {
        self.waiters[index as usize].carried.push(id);
    }

    /// When an operation in flight was pushed, if that is recorded.
    pub(crate) fn begun(&self, index: u32) -> Option<Instant> {
        self.waiters[index as usize].begun
    }

    /// An operation is over. Whom to wake: the future, once it has all.
    pub(crate) fn answer(&mut self, index: u32, place: u32, outcome: Outcome) -> Answered {
        let waiter = &mut self.waiters[index as usize];
        waiter.missing = waiter.missing.saturating_sub(1);
        if waiter.orphan {
            self.counts.orphaned += 1;
            self.counts.in_flight -= 1;
            if waiter.missing == 0 {
                self.release(index);
            }
            return Answered::Orphaned(outcome);
        }
        waiter.done.push((place, outcome));
        match waiter.missing {
            0 => Answered::Complete(waiter.waker.take()),
            _ => Answered::Partly,
        }
    }

    /// The one result of a waiter with one operation, if it is there. If not, `waker` is kept, and the one before it returned: it may
    /// own anything, and is to be dropped where no lock is held.
    pub(crate) fn take_one(&mut self, key: Key, waker: &Waker) -> Result<Outcome, Option<Waker>> {
        self.complete(key, waker)?;
        let (_, outcome) = self.waiters[key.index as usize].done.pop().ok_or(None)?;
        self.delivered(key.index, 1);
        Ok(outcome)
    }

    /// All results of a waiter, in the order of its operations, if all are there. If not, as for [`take_one`](Self::take_one).
    pub(crate) fn take_all(&mut self, key: Key, waker: &Waker) -> Result<Vec<Outcome>, Option<Waker>> {
        self.complete(key, waker)?;
        let mut done = std::mem::take(&mut self.waiters[key.index as usize].done);
        done.sort_unstable_by_key(|(place, _)| *place);
        self.delivered(key.index, done.len() as u64);
        Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
    }

    /// Whether all of it is over; else the waker is kept, and the one before it returned.
    fn complete(&mut self, key: Key, waker: &Waker) -> Result<(), Option<Waker>> {
        let waiter = self.get(key).ok_or(None)?;
        match &mut waiter.waker {
            _ if waiter.missing == 0 => Ok(()),
            Some(kept) if kept.will_wake(waker) => Err(None),
            kept => Err(kept.replace(waker.clone())),
        }
    }

    fn delivered(&mut self, index: u32, count: u64) {
        self.counts.delivered += count;
        self.counts.in_flight -= count;
        self.release(index);
    }

    /// The future has gone. What is to be cancelled is added to `cancels`; what is returned is to be dropped where no lock is held.
    pub(crate) fn give_up(&mut self, key: Key, cancels: &mut Vec<OpId>) -> Option<GivenUp> {
        let waiter = self.get(key)?;
        waiter.orphan = true;
        let given_up = GivenUp {
            _operations: std::mem::take(&mut waiter.waiting),
            _outcomes: std::mem::take(&mut waiter.done),
            _waker: waiter.waker.take(),
        };
        // Of what the queue has, what has not been answered; cancelling what is over does nothing.
        cancels.extend(waiter.carried.drain(..));
        let over = given_up._operations.len() + given_up._outcomes.len();
        waiter.missing -= given_up._operations.len() as u32;
        let none_left = waiter.missing == 0;
        self.counts.orphaned += over as u64;
        self.counts.in_flight -= over as u64;
        if none_left {
            self.release(key.index);
        }
        Some(given_up)
    }

    fn release(&mut self, index: u32) {
        let waiter = &mut self.waiters[index as usize];
        waiter.generation = waiter.generation.wrapping_add(1);
        waiter.waker = None;
        waiter.carried.clear();
        waiter.orphan = false;
        if waiter.carried.capacity() + waiter.waiting.capacity() + waiter.done.capacity() > KEPT {
            waiter.carried = Few::new();
            waiter.waiting = Few::new();
            waiter.done = Few::new();
        }
        self.free.push(index);
    }
}

impl Key {
    /// Where a waiter of which operations are in flight is found: it lives until they are over.
    pub(crate) fn index(self) -> u32 {
        self.index
    }
}

/// What an answer means for its waiter.
pub(crate) enum Answered {
    /// It has more coming.
    Partly,
    /// It has all: wake it.
    Complete(Option<Waker>),
    /// Nobody waits for it: to be dropped where no lock is held.
    Orphaned(Outcome),
}

/// What a future leaves behind, to be dropped where no lock is held.
pub(crate) struct GivenUp {
    _operations: Few<Operation>,
    _outcomes: Few<(u32, Outcome)>,
    _waker: Option<Waker>,
}

#[cfg(test)]
mod tests;
