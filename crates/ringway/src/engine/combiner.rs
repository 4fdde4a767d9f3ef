//! The combining lock: one thread at a time, the combiner, submits and reaps for all threads. No
//! thread waits for the lock: a thread that finds it taken sets a flag, and the combiner makes
//! another round, up to a bound. Then it delegates the next round to the engine's thread or to the
//! program.

use super::sync::{AtomicBool, AtomicU8, Ordering};

const UNLOCKED: u8 = 0;
const LOCKED: u8 = 1;
/// Locked, and another thread has requested a round.
const REQUESTED: u8 = 2;

/// Lets one thread at a time do work that many request. No request is lost: work requested while it
/// is being done is done again.
#[derive(Debug)]
pub(crate) struct Combiner {
    state: AtomicU8,
    /// A thread has reached its bound and delegated the next round to whoever waits on the
    /// notifier.
    pub(super) delegated: AtomicBool,
}

/// The right to make rounds. Dropping it without `unlock`, as a panic does, lets the next thread in
/// and loses a flag that was set.
#[derive(Debug)]
pub(crate) struct CombinerGuard<'a>(Option<&'a Combiner>);

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
