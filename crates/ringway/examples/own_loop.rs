//! A program with a loop of its own: no runtime, and no thread but this one. It adds up the bytes
//! of files, all at once.
//!
//! ```sh
//! cargo run --example own_loop src/*.rs
//! ```
//!
//! The loop waits in `poll(2)` for the engine's descriptor, beside whatever else it has to wait
//! for. When that is readable, `reap` submits what waits, picks up what has completed, and wakes
//! the futures concerned.

use futures::stream::{FuturesUnordered, StreamExt};
use ringway::{Engine, Reaping};
use rustix::event::{PollFd, PollFlags, poll};
use std::path::PathBuf;
use std::task::{Context, Poll, Waker};

/// The sum of a file's bytes.
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

fn main() -> std::io::Result<()> {
    let engine = Engine::builder().reaping(Reaping::Manual).build()?;
    let paths = std::env::args_os().skip(1).map(PathBuf::from);
    let mut sums: FuturesUnordered<_> = paths.map(|path| sum(&engine, path)).collect();
    // It polls all that were woken itself after each `reap`, so nobody has to wake it.
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match sums.poll_next_unpin(&mut cx) {
            Poll::Ready(Some(done)) => {
                let (path, sum) = done?;
                println!("{sum} {}", path.display());
            }
            Poll::Ready(None) => return Ok(()),
            Poll::Pending => {
                // A loop that has more to wait for lists it here. The time limit is for futures
                // that are woken by something else than the engine; those of this program give way
                // now and then, and are woken at once.
                let mut fds = [PollFd::from_borrowed_fd(engine.readable()?, PollFlags::IN)];
                let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                poll(&mut fds, Some(&limit))?;
                engine.reap();
            }
        }
    }
}
