//! A file that is written before its object is visible, and then published.

use super::copy::is_gone;
use super::durable_dirs::{DurableDirs, Origin};
use super::publication::{Condition, publish};
use super::staging::{Access, NewFile, StagedName};
use super::turns::Turns;
use super::write_error::{Action, Result, WriteError};
use bytes::Bytes;
use ringway::Engine;
use ringway::fs::File;
use std::fs::Metadata;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The most buffers of one system call (`IOV_MAX`).
const MAX_BUFFERS: usize = 1024;

/// Objects up to this length are written by one call on one thread: that costs less than a wakeup
/// for each step.
const ONE_CALL: usize = 64 << 10;

/// How a store writes.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) engine: Engine,
    pub(crate) turns: Arc<Turns>,
    /// What is written is made durable.
    pub(crate) durable: Option<Arc<DurableDirs>>,
    /// What is written leaves no pages in the page cache.
    pub(crate) dont_cache: bool,
}

impl Disk {
    /// A write to this path begins: directories above it that are missing become the store's.
    /// Blocks.
    pub(crate) fn note_missing(&self, path: &Path) {
        if let Some(durable) = &self.durable {
            durable.note_missing(path);
        }
    }

    /// Syncs the directories above a path whose names may not be durable yet.
    pub(crate) async fn sync_above(&self, path: &Path) -> Result<()> {
        let Some(durable) = self.durable.clone() else { return Ok(()) };
        let above = path.to_owned();
        let find = {
            let durable = durable.clone();
            move || Ok(durable.unknown_above(&above))
        };
        let unknown = call(&self.engine, Action::Sync, path, find).await?;
        for dir in &unknown {
            let Some(outer) = dir.path.parent() else { continue };
            match dir.origin {
                Origin::Store => sync_dirs(&self.engine, [outer]).await?,
                Origin::Others => match sync_dirs(&self.engine, [outer]).await {
                    Err(WriteError::Io { source, .. }) if is_refused(&source) => {}
                    synced => synced?,
                },
                Origin::Mount => {}
            }
        }
        durable.note(unknown);
        Ok(())
    }
}

/// Whether a sync of a directory was refused: the process may not open it (EACCES, EPERM), or its
/// file system has no such sync (EINVAL) or is not writable (EROFS). Other errors may be those of
/// lost names.
///
/// That is no error for a directory in which only others made names: those were there before the
/// write, and whether they survive is what their makers have promised. A process that may not read
/// a directory could not do more, and a file system without a sync of directories, or without
/// writes, has no names that wait for one.
fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::ReadOnlyFilesystem
    )
}

/// A file that becomes an object when it is [published](Self::publish). Dropping it removes it; a
/// write that is still in flight then reaches a file without a name.
#[derive(Debug)]
pub(crate) struct StagedFile {
    disk: Disk,
    dest: PathBuf,
    file: File,
    name: StagedName,
}

impl StagedFile {
    /// Creates the file for an object, and missing directories, and writes its beginning: `begin`
    /// blocks, and runs on a thread. If the future is dropped, no file is left.
    pub(crate) async fn create(
        disk: &Disk,
        dest: PathBuf,
        access: Access,
        begin: impl FnOnce(&NewFile) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let path = dest.clone();
        let on = disk.clone();
        let create = move || {
            on.note_missing(&path);
            let new = NewFile::create(&path, access)?;
            let begun = begin(&new);
            let (name, ()) = new.name.keep_if(begun)?;
            // Here, so that no future that is dropped closes the file in place.
            Ok((File::from_fd(new.file.into(), &on.engine), name))
        };
        let (file, name) = call(&disk.engine, Action::CreateFile, &dest, create).await?;
        let file = file.with_dont_cache(disk.dont_cache);
        let staged = Self { disk: disk.clone(), dest, file, name };
        let synced = disk.sync_above(&staged.dest).await;
        staged.keep_if(synced).await
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
        let Self { disk, dest, file, name } = self.keep_if(ready).await?;
        // Waits until no write is in flight.
        let file = file.into_std().await.map(|file| File::from_fd(file.into(), &disk.engine));
        let path = dest.clone();
        let touches = disk.durable.is_none();
        let finish = move || {
            let in_use = |_| io::Error::other("the file is in use");
            let file = file.and_then(|file| std::fs::File::try_from(file).map_err(in_use));
            let (name, file) = name.keep_if(file.map_err(Action::CopyData.failed(&path)))?;
            finish(file, name, &path, touches)
        };
        let metadata = publish(&disk, &dest, finish, condition).await?;
        if disk.durable.is_some()
            && let Some(parent) = dest.parent()
        {
            sync_dirs(&disk.engine, [parent]).await?;
        }
        Ok(metadata)
    }

    /// Makes the content durable, if wanted.
    async fn prepare(&self) -> Result<()> {
        if self.disk.durable.is_some() {
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
        let Self { disk, dest, file, name } = self;
        drop(file);
        call(&disk.engine, Action::Delete, &dest, move || name.remove()).await
    }
}

/// Writes a whole object, and returns its metadata. Errors and dropping as
/// [`StagedFile::publish`].
pub(crate) async fn put(
    disk: &Disk,
    dest: PathBuf,
    content: Vec<Bytes>,
    condition: Condition,
) -> Result<Metadata> {
    // (That call leaves pages in the page cache.)
    let is_small = !disk.dont_cache && content.iter().map(Bytes::len).sum::<usize>() <= ONE_CALL;
    if is_small && disk.durable.is_none() {
        let path = dest.clone();
        let write = move || {
            let new = NewFile::create(&path, Access::Usual)?;
            let begun = begin(&new, &path, &content);
            let (name, ()) = new.name.keep_if(begun)?;
            finish(new.file, name, &path, true)
        };
        return publish(disk, &dest, write, condition).await;
    }
    let (small, rest) = if is_small { (content, Vec::new()) } else { (Vec::new(), content) };
    let path = dest.clone();
    let begin = move |new: &NewFile| begin(new, &path, &small);
    let staged = StagedFile::create(disk, dest, Access::Usual, begin).await?;
    let written = write(staged.file(), rest, 0).await;
    let written = written.map_err(Action::CopyData.failed(staged.dest()));
    staged.keep_if(written).await?.publish(condition).await
}

/// Writes these buffers, one after the other, at an offset.
pub(crate) async fn write(file: &File, buffers: Vec<Bytes>, offset: u64) -> io::Result<()> {
    let mut buffers = buffers.into_iter().filter(|buffer| !buffer.is_empty());
    let mut offset = offset;
    loop {
        let next: Vec<Bytes> = buffers.by_ref().take(MAX_BUFFERS).collect();
        let len: usize = next.iter().map(Bytes::len).sum();
        match <[Bytes; 1]>::try_from(next) {
            Ok([single]) => file.write_all_at(single, offset).await.0?,
            Err(none) if none.is_empty() => return Ok(()),
            Err(several) => file.write_all_vectored_at(several, offset).await.0?,
        }
        offset += len as u64;
    }
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
                Err(error) if is_gone(&error) => {}
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

/// Writes the beginning of an object's content. Blocks.
fn begin(new: &NewFile, dest: &Path, content: &[Bytes]) -> Result<()> {
    let mut slices: Vec<_> = content.iter().map(|buffer| IoSlice::new(buffer)).collect();
    write_all(&new.file, &mut slices).map_err(Action::CopyData.failed(dest))
}

fn write_all(mut file: &std::fs::File, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Skips those that are empty.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Closes a file that is completely written, or removes it. Blocks.
fn finish(
    file: std::fs::File,
    name: StagedName,
    dest: &Path,
    touches: bool,
) -> Result<(StagedName, Metadata)> {
    let closed = close(file, name.path(), dest, touches);
    name.keep_if(closed)
}

/// `touches`: sets its modification time to that of a precise clock. The kernel's own times are
/// those of its last tick, so two versions of an object that follow each other fast could have the
/// same time; and if the second one got the inode of a version removed in between, also the same
/// ETag.
fn close(file: std::fs::File, path: &Path, dest: &Path, touches: bool) -> Result<Metadata> {
    if touches {
        let _ = file.set_modified(SystemTime::now());
    }
    let metadata = file.metadata().map_err(Action::Metadata.failed(path))?;
    // Closing reports late errors of some network file systems.
    ringway_core::close(file.into()).map_err(Action::CopyData.failed(dest))?;
    Ok(metadata)
}
