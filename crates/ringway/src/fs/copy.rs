//! Copying files.

#[cfg(all(target_os = "linux", not(ringway_portable)))]
mod kernel;

use super::extend::is_unsupported;
use super::path::{Fs, stat};
use super::{File, Metadata, OpenOptions, Permissions};
use crate::engine::op_result::invalid;
use crate::{Buffer, Engine};
use ringway_core::op;
use std::io;
use std::path::Path;

/// Bytes per read and write where the kernel does not copy.
const COPY_CHUNK: u64 = 1 << 20;

/// Copies a file's content and permissions. Returns the number of bytes. An existing file is
/// overwritten, and keeps its owner and group.
///
/// On Linux the kernel copies the data (`copy_file_range(2)`, which shares it where the file system
/// can). Where the kernel does not, the rest is read and written. The source is read up to its
/// current end, which is where a read finds it, whatever length a server states. As
/// [`std::fs::copy`], but stricter: nothing is changed before it is clear that the source can be
/// read and that the target is another file.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let target = dir.path().join("copy");
/// let bytes = ringway::fs::copy("/etc/passwd", &target).await?;
/// assert_eq!(ringway::fs::metadata(&target).await?.len(), bytes);
/// # Ok(()) }
/// ```
///
/// Errors: InvalidInput if the source is not a regular file, or if the target is the same file
/// under any name (std truncates it then); those of `open(2)`, `fchmod(2)`, `ftruncate(2)`,
/// `read(2)` and `write(2)`, and those of `close(2)` of the target, where a network file system may
/// report that it could not write. After an error, or if the future is dropped, a part may have
/// been copied.
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    Engine::global()?.fs().copy(from, to).await
}

/// As [`copy`], without leaving pages of either file in the page cache, where the kernel and the
/// file systems have that ([`File::with_dont_cache`]). It reads and writes, since what the kernel
/// copies leaves pages: data is never shared with the source.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let target = dir.path().join("copy");
/// let bytes = ringway::fs::copy_dont_cache("/etc/passwd", &target).await?;
/// assert_eq!(ringway::fs::metadata(&target).await?.len(), bytes);
/// # Ok(()) }
/// ```
///
/// Errors: as for [`copy`].
pub async fn copy_dont_cache(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    Engine::global()?.fs().copy_dont_cache(from, to).await
}

impl Fs<'_> {
    /// [`copy`] on this engine.
    pub async fn copy(self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
        copy_on(self.engine, from.as_ref(), to.as_ref(), false).await
    }

    /// [`copy_dont_cache`] on this engine.
    pub async fn copy_dont_cache(
        self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> io::Result<u64> {
        copy_on(self.engine, from.as_ref(), to.as_ref(), true).await
    }
}

async fn copy_on(engine: &Engine, from: &Path, to: &Path, dont_cache: bool) -> io::Result<u64> {
    let irregular = || invalid("copy: the source is not a regular file");
    // Checked before it is opened: opening a FIFO would wait, and opening a device may have
    // effects.
    if !stat(engine, op::statx(from)).await?.is_file() {
        return Err(irregular());
    }
    let from = engine.open(from).await?.with_dont_cache(dont_cache);
    let source = from.metadata().await?;
    if !source.is_file() {
        return Err(irregular());
    }
    let mut options = OpenOptions::new();
    let to = options.write(true).create(true).mode(source.mode()).engine(engine).open(to).await?;
    let to = to.with_dont_cache(dont_cache);
    let target = to.metadata().await?;
    if target.is_same_file(&source) {
        return Err(invalid("copy: source and target are the same file"));
    }
    // Do not change the content or permissions of a device or pipe.
    if target.is_file() {
        let wanted = permissions(&from, &source).await?;
        if target.is_empty() && to.core().is_local() {
            to.set_permissions(wanted).await?;
        } else {
            // Whoever may not change the permissions changes nothing. Nobody gets a permission
            // while the old content is there.
            to.set_permissions(common_permissions(&target, &wanted)).await?;
            match to.set_len(0).await {
                // A server may have other data than it states, which would stay behind the copy; or
                // it cannot truncate files, and has made this one.
                Err(error) if target.is_empty() && is_unsupported(&error) => {}
                truncated => truncated?,
            }
            to.set_permissions(wanted).await?;
        }
    }
    let copied = copy_data(&from, &to, target.is_file() && !dont_cache).await;
    let ended = to.end().await;
    copied.and_then(|bytes| ended.map(|()| bytes))
}

/// Copies the data, in the kernel if that works for these files.
async fn copy_data(from: &File, to: &File, by_kernel: bool) -> io::Result<u64> {
    #[cfg(all(target_os = "linux", not(ringway_portable)))]
    if by_kernel {
        let done = kernel::copy(from, to).await?;
        // Whether that is all, only a read knows.
        return copy_rest(from, to, done).await;
    }
    let _ = by_kernel;
    copy_rest(from, to, 0).await
}

/// The permissions of the source.
#[cfg(unix)]
async fn permissions(_: &File, source: &Metadata) -> io::Result<Permissions> {
    Ok(source.permissions())
}

/// What both permit. (The bits for other than permissions are left out.)
#[cfg(unix)]
fn common_permissions(target: &Metadata, wanted: &Permissions) -> Permissions {
    use std::os::unix::fs::PermissionsExt;
    Permissions::from_mode(target.mode() & wanted.mode() & 0o777)
}

/// On Windows permissions do not say who may read.
#[cfg(windows)]
fn common_permissions(_: &Metadata, wanted: &Permissions) -> Permissions {
    wanted.clone()
}

/// The permissions of the source, which only the standard library can make on Windows.
#[cfg(windows)]
async fn permissions(from: &File, _: &Metadata) -> io::Result<Permissions> {
    let core = from.core().clone();
    let found = from.engine().call(move || core.with_std(std::fs::File::metadata)).await?;
    Ok(found.permissions())
}

/// Reads and writes from `done` on, up to the end of the source.
async fn copy_rest(from: &File, to: &File, mut done: u64) -> io::Result<u64> {
    let mut buffer = Buffer::from(vec![0; COPY_CHUNK as usize]);
    loop {
        let (read, full) = from.read_buffer(buffer, done.into(), true).await;
        let read = read?;
        if read == 0 {
            return Ok(done);
        }
        let (written, back) = to.write_all_at(full.slice(..read), done).await;
        written?;
        done += read as u64;
        if (read as u64) < COPY_CHUNK {
            return Ok(done);
        }
        buffer = back;
    }
}
