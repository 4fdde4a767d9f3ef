//! # ringway-core: one queue for asynchronous file I/O
//!
//! A [`Queue`] takes operations ([`op`]), submits any number of them with one system call, and
//! hands back their completions. It stands on io_uring, on Linux AIO or on threads of its own,
//! whichever this kernel and this container allow; the program is the same on each, and so are its
//! results.
//!
//! ```
//! use ringway_core::{File, Options, op};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = File::open("/etc/passwd")?;
//! let mut queue = Options::new().build()?;
//! for block in 0..4 {
//!     queue.push(op::read(&file, vec![0; 512], block * 512).user_data(block))?;
//! }
//! while queue.in_flight() > 0 {
//!     for done in queue.reap(1)? {
//!         println!("block {}: {} bytes", done.user_data, done.result?);
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! An operation owns its buffer and its file from the push until its completion hands the buffer
//! back, so nothing that the kernel may still touch is ever freed, and the interface is safe. An
//! `unsafe` way to make one from pointers ([`Operation::from_raw`]) is there for interfaces to
//! other languages.
//!
//! It is written for Linux 4.18 and newer; the io_uring backend needs 5.6.
//!
//! Why a backend or a flag was not granted, and what would fix it, is in [`Queue::explain`]; what
//! this machine can do, in [`probe`].

#![cfg(target_os = "linux")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod buffer;
mod cache_hint;
pub mod device;
mod error;
mod file;
mod fork;
pub mod op;
pub mod probe;
mod queue;
pub mod refusal;
mod signals;
mod slots;
mod split;
mod sys;

#[cfg(feature = "testing")]
pub use backend::faulty::{FaultPlan, FaultStep, Late};
pub use buffer::{AlignedBuffer, Arena, ArenaBuffer, Buffer, CustomBuffer, SpareCapacity};
pub use cache_hint::CacheHint;
pub use error::{BuildError, Error, PushError, Reason};
pub use file::{File, WeakFile};
pub use fork::Home;
pub use op::{OpenOptions, Operation};
pub use queue::{
    BackendKind, Backends, Completion, Completions, Explanation, GivenUp, OpId, Options, Orphan,
    Queue, QueueStats, SqPoll, Table,
};
pub use refusal::Refusal;
pub use signals::with_signals_blocked;
pub use slots::Counts;

/// The program in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
