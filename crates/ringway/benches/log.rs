//! Durable records of many tasks, appended to one file in three ways in turn: by group commit, by a
//! write and a sync for each in a blocking closure, and by `write_durable_at` for each. Prints the
//! medians of the rounds: records per second, and CPU time (user and system, all threads) per
//! record. Then, one after the other, the bytes of a group with a sync linked to the write, and
//! with `O_DSYNC`.
//!
//! `cargo bench -p ringway --bench log -- [tasks] [bytes] [records] [rounds]`

use ringway::fs::{File, OpenOptions};
use ringway::{Engine, LogWriter};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How a record is written.
#[derive(Clone)]
enum Way {
    Group(LogWriter),
    Closure(Arc<std::fs::File>, Arc<AtomicU64>),
    Durable(File, Arc<AtomicU64>),
}

impl Way {
    async fn put(&self, record: Vec<u8>) {
        match self {
            Self::Group(log) => _ = log.append(record).await.unwrap(),
            Self::Closure(file, end) => {
                let (file, at) =
                    (file.clone(), end.fetch_add(record.len() as u64, Ordering::Relaxed));
                let put = move || file.write_all_at(&record, at).and_then(|()| file.sync_data());
                tokio::task::spawn_blocking(put).await.unwrap().unwrap();
            }
            Self::Durable(file, end) => {
                let at = end.fetch_add(record.len() as u64, Ordering::Relaxed);
                file.write_durable_at(record, at).await.0.unwrap();
            }
        }
    }
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let number =
        |at: usize, default: usize| arguments.get(at).map_or(default, |word| word.parse().unwrap());
    let (tasks, len, count, rounds) =
        (number(0, 64), number(1, 256), number(2, 4000), number(3, 5));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let engine = Engine::builder().build().unwrap();
    let names =
        ["group commit", "closure each", "write_durable_at", "linked, alone", "O_DSYNC, alone"];
    let mut rows = names.map(|name| (name, Vec::new()));
    for round in 0..rounds {
        for (name, figures) in &mut rows {
            let path = dir.path().join(format!("{name} {round}"));
            let std = std::fs::File::create(&path).unwrap();
            let file = File::from_fd(std.try_clone().unwrap().into(), &engine);
            std.sync_all().unwrap();
            let end = Arc::new(AtomicU64::new(0));
            let (begun, before, cpu) = (Instant::now(), engine.stats().counts.pushed, cpu());
            let records = match *name {
                "group commit" => {
                    runtime.block_on(all(
                        Way::Group(LogWriter::new(file, 0).unwrap()),
                        tasks,
                        len,
                        count,
                    ));
                    count
                }
                "closure each" => {
                    runtime.block_on(all(Way::Closure(std.into(), end), tasks, len, count));
                    count
                }
                "write_durable_at" => {
                    runtime.block_on(all(Way::Durable(file, end), tasks, len, count));
                    count
                }
                "linked, alone" => {
                    runtime.block_on(alone(file, true, tasks * len, count / tasks));
                    count / tasks
                }
                _ => {
                    let file = runtime.block_on(dsync(&engine, &path));
                    runtime.block_on(alone(file, false, tasks * len, count / tasks));
                    count / tasks
                }
            };
            let (seconds, cpu) = (begun.elapsed().as_secs_f64(), self::cpu() - cpu);
            let operations = engine.stats().counts.pushed - before;
            let each = |value: f64| value / records as f64;
            figures.push((records as f64 / seconds, each(cpu * 1e6), each(operations as f64)));
            std::fs::remove_file(&path).unwrap();
        }
    }
    println!(
        "{tasks} tasks, {count} records of {len} bytes, {}; medians of {rounds}",
        engine.backend()
    );
    for (name, figures) in rows {
        let median = |of: fn(&(f64, f64, f64)) -> f64| {
            let mut all: Vec<_> = figures.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (rate, cpu, operations) =
            (median(|row| row.0), median(|row| row.1), median(|row| row.2));
        println!("{name:18} {rate:9.0} /s {cpu:8.2} us CPU {operations:7.3} operations each");
    }
}

async fn dsync(engine: &Engine, path: &Path) -> File {
    OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DSYNC)
        .engine(engine)
        .open(path)
        .await
        .unwrap()
}

/// Seconds of processor time of this process.
fn cpu() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9
}

async fn all(way: Way, tasks: usize, len: usize, count: usize) {
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (way, count) = (way.clone(), count / tasks + usize::from(task < count % tasks));
            tokio::spawn(async move {
                for _ in 0..count {
                    way.put(vec![7; len]).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn alone(file: File, linked: bool, len: usize, count: usize) {
    for at in 0..count {
        let offset = (at * len) as u64;
        if linked {
            file.write_durable_at(vec![7; len], offset).await.0.unwrap()
        } else {
            file.write_all_at(vec![7; len], offset).await.0.unwrap()
        }
    }
}
