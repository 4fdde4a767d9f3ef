//! Durable records of many tasks, appended to one file in three ways in turn: by group commit, by a
//! write and a sync for each in a blocking closure, and by `write_durable_at` for each. Prints the
//! medians of the rounds: records per second, and CPU time (user and system, all threads) per
//! record. Then, one after the other, the bytes of a group with a sync linked to the write, and
//! with `O_DSYNC`.
//!
//! `cargo bench -p ringway --bench log -- [tasks] [bytes] [records] [rounds]`

use futures::FutureExt;
use futures::future::BoxFuture;
use ringway::fs::{File, OpenOptions};
use ringway::{Engine, LogWriter};
use ringway_measure::arguments::Arguments;
use ringway_measure::rounds::{Column, Row, Turn, costs};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GROUP: &str = "group commit";
const CLOSURE: &str = "closure each";
const DURABLE: &str = "write_durable_at";
const LINKED: &str = "linked, alone";
const WAYS: [&str; 5] = [GROUP, CLOSURE, DURABLE, LINKED, "O_DSYNC, alone"];
/// Operations of the engine for each record.
const OPERATIONS: &str = "operations each";

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
    let arguments = Arguments::of_process();
    let (tasks, len) = (arguments.number(0, 64), arguments.number(1, 256));
    let (count, rounds) = (arguments.number(2, 4000), arguments.number(3, 5));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("log");
    let engine = Engine::builder().build().unwrap();
    let title = format!("{tasks} tasks, {count} records of {len} bytes, {}", engine.backend());
    let row = Row::measure(title, rounds, WAYS.map(|way| (way, way)).into(), None, |way| {
        let std = std::fs::File::create(&path)?;
        let file = File::from_fd(std.try_clone()?.into(), &engine);
        std.sync_all()?;
        let (end, before) = (Arc::default(), engine.stats().counts.pushed);
        let (records, done): (usize, BoxFuture<'_, ()>) = match *way {
            GROUP => {
                let log = LogWriter::new(file, 0)?;
                (count, all(Way::Group(log), tasks, len, count).boxed())
            }
            CLOSURE => (count, all(Way::Closure(std.into(), end), tasks, len, count).boxed()),
            DURABLE => (count, all(Way::Durable(file, end), tasks, len, count).boxed()),
            LINKED => (count / tasks, alone(file, true, tasks * len, count / tasks).boxed()),
            _ => {
                let file = runtime.block_on(dsync(&engine, &path));
                (count / tasks, alone(file, false, tasks * len, count / tasks).boxed())
            }
        };
        let mut turn = Turn::measure(records as u64, || runtime.block_on(done));
        let operations = engine.stats().counts.pushed - before;
        turn.set(OPERATIONS, operations as f64 / records as f64);
        std::fs::remove_file(&path)?;
        Ok(turn)
    });
    let mut columns = costs(GROUP);
    columns.push(Column::figure(OPERATIONS));
    print!("{}", row.markdown(&columns, &row.notes()));
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
