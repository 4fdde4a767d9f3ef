//! A file that is written before its object is visible, and then published.

use crate::dir_lock::LockKind;
use crate::locked::call_locked;
use crate::staging::{NewFile, StagedName};
use crate::write_error::{Action, Result, WriteError};
use bytes::Bytes;
use ringway::Engine;
use ringway::fs::File;
use std::fs::Metadata;
use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most buffers of one system call (`IOV_MAX`).
const MAX_BUFFERS: usize = 1024;

/// Objects up to this length are written by one call on one thread: that costs less than a wakeup
/// for each step.
const ONE_CALL: usize = 64 << 10;

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
    /// Creates the file for an object, and missing directories, and writes the beginning of its
    /// content. If the future is dropped, no file is left.
    pub(crate) async fn create(
        engine: &Engine,
        dest: PathBuf,
        begin: Vec<Bytes>,
        fsync: bool,
    ) -> Result<Self> {
        let path = dest.clone();
        let new = call(engine, Action::CreateFile, &dest, move || create(&path, &begin)).await?;
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
        // Waits until no write is in flight.
        let file = file.into_std().await.map_err(Action::CopyData.failed(&dest));
        let path = dest.clone();
        let finish = move || finish(file?, name, &path, !fsync);
        let metadata = publish(&engine, &dest, finish, condition).await?;
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

/// Writes a whole object, and returns its metadata. Errors and dropping as
/// [`StagedFile::publish`].
pub(crate) async fn put(
    engine: &Engine,
    dest: PathBuf,
    content: Vec<Bytes>,
    condition: Condition,
    fsync: bool,
) -> Result<Metadata> {
    let is_small = content.iter().map(Bytes::len).sum::<usize>() <= ONE_CALL;
    if is_small && !fsync {
        let path = dest.clone();
        let write = move || {
            let NewFile { file, name, .. } = create(&path, &content)?;
            finish(file, name, &path, true)
        };
        return publish(engine, &dest, write, condition).await;
    }
    let (begin, rest) = if is_small { (content, Vec::new()) } else { (Vec::new(), content) };
    let staged = StagedFile::create(engine, dest, begin, fsync).await?;
    let written = write(staged.file(), rest, 0).await;
    let written = written.map_err(Action::CopyData.failed(staged.dest()));
    staged.keep_if(written).await?.publish(condition).await
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

/// Creates the file for an object, and writes the beginning of its content. Blocks.
fn create(dest: &Path, begin: &[Bytes]) -> Result<NewFile> {
    let new = NewFile::create(dest)?;
    let mut slices: Vec<_> = begin.iter().map(|buffer| IoSlice::new(buffer)).collect();
    write_all(&new.file, &mut slices).map_err(Action::CopyData.failed(dest))?;
    Ok(new)
}

fn write_all(mut file: &std::fs::File, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Skips those that are empty.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Closes a file that is completely written. Blocks.
///
/// `touches`: sets its modification time to that of a precise clock. The kernel's own times are
/// those of its last tick, so two versions of an object that follow each other fast could have the
/// same time; and if the second one got the inode of a version removed in between, also the same
/// ETag.
fn finish(
    file: std::fs::File,
    name: StagedName,
    dest: &Path,
    touches: bool,
) -> Result<(StagedName, Metadata)> {
    if touches {
        let _ = file.set_modified(SystemTime::now());
    }
    let metadata = file.metadata().map_err(Action::Metadata.failed(name.path()))?;
    // Closing reports late errors of some network file systems.
    ringway_core::close(file.into()).map_err(Action::CopyData.failed(dest))?;
    Ok((name, metadata))
}

/// Gives the file that `finish` returns its name, under the lock of the directory.
async fn publish(
    engine: &Engine,
    dest: &Path,
    finish: impl FnOnce() -> Result<(StagedName, Metadata)> + Send + 'static,
    condition: Condition,
) -> Result<Metadata> {
    let path = dest.to_owned();
    let kind = match condition {
        Condition::Update { .. } => LockKind::Exclusive,
        Condition::None | Condition::Create => LockKind::Shared,
    };
    let rename = move |(name, metadata): (StagedName, Metadata), locked: io::Result<()>| {
        match condition {
            // Without a lock only updates are refused.
            Condition::None => name.rename(&path)?,
            Condition::Create => name.link(&path)?,
            Condition::Update { e_tag, of } => {
                locked.map_err(Action::Lock.failed(path.parent().unwrap_or(&path)))?;
                check_e_tag(&path, &e_tag, of)?;
                name.rename(&path)?;
            }
        }
        Ok(metadata)
    };
    let dirs = dest.parent().map(Path::to_owned).into_iter().collect();
    call_locked(engine, Action::Rename, dest, (kind, dirs), finish, rename).await
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
