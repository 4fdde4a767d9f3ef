//! The future of operations on their way: pushed when first polled, given up when dropped.

use super::Inner;
use super::shard::Turn;
use super::waiters::{Key, Outcome, Refused};
use ringway_core::{Operation, Reason, op};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Where a future is.
enum Stage<T> {
    /// Nothing has been asked of the kernel.
    New(T),
    /// Its operations are in this shard.
    Pushed {
        shard: usize,
        key: Key,
    },
    Over,
}

/// One operation.
///
/// Dropped at any point it is cancelled; what it owns is kept until the kernel has let go of it.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Flight<'a> {
    engine: &'a Inner,
    turn: Turn,
    stage: Stage<Operation>,
}

/// Operations that are pushed together and waited for together, each with its own result.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Flights<'a> {
    engine: &'a Inner,
    turn: Turn,
    stage: Stage<Vec<Operation>>,
}

impl<'a> Flight<'a> {
    pub(crate) fn new(engine: &'a Inner, turn: Turn, operation: Operation) -> Self {
        Self { engine, turn, stage: Stage::New(operation) }
    }
}

impl<'a> Flights<'a> {
    pub(crate) fn new(engine: &'a Inner, turn: Turn, operations: Vec<Operation>) -> Self {
        Self { engine, turn, stage: Stage::New(operations) }
    }
}

impl Future for Flight<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let this = &mut *self;
        let (shard, key) = match std::mem::replace(&mut this.stage, Stage::Over) {
            Stage::New(operation) if !this.engine.is_here() => return Poll::Ready(Err(forked(operation))),
            Stage::New(operation) => this.engine.push(this.turn, cx, |waiting| waiting.push(operation)),
            // What it pushed is its parent's.
            Stage::Pushed { .. } if !this.engine.is_here() => return Poll::Ready(Err(forked(op::nop()))),
            Stage::Pushed { shard, key } => (shard, key),
            Stage::Over => panic!("a future was polled after it was ready"),
        };
        match this.engine.shards[shard].take_one(key, cx.waker()) {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                this.stage = Stage::Pushed { shard, key };
                Poll::Pending
            }
        }
    }
}

impl Future for Flights<'_> {
    type Output = Vec<Outcome>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<Outcome>> {
        let this = &mut *self;
        let (shard, key) = match std::mem::replace(&mut this.stage, Stage::Over) {
            Stage::New(operations) if operations.is_empty() => return Poll::Ready(Vec::new()),
            Stage::New(operations) if !this.engine.is_here() => {
                return Poll::Ready(operations.into_iter().map(|operation| Err(forked(operation))).collect());
            }
            Stage::New(operations) => this.engine.push(this.turn, cx, |waiting| waiting.extend(operations)),
            Stage::Pushed { .. } if !this.engine.is_here() => return Poll::Ready(Vec::new()),
            Stage::Pushed { shard, key } => (shard, key),
            Stage::Over => panic!("a future was polled after it was ready"),
        };
        match this.engine.shards[shard].take_all(key, cx.waker()) {
            Some(outcomes) => Poll::Ready(outcomes),
            None => {
                this.stage = Stage::Pushed { shard, key };
                Poll::Pending
            }
        }
    }
}

/// What a forked child is told.
fn forked(operation: Operation) -> Box<Refused> {
    Box::new(Refused { reason: Reason::Forked, operation })
}

/// A future that goes before its operations are over.
fn give_up<T>(engine: &Inner, stage: &Stage<T>) {
    if let Stage::Pushed { shard, key } = stage
        && engine.is_here()
    {
        engine.shards[*shard].give_up(*key);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        give_up(self.engine, &self.stage);
    }
}

impl Drop for Flights<'_> {
    fn drop(&mut self) {
        give_up(self.engine, &self.stage);
    }
}
