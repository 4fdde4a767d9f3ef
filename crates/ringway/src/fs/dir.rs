//! Directories: making them, and removing them with all that they hold.

use super::path::metadata;
use crate::Engine;
use ringway_core::op;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Makes a directory: `mkdir(2)`, with the permissions that the umask leaves of 0o777.
///
/// Errors: those of `mkdir(2)`. Dropped, it may be made all the same.
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    DirBuilder::new().create(path).await
}

/// Makes a directory, and those above it that are missing. One that is there is no error.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// ringway::fs::create_dir_all(dir.path().join("a/b/c")).await?;
/// assert!(dir.path().join("a/b/c").is_dir());
/// # Ok(()) }
/// ```
///
/// Errors: those of `mkdir(2)`; what was made so far is left, as it is when the future is dropped.
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path).await
}

/// How a directory is made; as [`std::fs::DirBuilder`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// use ringway::fs::DirBuilder;
/// DirBuilder::new().recursive(true).mode(0o700).create(dir.path().join("private/keys")).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DirBuilder {
    recursive: bool,
    mode: u32,
}

impl Default for DirBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl DirBuilder {
    /// One directory, with the permissions 0o777 before the umask.
    pub fn new() -> Self {
        Self { recursive: false, mode: 0o777 }
    }

    /// Those above it that are missing are made too, with the same permissions, and one that is there
    /// is no error.
    pub fn recursive(&mut self, yes: bool) -> &mut Self {
        self.recursive = yes;
        self
    }

    /// The permissions before the umask.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Makes it.
    ///
    /// Errors: those of `mkdir(2)`; what was made so far is left, as it is when the future is dropped.
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let engine = Engine::global()?;
        let make = |path: &Path| engine.run(op::mkdir(path, self.mode));
        match self.recursive {
            true => create_all(path, make).await,
            false => make(path).await,
        }
    }
}

/// As std does it: up to the first directory that can be made or is there, and down again.
async fn create_all<F: Future<Output = io::Result<()>>>(path: &Path, make: impl Fn(&Path) -> F) -> io::Result<()> {
    let mut missing = Vec::new();
    for above in path.ancestors() {
        // The root is there, and so is the directory that a relative path begins at.
        if above == Path::new("") || above.parent().is_none() {
            break;
        }
        match make(above).await {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(above),
            Err(error) if is_there(&error, above).await => break,
            Err(error) => return Err(error),
        }
    }
    // Once each: what others remove meanwhile is an error, and no reason to begin again.
    for below in missing.into_iter().rev() {
        if let Err(error) = make(below).await
            && !is_there(&error, below).await
        {
            return Err(error);
        }
    }
    Ok(())
}

/// Whether a directory could not be made because it exists.
async fn is_there(error: &io::Error, path: &Path) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists && metadata(path).await.is_ok_and(|found| found.is_dir())
}

/// Removes a directory with everything below it; a symbolic link is removed itself. Links are not
/// followed, even if somebody puts them in the place of directories meanwhile.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let cache = dir.path().join("cache");
/// ringway::fs::create_dir_all(cache.join("a/b")).await?;
/// ringway::fs::remove_dir_all(&cache).await?;
/// assert!(!ringway::fs::exists(&cache).await?);
/// # Ok(()) }
/// ```
///
/// Errors: those of `open(2)`, `getdents64(2)`, `unlinkat(2)`: the first, with the rest left. EMFILE
/// where directories are nested deeper than there are descriptors. Dropped once it has begun, it goes
/// on to its end.
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    Engine::global()?.call(move || remove_all(&path)).await
}

/// A directory that is being emptied.
struct Level {
    entries: Dir,
    name: CString,
}

impl Level {
    fn open(parent: BorrowedFd<'_>, name: &CStr) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entries = Dir::new(openat(parent, name, flags, Mode::empty())?)?;
        Ok(Self { entries, name: name.to_owned() })
    }
}

/// Not by recursion, since a thread's stack is small and a tree may be deep.
fn remove_all(path: &Path) -> io::Result<()> {
    let top = CString::new(path.as_os_str().as_bytes())?;
    if std::fs::symlink_metadata(path)?.is_symlink() {
        return Ok(unlinkat(CWD, &*top, AtFlags::empty())?);
    }
    let mut levels = vec![Level::open(CWD, &top)?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.entries.next().transpose()? else {
            let Some(done) = levels.pop() else { break };
            let parent = levels.last().map_or(Ok(CWD), |level| level.entries.fd())?;
            gone_is_fine(unlinkat(parent, &*done.name, AtFlags::REMOVEDIR))?;
            continue;
        };
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let dir = level.entries.fd()?;
        let below = match entry.file_type() {
            // Some file systems do not say, and to unlink a directory may orphan what it holds.
            FileType::Directory | FileType::Unknown => Level::open(dir.as_fd(), name),
            _ => Err(Errno::NOTDIR),
        };
        match below {
            Ok(below) => levels.push(below),
            // (Of a symbolic link, older kernels say ELOOP.)
            Err(Errno::NOTDIR | Errno::LOOP) => gone_is_fine(unlinkat(dir, name, AtFlags::empty()))?,
            Err(error) => gone_is_fine(Err(error))?,
        }
    }
    Ok(())
}

/// What somebody else has removed need not be removed.
fn gone_is_fine(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
