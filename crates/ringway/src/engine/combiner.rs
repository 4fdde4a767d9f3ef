//! The combining lock: one thread at a time, the combiner, submits and reaps for all threads. No
//! thread waits for the lock: a thread that finds it taken sets a flag, and the combiner makes
//! another round, up to a bound. Then it delegates the next round to the engine's thread or to the
//! program.

use super::reactor::Executor;
use super::shard::{OwnOperation, RoundOutput, Shard, State, wake_all};
use super::sync::{AtomicBool, AtomicU8, MutexGuard, Ordering};

const UNLOCKED: u8 = 0;
const LOCKED: u8 = 1;
/// Locked, and another thread has requested a round.
const REQUESTED: u8 = 2;

/// The most rounds that one thread makes in a row, and the most operations that it submits in them.
const MAX_ROUNDS: usize = if cfg!(ringway_loom) { 2 } else { 16 };
const MAX_OPERATIONS: usize = if cfg!(ringway_loom) { 2 } else { 256 };

/// Lets one thread at a time do work that many request. No request is lost: work requested while it
/// is being done is done again.
#[derive(Debug)]
pub(crate) struct Combiner {
    state: AtomicU8,
    /// A thread has reached its bound and delegated the next round to whoever waits on the
    /// notifier.
    delegated: AtomicBool,
}

/// The right to make rounds. Dropping it without `unlock`, as a panic does, lets the next thread in
/// and loses a flag that was set.
#[derive(Debug)]
pub(crate) struct CombinerGuard<'a>(Option<&'a Combiner>);

impl Shard {
    /// Makes rounds until no other is requested, or until this thread reaches its bound. `state` is
    /// the state's guard if the caller already has it. With `by_task` a future is being polled,
    /// which leaves it to others to wake many futures. Returns the number of futures woken.
    pub(super) fn combine<'a>(
        &'a self,
        mut guard: CombinerGuard<'a>,
        mut state: Option<MutexGuard<'a, State>>,
        executor: Executor,
        mut own: Option<OwnOperation<'_>>,
        by_task: bool,
    ) -> usize {
        let mut output = RoundOutput::default();
        let mut woken = 0;
        for number in 1.. {
            self.round(state.take(), executor, &mut own, by_task, &mut output);
            let left = guard.unlock();
            woken += output.wakers.len();
            wake_all(&mut output.wakers);
            let again = match left {
                Ok(()) if !output.more => break,
                // Completions have freed capacity or filled a batch.
                Ok(()) => self.combiner.try_lock(),
                // Another thread has requested a round.
                Err(guard) => Some(guard),
            };
            let may_continue =
                number < MAX_ROUNDS && output.submitted < MAX_OPERATIONS && !output.hand_over;
            match again {
                None => break,
                Some(again) if may_continue => guard = again,
                Some(again) => {
                    // Unlock first: otherwise a flag set by a thread that runs the delegated round
                    // before the lock is free would be lost.
                    drop(again);
                    self.delegate(output.hand_over);
                    break;
                }
            }
        }
        // Orphans are dropped last, while other threads may combine: dropping them may free memory,
        // run the program's code or close a file.
        output.drop_orphans();
        woken
    }

    /// Leaves the next round to others: to the futures that this thread has woken, if nothing else
    /// is pending; otherwise, and at the latest, to the engine's thread or the program. Call it
    /// with the combining lock free, so that any thread that comes later can take it.
    fn delegate(&self, hand_over: bool) {
        if !hand_over && self.state().woken_will_submit() {
            return self.notifier.notify_if_asleep();
        }
        // A swap instead of a store: loom does not order a store and the swap in `run_delegated`.
        self.combiner.delegated.swap(true, Ordering::AcqRel);
        self.notifier.notify();
    }

    /// Makes the rounds that another thread has delegated, if any.
    pub(crate) fn run_delegated(&self) {
        if self.combiner.delegated.swap(false, Ordering::AcqRel) {
            self.drive(Executor::Other);
        }
    }
}

impl Combiner {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(UNLOCKED), delegated: AtomicBool::new(false) }
    }

    /// Takes the lock; the caller must [`unlock`](CombinerGuard::unlock) it. If it is taken,
    /// requests another round of its holder and returns `None`.
    pub(crate) fn try_lock(&self) -> Option<CombinerGuard<'_>> {
        // Acquire and release: the holder sees what a requester did before, and the other way
        // round.
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            Some(if state == UNLOCKED { LOCKED } else { REQUESTED })
        });
        // Not `then_some`: a guard that is built and not returned would be dropped, and would let a
        // second thread in.
        (before == Ok(UNLOCKED)).then(|| CombinerGuard(Some(self)))
    }
}

impl CombinerGuard<'_> {
    /// Unlocks; or returns the guard, if another round was requested meanwhile.
    pub(crate) fn unlock(mut self) -> Result<(), Self> {
        let Some(combiner) = self.0.take() else { return Ok(()) };
        if combiner
            .state
            .compare_exchange(LOCKED, UNLOCKED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return Ok(());
        }
        // Requests from here on set the flag again.
        combiner.state.swap(LOCKED, Ordering::AcqRel);
        Err(Self(Some(combiner)))
    }
}

impl Drop for CombinerGuard<'_> {
    fn drop(&mut self) {
        if let Some(combiner) = self.0 {
            combiner.state.swap(UNLOCKED, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, not(ringway_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_request_while_locked_is_seen_at_unlock() {
        let combiner = Combiner::new();
        let guard = combiner.try_lock().expect("the lock is free");
        assert!(combiner.try_lock().is_none());
        assert!(combiner.try_lock().is_none(), "a refused thread must not unlock");
        let guard = guard.unlock().expect_err("another round was requested");
        assert!(guard.unlock().is_ok());
        assert!(combiner.try_lock().is_some(), "a dropped guard unlocks");
        assert!(combiner.try_lock().is_some());
    }
}
