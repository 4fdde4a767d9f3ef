//! foyer's engines and this one, in turns, through foyer's interface and through its cache. Prints
//! the medians of the rounds: operations per second, and CPU time (user and system, all threads)
//! per operation. An idle turn is one operation.
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
use ringway_measure::arguments::Arguments;
use ringway_measure::random::Random;
use ringway_measure::rounds::{Row, Turn, costs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The engine that the others are compared with.
const PSYNC: &str = "psync";
const NAMES: [&str; 3] = [PSYNC, "io_uring", "ringway"];
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
        PSYNC => PsyncIoEngineConfig::new().boxed(),
        "io_uring" => UringIoEngineConfig::new().boxed(),
        _ => RingwayIoEngineConfig::new().boxed(),
    }
}

fn main() {
    let arguments = Arguments::of_process();
    let seconds = Duration::from_secs_f64(arguments.number(0, 2.0));
    let rounds = arguments.number(1, 5);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (work, writes, len) in WORKS {
        let title = format!("{work}, {seconds:?}");
        let engines = NAMES.map(|name| (name, name)).into();
        let row = Row::measure(title, rounds, engines, None, |name| {
            Ok(turn(dir.path(), name, work, writes, len, seconds))
        });
        println!("{}", row.markdown(&costs(PSYNC), &row.notes()));
    }
}

fn turn(dir: &Path, name: &str, work: &str, writes: bool, len: usize, time: Duration) -> Turn {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let device = FsDeviceBuilder::new(dir.join("device")).with_capacity(16 * BLOCK);
    let device = device.with_direct(true).build().unwrap();
    if work == "cache" {
        let cache = runtime.block_on(cache(device, config(name)));
        let turn = Turn::measure_counted(|| runtime.block_on(use_cache(&cache, time)));
        runtime.block_on(cache.close()).unwrap();
        return turn;
    }
    let partitions: Vec<_> = (0..8).map(|_| device.create_partition(BLOCK).unwrap()).collect();
    let engine = runtime.block_on(async {
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
        engine
    });
    if work == "idle" {
        let sleep = async { tokio::time::sleep(time).await };
        return Turn::measure(1, || runtime.block_on(sleep));
    }
    let task = |task| {
        let (engine, partitions) = (engine.clone(), partitions.clone());
        async move {
            let (begun, mut done) = (Instant::now(), 0);
            let (mut buffer, mut random) = (Box::new(IoSliceMut::new(len)), Random::new(task));
            while begun.elapsed() < time {
                let partition = &partitions[random.below(partitions.len() as u64) as usize];
                let offset = random.below((BLOCK / len) as u64) * len as u64;
                let (back, result) = match writes {
                    true => engine.write(buffer, partition.as_ref(), offset).await,
                    false => engine.read(buffer, partition.as_ref(), offset).await,
                };
                result.unwrap();
                buffer = back.try_into_io_slice_mut().unwrap();
                done += 1;
            }
            done
        }
    };
    Turn::measure_counted(|| runtime.block_on(all((0..TASKS).map(task))))
}

/// Runs tasks, and returns the sum of what they return.
async fn all(tasks: impl Iterator<Item: Future<Output = u64> + Send + 'static>) -> u64 {
    let mut sum = 0;
    for task in tasks.map(tokio::spawn).collect::<Vec<_>>() {
        sum += task.await.unwrap();
    }
    sum
}

type Cache = HybridCache<u64, Vec<u8>>;

/// A hybrid cache whose memory is small.
async fn cache(device: Arc<dyn Device>, config: Box<dyn IoEngineConfig>) -> Cache {
    let cache: Cache = HybridCacheBuilder::new()
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
    cache
}

/// Readers and writers on the cache. An operation is a get, and an insert where it finds nothing.
async fn use_cache(cache: &Cache, time: Duration) -> u64 {
    let task = |task| {
        let cache = cache.clone();
        async move {
            let (begun, mut done, mut random) = (Instant::now(), 0, Random::new(task));
            while begun.elapsed() < time {
                let key = random.below(10_000);
                if cache.get(&key).await.unwrap().is_none() && task % 2 == 0 {
                    cache.insert(key, vec![key as u8; 64 << 10]);
                }
                done += 1;
            }
            done
        }
    };
    all((0..32).map(task)).await
}
