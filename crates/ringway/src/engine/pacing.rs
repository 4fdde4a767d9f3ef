//! Decides when pending transfers are submitted. Pure arithmetic, without I/O and locks.
//!
//! Submitting each operation alone costs one system call per operation. Submitting all of them
//! whenever everything has completed forms convoys: the device is idle while the operations are
//! prepared, and then receives them all at once. Batches of an eighth of the operations in flight
//! avoid both. A lone operation is a batch. Pending operations wait for completions, of which at
//! least eight are due, or for the reactor, which returns after the tasks that it woke. If nothing
//! moves for a while, the engine's thread submits them, because the operations in flight may hang.

use super::limiter::Limiter;
use std::time::{Duration, Instant};

/// A batch is this share of the operations in flight.
const BATCH_SHARE: usize = 8;
/// The largest batch: as many operations as a submission queue takes at once.
const MAX_BATCH: usize = 64;

/// The most work that one submission may do for transfers through the page cache. On io_uring the
/// submitting thread copies cached data, and sends requests for the rest at some microseconds each.
/// The limit keeps that below 100 us.
const MAX_WORK: usize = 16;
/// Bytes that count as one unit of work.
const WORK: u64 = 8 << 10;

/// The work that one submission has done for transfers through the page cache.
#[derive(Debug, Default)]
pub(crate) struct CopyWork(usize);

impl CopyWork {
    /// Adds a transfer, of which the submitting thread copies `bytes` bytes.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.0 += bytes.div_ceil(WORK).clamp(1, MAX_WORK as u64) as usize;
    }

    /// Whether the rest must wait for another submission.
    pub(crate) fn is_enough(&self) -> bool {
        self.0 >= MAX_WORK
    }
}

/// The number of operations in a batch, with `in_flight` operations in flight.
fn batch_size(in_flight: usize) -> usize {
    (in_flight / BATCH_SHARE).clamp(1, MAX_BATCH)
}

/// If no transfer completes for this long, older ones count as hung and use no capacity.
const TRANSFERS_HUNG_AFTER: Duration = Duration::from_millis(100);

/// Decides whether to submit now.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Counts the transfers that the queue has.
    pub(crate) limiter: Limiter,
    /// Completions since the last submission.
    completed_since: usize,
    /// How often a transfer was submitted or completed.
    moves: u64,
}

impl Pacer {
    /// Allows at most `cap` transfers at a time, not counting up to `max_hung` that hang.
    pub(crate) fn new(cap: usize, max_hung: usize) -> Self {
        Self {
            limiter: Limiter::new(cap).exclude_hung_after(TRANSFERS_HUNG_AFTER, max_hung),
            completed_since: 0,
            moves: 0,
        }
    }

    /// Whether to submit, with `waiting` operations pending. `expected` is the number of tasks that
    /// the reactor has woken; it returns after them, and they are likely to push more.
    pub(crate) fn is_due(&self, waiting: usize, expected: usize) -> bool {
        let ready = waiting.min(self.limiter.available());
        if ready == 0 {
            return false;
        }
        // If no task is expected, waiting longer than for one batch of completions gains nothing.
        let overdue = expected == 0 && self.completed_since >= batch_size(self.limiter.in_use());
        overdue || ready >= batch_size(self.limiter.in_use() + expected)
    }

    /// How often a transfer was submitted or completed. The engine's thread compares two values.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// Records that a transfer was given to the queue. Returns its permit.
    pub(crate) fn submitted(&mut self, now: Instant) -> u32 {
        self.completed_since = 0;
        self.moves += 1;
        self.limiter.acquire(1, now)
    }

    /// Records that the transfer with this permit has completed.
    pub(crate) fn completed(&mut self, permit: u32, now: Instant) {
        self.limiter.release(permit, now);
        self.completed_since += 1;
        self.moves += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A pacer, and the permits of the transfers in flight.
    struct Model {
        pacer: Pacer,
        permits: std::ops::Range<u32>,
        now: Instant,
    }

    impl Model {
        fn new(cap: usize, submitted: u32) -> Self {
            let mut pacer = Pacer::new(cap, 1024);
            let now = Instant::now();
            for permit in 0..submitted {
                assert_eq!(pacer.submitted(now), permit);
            }
            Self { pacer, permits: 0..submitted, now }
        }

        fn completed(&mut self, count: usize) {
            self.permits
                .by_ref()
                .take(count)
                .for_each(|permit| self.pacer.completed(permit, self.now));
        }
    }

    #[test]
    fn a_lone_operation_is_submitted_at_once() {
        assert!(Pacer::new(256, 0).is_due(1, 0));
        assert!(!Pacer::new(256, 0).is_due(0, 0));
    }

    #[test]
    fn under_load_an_eighth_is_a_batch() {
        let mut model = Model::new(256, 128);
        assert!(!model.pacer.is_due(15, 0));
        assert!(model.pacer.is_due(16, 0));
        // The reactor has woken the tasks of all completions: what they push is submitted in
        // batches too.
        model.completed(128);
        assert!(!model.pacer.is_due(15, 128));
        assert!(model.pacer.is_due(16, 128));
        // The reactor has returned.
        assert!(model.pacer.is_due(1, 0));
    }

    #[test]
    fn no_more_is_submitted_than_the_limiter_allows() {
        let mut model = Model::new(8, 8);
        assert!(!model.pacer.is_due(1000, 0));
        model.completed(1);
        assert!(model.pacer.is_due(1000, 0));
    }

    #[test]
    fn hung_transfers_hold_up_nothing() {
        let mut model = Model::new(256, 128);
        assert!(!model.pacer.is_due(1, 0));
        assert!(model.pacer.limiter.exclude_hung(model.now + TRANSFERS_HUNG_AFTER));
        assert!(model.pacer.is_due(1, 0));
    }

    #[test]
    fn one_submission_copies_a_bounded_amount() {
        let taken = |bytes| {
            let mut work = CopyWork::default();
            (1..).find(|_| {
                work.add(bytes);
                work.is_enough()
            })
        };
        assert_eq!([0, 1, 8 << 10, 32 << 10, u64::MAX].map(taken), [16, 16, 16, 4, 1].map(Some));
    }

    proptest! {
        /// Pending operations are submitted at the latest when all operations in flight have
        /// completed.
        #[test]
        fn nothing_is_held_back_forever(
            cap in 1u32..300,
            first in 0u32..300,
            waiting in 1usize..300,
        ) {
            let mut model = Model::new(cap as usize, first.min(cap));
            let mut left = first.min(cap);
            while !model.pacer.is_due(waiting, 0) {
                prop_assert!(left > 0, "held back with nothing in flight: {:?}", model.pacer);
                model.completed(1);
                left -= 1;
            }
            // With free capacity, never for more than an eighth of what was in flight.
            if first < cap {
                prop_assert!((first - left) as usize <= first as usize / BATCH_SHARE + 1);
            }
        }
    }
}
