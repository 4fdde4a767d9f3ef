//! The statistics of an engine: the public types, and the recorder that each shard keeps.

use crate::pool::PoolStats;
use hdrhistogram::Histogram;
use ringway_core::Counts;
use std::time::Duration;

/// Statistics of an engine. From [`Engine::stats`](crate::Engine::stats).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Operations pushed, delivered, orphaned and in flight. At every moment pushed = delivered +
    /// orphaned + in flight.
    pub counts: Counts,
    /// Operations in flight that have not been submitted yet: they wait for a batch to fill, or for
    /// free capacity.
    pub queued: u64,
    /// Reads served from the page cache. They never become an operation, so `counts` does not
    /// include them.
    pub cached: u64,
    /// System calls made for I/O, including those of ringway's threads and excluding those of
    /// cached reads.
    pub system_calls: u64,
    /// How often operations were submitted, and how many at a time.
    pub batches: Batches,
    /// Results that were retried instead of delivered (EINTR, EAGAIN, and an ECANCELED that was not
    /// requested).
    pub retries: u64,
    /// Short transfers that were continued.
    pub continued: u64,
    /// Operations that fell back to ringway's threads: the backend does not support them, or
    /// submitting them would have waited.
    pub to_threads: u64,
    /// How often the kernel refused to submit or reap for the queue as a whole. The queue tries
    /// again, and nothing is lost.
    pub failures: u64,
    /// Features and backends that were refused. [`Engine::explain`](crate::Engine::explain) gives
    /// the reasons.
    pub refusals: usize,
    /// The memory of pooled reads and writers.
    pub pool: PoolStats,
    /// Time from the first poll of an operation's future until its completion was reaped,
    /// sampled for every eighth push. Cached reads are not included.
    pub latency: Latency,
}

/// How often operations were submitted, and how many at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batches {
    /// The number of submissions.
    pub count: u64,
    /// The number of operations submitted.
    pub operations: u64,
    /// The most operations in one submission.
    pub largest: u64,
}

impl Batches {
    /// The mean number of operations per submission; 0 if there was none.
    pub fn mean(&self) -> f64 {
        self.operations as f64 / self.count.max(1) as f64
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.operations += other.operations;
        self.largest = self.largest.max(other.largest);
    }
}

/// A histogram of times with a relative error of at most 1 %.
#[derive(Clone)]
pub struct Latency(Histogram<u64>);

impl Latency {
    pub(crate) fn new() -> Self {
        // Nanoseconds, up to one hour; two significant digits take 30 KiB.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 2);
        Self(histogram.or_else(|_| Histogram::new(2)).expect("these bounds are valid"))
    }

    fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // All histograms have the same bounds, so adding cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// The number of times recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that the fraction `share` of all recorded times does not exceed; `0.99` gives the
    /// 99th percentile. Zero if none was recorded.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share.clamp(0.0, 1.0)))
    }

    /// The mean. Zero if none was recorded.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }

    /// The longest time. Zero if none was recorded.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }
}

impl std::fmt::Debug for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latency")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("p99.9", &self.quantile(0.999))
            .field("max", &self.max())
            .finish()
    }
}

/// The recorder of one shard.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) batches: Batches,
    pub(crate) latency: Latency,
    pub(crate) failures: u64,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { batches: Batches::default(), latency: Latency::new(), failures: 0 }
    }

    /// Records that `operations` operations are being submitted at once.
    pub(crate) fn batch(&mut self, operations: usize) {
        if operations > 0 {
            let operations = operations as u64;
            self.batches.add(Batches { count: 1, operations, largest: operations });
        }
    }

    /// Records the time that one operation took.
    pub(crate) fn latency(&mut self, time: Duration) {
        self.latency.record(time);
    }
}
