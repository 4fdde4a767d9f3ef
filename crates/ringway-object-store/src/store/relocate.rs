//! Giving objects other names: `copy_opts` and `rename_opts`, which `LocalFileSystem` does.

use super::error::{STORE, renamed};
use super::file_system::RingwayFileSystem;
use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{CopyMode, CopyOptions, Error, ObjectStore, RenameOptions, Result};
use crate::dir_lock::LockKind;
use crate::locked::call_locked;
use crate::staged_file::sync_dirs;
use crate::staging::create_parents;
use crate::write_error::{Action, WriteError};
use futures_util::FutureExt;
use ringway::Engine;
use ringway::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path as FilePath, PathBuf};

impl RingwayFileSystem {
    pub(super) async fn copy_object(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> Result<()> {
        let (old, new) = (from.clone(), to.clone());
        let overwrites = options.mode == CopyMode::Overwrite;
        let copy = move |local: LocalFileSystem, from: &FilePath, to: &FilePath| {
            if overwrites && is_same(from, to) {
                // A rename between two names of a file does nothing, so `LocalFileSystem` would
                // leave the link that it renames.
                return Ok(());
            }
            in_place(async { local.copy_opts(&old, &new, options).await })
        };
        self.relocate(from, to, false, copy).await
    }

    pub(super) async fn rename_object(
        &self,
        from: &Path,
        to: &Path,
        options: RenameOptions,
    ) -> Result<()> {
        let (old, new) = (from.clone(), to.clone());
        let rename = move |local: LocalFileSystem, _: &FilePath, _: &FilePath| {
            in_place(async { local.rename_opts(&old, &new, options).await })
        };
        self.relocate(from, to, true, rename).await
    }

    /// Does `work` under the locks of the directories that it changes, and syncs them.
    async fn relocate(
        &self,
        from: &Path,
        to: &Path,
        changes_source: bool,
        work: impl FnOnce(LocalFileSystem, &FilePath, &FilePath) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (from, to) = (self.path_to_filesystem(from)?, self.path_to_filesystem(to)?);
        let engine = self.used_engine()?;
        if self.fsync {
            // Whoever wrote the object may not have synced it.
            sync_content(engine, &from).await?;
        }
        let mut parents = Vec::from_iter(to.parent().map(FilePath::to_owned));
        if changes_source {
            parents.extend(from.parent().map(FilePath::to_owned));
        }
        parents.dedup();
        let (local, dirs, target) = (self.local.clone(), parents.clone(), to.clone());
        let prepare = move || Ok((new_dirs(&from, &to), from, to));
        // Without a lock only updates are refused.
        let change = move |(mut changed, from, to): (Vec<PathBuf>, PathBuf, PathBuf), _locked| {
            changed.append(&mut parents);
            Ok(work(local, &from, &to).map(|()| changed))
        };
        // Alone: two copies of a file to one name at a time would leave the link that one renames.
        let lock = (LockKind::Exclusive, dirs);
        let changed = call_locked(engine, Action::Rename, &target, lock, prepare, change).await?;
        let changed = changed.map_err(renamed)?;
        if self.fsync {
            sync_dirs(engine, changed).await?;
        }
        Ok(())
    }
}

/// Runs a call of `LocalFileSystem` on a thread outside tokio, where it blocks and completes in
/// its first poll. So it runs to its end, under a lock, even if the caller's future is dropped.
pub(super) fn in_place<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    call.now_or_never().unwrap_or_else(|| {
        let source = "a blocking call did not complete on a thread of the engine".into();
        Err(Error::Generic { store: STORE, source })
    })
}

/// Syncs the content of an object. If it cannot be, because it does not exist, the copy fails, too,
/// and reports that.
async fn sync_content(engine: &Engine, path: &FilePath) -> Result<(), WriteError> {
    match engine.fs().metadata(path).await {
        Ok(metadata) if metadata.is_file() => {}
        _ => return Ok(()),
    }
    let mut options = OpenOptions::new();
    let file = options.read(true).engine(engine).open(path).await;
    let synced = async { file?.sync_all().await };
    synced.await.map_err(Action::Sync.failed(path))
}

/// Whether two paths are names of the same file. Blocks.
fn is_same(a: &FilePath, b: &FilePath) -> bool {
    let inode = |path| {
        let file = std::fs::symlink_metadata(path).ok().filter(|file| !file.is_dir())?;
        Some((file.dev(), file.ino()))
    };
    inode(a).is_some_and(|a| inode(b) == Some(a))
}

/// Creates the missing parents of `to`, which are to be locked. Blocks. Returns the directories
/// whose entries changed.
fn new_dirs(from: &FilePath, to: &FilePath) -> Vec<PathBuf> {
    if from.exists() && to.parent().is_some_and(|parent| !parent.exists()) {
        // After an error `LocalFileSystem` tries the same and reports it.
        return create_parents(to, io::ErrorKind::NotFound.into()).unwrap_or_default();
    }
    Vec::new()
}
