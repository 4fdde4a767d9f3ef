#!/usr/bin/env bash
# Expected: a program can give foyer's disk cache an I/O engine of its own: with_io_engine_config
# takes any implementation of the public trait IoEngineConfig. And a cache on foyer's engine for
# io_uring uses no CPU while nothing is read or written.
#
# Found (foyer 0.22.6): no other crate can implement the traits. The types in their methods
# (IoBuf, IoBufMut, Partition, IoEngineBuildContext) are in a private module and not exported, so
# that the compiler refuses each way to name them (E0603). The engine for io_uring uses a whole
# processor, idle.
#
# Why: foyer-storage's prelude exports the traits and not the types. The engine's thread looks for
# work in a loop that never waits. (Source: foyer-storage 0.22.6, prelude.rs, io/engine/uring.rs.)
#
# Needs Rust and io_uring. Building takes two to four minutes.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir -p src/bin
cat >Cargo.toml <<'CARGO'
[package]
name = "engine"
version = "0.0.0"
edition = "2021"
[dependencies]
foyer = "=0.22.6"
foyer-storage = "=0.22.6"
tokio = { version = "1", features = ["full"] }
[profile.dev]
debug = false
CARGO
cat >src/bin/own.rs <<'OWN'
use foyer_storage::{io::bytes::{IoBuf, IoBufMut}, io::device::Partition, IoEngine, IoHandle};
#[derive(Debug)]
struct Own;
impl IoEngine for Own {
    fn read(&self, _: Box<dyn IoBufMut>, _: &dyn Partition, _: u64) -> IoHandle { todo!() }
    fn write(&self, _: Box<dyn IoBuf>, _: &dyn Partition, _: u64) -> IoHandle { todo!() }
}
fn main() {}
OWN
cat >src/bin/idle.rs <<'IDLE'
use foyer::*;
use std::time::Duration;

fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

async fn idle(dir: &str, engine: impl Into<Box<dyn IoEngineConfig>>) -> u64 {
    let device = FsDeviceBuilder::new(dir).with_capacity(16 << 20).build().unwrap();
    let cache: HybridCache<u64, Vec<u8>> = HybridCacheBuilder::new()
        .memory(1 << 20)
        .storage()
        .with_io_engine_config(engine)
        .with_engine_config(BlockEngineConfig::new(device).with_block_size(1 << 20))
        .build()
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = cpu_ticks();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let ticks = cpu_ticks() - before;
    cache.close().await.unwrap();
    ticks
}

#[tokio::main]
async fn main() {
    let psync = idle("psync", PsyncIoEngineConfig::new()).await;
    let uring = idle("uring", UringIoEngineConfig::new().boxed() as Box<dyn IoEngineConfig>).await;
    println!("  CPU time of 3 idle seconds, in 1/100 s: psync {psync}, io_uring {uring}");
    assert!(psync < 10 && uring > 50);
}
IDLE
export CARGO_TARGET_DIR=target
cargo build --quiet --bin idle
echo "foyer 0.22.6:"
refused=$(cargo build --quiet --bin own 2>&1 | grep -c E0603) || true
echo "  refusals by the compiler of an engine of one's own: $refused"
[ "$refused" -gt 0 ] && target/debug/idle || { echo "not as found" >&2; exit 1; }
