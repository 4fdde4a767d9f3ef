//! The counters and times of one reader during the measurement.

use crate::figures::{LONGEST, P50, P99, POLLS, POLLS_CPU, POLLS_READY, POLLS_WAITED, POLLS_WALL};
use ringway_measure::rounds::Turn;
use ringway_measure::stats::{latency_histogram, percentile};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Only one reader writes to a tally, so its locks are never contended. The alignment keeps tallies
/// on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Tally {
    operations: AtomicU64,
    latencies: Mutex<Vec<u64>>,
    polls: Mutex<Vec<Poll>>,
}

/// The time of one poll in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    pub wall: u64,
    /// CPU time of the thread.
    pub cpu: u64,
    /// Time in which the thread was ready to run, but others had the processors; 0 if unknown.
    pub ready: u64,
}

impl Tally {
    /// Counts operations.
    pub fn count(&self, operations: u64) {
        self.operations.store(self.operations() + operations, Ordering::Relaxed);
    }

    /// Records the time of a poll.
    pub fn record_poll(&self, poll: Poll) {
        self.polls.lock().expect("no reader panics").push(poll);
    }

    /// Records a latency in nanoseconds.
    pub fn record_latency(&self, nanoseconds: u64) {
        self.latencies.lock().expect("no reader panics").push(nanoseconds);
    }

    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }
}

/// Adds the latencies of all readers, as far as operations were timed.
pub fn latencies(tallies: &[Tally], turn: &mut Turn) {
    let mut histogram = latency_histogram();
    for tally in tallies {
        for nanoseconds in tally.latencies.lock().expect("no reader panics").iter() {
            histogram.saturating_record(*nanoseconds);
        }
    }
    for (name, percent) in [(P50, 50.0), (P99, 99.0)] {
        turn.set(name, percentile(&histogram, percent).map(micros));
    }
    turn.set(LONGEST, (!histogram.is_empty()).then(|| micros(histogram.max())));
}

/// Adds the polls of all readers, if they were timed.
pub fn polls(tallies: &[Tally], turn: &mut Turn) {
    let mut all = [(); 4].map(|()| latency_histogram());
    for tally in tallies {
        for poll in tally.polls.lock().expect("no reader panics").iter() {
            // What is left of the time: the thread slept in a system call.
            let waited = poll.wall.saturating_sub(poll.cpu + poll.ready);
            for (times, time) in all.iter_mut().zip([poll.wall, poll.cpu, waited, poll.ready]) {
                times.saturating_record(time);
            }
        }
    }
    turn.set(POLLS, Some(all[0].len() as f64).filter(|polls| *polls > 0.0));
    for (names, times) in [POLLS_WALL, POLLS_CPU, POLLS_WAITED, POLLS_READY].into_iter().zip(all) {
        let longest = (!times.is_empty()).then(|| times.max());
        let [long, longer] = [99.9, 99.99].map(|percent| percentile(&times, percent));
        for (name, time) in names.into_iter().zip([long, longer, longest]) {
            turn.set(name, time.map(micros));
        }
    }
}

fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_polls_need_enough_of_them() {
        let figures = |polls| {
            let tally = Tally::default();
            (0..polls).for_each(|_| tally.record_poll(Poll { wall: 9_000, cpu: 9_000, ready: 0 }));
            let mut turn = Turn::default();
            super::polls(&[tally], &mut turn);
            POLLS_WALL.map(|name| turn.get(name).is_some())
        };
        assert_eq!(figures(0), [false, false, false]);
        assert_eq!(figures(999), [false, false, true]);
        assert_eq!(figures(1_000), [true, false, true]);
        assert_eq!(figures(10_000), [true, true, true]);
    }
}
