//! What is done with paths: the functions of [`std::fs`], without blocking. They use the global engine.

use super::outcome::invalid;
use super::{File, OpenOptions, outcome};
use crate::buffer::IoBuffer;
use crate::engine::{Flight, Lane, Turn};
use crate::{Buffer, Engine};
use ringway_core::op::{self, Metadata};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The whole content of a file.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let users = ringway::fs::read("/etc/passwd").await?;
/// assert!(users.starts_with(b"root"));
/// # Ok(()) }
/// ```
///
/// Errors: those of `open(2)` and `read(2)`; OutOfMemory for a file that does not fit.
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = File::open(path).await?;
    let len = usize::try_from(file.metadata().await?.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
    file.read_whole(len).await
}

/// As [`read()`], as text.
///
/// Errors: InvalidData when it is not UTF-8.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path).await?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Makes a file with this content, or replaces the content of one. When it fails, or is dropped, the file may have a part of
/// it: for all or nothing there is [`write_atomic`].
///
/// Errors: those of `open(2)` and `write(2)`.
pub async fn write(path: impl AsRef<Path>, content: impl IoBuffer) -> io::Result<()> {
    let file = File::create(path).await?;
    file.write_all_at(content, 0).await.0
}

/// Replaces a file's content, or makes the file, so that at any moment, and after a power cut, it has either the old content or
/// the new: a new file beside it is written, synced and renamed over it, and the directory is synced. The old one's permissions are
/// kept (its owner is not, nor are its other names). A symbolic link is replaced itself.
///
/// Errors: those of `open(2)`, `write(2)`, `fsync(2)`, `rename(2)`; the old content is kept then, unless only the last step,
/// syncing the directory, failed. Dropped, the old content is kept too, or the new is there.
pub async fn write_atomic(path: impl AsRef<Path>, content: impl IoBuffer) -> io::Result<()> {
    let path = path.as_ref();
    let name = path.file_name().ok_or_else(|| invalid("write_atomic: the path names no file"))?;
    let dir = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let old = metadata(path).await;
    let beside = Beside::new(dir, name);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if let Ok(old) = &old {
        options.mode(old.mode() & PERMISSIONS);
    }
    let file = options.open(&beside.path).await?;
    let beside = beside.made();
    if let Ok(old) = &old {
        // The umask may have taken something away.
        rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(old.mode() & PERMISSIONS))?;
    }
    file.write_all_at(content, 0).await.0?;
    file.sync_all().await?;
    rename(&beside.path, path).await?;
    beside.gone();
    File::open(dir).await?.sync_all().await
}

const PERMISSIONS: u32 = 0o7777;

/// A file beside another one, which is removed unless it has been renamed.
struct Beside {
    path: PathBuf,
    exists: bool,
}

impl Beside {
    fn new(dir: &Path, name: &std::ffi::OsStr) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut own = OsString::from(".");
        // Names have at most 255 bytes.
        own.push(&*name.to_string_lossy().chars().take(40).collect::<String>());
        own.push(format!(".{}.{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        Self { path: dir.join(own), exists: false }
    }

    fn made(mut self) -> Self {
        self.exists = true;
        self
    }

    fn gone(mut self) {
        self.exists = false;
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.exists {
            // Nobody waits for it any more: removed here and now, or left.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Bytes that a copy moves at a time.
const COPY: u64 = 1 << 20;

/// Copies a file's content and permissions; how many bytes. An existing file is overwritten.
///
/// Errors: those of `open(2)`, `read(2)` and `write(2)`; a part may have been copied.
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let from = File::open(from).await?;
    let mode = from.metadata().await?.mode() & PERMISSIONS;
    let to = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(to).await?;
    rustix::fs::fchmod(&to, rustix::fs::Mode::from_raw_mode(mode))?;
    let mut done = 0;
    let mut buffer = Buffer::from(vec![0; COPY as usize]);
    loop {
        let (read, full) = from.read_buffer(buffer, done.into(), true).await;
        let read = read?;
        let (written, back) = to.write_all_at(full.slice(..read), done).await;
        written?;
        done += read as u64;
        if (read as u64) < COPY {
            return Ok(done);
        }
        buffer = back;
    }
}

/// Renames, replacing what has the new name: `rename(2)`.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.run(op::rename(from, to)).await
}

/// Removes a file, or a link: `unlink(2)`.
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.run(op::unlink(path)).await
}

/// Removes an empty directory: `rmdir(2)`.
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.run(op::rmdir(path)).await
}

/// Makes a directory: `mkdir(2)`, with the permissions that the umask leaves of 0o777.
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.run(op::mkdir(path, 0o777)).await
}

/// Makes a directory, and those above it that are missing. One that is there is no error.
///
/// Errors: those of `mkdir(2)`; what was made so far is left.
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let mut missing = vec![path];
    while let Some(next) = missing.last().copied() {
        if next == Path::new("") {
            missing.pop();
            continue;
        }
        match create_dir(next).await {
            Ok(()) => _ = missing.pop(),
            Err(error) if error.kind() == io::ErrorKind::NotFound && next.parent().is_some() => {
                missing.extend(next.parent());
                // Without it, a directory that another removes as fast would be made for ever.
                if missing.len() > 4096 {
                    return Err(error);
                }
            }
            Err(_) if metadata(next).await.is_ok_and(|found| found.is_dir()) => _ = missing.pop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives a file a further name: `link(2)`.
pub async fn hard_link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.run(op::link(from, to)).await
}

/// Makes a symbolic link at `link` that leads to `target`: `symlink(2)`.
pub async fn symlink(target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    Engine::global()?.run(op::symlink(target, link)).await
}

/// Length, type, permissions, times of what a path leads to: `statx(2)`.
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    stat(op::statx(path)).await
}

/// As [`metadata`], of a symbolic link itself.
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    // The working directory, as a directory to begin at.
    let here = OpenOptions::new().read(true).custom_flags(O_PATH).open(".").await?;
    stat(op::statx_at(here.core(), path, AT_SYMLINK_NOFOLLOW)).await
}

const O_PATH: i32 = rustix::fs::OFlags::PATH.bits() as i32;
const AT_SYMLINK_NOFOLLOW: i32 = rustix::fs::AtFlags::SYMLINK_NOFOLLOW.bits() as i32;

async fn stat(operation: ringway_core::Operation) -> io::Result<Metadata> {
    let engine = Engine::global()?;
    outcome::metadata(Flight::new(&engine.inner, Turn::Now(Lane::Call), operation).await)
}

/// Whether a path leads to something.
///
/// Errors: where that cannot be known, as when a directory on the way may not be searched.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    match metadata(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
