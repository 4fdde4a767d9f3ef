//! Giving objects other names: `copy_opts` and `rename_opts`, which `LocalFileSystem` does.

use super::error::{STORE, renamed};
use super::file_system::RingwayFileSystem;
use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{CopyOptions, Error, ObjectStore, RenameOptions, Result};
use crate::local::staged_file::{call, sync_dirs};
use crate::local::staging::changed_by_parents;
use crate::local::write_error::{Action, WriteError};
use futures_util::FutureExt;
use ringway::Engine;
use ringway::fs::OpenOptions;
use std::path::{Path as FilePath, PathBuf};

impl RingwayFileSystem {
    pub(super) async fn copy_object(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> Result<()> {
        let (old, new) = (from.clone(), to.clone());
        let copy = move |local: LocalFileSystem| {
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
        let rename = move |local: LocalFileSystem| {
            in_place(async { local.rename_opts(&old, &new, options).await })
        };
        self.relocate(from, to, true, rename).await
    }

    /// Does `work` on a thread of the engine, and syncs the source and the directories that it
    /// changes.
    async fn relocate(
        &self,
        from: &Path,
        to: &Path,
        changes_source: bool,
        work: impl FnOnce(LocalFileSystem) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (from, to) = (self.path_to_filesystem(from)?, self.path_to_filesystem(to)?);
        let (engine, fsync) = (self.used_engine()?, self.fsync);
        if fsync {
            // Whoever wrote the object may not have synced it.
            sync_content(engine, &from).await?;
        }
        let (local, target) = (self.local.clone(), to.clone());
        let change = move || {
            let mut changed = if fsync { changed_by_parents(&to) } else { Vec::new() };
            changed.extend(to.parent().map(FilePath::to_owned));
            if changes_source && from.parent() != to.parent() {
                changed.extend(from.parent().map(FilePath::to_owned));
            }
            Ok(work(local).map(|()| changed))
        };
        let changed: Result<Vec<PathBuf>> = call(engine, Action::Rename, &target, change).await?;
        let changed = changed.map_err(renamed)?;
        if fsync {
            sync_dirs(engine, changed).await?;
        }
        Ok(())
    }
}

/// Runs a call of `LocalFileSystem` on a thread outside tokio, where it blocks and completes in
/// its first poll. So it runs to its end even if the caller's future is dropped.
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
    // Windows syncs only what is open for writing.
    let file = options.read(true).write(cfg!(windows)).engine(engine).open(path).await;
    let synced = async { file?.sync_all().await };
    synced.await.map_err(Action::Sync.failed(path))
}
