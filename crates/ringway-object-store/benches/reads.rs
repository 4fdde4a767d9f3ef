//! Cached reads through `LocalFileSystem` and through `RingwayFileSystem` on each backend, in
//! turns. Prints the medians of the rounds: operations per second, and CPU time (user and system,
//! all threads) per operation.
//!
//! `cargo bench -p ringway-object-store --bench reads -- [files|head|range|ranges] [depth]
//! [operations] [rounds] [store]`
//!
//! `files` gets small files whole, `head` gets their metadata, `range` gets 64 KiB of a large file,
//! and `ranges` 16 times 16 KiB of it. `store` is a word in the name of the only store to use.

mod stores;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use ringway_measure::arguments::Arguments;
use ringway_measure::rounds::{Row, Turn, costs};
use ringway_measure::scratch;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stores::{LOCAL, stores};

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
    let arguments = Arguments::of_process();
    let works = match arguments.word(0) {
        Some("files") => vec![Work::Files],
        Some("head") => vec![Work::Head],
        Some("range") => vec![Work::Range],
        Some("ranges") => vec![Work::Ranges],
        _ => vec![Work::Files, Work::Head, Work::Range, Work::Ranges],
    };
    let depths = arguments.word(1).map_or(vec![1, 32], |depth| vec![depth.parse().unwrap()]);
    let (operations, rounds) = (arguments.number(2, 20_000), arguments.number(3, 5));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for file in 0..FILES {
        std::fs::write(dir.path().join(file.to_string()), vec![7; FILE]).unwrap();
    }
    let large = std::fs::File::create(dir.path().join("large")).unwrap();
    scratch::fill(&large, 0, LARGE, 1, &mut |_| ()).unwrap();
    let mut stores = stores(dir.path(), false);
    stores.retain(|(name, _)| arguments.word(4).is_none_or(|only| name.contains(only)));
    for work in works {
        for depth in &depths {
            let title = format!("{work:?}, cached, {depth} tasks, {operations} operations");
            let contestants = stores.iter().map(|(name, store)| (&**name, store)).collect();
            let row = Row::measure(title, rounds, contestants, None, |store| {
                Ok(Turn::measure(operations, || {
                    runtime.block_on(run(Arc::clone(store), work, *depth, operations));
                }))
            });
            println!("{}", row.markdown(&costs(LOCAL), &row.notes()));
        }
    }
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
