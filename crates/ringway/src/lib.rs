//! # ringway: asynchronous file I/O for the program you already have
//!
//! Reading a file blocks, so every runtime hides it behind a pool of threads. ringway takes the
//! pool away: one engine over io_uring, Linux AIO or threads, whichever this kernel and this
//! container allow, under the runtime that the program already uses. The futures are `Send`, on
//! plain tokio and on any executor; nothing has to be started, and nothing is blocked.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let file = ringway::fs::File::open("/etc/passwd").await?;
//! let (result, buf) = file.read_at(vec![0; 4096], 0).await;      // a buffer given, and handed back
//! println!("{} bytes: {:?}", result?, buf.first());
//! let block = file.read(0..4096).await?;                         // a buffer lent by ringway
//! println!("{} bytes", block.len());
//! let parts = file.read_ranges(&[0..10, 100..200]).await?;       // one future, one submission
//! println!("{} parts", parts.len());
//! # Ok(()) }
//! ```
//!
//! ## Buffers
//!
//! The kernel writes to a buffer for as long as a read is on its way, whatever becomes of the
//! future. So an operation owns its buffer: one that is given goes along and comes back with the
//! result ([`IoBuffer`]), one that is lent ([`Block`]) comes with it. To read into a
//! `Vec::with_capacity` without zeroing it first, there is [`read_buf_at`](fs::File::read_buf_at).
//! A borrowed slice cannot be passed; that is what makes dropping a future at any point safe:
//!
//! ```compile_fail
//! # async fn example(file: ringway::fs::File) {
//! let mut buf = [0u8; 4096];
//! file.read_at(&mut buf[..], 0).await;
//! # }
//! ```
//!
//! ## Cancelling
//!
//! Dropping a future cancels its operation, and so do `select!` and `timeout`, which drop it. What
//! the kernel has begun may still happen: a dropped write may be written, in part or whole. Its
//! buffer is gone with it, and its capacity is free again when the kernel has let go.
//!
//! It may also happen later: a dropped write may reach the file after another write to the same
//! range that was begun after it and has returned. Where that matters, do not drop the write: spawn
//! it as a task and wait for the task. Or end it first: [`into_std`](fs::File::into_std) waits
//! until the kernel has let go of every operation on the file, and [`from_std`](fs::File::from_std)
//! takes the file back.
//!
//! ## Durable data
//!
//! | to make durable | use |
//! |---|---|
//! | a range of a file | [`write_durable_at`](fs::File::write_durable_at) |
//! | all that was written to a file | [`sync_data`](fs::File::sync_data), [`sync_all`](fs::File::sync_all) |
//! | records that many tasks append to a log | [`LogWriter`]: one write and one sync for all that wait |
//! | a whole file, replaced at once | [`fs::write_atomic`], [`fs::AtomicFile`] |
//! | a name: a file made, renamed or removed | [`fs::sync_dir`] of its directory |
//!
//! After an error of a sync nobody knows what is on the device, and ringway never tries it again.
//! Read the file back and begin anew.
//!
//! ## Executors
//!
//! On tokio (any flavour, with I/O enabled) the runtime's I/O driver picks up completions.
//! Elsewhere (smol, `futures::executor`, anything that polls futures) a thread of ringway's own
//! does. A program with a loop of its own may do it itself ([`Reaping::Manual`]). Files and engines
//! belong to no runtime: open in one, read in another.
//!
//! Tests with tokio's paused clock (`start_paused`): the clock jumps to the next timer while every
//! task waits for a file, as it does for a socket, so a `timeout` around an operation may end at
//! once. `tokio::fs` holds the clock meanwhile.
//!
//! ## Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `tokio` | yes | tokio's I/O driver picks up completions; `AsyncRead`, `AsyncWrite`, `AsyncSeek` of tokio |
//! | `bytes` | yes | `Bytes` and `BytesMut` as buffers, and a [`Block`] into `Bytes` without a copy |
//! | `futures` | no | `AsyncRead`, `AsyncWrite`, `AsyncSeek` of `futures-io`; `Reader::blocks` as a `Stream` |
//! | `tracing` | no | a span for each operation |
//!
//! A program without tokio leaves the default features out:
//!
//! ```toml
//! ringway = { version = "0.1", default-features = false, features = ["futures"] }
//! ```

#![cfg(target_os = "linux")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod align;
mod block;
mod buffer;
mod engine;
#[cfg(test)]
mod faults;
pub mod fs;
mod log;
mod pool;
mod ranges;
mod stream;
mod thread;

// The rows of the matrix name it as a program does.
#[cfg(test)]
extern crate self as ringway;

pub use block::Block;
pub use buffer::{IoBuffer, SpareBuffer};
pub use engine::{Batches, Engine, EngineBuilder, Latency, Reaping, Stats};
pub use log::LogWriter;
pub use ranges::Coalesce;
#[cfg(feature = "testing")]
pub use ringway_core::FaultPlan;
pub use ringway_core::op::{Advice, Metadata, Position};
pub use ringway_core::{
    AlignedBuffer, BackendKind, Buffer, Counts, CustomBuffer, Explanation, Refusal, SpareCapacity,
    SqPoll,
};
#[cfg(feature = "futures")]
pub use stream::Blocks;
pub use stream::{RangeRead, RangeStream, Reader, Writer};

/// The program in the README compiles and runs.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
