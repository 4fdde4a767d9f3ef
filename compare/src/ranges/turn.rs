//! One turn: a process in which one contestant reads all ranges once.

use super::contestants::{self, Contestant};
use super::list;
use super::work::Work;
use anyhow::{Context, ensure};
use ringway_measure::usage::{Others, Snapshot, Usage};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::process;

/// What a child process measures.
#[derive(Debug, Deserialize, Serialize)]
pub struct Turn {
    pub contestant: String,
    pub file: PathBuf,
    pub list: PathBuf,
    pub concurrency: usize,
    /// Check every byte. The figures then mean nothing.
    pub verify: bool,
}

/// The result of a turn.
#[derive(Debug, Deserialize, Serialize)]
pub struct Figures {
    pub usage: Usage,
    /// Bytes that the device was asked for.
    pub device_bytes: u64,
    /// The most resident memory, mapped files included.
    pub peak_memory: u64,
    /// Processors that other programs kept busy meanwhile, on average.
    pub others: f64,
    pub digest: u64,
}

/// Runs in the child: measures, prints one line, and exits.
pub fn run(turn: &str) -> anyhow::Result<()> {
    let turn: Turn = serde_json::from_str(turn).context("turn")?;
    let contestant = contestants::by_name(&turn.contestant)?;
    let has_tokio_io_uring = cfg!(all(tokio_unstable, feature = "tokio-io-uring"));
    ensure!(
        contestant.needs_tokio_io_uring() == has_tokio_io_uring,
        "{} needs the other build of this program; give it with --tokio-io-uring",
        contestant.name()
    );
    let work = Work::new(list::read(&turn.list)?, turn.verify);
    let figures = measure(contestant, &turn, work)?;
    println!("{}", serde_json::to_string(&figures)?);
    process::exit(0);
}

fn measure(
    contestant: &dyn Contestant,
    turn: &Turn,
    work: &'static Work,
) -> anyhow::Result<Figures> {
    let (others, read, begun) = (Others::start(), device_bytes()?, Snapshot::of_process());
    contestant.run(&turn.file, work, turn.concurrency)?;
    let usage = Snapshot::of_process().since(&begun);
    let others = others.processors().unwrap_or(0.0);
    Ok(Figures {
        usage,
        device_bytes: device_bytes()? - read,
        peak_memory: 1024 * number(&fs::read_to_string("/proc/self/status")?, "VmHWM:")?,
        others,
        digest: work.result()?,
    })
}

/// Bytes that this process has caused to be read from a device, by the kernel's own account.
fn device_bytes() -> anyhow::Result<u64> {
    number(&fs::read_to_string("/proc/self/io")?, "read_bytes:")
}

/// The number after a key.
fn number(text: &str, key: &str) -> anyhow::Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key));
    let first = value.and_then(|value| value.split_whitespace().next());
    first.with_context(|| key.to_owned())?.parse().with_context(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_keys() {
        let text = "VmPeak:\t 9 kB\nVmHWM:\t  1234 kB\n";
        assert_eq!(number(text, "VmHWM:").unwrap(), 1234);
        assert!(number(text, "VmRSS:").is_err());
    }
}
