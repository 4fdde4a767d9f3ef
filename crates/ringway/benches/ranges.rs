//! Many ranges of one file, read in four ways in turn: as a stream, in batches, one by one by
//! tasks, and by threads with `pread(2)`. Prints the medians of the rounds: operations per second,
//! and CPU time (user and system, all threads) per operation.
//!
//! `cargo bench -p ringway --features futures --bench ranges -- [direct|cached|null] [bytes]
//! [depth] [ranges] [rounds]`

use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Coalesce, Engine};
use ringway_measure::arguments::Arguments;
use ringway_measure::rounds::{Row, Turn, costs};
use ringway_measure::scratch;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The size of the file.
const SIZE: u64 = 1 << 30;
const THREADS: &str = "pread";

/// What to read.
#[derive(Clone)]
struct Work {
    direct: bool,
    depth: usize,
    ranges: Arc<[Range<u64>]>,
}

fn main() {
    let arguments = Arguments::of_process();
    let mode = arguments.word(0).unwrap_or("direct");
    let (len, depth) = (arguments.number(1, 4096), arguments.number(2, 32));
    let (count, rounds) = (arguments.number(3, 20_000), arguments.number(4, 5));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let file = scratch::create(env!("CARGO_TARGET_TMPDIR").as_ref(), SIZE, 1, &mut |_| ()).unwrap();
    let path = scratch::path(&file);
    let mut seed = fastrand::Rng::with_seed(1);
    let ranges = (0..count).map(|_| {
        let start = seed.u64(0..SIZE / len) * len;
        start..start + len
    });
    let work = Work { direct: mode != "cached", depth, ranges: ranges.collect() };
    let mut builder = Engine::builder();
    if mode == "null" {
        builder = builder.backend(BackendKind::Null);
    }
    let engine = builder.build().unwrap();
    let file = runtime
        .block_on(OpenOptions::new().read(true).direct(work.direct).engine(&engine).open(&path))
        .unwrap();
    let mut ways = vec!["stream", "batches of 64", "one by one", THREADS];
    ways.retain(|way| mode != "null" || *way != THREADS);
    let title =
        format!("{count} ranges of {len} bytes, {mode}, depth {depth}, {}", engine.backend());
    let contestants = ways.into_iter().map(|way| (way, way)).collect();
    let row = Row::measure(title, rounds, contestants, None, |way| {
        let (file, work) = (file.clone(), work.clone());
        Ok(Turn::measure(count, || match *way {
            "stream" => {
                runtime.block_on(async { tokio::spawn(stream(file, work)).await.unwrap() });
            }
            "batches of 64" => {
                runtime.block_on(async { tokio::spawn(batches(file, work)).await.unwrap() });
            }
            "one by one" => runtime.block_on(one_by_one(file, work)),
            _ => threads(&path, &work),
        }))
    });
    print!("{}", row.markdown(&costs(THREADS), &row.notes()));
}

async fn stream(file: File, work: Work) {
    let ranges = (0..work.ranges.len()).map(|at| work.ranges[at].clone());
    let mut stream = file.read_ranges_stream(ranges).depth(work.depth).coalesce(Coalesce::never());
    while let Some(read) = stream.next().await {
        read.result.unwrap();
    }
}

async fn batches(file: File, work: Work) {
    for batch in work.ranges.chunks(64) {
        file.read_ranges_each(batch, Coalesce::never())
            .await
            .unwrap()
            .into_iter()
            .for_each(|read| _ = read.unwrap());
    }
}

async fn one_by_one(file: File, work: Work) {
    let next = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..work.depth)
        .map(|_| {
            let (file, work, next) = (file.clone(), work.clone(), next.clone());
            tokio::spawn(async move {
                while let Some(range) = work.ranges.get(next.fetch_add(1, Ordering::Relaxed)) {
                    file.read(range.clone()).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn threads(path: &Path, work: &Work) {
    let flags = if work.direct { libc::O_DIRECT } else { 0 };
    let file = std::fs::File::options().read(true).custom_flags(flags).open(path).unwrap();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..work.depth {
            scope.spawn(|| {
                let mut buffer = ringway::AlignedBuffer::new(
                    (work.ranges[0].end - work.ranges[0].start) as usize,
                    4096,
                );
                while let Some(range) = work.ranges.get(next.fetch_add(1, Ordering::Relaxed)) {
                    file.read_exact_at(&mut buffer, range.start).unwrap();
                }
            });
        }
    });
}
