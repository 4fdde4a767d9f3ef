//! One measurement, in a process that does nothing else: its phases, and its figures.

use crate::figures::{FIRST_HALF, LEAST_SHARE, OPERATIONS, READERS, VOLUNTARY};
use crate::scan::Scan;
use crate::tally::{self, Tally};
use crate::workload::Workload;
use anyhow::{bail, ensure};
use ringway_measure::machine::Machine;
use ringway_measure::rounds::{OTHERS, Turn};
use ringway_measure::usage::{Others, Snapshot, Usage};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take until all readers have begun.
const START_LIMIT: Duration = Duration::from_secs(30);

/// What a child process measures.
#[derive(Debug, Deserialize, Serialize)]
pub struct Assignment {
    pub contestant: String,
    pub workload: Workload,
    pub file: PathBuf,
    pub size: u64,
    pub warm_up: Duration,
    pub time: Duration,
    /// Run this many operations instead of `time`.
    pub operations: Option<u64>,
    /// The ranges of a scan.
    pub scan: Option<Scan>,
}

const WARMING_UP: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

/// The measurement. It lives as long as the process, so readers on any thread may refer to it.
#[derive(Debug)]
pub struct Job {
    pub workload: Workload,
    pub file: PathBuf,
    pub size: u64,
    pub scan: Option<Scan>,
    warm_up: Duration,
    time: Duration,
    phase: AtomicU8,
    /// One for each reader; where a timed task runs next to the readers, the last one has its
    /// latencies.
    pub tallies: Box<[Tally]>,
    /// The number of readers.
    readers: AtomicUsize,
    /// Readers that have begun.
    begun: AtomicUsize,
    /// Readers that have done all their operations.
    ended: AtomicUsize,
    pub operations: Option<u64>,
    /// Bytes appended to the log.
    appended: AtomicU64,
    failure: OnceLock<String>,
}

impl Job {
    /// Creates the only job of this process; it is never freed.
    pub fn new(assignment: Assignment) -> &'static Self {
        let Assignment { contestant: _, workload, file, size, warm_up, time, operations, scan } =
            assignment;
        let tallies = workload.readers + usize::from(workload.operation.has_timed_task());
        Box::leak(Box::new(Self {
            workload,
            file,
            size,
            scan,
            warm_up,
            time,
            phase: AtomicU8::new(if operations.is_some() { MEASURING } else { WARMING_UP }),
            tallies: (0..tallies).map(|_| Tally::default()).collect(),
            readers: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            operations,
            appended: AtomicU64::new(0),
            failure: OnceLock::new(),
        }))
    }

    /// Opens the file with the flags of the workload. Each call creates a new open file
    /// description.
    pub fn open(&self) -> io::Result<File> {
        let write = self.workload.operation.writes();
        OpenOptions::new().read(true).write(write).custom_flags(self.open_flags()).open(&self.file)
    }

    /// The flags of the workload, for contestants that open the file themselves.
    pub fn open_flags(&self) -> i32 {
        if self.workload.direct { libc::O_DIRECT } else { 0 }
    }

    /// The offset of the next records of a log. At the end of the file, the log starts again.
    pub fn append(&self, records: usize) -> u64 {
        let bytes = (self.workload.block * records) as u64;
        let at = self.appended.fetch_add(bytes, Ordering::Relaxed) % self.size;
        if at + bytes > self.size { 0 } else { at }
    }

    /// Records a latency of the task that runs next to the readers.
    pub fn record_latency(&self, time: Duration) {
        if let Some(last) = self.tallies.last().filter(|_| self.is_measuring()) {
            last.record_latency(time.as_nanos() as u64);
        }
    }

    /// Ends the measurement: figures after a failure have no meaning. The first failure is
    /// reported.
    pub fn fail(&self, why: String) {
        let _ = self.failure.set(why);
        self.phase.store(OVER, Ordering::Relaxed);
    }

    /// This many readers will begin.
    pub fn expect_readers(&self, readers: usize) {
        self.readers.store(readers, Ordering::Relaxed);
    }

    /// A reader begins its first operation.
    pub fn reader_has_begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// A reader has done all its operations.
    pub fn reader_has_ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether operations that complete now are counted.
    pub fn is_measuring(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == MEASURING
    }

    /// Whether readers must stop.
    pub fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OVER
    }

    /// Waits until all readers have begun, waits for the warm-up, and measures. The readers must
    /// have been started before. The calling thread does nothing else.
    pub fn measure(&self) -> anyhow::Result<Turn> {
        if self.operations.is_some() {
            return self.count();
        }
        self.wait_for_readers(&self.begun, START_LIMIT)?;
        let all_begun = Instant::now();
        thread::sleep(self.warm_up);
        let (others, machine, opened) = (Others::start(), Machine::now(), Snapshot::of_process());
        // A reader that has failed has ended the job.
        let _ = self.phase.compare_exchange(
            WARMING_UP,
            MEASURING,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        thread::sleep(self.time / 2);
        let first_half = self.counted();
        thread::sleep(self.time / 2);
        let usage = Snapshot::of_process().since(&opened);
        let (others, machine) = (others.processors(), machine.and_then(|since| since.busy()));
        self.phase.store(OVER, Ordering::Relaxed);
        self.check()?;
        let mut turn = self.figures(usage, machine, all_begun.elapsed())?;
        turn.set(FIRST_HALF, first_half as f64 / self.counted() as f64);
        turn.set(OTHERS, others);
        Ok(turn)
    }

    /// Waits until all readers have done their operations. The cost of starting them is included.
    fn count(&self) -> anyhow::Result<Turn> {
        let (machine, opened) = (Machine::now(), Snapshot::of_process());
        self.wait_for_readers(&self.ended, Duration::MAX)?;
        let usage = Snapshot::of_process().since(&opened);
        self.figures(usage, machine.and_then(|since| since.busy()), usage.real)
    }

    fn figures(
        &self,
        usage: Usage,
        machine: Option<Duration>,
        since_begun: Duration,
    ) -> anyhow::Result<Turn> {
        let operations = self.counted();
        ensure!(operations > 0, "no operation was completed within {:?}", self.time);
        let readers = self.readers.load(Ordering::Relaxed);
        let mean = operations as f64 / readers as f64;
        let mut turn = Turn::of_operations(operations, &usage, machine);
        // If readers have completed fewer than two operations on average, the longest latencies are
        // still missing.
        if since_begun.div_duration_f64(usage.real) * mean >= 2.0 {
            tally::latencies(&self.tallies, &mut turn);
        }
        tally::polls(&self.tallies, &mut turn);
        let least = self.tallies[..readers].iter().map(Tally::operations).min().unwrap_or(0);
        turn.set(OPERATIONS, operations as f64);
        turn.set(READERS, readers as f64);
        turn.set(VOLUNTARY, usage.voluntary_switches as f64 / operations as f64);
        turn.set(LEAST_SHARE, least as f64 / mean);
        Ok(turn)
    }

    /// Waits until `counter` has reached the number of readers.
    fn wait_for_readers(&self, counter: &AtomicUsize, limit: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        while counter.load(Ordering::Relaxed) < self.readers.load(Ordering::Relaxed) {
            self.check()?;
            ensure!(started.elapsed() < limit, "some readers did not begin within {limit:?}");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn counted(&self) -> u64 {
        self.tallies.iter().map(Tally::operations).sum()
    }

    fn check(&self) -> anyhow::Result<()> {
        match self.failure.get() {
            Some(why) => bail!("{why}"),
            None => Ok(()),
        }
    }
}

/// A job of this workload for tests.
#[cfg(test)]
pub fn job_of(workload: Workload, size: u64) -> &'static Job {
    Job::new(Assignment {
        contestant: String::new(),
        workload,
        file: PathBuf::new(),
        size,
        warm_up: Duration::ZERO,
        time: Duration::ZERO,
        operations: None,
        scan: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_starts_again_at_the_end_of_its_file() {
        let job = job_of(Workload { block: 10, ..Workload::puts() }, 40);
        assert_eq!([job.append(1), job.append(2), job.append(1), job.append(1)], [0, 10, 30, 0]);
        assert_eq!([job.append(2), job.append(2)], [10, 0], "records are never split");
    }
}
