//! ringway on plain tokio with default settings.

use super::sum::{self, Check};
use super::{Contestant, RINGWAY, RINGWAY_CURRENT, RINGWAY_KAIO, RINGWAY_THREADS, streams, tasks};
use crate::buffer::aligned;
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Operation, RANGES};
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Engine};
use ringway_measure::rounds::Turn;
use std::io;
use std::sync::Arc;
use tokio::runtime::Runtime;

pub const BEST: Contestant =
    Contestant::new(RINGWAY, "multi-thread tokio; ringway::fs::File; default settings", |job| {
        run(job, tasks::runtime(job)?, None)
    });

pub const CURRENT: Contestant =
    Contestant::new(RINGWAY_CURRENT, "the same on a current_thread tokio", |job| {
        run(job, tasks::current_thread()?, None)
    });

pub const KAIO: Contestant = Contestant::new(RINGWAY_KAIO, "the same on the kaio backend", |job| {
    run(job, tasks::runtime(job)?, Some(BackendKind::Kaio))
});

pub const THREADS: Contestant =
    Contestant::new(RINGWAY_THREADS, "the same on the threads backend", |job| {
        run(job, tasks::runtime(job)?, Some(BackendKind::Threads))
    });

/// `None` for ringway's own choice of a backend.
fn run(
    job: &'static Job,
    runtime: &'static Runtime,
    backend: Option<BackendKind>,
) -> anyhow::Result<Turn> {
    let operation = job.workload.operation;
    let mut options = OpenOptions::new();
    options.read(true).write(operation.writes()).direct(job.workload.direct);
    if let Some(backend) = if operation.is_null() { Some(BackendKind::Null) } else { backend } {
        options.engine(&Engine::builder().backend(backend).build()?);
    }
    let file = Arc::new(runtime.handle().block_on(options.open(&job.file))?);
    if operation == Operation::Small {
        let file = file.clone();
        let read = async move |offset| {
            let block = file.read(offset..offset + streams::SMALL as u64).await?;
            Ok(block.len())
        };
        runtime.spawn(streams::small_reads(job, read));
    } else if operation.is_stream() {
        runtime.spawn(streams::timer(job));
    }
    for reader in Reader::all(job) {
        let file = file.clone();
        match operation {
            Operation::Timer | Operation::Small | Operation::Cold => {
                drop(runtime.spawn(stream(reader, file)))
            }
            Operation::Ranges => drop(runtime.spawn(ranges(reader, file))),
            Operation::Sum => {
                drop(runtime.spawn(sum::passes(reader, file.reader(), Check::new(job)?)))
            }
            Operation::Submitted => {
                let start = move |buffer, offset| {
                    let file = file.clone();
                    async move { Some(operate(&file, operation, buffer, offset).await) }
                };
                tasks::submitted(runtime, reader, aligned(job.workload.block), start);
            }
            Operation::Puts => drop(runtime.spawn(puts(reader, file))),
            Operation::Polls => {
                let tally = reader.tally();
                let operate = async move |buffer, offset| {
                    Some(tasks::timed(tally, operate(&file, operation, buffer, offset)).await)
                };
                runtime.spawn(tasks::blocks(reader, aligned(job.workload.block), operate));
            }
            _ => {
                let operate = async move |buffer, offset| {
                    Some(operate(&file, operation, buffer, offset).await)
                };
                tasks::start(
                    runtime,
                    job,
                    tasks::blocks(reader, aligned(job.workload.block), operate),
                );
            }
        }
    }
    job.measure()
}

async fn operate(
    file: &File,
    operation: Operation,
    buffer: AlignedBuffer,
    offset: u64,
) -> (io::Result<usize>, AlignedBuffer) {
    if operation != Operation::Write {
        return file.read_at(buffer, offset).await;
    }
    let (result, buffer) = file.write_at(buffer, offset).await;
    (file.sync_data().await.and(result), buffer)
}

async fn puts(mut reader: Reader, file: Arc<File>) {
    let job = reader.job();
    let mut record = aligned(job.workload.block);
    while reader.begin() {
        let (result, back) = file.write_durable_at(record, job.append(1)).await;
        record = back;
        reader.end(result.map(|()| job.workload.block));
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
    let block = reader.job().workload.block;
    while reader.begin() {
        let range = |offset| offset..offset + block as u64;
        let ranges = [(); RANGES].map(|()| range(reader.offset()));
        let blocks = file.read_ranges(&ranges).await;
        // All blocks are complete if the shortest one is.
        reader.end(blocks.map(|blocks| blocks.iter().map(|block| block.len()).min().unwrap_or(0)));
    }
}
