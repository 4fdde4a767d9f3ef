//! The counters and times of one reader during the measurement.

use crate::figures::{Latency, Polls};
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

/// The latencies of all readers; `None` if nothing was timed.
pub fn latency(tallies: &[Tally]) -> Option<Latency> {
    let mut histogram = latency_histogram();
    for tally in tallies {
        for nanoseconds in tally.latencies.lock().expect("no reader panics").iter() {
            histogram.saturating_record(*nanoseconds);
        }
    }
    let at =
        |percent| percentile(&histogram, percent).map(|nanoseconds| nanoseconds as f64 / 1000.0);
    (!histogram.is_empty()).then(|| Latency { p50: at(50.0), p99: at(99.0) })
}

/// The polls of all readers; `None` if none was timed.
pub fn polls(tallies: &[Tally]) -> Option<Polls> {
    let (mut wall, mut cpu) = (latency_histogram(), latency_histogram());
    for tally in tallies {
        for poll in tally.polls.lock().expect("no reader panics").iter() {
            wall.saturating_record(poll.wall);
            cpu.saturating_record(poll.cpu);
        }
    }
    // The quantile 1 is the longest poll.
    let longest = [0.999, 0.9999, 1.0];
    (!wall.is_empty()).then(|| Polls {
        wall: longest.map(|quantile| wall.value_at_quantile(quantile) as f64 / 1000.0),
        cpu: longest.map(|quantile| cpu.value_at_quantile(quantile) as f64 / 1000.0),
    })
}
