#!/usr/bin/env bash
# Expected: a task that yields while it is the only one of a tokio runtime is polled again by its
# worker, and the idle workers sleep on: there is nothing for them to do.
#
# Found (tokio 1.54.1, two workers, Linux 6.18): almost every yield wakes another worker, if the
# task works for 50 us before it. With one worker no thread is woken. The processors are busy for 4
# to 8 us more for each yield, and the task changes processors.
#
# Why: a worker whose queue is empty begins to search the others' queues before it looks at what has
# yielded. When it then finds the task that yielded, it was the last one that searched, and wakes
# another worker to search in its place. (Source: the multi-thread scheduler's worker.rs.) A task
# that copies much data and yields for fairness, as in a cached read of 1 MiB, pays that for each
# part.
#
# Needs Rust and two processors. Building takes half a minute.
set -euo pipefail
[ "$(nproc)" -ge 2 ] || { echo "needs two processors" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir src
cat >Cargo.toml <<'CARGO'
[package]
name = "yields"
version = "0.0.0"
edition = "2021"
[dependencies]
tokio = { version = "=1.54.1", features = ["rt-multi-thread"] }
CARGO
cat >src/main.rs <<'MAIN'
use std::fs;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

const YIELDS: u32 = 4000;

/// How often all threads of this process went to sleep.
fn sleeps() -> u64 {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    threads
        .map(|thread| fs::read_to_string(thread.unwrap().path().join("status")).unwrap())
        .filter_map(|status| {
            let name = "voluntary_ctxt_switches:";
            status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok()
        })
        .sum()
}

async fn work_and_yield() -> u64 {
    let before = sleeps();
    for _ in 0..YIELDS {
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(50) {
            std::hint::spin_loop();
        }
        tokio::task::yield_now().await;
    }
    sleeps() - before
}

fn per_yield(workers: usize) -> f64 {
    let runtime = Builder::new_multi_thread().worker_threads(workers).build().unwrap();
    let sleeps = runtime.block_on(async { tokio::spawn(work_and_yield()).await.unwrap() });
    let per_yield = sleeps as f64 / f64::from(YIELDS);
    println!("  {workers} worker(s): {per_yield:.3} threads went to sleep for each yield");
    per_yield
}

fn main() {
    let (one, two) = (per_yield(1), per_yield(2));
    assert!(one < 0.05 && two > 0.3);
}
MAIN
CARGO_TARGET_DIR=target cargo build --release --quiet
echo "tokio 1.54.1, one task that works for 50 us and yields:"
if ! target/release/yields 2>panic; then
    cat panic >&2
    echo "not as found" >&2
    exit 1
fi
