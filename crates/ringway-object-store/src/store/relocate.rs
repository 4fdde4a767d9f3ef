//! Giving objects other names: `copy_opts` and `rename_opts`. `LocalFileSystem` renames; its copies
//! are hard links, so that a change of one object changes the other: here a copy has its own file.

use super::error::{STORE, renamed};
use super::file_system::RingwayFileSystem;
use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{CopyMode, CopyOptions, Error, ObjectStore, RenameOptions, Result};
use crate::local::copy::{Source, copy, finish_rename, open};
use crate::local::publication::Condition;
use crate::local::staged_file::{Disk, StagedFile, call, sync_dirs};
use crate::local::staging::{Access, NewFile};
use crate::local::write_error::{Action, WriteError};
use bytes::Bytes;
use futures_util::FutureExt;
use ringway::Engine;
use ringway::fs::{File, OpenOptions};
use ringway_core::errno;
use std::io;
use std::path::{Path as FilePath, PathBuf};

impl RingwayFileSystem {
    pub(super) async fn copy_object(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> Result<()> {
        let (from, to) = (self.path_to_filesystem(from)?, self.path_to_filesystem(to)?);
        let copied = self.copy_file(from.clone(), to.clone(), options.mode).await;
        copied.map_err(|error| match error {
            // As `LocalFileSystem` reports the steps of a copy.
            Error::Generic { store, source } => match source.downcast::<WriteError>() {
                Ok(error) => as_copy(*error, from, to).into(),
                Err(source) => Error::Generic { store, source },
            },
            error => error,
        })
    }

    async fn copy_file(&self, from: PathBuf, to: PathBuf, mode: CopyMode) -> Result<()> {
        let disk = self.disk()?;
        let (engine, source, target) = (disk.engine.clone(), from.clone(), to.clone());
        // Before anything is created.
        let check = move || {
            let found = open(&engine, &source, &target)?;
            if mode == CopyMode::Create && target.symlink_metadata().is_ok() {
                let source = io::Error::from_raw_os_error(errno::EEXIST);
                return Err(WriteError::AlreadyExists { path: target, source });
            }
            Ok((source != target).then_some(found))
        };
        let Some(source) = call(&disk.engine, Action::Open, &from, check).await? else {
            return Ok(());
        };
        if disk.dont_cache {
            return Ok(self.copy_uncached(&disk, source, from, to, mode).await?);
        }
        let (_interest, ticket) = self.turns.ticket();
        let (old, new) = (from, to.clone());
        let begin = move |staged: &NewFile| {
            copy(source, &staged.file, &ticket).map_err(|source| WriteError::Copy {
                from: old,
                to: new,
                source,
            })
        };
        let staged = StagedFile::create(&disk, to, Access::Private, begin).await?;
        Ok(staged.publish(condition(mode)).await.map(drop)?)
    }

    /// Copies by reads and writes that leave no pages in the page cache, as the kernel's copy does.
    async fn copy_uncached(
        &self,
        disk: &Disk,
        source: Source,
        from: PathBuf,
        to: PathBuf,
        mode: CopyMode,
    ) -> std::result::Result<(), WriteError> {
        let Source { file, permissions } = source;
        let source = file.with_dont_cache(true);
        let (old, new) = (from.clone(), to.clone());
        let begin = move |staged: &NewFile| {
            staged.file.set_permissions(permissions).map_err(|source| WriteError::Copy {
                from: old,
                to: new,
                source,
            })
        };
        let staged = StagedFile::create(disk, to.clone(), Access::Private, begin).await?;
        let copied = copy_all(&source, staged.file()).await;
        let copied = copied.map_err(|source| WriteError::Copy { from, to, source });
        staged.keep_if(copied).await?.publish(condition(mode)).await.map(drop)
    }

    /// Renames on a thread of the engine, and syncs the source and the directories that it changes.
    pub(super) async fn rename_object(
        &self,
        from: &Path,
        to: &Path,
        options: RenameOptions,
    ) -> Result<()> {
        let (old, new) = (self.path_to_filesystem(from)?, self.path_to_filesystem(to)?);
        let disk = self.disk()?;
        if self.fsync {
            // Whoever wrote the object may not have synced it.
            sync_content(&disk.engine, &old).await?;
        }
        let (_interest, ticket) = self.turns.ticket();
        let rename = {
            let (local, from, to) = (self.local.clone(), from.clone(), to.clone());
            let (old, new, disk) = (old.clone(), new.clone(), disk.clone());
            move || {
                let _turn = ticket.turn(&[&old, &new])?;
                disk.note_missing(&new);
                let renamed = in_place(rename(local, &from, &to, options));
                if renamed.is_ok() {
                    finish_rename(&old, &new).map_err(Action::Delete.failed(&old))?;
                }
                Ok(renamed)
            }
        };
        call(&disk.engine, Action::Rename, &new, rename).await?.map_err(renamed)?;
        disk.sync_above(&new).await?;
        if self.fsync {
            let old_dir = old.parent().filter(|dir| Some(*dir) != new.parent());
            let changed: Vec<_> = new.parent().into_iter().chain(old_dir).collect();
            sync_dirs(&disk.engine, changed).await?;
        }
        Ok(())
    }
}

fn condition(mode: CopyMode) -> Condition {
    match mode {
        CopyMode::Create => Condition::Create,
        CopyMode::Overwrite => Condition::None,
    }
}

/// Bytes of a read and a write of [`copy_all`].
const COPY_CHUNK: usize = 1 << 20;

/// Copies the content of a file, up to its current end.
async fn copy_all(from: &File, to: &File) -> io::Result<()> {
    let mut chunks = from.reader().chunk(COPY_CHUNK);
    let mut offset = 0;
    while let Some(chunk) = chunks.next_block().await? {
        let len = chunk.len() as u64;
        to.write_all_at(Bytes::from(chunk), offset).await.0?;
        offset += len;
    }
    Ok(())
}

async fn rename(
    local: LocalFileSystem,
    from: &Path,
    to: &Path,
    options: RenameOptions,
) -> Result<()> {
    local.rename_opts(from, to, options).await
}

/// A failed step of a copy.
fn as_copy(error: WriteError, from: PathBuf, to: PathBuf) -> WriteError {
    match error {
        WriteError::Io { action: Action::Open | Action::Rename, source, .. } => {
            WriteError::Copy { from, to, source }
        }
        error => error,
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

/// Syncs the content of an object. If it cannot be, because it does not exist, the rename fails,
/// too, and reports that.
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
