//! Atomic replacement of a file: all at once ([`write_atomic`]) or streamed ([`AtomicFile`]).

mod new_file;
#[cfg(unix)]
mod unix;
#[cfg(all(target_os = "linux", not(ringway_portable)))]
mod unnamed;
#[cfg(windows)]
mod windows;

pub(super) use new_file::NewFile;

use super::File;
use super::path::{Fs, stat};
use crate::buffer::Content;
use crate::engine::op_result::invalid;
use crate::{Engine, Writer};
use ringway_core::op;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, SeekFrom};
use std::path::{Path, is_separator};
#[cfg(unix)]
use unix::directory;
#[cfg(windows)]
use windows::directory;

/// Replaces a file's content, or creates the file, atomically: at any moment, and after a power
/// failure, the file has either the old content or the new. A new file is written and synced, takes
/// the name of the old one, and the directory is synced.
///
/// After an error no other file is left. Nor is one if the future is dropped: where its removal may
/// wait for a server, a thread makes it. On Linux the new file has no name until it is complete
/// (`O_TMPFILE`), so a crash normally leaves nothing either. A crash between the last two steps, or
/// on a system or file system without `O_TMPFILE`, may leave a file `.NAME.RANDOM.tmp`, which never
/// gets in the way of a later write.
///
/// The new file has the read, write and execute permissions of the old one, or 0o666 less the
/// umask. It does not keep the owner, the group (what the old group might do, the new one may),
/// access control lists, extended attributes, other hard links, or set-user-ID bits. A symbolic
/// link itself is replaced. On Windows, a file that another program has open without sharing its
/// deletion cannot be replaced, and permissions are not kept.
///
/// This replaces a whole file, of any length and on any file system. What Linux calls an atomic
/// write, of one range of an open file, is [`File::write_untorn_at`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("settings");
/// ringway::fs::write_atomic(&path, b"colour = blue".to_vec()).await?;
/// # assert_eq!(std::fs::read(&path)?, b"colour = blue");
/// # Ok(()) }
/// ```
///
/// Errors: InvalidInput for a path without a file name, or that is not a regular file (a device, a
/// FIFO); IsADirectory; those of `open(2)` (the directory must be readable, so that it can be
/// synced), `write(2)`, `fsync(2)` and `rename(2)`. The old content is then kept, unless only the
/// last step, the sync of the directory, failed. If the future is dropped, the file has the old
/// content or the new.
pub async fn write_atomic(path: impl AsRef<Path>, content: impl Content) -> io::Result<()> {
    Engine::global()?.fs().write_atomic(path, content).await
}

impl Fs<'_> {
    /// [`write_atomic`] on this engine.
    pub async fn write_atomic(
        self,
        path: impl AsRef<Path>,
        content: impl Content,
    ) -> io::Result<()> {
        let replacement = Replacement::create(self, path.as_ref()).await?;
        let written = replacement.file.write_all_at(content.into_content(), 0).await.0;
        replacement.commit(written).await
    }

    /// [`AtomicFile::create`] on this engine.
    pub async fn create_atomic(self, path: impl AsRef<Path>) -> io::Result<AtomicFile> {
        let replacement = Replacement::create(self, path.as_ref()).await?;
        Ok(AtomicFile { writer: replacement.file.writer().discarding(), replacement })
    }
}

/// New content for a file, written piece by piece. It replaces the old content when it is
/// [committed](Self::commit), and never if it is dropped before. (A thread then frees the space of
/// a large one, a moment later.)
///
/// Use it instead of [`write_atomic`] when the content is produced while it is written. The same
/// guarantees hold: at any moment, and after a power failure, the path has the old content or the
/// new, and no other file is left. Other programs do not see the new file before the commit.
///
/// It writes as a [`Writer`] does: bytes are collected into chunks, which are
/// written behind. It implements tokio's `AsyncWrite` and `AsyncSeek` (feature `tokio`) and those
/// of `futures-io` (feature `futures`); their `shutdown` and `close` flush but do not commit.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("report");
/// use ringway::fs::AtomicFile;
/// let mut file = AtomicFile::create(&path).await?;
/// for line in 0..1000 {
///     file.write_all(format!("line {line}\n").as_bytes()).await?;
/// }
/// assert!(!path.exists());
/// file.commit().await?;
/// # assert_eq!(std::fs::read(&path)?.len(), 8890);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    // Dropped first, so that its writes are cancelled before the file is removed.
    writer: Writer,
    replacement: Replacement,
}

impl AtomicFile {
    /// Starts new content for the file at this path, which need not exist yet. Permissions are
    /// those that [`write_atomic`] sets; change them through [`file`](Self::file).
    ///
    /// Errors: InvalidInput for a path without a file name, or that is not a regular file;
    /// IsADirectory; those of `open(2)`: the directory must be readable, so that it can be synced.
    /// If the future is dropped, nothing is left.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Engine::global()?.fs().create_atomic(path).await
    }

    /// Sets the bytes per write, as [`Writer::chunk`].
    pub fn chunk(self, bytes: usize) -> Self {
        Self { writer: self.writer.chunk(bytes), ..self }
    }

    /// Sets how many chunks may be in flight while the next one is collected, as
    /// [`Writer::write_behind`].
    pub fn write_behind(self, chunks: usize) -> Self {
        Self { writer: self.writer.write_behind(chunks), ..self }
    }

    /// Writes without leaving pages in the page cache, as [`Writer::dont_cache`].
    pub fn dont_cache(self, yes: bool) -> Self {
        let Self { writer, mut replacement } = self;
        replacement.file = replacement.file.clone().with_dont_cache(yes);
        Self { writer: writer.dont_cache(yes), replacement }
    }

    /// Accepts all these bytes, as [`Writer::write_all`].
    ///
    /// Errors: those of earlier writes; see [`Writer`]. The next call retries the writes.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await
    }

    /// Accepts some of these bytes, as [`Writer::write_vectored`].
    pub async fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.writer.write_vectored(bytes).await
    }

    /// Continues at another offset of the new content, as [`Writer::seek`]; for example, to fill in
    /// a header.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.writer.seek(to).await
    }

    /// Waits until all accepted bytes are written to the new file. [`commit`](Self::commit) does
    /// the same, but its errors are final, while those of `flush` can be retried.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.writer.flush().await
    }

    /// Returns the offset in the new content of the next byte to be accepted.
    pub fn position(&self) -> u64 {
        self.writer.position()
    }

    /// Returns the new file, which is write-only: to allocate space for it, or to change its
    /// permissions.
    pub fn file(&self) -> &File {
        &self.replacement.file
    }

    /// Replaces the old content with the new: writes all accepted bytes, syncs the file, gives it
    /// its name, and syncs the directory.
    ///
    /// Errors: those of `write(2)`, `fsync(2)` and `rename(2)`. The old content is then kept and
    /// the new is discarded, unless only the last step, the sync of the directory, failed. If the
    /// future is dropped, the file has the old content or the new.
    pub async fn commit(mut self) -> io::Result<()> {
        let written = self.writer.flush().await;
        drop(self.writer);
        self.replacement.commit(written).await
    }

    /// The writer, for the implementations of the traits.
    #[cfg(any(feature = "tokio", feature = "futures"))]
    pub(crate) fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

/// A new file that will replace another one. Dropping it removes it.
#[derive(Debug)]
struct Replacement {
    file: File,
    new: NewFile,
    name: OsString,
    dir: File,
}

impl Replacement {
    async fn create(fs: Fs<'_>, path: &Path) -> io::Result<Self> {
        let ends_in_dir = match path.as_os_str().as_encoded_bytes() {
            [.., last] if is_separator(char::from(*last)) => true,
            [.., before, b'.'] => is_separator(char::from(*before)),
            _ => false,
        };
        let name = path.file_name().filter(|_| !ends_in_dir);
        let name = name.ok_or_else(|| invalid("atomic write: the path has no file name"))?;
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let dir = fs.open_dir(parent).await?;
        let mode = permissions(&dir, name).await?;
        let (place, name) = (directory(&dir, parent)?, name.to_owned());
        let prefix = name.clone();
        let new = fs.engine.call(move || NewFile::create(place, &prefix, mode)).await?;
        let file = File::new(new.file.clone(), fs.engine.clone());
        Ok(Self { file, new, name, dir })
    }

    /// Syncs the file, gives it its name, and syncs the directory. If the content could not be
    /// `written`, or synced, removes the file before that error is returned.
    async fn commit(self, written: io::Result<()>) -> io::Result<()> {
        let Self { file, new, name, dir } = self;
        let synced = match written {
            Ok(()) => file.sync_all().await,
            failed => failed,
        };
        drop(file);
        if synced.is_err() {
            let remove = move || {
                new.remove();
                Ok(())
            };
            let _ = dir.engine().call(remove).await;
            return synced;
        }
        // One blocking call, which runs to its end once it has started: a dropped future leaves no
        // temporary name behind.
        dir.engine().call(move || new.take_name(&name)).await?;
        dir.sync_all().await
    }
}

/// The permissions of the file to be replaced, if it exists.
async fn permissions(dir: &File, name: &OsStr) -> io::Result<Option<u32>> {
    let look = op::statx_at(dir.core(), name, 0);
    match stat(dir.engine(), look).await {
        Ok(old) if old.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(old) if !old.is_file() => Err(invalid("atomic write: the path is not a regular file")),
        Ok(old) => Ok(Some(old.mode() & 0o777)),
        // There is nothing, or a dangling link.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
