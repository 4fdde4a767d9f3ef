//! A program with its own event loop: no runtime, and no other thread. It sums the bytes of files,
//! all of them concurrently.
//!
//! ```sh
//! cargo run --example own_loop src/*.rs
//! ```
//!
//! The loop waits in `poll(2)` for the engine's descriptor, together with whatever else it waits
//! for. When the descriptor is readable, `reap` submits pending operations, picks up completions,
//! and wakes their futures. It needs Linux, which has what `Reaping::Manual` is made of.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]

use futures::stream::{FuturesUnordered, StreamExt};
use ringway::{Engine, Reaping};
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, poll};
use std::path::PathBuf;
use std::task::{Context, Poll, Waker};

/// Sums a file's bytes.
async fn sum(engine: &Engine, path: PathBuf) -> std::io::Result<(PathBuf, u64)> {
    let file = engine.open(&path).await?;
    let (mut sum, mut at) = (0, 0);
    loop {
        let block = file.read(at..at + (64 << 10)).await?;
        if block.is_empty() {
            return Ok((path, sum));
        }
        sum += block.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        at += block.len() as u64;
    }
}

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    let engine = Engine::builder().reaping(Reaping::Manual).build()?;
    let paths = std::env::args_os().skip(1).map(PathBuf::from);
    let mut sums: FuturesUnordered<_> = paths.map(|path| sum(&engine, path)).collect();
    // The loop polls all woken futures after each `reap`, so its waker does nothing.
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match sums.poll_next_unpin(&mut cx) {
            Poll::Ready(Some(done)) => {
                let (path, sum) = done?;
                println!("{sum} {}", path.display());
            }
            Poll::Ready(None) => return Ok(()),
            Poll::Pending => {
                // A loop that waits for more lists it here. The timeout is for futures that
                // something other than the engine wakes: here, futures that yield now and then and
                // wake themselves at once.
                let mut fds = [PollFd::from_borrowed_fd(engine.readable()?, PollFlags::IN)];
                let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                poll(&mut fds, Some(&limit))?;
                engine.reap();
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("Reaping::Manual needs Linux");
}
