//! What one reader has done while it was measured.

use crate::figures::Latency;
use hdrhistogram::Histogram;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Only its reader writes, so nothing is contended; each is on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Tally {
    operations: AtomicU64,
    latencies: Mutex<Vec<u64>>,
}

impl Tally {
    /// One more; in nanoseconds, where it was timed.
    pub fn count(&self, latency: Option<u64>) {
        self.operations.store(self.operations() + 1, Ordering::Relaxed);
        if let Some(latency) = latency {
            self.record(latency);
        }
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
