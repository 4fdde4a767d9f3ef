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
mod streams;
mod sum;
mod tasks;
mod threads;
mod tokio_fs;
mod tokio_uring;

use crate::job::Job;
use crate::workload::{Operation, Workload};
use anyhow::Context;
use ringway_measure::rounds::Turn;

/// A way to read and write files.
pub trait Contestant: Sync {
    /// The name for `--contestants` and in tables.
    fn name(&self) -> &'static str;

    /// What it is, and how it is configured.
    fn about(&self) -> &'static str;

    /// Whether the row compares it. If not, the report does not mention it.
    fn concerns(&self, workload: &Workload) -> bool {
        concerns(workload, self.name())
    }

    /// The reason why it takes no part in this row; `None` if it takes part.
    fn leaves_out(&self, _: &Workload) -> Option<String> {
        None
    }

    /// Runs the workload of `job` until the job is over.
    fn run(&self, job: &'static Job) -> anyhow::Result<Turn>;

    /// Whether it is a runtime that owns the threads on which its users' tasks run.
    fn is_runtime(&self) -> bool {
        false
    }

    /// Whether it needs the build with tokio's own io_uring.
    fn needs_tokio_io_uring(&self) -> bool {
        false
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
pub const RINGWAY_KAIO: &str = "ringway-kaio";
pub const RINGWAY_THREADS: &str = "ringway-threads";
pub const RINGWAY_LOG: &str = "ringway-log";

/// All contestants, in the order of the tables.
static ALL: &[&dyn Contestant] = &[
    &ringway::BEST,
    &ringway::KAIO,
    &ringway::THREADS,
    &ringway_log::RingwayLog,
    &spawn_blocking::EACH,
    &spawn_blocking::ONCE,
    &tokio_fs::POOL,
    &tokio_fs::IO_URING,
    &tokio_uring::TokioUring,
    &monoio::Monoio,
    &glommio::Glommio,
    &compio::Compio,
    &bare::TEXTBOOK,
    &bare::GROUPED,
    &threads::Threads,
    &null::Floor,
    &null::QueueOnly,
    &group_commit::GroupCommit,
];

/// Whether the row compares the contestant with this name, of those in [`ALL`].
fn concerns(workload: &Workload, name: &str) -> bool {
    match workload.operation {
        Operation::Timer | Operation::Small | Operation::Cold => {
            [RINGWAY, TOKIO_FS].contains(&name)
        }
        Operation::Busy | Operation::BlockOn | Operation::Submitted => {
            [RINGWAY, RINGWAY_KAIO, RINGWAY_THREADS, SPAWN_BLOCKING].contains(&name)
        }
        Operation::Null { .. } => [RINGWAY, FLOOR, QUEUE].contains(&name),
        Operation::Polls => [RINGWAY, FLOOR].contains(&name),
        Operation::Scan { .. } => false,
        Operation::Puts => [RINGWAY, RINGWAY_LOG, SPAWN_BLOCKING, GROUP_COMMIT].contains(&name),
        _ => ![RINGWAY_KAIO, RINGWAY_THREADS, RINGWAY_LOG, FLOOR, QUEUE, GROUP_COMMIT]
            .contains(&name),
    }
}

/// The contestants of such rows, in the order of the tables.
pub fn of(operation: Operation) -> &'static [&'static dyn Contestant] {
    if operation.is_scan() { scan::ALL } else { ALL }
}

/// The contestant with this name in such rows.
pub fn by_name(operation: Operation, name: &str) -> anyhow::Result<&'static dyn Contestant> {
    let contestant = of(operation).iter().copied().find(|contestant| contestant.name() == name);
    contestant.with_context(|| format!("no contestant is named {name}; see `compare list`"))
}
