//! What an engine has done, in figures.

use hdrhistogram::Histogram;
use ringway_core::Counts;
use std::time::Duration;

/// What an engine has done so far. From [`Engine::stats`](crate::Engine::stats).
#[derive(Clone, Debug)]
pub struct Stats {
    /// Operations that were pushed: pushed = delivered + orphaned + in future, at every moment.
    pub counts: Counts,
    /// Of those in future, the ones whose turn has not come: they wait for a group to gather, or
    /// for room.
    pub queued: u64,
    /// Reads that were answered from the page cache at once and never became an operation; they are
    /// not in `counts`.
    pub cached: u64,
    /// System calls made for I/O, by ringway's threads too; those for cached reads not counted.
    pub system_calls: u64,
    /// How often operations were submitted, and how many at a time.
    pub batches: Batches,
    /// Answers that were not shown but led to another try (EINTR, EAGAIN, ECANCELED that nobody
    /// asked for).
    pub retries: u64,
    /// Short transfers that were continued.
    pub continued: u64,
    /// Operations that went to ringway's threads because the backend could not carry them.
    pub to_threads: u64,
    /// Times that the kernel would not let the queue as a whole submit or reap; nothing is lost by
    /// one, and it is tried again.
    pub failures: u64,
    /// Features and backends that were refused; [`Engine::explain`](crate::Engine::explain) has the
    /// reasons.
    pub refusals: usize,
    /// From the first poll of an operation's future to its completion being picked up, of every
    /// eighth push. Cached reads are not in it.
    pub latency: Latency,
}

/// How operations were submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// Times that operations were submitted.
    pub count: u64,
    /// Operations that were submitted.
    pub operations: u64,
    /// The most at a time.
    pub largest: u64,
}

impl Batches {
    /// Operations at a time, on average; 0 with none.
    pub fn mean(&self) -> f64 {
        self.operations as f64 / self.count.max(1) as f64
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.operations += other.operations;
        self.largest = self.largest.max(other.largest);
    }
}

/// Times, as a histogram with a relative error of at most 1 %.
#[derive(Clone)]
pub struct Latency(Histogram<u64>);

impl Latency {
    pub(crate) fn new() -> Self {
        // Nanoseconds up to an hour; two significant digits take 30 KiB.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 2);
        Self(histogram.or_else(|_| Histogram::new(2)).expect("these bounds are valid"))
    }

    fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // All have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// How many times were recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that this share of all stays below; `0.99` gives the 99th percentile. Zero with
    /// none recorded.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share.clamp(0.0, 1.0)))
    }

    /// The mean. Zero with none recorded.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }

    /// The longest. Zero with none recorded.
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

/// Records what one shard does.
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

    /// So many operations are being submitted.
    pub(crate) fn batch(&mut self, operations: usize) {
        if operations > 0 {
            let operations = operations as u64;
            self.batches.add(Batches { count: 1, operations, largest: operations });
        }
    }

    /// An operation took this long.
    pub(crate) fn latency(&mut self, time: Duration) {
        self.latency.record(time);
    }
}
