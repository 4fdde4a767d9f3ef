//! # ringway-core: one queue for asynchronous file I/O
//!
//! A [`Queue`] takes operations ([`op`]), submits any number of them with one system call, and
//! returns their completions. It runs on io_uring, on Linux AIO or on its own threads: the first of
//! these that the kernel and the container allow. Programs and results are the same on each.
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
//! An operation owns its buffer and its file from the push until its completion returns the buffer.
//! So nothing that the kernel may still touch is ever freed, and the interface is safe. Bindings
//! for other languages make operations from pointers with the `unsafe` [`Operation::from_raw`].
//!
//! On Linux the crate needs 4.18 or newer; its io_uring backend needs 5.6 or newer. On macOS,
//! FreeBSD and Windows the queue runs on threads; [`op`] lists the operations that these systems
//! lack.
//!
//! [`Queue::explain`] shows why a backend or a flag is not available and how to fix that. The
//! [`probe`] module shows what the machine supports.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The queue has parts that only the backends of Linux use, and C types differ between systems.
#![cfg_attr(not(ringway_linux), allow(dead_code, clippy::unnecessary_cast))]

mod backend;
mod background;
mod buffer;
mod cache_hint;
#[cfg(ringway_linux)]
pub mod device;
#[cfg(not(ringway_linux))]
#[path = "device/elsewhere.rs"]
pub mod device;
pub mod errno;
mod error;
#[cfg(ringway_linux)]
mod extents;
mod file;
mod fork;
mod lookup;
#[cfg(ringway_linux)]
mod memory_cgroup;
pub mod op;
mod page_scan;
#[cfg(ringway_linux)]
pub mod probe;
mod queue;
pub mod refusal;
#[cfg(ringway_linux)]
mod resident_pages;
mod rw_flags;
mod slots;
mod split;
mod submit_waits;
mod sys;
mod thread;
pub mod wait;

#[cfg(feature = "testing")]
pub use backend::faulty::{FaultPlan, FaultStep, Late};
pub use background::run_in_background;
pub use buffer::{
    AlignedBuffer, Arena, ArenaBuffer, Buffer, CustomBuffer, MemoryGauge, SpareCapacity,
};
pub use cache_hint::CacheHint;
pub use error::{BuildError, Error, PushError, Reason};
pub use file::{File, WeakFile, close};
pub use fork::{OwnerProcess, is_fork};
pub use op::{NotOpened, OpenOptions, Operation};
pub use page_scan::{MissingPages, PageScan, Probe};
pub use queue::{
    Abandoned, BackendKind, Backends, Completion, Completions, Explanation, ForcedBy, OpId,
    Options, Orphan, ParseBackendError, Queue, QueueStats, SqPoll, Table,
};
pub use refusal::Refusal;
pub use slots::Counts;
/// The C interface that raw operations and error numbers come from: `libc`, or what stands for it.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use sys::libc as c;
pub use sys::{BorrowedFd, OwnedFd, RawFd};
pub use thread::start_thread;

/// The program in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
