//! What can be asked on the command line.

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// The same file I/O on ringway, on its peers and without any of them, in turn.
///
/// Without options: the rows that have a target, in about ten minutes.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Options {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Every row: blocks, readers, cached and direct, random and sequential, writes. Takes hours.
    #[arg(long)]
    pub all: bool,

    /// Rows that have all of these words, such as 4k,direct,128; may be repeated for more rows.
    #[arg(long, value_name = "WORDS")]
    pub only: Vec<String>,

    /// These contestants only.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub contestants: Vec<String>,

    /// How often each contestant has its turn in each row.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,

    /// What is measured of each turn, in seconds.
    #[arg(long, default_value = "0.3", value_parser = seconds)]
    pub time: Duration,

    /// What comes before it, in seconds.
    #[arg(long, default_value = "0.1", value_parser = seconds)]
    pub warm_up: Duration,

    /// Size of the scratch file.
    #[arg(long, default_value = "1GiB", value_parser = bytes)]
    pub size: u64,

    /// Size of the file that is summed.
    #[arg(long, default_value = "64MiB", value_parser = bytes)]
    pub sum_size: u64,

    /// The folder of the scratch files.
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    pub scratch: PathBuf,

    /// Every figure of every turn goes there.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// A plot of the main rows goes there.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// The same as a picture.
    #[arg(long, value_name = "FILE")]
    pub png: Option<PathBuf>,

    /// This program, built with tokio's own io_uring; `make compare` sees to it.
    #[arg(long, value_name = "PROGRAM")]
    pub tokio_io_uring: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Names the contestants, and what was chosen for each.
    List,
    /// Runs one contestant for a number of operations: for callgrind, perf and strace.
    Count {
        contestant: String,
        /// The row's words, such as null,128,1w.
        row: String,
        operations: u64,
    },
    /// One measurement, told as JSON: what the program starts itself for.
    #[command(hide = true)]
    Run { assignment: String },
}

fn seconds(text: &str) -> anyhow::Result<Duration> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}

/// A size such as 64MiB: whole blocks of every row.
fn bytes(text: &str) -> anyhow::Result<u64> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let shift = match &text[digits.len()..] {
        "MiB" => 20,
        "GiB" => 30,
        _ => bail!("wants MiB or GiB behind a number"),
    };
    let number: u64 = digits.trim().parse()?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).context("out of range")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn sizes_are_whole_mebibytes() {
        assert_eq!(bytes("64MiB").unwrap(), 64 << 20);
        assert_eq!(bytes("2 GiB").unwrap(), 2 << 30);
        assert!(
            ["64", "0MiB", "1.5GiB", "99999999999GiB"].iter().all(|wrong| bytes(wrong).is_err())
        );
    }
}
