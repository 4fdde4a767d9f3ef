//! compio: a ring and an executor on each thread.

use super::{Contestant, Input, blocks};
use crate::buffer::Buffer;
use crate::scan::Work;
use compio::buf::BufResult;
use compio::fs::{File, OpenOptions};
use compio::io::AsyncReadAtExt;
use compio::runtime::Runtime;
use std::thread;

pub const BUFFERED: Contestant = Contestant::scan(
    "compio",
    "io_uring driver, one thread for each core with its share of the ranges in flight; default \
     settings; into a Vec that is not zeroed",
    run,
);

fn run(input: &Input<'_>) -> anyhow::Result<()> {
    let Input { file, work, concurrency, direct } = *input;
    let threads = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        for number in 0..threads {
            let share = (concurrency + number) / threads;
            scope.spawn(move || {
                let runtime = Runtime::new().expect("io_uring is available");
                runtime.block_on(async {
                    let mut options = OpenOptions::new();
                    options.read(true).custom_flags(input.open_flags());
                    let file = options.open(file).await.expect("the parent has opened it");
                    let task = |_| compio::runtime::spawn(read(file.clone(), work, direct));
                    let tasks: Vec<_> = (0..share).map(task).collect();
                    for task in tasks {
                        task.await.expect("no reader panics");
                    }
                });
            });
        }
    });
    Ok(())
}

async fn read(file: File, work: &Work, direct: bool) {
    while let Some(range) = work.take_one() {
        if direct {
            let (start, skip, len) = blocks(range);
            let BufResult(result, buffer) = file.read_exact_at(Buffer::untouched(len), start).await;
            match result {
                Ok(()) => work.read(range, &buffer[skip..][..(range.end - range.start) as usize]),
                Err(error) => work.fail(error),
            }
        } else {
            let buffer = Vec::with_capacity((range.end - range.start) as usize);
            let BufResult(result, buffer) = file.read_exact_at(buffer, range.start).await;
            match result {
                Ok(()) => work.read(range, &buffer),
                Err(error) => work.fail(error),
            }
        }
    }
}
