//! Sequential reads of a file, with read-ahead.

use super::eager::Eager;
use super::read_ahead::ReadAhead;
use super::{
    DEFAULT_CHUNK, DEFAULT_DEPTH, MAX_CHUNK, MAX_DEPTH, checked, chunk_for, end_of_chunk,
    has_offsets,
};
use crate::Block;
use crate::align::MAX_OFFSET;
use crate::engine::{COPY_STEP, poll_proceed, poll_proceed_in_memory};
use crate::fs::File;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::ops::{Bound, RangeBounds};
use std::task::{Context, Poll, ready};

/// Reads a file in order and reads ahead of its consumer. From [`File::reader`].
///
/// [`next_block`](Self::next_block) returns one chunk after the other without a copy, and so does
/// the stream `blocks` (feature `futures`). The reader also implements tokio's `AsyncRead`,
/// `AsyncBufRead` and `AsyncSeek` (feature `tokio`), and those of `futures-io` (feature `futures`).
/// It has its own position, so readers of one file are independent. It needs no task and no
/// `BufReader`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let file = ringway::fs::File::open("/etc/passwd").await?;
/// let mut reader = file.reader().chunk(1 << 20);
/// let mut lines = 0;
/// while let Some(block) = reader.next_block().await? {
///     lines += block.iter().filter(|byte| **byte == b'\n').count();
/// }
/// assert!(lines > 0);
/// # Ok(()) }
/// ```
///
/// With tokio's traits, line by line:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # #[cfg(feature = "tokio")] {
/// use tokio::io::AsyncBufReadExt;
/// let mut lines = ringway::fs::File::open("/etc/passwd").await?.reader().lines();
/// let mut fields = 0;
/// while let Some(line) = lines.next_line().await? {
///     fields += line.split(':').count();
/// }
/// # assert!(fields > 0);
/// # }
/// # Ok(()) }
/// ```
///
/// **Read-ahead.** When a chunk must come from the device, the following chunks are requested as
/// well, up to [`read_ahead`](Self::read_ahead), and then one more for each that arrives. Chunks in
/// the page cache are not read ahead but copied when they are needed; the task yields every 256
/// KiB. The reader holds at most `chunk` times (`read_ahead` + 1) bytes of pooled memory, not
/// counting blocks that the caller keeps. It may miss data written to the file after it was read
/// ahead, but it checks again before it reports the end.
///
/// **The end** is reported once each time it is reached. Reading on returns what has been added to
/// the file since.
///
/// **Errors** are those of [`File::read`]; ESPIPE for pipes, sockets and character devices
/// (including readable ones, such as `/dev/urandom`). An error is reported once, when the reader
/// reaches its chunk. The reader keeps its position: the next read retries the same chunk, and
/// [`seek_to`](Self::seek_to) can skip it.
///
/// **Dropping** the reader cancels its reads in flight. Its futures may be dropped at any point
/// without losing data.
pub struct Reader {
    file: File,
    chunk: usize,
    depth: usize,
    /// The offset of the next byte to return: in `current`, or directly after it.
    position: u64,
    /// The offset of the first byte that is not returned.
    end: u64,
    current: Block,
    /// The offset of the first byte of `current`.
    current_start: u64,
    read_ahead: ReadAhead,
    seek: Option<ReaderSeek>,
}

/// A seek that waits for the length of the file.
struct ReaderSeek {
    to: SeekFrom,
    len: Eager<io::Result<u64>>,
}

impl File {
    /// Returns a reader of the file, from its beginning; see [`Reader`]. Nothing is read yet.
    pub fn reader(&self) -> Reader {
        Reader {
            file: self.clone(),
            chunk: DEFAULT_CHUNK,
            depth: DEFAULT_DEPTH,
            position: 0,
            end: MAX_OFFSET,
            current: Block::default(),
            current_start: 0,
            read_ahead: ReadAhead::default(),
            seek: None,
        }
    }
}

impl Reader {
    /// Sets the bytes per read, clamped to 1 to 1 GiB; for direct I/O rounded up to whole blocks.
    /// Chunks begin and end at multiples of it, except the first and the last. Default 256 KiB.
    pub fn chunk(mut self, bytes: usize) -> Self {
        self.chunk = bytes.clamp(1, MAX_CHUNK);
        self
    }

    /// Sets how many chunks are read ahead of the current one, at most 256. With 0, each chunk is
    /// read when it is needed. Default 4.
    pub fn read_ahead(mut self, chunks: usize) -> Self {
        self.depth = chunks.min(MAX_DEPTH);
        self
    }

    /// Reads without leaving pages in the page cache, or as usual: [`File::with_dont_cache`].
    /// Default: as the handle that the reader comes from.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let file = ringway::fs::File::open("/etc/passwd").await?;
    /// let mut scan = file.reader().dont_cache(true);
    /// assert!(scan.next_block().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn dont_cache(mut self, yes: bool) -> Self {
        self.file = self.file.clone().with_dont_cache(yes);
        self
    }

    /// Restricts the reader to a range of the file: it begins at the first byte, and its end is
    /// that of the range. Positions are still those of the file.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let file = ringway::fs::File::open("/etc/passwd").await?;
    /// let mut reader = file.reader().range(1..4);
    /// assert_eq!(reader.next_block().await?.unwrap(), b"oot");
    /// assert!(reader.next_block().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn range(mut self, bytes: impl RangeBounds<u64>) -> Self {
        let start = match bytes.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match bytes.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => MAX_OFFSET,
        };
        self.read_ahead.clear();
        self.end = end.min(MAX_OFFSET);
        self.current = Block::default();
        self.seek_to(start);
        self
    }

    /// Copies the next contiguous bytes, at most 256 KiB. Returns their number; 0 at the end or for
    /// an empty buffer.
    ///
    /// Errors: see [`Reader`]. If the future is dropped, no data is lost.
    pub async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, bytes)).await
    }

    /// As [`seek_to`](Self::seek_to), relative to the position, or to the end of the file or of the
    /// range, whichever comes first. Returns the new position.
    ///
    /// Errors: InvalidInput before the beginning and beyond `i64::MAX`; those of `statx(2)` for the
    /// length. The position is then unchanged. The metadata of a block device has no length, so its
    /// end is at 0. If the future is dropped, the seek takes place before the next read.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.start_seek(to)?;
        poll_fn(|cx| self.poll_seek(cx)).await
    }

    /// Continues at this offset of the file. After a step forward it uses what has been read ahead
    /// if that contains the offset. After a step back it reads again, and so returns what has been
    /// written meanwhile. Does not wait and cannot fail: beyond the end there is nothing to read.
    pub fn seek_to(&mut self, offset: u64) {
        self.seek = None;
        let held = self.position..self.current_start + self.current.len() as u64;
        let is_back = offset < self.position;
        self.position = offset;
        if is_back {
            self.release_current();
            self.read_ahead.clear();
        } else if !held.contains(&offset) {
            self.release_current();
            self.read_ahead.skip_to(offset);
        }
    }

    /// Returns the offset in the file of the next byte to return.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the next contiguous bytes: the rest of the current chunk, or else the next chunk.
    /// `None` at the end.
    ///
    /// Errors: see [`Reader`]. If the future is dropped, no data is lost.
    pub async fn next_block(&mut self) -> io::Result<Option<Block>> {
        poll_fn(|cx| self.poll_block(cx)).await
    }

    /// As [`next_block`](Self::next_block).
    pub(super) fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Block>>> {
        let left = ready!(self.poll_fill(cx))?.len();
        if left == 0 {
            return Poll::Ready(Ok(None));
        }
        let block = self.current.slice(self.current.len() - left..);
        self.consume(left);
        // The memory belongs to the caller's block now, and returns to the pool with it.
        self.release_current();
        Poll::Ready(Ok(Some(block)))
    }

    /// The rest of the current chunk, or else the next one; empty at the end.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        ready!(self.poll_seek(cx))?;
        if self.left().is_empty() {
            ready!(self.poll_chunk(cx))?;
        }
        Poll::Ready(Ok(self.left()))
    }

    /// Marks `bytes` bytes of the rest as used.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.position += bytes.min(self.left().len()) as u64;
    }

    /// Copies the next available bytes into `bytes`. Returns their number; 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let left = ready!(self.poll_piece(cx, bytes.len()))?;
        let len = left.len();
        bytes[..len].copy_from_slice(left);
        self.consume(len);
        Poll::Ready(Ok(len))
    }

    /// The next bytes to copy, at most `limit`; empty at the end.
    pub(super) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
    ) -> Poll<io::Result<&[u8]>> {
        let len = ready!(self.poll_fill(cx))?.len().min(limit).min(COPY_STEP);
        if len > 0 {
            // Not at the end: the next poll would look for it again.
            ready!(poll_proceed_in_memory(cx, len));
        }
        Poll::Ready(Ok(&self.left()[..len]))
    }

    /// Starts a seek. One that needs no length completes at once.
    pub(super) fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        match to {
            SeekFrom::Start(offset) => self.seek_to(checked(Some(offset))?),
            SeekFrom::Current(distance) => {
                self.seek_to(checked(self.position.checked_add_signed(distance))?)
            }
            SeekFrom::End(_) => {
                let file = self.file.clone();
                let len = async move { Ok(file.metadata().await?.len()) };
                self.seek = Some(ReaderSeek { to, len: Eager::early(len) });
            }
        }
        Ok(())
    }

    /// Waits for a started seek, if any. Returns the position.
    pub(super) fn poll_seek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if let Some(ReaderSeek { to, len }) = &mut self.seek {
            let (to, len) = (*to, ready!(len.poll(cx)));
            self.seek = None;
            if let SeekFrom::End(distance) = to {
                self.seek_to(checked(len?.min(self.end).checked_add_signed(distance))?);
            }
        }
        Poll::Ready(Ok(self.position))
    }

    /// The target of the seek in flight.
    #[cfg(feature = "futures")]
    pub(super) fn seeking(&self) -> Option<SeekFrom> {
        self.seek.as_ref().map(|seek| seek.to)
    }

    fn left(&self) -> &[u8] {
        &self.current[(self.position - self.current_start) as usize..]
    }

    /// Returns the memory of the current chunk, which is used up, to the pool.
    fn release_current(&mut self) {
        self.current = Block::default();
        self.current_start = self.position;
    }

    /// Makes the next chunk the current one, or an empty one at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Before the next read, which then gets the same memory, still in the processor's cache.
        self.release_current();
        while self.position < self.end {
            if self.read_ahead.is_empty() {
                has_offsets(&self.file)?;
                ready!(poll_proceed(cx, 0));
                self.read_ahead.begin(&self.file, self.position..self.chunk_end(self.position), cx);
            }
            let Poll::Ready(read) = self.read_ahead.poll_first(cx) else {
                self.read_ahead_more(None);
                return Poll::Pending;
            };
            let block = read.result.inspect_err(|_| self.read_ahead.clear())?;
            let read_end = read.range.start + block.len() as u64;
            if read_end < read.range.end {
                // Later reads are of a file that has grown meanwhile, and would leave a gap.
                self.read_ahead.clear();
            } else if !read.at_once {
                self.read_ahead_more(Some(read.range.end));
            }
            if self.position < read_end {
                (self.current, self.current_start) = (block, read.range.start);
                break;
            }
            if !read.early {
                break; // The end.
            }
            // It was the end when it was read ahead. Check again, because the file may have grown
            // since.
        }
        Poll::Ready(Ok(()))
    }

    /// Starts reads after those in flight (or after `end`, where the last completed one ended), up
    /// to the depth, or until one is in the page cache.
    fn read_ahead_more(&mut self, end: Option<u64>) {
        let Some(mut start) = self.read_ahead.end().or(end) else { return };
        while start < self.end
            && self.read_ahead.len() < self.depth
            && !self.read_ahead.has_caught_up()
        {
            let end = self.chunk_end(start);
            if self.file.is_cached(&(start..end)) {
                return;
            }
            self.read_ahead.begin_early(&self.file, start..end);
            start = end;
        }
    }

    fn chunk_size(&self) -> u64 {
        chunk_for(&self.file, self.chunk)
    }

    fn chunk_end(&self, start: u64) -> u64 {
        end_of_chunk(start, self.chunk_size()).min(self.end)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("position", &self.position)
            .field("available", &self.left().len())
            .field("in_flight", &self.read_ahead.len())
            .finish_non_exhaustive()
    }
}
