//! The rounds of the combiner: how many it makes, and to whom it leaves the next one.

use super::combiner::CombinerGuard;
use super::executor::Executor;
use super::shard::{OwnOperation, RoundOutput, Shard, ShardState};
use super::sync::{MutexGuard, Ordering};
use super::wake::wake_all;

/// The most rounds that one thread makes in a row, and the most operations that it submits in them.
const MAX_ROUNDS: usize = if cfg!(ringway_loom) { 2 } else { 16 };
const MAX_OPERATIONS: usize = if cfg!(ringway_loom) { 2 } else { 256 };

impl Shard {
    /// Makes rounds until no other is requested, or until this thread reaches its bound. `state` is
    /// the state's guard if the caller already has it. With `by_task` a future is being polled,
    /// which leaves it to others to wake many futures. Returns the number of futures woken.
    pub(super) fn combine<'a>(
        &'a self,
        mut guard: CombinerGuard<'a>,
        mut state: Option<MutexGuard<'a, ShardState>>,
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

#[cfg(all(test, not(ringway_loom)))]
mod tests {
    use super::*;
    use crate::engine::notifier::Notifier;
    use crate::engine::submission::{Lane, Schedule};
    use ringway_core::{BackendKind, Options, op};
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    /// More than any bound lets one thread wake.
    const ENDLESS: usize = 1000;

    /// A future that pushes more operations as soon as it is woken, as those of other threads do
    /// while one thread combines.
    struct PushesAgain {
        shard: Shard,
        operations: usize,
        woken: AtomicUsize,
    }

    impl PushesAgain {
        fn push(self: &Arc<Self>) {
            let schedule = Schedule::Immediate(Lane::Call);
            let operations: Vec<_> = (0..self.operations).map(|_| op::nop()).collect();
            let waker = Waker::from(self.clone());
            self.shard.push(schedule, Executor::Manual, &waker, &mut Some(operations), &mut None);
        }
    }

    impl Wake for PushesAgain {
        fn wake(self: Arc<Self>) {
            if self.woken.fetch_add(1, Ordering::Relaxed) < ENDLESS {
                self.push();
            }
        }
    }

    /// However much others push, the thread that combines goes on with its own work after its
    /// bound, and leaves the next round to the engine's thread.
    #[test]
    fn combining_for_others_is_bounded() -> io::Result<()> {
        for (operations, most) in [(1, MAX_ROUNDS), (100, MAX_OPERATIONS.div_ceil(100))] {
            let options = Options::new().backend(BackendKind::Null);
            let shard = Shard::new(&options, 1, 8, 8, Notifier::new(false)?)?;
            let future = Arc::new(PushesAgain { shard, operations, woken: AtomicUsize::new(0) });
            let shard = &future.shard;
            let guard = shard.combiner.try_lock().expect("nobody combines");
            future.push();
            assert_eq!(shard.combine(guard, None, Executor::Manual, None, false), most);
            assert_eq!(future.woken.load(Ordering::Relaxed), most);
            shard.run_delegated();
            assert!(future.woken.load(Ordering::Relaxed) > most, "the next round was lost");
            shard.close(std::time::Duration::ZERO);
        }
        Ok(())
    }
}
