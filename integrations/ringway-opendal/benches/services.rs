//! OpenDAL's own file service and this one, in turns. Prints the medians of the rounds: operations
//! per second, and CPU time (user and system, all threads) per operation.
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
use ringway_measure::arguments::Arguments;
use ringway_measure::rounds::{Row, Turn, costs};
use ringway_opendal::{Durability, RingwayFs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The service that the others are compared with.
const THEIRS: &str = "services-fs";
const LARGE: u64 = 256 << 20;
const RANGE: u64 = 4 << 10;
const SMALL_FILES: u64 = 1000;
const WORKS: [&str; 5] = ["reader", "range", "read", "stat", "write"];

fn main() {
    let arguments = Arguments::of_process();
    let (tasks, rounds) = (arguments.number(1, 64), arguments.number(3, 5));
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
        (THEIRS, Operator::new(Fs::default().root(root)).unwrap()),
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
    let is_chosen = |name: &str| arguments.word(4).is_none_or(|only| name.contains(only));
    let is_wanted = |work: &&str| arguments.word(0).is_none_or(|only| only == *work);
    for work in WORKS.into_iter().filter(is_wanted) {
        let operations = arguments.number(2, if work == "write" { 1000 } else { 20_000 });
        let title = format!("{work}, {tasks} tasks, {operations} operations");
        let services = services.iter().filter(|(name, _)| is_chosen(name));
        let services = services.map(|(name, op)| (*name, op)).collect();
        let row = Row::measure(title, rounds, services, None, |op| {
            Ok(Turn::measure(operations, || {
                runtime.block_on(run((*op).clone(), work, tasks, operations));
            }))
        });
        println!("{}", row.markdown(&costs(THEIRS), &row.notes()));
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
