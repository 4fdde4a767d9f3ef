//! foyer's engines and this one, in turns, through foyer's interface and through its cache. Prints
//! the medians of the rounds: wall time and CPU time (user and system, all threads) per operation,
//! and the CPU time of a second without operations.
//!
//! `cargo bench --manifest-path integrations/ringway-foyer/Cargo.toml -- [seconds] [rounds]`
//!
//! The settings of the cache are the defaults of foyer-bench: 16 readers and 16 writers, entries of
//! 64 KiB, 4 flushers; direct I/O on files.

use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    PsyncIoEngineConfig, UringIoEngineConfig,
};
use foyer_common::spawn::Spawner;
use foyer_storage::{Device, IoEngine, IoEngineBuildContext, IoEngineConfig, IoSliceMut};
use ringway_foyer::RingwayIoEngineConfig;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAMES: [&str; 3] = ["psync", "io_uring", "ringway"];
const WORKS: [(&str, bool, usize); 5] = [
    ("reads of 4 KiB", false, 4 << 10),
    ("reads of 64 KiB", false, 64 << 10),
    ("writes of 64 KiB", true, 64 << 10),
    ("cache", true, 0),
    ("idle", false, 0),
];
const BLOCK: usize = 64 << 20;
const TASKS: u64 = 64;

fn config(name: &str) -> Box<dyn IoEngineConfig> {
    match name {
        "psync" => PsyncIoEngineConfig::new().boxed(),
        "io_uring" => UringIoEngineConfig::new().boxed(),
        _ => RingwayIoEngineConfig::new().boxed(),
    }
}

fn main() {
    let arguments: Vec<f64> =
        std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let seconds = Duration::from_secs_f64(arguments.first().copied().unwrap_or(2.0));
    let rounds = arguments.get(1).map_or(5, |rounds| *rounds as usize);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (work, writes, len) in WORKS {
        let mut figures = vec![Vec::new(); NAMES.len()];
        for _ in 0..rounds {
            for (name, figures) in NAMES.iter().zip(&mut figures) {
                figures.push(turn(dir.path(), name, work, writes, len, seconds));
            }
        }
        println!("{work}, {rounds} rounds of {seconds:?}");
        let median = |figures: &[[f64; 2]], of: usize| {
            let mut all: Vec<_> = figures.iter().map(|figures| figures[of]).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        for (name, figures) in NAMES.iter().zip(&figures) {
            let (rate, cpu) = (median(figures, 0), median(figures, 1));
            println!("  {name:10} {rate:10.0} operations/s  CPU {cpu:10.2} us each");
        }
    }
}

/// Operations per second, and CPU microseconds per operation (or of the time, when idle).
fn turn(dir: &Path, name: &str, work: &str, writes: bool, len: usize, time: Duration) -> [f64; 2] {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let device = FsDeviceBuilder::new(dir.join("device")).with_capacity(16 * BLOCK);
        let device = device.with_direct(true).build().unwrap();
        if work == "cache" {
            return run_cache(device, config(name), time).await;
        }
        let partitions: Vec<_> = (0..8).map(|_| device.create_partition(BLOCK).unwrap()).collect();
        let context = IoEngineBuildContext { spawner: Spawner::current() };
        let engine: Arc<dyn IoEngine> = config(name).build(context).await.unwrap();
        // What is read has been written.
        for partition in &partitions {
            let buffer = Box::new(IoSliceMut::new(4 << 20));
            for at in 0..(BLOCK >> 22) as u64 {
                if !dir.join("filled").exists() {
                    let buffer = Box::new(buffer.as_ref().clone());
                    engine.write(buffer, partition.as_ref(), at << 22).await.1.unwrap();
                }
            }
        }
        std::fs::write(dir.join("filled"), "").unwrap();
        let (begun, before) = (Instant::now(), cpu());
        if work == "idle" {
            tokio::time::sleep(time).await;
            return [0.0, (cpu() - before) * 1e6];
        }
        let done = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (engine, partitions, done) = (engine.clone(), partitions.clone(), done.clone());
                tokio::spawn(async move {
                    let mut buffer = Box::new(IoSliceMut::new(len));
                    let mut at = task + 1;
                    while begun.elapsed() < time {
                        at = at.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                        let partition = &partitions[(at >> 40) as usize % partitions.len()];
                        let offset = (at >> 20) % (BLOCK / len) as u64 * len as u64;
                        let (back, result) = match writes {
                            true => engine.write(buffer, partition.as_ref(), offset).await,
                            false => engine.read(buffer, partition.as_ref(), offset).await,
                        };
                        result.unwrap();
                        buffer = back.try_into_io_slice_mut().unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let done = done.load(Ordering::Relaxed) as f64;
        [done / begun.elapsed().as_secs_f64(), (cpu() - before) * 1e6 / done]
    })
}

/// Readers and writers on a hybrid cache whose memory is small. An operation is a get or an insert.
async fn run_cache(
    device: Arc<dyn Device>,
    config: Box<dyn IoEngineConfig>,
    time: Duration,
) -> [f64; 2] {
    let cache: HybridCache<u64, Vec<u8>> = HybridCacheBuilder::new()
        .memory(16 << 20)
        .with_weighter(|_: &u64, value: &Vec<u8>| value.len())
        .storage()
        .with_io_engine_config(config)
        .with_engine_config(BlockEngineConfig::new(device).with_block_size(BLOCK).with_flushers(4))
        .build()
        .await
        .unwrap();
    for key in 0..4000 {
        cache.insert(key, vec![key as u8; 64 << 10]);
        if key % 100 == 0 {
            cache.storage().wait().await;
        }
    }
    let (begun, before) = (Instant::now(), cpu());
    let done = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..32u64)
        .map(|task| {
            let (cache, done) = (cache.clone(), done.clone());
            tokio::spawn(async move {
                let mut at = task + 1;
                while begun.elapsed() < time {
                    at = at.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                    let key = (at >> 33) % 10_000;
                    if cache.get(&key).await.unwrap().is_none() && task % 2 == 0 {
                        cache.insert(key, vec![key as u8; 64 << 10]);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let done = done.load(Ordering::Relaxed) as f64;
    let figures = [done / begun.elapsed().as_secs_f64(), (cpu() - before) * 1e6 / done];
    cache.close().await.unwrap();
    figures
}

/// CPU seconds of the process, all threads: user and system.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
