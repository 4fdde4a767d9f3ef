//! A file that is written before its object is visible, and then published.

use crate::dir_lock::DirLock;
use crate::staging::{NewFile, StagedName};
use crate::write_error::{Action, Result, WriteError};
use bytes::Bytes;
use ringway::Engine;
use ringway::fs::File;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most buffers of one system call (`IOV_MAX`).
const MAX_BUFFERS: usize = 1024;

/// A file that becomes an object when it is [published](Self::publish). Dropping it removes it; a
/// write that is still in flight then reaches a file without a name.
#[derive(Debug)]
pub(crate) struct StagedFile {
    engine: Engine,
    /// Makes the object durable.
    fsync: bool,
    dest: PathBuf,
    file: File,
    name: StagedName,
}

/// When an object is published.
#[derive(Debug)]
pub(crate) enum Condition {
    /// Always.
    None,
    /// Unless it exists.
    Create,
    /// If the ETag of the present object is this one.
    Update { e_tag: String, of: fn(&Metadata) -> String },
}

impl StagedFile {
    /// Creates the file for an object, and missing directories. If the future is dropped, no file
    /// is left.
    pub(crate) async fn create(engine: &Engine, dest: PathBuf, fsync: bool) -> Result<Self> {
        let path = dest.clone();
        let new = call(engine, Action::CreateFile, &dest, move || NewFile::create(&path)).await?;
        let file = File::from_fd(new.file.into(), engine);
        let staged = Self { engine: engine.clone(), fsync, dest, file, name: new.name };
        match fsync {
            true => staged.keep_if(sync_dirs(engine, new.changed_dirs).await).await,
            false => Ok(staged),
        }
    }

    /// The file, to write to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The path of the object.
    pub(crate) fn dest(&self) -> &Path {
        &self.dest
    }

    /// Makes the file the object, and returns its metadata. No other clone of the file may exist.
    ///
    /// Errors: those of the steps. Then the file is removed and the present object is kept, unless
    /// only the last step, the sync of the directory, failed. If the future is dropped, the object
    /// is either the old one or the new one.
    pub(crate) async fn publish(self, condition: Condition) -> Result<Metadata> {
        let ready = self.prepare().await;
        let Self { engine, fsync, dest, file, name } = self.keep_if(ready).await?;
        // Waits until no write is in flight. Closing reports late errors of some network file
        // systems.
        let closed = async {
            let file = file.into_std().await?;
            File::from_fd(file.into(), &engine).close().await
        };
        let closed = closed.await.map_err(Action::CopyData.failed(&dest));
        let path = dest.clone();
        let metadata = call(&engine, Action::Rename, &dest, move || {
            closed?;
            if !fsync {
                touch(name.path());
            }
            publish(name, &path, condition)
        })
        .await?;
        if fsync && let Some(parent) = dest.parent() {
            sync_dirs(&engine, [parent]).await?;
        }
        Ok(metadata)
    }

    /// Makes the content durable, if wanted.
    async fn prepare(&self) -> Result<()> {
        if self.fsync {
            // Before the sync, which then covers it.
            let _ = self.file.set_modified(SystemTime::now()).await;
            self.file.sync_all().await.map_err(Action::Sync.failed(self.name.path()))?;
        }
        Ok(())
    }

    /// After an error, removes the file before the error is returned, so that its space is free
    /// when the caller tries again.
    pub(crate) async fn keep_if(self, result: Result<()>) -> Result<Self> {
        match result {
            Ok(()) => Ok(self),
            Err(error) => {
                let _ = self.remove().await;
                Err(error)
            }
        }
    }

    /// Removes the file.
    pub(crate) async fn remove(self) -> Result<()> {
        let Self { engine, dest, file, name, .. } = self;
        drop(file);
        call(&engine, Action::Delete, &dest, move || name.remove()).await
    }
}

/// Writes these buffers, one after the other, at an offset.
pub(crate) async fn write(file: &File, mut buffers: Vec<Bytes>, offset: u64) -> io::Result<()> {
    buffers.retain(|buffer| !buffer.is_empty());
    let mut offset = offset;
    while !buffers.is_empty() {
        let rest = buffers.split_off(buffers.len().min(MAX_BUFFERS));
        let len: usize = buffers.iter().map(Bytes::len).sum();
        match <[Bytes; 1]>::try_from(buffers) {
            Ok([single]) => file.write_all_at(single, offset).await.0?,
            Err(several) => file.write_all_vectored_at(several, offset).await.0?,
        }
        offset += len as u64;
        buffers = rest;
    }
    Ok(())
}

/// Syncs directories, so that names in them are durable. Instead of one that was removed since, it
/// syncs the one above.
pub(crate) async fn sync_dirs(
    engine: &Engine,
    dirs: impl IntoIterator<Item = impl AsRef<Path>>,
) -> Result<()> {
    for dir in dirs {
        for dir in dir.as_ref().ancestors() {
            match engine.fs().sync_dir(dir).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                synced => {
                    synced.map_err(Action::Sync.failed(dir))?;
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Runs blocking work on a thread of the engine: to its end, if it has started. `action` and `path`
/// describe it if it cannot be run.
pub(crate) async fn call<T: Send + 'static>(
    engine: &Engine,
    action: Action,
    path: &Path,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    engine.call(move || Ok(work())).await.map_err(action.failed(path))?
}

/// Sets the modification time to that of a precise clock; see [`publish`]. Blocks.
fn touch(path: &Path) {
    let Ok(now) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) else { return };
    // Not `UTIME_NOW`, which is the time of the last tick.
    let now = Timespec { tv_sec: now.as_secs() as i64, tv_nsec: now.subsec_nanos().into() };
    let kept = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: kept, last_modification: now };
    let _ = utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
}

/// Gives a file that is completely written its name. Blocks.
///
/// The caller has set the modification time to that of a precise clock. The kernel's own times are
/// those of its last tick, so two versions of an object that follow each other fast could have the
/// same time; and if the second one got the inode of a version removed in between, also the same
/// ETag.
fn publish(name: StagedName, dest: &Path, condition: Condition) -> Result<Metadata> {
    let metadata =
        std::fs::symlink_metadata(name.path()).map_err(Action::Metadata.failed(name.path()))?;
    let lock = DirLock::take(dest.parent());
    match condition {
        // Without a lock only updates are refused.
        Condition::None => name.rename(dest)?,
        Condition::Create => name.link(dest)?,
        Condition::Update { e_tag, of } => {
            lock.as_ref().map_err(|error| {
                Action::Lock.failed(dest.parent().unwrap_or(dest))(copy_of(error))
            })?;
            check_e_tag(dest, &e_tag, of)?;
            name.rename(dest)?;
        }
    }
    drop(lock);
    Ok(metadata)
}

/// Checks that the object exists and has this ETag. Blocks.
fn check_e_tag(path: &Path, expected: &str, of: fn(&Metadata) -> String) -> Result<()> {
    let refused = |reason: String| Err(WriteError::Precondition { path: path.to_owned(), reason });
    match std::fs::metadata(path) {
        Ok(present) => match of(&present) {
            e_tag if e_tag == expected => Ok(()),
            e_tag => refused(format!("{e_tag} does not match {expected}")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => refused(error.to_string()),
        Err(error) => Err(Action::Metadata.failed(path)(error)),
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}
