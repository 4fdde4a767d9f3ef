//! One process for each measurement, so that `getrusage` counts that measurement alone: starting
//! it, waiting for it, and what it does.

use crate::contestants;
use crate::job::{Assignment, Job};
use anyhow::{Context, bail, ensure};
use ringway_measure::rounds::Turn;
use std::io::Read;
use std::panic;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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
        contestant.needs_tokio_io_uring() == has_tokio_io_uring,
        "{} needs the other build of this program; give it with --tokio-io-uring",
        contestant.name()
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
    let mut child = Command::new(program)
        .arg("run")
        .arg(serde_json::to_string(assignment)?)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let status = wait(&mut child, limit)?;
    let (mut out, mut errors) = (String::new(), String::new());
    child.stdout.take().context("stdout is a pipe")?.read_to_string(&mut out)?;
    child.stderr.take().context("stderr is a pipe")?.read_to_string(&mut errors)?;
    if !status.success() {
        let why = errors.lines().rfind(|line| !line.is_empty() && !line.starts_with("note: "));
        bail!("{status}: {}", why.unwrap_or_default().trim_start_matches("compare: "));
    }
    Ok(serde_json::from_str(&out)?)
}

/// Waits for the child before its output is read. The output fits into the pipes, so the child does
/// not block on them.
fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<process::ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > limit {
            child.kill()?;
            bail!("did not end within {limit:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}
