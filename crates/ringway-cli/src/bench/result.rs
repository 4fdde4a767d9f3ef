//! What came out of a measurement: plain data from which every report is made.

use super::workload::Workload;
use hdrhistogram::Histogram;
use std::time::Duration;

/// Requests of one direction.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Requests completed.
    pub ops: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Nanoseconds from submission to completion; in a fixed-rate run from when the request was
    /// due, with those that were due and never started.
    pub latency: Histogram<u64>,
    /// In a fixed-rate run, nanoseconds from submission to completion.
    pub submitted: Option<Histogram<u64>>,
}

/// What the processors did, all threads of the process and the kernel's helpers for it.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Usage {
    /// Wall time of the measured part.
    pub real: Duration,
    /// User time, all threads.
    pub user: Duration,
    /// System time, all threads, helpers included.
    pub system: Duration,
    /// Of `system`: the SQPOLL threads.
    pub sqpoll: Duration,
    /// Of `system`: the io-wq workers that lived at the end.
    pub io_wq: Duration,
    /// The most io-wq workers seen alive.
    pub io_wq_workers: u32,
    /// Voluntary and involuntary context switches.
    pub context_switches: u64,
    /// System calls made for I/O, as the queue counts them; `None` where it cannot.
    pub system_calls: Option<u64>,
}

/// One run of one cell.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Syncs: operations and their latency.
    pub sync: Direction,
    /// Processor time and its like.
    pub usage: Usage,
    /// Requests that failed: errno and how often.
    pub errors: Vec<(i32, u64)>,
    /// Requests that were due, at a fixed rate, and had not been started at the end.
    pub not_started: u64,
    /// Blocks whose bytes were checked, and how many of them were wrong.
    pub verified: Option<(u64, u64)>,
    /// The same of each job, where jobs are reported one by one.
    pub jobs: Vec<Run>,
}

/// One cell with all its runs.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What was run.
    pub workload: Workload,
    /// The runs in the order they were made.
    pub runs: Vec<Run>,
    /// Why this cell could not run, or not as it was asked to (flags refused and so on).
    pub notes: Vec<String>,
}

/// The machine and the files a report speaks of.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Processors.
    pub cpus: usize,
    /// File system of the target, `ext4` and so on.
    pub file_system: String,
    /// Block device beneath, with its queue: `vda, scheduler mq-deadline, nr_requests 256`.
    pub device: String,
    /// Bytes of the target.
    pub target_size: u64,
    /// Shown above the report: target path, what was written and so on.
    pub remarks: Vec<String>,
    /// Backends that this machine refuses, each with the reason and the fix.
    pub refused: Vec<String>,
}

/// Everything a report is made from.
#[derive(Clone, Debug)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The cells in the order of the matrix.
    pub cells: Vec<Cell>,
    /// The command line that made it.
    pub command: String,
}

impl Direction {
    /// An empty record with three significant digits from 1 ns to 100 s.
    pub fn new() -> Self {
        Self { ops: 0, bytes: 0, latency: empty(), submitted: None }
    }

    /// Counts a completed request.
    #[inline]
    pub fn count(&mut self, bytes: u64, latency: u64, since_submitted: Option<u64>) {
        self.ops += 1;
        self.bytes += bytes;
        self.latency.saturating_record(latency.max(1));
        if let Some(latency) = since_submitted {
            self.submitted.get_or_insert_with(empty).saturating_record(latency.max(1));
        }
    }

    /// From submission to completion, at whatever rate.
    pub fn completion(&self) -> &Histogram<u64> {
        self.submitted.as_ref().unwrap_or(&self.latency)
    }

    /// Add another record of the same direction.
    pub fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.latency.add(&other.latency).expect("both histograms have the same bounds");
        if let Some(submitted) = &other.submitted {
            let ours = self.submitted.get_or_insert_with(empty);
            ours.add(submitted).expect("both histograms have the same bounds");
        }
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds are valid")
}

impl Default for Direction {
    fn default() -> Self {
        Self::new()
    }
}

impl Run {
    /// Reads and writes together.
    pub fn ops(&self) -> u64 {
        self.read.ops + self.write.ops
    }

    /// Bytes moved, both directions.
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }

    /// Requests that failed.
    pub fn failed(&self) -> u64 {
        self.errors.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Operations a second of wall time.
    pub fn ops_per_second(&self) -> f64 {
        self.ops() as f64 / self.usage.real.as_secs_f64().max(1e-9)
    }

    /// Processor microseconds (user + system, helpers included) an operation.
    pub fn cpu_us_per_op(&self) -> f64 {
        (self.usage.user + self.usage.system).as_secs_f64() * 1e6 / (self.ops().max(1)) as f64
    }

    /// Latency of reads and writes together.
    pub fn latency(&self) -> Histogram<u64> {
        let mut both = self.read.latency.clone();
        both.add(&self.write.latency).expect("both histograms have the same bounds");
        both
    }
}

impl Cell {
    /// The run whose operations a second are the median; `None` when the cell did not run.
    pub fn median(&self) -> Option<&Run> {
        let mut order: Vec<&Run> = self.runs.iter().collect();
        order.sort_by(|a, b| a.ops_per_second().total_cmp(&b.ops_per_second()));
        order.get(order.len().saturating_sub(1) / 2).copied()
    }
}
