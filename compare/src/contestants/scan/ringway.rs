//! ringway on multi-thread tokio, with default settings.

use super::{Contestant, on_tokio, runtime};
use crate::scan::Work;
use ringway::fs::{File, OpenOptions};
use std::path::Path;

/// Ranges in a call of `read_ranges`.
const RANGES: usize = 64;

#[derive(Clone, Copy)]
enum How {
    Single,
    Batches,
    Batch,
    Stream,
}
use How::{Batch, Batches, Single, Stream};

impl How {
    const fn about(self) -> &'static str {
        match self {
            Single => "File::read, one range in each call",
            Batches => {
                "File::read_ranges, 64 ranges in each call, or half the concurrency if that is \
                 less; the ranges of all calls in flight are as many as the concurrency"
            }
            Batch => {
                "File::read_ranges, one call at a time, for 64 ranges or as many as the \
                 concurrency if that is more"
            }
            Stream => "File::read_ranges_stream, with the concurrency as its depth; one task",
        }
    }
}

pub const SINGLE: Contestant =
    Contestant::scan("ringway", Single.about(), |file, work, concurrency| {
        run(Single, false, file, work, concurrency)
    });
pub const SINGLE_DIRECT: Contestant =
    Contestant::scan("ringway-direct", Single.about(), |file, work, concurrency| {
        run(Single, true, file, work, concurrency)
    })
    .direct();
pub const BATCHES: Contestant =
    Contestant::scan("ringway-batches", Batches.about(), |file, work, concurrency| {
        run(Batches, false, file, work, concurrency)
    });
pub const BATCHES_DIRECT: Contestant =
    Contestant::scan("ringway-batches-direct", Batches.about(), |file, work, concurrency| {
        run(Batches, true, file, work, concurrency)
    })
    .direct();
pub const BATCH: Contestant =
    Contestant::scan("ringway-batch", Batch.about(), |file, work, concurrency| {
        run(Batch, false, file, work, concurrency)
    });
pub const BATCH_DIRECT: Contestant =
    Contestant::scan("ringway-batch-direct", Batch.about(), |file, work, concurrency| {
        run(Batch, true, file, work, concurrency)
    })
    .direct();
pub const STREAM: Contestant =
    Contestant::scan("ringway-stream", Stream.about(), |file, work, concurrency| {
        run(Stream, false, file, work, concurrency)
    });
pub const STREAM_DIRECT: Contestant =
    Contestant::scan("ringway-stream-direct", Stream.about(), |file, work, concurrency| {
        run(Stream, true, file, work, concurrency)
    })
    .direct();

fn run(
    how: How,
    direct: bool,
    file: &Path,
    work: &'static Work,
    concurrency: usize,
) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).direct(direct);
    let file = runtime()?.block_on(options.open(file))?;
    match how {
        Single => on_tokio(concurrency, || single(file.clone(), work)),
        Batches => {
            let batch = RANGES.min(concurrency.div_ceil(2));
            on_tokio(concurrency / batch, || batches(file.clone(), work, batch))
        }
        Batch => on_tokio(1, || batches(file.clone(), work, RANGES.max(concurrency))),
        Stream => on_tokio(1, || stream(file.clone(), work, concurrency)),
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
