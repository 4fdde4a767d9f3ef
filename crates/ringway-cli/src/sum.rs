//! `ringway sum`: computes and checks checksums of files and trees.

mod check;
mod digest;
mod hash;
mod in_order;
mod line;
mod list;
pub mod options;
mod print;
pub(crate) mod progress;
mod source;
mod tally;
mod tree;
mod walk;

use anyhow::Context;
use options::SumArgs;
use progress::Progress;
use std::process::ExitCode;

/// Prints the checksums of the given files, or checks those in the given lists. The status is
/// failure if a file could not be read or does not match.
///
/// # Errors
///
/// Errors that end the command: no runtime, an output that cannot be written to. Unreadable files
/// are reported on standard error; the rest are still processed.
pub fn run(args: &SumArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let progress = Progress::new(!args.no_progress && !args.status);
    let args = args.clone();
    // A task on a worker thread, so that a result wakes no other thread.
    let success = runtime.block_on(runtime.spawn(async move {
        let success = if args.check {
            check::run(&args, &progress).await
        } else {
            print::run(&args, &progress).await
        };
        progress.end();
        success
    }));
    // Does not wait for blocking tasks whose results are no longer needed, such as a read of
    // standard input.
    runtime.shutdown_background();
    Ok(if success?? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
