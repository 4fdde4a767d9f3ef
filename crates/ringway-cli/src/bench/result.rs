//! The results of measurements, as plain data from which every report is made.

use super::workload::Workload;
use hdrhistogram::Histogram;
use ringway_measure::stats::latency_histogram;
use ringway_measure::usage::Usage;

/// Requests of one direction.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Requests completed.
    pub ops: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Nanoseconds from submission to completion; at a fixed rate from the scheduled start, with
    /// requests that were due and never started.
    pub latency: Histogram<u64>,
    /// At a fixed rate, nanoseconds from submission to completion.
    pub submitted: Option<Histogram<u64>>,
}

/// One run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Syncs.
    pub sync: Direction,
    /// What it cost.
    pub usage: Usage,
    /// Processors that other programs kept busy meanwhile, on average; `None` if the run was too
    /// short to tell.
    pub other_processors: Option<f64>,
    /// System calls for I/O.
    pub system_calls: u64,
    /// Requests that failed: errno and how many.
    pub errors: Vec<(i32, u64)>,
    /// Requests that were due, at a fixed rate, and not started by the end.
    pub not_started: u64,
    /// Blocks checked, and how many of them were wrong.
    pub verified: Option<(u64, u64)>,
    /// The same for each job, where jobs are reported separately.
    pub jobs: Vec<Run>,
}

/// One configuration with all its runs.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The settings.
    pub workload: Workload,
    /// The runs in the order they were made; none if the configuration cannot run here.
    pub runs: Vec<Run>,
    /// Why it did not run, or not exactly as requested.
    pub notes: Vec<String>,
    /// Why the last run was refused; there are no further ones then.
    pub refused: Option<String>,
}

/// The machine and the files that a report is about.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Processors.
    pub cpus: usize,
    /// File system of the target: `ext4`.
    pub file_system: String,
    /// Block device below it, with its queue: `vda, scheduler mq-deadline, nr_requests 256`.
    pub device: String,
    /// Bytes of the target.
    pub target_size: u64,
    /// Shown above the report: the target, what was written and so on.
    pub remarks: Vec<String>,
    /// Backends that this machine refuses, each with the reason and the fix.
    pub refused: Vec<String>,
}

/// All that a report is made from.
#[derive(Clone, Debug)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The measurements in the order of the plan.
    pub measurements: Vec<Measurement>,
    /// The command line.
    pub command: String,
    /// How far the bench came before it was interrupted, if it was.
    pub interrupted: Option<Interrupted>,
}

/// How far an interrupted bench came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Interrupted {
    /// Runs that finished.
    pub finished: u64,
    /// Runs that the bench would have made.
    pub planned: u64,
}

impl Direction {
    /// Counts a completed request.
    #[inline]
    pub fn count(&mut self, bytes: u64, latency: u64, since_submitted: Option<u64>) {
        self.ops += 1;
        self.bytes += bytes;
        self.latency.saturating_record(latency.max(1));
        if let Some(latency) = since_submitted {
            let submitted = self.submitted.get_or_insert_with(latency_histogram);
            submitted.saturating_record(latency.max(1));
        }
    }

    /// Latency from submission to completion, at any rate.
    pub fn completion(&self) -> &Histogram<u64> {
        self.submitted.as_ref().unwrap_or(&self.latency)
    }

    /// Adds the requests of another job.
    pub fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        add(&mut self.latency, &other.latency);
        if let Some(submitted) = &other.submitted {
            add(self.submitted.get_or_insert_with(latency_histogram), submitted);
        }
    }
}

/// Adds a note unless it is there already.
pub fn add_note(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// Counts failed requests by errno.
pub fn count_error(errors: &mut Vec<(i32, u64)>, errno: i32, times: u64) {
    match errors.iter_mut().find(|(known, _)| *known == errno) {
        Some((_, count)) => *count = count.saturating_add(times),
        None => errors.push((errno, times)),
    }
}

/// Adds one histogram to another.
pub fn add(to: &mut Histogram<u64>, other: &Histogram<u64>) {
    to.add(other).expect("all latency histograms have the same bounds");
}

impl Default for Direction {
    /// No requests.
    fn default() -> Self {
        Self { ops: 0, bytes: 0, latency: latency_histogram(), submitted: None }
    }
}

impl Run {
    /// Adds the requests of a job. Its time and CPU time are a part of the run's.
    pub fn add(&mut self, job: &Self) {
        self.read.add(&job.read);
        self.write.add(&job.write);
        self.sync.add(&job.sync);
        self.system_calls += job.system_calls;
        self.not_started += job.not_started;
        for (errno, times) in &job.errors {
            count_error(&mut self.errors, *errno, *times);
        }
        if let Some((blocks, wrong)) = job.verified {
            let all = self.verified.get_or_insert_default();
            *all = (all.0 + blocks, all.1 + wrong);
        }
    }

    /// Reads and writes.
    pub fn ops(&self) -> u64 {
        self.read.ops + self.write.ops
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }

    /// Requests that failed.
    pub fn failed(&self) -> u64 {
        self.errors.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// A number of events as a rate.
    pub fn per_second(&self, events: u64) -> f64 {
        events as f64 / self.usage.real.as_secs_f64().max(1e-9)
    }

    /// Operations a second.
    pub fn ops_per_second(&self) -> f64 {
        self.per_second(self.ops())
    }

    /// CPU microseconds an operation, all threads and kernel helpers included.
    pub fn cpu_us_per_op(&self) -> f64 {
        self.usage.cpu().as_secs_f64() * 1e6 / (self.ops().max(1)) as f64
    }

    /// Latency of reads and writes together.
    pub fn latency(&self) -> Histogram<u64> {
        let mut both = self.read.latency.clone();
        add(&mut both, &self.write.latency);
        both
    }
}

impl Measurement {
    /// Of a workload that has not run yet.
    pub fn new(workload: Workload) -> Self {
        Self { workload, runs: Vec::new(), notes: Vec::new(), refused: None }
    }

    /// The run with the median of operations a second; `None` without runs.
    pub fn median(&self) -> Option<&Run> {
        let mut order: Vec<&Run> = self.runs.iter().collect();
        order.sort_by(|a, b| a.ops_per_second().total_cmp(&b.ops_per_second()));
        order.get(order.len().saturating_sub(1) / 2).copied()
    }
}
