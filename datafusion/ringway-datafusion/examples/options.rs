//! A runtime whose sessions all read with direct I/O on an engine of their own, and what the engine
//! did: `cargo run --example options DIR`, where DIR has Parquet files.

use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::*;
use ringway_datafusion::{LISTING_TTL, RingwayFileSystem, registry, ringway::Engine};

#[tokio::main]
async fn main() -> datafusion::error::Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: options DIR");
        std::process::exit(2);
    };
    let engine = Engine::builder().in_flight(64).pool_bytes(64 << 20).build()?;
    let store = RingwayFileSystem::new().with_engine(&engine).with_direct(true);
    let runtime = RuntimeEnvBuilder::new()
        .with_object_store_registry(registry(store))
        .with_object_list_cache_ttl(Some(LISTING_TTL))
        .build_arc()?;

    for partitions in [1, 2] {
        let config = SessionConfig::new().with_target_partitions(partitions);
        let session = SessionContext::new_with_config_rt(config, runtime.clone());
        let rows = session.read_parquet(&folder, ParquetReadOptions::default()).await?;
        println!("{} rows in {partitions} partitions", rows.count().await?);
    }
    let stats = engine.stats();
    println!("{} operations, {} system calls", stats.counts.delivered, stats.system_calls);
    Ok(())
}
