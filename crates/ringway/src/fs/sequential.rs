//! Reads, writes and seeks at the cursor: what the I/O traits of tokio and `futures-io` do with a
//! [`File`]. The traits themselves are implemented in `stream`.
//!
//! Nothing is read beyond what the caller asks for, so that it sees what others have written since.
//! Reading ahead brings pages into the page cache, and only there.

use super::cursor::CursorKind;
use super::dropped::DroppedWrites;
use super::write_queue::{WriteLimits, WriteQueue};
use super::{Advice, File};
use crate::Block;
use crate::align::MAX_OFFSET;
use crate::engine::op_result::{forked, invalid};
use crate::engine::{
    COPY_STEP, Lane, OpFuture, Schedule, poll_proceed, poll_proceed_in_memory, run_in_background,
    wake_all,
};
use crate::stream::{Eager, checked};
use ringway_core::op::{self, Position};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// tokio's default.
const MAX_BUF_SIZE: usize = 2 << 20;
/// How far ahead of a read the device is kept busy.
const AHEAD: u64 = 2 << 20;
/// Bytes to bring into the page cache with one operation.
const AHEAD_STEP: u64 = 512 << 10;
/// The time between two checks whether requests to read ahead have ended.
const PAUSE: Duration = Duration::from_micros(200);
/// Bytes that are read in order before more are requested: a small file is read without.
const AHEAD_AFTER: u64 = 128 << 10;

/// What one handle of a file does at the cursor. Each clone has its own.
pub(super) struct Sequential {
    max_buf_size: usize,
    reading: Option<CursorRead>,
    /// What a read has brought, of which the caller has not taken all: its buffer was smaller than
    /// that of a poll that was abandoned.
    held: Option<HeldBytes>,
    /// A read that was discarded. Its task is to read again; it is woken without the lock.
    superseded: Option<CursorRead>,
    writes: Arc<WriteQueue>,
    /// Those that go on when this handle is dropped.
    dropped: Arc<DroppedWrites>,
    seek: Option<PendingSeek>,
    ahead: Ahead,
}

/// A read in flight.
struct CursorRead {
    start: u64,
    block: Eager<io::Result<Block>>,
    /// Of the task that waits for it.
    waker: Waker,
}

/// Bytes of the file from `start` on.
struct HeldBytes {
    start: u64,
    block: Block,
}

/// A seek that waits for the writes before it, and for the length of the file.
struct PendingSeek {
    to: SeekFrom,
    end: Option<Eager<io::Result<u64>>>,
}

/// The state of reading ahead.
#[derive(Default)]
struct Ahead {
    /// Where the last read ended.
    next: u64,
    /// How many bytes were read in order up to there.
    in_order: u64,
    /// Up to where pages were requested; 0 until a read has missed the page cache.
    requested: u64,
    /// Requests in flight have a clone.
    token: Arc<()>,
}

impl Sequential {
    fn new(file: &File) -> Self {
        Self {
            max_buf_size: MAX_BUF_SIZE,
            reading: None,
            held: None,
            superseded: None,
            writes: Arc::default(),
            dropped: Arc::clone(file.dropped_writes()),
            seek: None,
            ahead: Ahead::default(),
        }
    }
}

impl File {
    /// Runs a poll with what this handle does at the cursor.
    fn with_sequential<R>(&self, poll: impl FnOnce(&mut Sequential, &Self) -> R) -> R {
        let mut guard = self.lock_sequential();
        let sequential = guard.get_or_insert_with(|| Box::new(Sequential::new(self)));
        let result = poll(sequential, self);
        let superseded = sequential.superseded.take();
        drop(guard);
        if let Some(CursorRead { block, waker, .. }) = superseded {
            drop(block);
            wake_all(&mut vec![waker]);
        }
        result
    }

    fn lock_sequential(&self) -> MutexGuard<'_, Option<Box<Sequential>>> {
        self.sequential.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads at the cursor. Returns the number of bytes; 0 at the end or for an empty buffer.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.with_sequential(|sequential, file| sequential.poll_read(file, cx, bytes))
    }

    /// The most bytes that a read or write at the cursor transfers at once.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_limit(&self) -> usize {
        self.max_buf_size().min(COPY_STEP)
    }

    /// Accepts bytes to write at the cursor.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with_sequential(|sequential, file| sequential.poll_write(file, cx, parts))
    }

    /// Waits until all bytes that this handle has accepted are written.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.engine().inner.is_current() {
            return Poll::Ready(self.check_fork());
        }
        self.with_sequential(|sequential, file| {
            ready!(sequential.poll_idle(file, cx))?;
            Poll::Ready(sequential.writes.take_error().map_or(Ok(()), Err))
        })
    }

    /// Starts a seek, replacing one in flight.
    pub(crate) fn start_seek(&self, to: SeekFrom) {
        self.with_sequential(|sequential, _| {
            sequential.seek = Some(PendingSeek { to, end: None });
        });
    }

    /// The target of the seek in flight.
    #[cfg(feature = "futures")]
    pub(crate) fn seeking(&self) -> Option<SeekFrom> {
        self.with_sequential(|sequential, _| sequential.seek.as_ref().map(|seek| seek.to))
    }

    /// Waits for a started seek, if any. Returns the position of the cursor.
    pub(crate) fn poll_seek(&self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        self.with_sequential(|sequential, file| {
            ready!(sequential.poll_idle(file, cx))?;
            sequential.poll_seek(file, cx)
        })
    }

    /// Returns the most bytes that a read or write at the cursor transfers at once:
    /// [`set_max_buf_size`](Self::set_max_buf_size).
    pub fn max_buf_size(&self) -> usize {
        self.lock_sequential().as_ref().map_or(MAX_BUF_SIZE, |this| this.max_buf_size)
    }

    /// Sets the most bytes that one read or write at the cursor transfers. Default 2 MiB, as with
    /// tokio. A read copies at most 256 KiB at once, whatever this is. Clones have their own.
    ///
    /// # Panics
    ///
    /// If it is 0.
    #[track_caller]
    pub fn set_max_buf_size(&mut self, bytes: usize) {
        assert!(bytes > 0, "`max_buf_size` must be greater than 0");
        self.with_sequential(|sequential, _| sequential.max_buf_size = bytes);
    }

    /// Waits until what this handle has accepted at the cursor is written.
    ///
    /// Errors: that of a write which has failed. The next write or flush returns it, too.
    pub(super) async fn finish_writes(&self) -> io::Result<()> {
        if !self.engine().inner.is_current() {
            return self.check_fork();
        }
        let Some(writes) = self.lock_sequential().as_ref().map(|this| Arc::clone(&this.writes))
        else {
            return Ok(());
        };
        poll_fn(|cx| poll_idle(&writes, self, cx)).await?;
        writes.error().map_or(Ok(()), Err)
    }

    /// As [`finish_writes`](Self::finish_writes), with those of dropped handles.
    ///
    /// Errors: also that of a write of a dropped handle, to all who wait for it.
    pub(super) async fn finish_all_writes(&self) -> io::Result<()> {
        self.finish_all_since(self.dropped_reported()).await
    }

    /// The same for a caller that was asked when so many errors of dropped handles were
    /// [reported](Self::dropped_reported).
    pub(super) async fn finish_all_since(&self, dropped: u64) -> io::Result<()> {
        self.finish_writes().await?;
        match self.known_dropped_writes() {
            Some(writes) => writes.idle(dropped).await,
            None => Ok(()),
        }
    }

    /// How many errors of dropped handles callers were told of.
    pub(super) fn dropped_reported(&self) -> u64 {
        self.known_dropped_writes().map_or(0, |writes| writes.reported())
    }

    /// In a forked child, this handle may be locked for ever, and the writes are the parent's.
    ///
    /// Errors: ECHILD if it was in use.
    fn check_fork(&self) -> io::Result<()> {
        let is_idle = match self.sequential.try_lock() {
            Ok(sequential) => sequential.as_ref().is_none_or(|this| !this.writes.is_running()),
            Err(_) => false,
        };
        if is_idle { Ok(()) } else { Err(forked()) }
    }

    /// Waits until no request to read ahead holds the file. They are short, so this polls.
    pub(super) async fn finish_read_ahead(&self) -> io::Result<()> {
        if !self.engine().inner.is_current() {
            return self.check_fork();
        }
        let token = self.lock_sequential().as_ref().map(|this| Arc::clone(&this.ahead.token));
        while token.as_ref().is_some_and(|token| Arc::strong_count(token) > 2) {
            self.engine().sleep(PAUSE).await?;
        }
        Ok(())
    }

    /// Forgets what a read of this handle has brought or will bring, unless nothing else would
    /// bring it: that of a pipe.
    pub(super) fn discard_read(&self) {
        if self.engine().inner.is_current() && self.cursor().kind() != CursorKind::Stream {
            self.with_sequential(|sequential, _| sequential.discard_read());
        }
    }
}

/// As [`WriteQueue::poll_idle`]. In a forked child, the writes are the parent's.
fn poll_idle(writes: &WriteQueue, file: &File, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    if !file.engine().inner.is_current() {
        return Poll::Ready(Err(forked()));
    }
    writes.poll_idle(cx).map(Ok)
}

impl Sequential {
    /// Waits for the writes of this handle.
    fn poll_idle(&self, file: &File, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.writes.is_running() {
            return Poll::Ready(Ok(()));
        }
        poll_idle(&self.writes, file, cx)
    }

    fn discard_read(&mut self) {
        self.held = None;
        if let Some(reading) = self.reading.take() {
            self.superseded = Some(reading);
        }
    }

    fn poll_read(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_idle(file, cx))?;
        // A seek whose future was dropped takes place now. Nobody waits for its error.
        let _ = ready!(self.poll_seek(file, cx));
        let most = bytes.len().min(self.max_buf_size);
        let bytes = &mut bytes[..most];
        loop {
            if self.held.is_some() {
                ready!(poll_proceed_in_memory(cx, most.min(COPY_STEP)));
                if let Some(read) = self.take_held(file, bytes) {
                    return Poll::Ready(Ok(read));
                }
            }
            if self.reading.is_none() {
                if let Some(read) = ready!(self.poll_cached(file, cx, bytes)) {
                    return Poll::Ready(Ok(read));
                }
                // What the caller could not take at once would be old when it asks again.
                self.begin(file, cx, most.min(COPY_STEP));
            }
            let Some(reading) = &mut self.reading else { continue };
            reading.waker.clone_from(cx.waker());
            let (start, result) = (reading.start, ready!(reading.block.poll(cx)));
            self.reading = None;
            let is_there = file.cursor().advance(start, 0);
            let block = match result {
                Err(error) if is_there => return Poll::Ready(Err(error)),
                Err(_) => continue,
                Ok(block) => block,
            };
            if block.is_empty() && is_there {
                return Poll::Ready(Ok(0));
            }
            self.read_ahead(file, start, start.saturating_add(block.len() as u64), true);
            self.held = Some(HeldBytes { start, block });
        }
    }

    /// Copies bytes that are held; `None` if the cursor was moved away from them.
    fn take_held(&mut self, file: &File, bytes: &mut [u8]) -> Option<usize> {
        let HeldBytes { start, block } = self.held.take()?;
        let len = block.len().min(bytes.len()).min(COPY_STEP);
        if len == 0 || !file.cursor().advance(start, len) {
            return None;
        }
        bytes[..len].copy_from_slice(&block[..len]);
        if len < block.len() {
            self.held = Some(HeldBytes { start: start + len as u64, block: block.slice(len..) });
        }
        Some(len)
    }

    /// Copies bytes from the page cache; `None` if not all of them are there.
    fn poll_cached(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<Option<usize>> {
        let cursor = file.cursor();
        if cursor.kind() == CursorKind::Stream || !file.tries_cache() {
            return Poll::Ready(None);
        }
        let len = bytes.len().min(COPY_STEP);
        ready!(poll_proceed(cx, len));
        loop {
            let start = cursor.position();
            let Some(read) = file.core().read_now_with(&mut bytes[..len], start, file.rw_flags())
            else {
                file.cache().miss();
                return Poll::Ready(None);
            };
            // Another clone may have read the same bytes: each returns bytes of its own, as with
            // `read(2)`.
            if cursor.advance(start, read) {
                file.count_hit();
                self.read_ahead(file, start, start + read as u64, false);
                return Poll::Ready(Some(read));
            }
        }
    }

    /// Starts a read of at most `len` bytes at the cursor.
    fn begin(&mut self, file: &File, cx: &mut Context<'_>, len: usize) {
        let of = file.clone();
        let start = file.cursor().position();
        let block = if file.cursor().kind() == CursorKind::Stream {
            let read = async move {
                let spare = Vec::with_capacity(len);
                let (result, bytes) = of.read_buf_at(spare, Position::Current).await;
                result.map(|_| Block::from(bytes))
            };
            Eager::new(read, cx)
        } else {
            let end = start.saturating_add(len as u64).min(MAX_OFFSET);
            Eager::new(async move { of.read_pooled(start..end, false, true).await }, cx)
        };
        self.reading = Some(CursorRead { start, block, waker: cx.waker().clone() });
    }

    /// Requests the pages after a read of these bytes, if reads follow each other and the device is
    /// needed.
    fn read_ahead(&mut self, file: &File, start: u64, end: u64, missed: bool) {
        let ahead = &mut self.ahead;
        if std::mem::replace(&mut ahead.next, end) != start {
            (ahead.in_order, ahead.requested) = (0, 0);
        }
        ahead.in_order += end - start;
        let is_on = (missed || ahead.requested > 0) && ahead.in_order >= AHEAD_AFTER;
        // (Pages that were requested so would stay.)
        let is_buffered = file.is_storage() && !file.is_direct() && !file.drops_pages();
        let from = ahead.requested.max(end);
        let to = end.saturating_add(AHEAD).min(MAX_OFFSET);
        if !is_on || !is_buffered || from + AHEAD_STEP > to {
            return;
        }
        ahead.requested = to;
        let token = Arc::clone(&ahead.token);
        // Without a clone of the file, which would keep it from being closed or converted.
        let engine = file.engine().clone();
        let request = op::fadvise(file.core(), from, to - from, Advice::WillNeed);
        run_in_background(async move {
            let _token = token;
            // Where it is not possible, the kernel's own reading ahead has to do.
            let _ = OpFuture::new(&engine.inner, Schedule::Immediate(Lane::Call), request).await;
        });
    }

    fn poll_write(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !file.engine().inner.is_current() {
            return Poll::Ready(Err(forked()));
        }
        if self.seek.is_some() {
            ready!(self.poll_idle(file, cx))?;
            let _ = ready!(self.poll_seek(file, cx));
        }
        let mut limits = WriteLimits { most: self.max_buf_size, gathers: true };
        if file.cursor().kind() == CursorKind::Stream {
            limits.gathers = false;
        } else {
            // They are read again behind what is written, and perhaps from it.
            self.discard_read();
        }
        if file.is_direct() {
            limits = direct_limits(file, parts, limits)?;
        }
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        ready!(poll_proceed_in_memory(cx, len.min(COPY_STEP)));
        self.writes.poll_accept(file, parts, limits, cx)
    }

    /// Waits for a started seek, if any, after the writes before it. Returns the position.
    fn poll_seek(&mut self, file: &File, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let cursor = file.cursor();
        let Some(seek) = &mut self.seek else { return Poll::Ready(Ok(cursor.position())) };
        let target = match seek.to {
            to if cursor.kind() == CursorKind::Stream => {
                self.seek = None;
                return Poll::Ready(file.core().with_std(|mut file| file.seek(to)));
            }
            SeekFrom::Start(offset) => Ok(Some(offset)),
            SeekFrom::Current(distance) => Ok(cursor.position().checked_add_signed(distance)),
            SeekFrom::End(distance) if let Some(end) = local_end(file) => {
                Ok(end.checked_add_signed(distance))
            }
            SeekFrom::End(distance) => {
                let end = seek.end.get_or_insert_with(|| Eager::early(end_of(file.clone())));
                ready!(end.poll(cx)).map(|end| end.checked_add_signed(distance))
            }
        };
        self.seek = None;
        let target = checked(target?)?;
        self.discard_read();
        if target != self.ahead.next {
            (self.ahead.next, self.ahead.in_order, self.ahead.requested) = (target, 0, 0);
        }
        cursor.set(target);
        Poll::Ready(Ok(target))
    }
}

impl Drop for Sequential {
    fn drop(&mut self) {
        self.writes.detach(&self.dropped);
    }
}

/// The end of a file whose length is known without waiting: as it is now, not as it was when a seek
/// whose future was dropped has asked.
fn local_end(file: &File) -> Option<u64> {
    let metadata = file.core().is_local().then(|| file.core().with_std(|file| file.metadata()));
    Some(metadata?.ok().filter(std::fs::Metadata::is_file)?.len())
}

/// The end of a file. Metadata has no length of a block device, which `lseek(2)` finds.
async fn end_of(file: File) -> io::Result<u64> {
    let metadata = file.metadata().await?;
    if metadata.file_type().is_file() {
        return Ok(metadata.len());
    }
    let end = |mut file: &std::fs::File| {
        let position = file.stream_position()?;
        let end = file.seek(SeekFrom::End(0))?;
        // The descriptor's position is not the cursor.
        file.seek(SeekFrom::Start(position))?;
        Ok(end)
    };
    file.call(move |file| file.with_std(end)).await
}

/// What a direct write at the cursor may transfer: whole blocks, each write by itself.
///
/// Errors: InvalidInput if the cursor or the length is not aligned.
fn direct_limits(
    file: &File,
    parts: &[IoSlice<'_>],
    limits: WriteLimits,
) -> io::Result<WriteLimits> {
    let align = file.offset_align().max(1);
    let (position, block) = (file.cursor().position(), align as usize);
    let len = parts.iter().map(|part| part.len()).sum::<usize>();
    let most = (limits.most / block * block).max(block);
    // An append does not go where the cursor is.
    let starts_block =
        file.cursor().kind() != CursorKind::Offset || position.is_multiple_of(u64::from(align));
    if !starts_block || !len.min(most).is_multiple_of(block) {
        return Err(invalid(format!(
            "direct write of {len} bytes at {position}: both must be multiples of {align}; \
             `writer()` needs no aligned length"
        )));
    }
    Ok(WriteLimits { most, gathers: false })
}

impl fmt::Debug for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequential")
            .field("reading", &self.reading.is_some())
            .field("seeking", &self.seek.is_some())
            .finish_non_exhaustive()
    }
}
