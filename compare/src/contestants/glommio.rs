//! glommio: an executor with three rings and its own buffers on each thread.

use super::{Contestant, per_core};
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Operation, RANGES};
use futures_lite::stream::{self, StreamExt};
use glommio::io::{BufferedFile, DmaFile, MergedBufferLimit, OpenOptions, ReadAmplificationLimit};
use glommio::{LocalExecutorBuilder, Placement};
use ringway_measure::rounds::Turn;
use std::io;
use std::rc::Rc;

/// Memory for its buffers: its default, and the most it gets here.
const USUAL_MEMORY: usize = 10 << 20;
const MOST_MEMORY: usize = 1 << 30;
/// Entries of its rings: its default, and the most it gets here.
const USUAL_DEPTH: usize = 128;
const MOST_DEPTH: usize = 4096;

pub const RUNTIME: Contestant = Contestant {
    leaves_out: per_core::leaves_out,
    is_runtime: true,
    ..Contestant::new(
        "glommio",
        "pinned thread (cached rows: one for each core); rings and memory as large as the readers \
 need; its own buffers; ranges by read_many",
        run,
    )
};

fn run(job: &'static Job) -> anyhow::Result<Turn> {
    per_core::measure(job, |core, job, readers| {
        let executor = LocalExecutorBuilder::new(Placement::Fixed(core))
            .io_memory((2 * job.workload.buffers()).clamp(USUAL_MEMORY, MOST_MEMORY))
            .ring_depth(job.workload.readers.next_power_of_two().clamp(USUAL_DEPTH, MOST_DEPTH))
            .make()
            .expect("io_uring is available");
        executor.run(async {
            let file = Rc::new(File::open(job).await.expect("the parent has opened the file"));
            if let (Operation::Ranges, File::Direct(file)) = (job.workload.operation, &*file) {
                for reader in readers {
                    ranges(reader, file).await;
                }
                return;
            }
            let tasks: Vec<_> = readers
                .into_iter()
                .map(|reader| glommio::spawn_local(blocks(reader, file.clone())).detach())
                .collect();
            for task in tasks {
                task.await;
            }
        });
    })
}

async fn blocks(mut reader: Reader, file: Rc<File>) {
    let workload = reader.job().workload;
    while reader.begin() {
        let offset = reader.offset();
        reader.end(file.operate(workload.operation, workload.block, offset).await);
    }
}

async fn ranges(mut reader: Reader, file: &Rc<DmaFile>) {
    let block = reader.job().workload.block;
    while reader.begin() {
        let ranges = [(); RANGES].map(|()| (reader.offset(), block));
        let (merged, apart) = (MergedBufferLimit::default(), ReadAmplificationLimit::default());
        let mut reads = file.read_many(stream::iter(ranges), merged, apart);
        let mut result = Ok(block);
        while let Some(read) = reads.next().await {
            result = result.and(read.map(|(_, read)| read.len()).map_err(io::Error::from));
        }
        reader.end(result);
    }
}

/// glommio has separate types for direct and buffered files.
enum File {
    Direct(Rc<DmaFile>),
    Buffered(BufferedFile),
}

impl File {
    async fn open(job: &Job) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(job.workload.operation == Operation::Write);
        Ok(if job.workload.direct {
            Self::Direct(Rc::new(options.dma_open(&job.file).await?))
        } else {
            Self::Buffered(options.buffered_open(&job.file).await?)
        })
    }

    async fn operate(&self, operation: Operation, block: usize, offset: u64) -> io::Result<usize> {
        match (self, operation == Operation::Write) {
            (Self::Direct(file), false) => Ok(file.read_at_aligned(offset, block).await?.len()),
            (Self::Buffered(file), false) => Ok(file.read_at(offset, block).await?.len()),
            (Self::Direct(file), true) => {
                let mut buffer = file.alloc_dma_buffer(block);
                buffer.as_bytes_mut().fill(1);
                let written = file.write_at(buffer, offset).await?;
                file.fdatasync().await?;
                Ok(written)
            }
            (Self::Buffered(file), true) => {
                let written = file.write_at(vec![1; block], offset).await?;
                file.fdatasync().await?;
                Ok(written)
            }
        }
    }
}
