//! The combining lock: one thread at a time, the combiner, submits and reaps for all. Nobody waits
//! for it: a thread that finds it taken sets a flag, and the combiner goes round again, up to a
//! bound. Then it leaves the next round to the engine's thread or the program.

use super::reactor::Executor;
use super::shard::{Own, RoundOutput, Shard, State, wake_all};
use super::sync::{AtomicBool, AtomicU8, MutexGuard, Ordering};

const UNLOCKED: u8 = 0;
const LOCKED: u8 = 1;
/// Somebody came while it was taken.
const REQUESTED: u8 = 2;

/// The most rounds that one thread makes in a row, and the most operations that it submits in them.
const MAX_ROUNDS: usize = if cfg!(ringway_loom) { 2 } else { 16 };
const MAX_OPERATIONS: usize = if cfg!(ringway_loom) { 2 } else { 256 };

/// Lets one thread at a time do some work that all ask for, so that no request is lost: work asked
/// for while it is being done is done again.
#[derive(Debug)]
pub(crate) struct Combiner {
    state: AtomicU8,
    /// A thread has made the most rounds, and left the next to whoever hears the notifier.
    delegated: AtomicBool,
}

/// The right to do the work. Dropped rather than left, as by a panic, it lets the next thread in; a
/// flag that was set is lost then.
#[derive(Debug)]
pub(crate) struct CombinerGuard<'a>(Option<&'a Combiner>);

impl Shard {
    /// Makes rounds for all, until nobody asks for another or this thread has made the most.
    /// `state`: the lock, if it is held already. `by_task`: a future is being polled, which leaves
    /// it to others to wake many. How many futures were woken.
    pub(super) fn combine<'a>(
        &'a self,
        mut guard: CombinerGuard<'a>,
        mut state: Option<MutexGuard<'a, State>>,
        executor: Executor,
        mut own: Option<Own<'_>>,
        by_task: bool,
    ) -> usize {
        let mut round = RoundOutput::default();
        let mut woken = 0;
        for number in 1.. {
            self.round(state.take(), executor, &mut own, by_task, &mut round);
            let left = guard.unlock();
            woken += round.wakers.len();
            wake_all(&mut round.wakers);
            let again = match left {
                Ok(()) if !round.more => break,
                // What completed made room, or a group.
                Ok(()) => self.combiner.try_lock(),
                // A thread has found it taken.
                Err(guard) => Some(guard),
            };
            let goes_on =
                number < MAX_ROUNDS && round.submitted < MAX_OPERATIONS && !round.hand_over;
            match again {
                None => break,
                Some(again) if goes_on => guard = again,
                Some(again) => {
                    // In this order: a flag set by somebody who takes the rounds over before the
                    // lock is free would be lost.
                    drop(again);
                    self.delegate(round.hand_over);
                    break;
                }
            }
        }
        // What nobody waits for is dropped where nobody waits for it, while others may combine: it
        // may free memory, run code of the program's, or close a file.
        round.drop_orphans();
        woken
    }

    /// The others go on without this thread: the futures that it has woken, if these are all that
    /// is waited for; else, and at the latest, the engine's thread or the program. Called with the
    /// combining lock free, so that whoever comes from here on goes on by itself.
    fn delegate(&self, hand_over: bool) {
        if !hand_over && self.state().woken_will_submit() {
            return self.notifier.notify_if_asleep();
        }
        // (Not a store: loom knows no order between that and the swap of who takes over.)
        self.combiner.delegated.swap(true, Ordering::AcqRel);
        self.notifier.notify();
    }

    /// Makes the rounds that another thread has left over, if any.
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

    /// The work is the caller's, who has to [`leave`](CombinerGuard::leave). `None`: whoever has it does
    /// it again.
    pub(crate) fn try_lock(&self) -> Option<CombinerGuard<'_>> {
        // What the caller did before is seen by the one who goes round again, and the other way
        // about.
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            Some(if state == UNLOCKED { LOCKED } else { REQUESTED })
        });
        // (Not `then_some`: a guard that is made and not given away would be dropped, and let a
        // second one in.)
        (before == Ok(UNLOCKED)).then(|| CombinerGuard(Some(self)))
    }
}

impl CombinerGuard<'_> {
    /// Over; or, if somebody has asked meanwhile, the work is to be done again.
    pub(crate) fn unlock(mut self) -> Result<(), Self> {
        let Some(combiner) = self.0.take() else { return Ok(()) };
        if combiner
            .state
            .compare_exchange(LOCKED, UNLOCKED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return Ok(());
        }
        // Of those who come from here on, word is left anew.
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
    fn word_that_was_left_is_heard() {
        let combiner = Combiner::new();
        let guard = combiner.try_lock().expect("nobody has it");
        assert!(combiner.try_lock().is_none());
        assert!(combiner.try_lock().is_none(), "who is turned away lets nobody in");
        let guard = guard.unlock().expect_err("somebody has asked");
        assert!(guard.unlock().is_ok());
        assert!(combiner.try_lock().is_some(), "a guard that is dropped is over too");
        assert!(combiner.try_lock().is_some());
    }
}
