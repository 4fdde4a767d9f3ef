//! Runs the same file I/O on ringway, on its peers and without any of them, in turn, and prints how
//! they compare.

mod buffer;
mod child;
mod contest;
mod contestants;
mod figures;
mod job;
mod offsets;
mod options;
mod reader;
mod report;
mod scratch;
mod shape;
mod suite;
mod tally;
mod usage;

use clap::Parser;
use options::{Command, Options};
use std::process;

fn main() {
    let options = Options::parse();
    let done = match &options.command {
        Some(Command::Run { assignment }) => child::run(assignment),
        Some(Command::List) => {
            report::list(options.tokio_io_uring.is_some());
            Ok(())
        }
        Some(Command::Count { contestant, row, operations }) => {
            contest::count(&options, contestant, row, *operations)
        }
        None => contest::run(&options),
    };
    if let Err(error) = done {
        eprintln!("compare: {error:#}");
        process::exit(1);
    }
}
