//! The future of one or more operations: it pushes them when first polled and abandons them when
//! dropped.

use super::shard::{Group, OpResult, OpResults, Refused};
use super::submission::{Operations, Schedule};
use super::sync_ledger::{SyncLedger, Ticket};
use super::trace::Trace;
use super::wake::wake_all;
use super::{SharedEngine, coop};
use ringway_core::{Operation, Reason, op};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Operations that are pushed and awaited together.
pub(crate) trait Awaited: Operations + Unpin {
    /// The result of all of them.
    type Output;

    /// The result, from that of a single operation.
    fn one(result: OpResult) -> Self::Output;

    /// The result, from those of each operation.
    fn all(results: OpResults) -> Self::Output;

    fn trace(&self) -> Trace;
}

impl Awaited for Operation {
    type Output = OpResult;

    #[inline]
    fn one(result: OpResult) -> OpResult {
        result
    }

    #[inline]
    fn all(mut results: OpResults) -> OpResult {
        results.pop().unwrap_or_else(|| forked(op::nop()))
    }

    fn trace(&self) -> Trace {
        Trace::new(self.opcode(), 1)
    }
}

impl Awaited for Vec<Operation> {
    type Output = Vec<OpResult>;

    fn one(result: OpResult) -> Vec<OpResult> {
        vec![result]
    }

    fn all(results: OpResults) -> Vec<OpResult> {
        results.into_vec()
    }

    fn trace(&self) -> Trace {
        self.first().map_or(Trace::none(), |first| Trace::new(first.opcode(), self.len()))
    }
}

/// The result in a forked child, whose parent owns the queue.
fn forked(operation: Operation) -> OpResult {
    Err(Box::new(Refused { reason: Reason::Forked, operation }))
}

/// Operations in flight, each with its own result.
///
/// Dropping the future cancels them. What they own is kept until the kernel no longer uses it.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct OpFuture<'a, L: Awaited> {
    engine: &'a SharedEngine,
    schedule: Schedule,
    /// Bytes that the submission may copy.
    copies: usize,
    stage: Stage<L>,
    /// Who learns how the last operation ends, even if the future is dropped.
    observer: Observer,
    trace: Trace,
}

/// Who learns how an operation ends.
enum Observer {
    None,
    /// A ledger, which gives a ticket when the operation is pushed: the future may never be polled
    /// again before that, and syncs wait for all tickets.
    Ledger(Arc<SyncLedger>),
    Ticket(Arc<Ticket>),
}

/// The stage of the future.
enum Stage<L> {
    /// Nothing has been submitted. (`None` only while they are pushed.)
    New(Option<L>),
    /// The operations are in this shard.
    Pushed {
        shard: usize,
        group: Group,
    },
    Done,
}

impl<'a, L: Awaited> OpFuture<'a, L> {
    #[inline]
    pub(crate) fn new(engine: &'a SharedEngine, schedule: Schedule, operations: L) -> Self {
        let trace = operations.trace();
        Self {
            engine,
            schedule,
            copies: 0,
            stage: Stage::New(Some(operations)),
            observer: Observer::None,
            trace,
        }
    }

    /// Sets how many bytes the submission may copy, so that the task yields now and then.
    #[inline]
    pub(crate) fn copies(mut self, copies: usize) -> Self {
        self.copies = copies;
        self
    }

    /// Sets the ticket that learns how the last operation ends. The next poll must push it.
    pub(crate) fn observed(mut self, ticket: Arc<Ticket>) -> Self {
        self.observer = Observer::Ticket(ticket);
        self
    }

    /// Gives the last operation a ticket of this ledger when it is pushed.
    pub(crate) fn observed_by(mut self, ledger: &Arc<SyncLedger>) -> Self {
        self.observer = Observer::Ledger(Arc::clone(ledger));
        self
    }

    /// The ticket of the last operation, once it was pushed.
    pub(crate) fn ticket(&self) -> Option<&Arc<Ticket>> {
        match &self.observer {
            Observer::Ticket(ticket) => Some(ticket),
            Observer::None | Observer::Ledger(_) => None,
        }
    }

    #[inline]
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<L::Output> {
        if !self.engine.is_current() {
            return Poll::Ready(match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::New(mut operations) => {
                    let mut all = OpResults::new();
                    L::push_each(&mut operations, |one| all.extend(one.take().map(forked)));
                    L::all(all)
                }
                // The parent owns what it pushed.
                Stage::Pushed { group, .. } => {
                    std::mem::forget(group);
                    L::all(OpResults::new())
                }
                Stage::Done => panic!("a future was polled after it completed"),
            });
        }
        let mut is_new = false;
        if let Stage::New(operations) = &mut self.stage {
            is_new = true;
            // Operations may complete at once (on a file system in memory), so the task must yield
            // sometimes.
            std::task::ready!(if self.copies > 0 {
                coop::poll_proceed(cx, self.copies)
            } else {
                coop::poll_may_proceed(cx)
            });
            if let Observer::Ledger(ledger) = &self.observer {
                self.observer = Observer::Ticket(ledger.begin());
            }
            let mut own = None;
            let (shard, pushed) = self.engine.push(self.schedule, cx, operations, &mut own);
            if let Some(own) = own {
                self.stage = Stage::Done;
                if let Some(ticket) = self.ticket() {
                    wake_all(&mut ticket.end(own.result.map(drop)));
                }
                coop::charge_call();
                return Poll::Ready(L::one(Ok(own)));
            }
            match (self.ticket(), pushed.group.last()) {
                (Some(ticket), Some(Ok(last))) => {
                    self.engine.shards[shard].observe(*last, Arc::clone(ticket));
                }
                // The engine has refused it, so it is not in flight.
                _ => self.observer = Observer::None,
            }
            self.stage = Stage::Pushed { shard, group: pushed.group };
            if !pushed.may_be_done {
                return Poll::Pending;
            }
        }
        let Stage::Pushed { shard, group } = &mut self.stage else {
            panic!("a future was polled after it completed");
        };
        let (shard, executor) = (&self.engine.shards[*shard], self.engine.executor());
        let results = match group.as_slice() {
            [Ok(id)] => shard
                .take_one(*id, executor, cx.waker())
                .map(|one| one.map_or_else(|| L::all(OpResults::new()), |one| L::one(Ok(one)))),
            _ => shard.take(group, executor, cx.waker()).map(L::all),
        };
        let Some(results) = results else { return Poll::Pending };
        if is_new {
            coop::charge_call();
        }
        self.stage = Stage::Done;
        Poll::Ready(results)
    }
}

impl<L: Awaited> Future for OpFuture<'_, L> {
    type Output = L::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<L::Output> {
        let _entered = self.trace.enter();
        self.advance(cx)
    }
}

impl<L: Awaited> Drop for OpFuture<'_, L> {
    fn drop(&mut self) {
        if let Stage::Pushed { shard, group } = &self.stage
            && self.engine.is_current()
        {
            self.engine.shards[*shard].abandon(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use ringway_core::BackendKind;
    use std::task::Waker;

    /// Where all operations complete at once, groups yield as single operations do.
    #[test]
    fn a_task_whose_operations_complete_at_once_yields() {
        let engine = Engine::builder().backend(BackendKind::Null).build().unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let group = || vec![op::nop(), op::nop()];
        let mut one = || {
            Pin::new(&mut OpFuture::new(&engine.inner, Schedule::Paced, op::nop()))
                .poll(&mut cx)
                .is_ready()
        };
        assert!((0..10_000).take_while(|_| one()).count() < 10_000);
        let mut many = || {
            Pin::new(&mut OpFuture::new(&engine.inner, Schedule::Paced, group()))
                .poll(&mut cx)
                .is_ready()
        };
        assert!((0..10_000).take_while(|_| many()).count() < 10_000);
    }
}
