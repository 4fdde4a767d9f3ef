//! The rows of the matrix (`tests/matrix`) on a faulty backend: calls on files with a fault at each
//! of their steps in turn, those that take paths with faults by chance on one engine, which is the
//! global one meanwhile.

#[path = "../tests/matrix/rows.rs"]
mod rows;

use crate::{BackendKind, Engine, FaultPlan};
use futures::executor::block_on;
use ringway_core::{FaultStep, Late};
use rows::{Does, Row, World};
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// After this a call hangs. Nothing here takes a hundredth of it.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// More than any call has.
const STEPS: u64 = 40;
/// How often a call is made with faults by chance.
const TIMES: u32 = 4;

thread_local! {
    static GLOBAL: Cell<Option<&'static Engine>> = const { Cell::new(None) };
}

/// What this thread takes for the global engine.
pub(crate) fn global() -> Option<&'static Engine> {
    GLOBAL.get()
}

/// What goes wrong with a step of a call.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It fails, and so must the call.
    Error,
    /// It is to be tried again, which nobody sees.
    Retry(i32),
    /// A transfer is cut short.
    Cut,
    /// It is answered after everything else.
    Last,
    /// It is answered when it is cancelled, and the future is dropped.
    Never,
    /// The backend cannot be entered any more.
    Dead,
}

impl Fault {
    fn at(self, step: u64) -> FaultPlan {
        let (plan, at) = (FaultPlan::new(step), FaultStep::Job(step));
        match self {
            Self::Error => plan.fail(at, libc::EIO),
            Self::Retry(errno) => plan.fail(at, errno),
            Self::Cut => plan.cut(at),
            Self::Last => plan.late(at, Late::Last),
            Self::Never => plan.late(at, Late::Forever),
            Self::Dead => plan.enters(step as u32),
        }
    }

    fn by_chance(self) -> FaultPlan {
        let plan = FaultPlan::new(7);
        match self {
            Self::Error => plan.errors(200).sync_errors(200),
            Self::Retry(_) => plan.retryable(300),
            Self::Cut => plan.short(500),
            Self::Last | Self::Never => plan.starve(200),
            Self::Dead => plan.enters(10),
        }
    }

    /// Whether a call may be answered so. `hit` tells whether it has met the fault, if that is
    /// known.
    fn allows(self, answer: &io::Result<()>, hit: Option<bool>) -> bool {
        let errno = answer.as_ref().map_or_else(io::Error::raw_os_error, |()| Some(0));
        match self {
            Self::Error if hit == Some(true) => errno == Some(libc::EIO),
            Self::Error if hit.is_none() => matches!(errno, Some(0 | libc::EIO | libc::ENOSPC)),
            Self::Dead => matches!(errno, Some(0 | libc::ECANCELED | libc::ESHUTDOWN)),
            _ => errno == Some(0),
        }
    }
}

/// The calls with one fault.
struct Table {
    fault: Fault,
    cells: usize,
    faults: usize,
    wrong: Vec<String>,
}

impl Table {
    /// Makes a call on this engine, whose fault is at this step of it.
    fn cell(
        &mut self,
        row: &Row,
        kind: BackendKind,
        direct: bool,
        engine: &Engine,
        step: Option<u64>,
    ) {
        let dir = scratch();
        let mut call = (row.call)(World::new(engine, kind, dir.path(), direct));
        let answer = match self.fault {
            Fault::Never => at_once(call.as_mut()),
            _ => Some(block_on(call.as_mut())),
        };
        drop(call);
        settle(engine, row.name);
        let stats = engine.stats();
        let hit = match step {
            Some(step) if stats.counts.pushed <= step => Some(false),
            // What the backend has left to threads is not among its jobs, and nobody is told of a
            // read ahead that is not used.
            Some(_) if stats.to_threads == 0 && !row.name.starts_with("Reader::") => Some(true),
            _ => None,
        };
        self.faults += usize::from(hit == Some(true));
        let text = match &answer {
            Some(answer) => answer.as_ref().map_or_else(ToString::to_string, |()| "Ok".to_owned()),
            None => "dropped".to_owned(),
        };
        let place = step.map_or("by chance".to_owned(), |step| format!("at step {step}"));
        let fault = format!("{:?} {place}", self.fault);
        let line = format!("{:46} {fault:28} {:8} {text}", row.name, kind.to_string());
        println!("{line}");
        self.cells += 1;
        let allowed = answer.is_none_or(|answer| self.fault.allows(&answer, hit));
        let entries = std::fs::read_dir(dir.path()).unwrap();
        let litter = entries
            .map(|entry| entry.unwrap().file_name())
            .find(|name| name.as_encoded_bytes().ends_with(b".tmp"));
        if !allowed || litter.is_some() {
            self.wrong.push(format!("{line}, hit: {hit:?}, left: {litter:?}"));
        }
    }

    fn on_files(&mut self, kind: BackendKind) {
        for direct in [false, true] {
            for row in rows::files().iter().filter(|row| row.does.has(Does::OPERATION)) {
                for step in 0..STEPS {
                    let engine = engine(kind, self.fault.at(step));
                    self.cell(row, kind, direct, &engine, Some(step));
                    if engine.stats().counts.pushed <= step {
                        break; // It has fewer steps.
                    }
                }
            }
        }
    }

    fn on_paths(&mut self, kind: BackendKind) {
        let engine: &'static Engine = Box::leak(Box::new(engine(kind, self.fault.by_chance())));
        GLOBAL.set(Some(engine));
        for row in rows::paths().iter().filter(|row| row.does.has(Does::OPERATION)) {
            for _ in 0..TIMES {
                self.cell(row, kind, false, engine, None);
            }
        }
        GLOBAL.set(None);
    }
}

fn engine(kind: BackendKind, plan: FaultPlan) -> Engine {
    let builder = Engine::builder().backend(kind).shards(1).try_cached(false).faults(plan);
    builder.close_wait(Duration::from_millis(200)).build().unwrap()
}

/// A directory on the disk that this program is on.
fn scratch() -> tempfile::TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

/// A future's result, unless it waits for something for long.
fn at_once(mut call: Pin<&mut dyn Future<Output = io::Result<()>>>) -> Option<io::Result<()>> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(10) {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(answer);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

/// Waits until nothing is in flight.
fn settle(engine: &Engine, name: &str) {
    let begun = Instant::now();
    while engine.stats().counts.in_flight > 0 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{name}: something is in flight for ever");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn matrix(fault: Fault) {
    let mut table = Table { fault, cells: 0, faults: 0, wrong: Vec::new() };
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        match Engine::builder().backend(kind).shards(1).build() {
            Ok(_) => {
                table.on_files(kind);
                table.on_paths(kind);
            }
            Err(error) => println!("skipped: {kind}: {error}"),
        }
    }
    println!("{fault:?}: {} cells, {} faults at known steps", table.cells, table.faults);
    assert!(table.wrong.is_empty(), "{fault:?}:\n{}", table.wrong.join("\n"));
}

#[test]
fn steps_that_fail() {
    matrix(Fault::Error);
}

#[test]
fn steps_to_be_tried_again() {
    for errno in [libc::EINTR, libc::EAGAIN, libc::ECANCELED] {
        matrix(Fault::Retry(errno));
    }
}

#[test]
fn steps_that_are_cut_short() {
    matrix(Fault::Cut);
}

#[test]
fn steps_that_come_last() {
    matrix(Fault::Last);
}

#[test]
fn steps_that_never_come() {
    matrix(Fault::Never);
}

#[test]
fn a_backend_that_dies() {
    matrix(Fault::Dead);
}
