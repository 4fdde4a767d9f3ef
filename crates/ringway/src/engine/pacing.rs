//! When operations that have gathered are entered together: the arithmetic, as pure data.
//!
//! Entering each operation by itself costs a system call each; entering all that have completed at
//! once makes a convoy: the device stands idle while they are prepared, and then has them all.
//! Groups of an eighth of what is in flight have neither fault. A lone operation is a group. What
//! is held back waits for completions, of which there are at least eight on their way, or for the
//! reaper, who comes back after the tasks that it woke. When nothing has moved for a while the
//! engine's thread enters it: what is on its way may hang.

use super::limiter::Limiter;
use std::time::{Duration, Instant};

/// The share of what is in flight that makes a group.
const BATCH_SHARE: usize = 8;
/// The largest group: as many as a submission queue takes at once.
const MAX_BATCH: usize = 64;

/// What one enter may take of transfers through the page cache. On io_uring the thread that enters
/// copies what is cached, and asks the device for the rest, some microseconds for each: this keeps
/// it for less than 100 us.
const MAX_WORK: usize = 16;
/// Of so many bytes, each.
const WORK: u64 = 8 << 10;

/// The work that one enter has done so far of transfers through the page cache.
#[derive(Debug, Default)]
pub(crate) struct CopyWork(usize);

impl CopyWork {
    /// One more, of which the thread that enters copies so many bytes.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.0 += bytes.div_ceil(WORK).clamp(1, MAX_WORK as u64) as usize;
    }

    /// The others are for another enter.
    pub(crate) fn is_enough(&self) -> bool {
        self.0 >= MAX_WORK
    }
}

/// How many make a group, of so many in future.
fn batch_size(in_flight: usize) -> usize {
    (in_flight / BATCH_SHARE).clamp(1, MAX_BATCH)
}

/// When no transfer has completed for so long, those that are older are stuck, and take no more
/// room.
const STUCK_AFTER: Duration = Duration::from_millis(100);

/// What decides whether it is time to enter.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Of transfers that the queue has.
    pub(crate) limiter: Limiter,
    /// Completions since the last enter.
    completed_since: usize,
    /// How often a transfer has been entered or has completed.
    moves: u64,
}

impl Pacer {
    /// For at most `cap` transfers at a time, and `max_stuck` that hang.
    pub(crate) fn new(cap: usize, max_stuck: usize) -> Self {
        Self {
            limiter: Limiter::new(cap).exclude_stuck_after(STUCK_AFTER, max_stuck),
            completed_since: 0,
            moves: 0,
        }
    }

    /// Whether to enter, with so many waiting. `expected`: tasks that the reaper has woken, and
    /// after which it comes back; they will have more to enter.
    pub(crate) fn is_due(&self, waiting: usize, expected: usize) -> bool {
        let ready = waiting.min(self.limiter.available());
        // Where nobody is to come back, nothing waits for more completions than a group has.
        let overdue = expected == 0 && self.completed_since >= batch_size(self.limiter.in_use());
        ready > 0 && (overdue || ready >= batch_size(self.limiter.in_use() + expected))
    }

    /// How often a transfer has been entered or has completed: to compare with later.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// A transfer was given to the queue; its number.
    pub(crate) fn entered(&mut self, now: Instant) -> u32 {
        self.completed_since = 0;
        self.moves += 1;
        self.limiter.acquire(1, now)
    }

    /// The one with this number has completed.
    pub(crate) fn completed(&mut self, number: u32, now: Instant) {
        self.limiter.release(number, now);
        self.completed_since += 1;
        self.moves += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A pace, and the numbers of the transfers that are in future.
    struct Fleet {
        pace: Pacer,
        numbers: std::ops::Range<u32>,
        now: Instant,
    }

    impl Fleet {
        fn new(cap: usize, entered: u32) -> Self {
            let mut pace = Pacer::new(cap, 1024);
            let now = Instant::now();
            (0..entered).for_each(|number| assert_eq!(pace.entered(now), number));
            Self { pace, numbers: 0..entered, now }
        }

        fn completed(&mut self, count: usize) {
            self.numbers
                .by_ref()
                .take(count)
                .for_each(|number| self.pace.completed(number, self.now));
        }
    }

    #[test]
    fn a_lone_operation_is_entered_at_once() {
        assert!(Pacer::new(256, 0).is_due(1, 0));
        assert!(!Pacer::new(256, 0).is_due(0, 0));
    }

    #[test]
    fn under_load_an_eighth_gathers() {
        let mut fleet = Fleet::new(256, 128);
        assert!(!fleet.pace.is_due(15, 0));
        assert!(fleet.pace.is_due(16, 0));
        // The reaper has woken the tasks of all that completed: what they ask for is entered in
        // groups too.
        fleet.completed(128);
        assert!(!fleet.pace.is_due(15, 128));
        assert!(fleet.pace.is_due(16, 128));
        // And it is back.
        assert!(fleet.pace.is_due(1, 0));
    }

    #[test]
    fn no_more_than_there_is_room_for() {
        let mut fleet = Fleet::new(8, 8);
        assert!(!fleet.pace.is_due(1000, 0));
        fleet.completed(1);
        assert!(fleet.pace.is_due(1000, 0));
    }

    #[test]
    fn nothing_waits_for_what_is_stuck() {
        let mut fleet = Fleet::new(256, 128);
        assert!(!fleet.pace.is_due(1, 0));
        assert!(fleet.pace.limiter.exclude_stuck(fleet.now + STUCK_AFTER));
        assert!(fleet.pace.is_due(1, 0));
    }

    #[test]
    fn an_enter_takes_a_bounded_number_of_copies() {
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
        /// Whatever is held back is entered, at the latest when all that it waits for has
        /// completed.
        #[test]
        fn nothing_is_held_back_for_ever(cap in 1u32..300, first in 0u32..300, waiting in 1usize..300) {
            let mut fleet = Fleet::new(cap as usize, first.min(cap));
            let mut left = first.min(cap);
            while !fleet.pace.is_due(waiting, 0) {
                prop_assert!(left > 0, "held back with nothing in future: {:?}", fleet.pace);
                fleet.completed(1);
                left -= 1;
            }
            // Never for more than an eighth of what was in future, where there was room.
            if first < cap {
                prop_assert!((first - left) as usize <= first as usize / BATCH_SHARE + 1);
            }
        }
    }
}
