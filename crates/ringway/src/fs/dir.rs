//! Directories: creating, syncing, and removing them with their content. Listing is in
//! `read_dir.rs`.

#[cfg(unix)]
mod remove_all;

use super::path::Fs;
use super::{File, OpenOptions};
use crate::Engine;
#[cfg(unix)]
use remove_all::remove_all;
use ringway_core::op;
#[cfg(windows)]
use std::fs::remove_dir_all as remove_all;
use std::io;
use std::path::Path;

/// Creates a directory: `mkdir(2)`, with permissions 0o777 less the umask.
///
/// Errors: those of `mkdir(2)`. If the future is dropped, it may still be created.
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.fs().create_dir(path).await
}

/// Creates a directory and all missing parents. An existing directory is not an error.
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
/// Errors: those of `mkdir(2)`. After an error, or if the future is dropped, directories created so
/// far remain.
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.fs().create_dir_all(path).await
}

/// Writes a directory's entries to the device: `fsync(2)` of the directory. Names created, renamed
/// or removed in it before this survive a power failure.
///
/// Sync the directory of each new, renamed or removed name to make the change durable; a file's own
/// [`sync_all`](File::sync_all) does not sync its name. On Windows it has no effect.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// # ringway::fs::write(dir.join("new"), b"entries".to_vec()).await?;
/// ringway::fs::rename(dir.join("new"), dir.join("7.log")).await?;
/// ringway::fs::sync_dir(dir).await?;
/// # Ok(()) }
/// ```
///
/// Errors: those of `open(2)` (the directory must be readable); NotADirectory; those of `fsync(2)`,
/// which the kernel reports once. If the future is dropped, it may still be synced.
pub async fn sync_dir(path: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.fs().sync_dir(path).await
}

impl Fs<'_> {
    /// [`create_dir`] on this engine.
    pub async fn create_dir(self, path: impl AsRef<Path>) -> io::Result<()> {
        DirBuilder::new().engine(self.engine).create(path).await
    }

    /// [`create_dir_all`] on this engine.
    pub async fn create_dir_all(self, path: impl AsRef<Path>) -> io::Result<()> {
        DirBuilder::new().recursive(true).engine(self.engine).create(path).await
    }

    /// [`sync_dir`] on this engine.
    pub async fn sync_dir(self, path: impl AsRef<Path>) -> io::Result<()> {
        self.open_dir(path.as_ref()).await?.sync_all().await
    }

    /// [`remove_dir_all`] on this engine.
    pub async fn remove_dir_all(self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref().to_owned();
        self.engine.call(move || remove_all(&path)).await
    }

    /// Opens a directory, to list it, to sync it, or to begin paths at it.
    pub(super) async fn open_dir(self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).directory().engine(self.engine);
        options.open(path).await
    }
}

/// Options for creating directories; as [`std::fs::DirBuilder`].
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
    engine: Option<Engine>,
}

impl Default for DirBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl DirBuilder {
    /// Returns options for a single directory with permissions 0o777 less the umask.
    pub fn new() -> Self {
        Self { recursive: false, mode: 0o777, engine: None }
    }

    /// Also creates missing parents, with the same permissions. Then an existing directory is not
    /// an error.
    pub fn recursive(&mut self, yes: bool) -> &mut Self {
        self.recursive = yes;
        self
    }

    /// Sets the permissions, before the umask. Windows ignores them.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Sets the engine. Default: the global one.
    pub fn engine(&mut self, engine: &Engine) -> &mut Self {
        self.engine = Some(engine.clone());
        self
    }

    /// Creates the directory.
    ///
    /// Errors: those of `mkdir(2)`. After an error, or if the future is dropped, directories
    /// created so far remain.
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let engine = match &self.engine {
            Some(engine) => engine,
            None => Engine::global()?,
        };
        if self.recursive {
            create_all(engine, path, self.mode).await
        } else {
            engine.run(op::mkdir(path, self.mode)).await
        }
    }
}

/// As std does it: goes up to the first directory that exists or can be created, and down again.
async fn create_all(engine: &Engine, path: &Path, mode: u32) -> io::Result<()> {
    let make = |path: &Path| engine.run(op::mkdir(path, mode));
    let mut missing = Vec::new();
    for above in path.ancestors() {
        // The root exists, and so does the directory where a relative path begins.
        if above == Path::new("") || above.parent().is_none() {
            break;
        }
        match make(above).await {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(above),
            Err(_) if is_there(engine, above).await => break,
            Err(error) => return Err(error),
        }
    }
    // Tried once each: if another program removes one of them meanwhile, that is an error.
    for below in missing.into_iter().rev() {
        if let Err(error) = make(below).await
            && !is_there(engine, below).await
        {
            return Err(error);
        }
    }
    Ok(())
}

/// Whether a directory that could not be created exists, whatever the error says: a server, an
/// automounter or a filter may refuse before they look.
async fn is_there(engine: &Engine, path: &Path) -> bool {
    engine.fs().metadata(path).await.is_ok_and(|found| found.is_dir())
}

/// Removes a directory and everything below it. If the path is a symbolic link, the link itself is
/// removed. Links are never followed, even if someone replaces directories by links meanwhile.
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
/// Errors: the first error of `open(2)`, `getdents64(2)` or `unlinkat(2)`; the rest then remains.
/// EMFILE if directories are nested deeper than the limit of descriptors. If the future is dropped
/// after the removal has started, the removal continues to its end.
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.fs().remove_dir_all(path).await
}
