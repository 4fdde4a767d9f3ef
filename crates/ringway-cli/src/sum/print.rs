//! Prints the checksums of all inputs, one line each.

use super::hash::{Hashed, Reading, hash};
use super::in_order::{in_order, is_closed_early};
use super::line::{self, Form};
use super::options::SumArgs;
use super::progress::Progress;
use super::walk::{self, Found};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

/// The number of inputs in a batch.
const BATCH: usize = 64;
/// The maximum number of batches that wait to be read.
const FOUND: usize = 4;

/// Prints the checksums; returns whether all inputs could be read, as far as they are wanted.
///
/// # Errors
///
/// Those of writing.
pub(super) async fn run(args: &SumArgs, progress: &Progress) -> anyhow::Result<bool> {
    let (found, jobs) = mpsc::channel(FOUND);
    let (arguments, recursive) = (args.inputs.clone(), args.recursive);
    if progress.is_shown() {
        let (arguments, progress) = (arguments.clone(), progress.clone());
        spawn_blocking(move || progress.total(walk::total(&arguments, recursive)));
    }
    spawn_blocking(move || find(&arguments, recursive, &found));

    let form = Form { algorithm: args.algo.unwrap_or_default(), tag: args.tag, zero: args.zero };
    let reading = Reading::new(args, progress);
    let work = move |found| {
        let reading = reading.clone();
        async move {
            match found {
                Found::Input(input) => {
                    let hashed = hash(&input, form.algorithm, &reading).await;
                    (Found::Input(input), Some(hashed))
                }
                other => (other, None),
            }
        }
    };
    let mut success = true;
    let print = |(found, hashed): (Found, Option<io::Result<Hashed>>)| {
        match (&found, hashed) {
            (Found::Input(input), Some(Ok(hashed))) => {
                if args.verbose {
                    progress.not_direct(input.name(), hashed.not_direct);
                    progress.keeps_pages(input.name(), &hashed.caching);
                }
                progress.print(&line::write(
                    form,
                    &hashed.hash,
                    input.name().as_os_str().as_bytes(),
                ))?;
            }
            (Found::Input(input), Some(Err(error))) => {
                progress.failed(input.name(), &error);
                success = false;
            }
            (Found::Failed(path, error), _) => {
                progress.failed(path, error);
                success = false;
            }
            (Found::LeftOut(path, what), _) if args.verbose => {
                progress.say_of(path, &format!("left out: {what}"))
            }
            _ => {}
        }
        Ok(())
    };
    is_closed_early(in_order(jobs, args.files.into(), work, print).await)?;
    Ok(success)
}

/// Sends the inputs of the arguments, waiting while too many are unread.
fn find(arguments: &[PathBuf], recursive: bool, found: &mpsc::Sender<Vec<Found>>) {
    let mut all = walk::all(arguments, recursive);
    loop {
        let batch: Vec<Found> = all.by_ref().take(BATCH).collect();
        if batch.is_empty() || found.blocking_send(batch).is_err() {
            return;
        }
    }
}
