//! Replacing a file so that it has the old content or the new, at any moment: all at once
//! ([`write_atomic`]) or piece by piece ([`AtomicFile`]).

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

/// Replaces a file's content, or makes the file, so that at any moment, and after a power cut, it
/// has either the old content or the new: a new file is written and synced, takes the old one's
/// name, and the directory is synced.
///
/// An error and a dropped future leave nothing but the old file. The new one has no name until it
/// is complete (`O_TMPFILE`), so that a crash leaves nothing either; only one between its last two
/// steps, or where the file system has no files without a name, leaves `.NAME.RANDOM.tmp`, which is
/// in nobody's way.
///
/// The new file has the old one's permissions for reading, writing and executing, or those that the
/// umask leaves of 0o666; not its owner, further names, or set-user-ID bits. A symbolic link is
/// replaced itself.
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
/// Errors: InvalidInput for a path that names no file, or something else than one (a device, a
/// FIFO); IsADirectory; those of `open(2)` (the directory has to be readable, to be synced),
/// `write(2)`, `fsync(2)`, `rename(2)`. The old content is kept then, unless only the last step,
/// syncing the directory, failed. Dropped, the old content is kept too, or the new is there.
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

/// A file's new content, written piece by piece, which takes the old one's place when it is
/// [committed](Self::commit), and never if it is dropped before.
///
/// It is [`write_atomic`] for content that is made while it is written, and everything said there
/// holds: at any moment, and after a power cut, the path has the old content or the new, and
/// nothing is left beside it. Others do not see the new file before the commit.
///
/// It is written as by a [`Writer`](crate::Writer): bytes are collected into chunks, which are
/// written behind. It is tokio's `AsyncWrite` and `AsyncSeek` (feature `tokio`), and those of
/// `futures-io` (feature `futures`); their `shutdown` and `close` flush, and do not commit.
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
    // Dropped first: its writes are cancelled before the file goes.
    writer: Writer,
    replacement: Replacement,
}

impl AtomicFile {
    /// Starts the new content of the file at this path, which need not exist yet. The permissions
    /// are those that [`write_atomic`] gives; [`file`](Self::file) can be given others.
    ///
    /// Errors: InvalidInput for a path that names no file, or something else than one;
    /// IsADirectory; those of `open(2)`: the directory has to be readable, to be synced. Dropped,
    /// nothing is left.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Engine::global()?.fs().create_atomic(path).await
    }

    /// Bytes that are written at a time, as [`Writer::chunk`].
    pub fn chunk(self, bytes: usize) -> Self {
        Self { writer: self.writer.chunk(bytes), ..self }
    }

    /// How many chunks may be on their way while the next is collected, as
    /// [`Writer::write_behind`].
    pub fn write_behind(self, chunks: usize) -> Self {
        Self { writer: self.writer.write_behind(chunks), ..self }
    }

    /// Takes all these bytes in, as [`Writer::write_all`].
    ///
    /// Errors: those of earlier writes; see [`Writer`]. They may be tried again: the next call
    /// does.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await
    }

    /// Takes in some of these bytes, as [`Writer::write_vectored`].
    pub async fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.writer.write_vectored(bytes).await
    }

    /// Goes on at another place of the new content, as [`Writer::seek`]: to fill in a header, for
    /// example.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.writer.seek(to).await
    }

    /// Waits until all that was taken in has been written to the new file. [`commit`](Self::commit)
    /// does it too; but its errors are final, and those of this can be tried again.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.writer.flush().await
    }

    /// Offset in the new content of the next byte to be taken in.
    pub fn position(&self) -> u64 {
        self.writer.position()
    }

    /// The new file, which can only be written: to allocate room for it, or to change its
    /// permissions.
    pub fn file(&self) -> &File {
        &self.replacement.file
    }

    /// Puts the new content in the place of the old: writes what has been taken in, syncs the file,
    /// gives it its name, and syncs the directory.
    ///
    /// Errors: those of `write(2)`, `fsync(2)`, `rename(2)`. The old content is kept then, and the
    /// new one is gone, unless only the last step, syncing the directory, failed. Dropped, the old
    /// content is kept, or the new is there.
    pub async fn commit(mut self) -> io::Result<()> {
        self.writer.flush().await?;
        drop(self.writer);
        self.replacement.commit().await
    }

    /// What it is written with, for the traits.
    #[cfg(any(feature = "tokio", feature = "futures"))]
    pub(crate) fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

/// A new file on its way to the name of another. Dropped, it goes.
#[derive(Debug)]
struct Replacement {
    file: File,
    new: New,
    name: OsString,
    dir: File,
}

impl Replacement {
    async fn create(fs: Fs<'_>, path: &Path) -> io::Result<Self> {
        let text = path.as_os_str().as_bytes();
        let name = path.file_name().filter(|_| !text.ends_with(b"/") && !text.ends_with(b"/."));
        let name = name.ok_or_else(|| invalid("an atomic write: the path names no file"))?;
        let dir = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let dir = fs.open_dir(dir).await?;
        let mode = permissions(&dir, name).await?;
        let (core, name) = (dir.core().clone(), name.to_owned());
        let near = name.clone();
        let new = fs.engine.call(move || New::create(core, &near, mode)).await?;
        let file = File::new(new.file.clone(), fs.engine.clone());
        Ok(Self { file, new, name, dir })
    }

    /// Syncs the file, gives it its name, and syncs the directory.
    async fn commit(self) -> io::Result<()> {
        let Self { file, new, name, dir } = self;
        file.sync_all().await?;
        drop(file);
        // One call, which runs to its end once it has begun: a future that is dropped leaves no
        // name behind.
        dir.engine().call(move || new.take_name(&name)).await?;
        dir.sync_all().await
    }
}

/// The permissions of what is to be replaced, if it is there.
async fn permissions(dir: &File, name: &OsStr) -> io::Result<Option<u32>> {
    let look = op::statx_at(dir.core(), name, 0);
    match stat(dir.engine(), look).await {
        Ok(old) if old.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(old) if !old.is_file() => {
            Err(invalid("an atomic write: there is something else than a file"))
        }
        Ok(old) => Ok(Some(old.mode() & 0o777)),
        // Nothing, or a link that leads nowhere.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A new file that has not the name that it is to have. Dropped, it goes.
#[derive(Debug)]
pub(super) struct New {
    dir: CoreFile,
    file: CoreFile,
    /// A forked child's copy removes nothing.
    home: OwnerProcess,
    /// A name for the meantime, where the file needs one.
    name: Option<OsString>,
}

/// Bytes of the right name that are in a name for the meantime.
const NEAR: usize = 200;
/// Names that are tried. One is enough unless somebody guesses 64 bits.
const TRIES: usize = 16;

const FLAGS: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC);

impl New {
    fn create(dir: CoreFile, near: &OsStr, mode: Option<u32>) -> io::Result<Self> {
        match Self::unnamed(dir.clone(), mode)? {
            Some(new) => Ok(new),
            None => Self::named(dir, near, mode),
        }
    }

    /// A file without a name, where there are such files. The error of one that cannot be made is
    /// left to the attempt to make one with a name.
    pub(super) fn unnamed(dir: CoreFile, mode: Option<u32>) -> io::Result<Option<Self>> {
        let Ok(file) = openat(&dir, c".", FLAGS | OFlags::TMPFILE, bits(mode)).map(CoreFile::from)
        else {
            return Ok(None);
        };
        // Without /proc it could not be given a name.
        if accessat(CWD, path_of(&file), Access::EXISTS, AtFlags::empty()).is_err() {
            return Ok(None);
        }
        Self { dir, file, home: OwnerProcess::current(), name: None }.with_mode(mode).map(Some)
    }

    /// A file with a name for the meantime.
    pub(super) fn named(dir: CoreFile, near: &OsStr, mode: Option<u32>) -> io::Result<Self> {
        let create =
            |name: &OsStr| openat(&dir, name, FLAGS | OFlags::CREATE | OFlags::EXCL, bits(mode));
        let (name, file) = with_random_name(near, create)?;
        Self { dir, file: file.into(), home: OwnerProcess::current(), name: Some(name) }
            .with_mode(mode)
    }

    fn with_mode(self, mode: Option<u32>) -> io::Result<Self> {
        if mode.is_some() {
            // The umask may have taken something away.
            fchmod(&self.file, bits(mode))?;
        }
        Ok(self)
    }

    /// Gives the file its name, in the place of whatever has it.
    pub(super) fn take_name(mut self, name: &OsStr) -> io::Result<()> {
        let meantime = match self.name.take() {
            Some(meantime) => meantime,
            None => {
                let link = |name: &OsStr| {
                    linkat(CWD, path_of(&self.file), &self.dir, name, AtFlags::SYMLINK_FOLLOW)
                };
                match link(name) {
                    // A link cannot replace: that takes a name to rename from.
                    Err(Errno::EXIST) => with_random_name(name, link)?.0,
                    linked => return Ok(linked?),
                }
            }
        };
        let meantime = self.name.insert(meantime);
        renameat(&self.dir, &*meantime, &self.dir, name)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && self.home.is_current()
        {
            // Nobody waits for it any more: removed here and now, or left.
            let _ = unlinkat(&self.dir, &**name, AtFlags::empty());
        }
    }
}

fn bits(mode: Option<u32>) -> Mode {
    Mode::from_raw_mode(mode.unwrap_or(0o666))
}

/// A path to a file that has none.
fn path_of(file: &CoreFile) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Makes something under a name that nobody can foresee and nobody has.
fn with_random_name<T>(
    near: &OsStr,
    make: impl Fn(&OsStr) -> Result<T, Errno>,
) -> io::Result<(OsString, T)> {
    // Names have at most 255 bytes.
    let near = match near.to_str() {
        Some(text) => &near.as_bytes()[..text.floor_char_boundary(NEAR)],
        None => &near.as_bytes()[..near.len().min(NEAR)],
    };
    let mut tries = 0..TRIES;
    loop {
        // Its keys come from getrandom(2).
        let number = RandomState::new().build_hasher().finish();
        let name =
            OsString::from_vec([b".", near, format!(".{number:016x}.tmp").as_bytes()].concat());
        match make(&name) {
            Err(Errno::EXIST) if tries.next().is_some() => {}
            made => return Ok((name, made?)),
        }
    }
}
