//! When operations that have gathered are entered together: the arithmetic, as pure data.
//!
//! Entering each operation by itself costs a system call each; entering all that have completed at once makes a convoy:
//! the device stands idle while they are prepared, and then has them all. Groups of an eighth of what is in flight have
//! neither fault. A lone operation is a group. There is no timer: what is held back waits for completions, of which
//! there are at least eight on their way, or for the reaper, who comes back after the tasks that it woke.

/// The share of what is in flight that makes a group.
const SHARE: usize = 8;
/// The largest group: as many as a submission queue takes at once.
const LARGEST: usize = 64;

/// What one enter may take of transfers through the page cache. On io_uring the thread that enters copies what is cached,
/// and asks the device for the rest, some microseconds for each: this keeps it for less than 100 us.
const MOST_WORK: usize = 16;
/// Of so many bytes, each.
const WORK: u64 = 8 << 10;

/// The work that one enter has done so far of transfers through the page cache.
#[derive(Debug, Default)]
pub(crate) struct Work(usize);

impl Work {
    /// One more, of which the thread that enters copies so many bytes.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.0 += bytes.div_ceil(WORK).clamp(1, MOST_WORK as u64) as usize;
    }

    /// The others are for another enter.
    pub(crate) fn is_enough(&self) -> bool {
        self.0 >= MOST_WORK
    }
}

/// How many make a group, of so many in flight.
fn group(in_flight: usize) -> usize {
    (in_flight / SHARE).clamp(1, LARGEST)
}

/// What decides whether it is time to enter.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Transfers that the queue has.
    in_flight: usize,
    /// The most of them.
    cap: usize,
    /// Completions since the last enter.
    since: usize,
}

impl Pace {
    pub(crate) fn new(cap: usize) -> Self {
        Self { in_flight: 0, cap: cap.max(1), since: 0 }
    }

    /// How many more the queue may have.
    pub(crate) fn room(&self) -> usize {
        self.cap.saturating_sub(self.in_flight)
    }

    /// Whether to enter, with so many waiting. `expected`: tasks that the reaper has woken, and after which it comes back; they
    /// will have more to enter.
    pub(crate) fn is_due(&self, waiting: usize, expected: usize) -> bool {
        let ready = waiting.min(self.room());
        // Where nobody is to come back, nothing waits for more completions than a group has.
        let overdue = expected == 0 && self.since >= group(self.in_flight);
        ready > 0 && (overdue || ready >= group(self.in_flight + expected))
    }

    /// So many were given to the queue.
    pub(crate) fn entered(&mut self, count: usize) {
        self.in_flight += count;
        self.since = 0;
    }

    /// So many have completed.
    pub(crate) fn completed(&mut self, count: usize) {
        self.in_flight = self.in_flight.saturating_sub(count);
        self.since += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lone_operation_is_entered_at_once() {
        assert!(Pace::new(256).is_due(1, 0));
        assert!(!Pace::new(256).is_due(0, 0));
    }

    #[test]
    fn under_load_an_eighth_gathers() {
        let mut pace = Pace::new(256);
        pace.entered(128);
        assert!(!pace.is_due(15, 0));
        assert!(pace.is_due(16, 0));
        // The reaper has woken the tasks of all that completed: what they ask for is entered in groups too.
        pace.completed(128);
        assert!(!pace.is_due(15, 128));
        assert!(pace.is_due(16, 128));
        // And it is back.
        assert!(pace.is_due(1, 0));
    }

    #[test]
    fn no_more_than_there_is_room_for() {
        let mut pace = Pace::new(8);
        pace.entered(8);
        assert!(!pace.is_due(1000, 0));
        pace.completed(1);
        assert!(pace.is_due(1000, 0));
    }

    #[test]
    fn an_enter_takes_a_bounded_number_of_copies() {
        let taken = |bytes| {
            let mut work = Work::default();
            (1..).find(|_| {
                work.add(bytes);
                work.is_enough()
            })
        };
        assert_eq!([0, 1, 8 << 10, 32 << 10, u64::MAX].map(taken), [16, 16, 16, 4, 1].map(Some));
    }

    proptest! {
        /// Whatever is held back is entered, at the latest when all that it waits for has completed.
        #[test]
        fn nothing_is_held_back_for_ever(cap in 1usize..300, first in 0usize..300, waiting in 1usize..300) {
            let mut pace = Pace::new(cap);
            pace.entered(first.min(cap));
            let mut left = first.min(cap);
            while !pace.is_due(waiting, 0) {
                prop_assert!(left > 0, "held back with nothing in flight: {pace:?}");
                pace.completed(1);
                left -= 1;
            }
            // Never for more than an eighth of what was in flight, where there was room.
            if first < cap {
                prop_assert!(first - left <= first / SHARE + 1);
            }
        }
    }
}
