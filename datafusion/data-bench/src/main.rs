//! Benchmarks of data engines on ringway and on object_store's `LocalFileSystem`: makes the data,
//! runs each turn in a process of its own, and prints the tables of `docs/data-engines.md`.

mod comparison;
mod contestant;
mod generate;
mod page_cache;
mod report;
mod suite;
mod turn;
mod work;

use anyhow::Context;
use clap::{Parser, Subcommand};
use comparison::{Results, State};
use contestant::Contestant;
use generate::parquet_file::Codec;
use generate::{new_folder, ranges, small, tpch, wide};
use ringway_measure::records::replace_in;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use suite::{Benchmark, Selection};

/// Measures data engines on ringway and on object_store's LocalFileSystem.
#[derive(Debug, Parser)]
#[command(name = "data-bench")]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the data that is measured
    #[command(subcommand)]
    Generate(Generate),
    /// Write the list of ranges that `compare ranges` reads
    Ranges {
        /// Scale of the table that is scanned
        #[arg(long, default_value_t = 10.0)]
        scale: f64,
        /// The file to write
        #[arg(long)]
        out: PathBuf,
    },
    /// Measure, and print the report as Markdown
    Run(Run),
    /// Print the report of an earlier run
    Report {
        /// The file that --json wrote
        json: PathBuf,
        /// Replace the report of the benchmark in this Markdown file, instead of printing it
        #[arg(long)]
        into: Option<PathBuf>,
    },
    /// What the process of a turn does
    #[command(hide = true)]
    Turn { turn: String },
}

/// What to generate, in a new folder.
#[derive(Debug, Subcommand)]
enum Generate {
    /// The tables of TPC-H
    Tpch {
        /// 1 is about 400 MB
        #[arg(long, default_value_t = 10.0)]
        scale: f64,
        #[arg(long, value_enum, default_value_t)]
        codec: Codec,
        #[arg(long)]
        out: PathBuf,
    },
    /// A table of 105 columns
    Wide {
        #[arg(long, default_value_t = 10_000_000)]
        rows: u64,
        #[arg(long, value_enum, default_value_t)]
        codec: Codec,
        #[arg(long)]
        out: PathBuf,
    },
    /// Many small files, as Parquet and as CSV
    Small {
        /// Files of each format
        #[arg(long, default_value_t = 10_000)]
        files: u64,
        #[arg(long)]
        out: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Run {
    #[arg(value_enum)]
    benchmark: Benchmark,
    #[command(flatten)]
    selection: Selection,
    /// The stores in the order of their turns; ratios are to local
    #[arg(long, value_enum, value_delimiter = ',', default_value = "local,ringway")]
    contestants: Vec<Contestant>,
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cold,cached")]
    states: Vec<State>,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write all figures to this file, also after an error
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() {
    let done = match Options::parse().command {
        Command::Generate(what) => generate(&what),
        Command::Ranges { scale, out } => ranges::generate(&out, scale),
        Command::Run(options) => run(&options),
        Command::Report { json, into } => report(&json, into.as_deref()),
        Command::Turn { turn } => turn::run(&turn),
    };
    if let Err(error) = done {
        eprintln!("data-bench: {error:#}");
        process::exit(1);
    }
}

fn generate(what: &Generate) -> anyhow::Result<()> {
    match what {
        Generate::Tpch { scale, codec, out } => {
            new_folder(out, |folder| tpch::generate(folder, *scale, *codec))
        }
        Generate::Wide { rows, codec, out } => {
            new_folder(out, |folder| wide::generate(folder, *rows, *codec))
        }
        Generate::Small { files, out } => new_folder(out, |folder| small::generate(folder, *files)),
    }
}

fn run(options: &Run) -> anyhow::Result<()> {
    let rows = suite::rows(options.benchmark, &options.selection)?;
    let mut results = Results { benchmark: options.benchmark, rows: Vec::new() };
    let done =
        comparison::run(&mut results, &rows, &options.states, &options.contestants, options.rounds);
    // A run takes hours: what it measured before an error is kept.
    if let Some(path) = &options.json {
        let text = serde_json::to_string(&results)?;
        fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    done?;
    print!("{}", report::markdown(&results));
    Ok(())
}

fn report(json: &Path, into: Option<&Path>) -> anyhow::Result<()> {
    let about = || json.display().to_string();
    let text = fs::read_to_string(json).with_context(about)?;
    let results: Results = serde_json::from_str(&text).with_context(about)?;
    let report = report::markdown(&results);
    match into {
        Some(path) => {
            let begin = format!("<!-- data-bench {} -->", results.benchmark.name());
            replace_in(path, &begin, "<!-- data-bench end -->", &report)?;
        }
        None => print!("{report}"),
    }
    Ok(())
}
