//! Reading into and writing from buffers that the caller gives.

use super::File;
use super::op_result::{invalid, nothing, number, transfer, vectored};
use crate::align::{check_write, in_memory};
use crate::buffer::{IoBuffer, given_back};
use crate::engine::{
    COPY_STEP, Lane, OpFuture, OpResult, Schedule, poll_proceed, poll_proceed_in_memory,
};
use ringway_core::op::{self, Position, Vectored};
use ringway_core::{Buffer, Operation, Reason, SpareCapacity};
use std::future::poll_fn;
use std::io;
use std::ops::Range;

/// Bytes of a whole file that are asked for at a time: as many as a device that is read in order is
/// busy with for a while.
const WHOLE: usize = 1 << 20;
/// Bytes that are asked for beyond where a file should end.
const MORE: usize = 4096;

/// A write of so many bytes is surely one request to the device.
const ONE_REQUEST: u64 = 64 << 10;
const EOPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();

impl File {
    /// Reads at an offset (or at the file's own position, [`Position::Current`]) into `buffer`, and
    /// hands it back. How many bytes came: fewer than its length at the end of the file, and 0
    /// beyond.
    ///
    /// What is in the page cache is copied at once, giving way to other tasks every 256 KiB. With
    /// direct I/O the offset, the length and the buffer need no alignment; where they have none,
    /// ringway reads what encloses it and copies. (Not at the file's own position: EINVAL.)
    ///
    /// Errors: those of `pread(2)`; InvalidInput for an offset beyond `i64::MAX` and a buffer that
    /// cannot be written to. Dropped, the read is cancelled, and the buffer is freed when the
    /// kernel has let go of it.
    pub async fn read_at<B: IoBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<usize>, B) {
        let (result, buffer) = self.read_buffer(buffer.into(), at.into(), false).await;
        (result, given_back(buffer))
    }

    /// As [`read_at`](Self::read_at), and fills the buffer.
    ///
    /// Errors: UnexpectedEof where the file ends before; the buffer has what was there.
    pub async fn read_exact_at<B: IoBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<()>, B) {
        let buffer = buffer.into();
        let len = buffer.len() as u64;
        let (result, buffer) = self.read_buffer(buffer, at.into(), true).await;
        (whole(result, len, io::ErrorKind::UnexpectedEof), given_back(buffer))
    }

    /// Writes `buffer` at an offset (or at the file's own position, [`Position::Current`]), and
    /// hands it back. How many bytes were written, which may be fewer (on a full disk, say).
    /// Nothing changes behind that count, and an append lands in one place, as for `pwrite(2)`;
    /// only a write over 1 GiB goes in pieces of that size, one after the other.
    ///
    /// Errors: those of `pwrite(2)`, after which any part of the bytes may have been written;
    /// InvalidInput, naming the alignment, for direct I/O that is not aligned. Dropped, the write
    /// is cancelled if the kernel has not begun it: it may be written, or not, or in part, and that
    /// may be after a later write to the same range (see [Cancelling](crate#cancelling)).
    pub async fn write_at<B: IoBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<usize>, B) {
        let (result, buffer) = self.write_buffer(buffer.into(), at.into(), false).await;
        (result, given_back(buffer))
    }

    /// As [`write_at`](Self::write_at), and goes on until all of it is written.
    ///
    /// Errors: what stopped it; a part may have been written. Dropped, as
    /// [`write_at`](Self::write_at).
    pub async fn write_all_at<B: IoBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<()>, B) {
        let buffer = buffer.into();
        let len = buffer.len() as u64;
        let (result, buffer) = self.write_buffer(buffer, at.into(), true).await;
        (whole(result, len, io::ErrorKind::WriteZero), given_back(buffer))
    }

    /// Writes all of `buffer` at an offset (or at the file's own position) and makes it durable, as
    /// one future: when it is ready, what it wrote is on the device, as if the file had been opened
    /// with `O_DSYNC`. Of what was written before, and of writes on their way, it promises nothing:
    /// that is for [`sync_data`](Self::sync_data).
    ///
    /// A short direct write is one request (`RWF_DSYNC`); any other is a write with an
    /// `fdatasync(2)` linked behind it, which begins when all of it is written.
    ///
    /// Errors: those of `write(2)` and of `fdatasync(2)`; InvalidInput for what cannot be synced
    /// (pipes, sockets) and, naming the alignment, for direct I/O that is not aligned. A part may
    /// have been written. After an error of the sync the data may be lost though it can be read;
    /// the sync is not tried again, and neither should the caller: a second one that succeeds
    /// proves nothing. Dropped, as [`write_at`](Self::write_at): it may be written, or not, or in
    /// part, durable or not.
    pub async fn write_durable_at<B: IoBuffer>(
        &self,
        buffer: B,
        at: impl Into<Position>,
    ) -> (io::Result<()>, B) {
        let (result, buffer) = self.write_durable(buffer.into(), at.into()).await;
        (result, given_back(buffer))
    }

    async fn write_durable(&self, mut buffer: Buffer, at: Position) -> (io::Result<()>, Buffer) {
        let len = buffer.len() as u64;
        if !self.is_storage() {
            return (Err(invalid("write_durable_at: the file cannot be synced")), buffer);
        }
        if let Err(error) = self.check_aligned(&buffer, at) {
            return (Err(error), buffer);
        }
        if self.is_direct() && len <= ONE_REQUEST && self.has_dsync() {
            let write = op::write_dsync(self.core(), buffer, at).exact();
            let (result, back) = transfer(self.submit(write, len as usize).await);
            match result {
                Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) => self.set_no_dsync(),
                result => return (whole(result, len, io::ErrorKind::WriteZero), back),
            }
            buffer = back;
        }
        let write = op::write(self.core(), buffer, at).exact();
        let (write, sync) = match self.submit_synced(write, self.copied(len as usize)).await {
            Ok(results) => results,
            Err(forked) => return (Err(forked), Buffer::from(Vec::new())),
        };
        let (written, buffer) = transfer(write);
        // The sync behind a write that failed says only that it was called off.
        (whole(written, len, io::ErrorKind::WriteZero).and(nothing(sync)), buffer)
    }

    /// Writes the records of a log one after the other, and makes them durable; dropped, it is
    /// cancelled.
    pub(crate) async fn write_records(self, records: Vec<Buffer>, offset: u64) -> io::Result<()> {
        let records = Vectored::new(records);
        let len = records.len();
        let write = op::writev(self.core(), records, offset).exact();
        let (write, sync) = self.submit_synced(write, 0).await?;
        let written = number(write).map(|written| written as usize);
        whole(written, len, io::ErrorKind::WriteZero).and(nothing(sync))
    }

    /// A write that may copy so many bytes, with an fdatasync linked behind it: what became of
    /// either.
    ///
    /// Errors: ECHILD in a forked child whose parent has begun it.
    async fn submit_synced(
        &self,
        write: Operation,
        copied: usize,
    ) -> io::Result<(OpResult, OpResult)> {
        let chain = vec![write, op::fdatasync(self.core())];
        let future = OpFuture::new(&self.engine().inner, Schedule::Immediate(Lane::Sync), chain)
            .copies(copied);
        let mut results = future.await.into_iter();
        match (results.next(), results.next()) {
            (Some(write), Some(sync)) => Ok((write, sync)),
            // A forked child has no results: its parent has.
            _ => Err(io::Error::from_raw_os_error(Reason::Forked.errno())),
        }
    }

    /// Reads into several buffers, one after the other: `preadv(2)`. As [`read_at`](Self::read_at),
    /// but for direct I/O, where all of it must be aligned (EINVAL). Of more than 1024 buffers the
    /// first 1024 that are not empty are read into.
    pub async fn read_vectored_at<B: IoBuffer>(
        &self,
        buffers: Vec<B>,
        at: impl Into<Position>,
    ) -> (io::Result<usize>, Vec<B>) {
        let buffers = Vectored::new(buffers);
        let len = in_memory(buffers.len());
        self.run_vectored(op::readv(self.core(), buffers, at), len).await
    }

    /// As [`read_vectored_at`](Self::read_vectored_at), and goes on until all are full or the file
    /// ends; how many bytes came tells which.
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
    /// with direct I/O all of it must be aligned (EINVAL). Of more than 1024 buffers the first 1024
    /// that are not empty are written.
    pub async fn write_vectored_at<B: IoBuffer>(
        &self,
        buffers: Vec<B>,
        at: impl Into<Position>,
    ) -> (io::Result<usize>, Vec<B>) {
        let buffers = Vectored::new(buffers);
        let len = in_memory(buffers.len());
        self.run_vectored(op::writev(self.core(), buffers, at), len).await
    }

    /// As [`write_vectored_at`](Self::write_vectored_at), and goes on until all of it is written.
    ///
    /// Errors: what stopped it; a part may have been written.
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
        (result, buffers.into_iter().map(given_back).collect())
    }

    /// A transfer of `len` bytes, in its turn. One that is not direct may be copied while it is
    /// submitted.
    pub(super) fn submit(&self, operation: Operation, len: usize) -> OpFuture<'_, Operation> {
        OpFuture::new(&self.engine().inner, self.schedule(), operation).copies(self.copied(len))
    }

    /// How many of `len` bytes may be copied while they are submitted: none of direct I/O.
    pub(super) fn copied(&self, len: usize) -> usize {
        if self.is_direct() || !self.is_storage() { 0 } else { len.min(COPY_STEP) }
    }

    pub(super) async fn read_buffer(
        &self,
        mut buffer: Buffer,
        at: Position,
        exact: bool,
    ) -> (io::Result<usize>, Buffer) {
        if let Position::Offset(offset) = at {
            if self.is_direct() && !self.is_aligned(&buffer, offset) {
                // Boxed, so that it does not make every read's future larger.
                return Box::pin(self.read_around(buffer, offset)).await;
            }
            if let Some(read) = self.read_cached(&mut buffer, offset).await {
                return (Ok(read), buffer);
            }
        }
        let len = buffer.len();
        let read = op::read(self.core(), buffer, at);
        transfer(self.submit(if exact { read.exact() } else { read }, len).await)
    }

    async fn write_buffer(
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
                Ok(check_write(&self.alignment(), offset, buffer.as_slice()).map(drop)?)
            }
            _ => Ok(()),
        }
    }

    /// Reads out of the page cache, up to the end of the file; `None` when it is not all there, and
    /// for direct I/O.
    pub(super) async fn read_cached(&self, buffer: &mut Buffer, offset: u64) -> Option<usize> {
        let tries = self.tries_cache();
        let bytes = buffer.as_mut_slice().filter(|bytes| tries && !bytes.is_empty())?;
        let mut read = 0;
        for piece in bytes.chunks_mut(COPY_STEP) {
            // Before the read, so that a task that gives way does not hold what it has read.
            poll_fn(|cx| poll_proceed(cx, piece.len())).await;
            let Some(more) = self.core().read_now(piece, offset.saturating_add(read as u64)) else {
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

    /// As [`read_cached`](Self::read_cached), at once: for at most [`COPY_STEP`] bytes, after [`poll_proceed`].
    pub(super) fn read_cached_now(&self, buffer: &mut Buffer, offset: u64) -> Option<usize> {
        let bytes =
            buffer.as_mut_slice().filter(|bytes| self.tries_cache() && !bytes.is_empty())?;
        let Some(read) = self.core().read_now(bytes, offset) else {
            self.cache().miss();
            return None;
        };
        self.count_hit();
        Some(read)
    }

    /// The whole content of a file that should have `len` bytes. It may have more or fewer by now.
    pub(super) async fn read_whole(&self, len: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        content.try_reserve_exact(len.saturating_add(MORE))?;
        loop {
            let read = content.len();
            let step = match len.saturating_sub(read) {
                // Files of /proc and the like have no length, and any may have grown.
                0 => MORE,
                left => left.min(WHOLE),
            };
            content.try_reserve(step)?;
            let spare = SpareCapacity::from(content).limit(step);
            let (result, spare) = self.read_spare(spare, Position::Offset(read as u64), true).await;
            let more = result?;
            // (A forked child does not get its buffer back, and has had an error.)
            content = Vec::try_from(spare).map_err(|_| io::ErrorKind::Other)?;
            if more < step {
                return Ok(content);
            }
        }
    }

    /// Whether the page cache has both ends of a range that is not empty, or the file ends before
    /// them. Copies nothing.
    pub(crate) fn is_cached(&self, range: &Range<u64>) -> bool {
        let has = |offset| self.core().read_now(&mut [0], offset).is_some();
        if !self.tries_cache() {
            return false;
        }
        let cached = has(range.start) && has(range.end - 1);
        if !cached {
            self.cache().miss();
        }
        cached
    }

    /// A read was answered from the page cache.
    pub(super) fn count_hit(&self) {
        self.cache().hit();
        self.engine().inner.count_cached();
    }

    pub(super) fn tries_cache(&self) -> bool {
        let may = self.engine().inner.try_cached && !self.is_direct() && self.is_storage();
        may && self.cache().should_try()
    }

    /// Whether a direct read may go straight into the buffer.
    fn is_aligned(&self, buffer: &Buffer, offset: u64) -> bool {
        check_write(&self.alignment(), offset, buffer.as_slice()).is_ok()
    }

    /// A direct read of what is not aligned: the enclosing range into lent memory, and a copy.
    async fn read_around(&self, mut buffer: Buffer, offset: u64) -> (io::Result<usize>, Buffer) {
        let Some(bytes) = buffer.as_mut_slice() else {
            // The queue says what is wrong.
            return transfer(self.submit(op::read(self.core(), buffer, offset), 0).await);
        };
        let result = match offset.checked_add(bytes.len() as u64) {
            Some(end) => self.read(offset..end).await,
            None => Err(invalid("an offset over i64::MAX")),
        };
        let Ok(block) = result else { return (result.map(|block| block.len()), buffer) };
        for (to, from) in bytes.chunks_mut(COPY_STEP).zip(block.chunks(COPY_STEP)) {
            poll_fn(|cx| poll_proceed_in_memory(cx, from.len())).await;
            to[..from.len()].copy_from_slice(from);
        }
        (Ok(block.len()), buffer)
    }
}

/// A transfer that is only right if it is whole.
fn whole(result: io::Result<usize>, len: u64, short: io::ErrorKind) -> io::Result<()> {
    match result? as u64 == len {
        true => Ok(()),
        false => Err(short.into()),
    }
}
