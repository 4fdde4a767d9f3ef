//! Who waits for an operation, and the lists of operations whose turn has not come. Both are kept
//! in the operations' slots. Whose turn comes when is the shard's business.

use super::reactor::Executor;
use ringway_core::{OpId, Table};
use std::task::Waker;
use std::time::Instant;

/// How an operation takes its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// A transfer of storage: it may gather with others into a group, and no more are in flight
    /// than the device can use.
    #[default]
    Paced,
    /// Anything else: it is submitted at once, if its lane has room.
    Immediate(Lane),
}

/// Operations that are submitted at once. Each kind has room of its own, so that those which wait
/// (for the other end of a pipe, for a disk that hangs) do not delay operations of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Metadata, names, closing.
    Call,
    /// Opens; that of a FIFO may wait for ever.
    Open,
    /// Syncs. Operations that are pushed together are a chain: writes, and the sync behind them.
    Sync,
    /// What may wait for ever: reads and writes of pipes, sockets, terminals.
    Wait,
    /// Closures on threads: nobody knows how long they take.
    Closure,
}

pub(crate) const LANES: [Lane; 5] = [Lane::Call, Lane::Open, Lane::Sync, Lane::Wait, Lane::Closure];

/// What the engine attaches to an operation: the future that waits for it, and its place among
/// those that are pending.
///
/// The operations of one future are a group. Its first one, the lead, has the waker and the count
/// for all of them; it stays in its slot until the future takes the results, or goes.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    /// Of a lead: woken when all of the group is done.
    pub(crate) waker: Option<Waker>,
    /// The lead of its group; `None`: it is one itself.
    pub(crate) lead: Option<OpId>,
    /// Of a lead: operations of its group that are not done.
    pub(crate) remaining: u32,
    pub(crate) schedule: Schedule,
    /// Where its future was polled.
    pub(crate) executor: Executor,
    /// Of a lead whose future was woken: [`Woken`](super::shard)'s number.
    pub(crate) wake_epoch: u32,
    /// The number of its room, which the members of a chain have together.
    pub(crate) permit: u32,
    /// It is done, and its room is free.
    pub(crate) released: bool,
    /// When it was pushed, if that is recorded.
    pub(crate) pushed_at: Option<Instant>,
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

/// Operations whose turn has not come, in order: a list through their slots, so any of them leaves
/// it at once when its future goes.
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

    /// Adds an operation that is in no list.
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

    /// Takes the first one out.
    #[inline]
    pub(crate) fn pop(&mut self, table: &mut Table<Waiter>) -> Option<OpId> {
        let first = self.first?;
        self.remove(table, first);
        Some(first)
    }

    /// Takes out one that is in here.
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
        fn it_is_a_list(steps in proptest::collection::vec((0u8..4, any::<prop::sample::Index>()), 0..100)) {
            let options = Options::new().backend(BackendKind::Null);
            let (mut table, mut backends) = options.build_halves::<Waiter>().unwrap();
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
                        table.give_up(id);
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
