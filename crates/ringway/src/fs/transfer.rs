//! Reads into and writes from buffers that the caller passes. Pooled reads are in `pooled.rs`.

use super::File;
use super::sync::{SyncErrors, SyncKind};
use crate::align::{check_write, in_memory};
use crate::buffer::IoBuffer;
use crate::engine::op_result::{forked, invalid, nothing, number, transfer, untorn, vectored};
use crate::engine::{
    COPY_STEP, Lane, OpFuture, OpResult, Schedule, poll_proceed, poll_proceed_in_memory,
};
use ringway_core::op::{self, Position, Vectored};
use ringway_core::{Buffer, Operation, SpareCapacity, errno};
use std::future::poll_fn;
use std::io;
use std::ops::Range;

/// Bytes per read of a whole file: enough to keep a device busy for a while with sequential reads.
const READ_STEP: usize = 1 << 20;
/// Bytes to read beyond the expected end of a file.
const END_STEP: usize = 4096;

/// A write of at most this many bytes is surely one request to the device.
const ONE_REQUEST: u64 = 64 << 10;

impl File {
    /// Reads at an offset (or at the file's current position, [`Position::Current`]) into `buffer`.
    /// Returns the number of bytes read, and the buffer. The number is less than the buffer's
    /// length at the end of the file, and 0 beyond it.
    ///
    /// Data in the page cache is copied at once; the task yields every 256 KiB. With direct I/O,
    /// the offset, the length and the buffer need no alignment: where they have none, ringway reads
    /// the enclosing range and copies. (A read at the current position must be aligned, otherwise
    /// it fails with EINVAL.)
    ///
    /// Errors: those of `pread(2)`; InvalidInput for an offset above `i64::MAX`, for a read-only
    /// buffer, and for an empty vector with capacity (`Vec::with_capacity(n)`), which
    /// [`read_buf_at`](Self::read_buf_at) fills; a buffer without memory reads 0 bytes. If the
    /// future is dropped, the read is cancelled, and the buffer is freed once the kernel no longer
    /// uses it.
    pub async fn read_at<B: IoBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<usize>, B) {
        let (result, buffer) = self.read_buffer(buffer.into(), at.into(), false).await;
        (result, B::returned(buffer))
    }

    /// As [`read_at`](Self::read_at), but fills the whole buffer.
    ///
    /// Errors: those of [`read_at`](Self::read_at); UnexpectedEof if the file ends before that; the
    /// buffer then holds the bytes up to the end.
    pub async fn read_exact_at<B: IoBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<()>, B) {
        let buffer = buffer.into();
        let len = buffer.len() as u64;
        let (result, buffer) = self.read_buffer(buffer, at.into(), true).await;
        (whole(result, len, io::ErrorKind::UnexpectedEof), B::returned(buffer))
    }

    /// Writes `buffer` at an offset (or at the file's current position, [`Position::Current`]).
    /// Returns the number of bytes written, and the buffer. The number may be less than the
    /// buffer's length (on a full disk, for example); nothing is changed beyond it. An append goes
    /// to one place, as with `pwrite(2)`. Only a write over 1 GiB is split, into pieces of that
    /// size that follow each other.
    ///
    /// Errors: those of `pwrite(2)`, after which any part of the bytes may have been written;
    /// InvalidInput with the required alignment for direct I/O that is not aligned. If the future
    /// is dropped, the write is cancelled unless the kernel has started it: the data may be written
    /// in full, in part or not at all, and even after a later write to the same range (see
    /// [Cancelling](crate#cancelling)).
    pub async fn write_at<B: IoBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<usize>, B) {
        let (result, buffer) = self.write_buffer(buffer.into(), at.into(), false).await;
        (result, B::returned(buffer))
    }

    /// As [`write_at`](Self::write_at), but continues until everything is written.
    ///
    /// Errors: the error that stopped it; a part may have been written. If the future is dropped:
    /// as with [`write_at`](Self::write_at).
    pub async fn write_all_at<B: IoBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<()>, B) {
        let buffer = buffer.into();
        let len = buffer.len() as u64;
        let (result, buffer) = self.write_buffer(buffer, at.into(), true).await;
        (whole(result, len, io::ErrorKind::WriteZero), B::returned(buffer))
    }

    /// Writes all of `buffer` at an offset (or at the file's current position) and makes it
    /// durable. When the future completes, the data is on the device, as if the file had been
    /// opened with `O_DSYNC`. This does not cover earlier writes or other writes in flight: use
    /// [`sync_data`](Self::sync_data) for those.
    ///
    /// A direct write of at most 64 KiB is one request (`RWF_DSYNC`) on ext4, XFS and block
    /// devices, where that is known to be durable. Any other is a write and then an `fdatasync(2)`,
    /// which concurrent durable writes and syncs of the file share.
    ///
    /// Errors: those of `write(2)` and of `fdatasync(2)`; InvalidInput for files that cannot be
    /// synced (pipes, sockets), and, with the required alignment, for direct I/O that is not
    /// aligned. A part may have been written. After a failed sync the data may be lost even though
    /// it can be read. The sync is not retried, and the caller should not retry it either: a second
    /// sync that succeeds proves nothing. Write the data again. The next sync of the file also
    /// returns the error of this write's sync. If the future is dropped, the data may be written in
    /// full, in part or not at all, and may or may not be durable.
    pub async fn write_durable_at<B: IoBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<()>, B) {
        let (result, buffer) = self.write_durable(buffer.into(), at.into(), false).await;
        (result, B::returned(buffer))
    }

    /// Writes `buffer` at an offset untorn, which Linux also calls atomic: after a crash or a power
    /// failure the range has all of these bytes or none of them. `RWF_ATOMIC`: a direct write whose
    /// length and offset [`atomic_write_unit`](Self::atomic_write_unit) permits. It is for a
    /// database that overwrites its pages in place, and saves the second copy that protects them
    /// from torn pages.
    ///
    /// It is one write of one range, and not [`fs::write_atomic`](super::write_atomic), which
    /// replaces a whole file of any length on any file system, and has no part in a page of one.
    ///
    /// Either the whole buffer is written or an error is returned. It is never split, continued, or
    /// made as a plain write where there are no untorn ones. It is as durable as a plain write:
    /// until a sync, a crash may undo it as a whole.
    /// [`write_untorn_durable_at`](Self::write_untorn_durable_at) makes it durable. A read that
    /// runs at the same time may see a part of it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir_in(".")?;
    /// # let path = dir.path().join("pages");
    /// use ringway::{AlignedBuffer, fs::OpenOptions};
    /// let mut options = OpenOptions::new();
    /// let file = options.write(true).create(true).direct(true).open(&path).await?;
    /// if let Some(unit) = file.atomic_write_unit().await? {
    ///     let page = AlignedBuffer::for_direct(file.alignment(), unit.max as usize);
    ///     file.write_untorn_at(page, 0).await.0?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: those of `pwritev2(2)`. A refusal is a [`Refusal`](crate::Refusal) in the error
    /// ([`io::Error::get_ref`]), with errno, reason and fix, and nothing is written:
    ///
    /// - `Unsupported` (EOPNOTSUPP) if the file has no untorn writes, is not open for direct I/O,
    ///   or if the file system refuses what it reports, as an overlay does;
    /// - InvalidInput (EINVAL) for another length (nothing longer is split) or offset, for a buffer
    ///   that is not aligned, and for a file that is open for appending;
    /// - FileTooLarge (EFBIG) beyond `RLIMIT_FSIZE`, where the kernel would write a part;
    /// - WouldBlock (EAGAIN) if pages of the range are cached and are dirtied all the time, through
    ///   a mapping or by buffered writes, after a few tries.
    ///
    /// If the kernel has nevertheless written a part, a [`TornWrite`](super::TornWrite) is in the
    /// error. On a block device nobody else may use its page cache: if a page of the range is
    /// cached and busy, the kernel makes a plain buffered write of it, and reports success.
    ///
    /// The first call for a file may block for a system call, as [`alignment`](Self::alignment). If
    /// the future is dropped, the write may have been made, as a whole, even after a later one.
    pub async fn write_untorn_at<B: IoBuffer>(
        &self,
        buffer: B,
        offset: u64,
    ) -> (io::Result<()>, B) {
        let buffer = buffer.into();
        let len = buffer.len();
        let write = op::write(self.core(), buffer, offset).untorn();
        let (result, buffer) = self.written_untorn(self.submit(write, len).await);
        (result, B::returned(buffer))
    }

    /// As [`write_untorn_at`](Self::write_untorn_at), and makes it durable as
    /// [`write_durable_at`](Self::write_durable_at) does: when the future completes, the bytes are
    /// on the device.
    ///
    /// Errors: those of both. After an error of a sync the write may have been made, as a whole, or
    /// not.
    pub async fn write_untorn_durable_at<B: IoBuffer>(
        &self,
        buffer: B,
        offset: u64,
    ) -> (io::Result<()>, B) {
        let at = Position::Offset(offset);
        let (result, buffer) = self.write_durable(buffer.into(), at, true).await;
        (result, B::returned(buffer))
    }

    async fn write_durable(
        &self,
        mut buffer: Buffer,
        at: Position,
        untorn: bool,
    ) -> (io::Result<()>, Buffer) {
        let len = buffer.len() as u64;
        if !untorn {
            if !self.is_storage() {
                return (Err(invalid("write_durable_at: the file cannot be synced")), buffer);
            }
            if let Err(error) = self.check_aligned(&buffer, at) {
                return (Err(error), buffer);
            }
        }
        let all = |write: Operation| if untorn { write.untorn() } else { write.exact() };
        let written = |done| {
            if untorn {
                return self.written_untorn(done);
            }
            let (result, buffer) = transfer(done);
            (whole(result, len, io::ErrorKind::WriteZero), buffer)
        };
        if !self.engine().inner.is_current() {
            return (Err(forked()), buffer);
        }
        let ledger = &self.syncs().ledger;
        if self.is_direct() && len <= ONE_REQUEST && self.has_dsync() {
            let write = all(op::write_dsync(self.core(), buffer, at));
            let write = self.submit(write, len as usize).observed_by(ledger);
            let (result, back) = written(write.await);
            match result {
                // (Where untorn writes are, there is `RWF_DSYNC`.)
                Err(error) if !untorn && error.raw_os_error() == Some(errno::EOPNOTSUPP) => {
                    self.set_no_dsync()
                }
                result => return (result, back),
            }
            buffer = back;
        }
        // From here on, another sync may write these bytes back and meet the error.
        let errors = SyncErrors::Since(ledger.since_now());
        let write = all(op::write(self.core(), buffer, at));
        let (result, buffer) = written(self.submit(write, len as usize).await);
        let result = match result {
            Ok(()) => self.sync(SyncKind::Data, errors).await,
            failed => failed,
        };
        (result, buffer)
    }

    /// The result of an untorn write, with the reason where it was refused.
    fn written_untorn(&self, done: OpResult) -> (io::Result<()>, Buffer) {
        untorn(done, || self.core().atomic_write_unit())
    }

    /// Writes the records of a log one after the other and makes them durable. Cancelled if the
    /// future is dropped.
    pub(crate) async fn write_records(self, records: Vec<Buffer>, offset: u64) -> io::Result<()> {
        if !self.engine().inner.is_current() {
            return Err(forked());
        }
        let ledger = &self.syncs().ledger;
        let since = ledger.since_now();
        let records = Vectored::new(records);
        let len = records.len();
        let write = self.flagged(op::writev(self.core(), records, offset).exact());
        let chain = vec![write, op::fdatasync(self.core())];
        let schedule = Schedule::Immediate(Lane::Sync);
        let mut chain = OpFuture::new(&self.engine().inner, schedule, chain).observed_by(ledger);
        let mut results = (&mut chain).await.into_iter();
        // A forked child has no results: they belong to the parent.
        let (write, sync) = results.next().zip(results.next()).ok_or_else(forked)?;
        let written = number(write).map(|written| written as usize);
        whole(written, len, io::ErrorKind::WriteZero).and(nothing(sync))?;
        match chain.ticket() {
            Some(ticket) => self.settle(ticket, since).await,
            None => Ok(()),
        }
    }

    /// Reads into several buffers, one after the other: `preadv(2)`. As [`read_at`](Self::read_at),
    /// except that direct I/O must be aligned (EINVAL). At most 1024 buffers are used: the first
    /// that is not empty, and those after it.
    pub async fn read_vectored_at<B: IoBuffer>(
        &self,
        buffers: Vec<B>,
        at: impl Into<Position>,
    ) -> (io::Result<usize>, Vec<B>) {
        let buffers = Vectored::new(buffers);
        let len = in_memory(buffers.len());
        self.run_vectored(op::readv(self.core(), buffers, at), len).await
    }

    /// As [`read_vectored_at`](Self::read_vectored_at), but continues until all buffers are full or
    /// the file ends. Returns the number of bytes read, and the buffers.
    pub async fn read_all_vectored_at<B: IoBuffer>(
        &self,
        buffers: Vec<B>,
        at: impl Into<Position>,
    ) -> (io::Result<usize>, Vec<B>) {
        let buffers = Vectored::new(buffers);
        let len = in_memory(buffers.len());
        self.run_vectored(op::readv(self.core(), buffers, at).exact(), len).await
    }

    /// Writes several buffers, one after the other: `pwritev(2)`. As [`write_at`](Self::write_at);
    /// direct I/O must be aligned (EINVAL). At most 1024 buffers are written: the first that is not
    /// empty, and those after it.
    pub async fn write_vectored_at<B: IoBuffer>(
        &self,
        buffers: Vec<B>,
        at: impl Into<Position>,
    ) -> (io::Result<usize>, Vec<B>) {
        let buffers = Vectored::new(buffers);
        let len = in_memory(buffers.len());
        self.run_vectored(op::writev(self.core(), buffers, at), len).await
    }

    /// As [`write_vectored_at`](Self::write_vectored_at), but continues until everything is
    /// written.
    ///
    /// Errors: the error that stopped it; a part may have been written.
    pub async fn write_all_vectored_at<B: IoBuffer>(
        &self,
        buffers: Vec<B>,
        at: impl Into<Position>,
    ) -> (io::Result<()>, Vec<B>) {
        let buffers = Vectored::new(buffers);
        let len = buffers.len();
        let (result, buffers) =
            self.run_vectored(op::writev(self.core(), buffers, at).exact(), in_memory(len)).await;
        (whole(result, len, io::ErrorKind::WriteZero), buffers)
    }

    async fn run_vectored<B: IoBuffer>(
        &self,
        operation: Operation,
        len: usize,
    ) -> (io::Result<usize>, Vec<B>) {
        let (result, buffers) = vectored(self.submit(operation, len).await);
        (result, buffers.into_iter().map(B::returned).collect())
    }

    /// A future for a transfer of `len` bytes. The submission may copy them unless they are direct.
    #[inline]
    pub(super) fn submit(&self, operation: Operation, len: usize) -> OpFuture<'_, Operation> {
        let operation = self.flagged(operation);
        OpFuture::new(&self.engine().inner, self.schedule(), operation).copies(self.copied(len))
    }

    /// How many of `len` bytes the submission may copy: none with direct I/O.
    pub(super) fn copied(&self, len: usize) -> usize {
        if self.is_direct() || !self.is_storage() { 0 } else { len.min(COPY_STEP) }
    }

    pub(super) async fn read_buffer(
        &self,
        mut buffer: Buffer,
        at: Position,
        exact: bool,
    ) -> (io::Result<usize>, Buffer) {
        if let Position::Offset(offset) = at
            // The queue refuses such a buffer, and gives the reason.
            && !buffer.has_only_spare_capacity()
        {
            if self.is_direct() {
                if !self.is_aligned(&buffer, offset) {
                    // Boxed, so that it does not enlarge the future of every read.
                    return Box::pin(self.read_around(buffer, offset)).await;
                }
            } else if let Some(read) = self.read_cached(&mut buffer, offset, false).await {
                return (Ok(read), buffer);
            }
        }
        let len = buffer.len();
        let read = op::read(self.core(), buffer, at);
        transfer(self.submit(if exact { read.exact() } else { read }, len).await)
    }

    pub(super) async fn write_buffer(
        &self,
        buffer: Buffer,
        at: Position,
        exact: bool,
    ) -> (io::Result<usize>, Buffer) {
        if let Err(error) = self.check_aligned(&buffer, at) {
            return (Err(error), buffer);
        }
        let len = buffer.len();
        let write = op::write(self.core(), buffer, at);
        transfer(self.submit(if exact { write.exact() } else { write }, len).await)
    }

    /// Errors: InvalidInput for a direct write that is not aligned.
    fn check_aligned(&self, buffer: &Buffer, at: Position) -> io::Result<()> {
        match at {
            Position::Offset(offset) if self.is_direct() => {
                let bytes = buffer.as_slice();
                let align = self.core().direct_io_of(offset, bytes.len() as u64);
                Ok(check_write(&align, offset, bytes).map(drop)?)
            }
            _ => Ok(()),
        }
    }

    /// Reads from the page cache, up to the end of the file. Returns `None` if some of the data is
    /// not cached, and with direct I/O.
    ///
    /// With `charged`, the caller has checked [`tries_cache`](Self::tries_cache) and called
    /// [`poll_proceed`] for the first [`COPY_STEP`] bytes.
    pub(super) async fn read_cached(
        &self,
        buffer: &mut Buffer,
        offset: u64,
        mut charged: bool,
    ) -> Option<usize> {
        let tries = charged || self.tries_cache();
        let bytes = buffer.as_mut_slice().filter(|bytes| tries && !bytes.is_empty())?;
        let mut read = 0;
        for piece in bytes.chunks_mut(COPY_STEP) {
            // Yield before the read, so that a task that yields does not hold what it has read.
            if !std::mem::take(&mut charged) {
                poll_fn(|cx| poll_proceed(cx, piece.len())).await;
            }
            let Some(more) = self.core().read_now_with(
                piece,
                offset.saturating_add(read as u64),
                self.rw_flags(),
            ) else {
                self.cache().miss();
                return None;
            };
            read += more;
            if more < piece.len() {
                break;
            }
        }
        self.count_hit();
        Some(read)
    }

    /// As [`read_cached`](Self::read_cached) without yielding: for at most [`COPY_STEP`] bytes,
    /// after [`poll_proceed`].
    pub(super) fn read_cached_now(&self, buffer: &mut Buffer, offset: u64) -> Option<usize> {
        let bytes =
            buffer.as_mut_slice().filter(|bytes| self.tries_cache() && !bytes.is_empty())?;
        let Some(read) = self.core().read_now_with(bytes, offset, self.rw_flags()) else {
            self.cache().miss();
            return None;
        };
        self.count_hit();
        Some(read)
    }

    /// Reads the whole content of a file that is expected to have `len` bytes; it may have more or
    /// fewer.
    pub(super) async fn read_whole(&self, len: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        content.try_reserve_exact(len.saturating_add(END_STEP))?;
        loop {
            let read = content.len();
            let step = match len.saturating_sub(read) {
                // Files in /proc and the like have no length, and any file may have grown.
                0 => END_STEP,
                left => left.min(READ_STEP),
            };
            content.try_reserve(step)?;
            let spare = SpareCapacity::from(content).limit(step);
            let (result, spare) = self.read_spare(spare, Position::Offset(read as u64), true).await;
            let more = result?;
            // A forked child does not get its buffer back, but has returned an error above.
            content = Vec::try_from(spare).map_err(|_| io::ErrorKind::Other)?;
            if more < step {
                return Ok(content);
            }
        }
    }

    /// Whether the page cache seems to have a range: it has the first and the last byte of it, or
    /// the file ends before them. A hint, for programs that prefetch; it neither blocks nor copies
    /// the range.
    ///
    /// False with direct I/O, where the system cannot tell, with
    /// [`with_dont_cache`](Self::with_dont_cache), where a look may drop pages, and for a file
    /// whose reads are rarely cached, which is then tried only now and then. True for an empty
    /// range.
    pub fn is_cached(&self, range: &Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let has = |offset| self.core().read_now(&mut [0], offset).is_some();
        if self.drops_pages() || !self.tries_cache() {
            return false;
        }
        let last = range.end - 1;
        let cached = has(range.start) && (last == range.start || has(last));
        if !cached {
            self.cache().miss();
        }
        cached
    }

    /// Counts a read that was served from the page cache.
    pub(super) fn count_hit(&self) {
        self.cache().hit();
        self.engine().inner.count_cached();
    }

    pub(super) fn tries_cache(&self) -> bool {
        let may = self.engine().inner.try_cached && !self.is_direct() && self.is_storage();
        may && self.core().may_read_now() && self.cache().should_try()
    }

    /// Whether a direct read may go straight into the buffer.
    fn is_aligned(&self, buffer: &Buffer, offset: u64) -> bool {
        check_write(&self.alignment(), offset, buffer.as_slice()).is_ok()
    }

    /// A direct read that is not aligned: reads the enclosing range into a pooled buffer and
    /// copies.
    async fn read_around(&self, mut buffer: Buffer, offset: u64) -> (io::Result<usize>, Buffer) {
        let Some(bytes) = buffer.as_mut_slice() else {
            // The queue refuses the operation and gives the reason.
            return transfer(self.submit(op::read(self.core(), buffer, offset), 0).await);
        };
        let result = match offset.checked_add(bytes.len() as u64) {
            Some(end) => self.read(offset..end).await,
            None => Err(invalid("offset above i64::MAX")),
        };
        let Ok(block) = result else { return (result.map(|block| block.len()), buffer) };
        for (to, from) in bytes.chunks_mut(COPY_STEP).zip(block.chunks(COPY_STEP)) {
            poll_fn(|cx| poll_proceed_in_memory(cx, from.len())).await;
            to[..from.len()].copy_from_slice(from);
        }
        (Ok(block.len()), buffer)
    }
}

/// Turns a transfer that is not complete into an error.
fn whole(result: io::Result<usize>, len: u64, short: io::ErrorKind) -> io::Result<()> {
    if result? as u64 == len { Ok(()) } else { Err(short.into()) }
}
