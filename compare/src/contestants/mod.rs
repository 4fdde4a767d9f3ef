//! Who takes part. Each has a file of its own, which does the same work by its own interface.

mod bare;
mod blocking;
mod compio;
mod glommio;
mod group_commit;
mod monoio;
mod null;
mod per_core;
mod ringway;
mod spawn_blocking;
mod streams;
mod sum;
mod tasks;
mod threads;
mod tokio_fs;
mod tokio_uring;

use crate::figures::Figures;
use crate::job::Job;
use crate::workload::{Workload, Operation};

/// A way of reading files.
pub trait Contestant: Sync {
    /// As `--contestants` and the tables name it.
    fn name(&self) -> &'static str;

    /// What it is, and what was chosen for it.
    fn about(&self) -> &'static str;

    /// Why it takes no part in this row, if it does not.
    fn leaves_out(&self, _: &Workload) -> Option<String> {
        None
    }

    /// Does the work of `job` until that is over.
    fn run(&self, job: &'static Job) -> anyhow::Result<Figures>;

    /// Whether it owns its threads, and its users' tasks with them.
    fn is_runtime(&self) -> bool {
        false
    }

    /// Whether it needs the build with tokio's own io_uring.
    fn needs_tokio_io_uring(&self) -> bool {
        false
    }
}

/// What the others are held against.
pub const SPAWN_BLOCKING: &str = "spawn_blocking";
pub const SPAWN_BLOCKING_ONCE: &str = "spawn_blocking-once";
pub const BARE: &str = "bare";
/// The limits on the null backend.
pub const FLOOR: &str = "floor";
pub const QUEUE: &str = "queue";
pub const TOKIO_FS: &str = "tokio-fs";
pub const COMPIO: &str = "compio";
pub const GROUP_COMMIT: &str = "group-commit";
/// Whom the targets are for.
pub const RINGWAY: &str = "ringway";
pub const RINGWAY_KAIO: &str = "ringway-kaio";
pub const RINGWAY_THREADS: &str = "ringway-threads";

/// All of them, in the order of the tables.
pub static ALL: &[&dyn Contestant] = &[
    &ringway::BEST,
    &ringway::KAIO,
    &ringway::THREADS,
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
    &null::Alone,
    &group_commit::GroupCommit,
];

/// Whether a row is about this contestant at all.
pub fn concerns(workload: &Workload, name: &str) -> bool {
    match workload.operation {
        Operation::Timer | Operation::Small | Operation::Cold => [RINGWAY, TOKIO_FS].contains(&name),
        Operation::Busy | Operation::BlockOn | Operation::Submitted => {
            [RINGWAY, RINGWAY_KAIO, RINGWAY_THREADS, SPAWN_BLOCKING].contains(&name)
        }
        Operation::Null { .. } => [RINGWAY, FLOOR, QUEUE].contains(&name),
        Operation::Polls => [RINGWAY, FLOOR].contains(&name),
        Operation::Puts => [RINGWAY, SPAWN_BLOCKING, GROUP_COMMIT].contains(&name),
        _ => ![RINGWAY_KAIO, RINGWAY_THREADS, FLOOR, QUEUE, GROUP_COMMIT].contains(&name),
    }
}

/// The one of this name.
pub fn by_name(name: &str) -> Option<&'static dyn Contestant> {
    ALL.iter().copied().find(|contestant| contestant.name() == name)
}
