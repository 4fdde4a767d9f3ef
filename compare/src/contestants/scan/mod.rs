//! The contestants of `compare ranges`: each reads all ranges into buffers of its own.

mod bare;
mod compio;
mod mmap;
mod pread;
mod ringway;
mod store;
mod tokio_fs;

use super::Contestant;
use crate::job::Job;
use crate::scan::Work;
use crate::workload::Workload;
use anyhow::Context;
use ringway_measure::rounds::Turn;
use std::future::Future;
use std::io;
use std::path::Path;
use tokio::runtime::Runtime;

/// A contestant of `compare ranges`.
pub struct Scanner {
    name: &'static str,
    about: &'static str,
    /// Whether its file is opened for direct I/O. It then takes no part in cached rows.
    direct: bool,
    needs_tokio_io_uring: bool,
    /// Reads all ranges, with so many of them in flight.
    run: fn(&Path, &'static Work, usize) -> anyhow::Result<()>,
}

impl Scanner {
    const fn new(
        name: &'static str,
        about: &'static str,
        run: fn(&Path, &'static Work, usize) -> anyhow::Result<()>,
    ) -> Self {
        Self { name, about, direct: false, needs_tokio_io_uring: false, run }
    }

    const fn direct(self) -> Self {
        Self { direct: true, ..self }
    }
}

impl Contestant for Scanner {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn concerns(&self, workload: &Workload) -> bool {
        workload.operation.is_scan() && !(self.direct && workload.is_cached())
    }

    fn run(&self, job: &'static Job) -> anyhow::Result<Turn> {
        let scan = job.scan.as_ref().context("the row has no ranges")?;
        Work::measure(scan, |work| (self.run)(&job.file, work, job.workload.readers))
    }

    fn needs_tokio_io_uring(&self) -> bool {
        self.needs_tokio_io_uring
    }
}

/// All contestants of `compare ranges`, in the order of its tables.
pub static ALL: &[&dyn Contestant] = &[
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
    &ringway::SINGLE_DIRECT,
    &ringway::BATCHES_DIRECT,
    &ringway::BATCH_DIRECT,
    &ringway::STREAM_DIRECT,
    &pread::DIRECT,
    &compio::DIRECT,
    &bare::DIRECT,
];

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
