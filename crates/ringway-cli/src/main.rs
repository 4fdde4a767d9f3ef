//! The `ringway` command.

use clap::Parser;
use ringway_cli::bench::options::join_switches;
use ringway_cli::cli::{Cli, Command, error_text, generate};
use ringway_cli::{bench, probe, sum};
use ringway_measure::text::clean;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A write beyond the file size limit (`ulimit -f`) fails with EFBIG instead of a signal.
    // SAFETY: ignoring a signal installs no handler, so no code runs in signal context.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let args: Vec<_> = join_switches(std::env::args_os());
    let words = args.iter().skip(1).map(|arg| arg.to_string_lossy());
    let command = std::iter::once("ringway".into()).chain(words).collect::<Vec<_>>().join(" ");
    let outcome = match Cli::parse_from(args).command {
        Command::Probe(args) => probe::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench::run(&args, command),
        Command::Sum(args) => sum::run(&args),
        Command::Generate { dir } => generate(&dir).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        // Names of files may have control characters.
        eprintln!("ringway: {}", clean(&error_text(&error)));
        ExitCode::FAILURE
    })
}
