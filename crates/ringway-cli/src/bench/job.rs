//! One job: a thread that keeps its requests in flight, with a queue of its own or, for psync, with
//! plain system calls.
//!
//! What is measured runs through here, so what happens for each request is as little as can be: no
//! allocation, no lock, one look at the clock for each group that is pushed and one for each group
//! that is reaped, and the buffers go from a completion to the next push as they are.

use super::clock::now;
use super::offsets::{Offsets, Order, Place, Region};
use super::pattern;
use super::random::{Random, mix};
use super::result::{Direction, Usage};
use super::schedule::Schedule;
use super::usage::{Moment, Window};
use super::workload::{Access, Backend, Sizes, Stop, Sync, Target, Workload};
use anyhow::{Context, anyhow};
use ringway_core::op::{self, Opcode};
use ringway_core::refusal::Feature;
use ringway_core::{
    AlignedBuffer, Arena, ArenaBuffer, BackendKind, Buffer, BuildError, File, Options, Queue,
    SqPoll,
};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// A file as a job uses it.
#[derive(Debug)]
pub struct JobFile {
    /// Opened for this run.
    pub file: File,
    /// The part of it that is used.
    pub region: Region,
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
    /// Failed requests by errno, those before the window too. One that came upon the end of the
    /// file is EIO.
    pub errors: Vec<(i32, u64)>,
    /// Of those, the ones that came upon the end of the file.
    pub short: u64,
    /// Blocks checked, and wrong ones.
    pub verified: (u64, u64),
    /// What it cost: the job's own thread, and the system calls that the queue counted.
    pub usage: Usage,
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
    /// None for psync.
    queue: Option<Queue>,
    offsets: Offsets,
    random: Random,
    /// Places for requests that are free.
    idle: Vec<u32>,
    /// As many buffers. Apart from the places, since a pair would be put together and taken apart
    /// for every request.
    buffers: Vec<Buffer>,
    /// Buffers of the places that syncs are in.
    parked: Vec<Buffer>,
    tally: Tally<'a>,
    write_seed: Option<u64>,
    schedule: Option<Schedule>,
    /// Writes until the next sync, if there are to be some.
    until_sync: Option<u32>,
    /// Requests until the next pause, if there are to be some.
    until_pause: Option<u64>,
    last_written: usize,
    issued: u64,
    issued_bytes: u64,
    limit: u64,
    limit_bytes: u64,
    /// System calls made without a queue.
    calls: u64,
    /// Since when requests count.
    counts: Option<Counts>,
    /// The time is up.
    over: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    /// When it was due at a fixed rate, else when it was pushed.
    start: u64,
    /// When it was pushed.
    pushed: u64,
    place: Place,
}

/// The figures when the window was opened.
#[derive(Clone, Copy, Debug)]
struct Counts {
    moment: Moment,
    system_calls: u64,
    to_threads: u64,
}

impl<'a> Job<'a> {
    /// Makes the queue, on the thread that will use it, and the buffers. With `write_seed`, what is
    /// written is the pattern of that seed, and remembered.
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
        let mut queue = options(workload, files).map(|options| options.build()).transpose()?;
        if let Some(queue) = queue.as_mut().filter(|_| workload.fixed_files) {
            for file in files {
                // Refused or granted, the queue explains it.
                let _ = queue.register_file(&file.file);
            }
        }
        let regions: Vec<Region> = files.iter().map(|file| file.region).collect();
        let order = match workload.is_random() {
            false => Order::Sequential,
            true if workload.no_random_map => Order::Random,
            true => Order::Shuffled,
        };
        let start =
            if spreads_jobs(workload) { f64::from(number) / f64::from(workload.jobs) } else { 0.0 };
        let seed = mix(seed ^ mix(u64::from(number)));
        let checks = files.iter().any(|file| !matches!(file.check, Check::Nothing));
        Ok(Self {
            offsets: Offsets::new(order, workload.block_size, &regions, seed, start),
            random: Random::new(seed),
            idle: (0..depth).rev().collect(),
            buffers: buffers(workload, queue.as_mut()),
            parked: Vec::with_capacity(depth as usize),
            tally: Tally {
                workload,
                files,
                flights: vec![Flight::default(); depth as usize],
                counts: false,
                checks,
                plain: Vec::new(),
                result: JobResult {
                    written: match write_seed {
                        Some(_) => {
                            let blocks =
                                regions.iter().map(|region| region.len / workload.block_size);
                            blocks.map(|blocks| vec![false; blocks as usize]).collect()
                        }
                        None => Vec::new(),
                    },
                    ..JobResult::default()
                },
                is_to_stop: false,
            },
            write_seed,
            schedule: None,
            until_sync: workload.sync.map(every),
            until_pause: workload.pause.map(|pause| pause.after),
            last_written: 0,
            issued: 0,
            issued_bytes: 0,
            limit: u64::MAX,
            limit_bytes: u64::MAX,
            calls: 0,
            counts: None,
            over: false,
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
        let Some(queue) = &self.queue else { return Vec::new() };
        let explanation = queue.explain();
        explanation
            .refusals
            .iter()
            .filter(|refusal| was_asked(refusal.feature))
            .map(ToString::to_string)
            .collect()
    }

    /// Runs to its end. The queue, with the kernel's helper threads, lives on until the job is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Of the queue as a whole; requests that fail are counted.
    pub fn run(&mut self, times: Times, window: &Window) -> anyhow::Result<JobResult> {
        let ran = self.keep_going(times, window);
        let moment = Moment::of_thread();
        // Also for one that failed: the others' figures are to be had.
        window.close();
        ran?;
        if let Some(opened) = self.counts {
            let now = self.counted(moment);
            self.tally.result.usage = now.moment.since(&opened.moment);
            self.tally.result.usage.system_calls = Some(now.system_calls - opened.system_calls);
            self.tally.result.to_threads = now.to_threads - opened.to_threads;
        }
        Ok(std::mem::take(&mut self.tally.result))
    }

    fn keep_going(&mut self, times: Times, window: &Window) -> anyhow::Result<()> {
        self.schedule = self.workload.rate.map(|rate| Schedule::new(times.start, rate));
        if self.schedule.is_some() {
            wake_on_time();
        }
        let mut time = now();
        loop {
            if self.counts.is_none() && time >= times.measured {
                self.begin_counting(window);
            }
            if time >= times.end && !self.over {
                self.count_not_started(times.end);
                self.over = true;
            }
            time = self.fill(time, times.end)?;
            if self.in_flight() > 0 {
                time = self.reap()?;
                continue;
            }
            if !self.may_start() {
                break;
            }
            if let Some(schedule) = self.schedule.as_ref().filter(|_| self.until_sync != Some(0)) {
                sleep_until(schedule.due().min(times.end));
                time = now();
            }
        }
        if self.counts.is_none() {
            self.begin_counting(window);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.tally.flights.len() - self.idle.len()
    }

    fn counted(&self, moment: Moment) -> Counts {
        let (system_calls, to_threads) = match &self.queue {
            Some(queue) => (queue.stats().system_calls, queue.stats().to_threads),
            None => (self.calls, 0),
        };
        Counts { moment, system_calls, to_threads }
    }

    fn begin_counting(&mut self, window: &Window) {
        self.counts = Some(self.counted(Moment::of_thread()));
        self.tally.counts = true;
        // Those that are in flight will be counted when they complete.
        self.issued = (self.in_flight() - self.parked.len()) as u64;
        let mut in_flight = vec![true; self.tally.flights.len()];
        self.idle.iter().for_each(|place| in_flight[*place as usize] = false);
        let flights = self.tally.flights.iter().zip(in_flight).filter(|(_, in_flight)| *in_flight);
        self.issued_bytes = flights.map(|(flight, _)| flight.place.len).sum();
        match self.workload.stop {
            Stop::After(_) => {}
            Stop::Requests(requests) => self.limit = requests,
            Stop::Bytes(bytes, _) => self.limit_bytes = bytes,
            Stop::Whole(_) => {
                let block_size = self.workload.block_size;
                self.limit_bytes =
                    self.files.iter().map(|file| file.region.len / block_size * block_size).sum();
            }
        }
        window.open();
    }

    fn may_start(&self) -> bool {
        !self.over
            && !self.tally.is_to_stop
            && self.issued < self.limit
            && self.issued_bytes < self.limit_bytes
    }

    /// Pushes what there is room for and is due; without a queue, one request, which is done then.
    /// Takes and gives the time.
    #[inline]
    fn fill(&mut self, mut time: u64, end: u64) -> anyhow::Result<u64> {
        let (mut gathered, group) = (0, self.workload.group());
        while self.may_start() && !self.idle.is_empty() {
            if self.until_pause == Some(0) {
                if self.in_flight() > 0 {
                    break;
                }
                // After it the time may be up.
                return Ok(self.pause(time, end));
            }
            if self.until_sync == Some(0) {
                // It is no request, and so not one of those that the rate allows.
                time = self.push_sync(time)?;
            } else {
                let start = match &self.schedule {
                    None => time,
                    Some(schedule) if schedule.due() <= time => {
                        // Of those that are due, each is submitted a little later than the one
                        // before.
                        time = now();
                        schedule.due()
                    }
                    Some(_) => break,
                };
                time = self.push(start, time)?;
            }
            let Some(queue) = &mut self.queue else { break };
            gathered += 1;
            // The last group goes with the wait that follows.
            if gathered == group && !self.idle.is_empty() {
                queue.submit()?;
                gathered = 0;
                time = now();
            }
        }
        Ok(time)
    }

    #[cold]
    fn pause(&mut self, time: u64, end: u64) -> u64 {
        if let Some(pause) = self.workload.pause {
            let pause_ns = u64::try_from(pause.time.as_nanos()).unwrap_or(u64::MAX);
            sleep_until(time.saturating_add(pause_ns).min(end));
            self.until_pause = Some(pause.after);
        }
        now()
    }

    /// Pushes a request that was due at `start`, at the time `pushed`; gives the time, if that is
    /// another then.
    #[inline]
    fn push(&mut self, start: u64, pushed: u64) -> anyhow::Result<u64> {
        let slot = self.idle.pop().context("a place is free")?;
        let mut buffer = self.buffers.pop().context("and has a buffer")?;
        let writes = match self.workload.access {
            Access::Read | Access::RandRead => false,
            Access::Write | Access::RandWrite => true,
            Access::ReadWrite | Access::RandRw => {
                self.random.below(100) >= u64::from(self.workload.read_percent)
            }
        };
        let (workload, random) = (self.workload, &mut self.random);
        let left =
            (self.limit_bytes - self.issued_bytes).checked_next_multiple_of(workload.block_size);
        let left = left.unwrap_or(u64::MAX);
        let place = self.offsets.advance(writes, |room| match &workload.sizes {
            Sizes::One => workload.block_size,
            sizes => draw(sizes, workload.block_size, random, room.min(left)),
        });
        if workload.sizes != Sizes::One {
            buffer = whole(buffer).slice(..place.len as usize);
        }
        let on = &self.files[place.file];
        if writes {
            if let Some(seed) = self.write_seed {
                buffer
                    .as_mut_slice()
                    .into_iter()
                    .for_each(|bytes| pattern::fill(seed, place.offset, bytes));
                let block =
                    |offset: u64| ((offset - on.region.start) / workload.block_size) as usize;
                self.tally.result.written[place.file]
                    [block(place.offset)..block(place.offset + place.len)]
                    .fill(true);
            }
            self.last_written = place.file;
            self.until_sync = self.until_sync.map(|writes| writes - 1);
        }
        self.until_pause = self.until_pause.map(|requests| requests - 1);
        self.schedule.iter_mut().for_each(|schedule| schedule.take(place.len));
        self.tally.flights[slot as usize] = Flight { start, pushed, place };
        self.issued += 1;
        self.issued_bytes += place.len;
        let Some(queue) = &mut self.queue else {
            return self.transfer(slot, writes, buffer);
        };
        let operation = match writes {
            true => op::write(&on.file, buffer, place.offset),
            false => op::read(&on.file, buffer, place.offset),
        };
        queue
            .push(operation.exact().user_data(u64::from(slot)))
            .map_err(|error| anyhow!("{error}"))?;
        Ok(pushed)
    }

    /// Reads or writes with blocking calls, and counts that; gives the time.
    fn transfer(&mut self, slot: u32, writes: bool, mut buffer: Buffer) -> anyhow::Result<u64> {
        let place = self.tally.flights[slot as usize].place;
        let file = self.files[place.file].file.as_fd();
        let bytes = buffer.as_mut_slice().context("the buffer can be written to")?;
        let mut done = 0;
        let result = loop {
            let (part, offset) = (&mut bytes[done..], place.offset + done as u64);
            self.calls += 1;
            match if writes {
                rustix::io::pwrite(file, part, offset)
            } else {
                rustix::io::pread(file, part, offset)
            } {
                Ok(got) if got > 0 && done + got < bytes.len() => done += got,
                Ok(got) => break Ok((done + got) as u64),
                Err(Errno::INTR) => {}
                Err(errno) => break Err(errno.raw_os_error()),
            }
        };
        let kind = if writes { Opcode::Write } else { Opcode::Read };
        let time = now();
        self.tally.count(kind, result, slot, time);
        self.tally.check(kind, result, slot, &buffer);
        self.buffers.push(buffer);
        self.idle.push(slot);
        Ok(self.tally.time_after(time))
    }

    fn sync_now(&mut self, slot: u32) -> u64 {
        let file = self.files[self.last_written].file.as_fd();
        self.calls += 1;
        let result = match self.workload.sync {
            Some(Sync::Fdatasync(_)) => rustix::fs::fdatasync(file),
            _ => rustix::fs::fsync(file),
        };
        let time = now();
        self.tally.count(
            Opcode::Fsync,
            result.map(|()| 0).map_err(Errno::raw_os_error),
            slot,
            time,
        );
        self.buffers.extend(self.parked.pop());
        self.idle.push(slot);
        time
    }

    /// A sync takes a request's place, but is none that is counted. It does not wait for the writes
    /// in flight.
    #[cold]
    fn push_sync(&mut self, time: u64) -> anyhow::Result<u64> {
        let slot = self.idle.pop().context("a place is free")?;
        self.parked.push(self.buffers.pop().context("and has a buffer")?);
        self.until_sync = self.workload.sync.map(every);
        let place = Place { file: self.last_written, offset: 0, len: 0 };
        self.tally.flights[slot as usize] = Flight { start: time, pushed: time, place };
        let Some(queue) = &mut self.queue else {
            return Ok(self.sync_now(slot));
        };
        let file = &self.files[self.last_written].file;
        let operation = match self.workload.sync {
            Some(Sync::Fdatasync(_)) => op::fdatasync(file),
            _ => op::fsync(file),
        };
        queue.push(operation.user_data(u64::from(slot))).map_err(|error| anyhow!("{error}"))?;
        Ok(time)
    }

    /// Waits for completions; gives the time.
    #[inline]
    fn reap(&mut self) -> anyhow::Result<u64> {
        let in_flight = self.in_flight();
        let at_least = (self.workload.complete_min as usize).min(in_flight);
        let until = match &self.schedule {
            Some(schedule)
                if !self.idle.is_empty() && self.may_start() && self.until_pause != Some(0) =>
            {
                let wait = schedule.due().saturating_sub(now());
                Some(Instant::now() + Duration::from_nanos(wait))
            }
            _ => None,
        };
        let queue = self.queue.as_mut().context("what is in flight is in a queue")?;
        let completions = match until {
            Some(until) => queue.reap_until(at_least, until)?,
            None => queue.reap(at_least)?,
        };
        let time = now();
        for completion in completions {
            let slot = completion.user_data as u32;
            let (kind, result) =
                (completion.opcode, completion.result.map_err(|error| error.errno()));
            self.tally.count(kind, result, slot, time);
            if kind == Opcode::Fsync {
                self.buffers.push(self.parked.pop().context("a sync parked a buffer")?);
                self.idle.push(slot);
                continue;
            }
            let buffer = completion.into_buffer().context("a transfer hands its buffer back")?;
            self.tally.check(kind, result, slot, &buffer);
            self.buffers.push(buffer);
            self.idle.push(slot);
        }
        Ok(self.tally.time_after(time))
    }

    /// What the schedule still wanted: that it had to wait until now is known, and counts as
    /// latency from the schedule.
    fn count_not_started(&mut self, end: u64) {
        let Some(schedule) = &mut self.schedule else { return };
        let block_size = self.workload.block_size;
        let left = (self.limit.saturating_sub(self.issued))
            .min(self.limit_bytes.saturating_sub(self.issued_bytes).div_ceil(block_size));
        let missed = schedule.missed(end, block_size).min(left);
        self.tally.result.not_started = missed;
        let direction = match self.workload.reads() {
            true => &mut self.tally.result.read,
            false => &mut self.tally.result.write,
        };
        // They were due at equal distances from now to the end; millions of them need no more
        // points than this.
        let (waited, points) = (end.saturating_sub(schedule.due()), missed.min(1000));
        for point in 0..points {
            let latency =
                (u128::from(waited) * u128::from(points - point) / u128::from(points)) as u64;
            let times = missed / points + u64::from(point < missed % points);
            direction.latency.saturating_record_n(latency.max(1), times);
        }
    }
}

/// What is kept of requests in flight and of completions; apart from the queue, from which their
/// iterator borrows.
struct Tally<'a> {
    workload: &'a Workload,
    files: &'a [JobFile],
    /// The requests in flight, by place.
    flights: Vec<Flight>,
    /// Requests are within the measured time.
    counts: bool,
    /// What is read is checked.
    checks: bool,
    plain: Vec<u8>,
    result: JobResult,
    /// A request has failed that ends the job.
    is_to_stop: bool,
}

impl Tally<'_> {
    #[inline]
    fn count(&mut self, kind: Opcode, result: Result<u64, i32>, slot: u32, time: u64) {
        let flight = &self.flights[slot as usize];
        let bytes = match result {
            Ok(bytes) if bytes == flight.place.len => bytes,
            // Every request lies within the file as it was, so it has become shorter.
            Ok(_) => return self.count_error(libc::EIO, true),
            Err(errno) => return self.count_error(errno, false),
        };
        if !self.counts {
            return;
        }
        let since_pushed = self.workload.rate.map(|_| time.saturating_sub(flight.pushed));
        let direction = match kind {
            Opcode::Read => &mut self.result.read,
            Opcode::Write => &mut self.result.write,
            _ => &mut self.result.sync,
        };
        direction.count(bytes, time.saturating_sub(flight.start), since_pushed);
    }

    #[cold]
    fn count_error(&mut self, errno: i32, short: bool) {
        self.is_to_stop = self.workload.stop_on_error;
        self.result.short += u64::from(short);
        match self.result.errors.iter_mut().find(|(known, _)| *known == errno) {
            Some((_, count)) => *count += 1,
            None => self.result.errors.push((errno, 1)),
        }
    }

    /// The time after completions of this time have been counted and checked.
    #[inline]
    fn time_after(&self, time: u64) -> u64 {
        if self.checks { now() } else { time }
    }

    /// Checks the bytes that were read.
    #[inline]
    fn check(&mut self, kind: Opcode, result: Result<u64, i32>, slot: u32, buffer: &Buffer) {
        if !self.checks || kind != Opcode::Read {
            return;
        }
        let bytes = &buffer.as_slice()[..result.unwrap_or(0) as usize];
        let place = self.flights[slot as usize].place;
        let (blocks, wrong) = match &self.files[place.file].check {
            Check::Nothing => return,
            Check::Pattern(seed) => pattern::check(*seed, place.offset, bytes),
            Check::PlainRead(file) => {
                self.plain.resize(bytes.len(), 0);
                let expected = match file.read_exact_at(&mut self.plain, place.offset) {
                    Ok(()) => &self.plain[..],
                    Err(_) => &[],
                };
                pattern::compare(place.offset, bytes, expected)
            }
        };
        self.result.verified.0 += blocks;
        self.result.verified.1 += wrong;
    }
}

/// A size at random, not over `room`, which has at least the least of them.
#[cold]
fn draw(sizes: &Sizes, block_size: u64, random: &mut Random, room: u64) -> u64 {
    // fio draws until a size fits. Near the end of a file the right one may be rare, or have no
    // share at all.
    for _ in 0..64 {
        let size = match sizes {
            Sizes::One => block_size,
            // Every multiple of the block size, equally often.
            Sizes::UpTo(largest) => block_size * (1 + random.below(largest / block_size)),
            Sizes::Split(sizes) => {
                let mut percent = random.below(100);
                let drawn = sizes.iter().find(|(_, share)| {
                    let found = percent < u64::from(*share);
                    percent = percent.saturating_sub(u64::from(*share));
                    found
                });
                drawn.map_or(block_size, |(size, _)| *size)
            }
        };
        if size <= room {
            return size;
        }
    }
    block_size
}

/// Jobs that share files begin at different places of them, so that one does not read what another
/// has just fetched. fio, whose job files name files with a size, has all begin at the first block.
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

/// The options of a job's queue; `None` for psync, which has none.
fn options(workload: &Workload, files: &[JobFile]) -> Option<Options> {
    let backend = match workload.backend {
        Backend::Uring => BackendKind::Uring,
        Backend::Kaio => BackendKind::Kaio,
        Backend::Threads => BackendKind::Threads,
        Backend::Null => BackendKind::Null,
        Backend::Psync => return None,
    };
    let mut options = Options::new()
        .backend(backend)
        .entries(workload.depth.min(Options::MAX_ENTRIES))
        .in_flight(workload.depth)
        .threads(workload.depth.min(MOST_THREADS))
        .single_issuer(true);
    if workload.sqpoll {
        options = options.sqpoll(SqPoll::new(Duration::from_secs(1)));
    }
    if let Some(file) = files.first().filter(|_| workload.iopoll) {
        options = options.iopoll(&file.file);
    }
    Some(options)
}

/// Alignment that is right for direct I/O everywhere.
const ALIGN: usize = 4096;

/// A buffer for each place, filled with bytes that do not compress.
fn buffers(workload: &Workload, queue: Option<&mut Queue>) -> Vec<Buffer> {
    let (len, depth) = (workload.largest_request() as usize, workload.depth as usize);
    let fill =
        |place: usize, bytes: &mut [u8]| pattern::fill(workload.seed, (place * len) as u64, bytes);
    if let Some(queue) = queue.filter(|_| workload.fixed_buffers) {
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

/// The whole of one of the buffers made above, of which a part was in use.
fn whole(buffer: Buffer) -> Buffer {
    match AlignedBuffer::try_from(buffer) {
        Ok(aligned) => aligned.into(),
        Err(buffer) => ArenaBuffer::try_from(buffer).map_or_else(|buffer| buffer, Buffer::from),
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
