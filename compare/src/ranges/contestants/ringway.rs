//! ringway on multi-thread tokio, with default settings.

use super::{Contestant, on_tokio, runtime};
use crate::ranges::work::Work;
use ringway::fs::{File, OpenOptions};
use std::path::Path;

/// Ranges in a call of `read_ranges`.
const RANGES: usize = 64;

pub struct Ringway {
    how: How,
    direct: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    Single,
    Batches,
    Batch,
    Stream,
}

pub const SINGLE: Ringway = Ringway { how: How::Single, direct: false };
pub const BATCHES: Ringway = Ringway { how: How::Batches, direct: false };
pub const BATCH: Ringway = Ringway { how: How::Batch, direct: false };
pub const STREAM: Ringway = Ringway { how: How::Stream, direct: false };
pub const SINGLE_DIRECT: Ringway = Ringway { how: How::Single, direct: true };
pub const BATCHES_DIRECT: Ringway = Ringway { how: How::Batches, direct: true };
pub const BATCH_DIRECT: Ringway = Ringway { how: How::Batch, direct: true };
pub const STREAM_DIRECT: Ringway = Ringway { how: How::Stream, direct: true };

impl Contestant for Ringway {
    fn name(&self) -> &'static str {
        match (self.how, self.direct) {
            (How::Single, false) => "ringway",
            (How::Batches, false) => "ringway-batches",
            (How::Batch, false) => "ringway-batch",
            (How::Stream, false) => "ringway-stream",
            (How::Single, true) => "ringway-direct",
            (How::Batches, true) => "ringway-batches-direct",
            (How::Batch, true) => "ringway-batch-direct",
            (How::Stream, true) => "ringway-stream-direct",
        }
    }

    fn about(&self) -> &'static str {
        match self.how {
            How::Single => "File::read, one range in each call",
            How::Batches => {
                "File::read_ranges, 64 ranges in each call, or half the concurrency if that is \
                 less; the ranges of all calls in flight are as many as the concurrency"
            }
            How::Batch => {
                "File::read_ranges, one call at a time, for 64 ranges or as many as the \
                 concurrency if that is more"
            }
            How::Stream => "File::read_ranges_stream, with the concurrency as its depth; one task",
        }
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn run(&self, file: &Path, work: &'static Work, concurrency: usize) -> anyhow::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).direct(self.direct);
        let file = runtime()?.block_on(options.open(file))?;
        match self.how {
            How::Single => on_tokio(concurrency, || single(file.clone(), work)),
            How::Batches => {
                let batch = RANGES.min(concurrency.div_ceil(2));
                on_tokio(concurrency / batch, || batches(file.clone(), work, batch))
            }
            How::Batch => on_tokio(1, || batches(file.clone(), work, RANGES.max(concurrency))),
            How::Stream => on_tokio(1, || stream(file.clone(), work, concurrency)),
        }
    }
}

async fn single(file: File, work: &Work) {
    while let Some(range) = work.take_one() {
        match file.read(range.clone()).await {
            Ok(bytes) => work.read(range, &bytes),
            Err(error) => work.fail(error),
        }
    }
}

async fn batches(file: File, work: &Work, batch: usize) {
    while let Some(ranges) = work.take(batch) {
        match file.read_ranges(ranges).await {
            Ok(read) => ranges.iter().zip(read).for_each(|(range, bytes)| work.read(range, &bytes)),
            Err(error) => work.fail(error),
        }
    }
}

async fn stream(file: File, work: &Work, depth: usize) {
    let mut stream = file.read_ranges_stream(work.ranges.iter().cloned()).depth(depth);
    while let Some(read) = stream.next().await {
        match read.result {
            Ok(bytes) => work.read(&read.range, &bytes),
            Err(error) => work.fail(error),
        }
    }
}
