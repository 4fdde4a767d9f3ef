//! Cached reads through `LocalFileSystem` and through `RingwayFileSystem` on each backend, in
//! turns. Prints the medians of the rounds: wall time and CPU time (user and system, all threads)
//! per operation.
//!
//! `cargo bench -p ringway-object-store --bench reads -- [files|head|range|ranges] [depth]
//! [operations] [rounds] [store]`
//!
//! `files` gets small files whole, `head` gets their metadata, `range` gets 64 KiB of a large file,
//! and `ranges` 16 times 16 KiB of it. `store` is a word in the name of the only store to use.

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use ringway::{BackendKind, Engine};
use ringway_object_store::RingwayFileSystem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const FILES: u64 = 10_000;
const FILE: usize = 8 << 10;
const LARGE: u64 = 256 << 20;

/// What one operation is.
#[derive(Clone, Copy, Debug)]
enum Work {
    Files,
    Head,
    Range,
    Ranges,
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let word = |at: usize| arguments.get(at).map(String::as_str);
    let number = |at: usize, default: u64| word(at).map_or(default, |word| word.parse().unwrap());
    let works = match word(0) {
        Some("files") => vec![Work::Files],
        Some("head") => vec![Work::Head],
        Some("range") => vec![Work::Range],
        Some("ranges") => vec![Work::Ranges],
        _ => vec![Work::Files, Work::Head, Work::Range, Work::Ranges],
    };
    let depths = word(1).map_or(vec![1, 32], |depth| vec![depth.parse().unwrap()]);
    let (operations, rounds) = (number(2, 20_000), number(3, 5) as usize);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for file in 0..FILES {
        std::fs::write(dir.path().join(file.to_string()), vec![7; FILE]).unwrap();
    }
    let large = std::fs::File::create(dir.path().join("large")).unwrap();
    for at in 0..LARGE >> 20 {
        std::os::unix::fs::FileExt::write_all_at(&large, &vec![7; 1 << 20], at << 20).unwrap();
    }
    let stores: Vec<_> = stores(dir.path())
        .into_iter()
        .filter(|(name, _)| word(4).is_none_or(|only| name.contains(only)))
        .collect();
    for work in works {
        for depth in &depths {
            println!("{work:?}, cached, {depth} tasks, {operations} operations, {rounds} rounds");
            let mut figures = vec![Vec::new(); stores.len()];
            for _ in 0..rounds {
                for ((_, store), figures) in stores.iter().zip(&mut figures) {
                    let (begun, cpu) = (Instant::now(), cpu());
                    runtime.block_on(run(store.clone(), work, *depth, operations));
                    let each = |seconds: f64| seconds * 1e6 / operations as f64;
                    figures.push((each(begun.elapsed().as_secs_f64()), each(self::cpu() - cpu)));
                }
            }
            for ((name, _), figures) in stores.iter().zip(figures) {
                let median = |of: fn(&(f64, f64)) -> f64| {
                    let mut all: Vec<_> = figures.iter().map(of).collect();
                    all.sort_by(f64::total_cmp);
                    all[all.len() / 2]
                };
                println!(
                    "  {name:16} {:7.2} us wall {:7.2} us CPU",
                    median(|row| row.0),
                    median(|row| row.1)
                );
            }
        }
    }
}

fn stores(prefix: &std::path::Path) -> Vec<(String, Arc<dyn ObjectStore>)> {
    let local: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(prefix).unwrap());
    let mut stores = vec![("LocalFileSystem".to_owned(), local)];
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        match Engine::builder().backend(kind).build() {
            Ok(engine) => {
                let store = RingwayFileSystem::new_with_prefix(prefix).unwrap();
                stores.push((format!("ringway {kind}"), Arc::new(store.with_engine(&engine))));
            }
            Err(error) => println!("skipped: {kind}: {error}"),
        }
    }
    stores
}

/// Seconds of processor time of this process.
fn cpu() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9
}

async fn run(store: Arc<dyn ObjectStore>, work: Work, depth: u64, operations: u64) {
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let (store, next) = (store.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= operations {
                        break;
                    }
                    one(&*store, work, number).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn one(store: &dyn ObjectStore, work: Work, number: u64) {
    // A multiplier without a common factor visits everything in a scattered order.
    let place = |bytes: u64, of: u64| {
        let start = number.wrapping_mul(7919) % (of / bytes) * bytes;
        start..start + bytes
    };
    let file = Path::from((number.wrapping_mul(7919) % FILES).to_string());
    let large = Path::from("large");
    match work {
        Work::Files => {
            let bytes = store.get(&file).await.unwrap().bytes().await.unwrap();
            assert_eq!(bytes.len(), FILE);
        }
        Work::Head => assert_eq!(store.head(&file).await.unwrap().size, FILE as u64),
        Work::Range => {
            let bytes = store.get_range(&large, place(64 << 10, LARGE)).await.unwrap();
            assert_eq!(bytes.len(), 64 << 10);
        }
        Work::Ranges => {
            let ranges: Vec<Range<u64>> = (0..16)
                .map(|part| {
                    let start = place(16 << 10, LARGE / 16).start + part * (LARGE / 16);
                    start..start + (16 << 10)
                })
                .collect();
            let parts = store.get_ranges(&large, &ranges).await.unwrap();
            assert_eq!(parts.len(), 16);
        }
    }
}
