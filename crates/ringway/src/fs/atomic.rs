//! Replacing a file so that it has the old content or the new, at any moment.

use super::outcome::invalid;
use super::path::stat;
use super::{File, OpenOptions};
use crate::Engine;
use crate::buffer::IoBuffer;
use ringway_core::{File as CoreFile, op};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, fchmod, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Replaces a file's content, or makes the file, so that at any moment, and after a power cut, it has
/// either the old content or the new: a new file is written and synced, takes the old one's name, and
/// the directory is synced.
///
/// An error and a dropped future leave nothing but the old file. The new one has no name until it is
/// complete (`O_TMPFILE`), so that a crash leaves nothing either; only one between its last two steps,
/// or where the file system has no files without a name, leaves `.NAME.RANDOM.tmp`, which is in nobody's
/// way.
///
/// The new file has the old one's permissions for reading, writing and executing, or those that the
/// umask leaves of 0o666; not its owner, further names, or set-user-ID bits. A symbolic link is replaced
/// itself.
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
/// Errors: InvalidInput for a path that names no file, or something else than one (a device, a FIFO);
/// IsADirectory; those of `open(2)` (the directory has to be readable, to be synced), `write(2)`,
/// `fsync(2)`, `rename(2)`. The old content is kept then, unless only the last step, syncing the
/// directory, failed. Dropped, the old content is kept too, or the new is there.
pub async fn write_atomic(path: impl AsRef<Path>, content: impl IoBuffer) -> io::Result<()> {
    replace(Engine::global()?, path.as_ref(), content).await
}

/// As [`write_atomic`], on an engine.
pub(super) async fn replace(engine: &Engine, path: &Path, content: impl IoBuffer) -> io::Result<()> {
    let text = path.as_os_str().as_bytes();
    let name = path.file_name().filter(|_| !text.ends_with(b"/") && !text.ends_with(b"/."));
    let name = name.ok_or_else(|| invalid("write_atomic: the path names no file"))?;
    let dir = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::DIRECTORY.bits() as i32).engine(engine);
    let dir = options.open(dir).await?;
    let mode = permissions(&dir, name).await?;

    let (core, near) = (dir.core().clone(), name.to_owned());
    let new = engine.call(move || New::create(core, &near, mode)).await?;
    let file = File::new(new.file.clone(), engine.clone());
    file.write_all_at(content, 0).await.0?;
    file.sync_all().await?;
    drop(file);
    let name = name.to_owned();
    // One call, which runs to its end once it has begun: a future that is dropped leaves no name behind.
    engine.call(move || new.take_name(&name)).await?;
    dir.sync_all().await
}

/// The permissions of what is to be replaced, if it is there.
async fn permissions(dir: &File, name: &OsStr) -> io::Result<Option<u32>> {
    let look = op::statx_at(dir.core(), name, 0);
    match stat(dir.engine(), look).await {
        Ok(old) if old.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(old) if !old.is_file() => Err(invalid("write_atomic: there is something else than a file")),
        Ok(old) => Ok(Some(old.mode() & 0o777)),
        // Nothing, or a link that leads nowhere.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A new file that has not the name that it is to have. Dropped, it goes.
pub(super) struct New {
    dir: CoreFile,
    file: CoreFile,
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

    /// A file without a name, where there are such files. The error of one that cannot be made is left
    /// to the attempt to make one with a name.
    pub(super) fn unnamed(dir: CoreFile, mode: Option<u32>) -> io::Result<Option<Self>> {
        let Ok(file) = openat(&dir, c".", FLAGS | OFlags::TMPFILE, bits(mode)).map(CoreFile::from) else {
            return Ok(None);
        };
        // Without /proc it could not be given a name.
        if accessat(CWD, path_of(&file), Access::EXISTS, AtFlags::empty()).is_err() {
            return Ok(None);
        }
        Self { dir, file, name: None }.with_mode(mode).map(Some)
    }

    /// A file with a name for the meantime.
    pub(super) fn named(dir: CoreFile, near: &OsStr, mode: Option<u32>) -> io::Result<Self> {
        let create = |name: &OsStr| openat(&dir, name, FLAGS | OFlags::CREATE | OFlags::EXCL, bits(mode));
        let (name, file) = with_random_name(near, create)?;
        Self { dir, file: file.into(), name: Some(name) }.with_mode(mode)
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
                let link = |name: &OsStr| linkat(CWD, path_of(&self.file), &self.dir, name, AtFlags::SYMLINK_FOLLOW);
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
        if let Some(name) = &self.name {
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
fn with_random_name<T>(near: &OsStr, make: impl Fn(&OsStr) -> Result<T, Errno>) -> io::Result<(OsString, T)> {
    // Names have at most 255 bytes.
    let near = match near.to_str() {
        Some(text) => &near.as_bytes()[..text.floor_char_boundary(NEAR)],
        None => &near.as_bytes()[..near.len().min(NEAR)],
    };
    let mut tries = 0..TRIES;
    loop {
        // Its keys come from getrandom(2).
        let number = RandomState::new().build_hasher().finish();
        let name = OsString::from_vec([b".", near, format!(".{number:016x}.tmp").as_bytes()].concat());
        match make(&name) {
            Err(Errno::EXIST) if tries.next().is_some() => {}
            made => return Ok((name, made?)),
        }
    }
}
