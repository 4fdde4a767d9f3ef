//! How a file is opened.

use super::op_result::opened;
use super::{File, op_result};
use crate::Engine;
use crate::engine::{Lane, OpFuture, Schedule};
use ringway_core::op;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::io;
use std::ops::{BitOr, BitOrAssign};
use std::path::Path;

/// How a file is opened; the words are those of [`std::fs::OpenOptions`], and more.
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
}

/// What a path may lead through when it is opened: the `RESOLVE_*` flags of `openat2(2)`, for
/// [`OpenOptions::resolve`]. They are combined with `|`.
///
/// The kernel applies them to every step of the path at once, so that nobody can change it
/// meanwhile. They take kernel 5.6, and a seccomp filter that allows `openat2(2)`: without it,
/// opening fails with [`Unsupported`](io::ErrorKind::Unsupported), and never opens what the flags
/// exclude.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resolve(u64);

impl Resolve {
    /// The path must not lead out of the directory that it begins at: no `..` above it, no path or
    /// symbolic link that begins at the root. Otherwise the error is EXDEV.
    pub const BENEATH: Self = Self(ResolveFlags::BENEATH.bits());
    /// The directory that the path begins at is its root: `..` stops there, and so do paths and
    /// symbolic links that begin at the root. Not with [`BENEATH`](Self::BENEATH) (EINVAL).
    pub const IN_ROOT: Self = Self(ResolveFlags::IN_ROOT.bits());
    /// No symbolic link anywhere in the path (ELOOP); [`nofollow`](OpenOptions::nofollow) looks at
    /// its end alone.
    pub const NO_SYMLINKS: Self = Self(ResolveFlags::NO_SYMLINKS.bits());
    /// No link such as those of `/proc/self/fd`, which lead to files rather than to paths (ELOOP).
    pub const NO_MAGICLINKS: Self = Self(ResolveFlags::NO_MAGICLINKS.bits());
    /// No mount point may be crossed, in either direction (EXDEV).
    pub const NO_XDEV: Self = Self(ResolveFlags::NO_XDEV.bits());
    /// Only what the kernel finds in its cache of names (5.12); otherwise the error is EAGAIN,
    /// after some tries. Not for opens that make or empty a file (EAGAIN).
    pub const CACHED: Self = Self(ResolveFlags::CACHED.bits());
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
    /// Nothing is allowed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reading.
    pub fn read(&mut self, yes: bool) -> &mut Self {
        self.inner.read(yes);
        self
    }

    /// Writing.
    pub fn write(&mut self, yes: bool) -> &mut Self {
        self.inner.write(yes);
        self
    }

    /// Every write goes to the end, whatever its offset.
    pub fn append(&mut self, yes: bool) -> &mut Self {
        self.inner.append(yes);
        self
    }

    /// An existing file is emptied.
    pub fn truncate(&mut self, yes: bool) -> &mut Self {
        self.inner.truncate(yes);
        self
    }

    /// A file that does not exist is made.
    pub fn create(&mut self, yes: bool) -> &mut Self {
        self.inner.create(yes);
        self
    }

    /// The file is made, and must not exist before (EEXIST).
    pub fn create_new(&mut self, yes: bool) -> &mut Self {
        self.inner.create_new(yes);
        self
    }

    /// The permissions of a file that is made, before the umask; 0o666 unless told.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.inner.mode(mode);
        self
    }

    /// Direct I/O (`O_DIRECT`): past the page cache. Reads may have any offset and length; writes
    /// must be aligned ([`File::alignment`]).
    pub fn direct(&mut self, yes: bool) -> &mut Self {
        self.inner.direct(yes);
        self
    }

    /// A symbolic link at the end of the path is an error (ELOOP).
    pub fn nofollow(&mut self, yes: bool) -> &mut Self {
        self.inner.nofollow(yes);
        self
    }

    /// Further `O_*` flags of `open(2)`. The access mode in them (`O_WRONLY`, `O_RDWR`) is ignored.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.inner.custom_flags(flags);
        self
    }

    /// What the path may lead through: see [`Resolve`]. Without it, everything.
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
    ///     Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(()), // no openat2(2) here
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

    /// A path that does not begin at the root begins at this directory, rather than at the working
    /// directory.
    pub fn in_dir(&mut self, dir: &File) -> &mut Self {
        self.dir = Some(dir.clone());
        self
    }

    /// The engine that carries the file's operations; otherwise that of the directory, or the
    /// global one.
    pub fn engine(&mut self, engine: &Engine) -> &mut Self {
        self.engine = Some(engine.clone());
        self
    }

    /// Opens it. Opening a FIFO waits for its other end; but for reading, io_uring opens it at
    /// once.
    ///
    /// Errors: those of `openat2(2)`; Unsupported where that is not there and
    /// [`resolve`](Self::resolve) takes it; InvalidInput for contradictions and for a path with a
    /// NUL byte. Dropped, nothing is left open, though a file may have been made.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let engine = match (&self.engine, &self.dir) {
            (Some(engine), _) => engine.clone(),
            (None, Some(dir)) => dir.engine().clone(),
            (None, None) => Engine::global()?.clone(),
        };
        let path = path.as_ref();
        // That of a FIFO may wait for ever: those have half of the room at most, and then the room
        // of what waits.
        let waits = engine.inner.is_half_used(Lane::Open) && self.is_fifo(&engine, path).await;
        let lane = if waits { Lane::Wait } else { Lane::Open };
        let operation = match &self.dir {
            Some(dir) => op::open_at(dir.core(), path, &self.inner),
            None => op::open(path, &self.inner),
        };
        let file = opened(OpFuture::new(&engine.inner, Schedule::Immediate(lane), operation).await);
        let file = file.map_err(|error| self.explain(error))?;
        Ok(File::new(file, engine))
    }

    /// Explains an open that failed because `openat2(2)` is missing, which only
    /// [`resolve`](Self::resolve) needs.
    fn explain(&self, error: io::Error) -> io::Error {
        let is_refused = || {
            let opened = openat2(
                CWD,
                c"/",
                OFlags::PATH | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::empty(),
            );
            matches!(opened, Err(Errno::NOSYS | Errno::PERM))
        };
        let errno = Errno::from_io_error(&error);
        if self.resolve == Resolve::default()
            || !matches!(errno, Some(Errno::NOSYS | Errno::PERM))
            || !is_refused()
        {
            return error;
        }
        let text = format!(
            "OpenOptions::resolve needs openat2(2): kernel 5.6, and a seccomp filter that allows it ({error})"
        );
        io::Error::new(io::ErrorKind::Unsupported, text)
    }

    /// Whether the path leads to a FIFO, as far as can be seen.
    async fn is_fifo(&self, engine: &Engine, path: &Path) -> bool {
        let look = match &self.dir {
            Some(dir) => op::statx_at(dir.core(), path, 0),
            None => op::statx(path),
        };
        let found = op_result::metadata(
            OpFuture::new(&engine.inner, Schedule::Immediate(Lane::Call), look).await,
        );
        found.is_ok_and(|found| FileType::from_raw_mode(found.mode()) == FileType::Fifo)
    }
}

impl Engine {
    /// Opens a file for reading, with this engine to carry its operations. See [`File::open`].
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).engine(self).open(path).await
    }

    /// Runs an operation that is on no open file.
    pub(super) async fn run(&self, operation: ringway_core::Operation) -> io::Result<()> {
        op_result::nothing(
            OpFuture::new(&self.inner, Schedule::Immediate(Lane::Call), operation).await,
        )
    }
}
