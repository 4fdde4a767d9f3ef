//! How a file is opened.

use super::outcome::opened;
use super::{File, outcome};
use crate::Engine;
use crate::engine::{Flight, Lane, Turn};
use ringway_core::op;
use rustix::fs::FileType;
use std::io;
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

    /// Direct I/O (`O_DIRECT`): past the page cache. Reads may have any offset and length; writes must be aligned
    /// ([`File::alignment`]).
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

    /// `RESOLVE_*` flags of `openat2(2)` (5.6): `RESOLVE_BENEATH` and the like.
    pub fn resolve(&mut self, flags: u64) -> &mut Self {
        self.inner.resolve(flags);
        self
    }

    /// A path that does not begin at the root begins at this directory, rather than at the working directory.
    pub fn in_dir(&mut self, dir: &File) -> &mut Self {
        self.dir = Some(dir.clone());
        self
    }

    /// The engine that carries the file's operations; otherwise that of the directory, or the global one.
    pub fn engine(&mut self, engine: &Engine) -> &mut Self {
        self.engine = Some(engine.clone());
        self
    }

    /// Opens it. Opening a FIFO waits for its other end; but for reading, io_uring opens it at once.
    ///
    /// Errors: those of `openat2(2)`; InvalidInput for contradictions and for a path with a NUL byte. Dropped, nothing is left open,
    /// though a file may have been made.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let engine = match (&self.engine, &self.dir) {
            (Some(engine), _) => engine.clone(),
            (None, Some(dir)) => dir.engine().clone(),
            (None, None) => Engine::global()?.clone(),
        };
        let path = path.as_ref();
        // That of a FIFO may wait for ever: those have half of the room at most, and then the room of what waits.
        let waits = engine.inner.is_crowded(Lane::Open) && self.is_fifo(&engine, path).await;
        let lane = if waits { Lane::Wait } else { Lane::Open };
        let operation = match &self.dir {
            Some(dir) => op::open_at(dir.core(), path, &self.inner),
            None => op::open(path, &self.inner),
        };
        let file = opened(Flight::new(&engine.inner, Turn::Now(lane), operation).await)?;
        Ok(File::new(file, engine))
    }

    /// Whether the path leads to a FIFO, as far as can be seen.
    async fn is_fifo(&self, engine: &Engine, path: &Path) -> bool {
        let look = match &self.dir {
            Some(dir) => op::statx_at(dir.core(), path, 0),
            None => op::statx(path),
        };
        let found = outcome::metadata(Flight::new(&engine.inner, Turn::Now(Lane::Call), look).await);
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
        outcome::nothing(Flight::new(&self.inner, Turn::Now(Lane::Call), operation).await)
    }
}
