//! An open file, and what is done with it besides reading and writing.

use super::op_result::{invalid, metadata, nothing};
use super::{OpenOptions, op_result};
use crate::Engine;
use crate::engine::{Lane, OpFuture, OpResult, Schedule};
use ringway_core::device::DirectIo;
use ringway_core::op::{self, Advice, Metadata};
use ringway_core::{CacheHint, File as CoreFile, Operation};
use rustix::fs::{FlockOperation, Mode, Timespec, Timestamps, UTIME_OMIT, fchmod, flock, futimens};
use std::fs::{Permissions, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// An open file. Clones share it, and any number of operations may be on their way at once, from
/// any task and any runtime.
///
/// An operation on its way holds the file, so the descriptor stays what it is until the last of
/// them is over; it is closed, with a blocking call that does not wait for the device, when the
/// last clone and the last operation have gone. [`close`](Self::close) tells of errors.
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
    cache: CacheHint,
    /// `RWF_DSYNC` was refused.
    no_dsync: AtomicBool,
    engine: Engine,
}

impl File {
    pub(super) fn new(core: CoreFile, engine: Engine) -> Self {
        Self {
            inner: Arc::new(Inner {
                core,
                cache: CacheHint::default(),
                no_dsync: AtomicBool::new(false),
                engine,
            }),
        }
    }

    /// Opens a file for reading, with the global engine. For anything else there is
    /// [`OpenOptions`].
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

    /// Makes a file for reading and writing; it must not exist before (EEXIST).
    ///
    /// Errors: as for [`open`](Self::open). Dropped, nothing is left open, though the file may have
    /// been made.
    pub async fn create_new(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path).await
    }

    /// For other ways to open a file: [`OpenOptions::new`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// A file that was opened elsewhere, on the global engine. Its flags (`O_DIRECT`, `O_APPEND`)
    /// are kept.
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

    /// What a direct write must be aligned to (`statx(2)`, 6.1, or the device's block size). The
    /// first call may block for a system call.
    pub fn alignment(&self) -> DirectIo {
        self.inner.core.direct_io()
    }

    /// Writes what was written, and what is needed to find it again, to the device: `fsync(2)`.
    ///
    /// Errors: those of `fsync(2)`. An error is told once, to one of those who ask (that is the
    /// kernel's rule): after it, what was written before may be lost.
    pub async fn sync_all(&self) -> io::Result<()> {
        nothing(self.run_in(Lane::Sync, op::fsync(self.core())).await)
    }

    /// As [`sync_all`](Self::sync_all), without times and the like: `fdatasync(2)`.
    pub async fn sync_data(&self) -> io::Result<()> {
        nothing(self.run_in(Lane::Sync, op::fdatasync(self.core())).await)
    }

    /// Writes a range of what was written to the device and waits for it: `sync_file_range(2)`. It
    /// promises nothing for a power cut: neither what finds the data nor the device's own cache is
    /// written.
    pub async fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        nothing(
            self.run_in(Lane::Sync, op::sync_range(self.core(), offset, len, SYNC_RANGE_ALL)).await,
        )
    }

    /// Cuts it or lengthens it with zeroes: `ftruncate(2)`.
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        nothing(self.run(op::ftruncate(self.core(), len)).await)
    }

    /// Reserves space for a range, and lengthens the file if it ends before: `fallocate(2)`. What
    /// was there is kept.
    ///
    /// Errors: ENOSPC; EOPNOTSUPP where the file system cannot.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        nothing(self.run(op::fallocate(self.core(), 0, offset, len)).await)
    }

    /// Tells the kernel how a range will be used: `posix_fadvise(2)`. A length of 0 means up to the
    /// end.
    pub async fn advise(&self, offset: u64, len: u64, advice: Advice) -> io::Result<()> {
        nothing(self.run(op::fadvise(self.core(), offset, len, advice)).await)
    }

    /// Length, type, permissions, times: `statx(2)`.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        metadata(self.run(op::statx_at(self.core(), "", AT_EMPTY_PATH)).await)
    }

    /// Changes who may do what with it: `fchmod(2)`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// use std::os::unix::fs::PermissionsExt;
    /// let file = ringway::fs::File::create(dir.path().join("key")).await?;
    /// file.set_permissions(std::fs::Permissions::from_mode(0o600)).await?;
    /// assert_eq!(file.metadata().await?.mode() & 0o777, 0o600);
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: those of `fchmod(2)`. Dropped, they may be changed all the same.
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let mode = Mode::from_raw_mode(permissions.mode());
        self.call(move |file| Ok(fchmod(file, mode)?)).await
    }

    /// Changes when it was last read and changed: `futimens(2)`. What is not set stays as it is.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// use ringway::fs::{File, FileTimes};
    /// let file = File::create(dir.path().join("copy")).await?;
    /// let original = ringway::fs::metadata("/etc/passwd").await?;
    /// file.set_times(FileTimes::new().set_modified(original.modified()?)).await?;
    /// assert_eq!(file.metadata().await?.modified()?, original.modified()?);
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: those of `futimens(2)`; InvalidInput for a time that the kernel cannot express.
    /// Dropped, they may be changed all the same.
    pub async fn set_times(&self, times: FileTimes) -> io::Result<()> {
        let times = Timestamps {
            last_access: timespec(times.accessed)?,
            last_modification: timespec(times.modified)?,
        };
        self.call(move |file| Ok(futimens(file, &times)?)).await
    }

    /// Changes when it was last changed; as [`set_times`](Self::set_times).
    pub async fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time)).await
    }

    /// Another descriptor of the open file (`dup(2)`), which shares its position and its locks. A
    /// clone is cheaper; this is for a descriptor to give away. Does not block.
    ///
    /// Errors: EMFILE.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::with_engine(self.as_fd().try_clone_to_owned()?, self.engine()))
    }

    /// Locks it for this open file alone, if nobody has locked it: `flock(2)`. The lock is
    /// advisory, belongs to the open file with all clones, and goes with the last of them, or with
    /// [`unlock`](Self::unlock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("LOCK");
    /// use ringway::fs::{File, TryLockError};
    /// let lock = File::create(&path).await?;
    /// lock.try_lock().await?;
    /// let other = File::open(&path).await?;
    /// assert!(matches!(other.try_lock().await, Err(TryLockError::WouldBlock)));
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: [`TryLockError::WouldBlock`] when somebody else has locked it; those of `flock(2)`.
    /// Dropped, it may be locked all the same.
    pub async fn try_lock(&self) -> Result<(), TryLockError> {
        self.flock(FlockOperation::NonBlockingLockExclusive).await
    }

    /// As [`try_lock`](Self::try_lock), for any number of open files at once.
    pub async fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.flock(FlockOperation::NonBlockingLockShared).await
    }

    /// Ends a lock of this open file; without one it does nothing. Errors: those of `flock(2)`.
    pub async fn unlock(&self) -> io::Result<()> {
        self.call(|file| Ok(flock(file, FlockOperation::Unlock)?)).await
    }

    async fn flock(&self, operation: FlockOperation) -> Result<(), TryLockError> {
        let locked = self.call(move |file| Ok(flock(file, operation)?)).await;
        locked.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => TryLockError::WouldBlock,
            _ => TryLockError::Error(error),
        })
    }

    /// Closes it, if no clone of it is left, and tells of the errors that only close tells of (on
    /// network file systems, mostly). It does not sync.
    ///
    /// Errors: InvalidInput while clones or operations hold it (it is closed with the last of
    /// them), also operations of futures and streams that were dropped, such as reads ahead beyond
    /// the end: [`into_std`](Self::into_std) waits for those. Those of `close(2)`, after which it
    /// is closed all the same.
    pub async fn close(self) -> io::Result<()> {
        let busy = || invalid("close: clones of the file, or operations on it, are left");
        let inner = Arc::try_unwrap(self.inner).map_err(|_| busy())?;
        match op_result::nothing(
            OpFuture::new(
                &inner.engine.inner,
                Schedule::Immediate(Lane::Call),
                op::close(inner.core),
            )
            .await,
        ) {
            Err(error) if error.raw_os_error() == Some(EBUSY) => Err(busy()),
            result => result,
        }
    }

    /// The standard library's file, if nobody else holds this one; otherwise the file as it is.
    /// Does not block, and nothing is changed: position, flags and locks are what they were.
    ///
    /// Clones hold it, and so do streams, logs, and operations whose futures were dropped, until
    /// the kernel has let go of them: [`into_std`](Self::into_std) waits for those.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let file = ringway::fs::File::open("/etc/passwd").await?;
    /// let clone = file.clone();
    /// let file = file.try_into_std().expect_err("the clone holds it");
    /// drop(clone);
    /// let file: std::fs::File = file.try_into_std().expect("nobody holds it");
    /// # drop(file);
    /// # Ok(()) }
    /// ```
    pub fn try_into_std(self) -> Result<std::fs::File, Self> {
        let Inner { core, engine, .. } =
            Arc::try_unwrap(self.inner).map_err(|inner| Self { inner })?;
        core.into_fd().map(Into::into).map_err(|core| Self::new(core, engine))
    }

    /// As [`try_into_std`](Self::try_into_std), once no operation holds it any more: waits, without
    /// blocking, for those whose futures were dropped, so that none of them reads, writes or moves
    /// the position later. One that cannot be cancelled and never ends makes this wait for ever.
    ///
    /// Errors: InvalidInput while there are clones, streams or logs of it; ESHUTDOWN when the
    /// engine's backend has failed, and ECHILD in a fork, while operations hold it. After an error,
    /// and dropped, it is closed with its last holder.
    pub async fn into_std(self) -> io::Result<std::fs::File> {
        let left = |_| invalid("into_std: clones or streams of the file are left");
        let Inner { mut core, engine, .. } = Arc::try_unwrap(self.inner).map_err(left)?;
        let mut pause = Duration::from_micros(50);
        loop {
            core = match core.into_fd() {
                Ok(fd) => return Ok(fd.into()),
                Err(held) => held,
            };
            // An operation that nobody waits for tells nobody when it ends.
            nothing(
                OpFuture::new(&engine.inner, Schedule::Immediate(Lane::Call), op::timeout(pause))
                    .await,
            )?;
            pause = (pause * 2).min(LONGEST_PAUSE);
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

    pub(super) fn cache(&self) -> &CacheHint {
        &self.inner.cache
    }

    /// How transfers take their turn: those of a pipe or a terminal may take for ever.
    pub(super) fn schedule(&self) -> Schedule {
        if self.is_storage() { Schedule::Paced } else { Schedule::Immediate(Lane::Wait) }
    }

    /// A blocking call with the file, on a thread.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CoreFile) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let core = self.core().clone();
        self.engine().call(move || work(&core)).await
    }

    async fn run(&self, operation: Operation) -> OpResult {
        self.run_in(Lane::Call, operation).await
    }

    async fn run_in(&self, lane: Lane, operation: Operation) -> OpResult {
        OpFuture::new(&self.inner.engine.inner, Schedule::Immediate(lane), operation).await
    }
}

/// Between two looks whether operations still hold a file.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
const AT_EMPTY_PATH: i32 = rustix::fs::AtFlags::EMPTY_PATH.bits() as i32;
const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();
/// Wait for what is being written, write, and wait for that.
const SYNC_RANGE_ALL: u32 = 7;

/// Times of a file, for [`File::set_times`]; as [`std::fs::FileTimes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl FileTimes {
    /// None is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// When it was last read.
    pub fn set_accessed(self, time: SystemTime) -> Self {
        Self { accessed: Some(time), ..self }
    }

    /// When it was last changed.
    pub fn set_modified(self, time: SystemTime) -> Self {
        Self { modified: Some(time), ..self }
    }
}

/// A time as the kernel has it: before 1970 the seconds are negative and the nanoseconds are not.
fn timespec(time: Option<SystemTime>) -> io::Result<Timespec> {
    let Some(time) = time else { return Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }) };
    let (seconds, nanoseconds) = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).ok(), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = 0i64.checked_sub_unsigned(before.as_secs());
            match before.subsec_nanos() {
                0 => (seconds, 0),
                nanoseconds => (
                    seconds.and_then(|seconds| seconds.checked_sub(1)),
                    1_000_000_000 - nanoseconds,
                ),
            }
        }
    };
    let seconds = seconds.ok_or_else(|| invalid("a time that the kernel cannot express"))?;
    Ok(Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() })
}

/// As [`File::try_into_std`].
impl TryFrom<File> for std::fs::File {
    type Error = File;

    fn try_from(file: File) -> Result<Self, File> {
        file.try_into_std()
    }
}

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
