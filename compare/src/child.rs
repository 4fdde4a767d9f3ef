//! One process for each measurement, so that `getrusage` counts that measurement alone: starting
//! it, waiting for it, and what it does.

use crate::contestants;
use crate::job::{Assignment, Job};
use anyhow::{Context, ensure};
use ringway_measure::rounds::Turn;
use std::panic;
use std::path::Path;
use std::process::{self, Command};
use std::time::Duration;

/// The time a child has for all that is neither warm-up nor measurement.
const OVERHEAD_LIMIT: Duration = Duration::from_secs(60);
/// The time that a scan may take.
const SCAN_LIMIT: Duration = Duration::from_secs(300);

/// Runs in the child: measures, prints one line, and exits even if operations are in flight.
pub fn run(assignment: &str) -> anyhow::Result<()> {
    // If one reader panics, the others must not be measured without it.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        hook(info);
        process::abort();
    }));
    let assignment: Assignment = serde_json::from_str(assignment).context("assignment")?;
    let contestant = contestants::by_name(assignment.workload.operation, &assignment.contestant)?;
    let has_tokio_io_uring = cfg!(all(tokio_unstable, feature = "tokio-io-uring"));
    ensure!(
        contestant.needs_tokio_io_uring == has_tokio_io_uring,
        "{} needs the other build of this program; give it with --tokio-io-uring",
        contestant.name
    );
    let turn = contestant.run(Job::new(assignment))?;
    println!("{}", serde_json::to_string(&turn)?);
    process::exit(0);
}

/// Runs in the parent: measures in a process of `program`, which is killed if it takes too long.
pub fn measure(program: &Path, assignment: &Assignment) -> anyhow::Result<Turn> {
    let limit = match assignment.scan {
        Some(_) => SCAN_LIMIT,
        None => assignment.warm_up + assignment.time + OVERHEAD_LIMIT,
    };
    let mut command = Command::new(program);
    command.arg("run").arg(serde_json::to_string(assignment)?);
    ringway_measure::process::run(&mut command, limit)
}
