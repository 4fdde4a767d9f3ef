//! Writing an object, at once or in pieces.

use crate::config::Durability;
use crate::disk::Disk;
use crate::error::{failed, failed_unless};
use crate::metadata::{of_file, write_user};
use crate::staged::{StagedFile, StagedName};
use bytes::Bytes;
use opendal_core::raw::{OpWrite, oio};
use opendal_core::{Buffer, Error, ErrorKind, Executor, Metadata, Result};
use ringway::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// An object up to this length that comes in one piece is written by one call on one thread: that
/// costs less than a wakeup for each step.
const ONE_CALL: usize = 256 << 10;
/// The most buffers of one system call (`IOV_MAX`).
const MAX_BUFFERS: usize = 1024;

/// The object that a write makes.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) disk: Arc<Disk>,
    pub(crate) path: PathBuf,
    /// Only if there is no such object.
    pub(crate) exclusive: bool,
    pub(crate) user: Arc<[(String, String)]>,
}

impl Target {
    /// Creates the file with the beginning of its content.
    async fn begin(&self, content: Buffer) -> Result<(File, StagedName)> {
        let target = self.clone();
        let create = move || StagedFile::create(&target.disk, &target.path, &target.user, content);
        let StagedFile { file, name } = self.disk.call("create the file", create).await?;
        Ok((File::from_fd(file.into(), &self.disk.engine), name))
    }

    /// Writes the whole object.
    async fn put(&self, content: Buffer) -> Result<Metadata> {
        if self.disk.durability == Durability::None {
            let target = self.clone();
            let put = move || {
                let Target { disk, path, user, exclusive } = target;
                let staged = StagedFile::create(&disk, &path, &user, content)?;
                let metadata = of_file(&staged.file.metadata()?);
                staged.publish(&disk, &path, exclusive).map(|()| metadata)
            };
            return self.named(self.disk.engine.call(put).await);
        }
        let (file, name) = self.begin(content).await?;
        self.finish(file, name).await
    }

    /// Makes a file that is completely written the object. No other clone of it may exist.
    pub(crate) async fn finish(&self, file: File, name: StagedName) -> Result<Metadata> {
        if self.disk.durability != Durability::None {
            file.sync_all().await.map_err(failed("sync the file"))?;
        }
        // Waits until no write is in flight.
        let file = file.into_std().await.map_err(failed("write"))?;
        let target = self.clone();
        let publish = move || {
            let metadata = of_file(&file.metadata()?);
            let staged = StagedFile { file, name };
            staged.publish(&target.disk, &target.path, target.exclusive).map(|()| metadata)
        };
        let metadata = self.named(self.disk.engine.call(publish).await)?;
        self.disk.sync_names(self.path.parent()).await?;
        Ok(metadata)
    }

    fn named<T>(&self, result: io::Result<T>) -> Result<T> {
        result.map_err(failed_unless(self.exclusive, "name the file"))
    }
}

/// The writer of an object.
pub(crate) struct FsWriter {
    target: Target,
    executor: Executor,
    concurrent: usize,
    state: State,
}

enum State {
    /// Nothing is on disk; this is what has been accepted.
    Pending(Option<Buffer>),
    Staged(oio::PositionWriter<StagedWrite>),
    Appending {
        file: Option<File>,
        has_written: bool,
    },
    Ended,
}

impl FsWriter {
    pub(crate) fn new(disk: Arc<Disk>, path: PathBuf, executor: Executor, op: &OpWrite) -> Self {
        let user = op.user_metadata().into_iter().flatten();
        let user = user.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let state = match op.append() {
            true => State::Appending { file: None, has_written: false },
            false => State::Pending(None),
        };
        let target = Target { disk, path, exclusive: op.if_not_exists(), user };
        Self { target, executor, concurrent: op.concurrent(), state }
    }
}

impl oio::Write for FsWriter {
    async fn write(&mut self, content: Buffer) -> Result<()> {
        loop {
            match &mut self.state {
                State::Pending(first @ None) if content.len() <= ONE_CALL => {
                    *first = Some(content);
                    return Ok(());
                }
                State::Pending(first) => {
                    let begin = first.clone().unwrap_or_default();
                    let offset = begin.len() as u64;
                    let staged = self.target.begin(begin).await?;
                    let target = self.target.clone();
                    let staged = StagedWrite { target, offset, file: Mutex::new(Some(staged)) };
                    self.state = State::Staged(oio::PositionWriter::new(
                        self.executor.clone(),
                        staged,
                        self.concurrent,
                    ));
                }
                State::Staged(writer) => return writer.write(content).await,
                State::Appending { file, has_written } => {
                    let file = appended(&self.target, file).await?;
                    *has_written = true;
                    // A repetition would append a part twice.
                    let written = write_all(file, content, 0).await;
                    return written.map_err(|error| failed("append")(error).set_permanent());
                }
                State::Ended => return Err(ended()),
            }
        }
    }

    async fn close(&mut self) -> Result<Metadata> {
        let metadata = match &mut self.state {
            State::Pending(content) => self.target.put(content.clone().unwrap_or_default()).await?,
            State::Staged(writer) => writer.close().await?,
            State::Appending { file, .. } => {
                let file = appended(&self.target, file).await?.clone();
                let disk = &self.target.disk;
                if disk.durability != Durability::None {
                    file.sync_all().await.map_err(failed("sync the file"))?;
                }
                let found = file.metadata().await.map_err(failed("look up"))?;
                disk.sync_names(self.target.path.parent()).await?;
                let kind = crate::metadata::Kind::File;
                crate::metadata::builder(kind, found.len(), found.modified()).build()
            }
            State::Ended => return Err(ended()),
        };
        self.state = State::Ended;
        Ok(metadata)
    }

    async fn abort(&mut self) -> Result<()> {
        match &mut self.state {
            State::Staged(writer) => writer.abort().await?,
            State::Appending { has_written: true, .. } => {
                let message = "what has been appended is in the object: an append has no abort";
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            State::Pending(_) | State::Appending { .. } => {}
            State::Ended => return Err(ended()),
        }
        self.state = State::Ended;
        Ok(())
    }
}

/// The file that is appended to, opened once.
async fn appended<'a>(target: &Target, file: &'a mut Option<File>) -> Result<&'a File> {
    let opened = match file.take() {
        Some(opened) => opened,
        None => open_to_append(target).await?,
    };
    Ok(file.insert(opened))
}

async fn open_to_append(target: &Target) -> Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).engine(&target.disk.engine);
    if target.exclusive {
        options.create_new(true);
    } else {
        options.create(true);
    }
    let opened = match options.open(&target.path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (disk, path) = (target.disk.clone(), target.path.clone());
            let create = move || path.parent().map_or(Ok(()), |parent| disk.dirs.create(parent));
            target.disk.call("create the directory", create).await?;
            options.open(&target.path).await
        }
        opened => opened,
    };
    let file = opened.map_err(failed_unless(target.exclusive, "open"))?;
    if target.user.is_empty() {
        return Ok(file);
    }
    let file = file.into_std().await.map_err(failed("open"))?;
    let user = target.user.clone();
    let write = move || write_user(&file, &user).map(|()| file);
    let file = target.disk.call("write the metadata", write).await?;
    Ok(File::from_fd(file.into(), &target.disk.engine))
}

/// A staged file whose pieces may be written at the same time.
struct StagedWrite {
    target: Target,
    /// Where the pieces begin.
    offset: u64,
    /// `None` once it is closed or aborted.
    file: Mutex<Option<(File, StagedName)>>,
}

impl StagedWrite {
    fn file(&self) -> Result<File> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().map(|(file, _)| file.clone()).ok_or_else(ended)
    }

    fn take(&self) -> Result<(File, StagedName)> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(ended)
    }
}

impl oio::PositionWrite for StagedWrite {
    async fn write_all_at(&self, offset: u64, content: Buffer) -> Result<()> {
        let file = self.file()?;
        write_all(&file, content, self.offset + offset).await.map_err(failed("write"))
    }

    async fn close(&self, _: u64) -> Result<Metadata> {
        let (file, name) = self.take()?;
        self.target.finish(file, name).await
    }

    async fn abort(&self) -> Result<()> {
        drop(self.take()?);
        Ok(())
    }
}

/// Writes these bytes at an offset.
async fn write_all(file: &File, content: Buffer, mut offset: u64) -> io::Result<()> {
    let mut pieces = content.filter(|piece| !piece.is_empty());
    loop {
        let next: Vec<Bytes> = pieces.by_ref().take(MAX_BUFFERS).collect();
        let len: usize = next.iter().map(Bytes::len).sum();
        match <[Bytes; 1]>::try_from(next) {
            Ok([single]) => file.write_all_at(single, offset).await.0?,
            Err(none) if none.is_empty() => return Ok(()),
            Err(several) => file.write_all_vectored_at(several, offset).await.0?,
        }
        offset += len as u64;
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Unexpected, "the writer has been closed or aborted").set_permanent()
}
