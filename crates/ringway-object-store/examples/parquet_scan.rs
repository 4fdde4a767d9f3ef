//! Scans Parquet files with `ParquetReader`, all at once, and prints rows, time and I/O statistics:
//!
//! ```sh
//! cargo run --release -p ringway-object-store --features parquet_60 --example parquet_scan -- \
//!     [--direct] FILE...
//! ```

use futures_util::TryStreamExt;
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use ringway::Engine;
use ringway::fs::OpenOptions;
use ringway_object_store::ParquetReader;
use std::time::Instant;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (options, paths): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    if paths.is_empty() || options.iter().any(|option| option != "--direct") {
        return Err("usage: parquet_scan [--direct] FILE...".into());
    }
    let direct = !options.is_empty();
    let start = Instant::now();
    let mut scans = tokio::task::JoinSet::new();
    for path in paths {
        scans.spawn(scan(path, direct));
    }
    let (mut rows, mut bytes) = (0, 0);
    while let Some(scanned) = scans.join_next().await {
        let scanned = scanned??;
        rows += scanned.0;
        bytes += scanned.1;
    }
    println!("{rows} rows, {bytes} bytes of Arrow memory in {:?}", start.elapsed());
    let stats = Engine::global()?.stats();
    println!("cached reads: {}, operations: {}", stats.cached, stats.counts.pushed);
    println!(
        "submissions: {}, {:.1} operations each; system calls: {}",
        stats.batches.count,
        stats.batches.mean(),
        stats.system_calls
    );
    println!("latency: {:?}", stats.latency);
    println!("pool: {:?}", stats.pool);
    Ok(())
}

/// Reads all columns of a file. Returns the number of rows, and their bytes in memory.
async fn scan(path: String, direct: bool) -> Result<(usize, usize), Error> {
    let reader = if direct {
        let file = OpenOptions::new().read(true).direct(true).open(&path).await?;
        ParquetReader::new(file).with_path(&path)
    } else {
        ParquetReader::open(&path).await?
    };
    let mut batches = ParquetRecordBatchStreamBuilder::new(reader).await?.build()?;
    let (mut rows, mut bytes) = (0, 0);
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows();
        bytes += batch.get_array_memory_size();
    }
    Ok((rows, bytes))
}
