//! The report: a table for each row as soon as it is measured, then the targets, then the files
//! that the options name.

mod chart;
mod table;
mod targets;

pub use table::busy;

use crate::comparison::Row;
use crate::contestants;
use crate::options::Options;
use crate::suite;
use crate::workload::Workload;
use anyhow::Context;
use ringway_measure::text::plural;
use std::fs;
use std::thread;

/// Prints the contestants.
pub fn list(has_tokio_io_uring: bool) {
    for contestant in contestants::ALL {
        let is_missing = contestant.needs_tokio_io_uring() && !has_tokio_io_uring;
        let note = if is_missing { " (needs --tokio-io-uring)" } else { "" };
        println!("{:<20} {}{note}", contestant.name(), contestant.about());
    }
}

/// Prints what applies to all rows.
pub fn opening(options: &Options) {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = thread::available_parallelism().map_or(1, usize::from) as u64;
    let processors = plural(processors, "processor");
    println!(
        "Linux {}, {processors}; {} with the contestants in turn;\n\
         {:?} measured of each turn. Rows with many readers have longer turns, so that most\n\
         readers complete operations, and fewer rounds.\n\
         Figures are medians of the rounds; ratios are those of the turns of one round. ± is half\n\
         the range of the rounds. CPU is the user and system time of all threads, including the\n\
         kernel's io_uring workers.",
        kernel.trim(),
        plural(options.rounds.into(), "round"),
        options.time
    );
}

/// Prints a row.
pub fn row(row: &Row, options: &Options) {
    print!("\n{}", table::table(row, options));
}

/// Prints what follows the last row, and writes the files.
pub fn closing(
    rows: &[Row],
    too_large: &[(Workload, String)],
    options: &Options,
) -> anyhow::Result<()> {
    if !too_large.is_empty() {
        println!("\nRows left out:");
        too_large.iter().for_each(|(row, why)| println!("- {row}: {why}"));
    }
    print!("\n{}", targets::table(rows));
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(rows)?)
            .with_context(|| path.display().to_string())?;
    }
    if options.svg.is_none() && options.png.is_none() {
        return Ok(());
    }
    let svg = chart::svg(&in_chart(rows))?;
    if let Some(path) = &options.svg {
        fs::write(path, &svg).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &options.png {
        chart::write_png(&svg, path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The main rows, since all would be too many for one chart; all rows if there is no main row.
fn in_chart(rows: &[Row]) -> Vec<&Row> {
    let main = suite::main_rows();
    let (among, others): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| main.contains(&row.workload));
    if among.is_empty() { others } else { among }
}
