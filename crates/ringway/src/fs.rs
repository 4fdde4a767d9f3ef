//! Files and paths: the functions of [`std::fs`], without blocking.
//!
//! [`File`] has the operations on an open file. The functions here take paths and behave as those
//! of [`std::fs`] with the same names. They use the global engine;
//! [`Engine::fs`](crate::Engine::fs) runs them on another one.
//!
//! Most of them are kernel operations, which are cancelled when their future is dropped. Where
//! neither io_uring nor Linux AIO has an operation ([`read_dir()`], [`remove_dir_all`],
//! [`read_link`], [`canonicalize`], [`set_permissions`], the data of [`copy()`], the rename of
//! [`write_atomic`], and [`File`]'s permissions, times and locks), they are blocking calls on the
//! engine's threads: at most 16 for each shard, apart from the threads that transfer data. If the
//! future is dropped before such a call has started, the call is not made; otherwise it runs to its
//! end, and its result is dropped.
//!
//! A new name is durable once its directory is synced:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! use ringway::fs::{self, File};
//! let file = File::create(dir.join("7.log")).await?;
//! file.write_durable_at(b"entries".to_vec(), 0).await.0?;
//! fs::sync_dir(dir).await?;
//! # Ok(()) }
//! ```
//!
//! Two things are missing on purpose: `soft_link`, which is deprecated (use [`symlink`]), and
//! [`std::fs::File::lock`] with `lock_shared`, which may wait indefinitely for another program (use
//! [`try_lock`](File::try_lock)).

mod atomic;
mod copy;
#[cfg_attr(
    not(any(feature = "tokio", feature = "futures")),
    allow(dead_code, reason = "no traits")
)]
mod cursor;
mod dir;
mod dropped;
mod extend;
mod file;
#[cfg(unix)]
mod interrupted;
mod local;
mod lock;
mod open;
mod path;
pub(crate) mod pooled;
mod read_dir;
mod read_target;
#[cfg_attr(
    not(any(feature = "tokio", feature = "futures")),
    allow(dead_code, reason = "no traits")
)]
mod sequential;
mod spare;
mod sync;
// On Linux only: the tests look at permissions and at files without a name.
#[cfg(all(test, target_os = "linux", not(ringway_portable)))]
mod tests;
mod transfer;
mod warm;
#[cfg_attr(
    not(any(feature = "tokio", feature = "futures")),
    allow(dead_code, reason = "no traits")
)]
mod write_queue;

pub use crate::engine::TornWrite;
pub use atomic::{AtomicFile, write_atomic};
pub use copy::{copy, copy_dont_cache};
pub use dir::{DirBuilder, create_dir, create_dir_all, remove_dir_all, sync_dir};
pub use file::{Caching, File, FileTimes};
pub use lock::TryLockError;
pub use open::{OpenOptions, Resolve};
pub use path::{
    Fs, canonicalize, exists, hard_link, metadata, read, read_link, read_to_string, remove_dir,
    remove_file, rename, set_permissions, symlink, symlink_metadata, try_exists, write,
};
pub use read_dir::{DirEntry, ReadDir, read_dir};
pub use read_target::ReadTarget;
pub use ringway_core::device::{AlignmentSource, AtomicWriteUnit, DirectIo};
#[doc(no_inline)]
pub use ringway_core::op::Position;
pub use ringway_core::op::{Advice, FileType, Metadata};
#[doc(no_inline)]
pub use std::fs::Permissions;
pub(crate) use sync::SyncKind;
pub use warm::{UnreadRange, Warmed};
