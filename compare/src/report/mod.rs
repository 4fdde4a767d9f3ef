//! What is told: a table for each row, then the targets, then files.

mod markdown;
mod plot;
mod table;
mod targets;

use crate::contest::Row;
use crate::contestants;
use crate::options::Options;
use crate::workload::Workload;
use crate::suite;
use anyhow::Context;
use std::fs;
use std::thread;

/// Names the contestants.
pub fn list(tokio_io_uring: bool) {
    for contestant in contestants::ALL {
        let missing = contestant.needs_tokio_io_uring() && !tokio_io_uring;
        let note = if missing { " (not in this build)" } else { "" };
        println!("{:<20} {}{note}", contestant.name(), contestant.about());
    }
}

/// What all rows have in common.
pub fn opening(options: &Options) {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    println!("Linux {}, {processors} processors", kernel.trim());
    println!(
        "{} rounds, contestants in turn; {:?} measured of each turn",
        options.rounds, options.time
    );
    println!("(with very many readers: longer, so that most have their turn, and fewer rounds)");
    println!(
        "Figures are medians, ratios those of turns that follow each other; ± is half the way from the least to the"
    );
    println!(
        "greatest. CPU is user and system time of all threads, the kernel's io_uring workers included."
    );
}

/// A row, as soon as it is there.
pub fn row(row: &Row, options: &Options) {
    print!("\n{}", table::table(row, options));
}

/// What can only be said of all rows.
pub fn closing(
    rows: &[Row],
    too_large: &[(Workload, String)],
    options: &Options,
) -> anyhow::Result<()> {
    if !too_large.is_empty() {
        println!("\nRows left out:");
        too_large.iter().for_each(|(workload, why)| println!("  {workload}: {why}"));
    }
    print!("\n{}", targets::table(rows));
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(rows)?)
            .with_context(|| path.display().to_string())?;
    }
    let plotted = plotted(rows);
    if let Some(path) = &options.svg {
        plot::svg(path, &plotted).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &options.png {
        plot::png(path, &plotted).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The main rows, for all would be too many to look at; or what there is, without any of those.
fn plotted(rows: &[Row]) -> Vec<&Row> {
    let main = suite::main_rows();
    let (among, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| main.contains(&row.workload));
    if among.is_empty() { others } else { among }
}
