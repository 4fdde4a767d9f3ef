//! The `ringway` command.

use clap::{Parser, Subcommand};
use ringway_cli::bench::options::{BenchArgs, join_switches};
use ringway_cli::probe::ProbeArgs;
use ringway_cli::sum::options::SumArgs;
use ringway_cli::{bench, probe, sum};
use std::io;
use std::process::ExitCode;

/// Asynchronous file I/O for Linux: what this machine can do, what each way of doing it costs, and
/// checksums.
#[derive(Parser)]
#[command(name = "ringway", version, arg_required_else_help = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What this machine, kernel and user can do, and why not
    ///
    /// Tries every backend and every option with a real read. Where one is refused, it says what
    /// the kernel answered, what that means here, and what would fix it.
    #[command(after_long_help = PROBE_EXAMPLES)]
    Probe(ProbeArgs),
    /// Which way of doing I/O suits this machine, and what each costs
    ///
    /// Without options: every backend that this machine grants, on a scratch file, in about a
    /// minute; then a table and a verdict. It never writes to a file or device that it did not
    /// make, unless --overwrite is given and the workload writes, or --fill is given too.
    Bench(Box<BenchArgs>),
    /// Checksums of files and trees, and checks of them
    ///
    /// Reads many files at a time and far ahead in each, and hashes on all processors. Its lines
    /// are those of b3sum and sha256sum, and it reads theirs.
    Sum(Box<SumArgs>),
}

const PROBE_EXAMPLES: &str = "\
Examples:
  ringway probe
      This machine
  ringway probe /data
      And the file system and device there, which are only read
  ringway probe --json | jq .
      For programs";

fn main() -> ExitCode {
    // A write beyond the limit of a file's size (`ulimit -f`) is to fail like any other.
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let args: Vec<_> = join_switches(std::env::args_os());
    let words = args.iter().skip(1).map(|arg| arg.to_string_lossy());
    let command = std::iter::once("ringway".into()).chain(words).collect::<Vec<_>>().join(" ");
    let outcome = match Cli::parse_from(args).command {
        Command::Probe(args) => probe::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench::run(&args, command),
        Command::Sum(args) => sum::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        // A reader that has seen enough (`| head`) is no failure.
        let is_closed_pipe = |cause: &(dyn std::error::Error + 'static)| {
            cause
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        };
        if error.chain().any(is_closed_pipe) {
            return ExitCode::SUCCESS;
        }
        eprintln!("ringway: {error:#}");
        ExitCode::FAILURE
    })
}
