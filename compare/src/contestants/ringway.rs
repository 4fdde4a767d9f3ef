//! ringway on plain tokio: no runtime of its own, no settings.

use super::sum::{self, Check};
use super::{Contestant, RINGWAY, RINGWAY_KAIO, RINGWAY_THREADS, streams, tasks};
use crate::figures::Figures;
use crate::job::Job;
use crate::reader::Reader;
use crate::shape::{RANGES, Work};
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Engine};
use std::io;
use std::sync::Arc;

pub struct Ringway {
    name: &'static str,
    about: &'static str,
    /// Otherwise the best that there is.
    backend: Option<BackendKind>,
}

pub const BEST: Ringway =
    Ringway { name: RINGWAY, about: "multi-thread tokio; ringway::fs::File", backend: None };

pub const KAIO: Ringway = Ringway {
    name: RINGWAY_KAIO,
    about: "the same on the kaio backend",
    backend: Some(BackendKind::Kaio),
};

pub const THREADS: Ringway = Ringway {
    name: RINGWAY_THREADS,
    about: "the same on the threads backend",
    backend: Some(BackendKind::Threads),
};

impl Contestant for Ringway {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn run(&self, job: &'static Job) -> anyhow::Result<Figures> {
        let (runtime, work) = (tasks::runtime(job)?, job.shape.work);
        let mut options = OpenOptions::new();
        options.read(true).write(work.writes()).direct(job.shape.direct);
        if let Some(backend) = if work.is_null() { Some(BackendKind::Null) } else { self.backend } {
            options.engine(&Engine::builder().backend(backend).build()?);
        }
        let file = Arc::new(runtime.block_on(options.open(&job.file))?);
        if work == Work::Small {
            let file = file.clone();
            let read = async move |offset| {
                let block = file.read(offset..offset + streams::SMALL as u64).await?;
                Ok(block.len())
            };
            runtime.spawn(streams::small_reads(job, read));
        } else if work.is_stream() {
            runtime.spawn(streams::timer(job));
        }
        for reader in job.readers() {
            let file = file.clone();
            match work {
                Work::Timer | Work::Small | Work::Cold => drop(runtime.spawn(stream(reader, file))),
                Work::Ranges => drop(runtime.spawn(ranges(reader, file))),
                Work::Sum => {
                    drop(runtime.spawn(sum::passes(reader, file.reader(), Check::new(job)?)))
                }
                Work::Submitted => {
                    let start = move |buffer, offset| {
                        let file = file.clone();
                        async move { Some(operate(&file, work, buffer, offset).await) }
                    };
                    tasks::submitted(runtime, reader, buffer(job.shape.block), start);
                }
                Work::Puts => drop(runtime.spawn(puts(reader, file))),
                Work::Polls => {
                    let tally = reader.tally();
                    let operate = async move |buffer, offset| {
                        Some(tasks::timed(tally, operate(&file, work, buffer, offset)).await)
                    };
                    runtime.spawn(tasks::blocks(reader, buffer(job.shape.block), operate));
                }
                _ => {
                    let operate = async move |buffer, offset| {
                        Some(operate(&file, work, buffer, offset).await)
                    };
                    tasks::start(
                        runtime,
                        job,
                        tasks::blocks(reader, buffer(job.shape.block), operate),
                    );
                }
            }
        }
        job.measure()
    }
}

/// Filled, so that each page is really there before anything is measured.
fn buffer(len: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(len, 4096);
    buffer.fill(1);
    buffer
}

async fn operate(
    file: &File,
    work: Work,
    buffer: AlignedBuffer,
    offset: u64,
) -> (io::Result<usize>, AlignedBuffer) {
    if work != Work::Write {
        return file.read_at(buffer, offset).await;
    }
    let (result, buffer) = file.write_at(buffer, offset).await;
    (file.sync_data().await.and(result), buffer)
}

async fn puts(mut reader: Reader, file: Arc<File>) {
    let job = reader.job();
    let mut record = buffer(job.shape.block);
    while reader.begin() {
        let (result, back) = file.write_durable_at(record, job.append(1)).await;
        record = back;
        reader.end(result.map(|()| job.shape.block));
    }
}

async fn stream(mut reader: Reader, file: Arc<File>) {
    let mut pass = streams::Pass::default();
    let mut blocks = file.reader();
    while reader.begin() {
        if pass.begins(reader.job()).await {
            blocks.seek_to(0);
        }
        let block = blocks.next_block().await;
        pass.read(reader.job());
        reader.end(block.map(|block| block.map_or(0, |block| block.len())));
    }
}

async fn ranges(mut reader: Reader, file: Arc<File>) {
    let block = reader.job().shape.block;
    while reader.begin() {
        let range = |offset| offset..offset + block as u64;
        let ranges = [(); RANGES].map(|()| range(reader.offset()));
        let blocks = file.read_ranges(&ranges).await;
        // The shortest one tells whether all are whole.
        reader.end(blocks.map(|blocks| blocks.iter().map(|block| block.len()).min().unwrap_or(0)));
    }
}
