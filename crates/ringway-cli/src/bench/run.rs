//! One run of one cell: its jobs set up, begun together, watched, and their results put together.

use super::clock::now;
use super::job::{Check, Job, JobFile, JobResult, Times};
use super::memory::available_memory;
use super::options::Cache;
use super::pattern;
use super::random::mix;
use super::result::Run;
use super::target::{Ground, SEED, Source};
use super::usage::{Helpers, Window};
use super::workload::{Advice, Backend, Stop, Workload};
use anyhow::Context;
use ringway_core::refusal::errno_text;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What came of a run.
#[derive(Debug)]
pub enum Outcome {
    /// It ran; with remarks on how.
    Ran(Box<Run>, Vec<String>),
    /// It cannot run here, and why.
    Refused(String),
}

const NO_PATTERN: &str = "the file does not hold what --verify writes: reads are compared with plain reads of the same place";

/// How often the kernel's helpers are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes read at a time where a file is read through.
const PIECE: usize = 1 << 20;

/// Runs a cell once. `number` is that of the run; `tick` is called a few times a second.
///
/// # Errors
///
/// What makes going on pointless: files that cannot be read, a thread that panicked.
pub fn run(
    workload: &Workload,
    ground: &Ground,
    cache: Cache,
    number: u32,
    tick: &mut dyn FnMut(),
) -> anyhow::Result<Outcome> {
    let sources = distinct(ground);
    if let Some(reason) = unfit(workload, &sources) {
        return Ok(Outcome::Refused(reason));
    }
    // Looked at before the page cache is set up: looking fills it.
    let mut notes = Vec::new();
    let mut are_pattern = Vec::new();
    for source in &sources {
        are_pattern.push(
            !checks_reads(workload)
                || source.is_pattern(workload)
                || source.holds_pattern(workload)?,
        );
    }
    if are_pattern.contains(&false) {
        notes.push(NO_PATTERN.to_owned());
    }
    if workload.backend != Backend::Null && !workload.direct && workload.reads() {
        sources.iter().try_for_each(|source| set_cache(source, cache)).context("the page cache")?;
    }
    let seed = if workload.rand_repeat { workload.seed } else { workload.seed ^ mix(now()) };
    // Where nothing is read at the same time, every run writes other bytes, so that a write that is
    // lost is found.
    let write_seed = (workload.verify && workload.writes()).then(|| match workload.reads() {
        true => SEED,
        false => mix(SEED ^ u64::from(number + 1)),
    });
    let mut files = Vec::new();
    for job in ground {
        let is_pattern = |source| {
            sources.iter().zip(&are_pattern).any(|(of, is)| *is && Arc::ptr_eq(of, source))
        };
        let opened = job.iter().map(|source| open(workload, source, is_pattern(source)));
        match opened.collect::<io::Result<Vec<_>>>() {
            Ok(opened) => files.push(opened),
            Err(error) => {
                let reason = errno_text(error.raw_os_error().unwrap_or(libc::EIO));
                return Ok(Outcome::Refused(format!("opening the file: {reason}")));
            }
        }
    }
    let (window, helpers, results, refusals) =
        match run_jobs(workload, &files, seed, write_seed, tick)? {
            Ok(ran) => ran,
            Err(refusal) => return Ok(Outcome::Refused(refusal)),
        };
    notes.extend(refusals);
    let mut run = put_together(workload, &window, &helpers, &results, &mut notes);
    if workload.writes() && workload.backend != Backend::Null {
        // What is still to be written back would slow the next run down.
        for source in &sources {
            source.open_plain(false, true)?.sync_all()?;
        }
    }
    if let Some(seed) = write_seed {
        for source in &sources {
            let written = written_of(source, ground, &results);
            read_back(workload, source, &written, seed, &mut run)?;
        }
    }
    Ok(Outcome::Ran(Box::new(run), notes))
}

/// Every file once, however many jobs share it.
fn distinct(ground: &Ground) -> Vec<Arc<Source>> {
    let mut sources: Vec<Arc<Source>> = Vec::new();
    for source in ground.iter().flatten() {
        if !sources.iter().any(|known| Arc::ptr_eq(known, source)) {
            sources.push(Arc::clone(source));
        }
    }
    sources
}

/// Why a workload cannot be run on these files, if it cannot.
fn unfit(workload: &Workload, sources: &[Arc<Source>]) -> Option<String> {
    let block_size = workload.block_size;
    let regions = || sources.iter().map(|source| source.region(workload));
    if workload.backend != Backend::Null && regions().all(|region| region.len < block_size) {
        return Some(format!(
            "what is used of the file is less than one block of {block_size} bytes"
        ));
    }
    let align = sources
        .iter()
        .map(|source| u64::from(source.facts.direct.offset_align))
        .max()
        .unwrap_or(1)
        .max(1);
    let is_aligned = |bytes: u64| bytes.is_multiple_of(align);
    if workload.direct
        && !(is_aligned(block_size) && regions().all(|region| is_aligned(region.start)))
    {
        return Some(format!("direct I/O on this file takes multiples of {align} bytes"));
    }
    let memory = workload
        .largest_request()
        .saturating_mul(u64::from(workload.depth))
        .saturating_mul(u64::from(workload.jobs));
    let available = available_memory();
    (memory > available / 2).then(|| {
        let mib = |bytes: u64| bytes >> 20;
        format!(
            "its buffers would take {} MiB of the {} MiB of memory available",
            mib(memory),
            mib(available)
        )
    })
}

fn set_cache(source: &Source, cache: Cache) -> io::Result<()> {
    match cache {
        Cache::Keep => Ok(()),
        // More than half of the memory would not stay.
        Cache::Warm if source.size > available_memory() / 2 => Ok(()),
        Cache::Warm => {
            let file = source.open_plain(false, false)?;
            let mut piece = vec![0; PIECE];
            let mut at = 0;
            while at < source.size {
                match file.read_at(&mut piece, at)? {
                    0 => break,
                    got => at += got as u64,
                }
            }
            Ok(())
        }
        Cache::Cold => {
            let file = source.open_plain(false, false)?;
            // Pages that are to be written back first are not dropped.
            file.sync_data()?;
            // SAFETY: the call takes numbers, and the descriptor is open. It is advice, and its
            // result of no interest.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            Ok(())
        }
    }
}

/// Whether the bytes that are read are checked.
fn checks_reads(workload: &Workload) -> bool {
    workload.verify && workload.backend != Backend::Null && workload.reads()
}

fn open(workload: &Workload, source: &Source, is_pattern: bool) -> io::Result<JobFile> {
    let null = workload.backend == Backend::Null;
    let check = if !checks_reads(workload) {
        Check::Nothing
    } else if is_pattern {
        Check::Pattern(SEED)
    } else {
        Check::PlainRead(source.open_plain(false, false)?)
    };
    let mut region = source.region(workload);
    if null {
        region.len = region.len.max(workload.block_size);
    }
    let file = source.open(workload.direct, workload.writes() && !null)?;
    if let Some(advice) = advice(workload).filter(|_| !null) {
        // SAFETY: the call takes numbers, and the descriptor is open. It is advice, and its result
        // of no interest.
        unsafe {
            libc::posix_fadvise(file.as_raw_fd(), region.start as i64, region.len as i64, advice)
        };
    }
    Ok(JobFile { file, region, check })
}

/// What the kernel is told of the requests' order.
fn advice(workload: &Workload) -> Option<libc::c_int> {
    match workload.advice {
        Advice::None => None,
        Advice::Own if workload.is_random() => Some(libc::POSIX_FADV_RANDOM),
        Advice::Own => Some(libc::POSIX_FADV_SEQUENTIAL),
        Advice::Random => Some(libc::POSIX_FADV_RANDOM),
        Advice::Sequential => Some(libc::POSIX_FADV_SEQUENTIAL),
    }
}

type Ran = (Arc<Window>, Helpers, Vec<JobResult>, Vec<String>);

/// Runs the jobs, each on a thread; or says why their queues are refused.
fn run_jobs(
    workload: &Workload,
    files: &[Vec<JobFile>],
    seed: u64,
    write_seed: Option<u64>,
    tick: &mut dyn FnMut(),
) -> anyhow::Result<Result<Ran, String>> {
    let window = Arc::new(Window::new(files.len()));
    let begin = Gate::default();
    let leave = Gate::default();
    thread::scope(|scope| {
        let (set_up, are_set_up) = mpsc::channel();
        let (done, are_done) = mpsc::channel();
        for (number, files) in (0..).zip(files) {
            let (window, begin, leave) = (Arc::clone(&window), &begin, &leave);
            let (set_up, done) = (set_up.clone(), done.clone());
            let job = move || {
                let mut job = match Job::new(workload, files, number, seed, write_seed) {
                    Ok(job) => job,
                    Err(error) => {
                        let _ = set_up.send(Err(error.to_string()));
                        return;
                    }
                };
                let _ = set_up.send(Ok(job.refusals()));
                drop(set_up);
                let Some(times) = begin.wait() else { return };
                let _ = done.send((number, job.run(times, &window)));
                drop(done);
                // The kernel's helpers are looked at once more, and would go with the queue.
                let _: Option<()> = leave.wait();
            };
            let spawned =
                thread::Builder::new().name(format!("job {number}")).spawn_scoped(scope, job);
            if let Err(error) = spawned {
                begin.open(None);
                return Err(error).context("a thread for a job");
            }
        }
        drop((set_up, done));

        let mut notes: Vec<String> = Vec::new();
        for answer in are_set_up.iter() {
            match answer {
                Ok(refusals) => refusals.into_iter().for_each(|refusal| note(&mut notes, refusal)),
                Err(refusal) => {
                    begin.open(None);
                    return Ok(Err(refusal));
                }
            }
        }
        let mut helpers = None;
        let times = times(workload);
        begin.open(Some(times));
        // In the order of the jobs.
        let mut results: Vec<(u32, JobResult)> = Vec::new();
        let mut failed = None;
        loop {
            let until_measured = Duration::from_nanos(times.measured.saturating_sub(now()));
            let wait = if helpers.is_none() { until_measured.min(LOOK) } else { LOOK };
            match are_done.recv_timeout(wait) {
                Ok((number, Ok(result))) => results.push((number, result)),
                Ok((_, Err(error))) => failed = Some(error),
                Err(RecvTimeoutError::Timeout) => {
                    if now() >= times.measured {
                        helpers.get_or_insert_with(Helpers::begin).look();
                    }
                    tick();
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if results.len() + usize::from(failed.is_some()) == files.len() {
                break;
            }
        }
        let mut helpers = helpers.unwrap_or_default();
        helpers.look();
        leave.open(Some(()));
        match failed {
            Some(error) => Err(error),
            None if results.len() < files.len() => {
                anyhow::bail!("a job has ended without a result")
            }
            None => {
                results.sort_by_key(|(number, _)| *number);
                let results = results.into_iter().map(|(_, result)| result).collect();
                Ok(Ok((Arc::clone(&window), helpers, results, notes)))
            }
        }
    })
}

/// Where jobs wait for one another.
struct Gate<T>(Mutex<Option<Option<T>>>, Condvar);

impl<T> Default for Gate<T> {
    fn default() -> Self {
        Self(Mutex::new(None), Condvar::new())
    }
}

impl<T: Copy> Gate<T> {
    /// Lets all through; with `None` they are to go home.
    fn open(&self, with: Option<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(with);
        self.1.notify_all();
    }

    fn wait(&self) -> Option<T> {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(with) = *opened {
                return with;
            }
            opened = self.1.wait(opened).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn times(workload: &Workload) -> Times {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let start = now();
    let measured = start.saturating_add(nanoseconds(workload.ramp));
    let runtime = match workload.stop {
        Stop::After(runtime) => Some(runtime),
        Stop::Requests(_) => None,
        Stop::Bytes(_, runtime) | Stop::Whole(runtime) => runtime,
    };
    Times { start, measured, end: measured.saturating_add(runtime.map_or(u64::MAX, nanoseconds)) }
}

fn note(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}

fn put_together(
    workload: &Workload,
    window: &Window,
    helpers: &Helpers,
    results: &[JobResult],
    notes: &mut Vec<String>,
) -> Run {
    let mut run = Run {
        usage: window.usage(),
        verified: (workload.verify && workload.backend != Backend::Null).then_some((0, 0)),
        ..Run::default()
    };
    helpers.add_to(&mut run.usage);
    run.usage.system_calls =
        Some(results.iter().filter_map(|result| result.usage.system_calls).sum());
    if !workload.group_reporting && results.len() > 1 {
        run.jobs = results.iter().map(|result| job_run(result, run.verified.is_some())).collect();
    }
    for result in results {
        run.not_started += result.not_started;
        run.read.add(&result.read);
        run.write.add(&result.write);
        run.sync.add(&result.sync);
        for (errno, count) in &result.errors {
            match run.errors.iter_mut().find(|(known, _)| known == errno) {
                Some((_, counted)) => *counted += count,
                None => run.errors.push((*errno, *count)),
            }
        }
        if let Some((blocks, wrong)) = &mut run.verified {
            *blocks += result.verified.0;
            *wrong += result.verified.1;
        }
    }
    let to_threads: u64 = results.iter().map(|result| result.to_threads).sum();
    if to_threads > 0 {
        notes.push(format!("what {} cannot carry went to threads", backend_name(workload.backend)));
    }
    if results.iter().any(|result| result.short > 0) {
        notes.push(
            "requests came upon the end of the file, which has become shorter: they failed"
                .to_owned(),
        );
    }
    if run.not_started > 0 {
        notes.push(
            "the rate was not reached: requests were due and had not begun when the time was up"
                .to_owned(),
        );
    }
    run
}

/// What one job did.
fn job_run(result: &JobResult, verified: bool) -> Run {
    Run {
        read: result.read.clone(),
        write: result.write.clone(),
        sync: result.sync.clone(),
        usage: result.usage,
        errors: result.errors.clone(),
        not_started: result.not_started,
        verified: verified.then_some(result.verified),
        jobs: Vec::new(),
    }
}

/// The backend's name as in the options.
pub(super) fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Uring => "uring",
        Backend::Kaio => "kaio",
        Backend::Threads => "threads",
        Backend::Psync => "psync",
        Backend::Null => "null",
    }
}

/// The blocks of a file that any of the jobs has written.
fn written_of(source: &Arc<Source>, ground: &Ground, results: &[JobResult]) -> Vec<bool> {
    let mut all = Vec::new();
    for (job, result) in ground.iter().zip(results) {
        for (_, written) in
            job.iter().zip(&result.written).filter(|(of, _)| Arc::ptr_eq(of, source))
        {
            all.resize(written.len(), false);
            all.iter_mut().zip(written).for_each(|(all, written)| *all |= written);
        }
    }
    all
}

/// Checks what a run has written, and puts the pattern that all runs expect back in its place.
fn read_back(
    workload: &Workload,
    source: &Source,
    written: &[bool],
    seed: u64,
    run: &mut Run,
) -> anyhow::Result<()> {
    let len = workload.block_size as usize;
    let file = source.open_plain(workload.direct, false)?;
    let mender = source.open_plain(false, true)?;
    let start = source.region(workload).start;
    let mut buffer = ringway_core::AlignedBuffer::new(len, 4096);
    let mut mended = vec![0; if seed == SEED { 0 } else { len }];
    let offsets = (0..)
        .zip(written)
        .filter(|(_, written)| **written)
        .map(|(block, _)| start + block * workload.block_size);
    for offset in offsets {
        let read = file.read_exact_at(&mut buffer, offset);
        let (blocks, wrong) = pattern::check(seed, offset, &buffer);
        if let Some((all, all_wrong)) = &mut run.verified {
            *all += blocks;
            *all_wrong += if read.is_ok() { wrong } else { blocks };
        }
        if seed != SEED {
            pattern::fill(SEED, offset, &mut mended);
            mender.write_all_at(&mended, offset)?;
        }
    }
    mender.sync_data()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::Access;

    #[test]
    fn the_kernel_is_told_the_order_of_the_requests_unless_something_else_is_asked_for() {
        let told = |access, own| advice(&Workload { access, advice: own, ..Workload::default() });
        for (access, order) in [
            (Access::RandRead, libc::POSIX_FADV_RANDOM),
            (Access::RandWrite, libc::POSIX_FADV_RANDOM),
            (Access::RandRw, libc::POSIX_FADV_RANDOM),
            (Access::Read, libc::POSIX_FADV_SEQUENTIAL),
            (Access::Write, libc::POSIX_FADV_SEQUENTIAL),
            (Access::ReadWrite, libc::POSIX_FADV_SEQUENTIAL),
        ] {
            assert_eq!(told(access, Workload::default().advice), Some(order));
            assert_eq!(told(access, Advice::None), None);
            assert_eq!(told(access, Advice::Random), Some(libc::POSIX_FADV_RANDOM));
            assert_eq!(told(access, Advice::Sequential), Some(libc::POSIX_FADV_SEQUENTIAL));
        }
    }
}
