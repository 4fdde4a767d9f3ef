//! Many ranges of one file, read in four ways in turn: as a stream, in batches, one by one by
//! tasks, and by threads with `pread(2)`. Prints the medians of the rounds: operations per second,
//! and CPU time (user and system, all threads) per operation.
//!
//! `cargo bench -p ringway --features futures --bench ranges -- [direct|cached|null] [bytes]
//! [depth] [ranges] [rounds]`

use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Coalesce, Engine};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// What to read.
#[derive(Clone)]
struct Work {
    direct: bool,
    depth: usize,
    ranges: Arc<[Range<u64>]>,
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let number =
        |at: usize, default: usize| arguments.get(at).map_or(default, |word| word.parse().unwrap());
    let mode = arguments.first().map_or("direct", String::as_str);
    let (len, depth, count, rounds) =
        (number(1, 4096), number(2, 32), number(3, 20_000), number(4, 5));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    let size = 1u64 << 30;
    make(&path, size);
    let blocks = size / len as u64;
    let mut seed = fastrand::Rng::with_seed(1);
    let ranges: Vec<_> = (0..count)
        .map(|_| {
            let start = seed.u64(0..blocks) * len as u64;
            start..start + len as u64
        })
        .collect();
    let work = Work { direct: mode != "cached", depth, ranges: ranges.into() };
    let mut builder = Engine::builder();
    if mode == "null" {
        builder = builder.backend(BackendKind::Null);
    }
    let engine = builder.build().unwrap();
    let file = runtime
        .block_on(OpenOptions::new().read(true).direct(work.direct).engine(&engine).open(&path))
        .unwrap();
    let mut rows: Vec<(&str, Vec<(f64, f64)>)> =
        ["stream", "batches of 64", "one by one", "pread"].map(|name| (name, Vec::new())).into();
    if mode == "null" {
        rows.pop();
    }
    for _ in 0..rounds {
        for (name, figures) in &mut rows {
            let (file, work) = (file.clone(), work.clone());
            let (begun, cpu) = (Instant::now(), cpu());
            match *name {
                "stream" => {
                    runtime.block_on(async { tokio::spawn(stream(file, work)).await.unwrap() })
                }
                "batches of 64" => {
                    runtime.block_on(async { tokio::spawn(batches(file, work)).await.unwrap() })
                }
                "one by one" => runtime.block_on(one_by_one(file, work)),
                _ => threads(&path, &work),
            }
            let (seconds, cpu) = (begun.elapsed().as_secs_f64(), self::cpu() - cpu);
            figures.push((count as f64 / seconds, cpu * 1e6 / count as f64));
        }
    }
    println!(
        "{count} ranges of {len} bytes, {mode}, depth {depth}, {}; medians of {rounds}",
        engine.backend()
    );
    for (name, figures) in rows {
        let median = |of: fn(&(f64, f64)) -> f64| {
            let mut all: Vec<_> = figures.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        println!(
            "{name:16} {:9.0} op/s {:7.2} us CPU/op",
            median(|row| row.0),
            median(|row| row.1)
        );
    }
}

fn make(path: &Path, size: u64) {
    let file = std::fs::File::create(path).unwrap();
    let block = vec![7; 1 << 20];
    for at in 0..size >> 20 {
        file.write_all_at(&block, at << 20).unwrap();
    }
    file.sync_all().unwrap();
}

/// Seconds of processor time of this process.
fn cpu() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9
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
