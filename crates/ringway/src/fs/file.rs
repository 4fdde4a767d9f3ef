//! An open file: opening, metadata, locks, syncs and closing. Reads and writes at offsets are in
//! `transfer.rs`, `pooled.rs` and `spare.rs`, those at the cursor in `sequential.rs`.

use super::cursor::Cursor;
use super::dropped::DroppedWrites;
use super::sequential::Sequential;
use super::sync::{SyncKind, Syncs};
use super::{OpenOptions, TryLockError};
use crate::Engine;
use crate::engine::op_result;
use crate::engine::op_result::{forked, invalid, metadata, nothing};
use crate::engine::{Lane, OpFuture, OpResult, Schedule};
#[cfg(unix)]
use ringway_core::RawFd;
use ringway_core::device::{AtomicWriteUnit, DirectIo};
use ringway_core::op::{self, Advice, Metadata, RwFlags};
use ringway_core::{BorrowedFd, CacheHint, File as CoreFile, Operation, OwnedFd, Refusal, errno};
use std::fmt;
use std::fs::Permissions;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

/// An open file. Clones share it, and any number of operations may be in flight at once, from any
/// task and any runtime.
///
/// An operation in flight keeps the file open. The descriptor is closed when the last clone is
/// dropped and the last operation has ended. Where closing may wait for a server (FUSE, network
/// file systems), a thread does it soon after, and nobody waits for it. [`close`](Self::close)
/// waits, and reports errors.
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
///
/// **The cursor.** Most methods take an offset. A file also has a cursor, for programs and crates
/// that read and write in order: it implements the `AsyncRead`, `AsyncWrite` and `AsyncSeek` of
/// tokio (feature `tokio`) and of `futures-io` (feature `futures`), and does what `tokio::fs::File`
/// does.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # #[cfg(feature = "tokio")] {
/// use ringway::fs::File;
/// use tokio::io::{AsyncSeekExt, AsyncWriteExt};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("table");
/// let mut file = File::create_new(&path).await?;
/// file.write_all(b"hello, world").await?;
/// file.rewind().await?;
/// let mut bytes = [0; 5];
/// file.read_exact(&mut bytes).await?;
/// assert_eq!(&bytes, b"hello");
/// # }
/// # Ok(()) }
/// ```
///
/// Clones and [duplicates](Self::try_clone) share the cursor; each handle has its own reads and
/// writes in flight. A write accepts its bytes, up to [`max_buf_size`](Self::max_buf_size), and
/// returns; they are written in the background, also if the file is dropped. An error is returned
/// by the next write or flush, and by a sync of this handle; once it is dropped, by the next sync,
/// [`close`](Self::close) or [`into_std`](Self::into_std) of another one. Flush before the program
/// ends, and before a read at an offset that is to see the bytes. Nothing is read beyond what is
/// asked for; when reads in order miss the page cache, the pages after them are requested. With
/// direct I/O a read at the cursor may have any length, and a write needs an aligned one. Pipes,
/// terminals and character devices have no offsets, and work as well. [`reader`](Self::reader) and
/// [`writer`](Self::writer) are faster for large files on a device.
///
/// The position of the descriptor, which [`Position::Current`](crate::Position::Current) uses, is
/// another one. It becomes that of the cursor with [`into_std`](Self::into_std).
pub struct File {
    inner: Arc<SharedFile>,
    /// What this handle does at the cursor.
    pub(super) sequential: Mutex<Option<Box<Sequential>>>,
    /// A read of a borrowed buffer waits on this handle.
    claimed: AtomicBool,
    /// Transfers of this handle leave no pages in the page cache.
    dont_cache: bool,
}

struct SharedFile {
    core: CoreFile,
    cache: CacheHint,
    /// The kernel refused `RWF_DSYNC`.
    no_dsync: AtomicBool,
    /// Shared with duplicates of the descriptor.
    syncs: Arc<Syncs>,
    /// Shared with duplicates of the descriptor, too.
    cursor: OnceLock<Arc<Cursor>>,
    /// Made by the first handle that uses the cursor, or the first `Writer` that is dropped.
    dropped: OnceLock<Arc<DroppedWrites>>,
    engine: Engine,
}

impl File {
    pub(super) fn new(core: CoreFile, engine: Engine) -> Self {
        Self::with_syncs(core, engine, Syncs::new())
    }

    fn with_syncs(core: CoreFile, engine: Engine, syncs: Arc<Syncs>) -> Self {
        core.close_in_background();
        Self::of(Arc::new(SharedFile {
            core,
            cache: CacheHint::default(),
            no_dsync: AtomicBool::new(false),
            syncs,
            cursor: OnceLock::new(),
            dropped: OnceLock::new(),
            engine,
        }))
    }

    fn of(inner: Arc<SharedFile>) -> Self {
        Self {
            inner,
            sequential: Mutex::new(None),
            claimed: AtomicBool::new(false),
            dont_cache: false,
        }
    }

    /// Opens a file for reading, with the global engine. Use [`OpenOptions`] for other modes.
    ///
    /// Errors: those of `open(2)` and of [`Engine::global`].
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Creates a file, or truncates an existing one, for writing.
    ///
    /// Errors: as for [`open`](Self::open).
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// Creates a file for reading and writing. Fails with EEXIST if it already exists.
    ///
    /// Errors: as for [`open`](Self::open). If the future is dropped, no descriptor is left open,
    /// but the file may have been created.
    pub async fn create_new(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path).await
    }

    /// Returns options for other ways to open a file: [`OpenOptions::new`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Uses a file that was opened elsewhere with the global engine. Its flags (`O_DIRECT`,
    /// `O_APPEND`) still apply.
    ///
    /// Errors: those of [`Engine::global`].
    pub fn from_std(file: std::fs::File) -> io::Result<Self> {
        Ok(Self::from_fd(file.into(), Engine::global()?))
    }

    /// Uses a descriptor that was opened elsewhere with this engine. Its flags still apply, except
    /// that a read of a pipe waits even if the descriptor is non-blocking. On a pipe, a FIFO or a
    /// terminal, offsets are ignored, a read may be short at any time, and 0 bytes mean that all
    /// writers are closed.
    pub fn from_fd(fd: OwnedFd, engine: &Engine) -> Self {
        Self::new(fd.into(), engine.clone())
    }

    /// Returns the engine that runs the file's operations.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Whether the file was opened for direct I/O.
    pub fn is_direct(&self) -> bool {
        self.inner.core.is_direct()
    }

    /// Returns a handle of the same open file whose transfers leave no pages of their own in the
    /// page cache: `RWF_DONTCACHE` (kernel 6.14; ext4 and XFS). For a scan or a backup beside data
    /// that should stay cached. [`OpenOptions::dont_cache`] opens a file so; clones,
    /// [duplicates](Self::try_clone) and streams of the handle have it, and other handles do not.
    ///
    /// What a transfer brings into the page cache is dropped: after a read at once, after a write
    /// when the device has it, which the kernel starts at once. Pages that were cached before stay,
    /// and reads find them there. Pages that the kernel has read ahead of a read are dropped when
    /// they are read; those that nobody reads, and with ext4 (seen on 6.18) the pages of blocks
    /// that a write overwrites, stay until the memory is needed. A write is as durable as without
    /// it. Direct I/O leaves no pages in any case, and is not changed. Reads at the cursor are read
    /// ahead by the kernel alone.
    ///
    /// Where the kernel or the file system refuses the flag, the transfer is made without it, and
    /// so are all later ones of this open file: [`caching`](Self::caching) has the reason.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use ringway::fs::{Caching, File};
    /// let file = File::open("/etc/passwd").await?.with_dont_cache(true);
    /// assert!(!file.read(0..80).await?.is_empty());
    /// if let Caching::Refused(why) = file.caching() {
    ///     println!("{why}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn with_dont_cache(mut self, yes: bool) -> Self {
        self.dont_cache = yes;
        self
    }

    /// Whether the transfers of this handle leave pages in the page cache, and why if they do so
    /// against [`with_dont_cache`](Self::with_dont_cache). A refusal is known after the first
    /// transfer. Reads a few files below `/proc` for its text.
    pub fn caching(&self) -> Caching {
        match self.core().dont_cache_refusal() {
            _ if self.is_direct() => Caching::Direct,
            _ if !self.dont_cache => Caching::Kept,
            Some(refusal) => Caching::Refused(refusal),
            None => Caching::Dropped,
        }
    }

    /// The flags of this handle's transfers.
    pub(crate) fn rw_flags(&self) -> RwFlags {
        if self.drops_pages() { RwFlags::DONT_CACHE } else { RwFlags::NONE }
    }

    /// Whether transfers of this handle leave no pages, as far as is known.
    pub(crate) fn drops_pages(&self) -> bool {
        self.dont_cache
            && !self.is_direct()
            && self.is_storage()
            && !self.core().refuses_dont_cache()
    }

    /// The operation, a read or a write, as this handle makes it.
    pub(super) fn flagged(&self, operation: Operation) -> Operation {
        if self.drops_pages() { operation.dont_cache() } else { operation }
    }

    /// Returns the alignment that direct writes need (from `statx(2)` since kernel 6.1, otherwise
    /// the device's block size). The first call may block for a system call.
    ///
    /// On XFS, and on an overlay above it, the alignment grows, usually from 512 to 4096 bytes,
    /// when blocks of the file are shared with a copy (`cp --reflink`, [`copy`](super::copy())).
    /// There a direct write that does not consist of whole blocks of the file system asks for it
    /// again, and fails with InvalidInput rather than go through the page cache. This function
    /// returns what was found last.
    ///
    /// Where the kernel reports no alignment (before 6.1; btrfs, tmpfs), the first call for a file
    /// that is not open for direct I/O opens it once more to see whether it could be. That may wait
    /// for a server, and closing that descriptor releases the locks that the process has on the
    /// file by `fcntl(2)` (`F_SETLK`).
    pub fn alignment(&self) -> DirectIo {
        self.inner.core.direct_io()
    }

    /// The alignment of offsets and lengths alone: what does not change is not looked up again.
    pub(crate) fn offset_align(&self) -> u32 {
        self.inner.core.offset_align()
    }

    /// Returns the sizes of the untorn writes of this file
    /// ([`write_untorn_at`](Self::write_untorn_at)), or `None` if it has none: what `statx(2)`
    /// reports with `STATX_WRITE_ATOMIC`. XFS has them on kernel 6.16 and newer, on any device;
    /// block devices from 6.11 on, and ext4 and XFS from 6.13 on, if the device has atomic writes.
    /// It does not depend on how the file is open; the write does, and an overlay refuses what it
    /// reports here.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let file = ringway::fs::File::open("/etc/passwd").await?;
    /// match file.atomic_write_unit().await? {
    ///     Some(unit) => println!("untorn writes of {} to {} bytes", unit.min, unit.max),
    ///     None => println!("no untorn writes: keep a second copy of each page"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: those of `statx(2)`.
    pub async fn atomic_write_unit(&self) -> io::Result<Option<AtomicWriteUnit>> {
        Ok(self.metadata().await?.atomic_write_unit())
    }

    /// Writes data and metadata of the file to the device: `fsync(2)`. It covers writes that have
    /// completed before the first poll, what this handle has accepted at the cursor, and what
    /// dropped handles and [`Writer`](crate::Writer)s of the file have accepted.
    ///
    /// Concurrent syncs of the file, with all its clones and [duplicates](Self::try_clone), share:
    /// while one is in flight, one more is queued for all who come later.
    ///
    /// Errors: those of `fsync(2)`. After one, writes since the last successful sync may be lost,
    /// even though a read returns them: write them again. The kernel reports a lost write once, so
    /// all who wait get the error. A sync also fails if a [`sync_range`](Self::sync_range), a
    /// durable write or a sync whose future was dropped has met an error since the last sync.
    ///
    /// If the future is dropped, the sync goes on for others who wait for it; without them it is
    /// cancelled.
    pub async fn sync_all(&self) -> io::Result<()> {
        let errors = self.unreported_errors()?;
        self.sync_written(SyncKind::All, errors).await
    }

    /// As [`sync_all`](Self::sync_all), without metadata that reading the data does not need
    /// (times, for example): `fdatasync(2)`. If others wait for [`sync_all`](Self::sync_all), it
    /// may be that.
    pub async fn sync_data(&self) -> io::Result<()> {
        let errors = self.unreported_errors()?;
        self.sync_written(SyncKind::Data, errors).await
    }

    /// Writes a range of the file to the device and waits for it: `sync_file_range(2)`. This is not
    /// durable across a power failure: neither the metadata that locates the data nor the device's
    /// own cache is flushed.
    ///
    /// Errors: those of `sync_file_range(2)`. The next sync returns an error that stands for lost
    /// writes again, whatever the caller does with this one.
    pub async fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        if !self.engine().inner.is_current() {
            return Err(forked());
        }
        let range = op::sync_range(self.core(), offset, len, SYNC_RANGE_ALL);
        let schedule = Schedule::Immediate(Lane::Sync);
        let range = OpFuture::new(&self.engine().inner, schedule, range);
        nothing(range.observed_by(&self.syncs().ledger).await)
    }

    /// Truncates the file, or extends it with zeroes: `ftruncate(2)`. What this handle has accepted
    /// at the cursor is written before that; an error of it stays for the next write or flush.
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        let _ = self.finish_writes().await;
        self.discard_read();
        nothing(self.run(op::ftruncate(self.core(), len)).await)
    }

    /// Reserves space for a range, and extends the file if it ends before that: `fallocate(2)`.
    /// Existing data is kept.
    ///
    /// The blocks are allocated, but not written. The first write to each still changes metadata,
    /// which a sync then has to write, too: [`allocate_written`](Self::allocate_written).
    ///
    /// Errors: ENOSPC; EOPNOTSUPP if the file system does not support it.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        nothing(self.run(op::fallocate(self.core(), 0, offset, len)).await)
    }

    /// Tells the kernel how a range will be used: `posix_fadvise(2)`. A length of 0 means up to the
    /// end.
    pub async fn advise(&self, offset: u64, len: u64, advice: Advice) -> io::Result<()> {
        nothing(self.run(op::fadvise(self.core(), offset, len, advice)).await)
    }

    /// Returns length, type, permissions and times: `statx(2)`.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        metadata(self.run(op::statx_at(self.core(), "", 0)).await)
    }

    /// Changes the permissions: `fchmod(2)`.
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
    /// Errors: those of `fchmod(2)`. If the future is dropped, they may still be changed.
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.call(move |file| file.with_std(|file| file.set_permissions(permissions))).await
    }

    /// Changes the times of the last access and modification: `futimens(2)`. Times that are not set
    /// are kept.
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
    /// Errors: those of `futimens(2)`; InvalidInput for a time that the kernel cannot represent. If
    /// the future is dropped, they may still be changed.
    pub async fn set_times(&self, times: FileTimes) -> io::Result<()> {
        // A write in flight would change them again.
        let _ = self.finish_writes().await;
        let mut std = std::fs::FileTimes::new();
        if let Some(time) = times.accessed {
            std = std.set_accessed(time);
        }
        if let Some(time) = times.modified {
            std = std.set_modified(time);
        }
        self.call(move |file| file.with_std(|file| file.set_times(std))).await
    }

    /// Changes the time of the last modification; as [`set_times`](Self::set_times).
    pub async fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time)).await
    }

    /// Duplicates the descriptor (`dup(2)`). The new one shares cursor, position and locks. `clone`
    /// is cheaper; use this for a descriptor to give away. Syncs of the two share. What this handle
    /// has accepted at the cursor is written first. On Windows a transfer at an offset moves the
    /// descriptor's position meanwhile, so use that of one of the two only while the other has no
    /// transfer in flight.
    ///
    /// Errors: EMFILE.
    pub async fn try_clone(&self) -> io::Result<Self> {
        // An error stays for the next write or flush.
        let _ = self.finish_writes().await;
        let file = self.core().with_std(std::fs::File::try_clone)?;
        let mut duplicate = Self::with_syncs(
            OwnedFd::from(file).into(),
            self.engine().clone(),
            Arc::clone(self.syncs()),
        );
        duplicate.dont_cache = self.dont_cache;
        let _ = duplicate.inner.cursor.set(Arc::clone(self.cursor()));
        // Whoever syncs or closes one of the two waits for what handles of both have accepted.
        let _ = duplicate.inner.dropped.set(Arc::clone(self.dropped_writes()));
        duplicate.set_max_buf_size(self.max_buf_size());
        Ok(duplicate)
    }

    /// Takes an exclusive lock for this open file, if no other open file has it locked: `flock(2)`.
    /// The lock is advisory. It belongs to the open file with all its clones, and ends with the
    /// last of them or with [`unlock`](Self::unlock).
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
    /// A process that is killed (SIGKILL) releases its locks when its last transfer has ended: with
    /// reads in flight on io_uring, 28 to 200 ms after its end where that was measured. So a
    /// successor tries again for a while.
    ///
    /// Errors: [`TryLockError::WouldBlock`] if another open file has it locked; those of
    /// `flock(2)`. If the future is dropped, the file may still be locked.
    pub async fn try_lock(&self) -> Result<(), TryLockError> {
        locked(self.call(CoreFile::try_lock).await)
    }

    /// As [`try_lock`](Self::try_lock), but takes a shared lock, which any number of open files can
    /// have.
    pub async fn try_lock_shared(&self) -> Result<(), TryLockError> {
        locked(self.call(CoreFile::try_lock_shared).await)
    }

    /// Releases this open file's lock; does nothing without one. Errors: those of `flock(2)`.
    pub async fn unlock(&self) -> io::Result<()> {
        self.call(CoreFile::unlock).await
    }

    /// Closes the file and reports the errors that only close reports (mostly on network file
    /// systems), and that of a write at the cursor. It does not sync.
    ///
    /// Errors: InvalidInput while other clones or operations hold the file; it is then closed with
    /// the last of them. This includes operations of futures and streams that were dropped, such as
    /// read-ahead beyond the end: [`into_std`](Self::into_std) waits for those. Those of
    /// `close(2)`, after which the file is closed nevertheless.
    pub async fn close(self) -> io::Result<()> {
        self.finish_all_writes().await?;
        self.finish_read_ahead().await?;
        drop(self.sequential);
        let busy = || invalid("close: other clones of the file, or operations on it, still exist");
        let inner = Arc::try_unwrap(self.inner).map_err(|_| busy())?;
        let held = inner.core.is_shared();
        let close = op::close(inner.core);
        let schedule = Schedule::Immediate(Lane::Call);
        match op_result::nothing(OpFuture::new(&inner.engine.inner, schedule, close).await) {
            // (A file system may answer that, too.)
            Err(error) if held && error.raw_os_error() == Some(errno::EBUSY) => Err(busy()),
            result => result,
        }
    }

    /// Ends a function that has written a file: the file is closed before the function returns. On
    /// a network file system this is what shows the data to others, and it may report only then
    /// that it could not write. (A local file is closed when it is dropped.)
    ///
    /// Errors: those of [`close`](Self::close), as [`op::errno_of_written`] has them.
    pub(super) async fn end(self) -> io::Result<()> {
        if self.is_local() {
            return Ok(());
        }
        self.close().await.or_else(|error| match error.raw_os_error().map(op::errno_of_written) {
            Some(None) => Ok(()),
            Some(Some(errno)) => Err(io::Error::from_raw_os_error(errno)),
            None => Err(error),
        })
    }

    /// Converts to the standard library's file, if nothing else holds this one; otherwise returns
    /// the file unchanged. Position, flags and locks are kept, `O_NOATIME` too, which ringway may
    /// have set on a file that it has opened and read: reads then do not change the access time.
    /// Does not block, unless a duplicate
    /// of the descriptor is being read or written at its position, and waits: for the server of a
    /// FUSE or network file system, for example.
    ///
    /// An error that no sync has returned yet is forgotten: sync first.
    ///
    /// The descriptor gets the position of the cursor, if that was used. If it cannot, the file is
    /// returned unchanged.
    ///
    /// Clones hold the file, and so do streams, logs, and operations whose futures were dropped,
    /// until the kernel has completed them: [`into_std`](Self::into_std) waits for those.
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
        let Self { inner, sequential, claimed, dont_cache } = self;
        let shared = match Arc::try_unwrap(inner) {
            Ok(file) => file,
            Err(inner) => return Err(Self { inner, sequential, claimed, dont_cache }),
        };
        if release(&shared.cursor, &shared.core).is_err() {
            return Err(Self { inner: Arc::new(shared), sequential, claimed, dont_cache });
        }
        match shared.core.into_fd() {
            Ok(fd) => Ok(fd.into()),
            Err(core) => {
                core.close_in_background();
                let inner = Arc::new(SharedFile { core, ..shared });
                Err(Self { inner, sequential, claimed, dont_cache })
            }
        }
    }

    /// As [`try_into_std`](Self::try_into_std), but waits, without blocking, for operations whose
    /// futures were dropped, so that none of them reads, writes or moves the position later. An
    /// operation that cannot be cancelled and never ends makes this wait forever.
    ///
    /// The descriptor gets the position of the cursor, if that was used. That may wait as in
    /// [`try_into_std`](Self::try_into_std): for a server, a thread waits.
    ///
    /// Errors: that of a write at the cursor; EINVAL if the cursor is where the file system allows
    /// no position; InvalidInput while clones, streams or logs of the
    /// file exist; while operations hold it, and for a thread, also ESHUTDOWN if the engine's
    /// backend has failed, and ECHILD in a forked child. After an error, or if the future is
    /// dropped, the file is closed with its last holder.
    pub async fn into_std(self) -> io::Result<std::fs::File> {
        self.finish_all_writes().await?;
        let left = |_| invalid("into_std: clones, streams or logs of the file still exist");
        drop(self.sequential);
        let SharedFile { mut core, cursor, engine, .. } =
            Arc::try_unwrap(self.inner).map_err(left)?;
        let is_local = core.is_local();
        let mut pause = Duration::from_micros(50);
        let file = loop {
            core = match core.into_fd() {
                Ok(fd) => break std::fs::File::from(fd),
                Err(held) => held,
            };
            // An orphaned operation wakes no task when it ends, so this polls.
            engine.sleep(pause).await?;
            pause = (pause * 2).min(MAX_PAUSE);
        };
        // Not before: an operation that has ended meanwhile may have moved the position.
        match cursor.into_inner() {
            None => Ok(file),
            Some(cursor) if is_local => cursor.seek(&file).map(|()| file),
            Some(cursor) => engine.call(move || cursor.seek(&file).map(|()| file)).await,
        }
    }

    /// Whether writes go to the end of the file, whatever their offset. Errors: those of
    /// `fcntl(2)`.
    pub(crate) fn appends(&self) -> io::Result<bool> {
        self.core().appends()
    }

    /// True for files and block devices, which have offsets and complete by themselves; false for
    /// pipes, sockets and terminals.
    pub(crate) fn is_storage(&self) -> bool {
        self.core().is_storage()
    }

    /// Where reads and writes without an offset go.
    pub(super) fn cursor(&self) -> &Arc<Cursor> {
        self.inner.cursor.get_or_init(|| Arc::new(Cursor::of(self.core())))
    }

    /// What dropped handles of the file still write.
    pub(crate) fn dropped_writes(&self) -> &Arc<DroppedWrites> {
        self.inner.dropped.get_or_init(|| DroppedWrites::new(self.engine()))
    }

    /// The same; `None` if no handle could have left any.
    pub(super) fn known_dropped_writes(&self) -> Option<&Arc<DroppedWrites>> {
        self.inner.dropped.get()
    }

    pub(super) fn claimed(&self) -> &AtomicBool {
        &self.claimed
    }

    /// Whether the file is known to need no other program and no other machine.
    pub(super) fn is_local(&self) -> bool {
        self.core().is_local()
    }

    /// Whether writes may arrive in another order than they are made: some servers take only those
    /// that follow each other.
    pub(crate) fn takes_any_order(&self) -> bool {
        self.is_local() || self.core().is_block_device()
    }

    pub(super) fn core(&self) -> &CoreFile {
        &self.inner.core
    }

    pub(super) fn syncs(&self) -> &Arc<Syncs> {
        &self.inner.syncs
    }

    /// Whether a durable write may be a single request.
    pub(super) fn has_dsync(&self) -> bool {
        !self.inner.no_dsync.load(Ordering::Relaxed) && self.core().has_dsync()
    }

    pub(super) fn set_no_dsync(&self) {
        self.inner.no_dsync.store(true, Ordering::Relaxed);
    }

    pub(super) fn cache(&self) -> &CacheHint {
        &self.inner.cache
    }

    /// The schedule of transfers: those of a pipe or a terminal may wait forever.
    pub(super) fn schedule(&self) -> Schedule {
        if self.is_storage() { Schedule::Paced } else { Schedule::Immediate(Lane::Wait) }
    }

    /// Runs a blocking call with the file on a thread.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CoreFile) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let core = self.core().clone();
        self.engine().call(move || work(&core)).await
    }

    async fn run(&self, operation: Operation) -> OpResult {
        OpFuture::new(&self.inner.engine.inner, Schedule::Immediate(Lane::Call), operation).await
    }
}

/// What the transfers of a [`File`] leave in the page cache: [`File::caching`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Caching {
    /// Pages, until the kernel needs the memory: the default.
    Kept,
    /// No pages of their own: [`File::with_dont_cache`].
    Dropped,
    /// None: they bypass it ([`OpenOptions::direct`]).
    Direct,
    /// Pages, since `RWF_DONTCACHE` is refused for this file: the reason.
    Refused(Refusal),
}

impl fmt::Display for Caching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("pages stay in the page cache"),
            Self::Dropped => f.write_str("pages are dropped from the page cache"),
            Self::Direct => f.write_str("direct I/O bypasses the page cache"),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

/// The longest pause between two checks whether operations still hold a file.
const MAX_PAUSE: Duration = Duration::from_millis(10);
/// Wait for writeback in progress, start writeback, and wait for it.
const SYNC_RANGE_ALL: u32 = 7;

/// What the file is to ringway, without its path, which nobody keeps.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedFile { core, engine, .. } = &*self.inner;
        let mut fields = f.debug_struct("File");
        #[cfg(unix)]
        fields.field("fd", &std::os::fd::AsRawFd::as_raw_fd(core));
        #[cfg(windows)]
        fields.field("handle", &std::os::windows::io::AsHandle::as_handle(core));
        fields.field("direct", &core.is_direct()).field("backend", &engine.backend());
        fields.finish_non_exhaustive()
    }
}

/// Times of a file, for [`File::set_times`]. As [`std::fs::FileTimes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl FileTimes {
    /// Returns times with none set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time of the last access.
    pub fn set_accessed(self, time: SystemTime) -> Self {
        Self { accessed: Some(time), ..self }
    }

    /// Sets the time of the last modification.
    pub fn set_modified(self, time: SystemTime) -> Self {
        Self { modified: Some(time), ..self }
    }
}

/// What the caller of a lock learns.
fn locked(result: io::Result<()>) -> Result<(), TryLockError> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => TryLockError::WouldBlock,
        _ => TryLockError::Error(error),
    })
}

/// Gives the descriptor the position of the cursor, if that was used.
fn release(cursor: &OnceLock<Arc<Cursor>>, file: &CoreFile) -> io::Result<()> {
    cursor.get().map_or(Ok(()), |cursor| cursor.release(file))
}

/// The clone shares the file and its cursor.
impl Clone for File {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.inner)).with_dont_cache(self.dont_cache)
    }
}

/// As [`File::from_std`].
///
/// # Panics
///
/// If there is no global engine and it cannot be built, where `from_std` returns the error, and in
/// a forked child whose parent has used it.
impl From<std::fs::File> for File {
    #[track_caller]
    fn from(file: std::fs::File) -> Self {
        match Self::from_std(file) {
            Ok(file) => file,
            Err(error) => panic!("no engine for a file: {error}"),
        }
    }
}

/// As the conversion from [`std::fs::File`].
#[cfg(unix)]
impl From<OwnedFd> for File {
    #[track_caller]
    fn from(fd: OwnedFd) -> Self {
        std::fs::File::from(fd).into()
    }
}

/// As [`File::try_into_std`].
impl TryFrom<File> for std::fs::File {
    type Error = File;

    fn try_from(file: File) -> Result<Self, File> {
        file.try_into_std()
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.core.as_fd()
    }
}

#[cfg(unix)]
impl std::os::fd::AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.core.as_raw_fd()
    }
}

#[cfg(windows)]
impl std::os::windows::io::AsHandle for File {
    fn as_handle(&self) -> BorrowedFd<'_> {
        self.inner.core.as_handle()
    }
}

#[cfg(windows)]
impl std::os::windows::io::AsRawHandle for File {
    fn as_raw_handle(&self) -> std::os::windows::io::RawHandle {
        self.inner.core.as_raw_handle()
    }
}
