//! What one reader has done while it was measured.

use crate::figures::{Latency, Polls};
use hdrhistogram::Histogram;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Only its reader writes, so nothing is contended; each is on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Tally {
    operations: AtomicU64,
    latencies: Mutex<Vec<u64>>,
    polls: Mutex<Vec<Poll>>,
}

/// What one poll took, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    pub wall: u64,
    /// Processor time of the thread.
    pub cpu: u64,
}

impl Tally {
    /// One more; in nanoseconds, where it was timed.
    pub fn count(&self, latency: Option<u64>) {
        self.count_untimed(1);
        if let Some(latency) = latency {
            self.record(latency);
        }
    }

    /// So many more.
    pub fn count_untimed(&self, operations: u64) {
        self.operations.store(self.operations() + operations, Ordering::Relaxed);
    }

    pub fn poll(&self, poll: Poll) {
        self.polls.lock().expect("no reader panics").push(poll);
    }

    /// The time of what is no operation of the row.
    pub fn record(&self, nanoseconds: u64) {
        self.latencies.lock().expect("no reader panics").push(nanoseconds);
    }

    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }
}

/// Those of all readers; none where nothing was timed.
pub fn latency(tallies: &[Tally]) -> anyhow::Result<Option<Latency>> {
    let mut histogram = Histogram::<u64>::new(3)?;
    for tally in tallies {
        for nanoseconds in tally.latencies.lock().expect("no reader panics").iter() {
            histogram.record(*nanoseconds)?;
        }
    }
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    Ok((!histogram.is_empty()).then(|| Latency { p50: at(0.5), p99: at(0.99) }))
}

/// The polls of all readers; none where none was timed.
pub fn polls(tallies: &[Tally]) -> anyhow::Result<Option<Polls>> {
    let (mut wall, mut cpu) = (Histogram::<u64>::new(3)?, Histogram::<u64>::new(3)?);
    for tally in tallies {
        for poll in tally.polls.lock().expect("no reader panics").iter() {
            wall.record(poll.wall)?;
            cpu.record(poll.cpu)?;
        }
    }
    Ok((!wall.is_empty()).then(|| Polls { wall: longest(&wall), cpu: longest(&cpu) }))
}

fn longest(polls: &Histogram<u64>) -> [f64; 3] {
    [polls.value_at_quantile(0.999), polls.value_at_quantile(0.9999), polls.max()]
        .map(|poll| poll as f64 / 1000.0)
}
