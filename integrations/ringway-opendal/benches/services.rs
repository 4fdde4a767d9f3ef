//! OpenDAL's own file service and this one, in turns. Prints the medians of the rounds: wall time
//! and CPU time (user and system, all threads) per operation.
//!
//! `cargo bench -p ringway-opendal -- [reader|range|read|stat|write] [tasks] [operations] [rounds]
//! [service]`
//!
//! `reader` reads 4 KiB ranges of a cached file through one reader, `range` opens the object for
//! each, `read` gets whole objects of 8 KiB, and `write` writes objects of 64 KiB. Both services
//! sync what they write; `unsynced` does not, which the other cannot. The service in memory shows
//! what OpenDAL itself costs. `service` is a word in the name of the only service to use.

use opendal_core::Operator;
use opendal_core::services::Memory;
use opendal_service_fs::Fs;
use ringway::{BackendKind, Engine};
use ringway_opendal::{Durability, RingwayFs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const LARGE: u64 = 256 << 20;
const RANGE: u64 = 4 << 10;
const SMALL_FILES: u64 = 1000;
const WORKS: [&str; 5] = ["reader", "range", "read", "stat", "write"];

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let word = |at: usize| arguments.get(at).map(String::as_str);
    let number = |at: usize, default: u64| word(at).map_or(default, |word| word.parse().unwrap());
    let (tasks, rounds) = (number(1, 64), number(3, 5) as usize);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = dir.path().to_str().unwrap();
    for file in 0..SMALL_FILES {
        std::fs::write(dir.path().join(file.to_string()), vec![7; 8 << 10]).unwrap();
    }
    std::fs::write(dir.path().join("large"), vec![7; LARGE as usize]).unwrap();
    let ours = || RingwayFs::default().root(root);
    let threads = Engine::builder().backend(BackendKind::Threads).build().unwrap();
    let services = [
        ("services-fs", Operator::new(Fs::default().root(root)).unwrap()),
        ("ringway", Operator::new(ours()).unwrap()),
        ("ringway, threads", Operator::new(ours().engine(&threads)).unwrap()),
        ("memory", Operator::new(Memory::default()).unwrap()),
        ("ringway, unsynced", Operator::new(ours().durability(Durability::None)).unwrap()),
    ];
    let [.., (_, memory), _] = &services;
    for file in 0..SMALL_FILES {
        runtime.block_on(memory.write(&file.to_string(), vec![7; 8 << 10])).unwrap();
    }
    runtime.block_on(memory.write("large", vec![7; LARGE as usize])).unwrap();
    let services: Vec<_> = services
        .into_iter()
        .filter(|(name, _)| word(4).is_none_or(|only| name.contains(only)))
        .collect();
    for work in WORKS.into_iter().filter(|work| word(0).is_none_or(|only| only == *work)) {
        let operations = number(2, if work == "write" { 1000 } else { 20_000 });
        println!("{work}, {tasks} tasks, {operations} operations, {rounds} rounds");
        let mut figures = vec![Vec::new(); services.len()];
        for _ in 0..rounds {
            for ((_, op), figures) in services.iter().zip(&mut figures) {
                let (begun, before) = (Instant::now(), cpu());
                runtime.block_on(run(op.clone(), work, tasks, operations));
                let each = |seconds: f64| seconds * 1e6 / operations as f64;
                figures.push([each(begun.elapsed().as_secs_f64()), each(cpu() - before)]);
            }
        }
        let median = |figures: &[[f64; 2]], of: usize| {
            let mut all: Vec<_> = figures.iter().map(|figures| figures[of]).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let base = median(&figures[0], 0);
        for ((name, _), figures) in services.iter().zip(&figures) {
            let (wall, cpu) = (median(figures, 0), median(figures, 1));
            let times = base / wall;
            println!(
                "  {name:20} {wall:8.2} us  CPU {cpu:7.2} us  {times:5.2} times {}",
                services[0].0
            );
        }
    }
}

async fn run(op: Operator, work: &'static str, tasks: u64, operations: u64) {
    let next = Arc::new(AtomicU64::new(0));
    let reader = op.reader("large").await.unwrap();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (op, next, reader) = (op.clone(), next.clone(), reader.clone());
            tokio::spawn(async move {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= operations {
                        return;
                    }
                    let start = at.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (LARGE / RANGE) * RANGE;
                    let key = (at % SMALL_FILES).to_string();
                    let len = match work {
                        "reader" => reader.read(start..start + RANGE).await.unwrap().len(),
                        "range" => {
                            let range = start..start + RANGE;
                            op.read_with("large").range(range).await.unwrap().len()
                        }
                        "read" => op.read(&key).await.unwrap().len(),
                        "stat" => op.stat(&key).await.unwrap().content_length() as usize,
                        _ => {
                            let content = vec![7; 64 << 10];
                            op.write(&format!("new/{key}"), content).await.unwrap();
                            1
                        }
                    };
                    assert!(len > 0);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// CPU seconds of the process, all threads: user and system.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
