//! One turn: a process that does one piece of work with one contestant, and its figures. The
//! counters of the process are then those of this work alone.

use crate::contestant::Contestant;
use crate::page_cache;
use crate::work::Work;
use anyhow::{Context, ensure};
use ringway_measure::machine::Machine;
use ringway_measure::process::{self, device_bytes, peak_memory};
use ringway_measure::rounds::{OTHERS, Turn};
use ringway_measure::usage::{Others, Snapshot};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Cached work is repeated at least this long: a single query may take a few milliseconds.
const LEAST_TIME: Duration = Duration::from_secs(1);
/// A turn that takes longer is an error.
const LONGEST: Duration = Duration::from_secs(900);
const MIB: f64 = 1024.0 * 1024.0;

/// What the process of a turn does.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Assignment {
    pub contestant: Contestant,
    pub work: Work,
    /// The folders that are dropped from the page cache before the work; `None` if the files are
    /// to be in the page cache.
    pub cold: Option<Vec<PathBuf>>,
}

/// The figures, for one repetition of the work.
pub const WALL: &str = "wall s";
pub const CPU: &str = "CPU s";
pub const MACHINE: &str = "machine s";
pub const USER: &str = "user s";
pub const SYSTEM: &str = "system s";
pub const SWITCHES: &str = "switches";
/// Bytes that the process had the device read.
pub const READ: &str = "read MiB";
/// The most memory of the process.
pub const PEAK: &str = "RSS MiB";
/// How often the work was done.
const REPETITIONS: &str = "repetitions";
/// Rows or files that were found.
const FOUND: &str = "found";

/// Does the work of a turn, in the process of the turn.
///
/// # Errors
///
/// Those of the work; a cold turn that read nothing from the device.
pub fn run(turn: &str) -> anyhow::Result<()> {
    let assignment: Assignment = serde_json::from_str(turn).context("turn")?;
    let Assignment { contestant, work, cold } = &assignment;
    let runtime = tokio::runtime::Runtime::new()?;
    let work = || runtime.block_on(work.run(*contestant));
    match cold {
        Some(folders) => page_cache::drop(folders)?,
        None => std::mem::drop(work()?),
    }
    let (others, machine) = (Others::start(), Machine::now());
    let (bytes, started) = (device_bytes()?, Snapshot::of_process());
    let mut repetitions = 0;
    let (done, usage) = loop {
        let done = work()?;
        repetitions += 1;
        let usage = Snapshot::of_process().since(&started);
        if cold.is_some() || usage.real >= LEAST_TIME {
            break (done, usage);
        }
    };
    let machine = machine.and_then(|since| since.busy());
    let bytes = device_bytes()? - bytes;
    ensure!(
        cold.is_none() || bytes > 0,
        "nothing was read from the device: the files could not be dropped from the page cache"
    );
    let answer = done.answer()?;
    let mut turn = Turn {
        answer: Some(format!("{} found, digest {:016x}", answer.count, answer.digest)),
        // Of all repetitions and the warm-up.
        note: contestant.engine_statistics()?,
        ..Turn::default()
    };
    let each = |total: f64| total / f64::from(repetitions);
    let seconds = |time: Duration| each(time.as_secs_f64());
    turn.set(WALL, seconds(usage.real));
    turn.set(CPU, seconds(usage.cpu()));
    turn.set(MACHINE, machine.map(seconds));
    turn.set(USER, seconds(usage.user));
    turn.set(SYSTEM, seconds(usage.system));
    turn.set(SWITCHES, each(usage.context_switches() as f64));
    turn.set(READ, each(bytes as f64) / MIB);
    turn.set(PEAK, peak_memory()? as f64 / MIB);
    turn.set(REPETITIONS, f64::from(repetitions));
    turn.set(OTHERS, others.processors());
    turn.set(FOUND, answer.count as f64);
    println!("{}", serde_json::to_string(&turn)?);
    Ok(())
}

/// Runs a turn in a process of its own.
///
/// # Errors
///
/// Those that the process prints; a process that does not end; nothing that was found.
pub fn measure(assignment: &Assignment) -> anyhow::Result<Turn> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("turn").arg(serde_json::to_string(assignment)?);
    match assignment.contestant.backend() {
        Some(backend) => command.env("RINGWAY_BACKEND", backend),
        None => command.env_remove("RINGWAY_BACKEND"),
    };
    let turn: Turn = process::run(&mut command, LONGEST)?;
    // A contestant that finds nothing is no fast one.
    ensure!(turn.get(FOUND) > Some(0.0), "found nothing");
    Ok(turn)
}
