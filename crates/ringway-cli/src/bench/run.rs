//! One run of one workload: starts its jobs together, samples the kernel's helper threads, and adds
//! up the results.

use super::job::{ALIGN, Check, Job, JobFile, JobResult, Times};
use super::memory::available_memory;
use super::progress::Progress;
use super::result::{Run, add_note};
use super::target::{JobFiles, SEED, Source};
use super::workload::{Advice, Cache, Workload};
use anyhow::Context;
use ringway_core::refusal::errno_text;
use ringway_measure::clock::now;
use ringway_measure::random::mix;
use ringway_measure::usage::{Helpers, Others, Usage, Window};
use ringway_measure::{pattern, scratch};
use rustix::fs::fadvise;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// The outcome of a run.
#[derive(Debug)]
pub enum Outcome {
    /// The results, with notes.
    Ran(Box<Run>, Vec<String>),
    /// Why it cannot run here.
    Refused(String),
}

const NO_PATTERN: &str = "the file does not have the pattern of --verify: reads are compared with \
                          plain reads at the same offset";

/// How often the kernel's helper threads are sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

/// Runs a workload once. `number` is the number of the run.
///
/// # Errors
///
/// Errors that end the bench: files that cannot be read, a thread that panicked.
pub fn run(
    workload: &Workload,
    job_files: &JobFiles,
    cache: Cache,
    number: u32,
    progress: &Progress,
) -> anyhow::Result<Outcome> {
    let sources = distinct(job_files);
    if let Some(reason) = unfit(workload, &sources) {
        return Ok(Outcome::Refused(reason));
    }
    // Before the page cache is prepared, since these reads fill it.
    let mut without_pattern = Vec::new();
    for source in sources.iter().filter(|_| checks_reads(workload)) {
        if !source.is_pattern(workload) && !source.holds_pattern(workload)? {
            without_pattern.push(Arc::clone(source));
        }
    }
    let is_pattern = |source| !without_pattern.iter().any(|other| Arc::ptr_eq(source, other));
    if !workload.is_null() && !workload.direct && workload.access.reads() {
        for source in &sources {
            set_cache(source, cache).context("the page cache")?;
        }
    }
    let seed = if workload.rand_repeat { workload.seed } else { workload.seed ^ mix(now()) };
    // Unless reads expect the pattern at the same time, each run writes other bytes, so that a lost
    // write is detected.
    let writes = workload.verify && workload.access.writes();
    let other = mix(SEED ^ u64::from(number + 1));
    let write_seed = writes.then_some(if workload.access.reads() { SEED } else { other });
    let mut files = Vec::new();
    for job in job_files {
        let opened = job.iter().map(|source| open(workload, source, is_pattern(source)));
        match opened.collect::<io::Result<Vec<_>>>() {
            Ok(opened) => files.push(opened),
            Err(error) => {
                let reason = errno_text(error.raw_os_error().unwrap_or(libc::EIO));
                return Ok(Outcome::Refused(format!("opening the file: {reason}")));
            }
        }
    }
    let others = Others::start();
    let ran = match run_jobs(workload, &files, seed, write_seed, progress)? {
        Ok(ran) => ran,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let mut notes = Vec::new();
    if !without_pattern.is_empty() {
        notes.push(NO_PATTERN.to_owned());
    }
    let (mut run, remarks) = combine(workload, ran.usage, &ran.results);
    notes.extend(ran.refusals.into_iter().chain(remarks));
    run.other_processors = others.processors();
    if workload.access.writes() && !workload.is_null() {
        // Writeback would slow the next run down.
        for source in &sources {
            source.open_plain(false, true)?.sync_all()?;
        }
    }
    if let Some(seed) = write_seed {
        for source in &sources {
            let written = written_of(source, job_files, &ran.results);
            read_back(workload, source, &written, seed, &mut run)?;
        }
    }
    Ok(Outcome::Ran(Box::new(run), notes))
}

/// Every file once, however many jobs share it.
fn distinct(job_files: &JobFiles) -> Vec<Arc<Source>> {
    let mut sources: Vec<Arc<Source>> = Vec::new();
    for source in job_files.iter().flatten() {
        if !sources.iter().any(|known| Arc::ptr_eq(known, source)) {
            sources.push(Arc::clone(source));
        }
    }
    sources
}

/// The reason why a workload cannot run on these files.
fn unfit(workload: &Workload, sources: &[Arc<Source>]) -> Option<String> {
    let block_size = workload.block_size;
    let regions = || sources.iter().map(|source| source.region(workload));
    if !workload.is_null() && regions().all(|region| region.len < block_size) {
        return Some(format!(
            "the used part of the file is shorter than a block of {block_size} bytes"
        ));
    }
    let aligns = sources.iter().map(|source| u64::from(source.facts.direct.offset_align));
    let align = aligns.fold(1, u64::max);
    let mut used = regions().map(|region| region.start).chain([block_size]);
    if workload.direct && !used.all(|bytes| bytes.is_multiple_of(align)) {
        return Some(format!("direct I/O on this file needs multiples of {align} bytes"));
    }
    let (memory, available) = (memory_of_buffers(workload), available_memory());
    (memory > available / 2).then(|| {
        let (need, have) = (memory >> 20, available >> 20);
        format!("its buffers need {need} MiB, and {have} MiB of memory are available")
    })
}

/// Each buffer takes whole pages, and a part of one for its allocation and its request.
fn memory_of_buffers(workload: &Workload) -> u64 {
    let buffers = u64::from(workload.depth) * u64::from(workload.jobs);
    let each = (workload.largest_request() + 256).next_multiple_of(ALIGN as u64);
    each.saturating_mul(buffers)
}

fn set_cache(source: &Source, cache: Cache) -> io::Result<()> {
    match cache {
        Cache::Keep => Ok(()),
        // A file larger than half of the memory would not stay in the cache.
        Cache::Warm if source.size > available_memory() / 2 => Ok(()),
        Cache::Warm => scratch::load_page_cache(&source.open_plain(false, false)?, source.size),
        Cache::Cold => scratch::drop_page_cache(&source.open_plain(false, false)?),
    }
}

/// Whether bytes that are read are checked.
fn checks_reads(workload: &Workload) -> bool {
    workload.verify && !workload.is_null() && workload.access.reads()
}

fn open(workload: &Workload, source: &Source, is_pattern: bool) -> io::Result<JobFile> {
    let null = workload.is_null();
    let check = if !checks_reads(workload) {
        Check::None
    } else if is_pattern {
        Check::Pattern(SEED)
    } else {
        Check::PlainRead(source.open_plain(false, false)?)
    };
    let mut region = source.region(workload);
    if null {
        region.len = region.len.max(workload.block_size);
    }
    let writes = workload.access.writes() && !null;
    let file = if workload.passthrough {
        source.open_generic(writes)?
    } else {
        source.open(workload.direct, writes)?
    };
    if let Some(advice) = advice(workload).filter(|_| !null) {
        // It is advice: a file that does not take it is measured without it.
        let _ = fadvise(&file, region.start, NonZeroU64::new(region.len), advice);
    }
    Ok(JobFile { file, region, check })
}

/// The access pattern announced to the kernel.
fn advice(workload: &Workload) -> Option<rustix::fs::Advice> {
    match workload.advice {
        Advice::None => None,
        Advice::Own if workload.access.is_random() => Some(rustix::fs::Advice::Random),
        Advice::Random => Some(rustix::fs::Advice::Random),
        Advice::Own | Advice::Sequential => Some(rustix::fs::Advice::Sequential),
    }
}

/// What the jobs of a run did.
struct Ran {
    usage: Usage,
    results: Vec<JobResult>,
    /// The requested options that were refused.
    refusals: Vec<String>,
}

/// Runs each job on its own thread. The inner error is the reason why a queue was refused.
fn run_jobs(
    workload: &Workload,
    files: &[Vec<JobFile>],
    seed: u64,
    write_seed: Option<u64>,
    progress: &Progress,
) -> anyhow::Result<Result<Ran, String>> {
    let window = Window::new(files.len());
    // Jobs wait for the times, or for `None`, which ends them; and at the end until they may leave.
    let (start, leave) = (OnceLock::<Option<Times>>::new(), OnceLock::<()>::new());
    let job = |number, files, ready: mpsc::Sender<_>, done: mpsc::Sender<()>| {
        let job = Job::new(workload, files, number, seed, write_seed);
        let _ = ready.send(job.as_ref().map(Job::refusals).map_err(ToString::to_string));
        drop(ready);
        let mut job = job.ok()?;
        let result = job.run((*start.wait())?, &window);
        drop(done);
        // The helper threads exit with the queue; they are sampled once more before that.
        leave.wait();
        Some(result)
    };
    thread::scope(|scope| {
        let ((ready, all_ready), (done, all_done)) = (mpsc::channel(), mpsc::channel());
        let mut threads = Vec::new();
        for (number, files) in (0..).zip(files) {
            let (job, ready, done) = (&job, ready.clone(), done.clone());
            let thread = thread::Builder::new().name(format!("job {number}"));
            let thread = thread.spawn_scoped(scope, move || job(number, files, ready, done));
            if thread.is_err() {
                let _ = start.set(None);
            }
            threads.push(thread.context("start a thread for a job")?);
        }
        drop((ready, done));
        let mut refusals = Vec::new();
        for ready in all_ready {
            match ready {
                Ok(refused) => {
                    for refusal in refused {
                        add_note(&mut refusals, refusal);
                    }
                }
                Err(refusal) => {
                    let _ = start.set(None);
                    return Ok(Err(refusal));
                }
            }
        }
        let times = times(workload);
        let _ = start.set(Some(times));
        let helpers = sample_helpers(&all_done, times.measured, progress);
        let _ = leave.set(());
        let result = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().ok().flatten().context("a job ended without a result")?
        };
        let results = threads.into_iter().map(result).collect::<anyhow::Result<_>>()?;
        let mut usage = window.usage();
        helpers.add_to(&mut usage);
        Ok(Ok(Ran { usage, results, refusals }))
    })
}

/// Samples the kernel's helper threads from the time `measured` until all jobs have ended.
fn sample_helpers(all_done: &mpsc::Receiver<()>, measured: u64, progress: &Progress) -> Helpers {
    let mut helpers = None;
    loop {
        let until_measured = Duration::from_nanos(measured.saturating_sub(now()));
        let wait = if helpers.is_none() { until_measured } else { SAMPLE_INTERVAL };
        if all_done.recv_timeout(wait.min(SAMPLE_INTERVAL)) != Err(RecvTimeoutError::Timeout) {
            break;
        }
        if now() >= measured {
            helpers.get_or_insert_with(Helpers::start).sample();
        }
        progress.tick();
    }
    let mut helpers = helpers.unwrap_or_default();
    helpers.sample();
    helpers
}

fn times(workload: &Workload) -> Times {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let start = now();
    let measured = start.saturating_add(nanoseconds(workload.ramp));
    let runtime = workload.stop.runtime().map_or(u64::MAX, nanoseconds);
    Times { start, measured, end: measured.saturating_add(runtime) }
}

/// The run of all jobs, and what to know about it.
fn combine(workload: &Workload, usage: Usage, results: &[JobResult]) -> (Run, Vec<String>) {
    let mut run = Run { usage, ..Run::default() };
    for result in results {
        run.add(&result.run);
    }
    if !workload.group_reporting && results.len() > 1 {
        run.jobs = results.iter().map(|result| result.run.clone()).collect();
    }
    let notes = [
        (
            results.iter().any(|result| result.to_threads > 0),
            "operations ran on threads: the backend does not support them, or submitting waits",
        ),
        (
            results.iter().any(|result| result.short > 0),
            "the file became shorter: requests reached the end of the file and failed",
        ),
        (
            run.not_started > 0,
            "the rate was not reached: requests were due and not started at the end",
        ),
    ];
    let notes = notes.into_iter().filter(|(is, _)| *is).map(|(_, note)| note.to_owned());
    (run, notes.collect())
}

/// The blocks of a file that the jobs have written.
fn written_of(source: &Arc<Source>, job_files: &JobFiles, results: &[JobResult]) -> Vec<bool> {
    let mut all = Vec::new();
    for (files, result) in job_files.iter().zip(results) {
        for (file, written) in files.iter().zip(&result.written) {
            if Arc::ptr_eq(file, source) {
                all.resize(written.len(), false);
                for (all, written) in all.iter_mut().zip(written) {
                    *all |= written;
                }
            }
        }
    }
    all
}

/// Checks the blocks that a run has written, and restores the pattern that all runs expect.
fn read_back(
    workload: &Workload,
    source: &Source,
    written: &[bool],
    seed: u64,
    run: &mut Run,
) -> anyhow::Result<()> {
    let len = workload.block_size as usize;
    let file = source.open_plain(workload.direct, false)?;
    let plain = source.open_plain(false, true)?;
    let start = source.region(workload).start;
    let mut buffer = ringway_core::AlignedBuffer::new(len, 4096);
    let mut restored = vec![0; if seed == SEED { 0 } else { len }];
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
            pattern::fill(SEED, offset, &mut restored);
            plain.write_all_at(&restored, offset)?;
        }
    }
    plain.sync_data()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::{Access, MAX_REQUEST};
    use clap::ValueEnum;

    /// With `bs=1` and `iodepth=2g` of a job file, the bytes alone were 2 GiB.
    #[test]
    fn small_buffers_take_whole_pages() {
        let memory = |block_size, depth| {
            memory_of_buffers(&Workload { block_size, depth, jobs: 2, ..Workload::default() })
        };
        assert_eq!(memory(1, 1 << 31), 1 << 44);
        assert_eq!(memory(64 << 10, 8), 16 * (68 << 10));
        assert_eq!(memory(MAX_REQUEST, u32::MAX), 2 * (MAX_REQUEST + 4096) * u64::from(u32::MAX));
    }

    #[test]
    fn the_kernel_is_advised_of_the_access_pattern_by_default() {
        use rustix::fs::Advice as Posix;
        let given = |access, own| advice(&Workload { access, advice: own, ..Workload::default() });
        for &access in Access::value_variants() {
            let is_random = access.name().starts_with("rand");
            let order = if is_random { Posix::Random } else { Posix::Sequential };
            assert_eq!(given(access, Workload::default().advice), Some(order));
            assert_eq!(given(access, Advice::None), None);
            assert_eq!(given(access, Advice::Random), Some(Posix::Random));
            assert_eq!(given(access, Advice::Sequential), Some(Posix::Sequential));
        }
    }
}
