//! # ringway: asynchronous file I/O for the program you already have
//!
//! Reading a file blocks, so every runtime hides it behind a pool of threads. ringway replaces that
//! pool: one engine over io_uring, Linux AIO or its own threads, whichever the kernel and the
//! container allow, under the runtime that the program already uses. The futures are `Send` and run
//! on plain tokio and on any other executor. There is nothing to start.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let file = ringway::fs::File::open("/etc/passwd").await?;
//! let (result, buf) = file.read_at(vec![0; 4096], 0).await;   // your buffer, returned
//! println!("{} bytes: {:?}", result?, buf.first());
//! let block = file.read(0..4096).await?;                      // a pooled buffer
//! println!("{} bytes", block.len());
//! let parts = file.read_ranges(&[0..10, 100..200]).await?;    // one future, one submission
//! println!("{} parts", parts.len());
//! # Ok(()) }
//! ```
//!
//! ## When to use it, and when not
//!
//! Use it where a program reads or writes files from async code and the work can overlap: many
//! concurrent reads ([`fs::File::read_ranges`]), streams with read-ahead ([`Reader`]) and
//! write-behind ([`Writer`]), logs with group commit ([`LogWriter`]). A program that reads a small
//! file now and then gains little over `tokio::fs`. ringway does file I/O, not networking.
//!
//! ## Systems
//!
//! io_uring and Linux AIO are parts of Linux. On macOS, FreeBSD and Windows the engine uses its own
//! threads, with the same functions and results; [`Engine::explain`] says so. What a system does
//! not have fails with [`Unsupported`](std::io::ErrorKind::Unsupported) and the operation's name:
//!
//! | | Linux | macOS | FreeBSD | Windows |
//! |---|---|---|---|---|
//! | [`File::sync_range`](fs::File::sync_range) | yes | no | no | no |
//! | [`File::allocate`](fs::File::allocate) | yes | no | yes | no |
//! | [`File::advise`](fs::File::advise) | yes | no | yes | no |
//! | [direct I/O](fs::OpenOptions::direct) | `O_DIRECT` | `F_NOCACHE` | `O_DIRECT` | no |
//! | [`OpenOptions::resolve`](fs::OpenOptions::resolve) | yes | no | no | no |
//! | [`Reaping::Manual`] | yes | no | no | no |
//! | completions reaped by tokio's I/O driver | yes | yes | yes | no: by the engine's thread |
//! | replaced files without a name until they are complete | yes | no | no | no |
//!
//! On Windows, `File` has `AsHandle` instead of `AsFd`, locks are mandatory, and permissions and
//! inode numbers do not exist; error numbers are those of Windows. A file can be synced only if it
//! is open for writing. Windows has no call that syncs a directory, so there
//! [`sync_dir`](fs::sync_dir) succeeds without an effect, and a power failure may undo a rename.
//!
//! On macOS, syncs are `F_FULLFSYNC`.
//!
//! ## Buffers
//!
//! The kernel writes to the buffer of a read until the read completes, even if its future is
//! dropped earlier. So an operation owns its buffer. A buffer that the caller passes is returned
//! with the result ([`IoBuffer`]); a pooled buffer ([`Block`]) is the result.
//! [`read_buf_at`](fs::File::read_buf_at) reads into the spare capacity of a `Vec` without zeroing
//! it first. A borrowed slice cannot be passed, which is why a future can be dropped safely at any
//! point:
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
//! Dropping a future cancels its operation. `select!` and `timeout` drop the future, so they cancel
//! it too. What the kernel has already started may still happen: a dropped write may be written in
//! part or in full. The caller does not get the buffer back; ringway frees it once the kernel no
//! longer uses it.
//!
//! A dropped write may also happen late: it may reach the file after another write to the same
//! range that started later and has returned. Where that matters, do not drop the write: spawn it
//! as a task and wait for the task. Or call [`into_std`](fs::File::into_std), which waits until no
//! operation on the file is left, and take the file back with [`from_std`](fs::File::from_std).
//!
//! ## Durable data
//!
//! | to make durable | use |
//! |---|---|
//! | a range of a file | [`write_durable_at`] |
//! | a page of a file, whole or not at all | [`write_untorn_durable_at`] |
//! | all data written to a file | [`sync_data`], [`sync_all`] |
//! | records that many tasks append to a log | [`LogWriter`]: one sync for all waiting tasks |
//! | a whole file, replaced atomically | [`fs::write_atomic`], [`fs::AtomicFile`] |
//! | a name: a file created, renamed or removed | [`fs::sync_dir`] of its directory |
//!
//! After a sync fails, the state of the device is unknown, and ringway never retries a sync. Treat
//! everything written since the last successful sync as lost, even if it can be read.
//!
//! [`write_durable_at`]: fs::File::write_durable_at
//! [`write_untorn_durable_at`]: fs::File::write_untorn_durable_at
//! [`sync_data`]: fs::File::sync_data
//! [`sync_all`]: fs::File::sync_all
//!
//! ## Executors
//!
//! On tokio (any flavour, with I/O enabled) the runtime's I/O driver reaps completions. On other
//! executors (smol, `futures::executor`, anything that polls futures) a thread of the engine does.
//! A program with its own event loop can do it itself ([`Reaping::Manual`]). Files and engines are
//! not tied to a runtime: a file opened in one can be read in another.
//!
//! In tests with tokio's paused clock (`start_paused`), the clock jumps to the next timer while
//! every task waits for a file, as it does while they wait for a socket. So a `timeout` around an
//! operation may fire at once. `tokio::fs` differs: it stops the clock meanwhile.
//!
//! ## Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `tokio` | yes | tokio's I/O driver reaps completions; files and streams have tokio's traits |
//! | `bytes` | yes | `Bytes` and `BytesMut` as buffers; a [`Block`] converts to `Bytes` |
//! | `futures` | no | the traits of `futures-io` for files and streams, of `futures-core` |
//! | `tracing` | no | a span for each operation |
//! | `testing` | no | the null backend and fault injection, for tests and benchmarks |
//!
//! A program without tokio disables the default features:
//!
//! ```toml
//! ringway = { version = "0.1", default-features = false, features = ["futures"] }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod align;
mod block;
mod buffer;
mod engine;
// On Linux only: the calls use its interfaces.
#[cfg(all(test, target_os = "linux"))]
mod faults;
pub mod fs;
mod log;
mod pool;
mod ranges;
mod stream;
mod thread;

// The tests in `tests/matrix/rows.rs` refer to this crate by its name, as a program does.
#[cfg(test)]
extern crate self as ringway;

pub use block::Block;
pub use buffer::{Content, IoBuffer, SpareBuffer};
pub use engine::{Batches, Engine, EngineBuilder, Latency, Reaping, Stats};
pub use log::LogWriter;
pub use pool::PoolStats;
pub use ranges::Coalesce;
#[cfg(feature = "testing")]
pub use ringway_core::FaultPlan;
pub use ringway_core::op::Position;
pub use ringway_core::{
    AlignedBuffer, BackendKind, Buffer, BuildError, Counts, CustomBuffer, Explanation, ForcedBy,
    Refusal, SpareCapacity, SqPoll,
};
#[cfg(feature = "futures")]
pub use stream::Blocks;
pub use stream::{RangeRead, RangeStream, Reader, Writer};

/// The program in the README compiles and runs.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
