//! ringway on multi-thread tokio, with default settings.

use super::{Contestant, Input, on_tokio, runtime};
use crate::scan::Work;
use ringway::fs::{File, OpenOptions};

/// Ranges in a call of `read_ranges`.
const RANGES: usize = 64;

pub const SINGLE: Contestant =
    Contestant::scan("ringway", "File::read, one range in each call", |input| {
        let file = open(input)?;
        on_tokio(input.concurrency, || single(file.clone(), input.work))
    });

pub const BATCHES: Contestant = Contestant::scan(
    "ringway-batches",
    "File::read_ranges, 64 ranges in each call, or half the concurrency if that is less; the \
     ranges of all calls in flight are as many as the concurrency",
    |input| {
        let file = open(input)?;
        let batch = RANGES.min(input.concurrency.div_ceil(2));
        on_tokio(input.concurrency / batch, || batches(file.clone(), input.work, batch))
    },
);

pub const BATCH: Contestant = Contestant::scan(
    "ringway-batch",
    "File::read_ranges, one call at a time, for 64 ranges or as many as the concurrency if that is \
     more",
    |input| {
        let file = open(input)?;
        on_tokio(1, || batches(file.clone(), input.work, RANGES.max(input.concurrency)))
    },
);

pub const STREAM: Contestant = Contestant::scan(
    "ringway-stream",
    "File::read_ranges_stream, with the concurrency as its depth; one task",
    |input| {
        let file = open(input)?;
        on_tokio(1, || stream(file.clone(), input.work, input.concurrency))
    },
);

fn open(input: &Input<'_>) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).direct(input.direct);
    Ok(runtime()?.block_on(options.open(input.file))?)
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
            Ok(read) => work.read_all(ranges, read),
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
