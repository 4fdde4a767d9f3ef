//! The contestants of `compare ranges`: each reads all ranges into buffers of its own.

mod bare;
mod compio;
mod mmap;
mod pread;
mod ringway;
mod store;
mod tokio_fs;

use super::Contestant;
use crate::scan::Work;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tokio::runtime::Runtime;

/// All contestants of `compare ranges`, in the order of its tables.
pub static ALL: &[&Contestant] = &[
    &ringway::SINGLE,
    &ringway::BATCHES,
    &ringway::BATCH,
    &ringway::STREAM,
    &store::RINGWAY,
    &pread::BUFFERED,
    &mmap::MMAP,
    &tokio_fs::TOKIO_FS,
    &store::LOCAL,
    &compio::BUFFERED,
    &bare::BUFFERED,
    &ringway::SINGLE.direct("ringway-direct"),
    &ringway::BATCHES.direct("ringway-batches-direct"),
    &ringway::BATCH.direct("ringway-batch-direct"),
    &ringway::STREAM.direct("ringway-stream-direct"),
    &pread::DIRECT,
    &compio::BUFFERED.direct("compio-direct"),
    &bare::BUFFERED.direct("bare-direct"),
];

/// What a contestant reads.
pub struct Input<'a> {
    pub file: &'a Path,
    pub work: &'static Work,
    /// The most ranges in flight.
    pub concurrency: usize,
    /// Whether the file is opened for direct I/O.
    pub direct: bool,
}

impl Input<'_> {
    /// Opens the file.
    fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(self.open_flags()).open(self.file)
    }

    /// The flags for it, for contestants that open it themselves.
    fn open_flags(&self) -> i32 {
        if self.direct { libc::O_DIRECT } else { 0 }
    }
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
