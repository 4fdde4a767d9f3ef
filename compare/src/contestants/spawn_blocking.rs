//! tokio's thread pool for blocking calls, which most programs on tokio use.

use super::{Contestant, SPAWN_BLOCKING, SPAWN_BLOCKING_ONCE, blocking, tasks};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Operation, RANGES, Workload};
use ringway_measure::rounds::Turn;
use std::fs::File;
use std::io;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, spawn_blocking};

/// A call for each block.
pub const EACH: Contestant = Contestant {
    leaves_out: |workload| {
        let why = || "tokio-fs is spawn_blocking with a current position".into();
        (workload.operation == Operation::Sum).then(why)
    },
    ..Contestant::new(
        SPAWN_BLOCKING,
        "multi-thread tokio; one spawn_blocking with a pread for each read",
        |job| run(job, false),
    )
};

/// A call for each request, which reads the blocks one after the other.
pub const ONCE: Contestant = Contestant {
    leaves_out: |workload| {
        (workload.operation != Operation::Ranges).then(|| "only for ranges".into())
    },
    ..Contestant::new(
        SPAWN_BLOCKING_ONCE,
        "multi-thread tokio; one spawn_blocking for all preads of a request",
        |job| run(job, true),
    )
};

fn run(job: &'static Job, once: bool) -> anyhow::Result<Turn> {
    let file = Arc::new(job.open()?);
    let runtime = Runtime::new()?;
    let Workload { operation, block, .. } = job.workload;
    for reader in Reader::all(job) {
        let file = file.clone();
        if once {
            runtime.spawn(ranges_at_once(reader, file));
            continue;
        }
        let start = move |buffer, offset| {
            let offset = if operation == Operation::Puts { job.append(1) } else { offset };
            let call = call(&file, operation, buffer, offset);
            async { call.await.ok() }
        };
        if operation == Operation::Submitted {
            tasks::submitted(&runtime, reader, Buffer::new(block), start);
        } else if operation == Operation::Ranges {
            runtime.spawn(tasks::ranges(reader, start));
        } else {
            let operate = async move |buffer, offset| start(buffer, offset).await;
            tasks::start(&runtime, job, tasks::blocks(reader, Buffer::new(block), operate));
        }
    }
    job.measure()
}

fn call(
    file: &Arc<File>,
    operation: Operation,
    mut buffer: Buffer,
    offset: u64,
) -> JoinHandle<(io::Result<usize>, Buffer)> {
    let file = file.clone();
    spawn_blocking(move || (blocking::operate(&file, operation, &mut buffer, offset), buffer))
}

async fn ranges_at_once(mut reader: Reader, file: Arc<File>) {
    let block = reader.job().workload.block;
    let mut buffer = Buffer::new(block * RANGES);
    while reader.begin() {
        let (offsets, file) = ([(); RANGES].map(|()| reader.offset()), file.clone());
        let call = move || (read_all(&file, block, &offsets, &mut buffer), buffer);
        let Ok((result, back)) = spawn_blocking(call).await else { return };
        buffer = back;
        reader.end(result);
    }
}

fn read_all(file: &File, block: usize, offsets: &[u64], buffer: &mut [u8]) -> io::Result<usize> {
    let mut result = Ok(block);
    for (part, offset) in buffer.chunks_mut(block).zip(offsets) {
        result = result.and(blocking::operate(file, Operation::Ranges, part, *offset));
    }
    result
}
