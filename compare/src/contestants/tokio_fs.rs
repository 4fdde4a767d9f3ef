//! tokio's own files, on its thread pool or, in a separate build, on its own io_uring. The code is
//! the same for both.

use super::sum::{self, Check};
use super::{Contestant, TOKIO_FS, streams};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Operation, Workload};
use ringway_measure::rounds::Turn;
use rustix::process::{Resource, getrlimit};
use std::io::{self, SeekFrom};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::runtime::Runtime;

/// Files that the process needs besides those of its readers.
const OTHER_FILES: u64 = 100;

pub const POOL: Contestant = Contestant {
    leaves_out,
    ..Contestant::new(
        TOKIO_FS,
        "multi-thread tokio; tokio::fs::File, seek and read; each task opens the file, since \
         clones share the current position",
        run,
    )
};

pub const IO_URING: Contestant = Contestant {
    leaves_out: |workload| match workload.operation {
        Operation::Write => Some("its writes do not use io_uring".into()),
        _ => leaves_out(workload),
    },
    needs_tokio_io_uring: true,
    ..Contestant::new(
        "tokio-io-uring",
        "multi-thread tokio built with its unstable io_uring; tokio::fs::File as in tokio-fs",
        run,
    )
};

fn leaves_out(workload: &Workload) -> Option<String> {
    match workload.operation {
        Operation::Ranges => Some("it has no reads at an offset".into()),
        _ if workload.direct => {
            Some("it reads into its own buffer, which is not aligned for direct I/O".into())
        }
        _ if workload.readers as u64 + OTHER_FILES > most_files() => Some(format!(
            "it needs a file for each task, and this process may open {}",
            most_files()
        )),
        _ => None,
    }
}

fn run(job: &'static Job) -> anyhow::Result<Turn> {
    let runtime = Runtime::new()?;
    if job.workload.operation == Operation::Small {
        let mut file = File::from_std(job.open()?);
        let mut buffer = vec![0; streams::SMALL];
        let read =
            async move |offset| operate(&mut file, Operation::Read, &mut buffer, offset).await;
        runtime.spawn(streams::small_reads(job, read));
    } else if job.workload.operation.is_stream() {
        runtime.spawn(streams::timer(job));
    }
    for reader in Reader::all(job) {
        let file = File::from_std(job.open()?);
        if job.workload.operation.is_stream() {
            runtime.spawn(stream(reader, file));
        } else if job.workload.operation == Operation::Sum {
            runtime.spawn(sum::passes(reader, file, Check::new(job)?));
        } else {
            runtime.spawn(blocks(reader, file, Buffer::new(job.workload.block)));
        }
    }
    job.measure()
}

async fn blocks(mut reader: Reader, mut file: File, mut buffer: Buffer) {
    let operation = reader.job().workload.operation;
    while reader.begin() {
        let offset = reader.offset();
        reader.end(operate(&mut file, operation, &mut buffer, offset).await);
    }
}

async fn stream(mut reader: Reader, mut file: File) {
    let mut pass = streams::Pass::default();
    let mut buffer = vec![0; reader.job().workload.block];
    while reader.begin() {
        if pass.begins(reader.job()).await
            && let Err(error) = file.rewind().await
        {
            return reader.end(Err(error));
        }
        let result = file.read_exact(&mut buffer).await;
        pass.read(reader.job());
        reader.end(result);
    }
}

async fn operate(
    file: &mut File,
    operation: Operation,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    file.seek(SeekFrom::Start(offset)).await?;
    if operation == Operation::Write {
        file.write_all(buffer).await?;
        file.sync_data().await?;
        return Ok(buffer.len());
    }
    file.read_exact(buffer).await
}

/// How many files this process may have open.
fn most_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
