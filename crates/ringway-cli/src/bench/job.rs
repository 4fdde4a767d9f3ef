//! One job: a thread that keeps its requests in flight, with its own queue or, for psync, with
//! blocking calls.
//!
//! This code is a part of every figure, so it does little for each request: no allocation, no lock,
//! one clock reading for each group that is pushed and one for each group that is reaped. Buffers
//! move from a completion to the next push unchanged.

use super::interrupt::is_interrupted;
use super::result::{Run, count_error};
use super::schedule::Schedule;
use super::workload::{Access, Backend, Sizes, Stop, Target, Workload};
use anyhow::{Context, anyhow};
use ringway_core::op::{self, Opcode};
use ringway_core::refusal::{Feature, Refusal};
use ringway_core::{
    AlignedBuffer, Arena, ArenaBuffer, Buffer, BuildError, File, Options, Queue, SqPoll,
};
use ringway_measure::clock::now;
use ringway_measure::offsets::{Offsets, Order, Place, Region};
use ringway_measure::pattern;
use ringway_measure::random::{Random, mix};
use ringway_measure::usage::{Snapshot, Window};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// A file of a job.
#[derive(Debug)]
pub struct JobFile {
    /// Opened for this run.
    pub file: File,
    /// The part in use.
    pub region: Region,
    /// The check of bytes that are read.
    pub check: Check,
}

/// The expected bytes of a file.
#[derive(Debug)]
pub enum Check {
    /// Any.
    None,
    /// The pattern of this seed.
    Pattern(u64),
    /// The bytes that a plain read at the same offset returns.
    PlainRead(std::fs::File),
}

/// What one job did while it was measured.
#[derive(Debug, Default)]
pub struct JobResult {
    /// Its requests, and the cost of its own thread. Failed requests are also those before
    /// measuring; a request that reached the end of the file counts as EIO.
    pub run: Run,
    /// The failed requests that reached the end of the file.
    pub short: u64,
    /// Operations that the backend does not support and that went to the fallback pool.
    pub to_threads: u64,
    /// For each file, the blocks that were written; empty unless they are checked.
    pub written: Vec<Vec<bool>>,
}

/// When a job starts and ends.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The first request starts.
    pub start: u64,
    /// Requests count from now on.
    pub measured: u64,
    /// No request starts from now on.
    pub end: u64,
}

/// A job that is ready to start.
pub struct Job<'a> {
    workload: &'a Workload,
    files: &'a [JobFile],
    /// `None` for psync.
    queue: Option<Queue>,
    offsets: Offsets,
    random: Random,
    /// Free slots for requests.
    idle: Vec<u32>,
    /// One buffer for each free slot. They are separate from the slots because pairs would be
    /// assembled and taken apart for every request.
    buffers: Vec<Buffer>,
    /// The buffers of slots with a sync in flight.
    parked: Vec<Buffer>,
    recorder: Recorder<'a>,
    write_seed: Option<u64>,
    schedule: Option<Schedule>,
    /// Writes until the next sync, if the workload has syncs.
    until_sync: Option<u32>,
    /// Requests until the next pause, if the workload has pauses.
    until_pause: Option<u64>,
    last_written: usize,
    issued: u64,
    issued_bytes: u64,
    limit: u64,
    limit_bytes: u64,
    /// System calls made without a queue.
    calls: u64,
    /// The counters when measuring started; `None` before.
    baseline: Option<Baseline>,
    /// The time is over.
    over: bool,
}

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    /// The scheduled start at a fixed rate, otherwise the time of the push.
    start: u64,
    /// The time of the push.
    pushed: u64,
    place: Place,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    snapshot: Snapshot,
    system_calls: u64,
    to_threads: u64,
}

impl<'a> Job<'a> {
    /// Builds the queue, on the thread that will use it, and the buffers. With `write_seed`, writes
    /// have the pattern of that seed, and the job records which blocks it writes.
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
        // Without passthrough every request would fail.
        if let Some(queue) = queue.as_ref().filter(|_| workload.passthrough) {
            let refused = |refusal: &Refusal| refusal.feature == Feature::Passthrough;
            if let Some(refusal) = queue.explain().refusals.into_iter().find(refused) {
                return Err(BuildError::Refused(refusal));
            }
        }
        if let Some(queue) = queue.as_mut().filter(|_| workload.fixed_files) {
            for file in files {
                // If it is refused, the queue explains why.
                let _ = queue.register_file(&file.file);
            }
        }
        let regions: Vec<Region> = files.iter().map(|file| file.region).collect();
        let order = if !workload.access.is_random() {
            Order::Sequential
        } else if workload.no_random_map {
            Order::Random
        } else {
            Order::Shuffled
        };
        let start =
            if spreads_jobs(workload) { f64::from(number) / f64::from(workload.jobs) } else { 0.0 };
        let seed = mix(seed ^ mix(u64::from(number)));
        Ok(Self {
            offsets: Offsets::new(order, workload.block_size, &regions, seed, start),
            random: Random::new(seed),
            idle: (0..depth).rev().collect(),
            buffers: buffers(workload, queue.as_mut()),
            parked: Vec::with_capacity(depth as usize),
            recorder: Recorder::new(workload, files, write_seed.is_some()),
            write_seed,
            schedule: None,
            until_sync: workload.sync.map(|sync| sync.every),
            until_pause: workload.pause.map(|pause| pause.after),
            last_written: 0,
            issued: 0,
            issued_bytes: 0,
            limit: u64::MAX,
            limit_bytes: u64::MAX,
            calls: 0,
            baseline: None,
            over: false,
            workload,
            files,
            queue,
        })
    }

    /// The requested options of the queue that were refused.
    pub fn refusals(&self) -> Vec<String> {
        let requested = [
            (self.workload.sqpoll, Feature::SqPoll),
            (self.workload.iopoll, Feature::IoPoll),
            (self.workload.passthrough, Feature::Passthrough),
            (self.workload.fixed_buffers, Feature::FixedBuffers),
            (self.workload.fixed_files, Feature::FixedFiles),
        ];
        let is_requested = |feature| requested.contains(&(true, feature));
        let Some(queue) = &self.queue else { return Vec::new() };
        let explanation = queue.explain();
        let refused = explanation.refusals.iter().filter(|refusal| is_requested(refusal.feature));
        refused.map(ToString::to_string).collect()
    }

    /// Runs until the end. The queue and the kernel's helper threads exist until the job is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Those of the queue as a whole; requests that fail are counted.
    pub fn run(&mut self, times: Times, window: &Window) -> anyhow::Result<JobResult> {
        let ran = self.run_requests(times, window);
        let snapshot = Snapshot::of_thread();
        // A failed job closes its part too: the other jobs' figures remain valid.
        window.close();
        ran?;
        if let Some(baseline) = self.baseline {
            let now = self.counters(snapshot);
            let result = &mut self.recorder.result;
            result.run.usage = now.snapshot.since(&baseline.snapshot);
            result.run.system_calls = now.system_calls - baseline.system_calls;
            result.to_threads = now.to_threads - baseline.to_threads;
        }
        Ok(std::mem::take(&mut self.recorder.result))
    }

    fn run_requests(&mut self, times: Times, window: &Window) -> anyhow::Result<()> {
        self.schedule = self.workload.rate.map(|rate| Schedule::new(times.start, rate));
        if self.schedule.is_some() {
            disable_timer_slack();
        }
        let mut time = now();
        loop {
            if self.baseline.is_none() && time >= times.measured {
                self.start_measuring(window);
            }
            if time >= times.end && !self.over {
                self.count_not_started(times.end);
                self.over = true;
            }
            // An interrupted run does not count.
            self.over |= is_interrupted();
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
        if self.baseline.is_none() {
            self.start_measuring(window);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.recorder.requests.len() - self.idle.len()
    }

    fn counters(&self, snapshot: Snapshot) -> Baseline {
        let Some(stats) = self.queue.as_ref().map(Queue::stats) else {
            return Baseline { snapshot, system_calls: self.calls, to_threads: 0 };
        };
        Baseline { snapshot, system_calls: stats.system_calls, to_threads: stats.to_threads }
    }

    fn start_measuring(&mut self, window: &Window) {
        self.baseline = Some(self.counters(Snapshot::of_thread()));
        self.recorder.measuring = true;
        // Requests in flight count when they complete.
        self.issued = (self.in_flight() - self.parked.len()) as u64;
        let mut in_flight = vec![true; self.recorder.requests.len()];
        for slot in &self.idle {
            in_flight[*slot as usize] = false;
        }
        let requests = self.recorder.requests.iter().zip(in_flight);
        let requests = requests.filter(|(_, in_flight)| *in_flight);
        self.issued_bytes = requests.map(|(request, _)| request.place.len).sum();
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
            && !self.recorder.stopped
            && self.issued < self.limit
            && self.issued_bytes < self.limit_bytes
    }

    /// Pushes requests that are due while there are free slots; without a queue, executes one
    /// request. Takes and returns the current time.
    #[inline]
    fn fill(&mut self, mut time: u64, end: u64) -> anyhow::Result<u64> {
        let (mut gathered, group) = (0, self.workload.group());
        while self.may_start() && !self.idle.is_empty() {
            if self.until_pause == Some(0) {
                if self.in_flight() > 0 {
                    break;
                }
                // The time may be over after the pause.
                return Ok(self.pause(time, end));
            }
            if self.until_sync == Some(0) {
                // A sync does not count against the rate.
                time = self.push_sync(time)?;
            } else {
                let start = match &self.schedule {
                    None => time,
                    Some(schedule) if schedule.due() <= time => {
                        // Each of the requests that are due is submitted a little later than the
                        // previous one.
                        time = now();
                        schedule.due()
                    }
                    Some(_) => break,
                };
                time = self.push(start, time)?;
            }
            let Some(queue) = &mut self.queue else { break };
            gathered += 1;
            // The wait that follows submits the last group.
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

    /// Pushes a request that was due at `start`, at the time `pushed`; returns the current time.
    #[inline]
    fn push(&mut self, start: u64, pushed: u64) -> anyhow::Result<u64> {
        let slot = self.idle.pop().context("a slot is free")?;
        let mut buffer = self.buffers.pop().context("a free slot has a buffer")?;
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
                if let Some(bytes) = buffer.as_mut_slice() {
                    pattern::fill(seed, place.offset, bytes);
                }
                let block =
                    |offset: u64| ((offset - on.region.start) / workload.block_size) as usize;
                self.recorder.result.written[place.file]
                    [block(place.offset)..block(place.offset + place.len)]
                    .fill(true);
            }
            self.last_written = place.file;
            self.until_sync = self.until_sync.map(|writes| writes - 1);
        }
        self.until_pause = self.until_pause.map(|requests| requests - 1);
        if let Some(schedule) = &mut self.schedule {
            schedule.take(place.len);
        }
        self.recorder.requests[slot as usize] = Request { start, pushed, place };
        self.issued += 1;
        self.issued_bytes += place.len;
        let Some(queue) = &mut self.queue else {
            return self.transfer(slot, writes, buffer);
        };
        let operation = if writes {
            op::write(&on.file, buffer, place.offset)
        } else {
            op::read(&on.file, buffer, place.offset)
        };
        queue
            .push(operation.exact().user_data(u64::from(slot)))
            .map_err(|error| anyhow!("{error}"))?;
        Ok(pushed)
    }

    /// Reads or writes with blocking calls, and records the result; returns the current time.
    fn transfer(&mut self, slot: u32, writes: bool, mut buffer: Buffer) -> anyhow::Result<u64> {
        let place = self.recorder.requests[slot as usize].place;
        let file = self.files[place.file].file.as_fd();
        let bytes = buffer.as_mut_slice().context("the buffer is writable")?;
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
        let opcode = if writes { Opcode::Write } else { Opcode::Read };
        let time = now();
        self.recorder.count(opcode, result, slot, time);
        self.recorder.check(opcode, result, slot, &buffer);
        self.buffers.push(buffer);
        self.idle.push(slot);
        Ok(self.recorder.time_after(time))
    }

    fn sync_now(&mut self, slot: u32) -> u64 {
        let file = self.files[self.last_written].file.as_fd();
        self.calls += 1;
        let data_only = self.workload.sync.is_some_and(|sync| sync.data_only);
        let result = if data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) };
        let time = now();
        let result = result.map(|()| 0).map_err(Errno::raw_os_error);
        self.recorder.count(Opcode::Fsync, result, slot, time);
        self.buffers.extend(self.parked.pop());
        self.idle.push(slot);
        time
    }

    /// Pushes a sync. It takes a slot but does not count as a request, and it does not wait for
    /// writes in flight.
    #[cold]
    fn push_sync(&mut self, time: u64) -> anyhow::Result<u64> {
        let slot = self.idle.pop().context("a slot is free")?;
        self.parked.push(self.buffers.pop().context("a free slot has a buffer")?);
        self.until_sync = self.workload.sync.map(|sync| sync.every);
        let place = Place { file: self.last_written, offset: 0, len: 0 };
        self.recorder.requests[slot as usize] = Request { start: time, pushed: time, place };
        let Some(queue) = &mut self.queue else {
            return Ok(self.sync_now(slot));
        };
        let file = &self.files[self.last_written].file;
        let data_only = self.workload.sync.is_some_and(|sync| sync.data_only);
        let operation = if data_only { op::fdatasync(file) } else { op::fsync(file) };
        queue.push(operation.user_data(u64::from(slot))).map_err(|error| anyhow!("{error}"))?;
        Ok(time)
    }

    /// Waits for completions; returns the current time.
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
        let queue = self.queue.as_mut().context("requests in flight are in a queue")?;
        let completions = match until {
            Some(until) => queue.reap_until(at_least, until)?,
            None => queue.reap(at_least)?,
        };
        let time = now();
        for completion in completions {
            let slot = completion.user_data as u32;
            let opcode = completion.opcode;
            let result = completion.result.map_err(|error| error.errno());
            self.recorder.count(opcode, result, slot, time);
            if opcode == Opcode::Fsync {
                self.buffers.push(self.parked.pop().context("a sync parked a buffer")?);
                self.idle.push(slot);
                continue;
            }
            let buffer = completion.into_buffer().context("a transfer returns its buffer")?;
            self.recorder.check(opcode, result, slot, &buffer);
            self.buffers.push(buffer);
            self.idle.push(slot);
        }
        Ok(self.recorder.time_after(time))
    }

    /// Counts requests that were due and not started. They have waited at least until now, which
    /// counts as latency from the schedule.
    fn count_not_started(&mut self, end: u64) {
        let Some(schedule) = &mut self.schedule else { return };
        // Those that are missing would have had the mean size of the others.
        let size = self.issued_bytes.checked_div(self.issued).unwrap_or(0);
        let size = size.max(self.workload.block_size);
        let left = (self.limit.saturating_sub(self.issued))
            .min(self.limit_bytes.saturating_sub(self.issued_bytes).div_ceil(size));
        let missed = schedule.missed(end, size).min(left);
        self.recorder.result.run.not_started = missed;
        let run = &mut self.recorder.result.run;
        let direction = if self.workload.access.reads() { &mut run.read } else { &mut run.write };
        // They were due at equal intervals until the end. A thousand points represent any number of
        // them.
        let (waited, points) = (end.saturating_sub(schedule.due()), missed.min(1000));
        for point in 0..points {
            let latency =
                (u128::from(waited) * u128::from(points - point) / u128::from(points)) as u64;
            let times = missed / points + u64::from(point < missed % points);
            direction.latency.saturating_record_n(latency.max(1), times);
        }
    }
}

/// The requests in flight and the results. It is separate from the queue, which the iterator over
/// completions borrows.
struct Recorder<'a> {
    workload: &'a Workload,
    files: &'a [JobFile],
    /// The requests by slot.
    requests: Vec<Request>,
    /// Completions count.
    measuring: bool,
    /// Some files are checked.
    checks: bool,
    plain: Vec<u8>,
    result: JobResult,
    /// A failed request has ended the job.
    stopped: bool,
}

impl<'a> Recorder<'a> {
    /// `writes_pattern`: the blocks that are written are recorded.
    fn new(workload: &'a Workload, files: &'a [JobFile], writes_pattern: bool) -> Self {
        let is_verified = workload.verify && !workload.is_null();
        let run = Run { verified: is_verified.then_some((0, 0)), ..Run::default() };
        let blocks = files.iter().filter(|_| writes_pattern);
        let blocks = blocks.map(|file| file.region.len / workload.block_size);
        let written = blocks.map(|blocks| vec![false; blocks as usize]).collect();
        Self {
            workload,
            files,
            requests: vec![Request::default(); workload.depth as usize],
            measuring: false,
            checks: files.iter().any(|file| !matches!(file.check, Check::None)),
            plain: Vec::new(),
            result: JobResult { run, written, ..JobResult::default() },
            stopped: false,
        }
    }

    #[inline]
    fn count(&mut self, opcode: Opcode, result: Result<u64, i32>, slot: u32, time: u64) {
        let request = &self.requests[slot as usize];
        let bytes = match result {
            Ok(bytes) if bytes == request.place.len => bytes,
            // Every request is within the file as it was, so the file has become shorter.
            Ok(_) => return self.count_error(libc::EIO, true),
            Err(errno) => return self.count_error(errno, false),
        };
        if !self.measuring {
            return;
        }
        let since_pushed = self.workload.rate.map(|_| time.saturating_sub(request.pushed));
        let direction = match opcode {
            Opcode::Read => &mut self.result.run.read,
            Opcode::Write => &mut self.result.run.write,
            _ => &mut self.result.run.sync,
        };
        direction.count(bytes, time.saturating_sub(request.start), since_pushed);
    }

    #[cold]
    fn count_error(&mut self, errno: i32, short: bool) {
        self.stopped = self.workload.stop_on_error;
        self.result.short += u64::from(short);
        count_error(&mut self.result.run.errors, errno, 1);
    }

    /// The current time after completions of `time` have been recorded: checking takes long enough
    /// to read the clock again.
    #[inline]
    fn time_after(&self, time: u64) -> u64 {
        if self.checks { now() } else { time }
    }

    /// Checks the bytes that were read.
    #[inline]
    fn check(&mut self, opcode: Opcode, result: Result<u64, i32>, slot: u32, buffer: &Buffer) {
        if !self.checks || opcode != Opcode::Read {
            return;
        }
        let bytes = &buffer.as_slice()[..result.unwrap_or(0) as usize];
        let place = self.requests[slot as usize].place;
        let (blocks, wrong) = match &self.files[place.file].check {
            Check::None => return,
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
        if let Some((all, all_wrong)) = &mut self.result.run.verified {
            *all += blocks;
            *all_wrong += wrong;
        }
    }
}

/// A random size of at most `room`, which is at least the smallest size.
#[cold]
fn draw(sizes: &Sizes, block_size: u64, random: &mut Random, room: u64) -> u64 {
    // fio draws until a size fits. Near the end of a file a fitting size may be rare, or have a
    // share of 0.
    for _ in 0..64 {
        let size = match sizes {
            Sizes::One => block_size,
            // Every multiple of the block size is equally likely.
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

/// Whether jobs that share files start at different offsets, so that one does not read what another
/// has just fetched. In job files, as in fio, all start at the first block.
fn spreads_jobs(workload: &Workload) -> bool {
    matches!(workload.target, Target::Scratch { .. } | Target::Files { size: None, .. })
}

/// The maximum number of threads of a job: more gain nothing.
const MAX_THREADS: u32 = 1024;

/// The options of a job's queue; `None` for psync, which has no queue.
fn options(workload: &Workload, files: &[JobFile]) -> Option<Options> {
    if workload.backend == Backend::Psync {
        return None;
    }
    let mut options = Options::new()
        .entries(workload.depth.min(Options::MAX_ENTRIES))
        .in_flight(workload.depth)
        .threads(workload.depth.min(MAX_THREADS))
        .single_issuer(true);
    if let Some(backend) = workload.backend.forced() {
        options = options.backend(backend);
    }
    if workload.sqpoll {
        options = options.sqpoll(SqPoll::new(Duration::from_secs(1)));
    }
    if let Some(file) = files.first().filter(|_| workload.iopoll) {
        options = options.iopoll(&file.file);
    }
    if let Some(file) = files.first().filter(|_| workload.passthrough) {
        options = options.passthrough(&file.file);
    }
    Some(options)
}

/// An alignment that suffices for direct I/O on every device.
pub const ALIGN: usize = 4096;

/// A buffer for each slot, filled with incompressible bytes.
fn buffers(workload: &Workload, queue: Option<&mut Queue>) -> Vec<Buffer> {
    let (len, depth) = (workload.largest_request() as usize, workload.depth as usize);
    let fill =
        |slot: usize, bytes: &mut [u8]| pattern::fill(workload.seed, (slot * len) as u64, bytes);
    if let Some(queue) = queue.filter(|_| workload.fixed_buffers) {
        let arena = Arena::new(len, depth);
        // If it is refused, the queue explains why.
        let _ = queue.register_arena(&arena);
        let buffers = (0..depth).map_while(|slot| {
            let mut buffer = arena.take()?;
            fill(slot, &mut buffer);
            Some(Buffer::from(buffer))
        });
        return buffers.collect();
    }
    let aligned = (0..depth).map(|slot| {
        let mut buffer = AlignedBuffer::new(len, ALIGN);
        fill(slot, &mut buffer);
        Buffer::from(buffer)
    });
    aligned.collect()
}

/// The whole buffer, of which a part was in use.
fn whole(buffer: Buffer) -> Buffer {
    match AlignedBuffer::try_from(buffer) {
        Ok(aligned) => aligned.into(),
        Err(buffer) => ArenaBuffer::try_from(buffer).map_or_else(|buffer| buffer, Buffer::from),
    }
}

/// By default the kernel may wake a thread 50 µs late to coalesce timers, which would delay
/// scheduled requests.
fn disable_timer_slack() {
    // SAFETY: the call takes numbers and only changes this thread's timer slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Sleeps until then, or until the bench is interrupted.
fn sleep_until(time: u64) {
    const STEP: Duration = Duration::from_millis(100);
    loop {
        let left = Duration::from_nanos(time.saturating_sub(now()));
        if left.is_zero() || is_interrupted() {
            return;
        }
        std::thread::sleep(left.min(STEP));
    }
}
