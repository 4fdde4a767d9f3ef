//! ringway on plain tokio: no runtime of its own, no settings.

use super::sum::{self, Check};
use super::{Contestant, RINGWAY, tasks};
use crate::figures::Figures;
use crate::job::Job;
use crate::reader::Reader;
use crate::shape::{RANGES, Work};
use ringway::AlignedBuffer;
use ringway::fs::{File, OpenOptions};
use std::io;
use std::sync::Arc;
use tokio::runtime::Runtime;

pub struct Ringway;

impl Contestant for Ringway {
    fn name(&self) -> &'static str {
        RINGWAY
    }

    fn about(&self) -> &'static str {
        "multi-thread tokio; ringway::fs::File"
    }

    fn run(&self, job: &'static Job) -> anyhow::Result<Figures> {
        let (runtime, work) = (Runtime::new()?, job.shape.work);
        let mut options = OpenOptions::new();
        options.read(true).write(work == Work::Write).direct(job.shape.direct);
        let file = Arc::new(runtime.block_on(options.open(&job.file))?);
        for reader in job.readers() {
            let file = file.clone();
            match work {
                Work::Ranges => runtime.spawn(ranges(reader, file)),
                Work::Sum => runtime.spawn(sum::passes(reader, file.reader(), Check::new(job)?)),
                Work::Read | Work::Write => {
                    let operate = async move |buffer, offset| Some(operate(&file, work, buffer, offset).await);
                    runtime.spawn(tasks::blocks(reader, buffer(job.shape.block), operate))
                }
            };
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

async fn operate(file: &File, work: Work, buffer: AlignedBuffer, offset: u64) -> (io::Result<usize>, AlignedBuffer) {
    if work != Work::Write {
        return file.read_at(buffer, offset).await;
    }
    let (result, buffer) = file.write_at(buffer, offset).await;
    (file.sync_data().await.and(result), buffer)
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
