//! Functions that take paths: those of [`std::fs`], on the global engine, and as methods of [`Fs`]
//! on another one. Directories, copies and atomic writes have files of their own.

use super::OpenOptions;
use super::open::{in_place, learn_mounts};
use crate::Engine;
use crate::buffer::Content;
use crate::engine::op_result;
use crate::engine::{Lane, OpFuture, Schedule};
use ringway_core::op::{self, Metadata};
use ringway_core::{Buffer, Operation, errno};
use std::fs::Permissions;
use std::io;
use std::path::{Path, PathBuf};

/// Contents of up to this many bytes are written by one operation of one thread. Longer ones are
/// worth several, which run at the same time.
const WHOLE: usize = 1 << 20;

/// The functions of [`fs`](super) on one engine, from [`Engine::fs`]. Each method does what the
/// function of the same name does.
///
/// ```
/// use ringway::Engine;
/// # fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// let engine = Engine::builder().in_flight(64).build()?;
/// let fs = engine.fs();
/// futures::executor::block_on(async {
///     fs.create_dir_all(dir.path().join("a/b")).await?;
///     fs.write(dir.path().join("a/b/file"), b"text".to_vec()).await?;
///     fs.rename(dir.path().join("a/b/file"), dir.path().join("file")).await?;
///     assert_eq!(fs.read(dir.path().join("file")).await?, b"text");
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fs<'a> {
    pub(super) engine: &'a Engine,
}

impl Engine {
    /// Returns the functions of [`fs`](crate::fs) on this engine.
    pub fn fs(&self) -> Fs<'_> {
        Fs { engine: self }
    }
}

impl Fs<'_> {
    /// [`read`](super::read()) on this engine.
    pub async fn read(self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let file = self.engine.open(path).await?;
        // As in the standard library, what a server does not say is found by reading.
        let len = file.metadata().await.map_or(0, |found| found.len());
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        file.read_whole(len).await
    }

    /// [`read_to_string`] on this engine.
    pub async fn read_to_string(self, path: impl AsRef<Path>) -> io::Result<String> {
        let bytes = self.read(path).await?;
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// [`write`](super::write()) on this engine.
    pub async fn write(self, path: impl AsRef<Path>, content: impl Content) -> io::Result<()> {
        let path = path.as_ref();
        let mut content: Buffer = content.into_content();
        if content.len() <= WHOLE {
            let operation = op::write_file(path, content);
            let schedule = Schedule::Immediate(Lane::Call);
            let ended = OpFuture::new(&self.engine.inner, schedule, operation).await;
            let (written, buffer) = op_result::transfer(ended);
            match written {
                // It leads to a FIFO or the like, which was not opened.
                Err(error) if error.raw_os_error() == Some(errno::ESPIPE) => content = buffer,
                written => return written.map(drop),
            }
        }
        let mut options = OpenOptions::new();
        let file =
            options.write(true).create(true).truncate(true).engine(self.engine).open(path).await?;
        let written = file.write_all_at(content, 0).await.0;
        let ended = file.end().await;
        written.and(ended)
    }

    /// [`rename`] on this engine.
    pub async fn rename(self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.engine.run(op::rename(from, to)).await
    }

    /// [`remove_file`] on this engine.
    pub async fn remove_file(self, path: impl AsRef<Path>) -> io::Result<()> {
        self.engine.run(op::unlink(path)).await
    }

    /// [`remove_dir`] on this engine.
    pub async fn remove_dir(self, path: impl AsRef<Path>) -> io::Result<()> {
        self.engine.run(op::rmdir(path)).await
    }

    /// [`hard_link`] on this engine.
    pub async fn hard_link(self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.engine.run(op::link(from, to)).await
    }

    /// [`symlink`] on this engine.
    pub async fn symlink(self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        self.engine.run(op::symlink(target, link)).await
    }

    /// [`metadata`] on this engine.
    pub async fn metadata(self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.look_up(path.as_ref(), true).await
    }

    /// [`symlink_metadata`] on this engine.
    pub async fn symlink_metadata(self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.look_up(path.as_ref(), false).await
    }

    async fn look_up(self, path: &Path, follow: bool) -> io::Result<Metadata> {
        match in_place(self.engine, path, |mount| op::metadata_now(path, mount, follow)).await {
            Some(found) => Ok(found),
            None => {
                let operation = if follow { op::statx(path) } else { op::lstat(path) };
                let found = stat(self.engine, operation).await?;
                learn_mounts(self.engine, path);
                Ok(found)
            }
        }
    }

    /// [`exists`] on this engine.
    pub async fn exists(self, path: impl AsRef<Path>) -> io::Result<bool> {
        match self.metadata(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// [`try_exists`] on this engine.
    pub async fn try_exists(self, path: impl AsRef<Path>) -> io::Result<bool> {
        self.exists(path).await
    }

    /// [`read_link`] on this engine.
    pub async fn read_link(self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = path.as_ref().to_owned();
        self.engine.call(move || std::fs::read_link(path)).await
    }

    /// [`canonicalize`] on this engine.
    pub async fn canonicalize(self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = path.as_ref().to_owned();
        self.engine.call(move || std::fs::canonicalize(path)).await
    }

    /// [`set_permissions`] on this engine.
    pub async fn set_permissions(
        self,
        path: impl AsRef<Path>,
        permissions: Permissions,
    ) -> io::Result<()> {
        let path = path.as_ref().to_owned();
        self.engine.call(move || std::fs::set_permissions(path, permissions)).await
    }
}

/// Reads the whole content of a file.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let users = ringway::fs::read("/etc/passwd").await?;
/// assert!(users.starts_with(b"root"));
/// # Ok(()) }
/// ```
///
/// Errors: those of `open(2)` and `read(2)`; OutOfMemory for a file that does not fit into memory.
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    Engine::global()?.fs().read(path).await
}

/// As [`read()`], and returns the content as text.
///
/// Errors: InvalidData if it is not UTF-8.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    Engine::global()?.fs().read_to_string(path).await
}

/// Creates a file with this content, or replaces the content of an existing one. The content may be
/// borrowed, which copies it, or a buffer, which does not ([`Content`]). After an error, or
/// if the future is dropped, the file may have a part of it; [`write_atomic`](super::write_atomic)
/// writes all or nothing.
///
/// Errors: those of `open(2)` and `write(2)`, and, unlike [`std::fs::write`], those of `close(2)`,
/// where a network file system may report that it could not write.
pub async fn write(path: impl AsRef<Path>, content: impl Content) -> io::Result<()> {
    Engine::global()?.fs().write(path, content).await
}

/// Renames a file or directory, replacing what has the new name: `rename(2)`.
///
/// Errors: those of `rename(2)`. If the future is dropped, it may still be renamed.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.fs().rename(from, to).await
}

/// Removes a file or a link: `unlink(2)`.
///
/// Errors: those of `unlink(2)`. If the future is dropped, it may still be removed.
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.fs().remove_file(path).await
}

/// Removes an empty directory: `rmdir(2)`.
///
/// Errors: those of `rmdir(2)`. If the future is dropped, it may still be removed.
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.fs().remove_dir(path).await
}

/// Creates a hard link `to` to the file `from`: `link(2)`.
///
/// Errors: those of `link(2)`. If the future is dropped, it may still be created.
pub async fn hard_link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.fs().hard_link(from, to).await
}

/// Creates a symbolic link at `link` that points to `target`: `symlink(2)`.
///
/// Errors: those of `symlink(2)`. If the future is dropped, it may still be created.
pub async fn symlink(target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.fs().symlink(target, link).await
}

/// Returns length, type, permissions and times of the file at a path, following symbolic links:
/// `statx(2)`. What the kernel's name cache has of a local file system is found in place.
///
/// Errors: those of `statx(2)`, such as NotFound, and PermissionDenied if a directory of the path
/// cannot be searched.
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    Engine::global()?.fs().metadata(path).await
}

/// As [`metadata`], but does not follow a symbolic link at the end of the path: `lstat(2)`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// assert!(ringway::fs::symlink_metadata("/proc/self").await?.is_symlink());
/// # Ok(()) }
/// ```
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    Engine::global()?.fs().symlink_metadata(path).await
}

pub(super) async fn stat(engine: &Engine, operation: Operation) -> io::Result<Metadata> {
    op_result::metadata(
        OpFuture::new(&engine.inner, Schedule::Immediate(Lane::Call), operation).await,
    )
}

/// Whether the path leads to something; false for a dangling symbolic link.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// assert!(ringway::fs::exists("/etc/passwd").await?);
/// assert!(!ringway::fs::exists("/etc/passwd.missing").await?);
/// # Ok(()) }
/// ```
///
/// Errors: those of `statx(2)` other than NotFound, such as PermissionDenied if a directory of the
/// path cannot be searched.
pub async fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    Engine::global()?.fs().exists(path).await
}

/// As [`exists`], under tokio's name.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    Engine::global()?.fs().try_exists(path).await
}

/// Returns the target of a symbolic link, which need not exist: `readlink(2)`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let link = dir.path().join("current");
/// ringway::fs::symlink("v2", &link).await?;
/// assert_eq!(ringway::fs::read_link(&link).await?.as_os_str(), "v2");
/// # Ok(()) }
/// ```
///
/// Errors: those of `readlink(2)`; InvalidInput (EINVAL) if the path is not a symbolic link.
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    Engine::global()?.fs().read_link(path).await
}

/// Returns the absolute path without symbolic links, `.` and `..`: `realpath(3)`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// assert_eq!(ringway::fs::canonicalize("/usr/../etc/.").await?.as_os_str(), "/etc");
/// # Ok(()) }
/// ```
///
/// Errors: those of `realpath(3)`, such as NotFound and NotADirectory.
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    Engine::global()?.fs().canonicalize(path).await
}

/// Changes the permissions of a file, following symbolic links: `chmod(2)`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("key");
/// # ringway::fs::write(&path, b"secret".to_vec()).await?;
/// use std::os::unix::fs::PermissionsExt;
/// ringway::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).await?;
/// assert!(ringway::fs::metadata(&path).await?.permissions().readonly());
/// # Ok(()) }
/// ```
///
/// Errors: those of `chmod(2)`. If the future is dropped, they may still be changed.
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    Engine::global()?.fs().set_permissions(path, permissions).await
}
