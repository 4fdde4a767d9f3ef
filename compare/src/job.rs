//! One measurement, in the process that does nothing else: its phases, its readers, and what came of it.

use crate::figures::{Figures, Latency};
use crate::offsets::Offsets;
use crate::shape::{Shape, Work};
use crate::usage::Usage;
use anyhow::{bail, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long all readers may take to begin.
const BEGINNING: Duration = Duration::from_secs(30);

/// What a child process is told.
#[derive(Debug, Deserialize, Serialize)]
pub struct Order {
    pub contestant: String,
    pub shape: Shape,
    pub file: PathBuf,
    pub size: u64,
    pub warm_up: Duration,
    pub time: Duration,
}

const WARMING_UP: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

/// The measurement. It lives as long as the process, so that readers on any thread may refer to it.
#[derive(Debug)]
pub struct Job {
    pub shape: Shape,
    pub file: PathBuf,
    pub size: u64,
    warm_up: Duration,
    time: Duration,
    phase: AtomicU8,
    tallies: Box<[Tally]>,
    handed_out: AtomicUsize,
    begun: AtomicUsize,
    failure: OnceLock<String>,
}

/// What one reader has done while it was measured. Only that reader writes, so nothing is contended; each is on a cache
/// line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Tally {
    operations: AtomicU64,
    latencies: Mutex<Vec<u64>>,
}

impl Job {
    /// Never freed: there is one in a process.
    pub fn new(order: Order) -> &'static Self {
        let Order { contestant: _, shape, file, size, warm_up, time } = order;
        Box::leak(Box::new(Self {
            shape,
            file,
            size,
            warm_up,
            time,
            phase: AtomicU8::new(WARMING_UP),
            tallies: (0..shape.readers).map(|_| Tally::default()).collect(),
            handed_out: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            failure: OnceLock::new(),
        }))
    }

    /// The file, by a descriptor of its own, with the flags that the shape wants.
    pub fn open(&self) -> io::Result<File> {
        self.open_options().open(&self.file)
    }

    /// For those who open it themselves.
    pub fn open_options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(self.shape.work == Work::Write).custom_flags(self.open_flags());
        options
    }

    pub fn open_flags(&self) -> i32 {
        if self.shape.direct { libc::O_DIRECT } else { 0 }
    }

    /// All readers of the shape.
    pub fn readers(&'static self) -> Vec<Reader> {
        self.at_most(self.shape.readers)
    }

    /// So many of them, for a contestant that cannot have all.
    pub fn at_most(&'static self, most: usize) -> Vec<Reader> {
        let readers = self.shape.readers.min(most);
        self.handed_out.store(readers, Ordering::Relaxed);
        let block = self.shape.block as u64;
        let reader = |index| Reader {
            job: self,
            tally: &self.tallies[index],
            offsets: Offsets::new(self.shape.order, block, self.size / block, index, readers),
            begun: false,
            since: None,
        };
        (0..readers).map(reader).collect()
    }

    /// Whether readers are to stop.
    pub fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OVER
    }

    /// Ends it: nothing that is measured after a failure would mean anything. The first one is told.
    pub fn fail(&self, why: String) {
        let _ = self.failure.set(why);
        self.phase.store(OVER, Ordering::Relaxed);
    }

    /// Waits until all readers are at work, lets them warm up, and measures. They have been handed out and started; the
    /// calling thread does nothing else.
    pub fn measure(&self) -> anyhow::Result<Figures> {
        let asked = Instant::now();
        let readers = self.handed_out.load(Ordering::Relaxed);
        while self.begun.load(Ordering::Relaxed) < readers {
            self.check()?;
            ensure!(asked.elapsed() < BEGINNING, "some readers did not begin within {BEGINNING:?}");
            thread::sleep(Duration::from_millis(1));
        }
        let all_begun = Instant::now();
        thread::sleep(self.warm_up);
        let (usage, opened) = (Usage::now(), Instant::now());
        self.phase.compare_exchange(WARMING_UP, MEASURING, Ordering::Relaxed, Ordering::Relaxed).ok();
        thread::sleep(self.time);
        let (usage, seconds) = (Usage::now() - usage, opened.elapsed().as_secs_f64());
        self.phase.store(OVER, Ordering::Relaxed);
        self.check()?;
        self.figures(readers, usage, seconds, all_begun.elapsed())
    }

    fn check(&self) -> anyhow::Result<()> {
        match self.failure.get() {
            Some(why) => bail!("{why}"),
            None => Ok(()),
        }
    }

    fn figures(&self, readers: usize, usage: Usage, seconds: f64, running: Duration) -> anyhow::Result<Figures> {
        let tallies = &self.tallies[..readers];
        let of_each = || tallies.iter().map(|tally| tally.operations.load(Ordering::Relaxed));
        let operations: u64 = of_each().sum();
        ensure!(operations > 0, "no operation was completed within {:?}", self.time);
        // Where not each reader had its turn twice, those that wait longest are not among the latencies yet.
        let turn = readers as f64 * seconds / operations as f64;
        let latency = if running.as_secs_f64() < 2.0 * turn { None } else { latency(tallies)? };
        let mean = operations as f64 / readers as f64;
        let least = of_each().min().unwrap_or(0) as f64 / mean;
        Ok(Figures { operations, seconds, usage, latency, readers, least_share: least })
    }
}

fn latency(tallies: &[Tally]) -> anyhow::Result<Option<Latency>> {
    let mut histogram = Histogram::<u64>::new(3)?;
    for tally in tallies {
        for nanoseconds in tally.latencies.lock().expect("no reader panics").iter() {
            histogram.record(*nanoseconds)?;
        }
    }
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    Ok((!histogram.is_empty()).then(|| Latency { p50: at(0.5), p99: at(0.99) }))
}

/// One task's, thread's or slot's part of the work: it says where to read, and counts.
///
/// ```text
/// while reader.begin() {
///     let result = file.read_at(&mut buffer, reader.offset());
///     reader.end(result);
/// }
/// ```
#[derive(Debug)]
pub struct Reader {
    job: &'static Job,
    tally: &'static Tally,
    offsets: Offsets,
    begun: bool,
    since: Option<Instant>,
}

impl Reader {
    pub fn job(&self) -> &'static Job {
        self.job
    }

    /// Begins an operation, unless it is time to stop.
    pub fn begin(&mut self) -> bool {
        if !self.begun {
            self.begun = true;
            self.job.begun.fetch_add(1, Ordering::Relaxed);
        }
        // A cached read takes not much longer than looking at the clock twice: then one in eight is looked at.
        let timed = self.job.shape.direct || self.offsets.draw().is_multiple_of(8);
        self.since = timed.then(Instant::now);
        !self.job.is_over()
    }

    /// Where it reads or writes.
    pub fn offset(&mut self) -> u64 {
        self.offsets.next()
    }

    /// The operation is done: one block, or it failed.
    pub fn end(&mut self, result: io::Result<usize>) {
        match result {
            Ok(bytes) if bytes == self.job.shape.block => self.count(),
            Ok(bytes) => self.job.fail(format!("{bytes} bytes instead of {}", self.job.shape.block)),
            Err(error) => self.job.fail(error.to_string()),
        }
    }

    fn count(&mut self) {
        if self.job.phase.load(Ordering::Relaxed) != MEASURING {
            return;
        }
        let operations = &self.tally.operations;
        operations.store(operations.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if let Some(since) = self.since {
            let latency = since.elapsed().as_nanos() as u64;
            self.tally.latencies.lock().expect("no reader panics").push(latency);
        }
    }
}
