//! The command line.

use crate::workload::Workload;
use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
use ringway_measure::units;
use std::path::PathBuf;
use std::time::Duration;

/// Runs the same file I/O on ringway, on other libraries and on bare system calls, in turn.
///
/// Without options it measures the rows that have a target, in about ten minutes.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Options {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Measure every row: block sizes, tasks, cached and direct, random and sequential, writes.
    /// This takes hours.
    #[arg(long)]
    pub all: bool,

    /// Measure the rows that have all of these words, such as 4k,direct,128; repeat it for more
    /// rows.
    #[arg(long, value_name = "WORDS")]
    pub only: Vec<String>,

    /// Measure only these contestants, separated by commas.
    #[arg(long, global = true, value_name = "NAMES", value_delimiter = ',')]
    pub contestants: Vec<String>,

    /// Turns of each contestant in each row.
    #[arg(
        long,
        global = true,
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub rounds: u32,

    /// Measured time of each turn, such as 300ms; seconds without a unit.
    #[arg(long, default_value = "0.3", value_parser = duration)]
    pub time: Duration,

    /// Time before it that is not measured.
    #[arg(long, default_value = "0.1", value_parser = duration)]
    pub warm_up: Duration,

    /// Size of the scratch file, in whole MiB.
    #[arg(long, default_value = "1GiB", value_parser = size)]
    pub size: u64,

    /// Size of the file that is summed, in whole MiB.
    #[arg(long, default_value = "64MiB", value_parser = size)]
    pub sum_size: u64,

    /// Folder for the scratch files.
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    pub scratch: PathBuf,

    /// Write the figures of every turn to this file.
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a chart of the main rows to this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Write the same chart as PNG.
    #[arg(long, value_name = "FILE")]
    pub png: Option<PathBuf>,

    /// This program, built with tokio's own io_uring; `make compare` builds it.
    #[arg(long, value_name = "PROGRAM")]
    pub tokio_io_uring: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the contestants and how each is configured.
    List,
    /// Run one contestant for a number of operations: for callgrind, perf and strace.
    Count {
        /// The contestant's name.
        contestant: String,
        /// The row's words, such as null,128,1w.
        row: String,
        /// The number of operations.
        operations: u64,
    },
    Ranges(Ranges),
    Stalls(Stalls),
    /// Make one measurement and print it as JSON. The program starts itself this way.
    #[command(hide = true)]
    Run {
        assignment: String,
    },
}

/// Reads tens of thousands of ranges of one large file, as the scan of a Parquet file does.
///
/// Cold turns begin with no page of the file in memory, cached ones with all of them.
#[derive(Debug, clap::Args)]
pub struct Ranges {
    /// The file. If it does not exist, it is made, with random bytes, and kept.
    #[arg(long, default_value = "target/compare/ranges.data")]
    pub file: PathBuf,

    /// The size of a file that is made.
    #[arg(long, default_value = "8GiB", value_parser = file_size)]
    pub size: u64,

    /// A list of ranges: OFFSET LENGTH in each line, in bytes; # begins a comment. Without it, 4 of
    /// 16 columns are made up.
    #[arg(long, value_name = "LIST")]
    pub ranges: Option<PathBuf>,

    /// How many ranges are made up, at most.
    #[arg(long, default_value_t = 20_000)]
    pub count: usize,

    /// Ranges in flight.
    #[arg(long, value_delimiter = ',', default_value = "32,256")]
    concurrency: Vec<usize>,

    /// Cold turns, cached turns, or both.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cold,cached")]
    cache: Vec<Cache>,

    /// Check every byte instead of measuring, in one round.
    #[arg(long)]
    pub verify: bool,

    /// List the contestants.
    #[arg(long)]
    pub list: bool,
}

/// What the page cache has when a turn begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Cache {
    Cold,
    Cached,
}

impl Ranges {
    /// The rows.
    pub fn rows(&self) -> Vec<Workload> {
        let row =
            |cache: &Cache, in_flight: &usize| Workload::scan(*cache == Cache::Cached, *in_flight);
        let rows = |cache| self.concurrency.iter().map(move |in_flight| row(cache, in_flight));
        self.cache.iter().flat_map(rows).collect()
    }
}

/// Measures how long a runtime's thread stands still next to a program that syncs all the time.
///
/// The folder should be on an ext4 file system whose device has slow writes; see compare/README.md.
#[derive(Debug, clap::Args)]
pub struct Stalls {
    /// The folder for the files.
    pub folder: PathBuf,

    /// The time of each turn, such as 10s.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub time: Duration,

    /// Tasks that operate at the same time.
    #[arg(long, default_value_t = 4)]
    tasks: usize,

    /// Measure only these operations, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cached,direct,overwrite")]
    operations: Vec<Stalled>,
}

/// What the tasks do.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Stalled {
    /// Read a block of the page cache, of a file that another thread writes to now and then.
    Cached,
    /// Read a block with direct I/O, of a file that another thread writes to now and then.
    Direct,
    /// Overwrite a block with direct I/O.
    Overwrite,
}

impl Stalls {
    /// The rows.
    pub fn rows(&self) -> Vec<Workload> {
        let row = |operation: &Stalled| {
            let (overwrite, direct) =
                (*operation == Stalled::Overwrite, *operation != Stalled::Cached);
            Workload::stall(overwrite, direct, self.tasks)
        };
        self.operations.iter().map(row).collect()
    }
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    units::parse_duration(text, "s").context("expected a time such as 0.3 or 300ms")
}

fn file_size(text: &str) -> anyhow::Result<u64> {
    units::parse_size(text).context("expected a size such as 8GiB")
}

/// Whole MiB are whole blocks in every row.
fn size(text: &str) -> anyhow::Result<u64> {
    let bytes = units::parse_size(text).context("expected a size such as 64MiB")?;
    ensure!(bytes > 0 && bytes.is_multiple_of(1 << 20), "expected whole MiB, such as 64MiB");
    Ok(bytes)
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
        assert_eq!(size("64MiB").unwrap(), 64 << 20);
        assert_eq!(size("2GiB").unwrap(), 2 << 30);
        assert!(
            ["64", "0MiB", "1.5GiB", "99999999999GiB"].iter().all(|wrong| size(wrong).is_err())
        );
    }
}
