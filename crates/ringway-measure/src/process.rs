//! A process for each turn, so that the counters of a process are those of the turn alone: running
//! one, and counters that `getrusage` does not have.

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a command that prints JSON. It is killed after `limit`.
///
/// # Errors
///
/// Those of starting it; one that does not end, or that fails, with the last line of its standard
/// error; one that prints something else.
pub fn run<T: DeserializeOwned>(command: &mut Command, limit: Duration) -> anyhow::Result<T> {
    command.env("RUST_BACKTRACE", "0").stdout(Stdio::piped()).stderr(Stdio::piped());
    let program = command.get_program().display().to_string();
    let mut child = command.spawn().context(program)?;
    let status = wait(&mut child, limit)?;
    let (mut out, mut errors) = (String::new(), String::new());
    child.stdout.take().context("stdout is a pipe")?.read_to_string(&mut out)?;
    child.stderr.take().context("stderr is a pipe")?.read_to_string(&mut errors)?;
    if !status.success() {
        let why = errors.lines().rfind(|line| !line.is_empty() && !line.starts_with("note: "));
        bail!("{status}: {}", why.unwrap_or_default());
    }
    serde_json::from_str(&out).context("the figures of a turn")
}

/// Waits for the child before its output is read. The output fits into the pipes, so the child does
/// not block on them.
fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("did not end within {limit:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes that this process has had devices read, by the kernel's own account.
///
/// # Errors
///
/// A kernel that does not keep it.
pub fn device_bytes() -> anyhow::Result<u64> {
    field("/proc/self/io", "read_bytes:")
}

/// The most memory that this process has had, in bytes, mapped files included.
///
/// # Errors
///
/// No `/proc`.
pub fn peak_memory() -> anyhow::Result<u64> {
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
        assert!(peak_memory().unwrap() > 1 << 20);
        assert!(field("/proc/self/status", "Nothing:").is_err());
    }

    #[test]
    fn what_a_process_prints_is_read_and_its_failures_are_reported() {
        let shell = |script: &str| {
            let limit = if script.starts_with("sleep") { 50 } else { 60_000 };
            let mut command = Command::new("sh");
            run::<Vec<u32>>(command.args(["-c", script]), Duration::from_millis(limit))
        };
        assert_eq!(shell("echo '[1, 2]'").unwrap(), [1, 2]);
        let failed = shell("echo why >&2; echo note: a backtrace >&2; exit 3").unwrap_err();
        assert_eq!(failed.to_string(), "exit status: 3: why");
        assert!(shell("sleep 60").unwrap_err().to_string().starts_with("did not end"));
        assert!(shell("echo 1").is_err(), "no list");
    }
}
