//! One measurement, in the process that does nothing else: its phases, its readers, and what came
//! of it.

use crate::figures::Figures;
use crate::offsets::Offsets;
use crate::reader::Reader;
use crate::shape::Shape;
use crate::tally::{self, Tally};
use crate::usage::{self, Usage};
use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long all readers may take to begin.
const BEGINNING: Duration = Duration::from_secs(30);

/// What a child process is told.
#[derive(Debug, Deserialize, Serialize)]
pub struct Assignment {
    pub contestant: String,
    pub shape: Shape,
    pub file: PathBuf,
    pub size: u64,
    pub warm_up: Duration,
    pub time: Duration,
    /// As many operations as this, instead of a time.
    pub operations: Option<u64>,
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
    /// Readers that have done all their operations.
    ended: AtomicUsize,
    counted: Option<u64>,
    /// Bytes that were appended.
    appended: AtomicU64,
    failure: OnceLock<String>,
}

impl Job {
    /// Never freed: there is one in a process.
    pub fn new(assignment: Assignment) -> &'static Self {
        let Assignment { contestant: _, shape, file, size, warm_up, time, operations } = assignment;
        Box::leak(Box::new(Self {
            shape,
            file,
            size,
            warm_up,
            time,
            phase: AtomicU8::new(if operations.is_some() { MEASURING } else { WARMING_UP }),
            tallies: (0..shape.readers + usize::from(shape.work.is_stream()))
                .map(|_| Tally::default())
                .collect(),
            handed_out: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            counted: operations,
            appended: AtomicU64::new(0),
            failure: OnceLock::new(),
        }))
    }

    /// The file, by a descriptor of its own, with the flags that the shape wants.
    pub fn open(&self) -> io::Result<File> {
        let write = self.shape.work.writes();
        OpenOptions::new().read(true).write(write).custom_flags(self.open_flags()).open(&self.file)
    }

    /// For those who open it themselves.
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
        let offsets =
            |index| Offsets::new(self.shape.order, block, self.size / block, index, readers);
        let each = self.counted.map_or(u64::MAX, |operations| operations.div_ceil(readers as u64));
        (0..readers)
            .map(|index| Reader::new(self, &self.tallies[index], offsets(index), each))
            .collect()
    }

    /// Where the next record of a log goes, which begins again where its file ends.
    pub fn append(&self, records: usize) -> u64 {
        let record = self.shape.block as u64;
        let bytes = record * records as u64;
        let at = self.appended.fetch_add(bytes, Ordering::Relaxed) % self.size;
        if at + bytes > self.size { 0 } else { at }
    }

    /// What runs beside streams took so long.
    pub fn beside(&self, time: Duration) {
        if let Some(last) = self.tallies.last().filter(|_| self.is_measuring()) {
            last.record(time.as_nanos() as u64);
        }
    }

    /// Ends it: nothing that is measured after a failure would mean anything. The first one is
    /// told.
    pub fn fail(&self, why: String) {
        let _ = self.failure.set(why);
        self.phase.store(OVER, Ordering::Relaxed);
    }

    /// A reader has begun its first operation.
    pub fn one_more_begins(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// A reader has done all that it was to do.
    pub fn one_more_ends(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether operations that are completed now count.
    pub fn is_measuring(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == MEASURING
    }

    /// Whether readers are to stop.
    pub fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OVER
    }

    /// Waits until all readers are at work, lets them warm up, and measures. They have been handed
    /// out and started; the calling thread does nothing else.
    pub fn measure(&self) -> anyhow::Result<Figures> {
        if self.counted.is_some() {
            return self.count();
        }
        self.wait_until_all(&self.begun, BEGINNING)?;
        let all_begun = Instant::now();
        thread::sleep(self.warm_up);
        let (machine, usage, opened) = (usage::of_machine(), Usage::now(), Instant::now());
        // Unless a reader has failed.
        let _ = self.phase.compare_exchange(
            WARMING_UP,
            MEASURING,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        thread::sleep(self.time / 2);
        let first_half = self.operations();
        thread::sleep(self.time / 2);
        let (usage, seconds) = (Usage::now() - usage, opened.elapsed().as_secs_f64());
        let machine = usage::of_machine().zip(machine).map_or(0.0, |(now, earlier)| now - earlier);
        self.phase.store(OVER, Ordering::Relaxed);
        self.check()?;
        let others = ((machine - usage.user - usage.system) / seconds).max(0.0);
        self.figures(usage, seconds, all_begun.elapsed().as_secs_f64(), first_half, others)
    }

    /// Waits until all readers have done their operations. The cost of the beginning counts, too.
    fn count(&self) -> anyhow::Result<Figures> {
        let (usage, opened) = (Usage::now(), Instant::now());
        self.wait_until_all(&self.ended, Duration::MAX)?;
        let (usage, seconds) = (Usage::now() - usage, opened.elapsed().as_secs_f64());
        self.figures(usage, seconds, seconds, 0, 0.0)
    }

    fn figures(
        &self,
        usage: Usage,
        seconds: f64,
        since_begun: f64,
        first_half: u64,
        others: f64,
    ) -> anyhow::Result<Figures> {
        let operations = self.operations();
        ensure!(operations > 0, "no operation was completed within {:?}", self.time);
        let readers = self.handed_out.load(Ordering::Relaxed);
        let mean = operations as f64 / readers as f64;
        // Where not each reader had its turn twice, those that wait longest are not among the
        // latencies yet.
        let turns = since_begun / seconds * mean;
        let latency = if turns < 2.0 { None } else { tally::latency(&self.tallies)? };
        let least = self.tallies[..readers].iter().map(Tally::operations).min().unwrap_or(0);
        Ok(Figures {
            operations,
            seconds,
            usage,
            latency,
            polls: tally::polls(&self.tallies)?,
            readers,
            least_share: least as f64 / mean,
            first_half: first_half as f64 / operations as f64,
            others,
        })
    }

    /// Waits until `those` are all readers.
    fn wait_until_all(&self, those: &AtomicUsize, limit: Duration) -> anyhow::Result<()> {
        let asked = Instant::now();
        while those.load(Ordering::Relaxed) < self.handed_out.load(Ordering::Relaxed) {
            self.check()?;
            ensure!(asked.elapsed() < limit, "some readers did not begin within {limit:?}");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.tallies.iter().map(Tally::operations).sum()
    }

    fn check(&self) -> anyhow::Result<()> {
        match self.failure.get() {
            Some(why) => bail!("{why}"),
            None => Ok(()),
        }
    }
}
