//! The future of operations on their way: pushed when first polled, given up when dropped.

use super::shard::{Group, Outcome, Outcomes, Refused};
use super::submission::Turn;
use super::trace::Trace;
use super::{Inner, coop};
use ringway_core::{Operation, Reason, op};
use std::pin::Pin;
use std::task::{Context, Poll};

/// What is pushed together and waited for together: an operation, or any number of them.
pub(crate) trait Load: Unpin {
    /// What became of it.
    type Outcome;

    fn operations(self) -> impl Iterator<Item = Operation>;

    /// What became of it, from what became of its one operation.
    fn one(outcome: Outcome) -> Self::Outcome;

    /// The same, of each of its operations.
    fn all(outcomes: Outcomes) -> Self::Outcome;

    fn trace(&self) -> Trace;
}

impl Load for Operation {
    type Outcome = Outcome;

    #[inline]
    fn operations(self) -> impl Iterator<Item = Operation> {
        std::iter::once(self)
    }

    #[inline]
    fn one(outcome: Outcome) -> Outcome {
        outcome
    }

    #[inline]
    fn all(mut outcomes: Outcomes) -> Outcome {
        outcomes.pop().unwrap_or_else(|| forked(op::nop()))
    }

    fn trace(&self) -> Trace {
        Trace::new(self.opcode(), 1)
    }
}

impl Load for Vec<Operation> {
    type Outcome = Vec<Outcome>;

    fn operations(self) -> impl Iterator<Item = Operation> {
        self.into_iter()
    }

    fn one(outcome: Outcome) -> Vec<Outcome> {
        vec![outcome]
    }

    fn all(outcomes: Outcomes) -> Vec<Outcome> {
        outcomes.into_vec()
    }

    fn trace(&self) -> Trace {
        self.first().map_or(Trace::none(), |first| Trace::new(first.opcode(), self.len()))
    }
}

/// What a forked child is told: its parent has the queue.
fn forked(operation: Operation) -> Outcome {
    Err(Box::new(Refused { reason: Reason::Forked, operation }))
}

/// Operations on their way, each with its own result.
///
/// Dropped at any point they are cancelled; what they own is kept until the kernel has let go of
/// it.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct OpFuture<'a, L: Load> {
    engine: &'a Inner,
    turn: Turn,
    /// Bytes that may be copied while it is submitted.
    copies: usize,
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
        group: Group,
    },
    Over,
}

impl<'a, L: Load> OpFuture<'a, L> {
    pub(crate) fn new(engine: &'a Inner, turn: Turn, load: L) -> Self {
        let trace = load.trace();
        Self { engine, turn, copies: 0, stage: Stage::New(load), trace }
    }

    /// So many bytes may be copied while it is submitted: it gives way to other tasks now and then.
    #[inline]
    pub(crate) fn copies(mut self, copies: usize) -> Self {
        self.copies = copies;
        self
    }

    #[inline]
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<L::Outcome> {
        if !self.engine.is_here() {
            return Poll::Ready(match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::New(load) => L::all(load.operations().map(forked).collect()),
                // What it pushed is its parent's.
                Stage::Pushed { group, .. } => {
                    std::mem::forget(group);
                    L::all(Outcomes::new())
                }
                Stage::Over => panic!("a future was polled after it was ready"),
            });
        }
        let is_new = matches!(self.stage, Stage::New(_));
        if is_new {
            // A file system in memory answers at once, and others are to run too.
            std::task::ready!(if self.copies > 0 {
                coop::go_on(cx, self.copies)
            } else {
                coop::may_go_on(cx)
            });
            let Stage::New(load) = std::mem::replace(&mut self.stage, Stage::Over) else {
                unreachable!()
            };
            let mut own = None;
            let (shard, pushed) = self.engine.push(self.turn, cx, load.operations(), &mut own);
            if let Some(own) = own {
                coop::went_on(cx);
                return Poll::Ready(L::one(Ok(own)));
            }
            self.stage = Stage::Pushed { shard, group: pushed.group };
            if !pushed.look {
                return Poll::Pending;
            }
        }
        let Stage::Pushed { shard, group } = &mut self.stage else {
            panic!("a future was polled after it was ready");
        };
        match self.engine.shards[*shard].take(group, self.engine.place(), cx.waker()) {
            Some(outcomes) => {
                if is_new {
                    coop::went_on(cx);
                }
                self.stage = Stage::Over;
                Poll::Ready(L::all(outcomes))
            }
            None => Poll::Pending,
        }
    }
}

impl<L: Load> Future for OpFuture<'_, L> {
    type Output = L::Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<L::Outcome> {
        let _entered = self.trace.enter();
        self.advance(cx)
    }
}

impl<L: Load> Drop for OpFuture<'_, L> {
    fn drop(&mut self) {
        if let Stage::Pushed { shard, group } = &self.stage
            && self.engine.is_here()
        {
            self.engine.shards[*shard].give_up(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use ringway_core::BackendKind;
    use std::task::Waker;

    /// Where everything is done at once, groups give way now and then as single operations do.
    #[test]
    fn a_task_whose_operations_are_done_at_once_gives_way() {
        let engine = Engine::builder().backend(BackendKind::Null).build().unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let group = || vec![op::nop(), op::nop()];
        let mut one = || {
            Pin::new(&mut OpFuture::new(&engine.inner, Turn::Paced, op::nop()))
                .poll(&mut cx)
                .is_ready()
        };
        assert!((0..10_000).take_while(|_| one()).count() < 10_000);
        let mut many = || {
            Pin::new(&mut OpFuture::new(&engine.inner, Turn::Paced, group()))
                .poll(&mut cx)
                .is_ready()
        };
        assert!((0..10_000).take_while(|_| many()).count() < 10_000);
    }
}
