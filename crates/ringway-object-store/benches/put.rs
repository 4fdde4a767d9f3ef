//! Writes through `LocalFileSystem` and through `RingwayFileSystem` on each backend, in turns.
//! Prints the medians of the rounds: operations per second, and CPU time (user and system, all
//! threads) per operation, which is an object.
//!
//! `cargo bench -p ringway-object-store --bench put -- [directory] [concurrency] [rounds]`
//!
//! Small objects have 4 KiB, with and without fsync. Uploads have eight parts of 8 MiB, of which
//! two are written at the same time.

mod stores;

use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use ringway_measure::arguments::Arguments;
use ringway_measure::rounds::{Row, Turn, costs};
use std::sync::Arc;
use stores::{LOCAL, stores};

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
    let arguments = Arguments::of_process();
    let directory = arguments.word(0).unwrap_or(".");
    let (concurrency, rounds) = (arguments.number(1, 8), arguments.number(2, 5));
    let dir = tempfile::tempdir_in(directory).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    println!("{directory}, {concurrency} at a time\n");
    for (name, objects, fsync) in WORK {
        let stores = stores(dir.path(), fsync);
        let contestants = stores.iter().map(|(name, store)| (&**name, store)).collect();
        let row = Row::measure(name.into(), rounds, contestants, None, |store| {
            Ok(Turn::measure(objects, || {
                runtime.block_on(write(store, name.starts_with("small"), objects, concurrency));
            }))
        });
        println!("{}", row.markdown(&costs(LOCAL), &row.notes()));
    }
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
