//! Files and paths: what [`std::fs`] has, without blocking.
//!
//! [`File`] has everything that is done with an open file; the functions here take paths, and
//! answer as those of [`std::fs`] with the same names do. They use the global engine;
//! [`Engine::fs`](crate::Engine::fs) has them on another one.
//!
//! Most of this is operations of the kernel's, which are cancelled when their future is dropped.
//! What neither io_uring nor Linux AIO has an operation for ([`read_dir`], [`remove_dir_all`],
//! [`read_link`], [`canonicalize`], [`set_permissions`], the data of [`copy`], the rename of
//! [`write_atomic`], [`File`]'s permissions, times and locks) is a blocking call on one of the
//! engine's threads: 16 for each shard, apart from those that transfer data. Dropped before it has
//! begun, such a call is not made; once begun it runs to its end, and its result is dropped.
//!
//! A new name is durable when its directory is synced:
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
//! Not here: `soft_link`, which is deprecated ([`symlink`]), and [`std::fs::File::lock`] and
//! `lock_shared`, which wait for another program for as long as it likes
//! ([`try_lock`](File::try_lock)).

mod atomic;
mod copy;
mod dir;
mod file;
pub(crate) mod op_result;
mod open;
mod path;
pub(crate) mod pooled;
mod read_dir;
mod spare;
#[cfg(test)]
mod tests;
mod transfer;

pub use atomic::{AtomicFile, write_atomic};
pub use copy::copy;
pub use dir::{DirBuilder, create_dir, create_dir_all, remove_dir_all, sync_dir};
pub use file::{File, FileTimes};
pub use open::{OpenOptions, Resolve};
pub use path::{
    Fs, canonicalize, exists, hard_link, metadata, read, read_link, read_to_string, remove_dir,
    remove_file, rename, set_permissions, symlink, symlink_metadata, try_exists, write,
};
pub use read_dir::{DirEntry, ReadDir, read_dir};
pub use ringway_core::op::{FileType, Metadata};
#[doc(no_inline)]
pub use std::fs::{Permissions, TryLockError};
