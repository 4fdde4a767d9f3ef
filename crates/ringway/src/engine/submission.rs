//! What the engine attaches to each operation, and the lists of pending operations. Both live in
//! the operations' slots. The shard decides when a pending operation is submitted.

use super::executor::Executor;
use super::sync_ledger::Ticket;
use ringway_core::{OpId, Operation, Table};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

/// Operations that are pushed together: one, or any number of them.
pub(crate) trait Operations: Sized {
    /// How many there are.
    fn count(&self) -> usize;

    /// Calls `push` with each, which takes it if it can. The operations are moved from where they
    /// are only then, because they are large.
    fn push_each(this: &mut Option<Self>, push: impl FnMut(&mut Option<Operation>));
}

impl Operations for Operation {
    #[inline]
    fn count(&self) -> usize {
        1
    }

    #[inline]
    fn push_each(this: &mut Option<Self>, mut push: impl FnMut(&mut Option<Operation>)) {
        push(this);
    }
}

impl Operations for Vec<Operation> {
    fn count(&self) -> usize {
        self.len()
    }

    fn push_each(this: &mut Option<Self>, mut push: impl FnMut(&mut Option<Operation>)) {
        for operation in this.take().into_iter().flatten() {
            push(&mut Some(operation));
        }
    }
}

/// How an operation is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// A storage transfer: it may wait for a batch to fill, and the number in flight is limited to
    /// what the device can use.
    #[default]
    Paced,
    /// Any other operation: it is submitted at once if its lane has free capacity.
    Immediate(Lane),
}

/// Operations that are submitted at once. Each lane has its own capacity, so that operations that
/// wait (for the other end of a pipe, or for a disk that hangs) do not delay those of other lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Metadata, names, closing.
    Call,
    /// Opens. Opening a FIFO may wait forever.
    Open,
    /// Syncs. Operations pushed together form a chain: writes, then the sync that covers them.
    Sync,
    /// Reads and writes of pipes, sockets and terminals, which may wait forever.
    Wait,
    /// Closures on threads, which take an unknown time.
    Closure,
    /// Timers, which occupy nothing but their slot.
    Timer,
}

pub(crate) const LANES: [Lane; 6] =
    [Lane::Call, Lane::Open, Lane::Sync, Lane::Wait, Lane::Closure, Lane::Timer];

/// What the engine attaches to an operation: the future that waits for it, and its links in the
/// list of pending operations.
///
/// The operations of one future form a group. The first one, the lead, holds the waker and the
/// count for the whole group. It stays in its slot until the future takes the results or is
/// dropped.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    /// In a lead: the waker to call when the whole group is done.
    pub(crate) waker: Option<Waker>,
    /// The lead of the group; `None` in the lead itself.
    pub(crate) lead: Option<OpId>,
    /// In a lead: the number of operations of the group that are not done.
    pub(crate) remaining: u32,
    pub(crate) schedule: Schedule,
    /// The executor that polls the future.
    pub(crate) executor: Executor,
    /// In a lead whose future was woken: the epoch of [`WokenFutures`](super::shard).
    pub(crate) wake_epoch: u32,
    /// The limiter's permit, which the members of a chain share.
    pub(crate) permit: u32,
    /// The transfer's device in the shard's list, and the permit of its limiter.
    pub(crate) device: Option<u16>,
    pub(crate) device_permit: u32,
    /// A pending transfer waits for its device, not in the shard's list of transfers.
    pub(crate) waits_for_device: bool,
    /// The operation is done, and its permit is released.
    pub(crate) released: bool,
    /// When it was pushed, if its latency is sampled.
    pub(crate) pushed_at: Option<Instant>,
    /// Learns how the operation ends, if that may concern syncs of the file.
    pub(crate) ticket: Option<Arc<Ticket>>,
    prev: Option<OpId>,
    next: Option<OpId>,
}

impl Waiter {
    pub(crate) fn new(
        schedule: Schedule,
        executor: Executor,
        lead: Option<OpId>,
        pushed_at: Option<Instant>,
    ) -> Self {
        Self { schedule, executor, lead, pushed_at, ..Self::default() }
    }
}

/// Pending operations in order. The list is linked through their slots, so that any operation can
/// leave it in constant time when its future is dropped.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    first: Option<OpId>,
    last: Option<OpId>,
    len: usize,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends an operation that is in no list.
    #[inline]
    pub(crate) fn push(&mut self, table: &mut Table<Waiter>, id: OpId) {
        let prev = self.last.replace(id);
        match prev.and_then(|prev| table.attachment(prev)) {
            Some(prev) => prev.next = Some(id),
            None => self.first = Some(id),
        }
        if let Some(waiter) = table.attachment(id) {
            (waiter.prev, waiter.next) = (prev, None);
        }
        self.len += 1;
    }

    /// Removes the first operation.
    #[inline]
    pub(crate) fn pop(&mut self, table: &mut Table<Waiter>) -> Option<OpId> {
        let first = self.first?;
        self.remove(table, first);
        Some(first)
    }

    /// Removes an operation that is in this list.
    #[inline]
    pub(crate) fn remove(&mut self, table: &mut Table<Waiter>, id: OpId) {
        let Some(waiter) = table.attachment(id) else {
            debug_assert!(false, "{id:?} is pending and not in its slot");
            return;
        };
        let (prev, next) = (waiter.prev.take(), waiter.next.take());
        match prev.and_then(|prev| table.attachment(prev)) {
            Some(waiter) => waiter.next = next,
            None => self.first = next,
        }
        match next.and_then(|next| table.attachment(next)) {
            Some(waiter) => waiter.prev = prev,
            None => self.last = prev,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_core::{BackendKind, Options, op};
    use std::time::Duration;

    proptest! {
        /// Whatever is pushed, popped and removed, against a plain list.
        #[test]
        fn it_behaves_as_a_list(
            steps in proptest::collection::vec((0u8..4, any::<prop::sample::Index>()), 0..100),
        ) {
            let options = Options::new().backend(BackendKind::Null);
            let (mut table, mut backends) = options.build_parts::<Waiter>().unwrap();
            let (mut pending, mut model) = (Pending::default(), Vec::new());
            for (step, which) in steps {
                match step {
                    0 | 1 => {
                        let id = table.insert(op::nop(), Waiter::default()).unwrap();
                        pending.push(&mut table, id);
                        model.push(id);
                    }
                    2 => {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(pending.pop(&mut table), first);
                    }
                    _ if model.is_empty() => {}
                    _ => {
                        let id = model.remove(which.index(model.len()));
                        pending.remove(&mut table, id);
                        table.abandon(id);
                    }
                }
                prop_assert_eq!(pending.len(), model.len());
            }
            let rest: Vec<OpId> = std::iter::from_fn(|| pending.pop(&mut table)).collect();
            prop_assert_eq!(rest, model);
            table.shut_down(&mut backends, Duration::ZERO);
        }
    }
}
