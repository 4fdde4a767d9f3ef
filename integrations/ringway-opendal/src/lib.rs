//! An OpenDAL service for local files on [ringway]: a drop-in for OpenDAL's `services-fs`.
//!
//! OpenDAL's own service runs each operation of `tokio::fs` on a thread of its pool. This one reads
//! and writes through ringway's engine: what is cached is read without a switch to another thread,
//! the rest through io_uring, Linux AIO or the engine's threads, as the system allows.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> opendal_core::Result<()> {
//! use opendal_core::Operator;
//! use ringway_opendal::RingwayFs;
//! # let dir = tempfile::tempdir().unwrap();
//! # let root = dir.path().to_str().unwrap();
//! let files = Operator::new(RingwayFs::default().root(root))?;
//! files.write("reports/2026.txt", "all is well").await?;
//! assert_eq!(files.read_with("reports/2026.txt").range(4..6).await?.to_vec(), b"is");
//! # Ok(()) }
//! ```
//!
//! # What it has beyond `services-fs`
//!
//! - **An object appears as a whole.** A write, except an append, fills a file without a name
//!   (`O_TMPFILE`), which takes the object's name when the writer is closed. Before that, readers
//!   see the old object. A writer that is aborted or dropped leaves nothing.
//! - **Conditions hold.** `if_not_exists` of a write, a copy and a rename is decided by the system
//!   call that gives the name: of any number of writers, one succeeds.
//! - **Metadata of the user** belongs to the object from its first moment.
//! - Recursive listings and suffix ranges are the service's own.
//! - Errors have the kind that fits (`IsADirectory`, `NotADirectory`, `Conflict`), the step that
//!   failed, and the error number; and only those that a repetition may cure are temporary.
//!
//! # What is the same
//!
//! Keys that lead out of the root (`..`) do not exist (`NotFound`). Symbolic links are followed, by
//! whoever was allowed to make them, except by deletions, renames and recursive listings: a write
//! replaces what a link leads to. An object that is overwritten keeps its mode and, where the
//! process may give files away, its owner; but it is a new file, and other hard links keep the old
//! content. Data is synced when a writer is closed; [`Durability`] changes that. There is no
//! presigning.
//!
//! # Appends
//!
//! An append writes in place: readers see it grow, a writer that is dropped leaves what it wrote,
//! and `abort` after a write fails with `Unsupported`. A write whose future was dropped, or that
//! has failed, may have appended a part: what follows on that writer fails.
//!
//! # Cancelling
//!
//! A future of a read may be dropped at any time. If a future of `close`, `copy` or `rename` is
//! dropped, the object is the old one or the new one, as a whole.
//!
//! # Repeating
//!
//! OpenDAL's layers repeat an operation after a temporary error, or after they have dropped its
//! future. A lister and a writer, except of an append, then go on where they were: no entry is lost
//! or listed twice, and a writer with `if_not_exists` that has made the object does not take it for
//! another's. After a failed sync, or an error of the file's own close (NFS, FUSE), a writer cannot
//! be closed any more: what was lost is not known. A rename that is repeated although it has taken
//! place fails with `NotFound`.
//!
//! # Temporary names
//!
//! Where a file system has no `O_TMPFILE`, and for a moment while an object is replaced, the new
//! file has a name `.NAME.RANDOM.tmp` in the directory of the object, or in
//! [`atomic_write_dir`](RingwayFs::atomic_write_dir). Listings hide such names; a crash may leave
//! one.

#![forbid(unsafe_code)]

/// The program in the page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/opendal.md")]
struct Page;

mod append;
mod builder;
mod config;
mod delete;
mod dirs;
mod disk;
mod error;
mod exclusive;
mod flush;
mod in_background;
mod list;
mod metadata;
mod publication;
mod read;
mod relocate;
mod service;
mod staged;
#[cfg(test)]
mod test;
mod write;

pub use builder::RingwayFs;
pub use config::{Durability, RingwayFsConfig};

/// The scheme of the service, as [`OperatorInfo::scheme`](opendal_core::OperatorInfo::scheme)
/// returns it.
pub const SCHEME: &str = "ringway-fs";
