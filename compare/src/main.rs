//! Runs the same file I/O on ringway, on other libraries and on bare system calls, one after the
//! other, and prints how they compare.

mod buffer;
mod child;
mod comparison;
mod contestants;
mod figures;
mod job;
mod options;
mod ranges;
mod reader;
mod report;
mod stalls;
mod suite;
mod tally;
mod workload;

use clap::Parser;
use options::{Command, Options};
use std::process;

fn main() {
    let options = Options::parse();
    let done = match &options.command {
        Some(Command::Run { assignment }) => child::run(assignment),
        Some(Command::Ranges(ranges)) => ranges::run(ranges, options.tokio_io_uring.as_deref()),
        Some(Command::RangesTurn { turn }) => ranges::run_turn(turn),
        Some(Command::Stalls(stalls)) => stalls::run(stalls),
        Some(Command::List) => {
            report::list(options.tokio_io_uring.is_some());
            Ok(())
        }
        Some(Command::Count { contestant, row, operations }) => {
            comparison::count(&options, contestant, row, *operations)
        }
        None => comparison::run(&options),
    };
    if let Err(error) = done {
        eprintln!("compare: {error:#}");
        process::exit(1);
    }
}
