//! The calls of `tests/matrix/rows.rs` with injected faults. Calls on files get a fault at each of
//! their steps in turn. Calls that take paths get random faults on one engine, which stands in for
//! the global one.

#[path = "../tests/matrix/rows.rs"]
mod rows;

use crate::{BackendKind, Engine, FaultPlan};
use futures::executor::block_on;
use ringway_core::{FaultStep, Late};
use rows::{Effects, Fixture, Row};
use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A call that takes longer hangs. Normal calls take less than a hundredth of this.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// More steps than any call has.
const STEPS: u64 = 40;
/// How often each call is made with random faults.
const TIMES: u32 = 4;

thread_local! {
    static GLOBAL: Cell<Option<&'static Engine>> = const { Cell::new(None) };
}

/// The engine that stands in for the global one on this thread.
pub(crate) fn global() -> Option<&'static Engine> {
    GLOBAL.get()
}

/// What goes wrong at a step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepFault {
    /// The step fails, and so must the call.
    Error,
    /// The step is retried, which the caller does not see.
    Retry(i32),
    /// A transfer is cut short.
    Short,
    /// The step completes after everything else.
    Last,
    /// The step completes only when it is cancelled, and the future is dropped.
    Never,
    /// The backend refuses all further submissions.
    Dead,
}

impl StepFault {
    fn at(self, step: u64) -> FaultPlan {
        let (plan, at) = (FaultPlan::new(step), FaultStep::Job(step));
        match self {
            Self::Error => plan.fail(at, libc::EIO),
            Self::Retry(errno) => plan.fail(at, errno),
            Self::Short => plan.cut(at),
            Self::Last => plan.late(at, Late::Last),
            Self::Never => plan.late(at, Late::Forever),
            Self::Dead => plan.enters(step as u32),
        }
    }

    fn random(self) -> FaultPlan {
        let plan = FaultPlan::new(7);
        match self {
            Self::Error => plan.errors(200).sync_errors(200),
            Self::Retry(_) => plan.retryable(300),
            Self::Short => plan.short(500),
            Self::Last | Self::Never => plan.starve(200),
            Self::Dead => plan.enters(10),
        }
    }

    /// Whether the result of a call is acceptable. `hit`: whether the call met the fault, if that
    /// is known.
    fn allows(self, result: &io::Result<()>, hit: Option<bool>) -> bool {
        let errno = result.as_ref().map_or_else(io::Error::raw_os_error, |()| Some(0));
        match self {
            Self::Error if hit == Some(true) => errno == Some(libc::EIO),
            Self::Error if hit.is_none() => matches!(errno, Some(0 | libc::EIO | libc::ENOSPC)),
            Self::Dead => matches!(errno, Some(0 | libc::ECANCELED | libc::ESHUTDOWN)),
            _ => errno == Some(0),
        }
    }
}

/// The calls with one kind of fault.
struct FaultTable {
    fault: StepFault,
    cases: usize,
    faults: usize,
    wrong: Vec<String>,
}

impl FaultTable {
    /// Makes a call on this engine, whose fault is at this step of the call.
    fn run_case(
        &mut self,
        row: &Row,
        kind: BackendKind,
        direct: bool,
        engine: &Engine,
        step: Option<u64>,
    ) {
        let dir = scratch();
        let mut call = (row.call)(Fixture::new(engine, kind, dir.path(), direct));
        let result = match self.fault {
            StepFault::Never => poll_for_a_while(call.as_mut()),
            _ => Some(block_on(call.as_mut())),
        };
        drop(call);
        // A close that was begun is not cancelled: its descriptor would stay open. Nor is what a
        // writer has accepted: it is written after the writer was dropped.
        let goes_on = row.name == "File::close" || row.name.starts_with("Writer::");
        if self.fault != StepFault::Never || !goes_on {
            settle(engine, row.name);
        }
        let stats = engine.stats();
        let hit = match step {
            Some(step) if stats.counts.pushed <= step => Some(false),
            // The fault plan does not count operations that fell back to threads, and the error of
            // an unused read-ahead is not reported.
            Some(_) if stats.to_threads == 0 && !row.name.starts_with("Reader::") => Some(true),
            _ => None,
        };
        self.faults += usize::from(hit == Some(true));
        let text = match &result {
            Some(result) => result.as_ref().map_or_else(ToString::to_string, |()| "Ok".to_owned()),
            None => "dropped".to_owned(),
        };
        let at = step.map_or("random".to_owned(), |step| format!("at step {step}"));
        let fault = format!("{:?} {at}", self.fault);
        let line = format!("{:46} {fault:28} {:8} {text}", row.name, kind.to_string());
        println!("{line}");
        self.cases += 1;
        let is = |result: &io::Result<()>, errno: i32| {
            result.as_ref().is_err_and(|error| error.raw_os_error() == Some(errno))
        };
        // What a close returns is its result. (Only a ring may cancel one before it starts.)
        let closes = row.name == "File::close" && hit == Some(true);
        let allowed = result.is_none_or(|result| match self.fault {
            StepFault::Retry(libc::EAGAIN) if closes => is(&result, libc::EAGAIN),
            StepFault::Retry(libc::ECANCELED) if closes && kind == BackendKind::Threads => {
                is(&result, libc::ECANCELED)
            }
            // The file is in /proc, where what a blocking call answers is the answer.
            StepFault::Retry(_) if row.name == "fs::read, without a length" => {
                is(&result, libc::EAGAIN)
                    || is(&result, libc::ECANCELED)
                    || self.fault.allows(&result, hit)
            }
            _ => self.fault.allows(&result, hit),
        });
        let entries = std::fs::read_dir(dir.path()).unwrap();
        let leftover = entries
            .map(|entry| entry.unwrap().file_name())
            .find(|name| name.as_encoded_bytes().ends_with(b".tmp"));
        if !allowed || leftover.is_some() {
            self.wrong.push(format!("{line}, hit: {hit:?}, left: {leftover:?}"));
        }
    }

    fn on_files(&mut self, kind: BackendKind) {
        for direct in [false, true] {
            for row in rows::files().iter().filter(|row| row.effects.has(Effects::OPERATION)) {
                for step in 0..STEPS {
                    let engine = engine(kind, self.fault.at(step));
                    self.run_case(row, kind, direct, &engine, Some(step));
                    if engine.stats().counts.pushed <= step {
                        break; // The call has fewer steps.
                    }
                }
            }
        }
    }

    fn on_paths(&mut self, kind: BackendKind) {
        let engine: &'static Engine = Box::leak(Box::new(engine(kind, self.fault.random())));
        GLOBAL.set(Some(engine));
        for row in rows::paths().iter().filter(|row| row.effects.has(Effects::OPERATION)) {
            for _ in 0..TIMES {
                self.run_case(row, kind, false, engine, None);
            }
        }
        GLOBAL.set(None);
    }
}

fn engine(kind: BackendKind, plan: FaultPlan) -> Engine {
    let builder = Engine::builder().backend(kind).shards(1).try_cached(false).faults(plan);
    builder.close_wait(Duration::from_millis(200)).build().unwrap()
}

/// A directory on a disk: in TMPDIR if that is set, else on the file system of this program.
fn scratch() -> tempfile::TempDir {
    let program = std::env::current_exe().unwrap();
    let parent = std::env::var_os("TMPDIR").map_or(program.parent().unwrap().into(), PathBuf::from);
    tempfile::tempdir_in(parent).unwrap()
}

/// Polls a future for 10 ms. Returns its result if it completes.
fn poll_for_a_while(
    mut call: Pin<&mut dyn Future<Output = io::Result<()>>>,
) -> Option<io::Result<()>> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(10) {
        if let Poll::Ready(result) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(result);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

/// Waits until nothing is in flight.
fn settle(engine: &Engine, name: &str) {
    let begun = Instant::now();
    while engine.stats().counts.in_flight > 0 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{name}: operations are still in flight");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn matrix(fault: StepFault) {
    let mut table = FaultTable { fault, cases: 0, faults: 0, wrong: Vec::new() };
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        match Engine::builder().backend(kind).shards(1).build() {
            Ok(_) => {
                table.on_files(kind);
                table.on_paths(kind);
            }
            Err(error) => println!("skipped: {kind}: {error}"),
        }
    }
    println!("{fault:?}: {} cases, {} faults at known steps", table.cases, table.faults);
    assert!(table.faults > 0, "{fault:?}: no call met its fault");
    assert!(table.wrong.is_empty(), "{fault:?}:\n{}", table.wrong.join("\n"));
}

#[test]
fn failing_steps_fail_the_call() {
    matrix(StepFault::Error);
}

#[test]
fn retryable_steps_are_retried() {
    for errno in [libc::EINTR, libc::EAGAIN, libc::ECANCELED] {
        matrix(StepFault::Retry(errno));
    }
}

#[test]
fn short_steps_are_continued() {
    matrix(StepFault::Short);
}

#[test]
fn late_steps_are_waited_for() {
    matrix(StepFault::Last);
}

#[test]
fn hanging_steps_are_cancelled() {
    matrix(StepFault::Never);
}

#[test]
fn a_failing_backend_ends_all_calls() {
    matrix(StepFault::Dead);
}
