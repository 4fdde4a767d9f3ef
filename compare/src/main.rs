//! Runs the same file I/O on ringway, on other libraries and on bare system calls, one after the
//! other, and prints how they compare.

mod buffer;
mod child;
mod comparison;
mod contestants;
mod disturbance;
mod figures;
mod job;
mod options;
mod reader;
mod report;
mod scan;
mod suite;
mod tally;
mod targets;
mod workload;

use clap::Parser;
use comparison::Runner;
use options::{Command, Options, Ranges, Stalls};
use ringway_core::refusal::bytes_text;
use std::process;
use workload::{Operation, Workload};

fn main() {
    let options = Options::parse();
    let done = match &options.command {
        Some(Command::Run { assignment }) => child::run(assignment),
        Some(Command::Ranges(ranges)) => scan_ranges(&options, ranges),
        Some(Command::Stalls(stalls)) => stall(&options, stalls),
        Some(Command::List) => {
            print!("{}", report::list(Operation::Read, options.tokio_io_uring.is_some()));
            Ok(())
        }
        Some(Command::Count { contestant, row, operations }) => {
            comparison::count(&options, contestant, row, *operations)
        }
        None => compare(&options),
    };
    if let Err(error) = done {
        eprintln!("compare: {error:#}");
        process::exit(1);
    }
}

fn compare(options: &Options) -> anyhow::Result<()> {
    let (workloads, too_large) = suite::selected(options)?;
    let runner = Runner::new(options, &workloads)?;
    print!("{}", report::opening(options));
    let rows = measure(&runner, &workloads, options)?;
    if !too_large.is_empty() {
        println!("\nRows left out:");
        for (row, why) in &too_large {
            println!("- {row}: {why}");
        }
    }
    print!("\n{}", targets::table(&rows)?);
    report::write_files(&rows, options)
}

fn scan_ranges(options: &Options, ranges: &Ranges) -> anyhow::Result<()> {
    if ranges.list {
        let has_tokio_io_uring = options.tokio_io_uring.is_some();
        print!("{}", report::list(Operation::Scan { cached: false }, has_tokio_io_uring));
        return Ok(());
    }
    let runner = Runner::of_ranges(options, ranges)?;
    if let Some((count, bytes)) = runner.ranges() {
        println!("{count} ranges, {} of {}", bytes_text(bytes), ranges.file.display());
    }
    let rows = measure(&runner, &ranges.rows(), options)?;
    report::write_files(&rows, options)
}

fn stall(options: &Options, stalls: &Stalls) -> anyhow::Result<()> {
    let runner = Runner::of_stalls(options, stalls)?;
    let rows = stalls.rows().into_iter().map(|workload| runner.row(workload));
    let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
    print!("{}", report::stalls(&rows));
    report::write_files(&rows, options)
}

/// Measures the rows, and prints each as soon as it is measured.
fn measure(
    runner: &Runner<'_>,
    workloads: &[Workload],
    options: &Options,
) -> anyhow::Result<Vec<ringway_measure::rounds::Row>> {
    let mut rows = Vec::new();
    for workload in workloads {
        let row = runner.row(*workload)?;
        print!("\n{}", report::row(&row, *workload, options));
        rows.push(row);
    }
    Ok(rows)
}
