//! The contestants. Each has a file that runs the same workloads through its own interface.

mod bare;
mod blocking;
mod compio;
mod glommio;
mod group_commit;
mod monoio;
mod null;
mod per_core;
mod ringway;
mod ringway_log;
mod scan;
mod spawn_blocking;
mod stalls;
mod streams;
mod sum;
mod tasks;
mod threads;
mod tokio_fs;
mod tokio_uring;

use crate::job::Job;
use crate::scan::Work;
use crate::workload::{Operation, Workload};
use anyhow::Context;
use ringway_measure::rounds::Turn;
use scan::Input;

/// A way to read and write files.
pub struct Contestant {
    /// The name for `--contestants` and in tables.
    pub name: &'static str,
    /// What it is, and how it is configured.
    pub about: &'static str,
    /// Whether it is a runtime that owns the threads on which its users' tasks run.
    pub is_runtime: bool,
    /// Whether it needs the build with tokio's own io_uring.
    pub needs_tokio_io_uring: bool,
    /// The reason why it takes no part in this row; `None` if it takes part.
    pub leaves_out: fn(&Workload) -> Option<String>,
    run: Run,
    /// Whether a scan's file is opened for direct I/O. It then takes no part in cached rows.
    scans_directly: bool,
}

enum Run {
    /// The workload of the job, until the job is over.
    Rows(fn(&'static Job) -> anyhow::Result<Turn>),
    /// Reads all ranges of a file.
    Scan(fn(&Input<'_>) -> anyhow::Result<()>),
}

impl Contestant {
    const fn of(name: &'static str, about: &'static str, run: Run) -> Self {
        Self {
            name,
            about,
            is_runtime: false,
            needs_tokio_io_uring: false,
            leaves_out: |_| None,
            run,
            scans_directly: false,
        }
    }

    const fn new(
        name: &'static str,
        about: &'static str,
        run: fn(&'static Job) -> anyhow::Result<Turn>,
    ) -> Self {
        Self::of(name, about, Run::Rows(run))
    }

    /// A contestant of `compare ranges`.
    const fn scan(
        name: &'static str,
        about: &'static str,
        run: fn(&Input<'_>) -> anyhow::Result<()>,
    ) -> Self {
        Self::of(name, about, Run::Scan(run))
    }

    /// The same with direct I/O.
    const fn direct(self, name: &'static str) -> Self {
        Self { name, scans_directly: true, ..self }
    }

    /// Measures one turn.
    pub fn run(&self, job: &'static Job) -> anyhow::Result<Turn> {
        match self.run {
            Run::Rows(run) => run(job),
            Run::Scan(run) => {
                let scan = job.scan.as_ref().context("the row has no ranges")?;
                let (file, direct) = (&*job.file, self.scans_directly);
                let concurrency = job.workload.readers;
                Work::measure(scan, |work| run(&Input { file, work, concurrency, direct }))
            }
        }
    }

    /// Whether the row compares it. If not, the report does not mention it.
    pub fn concerns(&self, workload: &Workload) -> bool {
        let name = &self.name;
        match workload.operation {
            Operation::Timer | Operation::Small | Operation::Cold => {
                [RINGWAY, TOKIO_FS].contains(name)
            }
            Operation::Busy | Operation::BlockOn | Operation::Submitted => {
                [RINGWAY, RINGWAY_KAIO, RINGWAY_THREADS, SPAWN_BLOCKING].contains(name)
            }
            Operation::Null { .. } => [RINGWAY, FLOOR, QUEUE].contains(name),
            Operation::Polls => [RINGWAY, FLOOR].contains(name),
            Operation::Puts => [RINGWAY, RINGWAY_LOG, SPAWN_BLOCKING, GROUP_COMMIT].contains(name),
            Operation::Scan { cached } => !(cached && self.scans_directly),
            Operation::Stall { .. } => true,
            // In cached rows the runtimes have a thread for each core.
            _ if *name == RINGWAY_CURRENT => workload.direct,
            _ => ![RINGWAY_KAIO, RINGWAY_THREADS, RINGWAY_LOG, FLOOR, QUEUE, GROUP_COMMIT]
                .contains(name),
        }
    }
}

/// The baselines of the tables.
pub const SPAWN_BLOCKING: &str = "spawn_blocking";
pub const SPAWN_BLOCKING_ONCE: &str = "spawn_blocking-once";
pub const BARE: &str = "bare";
/// The lower limits on the null backend.
pub const FLOOR: &str = "floor";
pub const QUEUE: &str = "queue";
pub const TOKIO_FS: &str = "tokio-fs";
pub const COMPIO: &str = "compio";
pub const GROUP_COMMIT: &str = "group-commit";
/// The contestants that have targets.
pub const RINGWAY: &str = "ringway";
pub const RINGWAY_CURRENT: &str = "ringway-current";
pub const RINGWAY_KAIO: &str = "ringway-kaio";
pub const RINGWAY_THREADS: &str = "ringway-threads";
pub const RINGWAY_LOG: &str = "ringway-log";

/// All contestants, in the order of the tables.
static ALL: &[&Contestant] = &[
    &ringway::BEST,
    &ringway::CURRENT,
    &ringway::KAIO,
    &ringway::THREADS,
    &ringway_log::LOG,
    &spawn_blocking::EACH,
    &spawn_blocking::ONCE,
    &tokio_fs::POOL,
    &tokio_fs::IO_URING,
    &tokio_uring::RUNTIME,
    &monoio::RUNTIME,
    &glommio::RUNTIME,
    &compio::RUNTIME,
    &bare::TEXTBOOK,
    &bare::GROUPED,
    &threads::THREADS,
    &null::FLOOR_TASKS,
    &null::QUEUE_ONLY,
    &group_commit::GROUP,
];

/// The contestants of such rows, in the order of the tables.
pub fn of(operation: Operation) -> &'static [&'static Contestant] {
    match operation {
        Operation::Scan { .. } => scan::ALL,
        Operation::Stall { .. } => stalls::ALL,
        _ => ALL,
    }
}

/// The contestant with this name in such rows.
pub fn by_name(operation: Operation, name: &str) -> anyhow::Result<&'static Contestant> {
    let contestant = of(operation).iter().copied().find(|contestant| contestant.name == name);
    contestant.with_context(|| format!("no contestant is named {name}; see `compare list`"))
}
