//! An open file, and what is done with it besides reading and writing.

use super::cache::Cache;
use super::outcome::{invalid, metadata, nothing};
use super::{OpenOptions, outcome};
use crate::Engine;
use crate::engine::{Flight, Lane, Outcome, Turn};
use ringway_core::device::DirectIo;
use ringway_core::op::{self, Advice, Metadata};
use ringway_core::{File as CoreFile, Operation};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open file. Clones share it, and any number of operations may be on their way at once, from any task and any runtime.
///
/// An operation on its way holds the file, so the descriptor stays what it is until the last of them is over; it is closed, with a
/// blocking call that does not wait for the device, when the last clone and the last operation have gone. [`close`](Self::close)
/// tells of errors.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use ringway::fs::File;
/// let file = File::open("/etc/passwd").await?;
/// let line = file.read(0..80).await?;
/// assert!(!line.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct File {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    core: CoreFile,
    cache: Cache,
    /// `RWF_DSYNC` was refused.
    no_dsync: AtomicBool,
    engine: Engine,
}

impl File {
    pub(super) fn new(core: CoreFile, engine: Engine) -> Self {
        Self { inner: Arc::new(Inner { core, cache: Cache::default(), no_dsync: AtomicBool::new(false), engine }) }
    }

    /// Opens a file for reading, with the global engine. For anything else there is [`OpenOptions`].
    ///
    /// Errors: those of `open(2)`; those of [`Engine::global`].
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Makes a file, or empties one, for writing.
    ///
    /// Errors: as for [`open`](Self::open).
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// A file that was opened elsewhere, on the global engine. Its flags (`O_DIRECT`, `O_APPEND`) are kept.
    ///
    /// Errors: those of [`Engine::global`].
    pub fn from_std(file: std::fs::File) -> io::Result<Self> {
        Ok(Self::with_engine(file.into(), Engine::global()?))
    }

    /// A descriptor that was opened elsewhere, on an engine of one's own.
    pub fn with_engine(fd: OwnedFd, engine: &Engine) -> Self {
        Self::new(fd.into(), engine.clone())
    }

    /// The engine that carries its operations.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// True when it was opened for direct I/O.
    pub fn is_direct(&self) -> bool {
        self.inner.core.is_direct()
    }

    /// What a direct write must be aligned to (`statx(2)`, 6.1, or the device's block size). The first call may
    /// block for a system call.
    pub fn alignment(&self) -> DirectIo {
        self.inner.core.direct_io()
    }

    /// Writes what was written, and what is needed to find it again, to the device: `fsync(2)`.
    ///
    /// Errors: those of `fsync(2)`. An error is told once, to one of those who ask (that is the kernel's rule): after it,
    /// what was written before may be lost.
    pub async fn sync_all(&self) -> io::Result<()> {
        nothing(self.run_in(Lane::Sync, op::fsync(self.core())).await)
    }

    /// As [`sync_all`](Self::sync_all), without times and the like: `fdatasync(2)`.
    pub async fn sync_data(&self) -> io::Result<()> {
        nothing(self.run_in(Lane::Sync, op::fdatasync(self.core())).await)
    }

    /// Writes a range of what was written to the device and waits for it: `sync_file_range(2)`. It promises nothing for a
    /// power cut: neither what finds the data nor the device's own cache is written.
    pub async fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        nothing(self.run_in(Lane::Sync, op::sync_range(self.core(), offset, len, SYNC_RANGE_ALL)).await)
    }

    /// Cuts it or lengthens it with zeroes: `ftruncate(2)`.
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        nothing(self.run(op::ftruncate(self.core(), len)).await)
    }

    /// Reserves space for a range, and lengthens the file if it ends before: `fallocate(2)`. What was there is kept.
    ///
    /// Errors: ENOSPC; EOPNOTSUPP where the file system cannot.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        nothing(self.run(op::fallocate(self.core(), 0, offset, len)).await)
    }

    /// Tells the kernel how a range will be used: `posix_fadvise(2)`. A length of 0 means up to the end.
    pub async fn advise(&self, offset: u64, len: u64, advice: Advice) -> io::Result<()> {
        nothing(self.run(op::fadvise(self.core(), offset, len, advice)).await)
    }

    /// Length, type, permissions, times: `statx(2)`.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        metadata(self.run(op::statx_at(self.core(), "", AT_EMPTY_PATH)).await)
    }

    /// Closes it, if no clone of it is left, and tells of the errors that only close tells of (on network file systems, mostly).
    /// It does not sync.
    ///
    /// Errors: InvalidInput while clones or operations hold it (it is closed with the last of them); those of `close(2)`,
    /// after which it is closed all the same.
    pub async fn close(self) -> io::Result<()> {
        let busy = || invalid("close: clones of the file, or operations on it, are left");
        let inner = Arc::try_unwrap(self.inner).map_err(|_| busy())?;
        match outcome::nothing(Flight::new(&inner.engine.inner, Turn::Now(Lane::Call), op::close(inner.core)).await) {
            Err(error) if error.raw_os_error() == Some(EBUSY) => Err(busy()),
            result => result,
        }
    }

    /// True for what has offsets and answers by itself; false for pipes, sockets and terminals.
    pub(crate) fn is_storage(&self) -> bool {
        self.core().is_storage()
    }

    pub(super) fn core(&self) -> &CoreFile {
        &self.inner.core
    }

    /// Whether a write may be asked to be durable in one request.
    pub(super) fn has_dsync(&self) -> bool {
        !self.inner.no_dsync.load(Ordering::Relaxed)
    }

    pub(super) fn set_no_dsync(&self) {
        self.inner.no_dsync.store(true, Ordering::Relaxed);
    }

    pub(super) fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// How transfers take their turn: those of a pipe or a terminal may take for ever.
    pub(super) fn turn(&self) -> Turn {
        if self.is_storage() { Turn::Paced } else { Turn::Now(Lane::Wait) }
    }

    async fn run(&self, operation: Operation) -> Outcome {
        self.run_in(Lane::Call, operation).await
    }

    async fn run_in(&self, lane: Lane, operation: Operation) -> Outcome {
        Flight::new(&self.inner.engine.inner, Turn::Now(lane), operation).await
    }
}

const AT_EMPTY_PATH: i32 = rustix::fs::AtFlags::EMPTY_PATH.bits() as i32;
const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();
/// Wait for what is being written, write, and wait for that.
const SYNC_RANGE_ALL: u32 = 7;

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.core.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.core.as_raw_fd()
    }
}
