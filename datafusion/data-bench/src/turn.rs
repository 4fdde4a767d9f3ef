//! One turn: a process that does one piece of work with one contestant, and its figures. The
//! counters of the process are then those of this work alone.

use crate::contestant::Contestant;
use crate::page_cache;
use crate::work::{Answer, Work};
use anyhow::{Context, bail, ensure};
use ringway_measure::usage::{Snapshot, Usage, machine_cpu};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Cached work is repeated at least this long: a single query may take a few milliseconds.
const LEAST_TIME: Duration = Duration::from_secs(1);
/// A turn that takes longer is an error.
const LONGEST: Duration = Duration::from_secs(900);

/// What the process of a turn is told.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Turn {
    pub contestant: Contestant,
    pub work: Work,
    /// The folders that are dropped from the page cache before the work; `None` if the files are
    /// to be in the page cache.
    pub cold: Option<Vec<PathBuf>>,
}

/// What the process of a turn prints, for one repetition of the work.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Figures {
    /// Wall time, CPU time and context switches.
    pub usage: Usage,
    /// Bytes that the process had the device read.
    pub device_bytes: u64,
    /// The most memory of the process, in bytes.
    pub peak_rss: u64,
    /// How often the work was done.
    pub repetitions: u32,
    /// Processors that other programs kept busy meanwhile, on average.
    pub others: f64,
    pub answer: Answer,
    /// The engine's statistics at the end, of all repetitions and the warm-up.
    pub engine: Option<String>,
}

/// Does the work of a turn, in the process of the turn.
///
/// # Errors
///
/// Those of the work; a cold turn that read nothing from the device.
pub fn run(turn: &str) -> anyhow::Result<()> {
    let turn: Turn = serde_json::from_str(turn).context("turn")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let work = || runtime.block_on(turn.work.run(turn.contestant));
    match &turn.cold {
        Some(folders) => page_cache::drop(folders)?,
        None => std::mem::drop(work()?),
    }
    let others = machine_cpu();
    let bytes = device_bytes()?;
    let started = Snapshot::of_process();
    let mut repetitions = 0;
    let (done, usage) = loop {
        let done = work()?;
        repetitions += 1;
        let usage = Snapshot::of_process().since(&started);
        if turn.cold.is_some() || usage.real >= LEAST_TIME {
            break (done, usage);
        }
    };
    let bytes = device_bytes()? - bytes;
    ensure!(
        turn.cold.is_none() || bytes > 0,
        "nothing was read from the device: the files could not be dropped from the page cache"
    );
    let others = others.zip(machine_cpu()).map_or(0.0, |(then, now)| {
        let others = now.saturating_sub(then).saturating_sub(usage.cpu());
        others.as_secs_f64() / usage.real.as_secs_f64()
    });
    let figures = Figures {
        usage: of_one(&usage, repetitions),
        device_bytes: bytes / u64::from(repetitions),
        peak_rss: peak_rss()?,
        repetitions,
        others,
        answer: done.answer()?,
        engine: turn.contestant.engine_statistics()?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// Runs a turn in a process of its own.
///
/// # Errors
///
/// Those that the process prints; a process that does not end.
pub fn measure(turn: &Turn) -> anyhow::Result<Figures> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("turn").arg(serde_json::to_string(turn)?);
    match turn.contestant.backend() {
        Some(backend) => command.env("RINGWAY_BACKEND", backend),
        None => command.env_remove("RINGWAY_BACKEND"),
    };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let status = wait(&mut child)?;
    let (mut out, mut errors) = (String::new(), String::new());
    child.stdout.take().context("stdout is a pipe")?.read_to_string(&mut out)?;
    child.stderr.take().context("stderr is a pipe")?.read_to_string(&mut errors)?;
    if !status.success() {
        bail!("{}: {status}: {}", turn.contestant.name(), errors.trim());
    }
    serde_json::from_str(&out).context("the figures of a turn")
}

/// Waits for the process before its output is read. The output fits into the pipes, so the process
/// does not block on them.
fn wait(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            bail!("a turn did not end within {LONGEST:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn of_one(usage: &Usage, repetitions: u32) -> Usage {
    Usage {
        real: usage.real / repetitions,
        user: usage.user / repetitions,
        system: usage.system / repetitions,
        voluntary_switches: usage.voluntary_switches / u64::from(repetitions),
        involuntary_switches: usage.involuntary_switches / u64::from(repetitions),
        ..Usage::default()
    }
}

/// Bytes that this process had devices read, by any of its threads.
fn device_bytes() -> anyhow::Result<u64> {
    field("/proc/self/io", "read_bytes:")
}

/// The most memory that this process has had, in bytes.
fn peak_rss() -> anyhow::Result<u64> {
    Ok(field("/proc/self/status", "VmHWM:")? << 10)
}

/// The number after `name` at the start of a line of the file.
fn field(path: &str, name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(path).context(path.to_owned())?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("{path} has no line {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_process_are_found() {
        device_bytes().unwrap();
        assert!(peak_rss().unwrap() > 1 << 20);
        assert!(field("/proc/self/status", "Nothing:").is_err());
    }

    #[test]
    fn figures_are_of_one_repetition() {
        let usage = Usage {
            real: Duration::from_secs(4),
            user: Duration::from_secs(2),
            voluntary_switches: 8,
            ..Usage::default()
        };
        let one = of_one(&usage, 4);
        assert_eq!((one.real.as_secs(), one.cpu().as_millis()), (1, 500));
        assert_eq!(one.context_switches(), 2);
    }
}
