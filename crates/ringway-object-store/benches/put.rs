//! Writes through `LocalFileSystem` and through `RingwayFileSystem` on each backend, in turns.
//! Prints the medians of the rounds: wall time and CPU time (user and system, all threads) per
//! object.
//!
//! `cargo bench -p ringway-object-store --bench put -- [directory] [concurrency] [rounds]`
//!
//! Small objects have 4 KiB, with and without fsync. Uploads have eight parts of 8 MiB, of which
//! two are written at the same time.

use futures::{StreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use ringway::{BackendKind, Engine};
use ringway_object_store::RingwayFileSystem;
use std::sync::Arc;
use std::time::Instant;

const SMALL: usize = 4 << 10;
const PART: usize = 8 << 20;
const PARTS: usize = 8;

/// What is written: the name, how many objects in a round, and whether they are synced.
const WORK: [(&str, u64, bool); 4] = [
    ("small", 2000, false),
    ("small, fsync", 200, true),
    ("64 MiB upload", 6, false),
    ("64 MiB upload, fsync", 3, true),
];

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let word = |at: usize| arguments.get(at).map(String::as_str);
    let number = |at: usize, default: u64| word(at).map_or(default, |word| word.parse().unwrap());
    let (directory, concurrency, rounds) =
        (word(0).unwrap_or("."), number(1, 8) as usize, number(2, 5));
    let dir = tempfile::tempdir_in(directory).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    println!("{directory}, {concurrency} at a time: µs of wall and of CPU per object");
    for (name, objects, fsync) in WORK {
        let stores = stores(dir.path(), fsync);
        let mut results = vec![(Vec::new(), Vec::new()); stores.len()];
        for _ in 0..rounds {
            for ((_, store), (wall, cpu)) in stores.iter().zip(&mut results) {
                let (begun, used) = (Instant::now(), cpu_micros());
                runtime.block_on(write(store, name.starts_with("small"), objects, concurrency));
                wall.push(begun.elapsed().as_micros() as f64 / objects as f64);
                cpu.push((cpu_micros() - used) as f64 / objects as f64);
            }
        }
        for ((store, _), (wall, cpu)) in stores.iter().zip(results) {
            println!("{name:22} {store:16} {:10.1} {:10.1}", median(wall), median(cpu));
        }
    }
}

/// The stores to compare, by name.
fn stores(dir: &std::path::Path, fsync: bool) -> Vec<(String, Arc<dyn ObjectStore>)> {
    let local = LocalFileSystem::new_with_prefix(dir).unwrap().with_fsync(fsync);
    let mut stores: Vec<(String, Arc<dyn ObjectStore>)> = vec![("local".into(), Arc::new(local))];
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        match Engine::builder().backend(kind).build() {
            Ok(engine) => {
                let store = RingwayFileSystem::new_with_prefix(dir).unwrap();
                let store = store.with_engine(&engine).with_fsync(fsync);
                stores.push((format!("ringway {kind}"), Arc::new(store)));
            }
            Err(error) => println!("skipped: {kind}: {error}"),
        }
    }
    stores
}

/// Writes objects, small ones this many at a time. They replace those of earlier rounds.
async fn write(store: &Arc<dyn ObjectStore>, small: bool, objects: u64, concurrency: usize) {
    let concurrency = if small { concurrency } else { 1 };
    let writes = (0..objects).map(|number| {
        let (store, path) = (store.clone(), Path::from(format!("object-{}", number % 100)));
        let write = async move {
            if small {
                _ = store.put(&path, vec![7; SMALL].into()).await.unwrap();
            } else {
                upload(&*store, &path).await;
            }
        };
        async { tokio::spawn(write).await.unwrap() }
    });
    stream::iter(writes).buffer_unordered(concurrency).collect::<()>().await;
}

async fn upload(store: &dyn ObjectStore, path: &Path) {
    let mut upload = store.put_multipart(path).await.unwrap();
    let content = bytes::Bytes::from(vec![7; PART]);
    let parts: Vec<_> = (0..PARTS).map(|_| upload.put_part(content.clone().into())).collect();
    let written = stream::iter(parts).buffer_unordered(2);
    written.for_each(async |part| part.unwrap()).await;
    upload.complete().await.unwrap();
}

/// User and system time of this process.
fn cpu_micros() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
