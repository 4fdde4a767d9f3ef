//! One job: a thread with a queue of its own that keeps its requests in flight.
//!
//! What is measured runs through here, so what happens for each request is as little as can be: no allocation, no lock, one
//! look at the clock for each group that is pushed and one for each group that is reaped, and the buffers go from a
//! completion to the next push as they are.

use super::clock::now;
use super::offsets::{Offsets, Order};
use super::pattern;
use super::random::{Random, mix};
use super::result::Direction;
use super::schedule::Schedule;
use super::usage::Window;
use super::workload::{Access, Backend, Stop, Sync, Target, Workload};
use anyhow::{Context, anyhow};
use ringway_core::op::{self, Kind};
use ringway_core::refusal::Feature;
use ringway_core::{
    AlignedBuffer, Arena, BackendKind, Block, Buffer, BuildError, Completion, File, Options, Queue, SqPoll,
};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// A file as a job uses it.
#[derive(Debug)]
pub struct JobFile {
    /// Opened for this run.
    pub file: File,
    /// Blocks of it that are used.
    pub blocks: u64,
    /// How what is read of it is checked.
    pub check: Check,
}

/// What the bytes of a file are to be.
#[derive(Debug)]
pub enum Check {
    /// Anything.
    Nothing,
    /// The pattern of this seed.
    Pattern(u64),
    /// What a plain read of the same place gives.
    PlainRead(std::fs::File),
}

/// What one job did within the window.
#[derive(Debug, Default)]
pub struct JobResult {
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Syncs.
    pub sync: Direction,
    /// Failed requests by errno.
    pub errors: Vec<(i32, u64)>,
    /// Blocks checked, and wrong ones.
    pub verified: (u64, u64),
    /// System calls that the queue counted.
    pub system_calls: u64,
    /// Operations that the backend could not carry, and threads did.
    pub to_threads: u64,
    /// Requests that were due and not started when the time was up.
    pub not_started: u64,
    /// Of each file, the blocks written, if that is to be known.
    pub written: Vec<Vec<bool>>,
}

/// When a job begins and ends.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Requests begin.
    pub start: u64,
    /// They count from here on.
    pub measured: u64,
    /// None begins from here on.
    pub end: u64,
}

/// A job that is set up and waits to begin.
pub struct Job<'a> {
    workload: &'a Workload,
    files: &'a [JobFile],
    queue: Queue,
    offsets: Offsets,
    random: Random,
    /// Places for requests that are free.
    idle: Vec<u32>,
    /// As many buffers. Apart from the places, since a pair would be put together and taken apart for every request.
    buffers: Vec<Buffer>,
    /// The requests in flight, by place.
    flights: Vec<Flight>,
    /// Buffers of the places that syncs are in.
    parked: Vec<Buffer>,
    /// What is read is checked.
    checks: bool,
    plain: Vec<u8>,
    write_seed: Option<u64>,
    schedule: Option<Schedule>,
    /// Writes until the next sync, if there are to be some.
    until_sync: Option<u32>,
    last_written: usize,
    issued: u64,
    limit: u64,
    counts: bool,
    stopping: bool,
    calls_before: u64,
    threads_before: u64,
    result: JobResult,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    start: u64,
    offset: u64,
    file: usize,
}

impl<'a> Job<'a> {
    /// Makes the queue, on the thread that will use it, and the buffers. With `write_seed`, what is written is
    /// the pattern of that seed, and remembered.
    ///
    /// # Errors
    ///
    /// The backend's refusal.
    pub fn new(
        workload: &'a Workload,
        files: &'a [JobFile],
        number: u32,
        seed: u64,
        write_seed: Option<u64>,
    ) -> Result<Self, BuildError> {
        let depth = workload.depth;
        let mut queue = options(workload, files).build()?;
        if workload.fixed_files {
            for file in files {
                // Refused or granted, the queue explains it.
                let _ = queue.register_file(&file.file);
            }
        }
        let blocks: Vec<u64> = files.iter().map(|file| file.blocks).collect();
        let order = match workload.access {
            Access::Read | Access::Write | Access::ReadWrite => Order::Sequential,
            _ if workload.no_random_map => Order::Random,
            _ => Order::Shuffled,
        };
        let start = if spreads_jobs(workload) { f64::from(number) / f64::from(workload.jobs) } else { 0.0 };
        let seed = mix(seed ^ mix(u64::from(number)));
        let checks = files.iter().any(|file| !matches!(file.check, Check::Nothing));
        Ok(Self {
            offsets: Offsets::new(order, workload.block_size, &blocks, seed, start),
            random: Random::new(seed),
            idle: (0..depth).rev().collect(),
            buffers: buffers(workload, &mut queue),
            flights: vec![Flight::default(); depth as usize],
            parked: Vec::with_capacity(depth as usize),
            checks,
            plain: Vec::new(),
            write_seed,
            schedule: None,
            until_sync: workload.sync.map(every),
            last_written: 0,
            issued: 0,
            limit: u64::MAX,
            counts: false,
            stopping: false,
            calls_before: 0,
            threads_before: 0,
            result: JobResult {
                written: match write_seed {
                    Some(_) => blocks.iter().map(|blocks| vec![false; *blocks as usize]).collect(),
                    None => Vec::new(),
                },
                ..JobResult::default()
            },
            workload,
            files,
            queue,
        })
    }

    /// What was asked of the queue and refused.
    pub fn refusals(&self) -> Vec<String> {
        let asked = [
            (self.workload.sqpoll, Feature::SqPoll),
            (self.workload.iopoll, Feature::IoPoll),
            (self.workload.fixed_buffers, Feature::FixedBuffers),
            (self.workload.fixed_files, Feature::FixedFiles),
        ];
        let was_asked = |feature| asked.iter().any(|(asked, of)| *asked && *of == feature);
        let explanation = self.queue.explain();
        explanation.refusals.iter().filter(|refusal| was_asked(refusal.feature)).map(ToString::to_string).collect()
    }

    /// Runs to its end. The queue, with the kernel's helper threads, lives on until the job is dropped.
    ///
    /// # Errors
    ///
    /// Of the queue as a whole; requests that fail are counted.
    pub fn run(&mut self, times: Times, window: &Window) -> anyhow::Result<JobResult> {
        let ran = self.keep_going(times, window);
        // Also for one that failed: the others' figures are to be had.
        window.close();
        ran?;
        let stats = self.queue.stats();
        self.result.system_calls = stats.system_calls - self.calls_before;
        self.result.to_threads = stats.to_threads - self.threads_before;
        Ok(std::mem::take(&mut self.result))
    }

    fn keep_going(&mut self, times: Times, window: &Window) -> anyhow::Result<()> {
        self.schedule = self.workload.rate.map(|rate| Schedule::new(times.start, rate));
        if self.schedule.is_some() {
            wake_on_time();
        }
        let mut time = now();
        loop {
            if !self.counts && time >= times.measured {
                self.begin_counting(window);
            }
            if time >= times.end && !self.stopping {
                self.stopping = true;
                self.count_not_started(times.end);
            }
            self.fill()?;
            if self.idle.len() == self.flights.len() {
                match &self.schedule {
                    Some(schedule) if self.may_start() => sleep_until(schedule.due().min(times.end)),
                    _ => break,
                }
                time = now();
            } else {
                time = self.reap()?;
            }
        }
        if !self.counts {
            self.begin_counting(window);
        }
        Ok(())
    }

    fn begin_counting(&mut self, window: &Window) {
        self.counts = true;
        let stats = self.queue.stats();
        (self.calls_before, self.threads_before) = (stats.system_calls, stats.to_threads);
        // Those that are in flight will be counted when they complete.
        self.issued = (self.flights.len() - self.idle.len() - self.parked.len()) as u64;
        self.limit = match self.workload.stop {
            Stop::After(_) => u64::MAX,
            Stop::Requests(requests) => requests,
            Stop::Bytes(bytes, _) => bytes.div_ceil(self.workload.block_size),
            Stop::Whole(_) => self.files.iter().map(|file| file.blocks).sum(),
        };
        window.open();
    }

    fn may_start(&self) -> bool {
        !self.stopping && self.issued < self.limit
    }

    /// Pushes what there is room for and is due.
    #[inline]
    fn fill(&mut self) -> anyhow::Result<()> {
        if self.idle.is_empty() || !self.may_start() {
            return Ok(());
        }
        let mut time = now();
        let (mut gathered, group) = (0, self.workload.group());
        while self.may_start() {
            if self.idle.is_empty() {
                break;
            }
            let start = match &mut self.schedule {
                None => time,
                Some(schedule) if schedule.due() <= time => schedule.take(),
                Some(_) => break,
            };
            self.push(start)?;
            gathered += 1;
            // The last group goes with the wait that follows.
            if gathered == group && !self.idle.is_empty() {
                self.queue.submit()?;
                gathered = 0;
                time = now();
            }
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, start: u64) -> anyhow::Result<()> {
        let place = self.idle.pop().context("a place is free")?;
        let mut buffer = self.buffers.pop().context("and has a buffer")?;
        if self.until_sync == Some(0) {
            return self.push_sync(place, buffer, start);
        }
        let (file, offset) = self.offsets.advance();
        let writes = match self.workload.access {
            Access::Read | Access::RandRead => false,
            Access::Write | Access::RandWrite => true,
            Access::ReadWrite | Access::RandRw => self.random.below(100) >= u64::from(self.workload.read_percent),
        };
        let on = &self.files[file];
        let operation = if writes {
            if let Some(seed) = self.write_seed {
                buffer = with_bytes(buffer, |bytes| pattern::fill(seed, offset, bytes));
                self.result.written[file][(offset / self.workload.block_size) as usize] = true;
            }
            self.last_written = file;
            self.until_sync = self.until_sync.map(|writes| writes - 1);
            op::write(&on.file, buffer, offset)
        } else {
            op::read(&on.file, buffer, offset)
        };
        self.flights[place as usize] = Flight { start, offset, file };
        self.issued += 1;
        self.queue.push(operation.user_data(u64::from(place))).map_err(|error| anyhow!("{error}"))?;
        Ok(())
    }

    /// A sync takes a request's place, but is none that is counted.
    #[cold]
    fn push_sync(&mut self, place: u32, buffer: Buffer, start: u64) -> anyhow::Result<()> {
        self.parked.push(buffer);
        self.until_sync = self.workload.sync.map(every);
        self.flights[place as usize] = Flight { start, offset: 0, file: self.last_written };
        let file = &self.files[self.last_written].file;
        let operation = match self.workload.sync {
            Some(Sync::Fdatasync(_)) => op::fdatasync(file),
            _ => op::fsync(file),
        };
        self.queue.push(operation.user_data(u64::from(place))).map_err(|error| anyhow!("{error}"))?;
        Ok(())
    }

    /// Waits for completions; gives the time when they were there.
    #[inline]
    fn reap(&mut self) -> anyhow::Result<u64> {
        let in_flight = self.flights.len() - self.idle.len();
        let at_least = (self.workload.complete_min as usize).min(in_flight);
        let until = match &self.schedule {
            Some(schedule) if !self.idle.is_empty() && self.may_start() => {
                let wait = schedule.due().saturating_sub(now());
                Some(Instant::now() + Duration::from_nanos(wait))
            }
            _ => None,
        };
        let completions = match until {
            Some(until) => self.queue.reap_until(at_least, until)?,
            None => self.queue.reap(at_least)?,
        };
        let time = now();
        let mut tally = Tally {
            files: self.files,
            flights: &self.flights,
            counts: self.counts,
            plain: &mut self.plain,
            result: &mut self.result,
        };
        for completion in completions {
            let place = completion.user_data as u32;
            tally.count(&completion, time);
            if matches!(completion.kind, Kind::Fsync) {
                self.buffers.push(self.parked.pop().context("a sync parked a buffer")?);
                self.idle.push(place);
                continue;
            }
            let got = completion.result.unwrap_or(0);
            let check = self.checks && completion.kind == Kind::Read;
            let buffer = completion.into_buffer().context("a transfer hands its buffer back")?;
            if check {
                tally.check(tally.flights[place as usize], &buffer.as_slice()[..got as usize]);
            }
            self.buffers.push(buffer);
            self.idle.push(place);
        }
        Ok(time)
    }

    /// What the schedule still wanted: that it had to wait until now is known, and counts.
    fn count_not_started(&mut self, end: u64) {
        let Some(schedule) = &mut self.schedule else { return };
        while self.issued < self.limit && schedule.due() < end {
            let latency = end - schedule.take();
            self.issued += 1;
            self.result.not_started += 1;
            let direction = match self.workload.access {
                Access::Write | Access::RandWrite => &mut self.result.write,
                _ => &mut self.result.read,
            };
            direction.latency.saturating_record(latency);
        }
    }
}

/// What is kept of completions; apart from the queue, which is lent to their iterator.
struct Tally<'a> {
    files: &'a [JobFile],
    flights: &'a [Flight],
    counts: bool,
    plain: &'a mut Vec<u8>,
    result: &'a mut JobResult,
}

impl Tally<'_> {
    #[inline]
    fn count(&mut self, completion: &Completion, time: u64) {
        if !self.counts {
            return;
        }
        let bytes = match completion.result {
            Ok(bytes) => bytes,
            Err(error) => return self.count_error(error.errno()),
        };
        let direction = match completion.kind {
            Kind::Read => &mut self.result.read,
            Kind::Write => &mut self.result.write,
            _ => &mut self.result.sync,
        };
        direction.ops += 1;
        direction.bytes += bytes;
        let start = self.flights[completion.user_data as usize].start;
        direction.latency.saturating_record(time.saturating_sub(start).max(1));
    }

    #[cold]
    fn count_error(&mut self, errno: i32) {
        match self.result.errors.iter_mut().find(|(known, _)| *known == errno) {
            Some((_, count)) => *count += 1,
            None => self.result.errors.push((errno, 1)),
        }
    }

    #[inline]
    fn check(&mut self, flight: Flight, bytes: &[u8]) {
        let (blocks, wrong) = match &self.files[flight.file].check {
            Check::Nothing => return,
            Check::Pattern(seed) => pattern::check(*seed, flight.offset, bytes),
            Check::PlainRead(file) => {
                self.plain.resize(bytes.len(), 0);
                let expected = match file.read_exact_at(self.plain, flight.offset) {
                    Ok(()) => &self.plain[..],
                    Err(_) => &[],
                };
                pattern::compare(flight.offset, bytes, expected)
            }
        };
        self.result.verified.0 += blocks;
        self.result.verified.1 += wrong;
    }
}

/// Jobs that share files begin at different places of them, so that one does not read what another has just fetched. fio,
/// whose job files name files with a size, has all begin at the first block.
fn spreads_jobs(workload: &Workload) -> bool {
    matches!(workload.target, Target::Scratch { .. } | Target::Files(_))
}

fn every(sync: Sync) -> u32 {
    match sync {
        Sync::Fsync(writes) | Sync::Fdatasync(writes) => writes,
    }
}

/// More threads than this are no use to a job.
const MOST_THREADS: u32 = 1024;

fn options(workload: &Workload, files: &[JobFile]) -> Options {
    let mut options = Options::new()
        .backend(match workload.backend {
            Backend::Uring => BackendKind::Uring,
            Backend::Kaio => BackendKind::Kaio,
            Backend::Threads => BackendKind::Threads,
            Backend::Null => BackendKind::Null,
        })
        .entries(workload.depth.min(32_768))
        .in_flight(workload.depth)
        .threads(workload.depth.min(MOST_THREADS))
        .single_issuer(true);
    if workload.sqpoll {
        options = options.sqpoll(SqPoll { idle: Duration::from_secs(1), cpu: None });
    }
    if let Some(file) = files.first().filter(|_| workload.iopoll) {
        options = options.iopoll(&file.file);
    }
    options
}

/// Alignment that is right for direct I/O everywhere.
const ALIGN: usize = 4096;

/// A buffer for each place, filled with bytes that do not compress.
fn buffers(workload: &Workload, queue: &mut Queue) -> Vec<Buffer> {
    let (len, depth) = (workload.block_size as usize, workload.depth as usize);
    let fill = |place: usize, bytes: &mut [u8]| pattern::fill(workload.seed, (place * len) as u64, bytes);
    if workload.fixed_buffers {
        let arena = Arena::new(len, depth);
        // Refused or granted, the queue explains it.
        let _ = queue.register_arena(&arena);
        let blocks = (0..depth).map_while(|place| {
            let mut block = arena.take()?;
            fill(place, &mut block);
            Some(Buffer::from(block))
        });
        return blocks.collect();
    }
    let aligned = (0..depth).map(|place| {
        let mut buffer = AlignedBuffer::new(len, ALIGN);
        fill(place, &mut buffer);
        Buffer::from(buffer)
    });
    aligned.collect()
}

/// Lets the bytes of one of the buffers made above be changed.
fn with_bytes(buffer: Buffer, change: impl FnOnce(&mut [u8])) -> Buffer {
    match AlignedBuffer::try_from(buffer) {
        Ok(mut aligned) => {
            change(&mut aligned);
            aligned.into()
        }
        Err(other) => match Block::try_from(other) {
            Ok(mut block) => {
                change(&mut block);
                block.into()
            }
            Err(other) => other,
        },
    }
}

/// A scheduled request should not start late because timers are gathered (50 us by default).
fn wake_on_time() {
    // SAFETY: the call takes numbers and changes nothing but this thread's timer slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

fn sleep_until(time: u64) {
    std::thread::sleep(Duration::from_nanos(time.saturating_sub(now())));
}
