//! The command: its options, the rounds, and the turns.

use super::contestants::{self, Contestant};
use super::turn::{Figures, Turn};
use super::{file, list, report};
use crate::child;
use anyhow::{Context, ensure};
use ringway_core::refusal::bytes_text;
use ringway_measure::stats::Spread;
use ringway_measure::units;
use serde::Serialize;
use std::env;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time that a turn may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Reads tens of thousands of ranges of one large file, as the scan of a Parquet file does.
///
/// Cold turns begin with no page of the file in memory, cached ones with all of them.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The file. If it does not exist, it is made, with random bytes, and kept.
    #[arg(long, default_value = "target/compare/ranges.data")]
    file: PathBuf,

    /// The size of a file that is made.
    #[arg(long, default_value = "8GiB", value_parser = size)]
    size: u64,

    /// A list of ranges: OFFSET LENGTH in each line, in bytes; # begins a comment. Without it, 4 of
    /// 16 columns are made up.
    #[arg(long, value_name = "LIST")]
    ranges: Option<PathBuf>,

    /// How many ranges are made up, at most.
    #[arg(long, default_value_t = 20_000)]
    count: usize,

    /// Ranges in flight.
    #[arg(long, value_delimiter = ',', default_value = "32,256")]
    concurrency: Vec<usize>,

    /// Measure only these contestants, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    contestants: Vec<String>,

    /// Cold turns, cached turns, or both.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cold,cached")]
    cache: Vec<Cache>,

    /// Turns of each contestant in each row.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Check every byte instead of measuring, in one round.
    #[arg(long)]
    verify: bool,

    /// List the contestants.
    #[arg(long)]
    list: bool,

    /// Write the figures of every turn to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What the page cache has when a turn begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    Cold,
    Cached,
}

/// The results of one row.
#[derive(Debug, Serialize)]
pub struct Row {
    pub cache: Cache,
    pub concurrency: usize,
    pub entries: Vec<Entry>,
    /// Contestants that did not take part, with the reason.
    pub left_out: Vec<(&'static str, String)>,
}

/// The results of one contestant in a row.
#[derive(Debug, Serialize)]
pub struct Entry {
    pub contestant: &'static str,
    pub turns: Vec<Figures>,
}

impl Entry {
    pub fn spread(&self, figure: impl Fn(&Figures) -> f64) -> Option<Spread> {
        Spread::of(self.turns.iter().map(figure))
    }
}

/// Measures and reports.
pub fn run(options: &Options, tokio_io_uring: Option<&Path>) -> anyhow::Result<()> {
    if options.list {
        contestants::ALL.iter().for_each(|one| println!("{}: {}", one.name(), one.about()));
        return Ok(());
    }
    let file = file::open(&options.file, options.size)?;
    let ranges = match &options.ranges {
        Some(list) => list::read(list)?,
        None => list::synthetic(options.count, file.metadata()?.len()),
    };
    ensure!(!ranges.is_empty(), "there are no ranges to read");
    let expected = file::expected(&file, &ranges, options.verify)?;
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    println!("{} ranges, {} of {}\n", ranges.len(), bytes_text(bytes), options.file.display());
    // The children get the list in a file, since it is too long for an argument.
    let list = tempfile::NamedTempFile::new()?;
    let mut text = String::new();
    for range in &ranges {
        writeln!(text, "{} {}", range.start, range.end - range.start)?;
    }
    fs::write(list.path(), text)?;
    let runner = Runner {
        options,
        program: env::current_exe()?,
        tokio_io_uring,
        path: fs::canonicalize(&options.file)?,
        file,
        list: list.path(),
        expected,
    };
    let selected = match options.contestants.is_empty() {
        true => contestants::ALL.to_vec(),
        false => options
            .contestants
            .iter()
            .map(|name| contestants::by_name(name))
            .collect::<Result<_, _>>()?,
    };
    let mut rows = Vec::new();
    for cache in &options.cache {
        for concurrency in &options.concurrency {
            let row = runner.row(*cache, *concurrency, &selected);
            report::row(&row, bytes);
            rows.push(row);
        }
    }
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_vec_pretty(&rows)?)
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

struct Runner<'a> {
    options: &'a Options,
    program: PathBuf,
    tokio_io_uring: Option<&'a Path>,
    path: PathBuf,
    file: File,
    list: &'a Path,
    expected: u64,
}

impl Runner<'_> {
    fn row(&self, cache: Cache, concurrency: usize, selected: &[&'static dyn Contestant]) -> Row {
        let mut left_out = Vec::new();
        let mut running: Vec<_> = selected
            .iter()
            .filter(|one| !(one.is_direct() && cache == Cache::Cached))
            .map(|one| (*one, Vec::new()))
            .collect();
        let rounds = if self.options.verify { 1 } else { self.options.rounds };
        for round in 1..=rounds {
            eprint!("{cache:?}, {concurrency} in flight, round {round} of {rounds}:");
            running.retain_mut(|(contestant, turns)| {
                eprint!(" {}", contestant.name());
                match self.turn(*contestant, cache, concurrency) {
                    Ok(figures) => turns.push(figures),
                    Err(error) => left_out.push((contestant.name(), format!("{error:#}"))),
                }
                turns.len() == round as usize
            });
            eprintln!();
        }
        let entries = running
            .into_iter()
            .map(|(contestant, turns)| Entry { contestant: contestant.name(), turns })
            .collect();
        Row { cache, concurrency, entries, left_out }
    }

    fn turn(
        &self,
        contestant: &dyn Contestant,
        cache: Cache,
        concurrency: usize,
    ) -> anyhow::Result<Figures> {
        let program = match contestant.needs_tokio_io_uring() {
            true => self.tokio_io_uring.context("needs a second build (--tokio-io-uring)")?,
            false => &self.program,
        };
        match cache {
            Cache::Cold => file::drop_cached(&self.file)?,
            Cache::Cached => file::load_cached(&self.file)?,
        }
        let turn = Turn {
            contestant: contestant.name().into(),
            file: self.path.clone(),
            list: self.list.into(),
            concurrency,
            verify: self.options.verify,
        };
        let figures: Figures = child::start(program, "ranges-turn", &turn, LIMIT)?;
        ensure!(figures.digest == self.expected, "it has read other bytes than the file has");
        Ok(figures)
    }
}

fn size(text: &str) -> anyhow::Result<u64> {
    units::parse_size(text).context("expected a size such as 8GiB")
}
