//! Atomic replacement of a file: all at once ([`write_atomic`]) or streamed ([`AtomicFile`]).

use super::File;
use super::op_result::invalid;
use super::path::{Fs, stat};
use crate::buffer::IoBuffer;
use crate::{Engine, Writer};
use ringway_core::{File as CoreFile, OwnerProcess, op};
use rustix::fs::{
    Access, AtFlags, CWD, Mode, OFlags, accessat, fchmod, linkat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IoSlice, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Replaces a file's content, or creates the file, atomically: at any moment, and after a power
/// failure, the file has either the old content or the new. A new file is written and synced, takes
/// the name of the old one, and the directory is synced.
///
/// After an error, or if the future is dropped, only the old file is left. The new file has no name
/// until it is complete (`O_TMPFILE`), so a crash normally leaves nothing either. A crash between
/// the last two steps, or on a file system without `O_TMPFILE`, may leave a file
/// `.NAME.RANDOM.tmp`, which never gets in the way of a later write.
///
/// The new file has the read, write and execute permissions of the old one, or 0o666 less the
/// umask. It does not keep the owner, other hard links, or set-user-ID bits. A symbolic link itself
/// is replaced.
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
pub async fn write_atomic(path: impl AsRef<Path>, content: impl IoBuffer) -> io::Result<()> {
    Engine::global()?.fs().write_atomic(path, content).await
}

impl Fs<'_> {
    /// [`write_atomic`] on this engine.
    pub async fn write_atomic(
        self,
        path: impl AsRef<Path>,
        content: impl IoBuffer,
    ) -> io::Result<()> {
        let replacement = Replacement::create(self, path.as_ref()).await?;
        replacement.file.write_all_at(content, 0).await.0?;
        replacement.commit().await
    }

    /// [`AtomicFile::create`] on this engine.
    pub async fn create_atomic(self, path: impl AsRef<Path>) -> io::Result<AtomicFile> {
        let replacement = Replacement::create(self, path.as_ref()).await?;
        Ok(AtomicFile { writer: replacement.file.writer().silent(), replacement })
    }
}

/// New content for a file, written piece by piece. It replaces the old content when it is
/// [committed](Self::commit), and never if it is dropped before.
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
        self.writer.flush().await?;
        drop(self.writer);
        self.replacement.commit().await
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
        let text = path.as_os_str().as_bytes();
        let name = path.file_name().filter(|_| !text.ends_with(b"/") && !text.ends_with(b"/."));
        let name = name.ok_or_else(|| invalid("atomic write: the path has no file name"))?;
        let dir = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let dir = fs.open_dir(dir).await?;
        let mode = permissions(&dir, name).await?;
        let (core, name) = (dir.core().clone(), name.to_owned());
        let prefix = name.clone();
        let new = fs.engine.call(move || NewFile::create(core, &prefix, mode)).await?;
        let file = File::new(new.file.clone(), fs.engine.clone());
        Ok(Self { file, new, name, dir })
    }

    /// Syncs the file, gives it its name, and syncs the directory.
    async fn commit(self) -> io::Result<()> {
        let Self { file, new, name, dir } = self;
        file.sync_all().await?;
        drop(file);
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

/// A new file without its final name. Dropping it removes it.
#[derive(Debug)]
pub(super) struct NewFile {
    dir: CoreFile,
    file: CoreFile,
    /// A forked child's copy removes nothing.
    home: OwnerProcess,
    /// The temporary name, if the file needs one.
    name: Option<OsString>,
}

/// The most bytes of the final name in a temporary name.
const MAX_PREFIX: usize = 200;
/// The most names to try. One is enough unless someone guesses 64 random bits.
const MAX_TRIES: usize = 16;

const FLAGS: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC);

impl NewFile {
    fn create(dir: CoreFile, prefix: &OsStr, mode: Option<u32>) -> io::Result<Self> {
        match Self::unnamed(dir.clone(), mode)? {
            Some(new) => Ok(new),
            None => Self::named(dir, prefix, mode),
        }
    }

    /// Creates a file without a name, if the file system supports it. If it fails, `named` is tried
    /// and reports the error.
    pub(super) fn unnamed(dir: CoreFile, mode: Option<u32>) -> io::Result<Option<Self>> {
        let Ok(file) = openat(&dir, c".", FLAGS | OFlags::TMPFILE, bits(mode)).map(CoreFile::from)
        else {
            return Ok(None);
        };
        // Without /proc the file could not be given a name.
        if accessat(CWD, path_of(&file), Access::EXISTS, AtFlags::empty()).is_err() {
            return Ok(None);
        }
        Self { dir, file, home: OwnerProcess::current(), name: None }.with_mode(mode).map(Some)
    }

    /// Creates a file with a temporary name.
    pub(super) fn named(dir: CoreFile, prefix: &OsStr, mode: Option<u32>) -> io::Result<Self> {
        let create =
            |name: &OsStr| openat(&dir, name, FLAGS | OFlags::CREATE | OFlags::EXCL, bits(mode));
        let (name, file) = with_random_name(prefix, create)?;
        Self { dir, file: file.into(), home: OwnerProcess::current(), name: Some(name) }
            .with_mode(mode)
    }

    fn with_mode(self, mode: Option<u32>) -> io::Result<Self> {
        if mode.is_some() {
            // The umask may have removed permissions.
            fchmod(&self.file, bits(mode))?;
        }
        Ok(self)
    }

    /// Gives the file its final name, replacing whatever has that name.
    pub(super) fn take_name(mut self, name: &OsStr) -> io::Result<()> {
        let temporary = match self.name.take() {
            Some(temporary) => temporary,
            None => {
                let link = |name: &OsStr| {
                    linkat(CWD, path_of(&self.file), &self.dir, name, AtFlags::SYMLINK_FOLLOW)
                };
                match link(name) {
                    // A link cannot replace a name, so link a temporary name and rename it.
                    Err(Errno::EXIST) => with_random_name(name, link)?.0,
                    linked => return Ok(linked?),
                }
            }
        };
        let temporary = self.name.insert(temporary);
        renameat(&self.dir, &*temporary, &self.dir, name)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && self.home.is_current()
        {
            // No task waits for the removal, so remove the name here or leave it.
            let _ = unlinkat(&self.dir, &**name, AtFlags::empty());
        }
    }
}

fn bits(mode: Option<u32>) -> Mode {
    Mode::from_raw_mode(mode.unwrap_or(0o666))
}

/// A path to a file without a name.
fn path_of(file: &CoreFile) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Creates something under a name that is unpredictable and unused.
fn with_random_name<T>(
    prefix: &OsStr,
    make: impl Fn(&OsStr) -> Result<T, Errno>,
) -> io::Result<(OsString, T)> {
    // Names have at most 255 bytes.
    let end = prefix.len().min(MAX_PREFIX);
    let end = match prefix.to_str() {
        Some(text) => (0..=end).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0),
        None => end,
    };
    let prefix = &prefix.as_bytes()[..end];
    let mut tries = 0..MAX_TRIES;
    loop {
        // Its keys come from getrandom(2).
        let number = RandomState::new().build_hasher().finish();
        let name =
            OsString::from_vec([b".", prefix, format!(".{number:016x}.tmp").as_bytes()].concat());
        match make(&name) {
            Err(Errno::EXIST) if tries.next().is_some() => {}
            made => return Ok((name, made?)),
        }
    }
}
