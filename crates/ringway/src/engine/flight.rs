//! The future of operations on their way: pushed when first polled, given up when dropped.

use super::Inner;
use super::shard::{Shard, Turn};
use super::trace::Trace;
use super::waiters::{Few, Key, Outcome, Refused};
use ringway_core::{Operation, Reason, op};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// What is pushed together and waited for together: an operation, or any number of them.
pub(crate) trait Load: Unpin {
    /// What became of it.
    type Outcome;

    fn put(self, waiting: &mut Few<Operation>);

    /// What became of it, if all of it is over; else the waker is kept.
    fn take(shard: &Shard, key: Key, waker: &Waker) -> Option<Self::Outcome>;

    /// What a forked child is told; `None`: what it pushed is its parent's.
    fn forked(load: Option<Self>) -> Self::Outcome
    where
        Self: Sized;

    fn trace(&self) -> Trace;
}

impl Load for Operation {
    type Outcome = Outcome;

    fn put(self, waiting: &mut Few<Operation>) {
        waiting.push(self);
    }

    fn take(shard: &Shard, key: Key, waker: &Waker) -> Option<Outcome> {
        shard.take_one(key, waker)
    }

    fn forked(load: Option<Self>) -> Outcome {
        Err(Box::new(Refused { reason: Reason::Forked, operation: load.unwrap_or_else(op::nop) }))
    }

    fn trace(&self) -> Trace {
        Trace::new(self.kind(), 1)
    }
}

impl Load for Vec<Operation> {
    type Outcome = Vec<Outcome>;

    fn put(self, waiting: &mut Few<Operation>) {
        waiting.extend(self);
    }

    fn take(shard: &Shard, key: Key, waker: &Waker) -> Option<Vec<Outcome>> {
        shard.take_all(key, waker)
    }

    fn forked(load: Option<Self>) -> Vec<Outcome> {
        load.into_iter().flatten().map(|operation| Load::forked(Some(operation))).collect()
    }

    fn trace(&self) -> Trace {
        self.first().map_or(Trace::none(), |first| Trace::new(first.kind(), self.len()))
    }
}

/// Operations on their way, each with its own result.
///
/// Dropped at any point they are cancelled; what they own is kept until the kernel has let go of it.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Flight<'a, L: Load> {
    engine: &'a Inner,
    turn: Turn,
    stage: Stage<L>,
    trace: Trace,
}

/// Where a flight is.
enum Stage<L> {
    /// Nothing has been asked of the kernel.
    New(L),
    /// Its operations are in this shard.
    Pushed {
        shard: usize,
        key: Key,
    },
    Over,
}

impl<'a, L: Load> Flight<'a, L> {
    pub(crate) fn new(engine: &'a Inner, turn: Turn, load: L) -> Self {
        let trace = load.trace();
        Self { engine, turn, stage: Stage::New(load), trace }
    }

    fn advance(&mut self, cx: &Context<'_>) -> Poll<L::Outcome> {
        let (shard, key) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New(load) if !self.engine.is_here() => return Poll::Ready(L::forked(Some(load))),
            Stage::Pushed { .. } if !self.engine.is_here() => return Poll::Ready(L::forked(None)),
            Stage::New(load) => {
                let (shard, key, entered) = self.engine.push(self.turn, cx, |waiting| load.put(waiting));
                if !entered {
                    self.stage = Stage::Pushed { shard, key };
                    return Poll::Pending;
                }
                (shard, key)
            }
            Stage::Pushed { shard, key } => (shard, key),
            Stage::Over => panic!("a future was polled after it was ready"),
        };
        match L::take(&self.engine.shards[shard], key, cx.waker()) {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                self.stage = Stage::Pushed { shard, key };
                Poll::Pending
            }
        }
    }
}

impl<L: Load> Future for Flight<'_, L> {
    type Output = L::Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<L::Outcome> {
        let _entered = self.trace.enter();
        self.advance(cx)
    }
}

impl<L: Load> Drop for Flight<'_, L> {
    fn drop(&mut self) {
        if let Stage::Pushed { shard, key } = self.stage
            && self.engine.is_here()
        {
            self.engine.shards[shard].give_up(key);
        }
    }
}
