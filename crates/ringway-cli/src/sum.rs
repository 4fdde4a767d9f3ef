//! `ringway sum`: checksums of files and trees, and checks of files that hold them.

mod check;
mod digest;
mod hash;
mod in_order;
mod line;
mod list;
pub mod options;
mod print;
mod progress;
mod source;
mod tally;
mod tree;
mod walk;

use anyhow::Context;
use options::SumArgs;
use progress::Progress;
use std::process::ExitCode;

/// Prints the hashes that are asked for, or checks those in the files given; the status to exit
/// with: failure when anything could not be read or does not match.
///
/// # Errors
///
/// What makes going on pointless: no runtime, an output that cannot be written to. A file that
/// cannot be read is named on standard error, and the others are gone on with.
pub fn run(args: &SumArgs) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the runtime")?;
    let progress = Progress::new(!args.no_progress && !args.status);
    let args = args.clone();
    // A task of the runtime, rather than the thread that waits for it: so that one that hands it a
    // result wakes no thread.
    let all_is_well = runtime.block_on(runtime.spawn(async move {
        let all_is_well = if args.check {
            check::run(&args, &progress).await
        } else {
            print::run(&args, &progress).await
        };
        progress.end();
        all_is_well
    }));
    // What may still be under way is of no use to anyone: a directory being read, a line of input
    // being waited for.
    runtime.shutdown_background();
    Ok(if all_is_well?? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
