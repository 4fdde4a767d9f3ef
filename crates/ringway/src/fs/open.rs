//! Options for opening a file.

use super::{File, Metadata, local};
use crate::Engine;
use crate::engine::op_result;
use crate::engine::op_result::opened;
use crate::engine::{Lane, OpFuture, Schedule, poll_proceed};
use ringway_core::refusal::Feature;
use ringway_core::{NotOpened, Refusal, errno, op};
use std::future::poll_fn;
use std::io;
use std::ops::{BitOr, BitOrAssign};
use std::path::Path;

/// Options for opening a file: those of [`std::fs::OpenOptions`], and more.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("table");
/// use ringway::fs::OpenOptions;
/// let file = OpenOptions::new().read(true).write(true).create(true).open(&path).await?;
/// let (written, _) = file.write_all_at(b"hello".to_vec(), 0).await;
/// written?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    inner: ringway_core::OpenOptions,
    dir: Option<File>,
    engine: Option<Engine>,
    resolve: Resolve,
    dont_cache: bool,
}

/// What a path may lead through when it is opened: the `RESOLVE_*` flags of `openat2(2)`, for
/// [`OpenOptions::resolve`]. Combine them with `|`.
///
/// The kernel applies them to every component of the path in one call, so the path cannot be
/// changed in between. They need kernel 5.6 and a seccomp filter that allows `openat2(2)`. Without
/// that, opening fails with [`Unsupported`](io::ErrorKind::Unsupported); it never opens what the
/// flags exclude. Systems other than Linux do not have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resolve(u64);

impl Resolve {
    /// The path must stay below the directory where it begins: no `..` above it, and no absolute
    /// path or absolute symbolic link. Otherwise the error is EXDEV.
    pub const BENEATH: Self = Self(0x08);
    /// The directory where the path begins is its root: `..` stops there, and absolute paths and
    /// symbolic links begin there. Not together with [`BENEATH`](Self::BENEATH) (EINVAL).
    pub const IN_ROOT: Self = Self(0x10);
    /// No symbolic link in the path (ELOOP). [`nofollow`](OpenOptions::nofollow) checks the last
    /// component only.
    pub const NO_SYMLINKS: Self = Self(0x04);
    /// No magic link such as those in `/proc/self/fd`, which lead to files rather than paths
    /// (ELOOP).
    pub const NO_MAGICLINKS: Self = Self(0x02);
    /// The path must not cross mount points, in either direction (EXDEV).
    pub const NO_XDEV: Self = Self(0x01);
    /// The kernel must have the whole path in its name cache (5.12); otherwise the error is EAGAIN,
    /// after some retries. Not for opens that create or truncate a file (EAGAIN).
    pub const CACHED: Self = Self(0x20);
}

impl BitOr for Resolve {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Resolve {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl OpenOptions {
    /// Returns options with nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens for reading.
    pub fn read(&mut self, yes: bool) -> &mut Self {
        self.inner.read(yes);
        self
    }

    /// Opens for writing.
    pub fn write(&mut self, yes: bool) -> &mut Self {
        self.inner.write(yes);
        self
    }

    /// Appends: every write goes to the end of the file, whatever its offset.
    pub fn append(&mut self, yes: bool) -> &mut Self {
        self.inner.append(yes);
        self
    }

    /// Truncates an existing file to length 0.
    pub fn truncate(&mut self, yes: bool) -> &mut Self {
        self.inner.truncate(yes);
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(&mut self, yes: bool) -> &mut Self {
        self.inner.create(yes);
        self
    }

    /// Creates the file, and fails with EEXIST if it exists.
    pub fn create_new(&mut self, yes: bool) -> &mut Self {
        self.inner.create_new(yes);
        self
    }

    /// Sets the permissions of a created file, before the umask. Default 0o666. Windows ignores
    /// them.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.inner.mode(mode);
        self
    }

    /// Opens for direct I/O (`O_DIRECT`; `F_NOCACHE` on macOS), which bypasses the page cache.
    /// Reads may have any offset and length; writes must be aligned ([`File::alignment`]). Opening
    /// then fails with InvalidInput and a [`Refusal`] if the file system has no direct I/O, and on
    /// Windows with Unsupported.
    pub fn direct(&mut self, yes: bool) -> &mut Self {
        self.inner.direct(yes);
        self
    }

    /// Transfers of the file leave no pages of their own in the page cache, where the kernel and
    /// the file system have that: [`File::with_dont_cache`]. Opening a file does not fail for it.
    pub fn dont_cache(&mut self, yes: bool) -> &mut Self {
        self.dont_cache = yes;
        self
    }

    /// Fails with ELOOP if the last component of the path is a symbolic link.
    pub fn nofollow(&mut self, yes: bool) -> &mut Self {
        self.inner.nofollow(yes);
        self
    }

    /// Fails with ENOTDIR if the path does not lead to a directory.
    pub(super) fn directory(&mut self) -> &mut Self {
        self.inner.directory(true);
        self
    }

    /// Sets further `O_*` flags of `open(2)`, instead of those of an earlier call. An access mode
    /// in them (`O_WRONLY`, `O_RDWR`) is ignored. On Windows the flags are those of Linux on
    /// x86-64; flags that Windows has nothing for are ignored.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.inner.custom_flags(flags);
        self
    }

    /// Restricts what the path may lead through: see [`Resolve`]. Default: no restriction.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("index.html"), b"hello")?;
    /// # let name = "index.html";
    /// use ringway::fs::{File, OpenOptions, Resolve};
    /// let root = File::open(dir.path()).await?;
    /// let mut served = OpenOptions::new();
    /// served.read(true).in_dir(&root).resolve(Resolve::BENEATH | Resolve::NO_MAGICLINKS);
    /// let file = match served.open(name).await {
    ///     // no openat2(2) here
    ///     Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(()),
    ///     opened => opened?,
    /// };
    /// # assert_eq!(file.read(0..9).await?, b"hello");
    /// assert!(served.open("../elsewhere").await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn resolve(&mut self, through: Resolve) -> &mut Self {
        self.inner.resolve(through.0);
        self.resolve = through;
        self
    }

    /// Begins a relative path at this directory instead of the working directory.
    pub fn in_dir(&mut self, dir: &File) -> &mut Self {
        self.dir = Some(dir.clone());
        self
    }

    /// Sets the engine that runs the file's operations. Default: the engine of the directory, or
    /// the global one.
    pub fn engine(&mut self, engine: &Engine) -> &mut Self {
        self.engine = Some(engine.clone());
        self
    }

    /// Opens the file. Opening a FIFO waits for its other end, except that io_uring opens a FIFO
    /// for reading at once.
    ///
    /// Errors: those of `openat2(2)`; Unsupported if [`resolve`](Self::resolve) is set and
    /// `openat2(2)` is not available; InvalidInput for contradictory options and for a path with a
    /// NUL byte. If the future is dropped, no descriptor is left open, but a file may have been
    /// created.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let (engine, path) = (self.chosen_engine()?, path.as_ref());
        match self.open_cached(&engine, path).await {
            Some((file, _)) => Ok(self.opened(file, engine)),
            None => self.open_uncached(engine, path).await,
        }
    }

    /// Opens the file and returns it with its metadata: [`open`](Self::open), then
    /// [`File::metadata`]. For a file whose path is in the kernel's name cache it makes one system
    /// call less.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use ringway::fs::OpenOptions;
    /// let (file, found) = OpenOptions::new().read(true).open_with_metadata("/etc/passwd").await?;
    /// assert_eq!(file.read(0..found.len()).await?.len() as u64, found.len());
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: those of both. If the future is dropped, no descriptor is left open.
    pub async fn open_with_metadata(&self, path: impl AsRef<Path>) -> io::Result<(File, Metadata)> {
        let (engine, path) = (self.chosen_engine()?, path.as_ref());
        if let Some((file, metadata)) = self.open_cached(&engine, path).await {
            return Ok((self.opened(file, engine), metadata));
        }
        let file = self.open_uncached(engine, path).await?;
        let metadata = file.metadata().await?;
        Ok((file, metadata))
    }

    fn chosen_engine(&self) -> io::Result<Engine> {
        Ok(match (&self.engine, &self.dir) {
            (Some(engine), _) => engine.clone(),
            (None, Some(dir)) => dir.engine().clone(),
            (None, None) => Engine::global()?.clone(),
        })
    }

    /// Opens a file in place if that does not wait; `None` if that is not known.
    async fn open_cached(
        &self,
        engine: &Engine,
        path: &Path,
    ) -> Option<(ringway_core::File, Metadata)> {
        if self.dir.is_some() {
            return None;
        }
        in_place(engine, path, |mount| self.inner.open_now(path, mount)).await
    }

    /// Opens a file with an operation of the engine.
    async fn open_uncached(&self, engine: Engine, path: &Path) -> io::Result<File> {
        // Opening a FIFO may wait forever. FIFOs may use half of the lane's capacity, and after
        // that the lane of operations that wait.
        let waits = engine.inner.is_half_used(Lane::Open) && self.is_fifo(&engine, path).await;
        let lane = if waits { Lane::Wait } else { Lane::Open };
        let operation = match &self.dir {
            Some(dir) => op::open_at(dir.core(), path, &self.inner),
            None => op::open(path, &self.inner),
        };
        let file = opened(OpFuture::new(&engine.inner, Schedule::Immediate(lane), operation).await);
        let file = file.map_err(|error| match self.resolve {
            Resolve(0) if self.inner.is_direct() => explain_direct(error),
            Resolve(0) => error,
            _ => explain_resolve(error),
        })?;
        learn_mounts(&engine, path);
        Ok(self.opened(file, engine))
    }

    fn opened(&self, file: ringway_core::File, engine: Engine) -> File {
        File::new(file, engine).with_dont_cache(self.dont_cache)
    }

    /// Whether the path leads to a FIFO, as far as `statx(2)` can determine.
    async fn is_fifo(&self, engine: &Engine, path: &Path) -> bool {
        let look = match &self.dir {
            Some(dir) => op::statx_at(dir.core(), path, 0),
            None => op::statx(path),
        };
        let found = op_result::metadata(
            OpFuture::new(&engine.inner, Schedule::Immediate(Lane::Call), look).await,
        );
        found.is_ok_and(|found| found.file_type().is_fifo())
    }
}

/// After a path was not looked up in place: prepares that for the next one.
pub(super) fn learn_mounts(engine: &Engine, path: &Path) {
    if engine.inner.try_cached && path.is_absolute() {
        local::learn();
    }
}

/// Looks a path up in place, if it leads to a local mount.
pub(super) async fn in_place<T>(
    engine: &Engine,
    path: &Path,
    look: impl FnOnce(u64) -> Result<T, NotOpened>,
) -> Option<T> {
    if !engine.inner.try_cached || !engine.inner.is_current() {
        return None;
    }
    let mount = local::mount_of(path)?;
    poll_fn(|cx| poll_proceed(cx, 0)).await;
    match look(mount) {
        Ok(found) => Some(found),
        Err(NotOpened::OtherMount) => {
            local::forget();
            None
        }
        Err(_) => None,
    }
}

impl Engine {
    /// Opens a file for reading, with this engine for its operations. See [`File::open`].
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).engine(self).open(path).await
    }

    /// Runs an operation that is not on an open file.
    pub(super) async fn run(&self, operation: ringway_core::Operation) -> io::Result<()> {
        op_result::nothing(
            OpFuture::new(&self.inner, Schedule::Immediate(Lane::Call), operation).await,
        )
    }
}

/// Explains an open that failed because the file system has no direct I/O.
fn explain_direct(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno::EINVAL) => {
            io::Error::new(error.kind(), Refusal::new(Feature::DirectIo, errno::EINVAL))
        }
        _ => error,
    }
}

/// Explains an open that failed because `openat2(2)` is missing, which only
/// [`OpenOptions::resolve`] needs.
#[cfg(all(target_os = "linux", not(ringway_portable)))]
fn explain_resolve(error: io::Error) -> io::Error {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    use rustix::io::Errno;
    let is_refused = || {
        let (flags, through) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::empty());
        let opened = openat2(CWD, c"/", flags, Mode::empty(), through);
        matches!(opened, Err(Errno::NOSYS | Errno::PERM))
    };
    let errno = Errno::from_io_error(&error);
    if !matches!(errno, Some(Errno::NOSYS | Errno::PERM)) || !is_refused() {
        return error;
    }
    let text = format!(
        "OpenOptions::resolve needs openat2(2): use kernel 5.6 or later, and a seccomp filter \
         that allows it ({error})"
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Explains an open that failed because only Linux has `openat2(2)`.
#[cfg(any(not(target_os = "linux"), ringway_portable))]
fn explain_resolve(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::Unsupported => io::Error::new(
            io::ErrorKind::Unsupported,
            "OpenOptions::resolve needs openat2(2), which only Linux has",
        ),
        _ => error,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::fs::ResolveFlags;

    #[test]
    fn flags_are_those_of_the_kernel() {
        for (flag, kernels) in [
            (Resolve::BENEATH, ResolveFlags::BENEATH),
            (Resolve::IN_ROOT, ResolveFlags::IN_ROOT),
            (Resolve::NO_SYMLINKS, ResolveFlags::NO_SYMLINKS),
            (Resolve::NO_MAGICLINKS, ResolveFlags::NO_MAGICLINKS),
            (Resolve::NO_XDEV, ResolveFlags::NO_XDEV),
            (Resolve::CACHED, ResolveFlags::CACHED),
        ] {
            assert_eq!(flag.0, kernels.bits());
        }
    }
}
