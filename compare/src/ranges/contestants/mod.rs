//! The contestants of `compare ranges`: each reads all ranges into buffers of its own.

mod bare;
mod compio;
mod mmap;
mod pread;
mod ringway;
mod store;
mod tokio_fs;

use super::work::Work;
use anyhow::Context;
use std::future::Future;
use std::io;
use std::path::Path;
use tokio::runtime::Runtime;

/// A way to read many ranges of a file.
pub trait Contestant: Sync {
    /// The name for `--contestants` and in tables.
    fn name(&self) -> &'static str;

    /// What it is, and how it is configured.
    fn about(&self) -> &'static str;

    /// Reads all ranges of `work`, with `concurrency` of them in flight.
    fn run(&self, file: &Path, work: &'static Work, concurrency: usize) -> anyhow::Result<()>;

    /// Whether its file is opened for direct I/O. It then takes no part in cached rows.
    fn is_direct(&self) -> bool {
        false
    }

    /// Whether it needs the build with tokio's own io_uring.
    fn needs_tokio_io_uring(&self) -> bool {
        false
    }
}

/// All contestants, in the order of the tables.
pub static ALL: &[&dyn Contestant] = &[
    &ringway::SINGLE,
    &ringway::BATCHES,
    &ringway::BATCH,
    &ringway::STREAM,
    &store::RINGWAY,
    &pread::BUFFERED,
    &mmap::Mmap,
    &tokio_fs::TokioFs,
    &store::LOCAL,
    &compio::BUFFERED,
    &bare::BUFFERED,
    &ringway::SINGLE_DIRECT,
    &ringway::BATCHES_DIRECT,
    &ringway::BATCH_DIRECT,
    &ringway::STREAM_DIRECT,
    &pread::DIRECT,
    &compio::DIRECT,
    &bare::DIRECT,
];

/// The contestant with this name.
pub fn by_name(name: &str) -> anyhow::Result<&'static dyn Contestant> {
    let contestant = ALL.iter().copied().find(|contestant| contestant.name() == name);
    contestant.with_context(|| format!("no contestant of `compare ranges` is named {name}"))
}

/// The blocks of the file that direct I/O reads.
const BLOCK: u64 = 4096;

/// The offset of the first block of a range, bytes before the range in it, and bytes of all blocks.
fn blocks(range: &std::ops::Range<u64>) -> (u64, usize, usize) {
    let start = range.start / BLOCK * BLOCK;
    let end = range.end.next_multiple_of(BLOCK);
    (start, (range.start - start) as usize, (end - start) as usize)
}

/// A multi-thread runtime with default settings. It is never dropped: dropping waits for threads.
fn runtime() -> io::Result<&'static Runtime> {
    Ok(Box::leak(Box::new(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)))
}

/// Runs `tasks` tasks on a runtime and waits for them.
fn on_tokio<F>(tasks: usize, task: impl Fn() -> F) -> anyhow::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = runtime()?;
    let running: Vec<_> = (0..tasks).map(|_| runtime.spawn(task())).collect();
    runtime.block_on(async {
        for task in running {
            task.await?;
        }
        Ok(())
    })
}
