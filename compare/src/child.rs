//! A process for each measurement, so that what `getrusage` tells is that measurement's and nobody
//! else's.

use crate::contestants;
use crate::figures::Figures;
use crate::job::{Assignment, Job};
use anyhow::{Context, bail, ensure};
use std::io::Read;
use std::panic;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a child may take beside its warm-up and its measurement.
const PATIENCE: Duration = Duration::from_secs(60);

/// The child's side: measures, prints one line, and is gone, whatever is still in flight.
pub fn run(assignment: &str) -> anyhow::Result<()> {
    // A reader that panics must not leave the others to be measured.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        hook(info);
        process::abort();
    }));
    let assignment: Assignment = serde_json::from_str(assignment).context("what to measure")?;
    let name = assignment.contestant.clone();
    let contestant =
        contestants::by_name(&name).with_context(|| format!("there is no contestant {name}"))?;
    let built_for_it = cfg!(all(tokio_unstable, feature = "tokio-io-uring"));
    ensure!(
        contestant.needs_tokio_io_uring() == built_for_it,
        "{name} wants another build of this program"
    );
    let figures = contestant.run(Job::new(assignment))?;
    println!("{}", serde_json::to_string(&figures)?);
    process::exit(0);
}

/// The parent's side: starts `program`, and waits for its line.
pub fn measure(program: &Path, assignment: &Assignment) -> anyhow::Result<Figures> {
    let mut child = Command::new(program)
        .arg("run")
        .arg(serde_json::to_string(assignment)?)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let limit = assignment.warm_up + assignment.time + PATIENCE;
    let status = wait(&mut child, limit)?;
    let (mut out, mut errors) = (String::new(), String::new());
    child.stdout.take().context("a pipe")?.read_to_string(&mut out)?;
    child.stderr.take().context("a pipe")?.read_to_string(&mut errors)?;
    if !status.success() {
        let why = errors.lines().rfind(|line| !line.is_empty() && !line.starts_with("note: "));
        bail!("{status}: {}", why.unwrap_or_default().trim_start_matches("compare: "));
    }
    Ok(serde_json::from_str(&out)?)
}

/// A child says no more than fits into a pipe, so it can be waited for before it is read.
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
