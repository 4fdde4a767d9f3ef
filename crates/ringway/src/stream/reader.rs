//! Reading a file from one end to the other.

use super::eager::Eager;
use super::read_ahead::ReadAhead;
use super::{CHUNK, DEEPEST, DEPTH, LARGEST_CHUNK, checked, chunk_for, end_of_chunk, has_offsets};
use crate::Block;
use crate::align::LARGEST_OFFSET;
use crate::engine::{COPY_STEP, poll_proceed, poll_proceed_in_memory};
use crate::fs::File;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::ops::{Bound, RangeBounds};
use std::task::{Context, Poll, ready};

/// Reads a file in order, some chunks ahead of who consumes it. From [`File::reader`].
///
/// [`next_block`](Self::next_block) hands out chunk after chunk without a copy, and so does the
/// stream of its `blocks` (feature `futures`). For everything else it is tokio's `AsyncRead`,
/// `AsyncBufRead` and `AsyncSeek` (feature `tokio`), and those of `futures-io` (feature `futures`).
/// It has a position of its own, so readers of one file are independent of each other; it needs no
/// task and no `BufReader`.
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
/// By its traits it is read as anything else is; this goes through lines by tokio's:
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
/// **Reading read_ahead.** When a chunk has to come from the device, those behind it are asked for as
/// well, as many as [`read_ahead`](Self::read_ahead) says, and from then on as each one arrives.
/// What is in the page cache is not read ahead, but copied when it is asked for; a task that reads
/// such a file gives way to others every 256 KiB. No more than a chunk times (`read_ahead` + 1) of
/// lent memory is held, besides the blocks that the caller keeps. What is written to the file
/// meanwhile may be missed where it has been read already; but the end is told only after another
/// look.
///
/// **The end.** It is told once each time that it is met. Who reads on is told what the file has
/// grown by since.
///
/// **Errors.** They are those of [`File::read`]; ESPIPE for what is neither a file nor a block
/// device: pipes, sockets, character devices (also those that could be read, as `/dev/urandom`). An
/// error is told once, when its chunk's turn comes. The reader stays where it is: the next read
/// tries the same chunk again, and [`seek_to`](Self::seek_to) may go round it.
///
/// **Dropping** the reader cancels what it has on its way. Its futures may be dropped at any point,
/// and nothing is lost.
pub struct Reader {
    file: File,
    chunk: usize,
    depth: usize,
    /// Offset of the next byte to be handed out: in `current`, or right behind it.
    position: u64,
    /// Offset of the first byte that is not to be handed out.
    end: u64,
    current: Block,
    /// Offset of the first byte of `current`.
    current_start: u64,
    read_ahead: ReadAhead,
    seek: Option<Seek>,
}

/// A seek that waits for the length of the file.
struct Seek {
    to: SeekFrom,
    len: Eager<io::Result<u64>>,
}

impl File {
    /// Reads the file in order from its beginning; see [`Reader`]. Nothing is read yet.
    pub fn reader(&self) -> Reader {
        Reader {
            file: self.clone(),
            chunk: CHUNK,
            depth: DEPTH,
            position: 0,
            end: LARGEST_OFFSET,
            current: Block::default(),
            current_start: 0,
            read_ahead: ReadAhead::default(),
            seek: None,
        }
    }
}

impl Reader {
    /// Bytes that are read at a time, 1 to 1 GiB (less or more counts as that); for direct I/O
    /// rounded up to whole blocks. Chunks begin and end at multiples of it, but for the first and
    /// the last. Default 256 KiB.
    pub fn chunk(mut self, bytes: usize) -> Self {
        self.chunk = bytes.clamp(1, LARGEST_CHUNK);
        self
    }

    /// How many chunks are read ahead of the one that is being consumed, at most 256 (more counts
    /// as that); 0: none, each is read when it is asked for. Default 4.
    pub fn read_ahead(mut self, chunks: usize) -> Self {
        self.depth = chunks.min(DEEPEST);
        self
    }

    /// Only these bytes of the file: it begins at the first, and ends behind the last as a file
    /// does. Positions are the file's all the same.
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
            Bound::Unbounded => LARGEST_OFFSET,
        };
        self.read_ahead.clear();
        self.end = end.min(LARGEST_OFFSET);
        self.current = Block::default();
        self.seek_to(start);
        self
    }

    /// Copies the next bytes, as many as there are in one piece and at most 256 KiB; how many that
    /// was, 0 at the end or for no room.
    ///
    /// Errors: see [`Reader`]. Dropped, the future leaves everything to the next one.
    pub async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, bytes)).await
    }

    /// As [`seek_to`](Self::seek_to), relative to whatever it may be: the position, or the end of
    /// the file or of the range, whichever comes first. The new position.
    ///
    /// Errors: InvalidInput before the beginning and beyond `i64::MAX`; those of asking for the
    /// file's length. The position is then what it was. A block device has no length that a file's
    /// metadata tell: it ends at 0. Dropped, the seek takes place before the next read.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.start_seek(to)?;
        poll_fn(|cx| self.poll_seek(cx)).await
    }

    /// Goes on at this offset of the file. What has been read ahead is used if the offset lies in
    /// it, and cancelled if not. Does not wait, and does not fail: beyond the end there is nothing
    /// to read.
    pub fn seek_to(&mut self, offset: u64) {
        self.seek = None;
        let held = self.current_start..self.current_start + self.current.len() as u64;
        self.position = offset;
        if !held.contains(&offset) {
            self.release_current();
            self.read_ahead.skip_to(offset);
        }
    }

    /// Offset in the file of the next byte to be handed out.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The file that is read.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The next bytes, as many as there are in one piece: the rest of the chunk that is being
    /// consumed, or else the next chunk. `None` at the end.
    ///
    /// Errors: see [`Reader`]. Dropped, the future leaves everything to the next one.
    pub async fn next_block(&mut self) -> io::Result<Option<Block>> {
        poll_fn(|cx| self.poll_block(cx)).await
    }

    /// The next bytes, as many as there are in one piece; `None` at the end.
    pub(super) fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Block>>> {
        let left = ready!(self.poll_fill(cx))?.len();
        if left == 0 {
            return Poll::Ready(Ok(None));
        }
        let block = self.current.slice(self.current.len() - left..);
        self.consume(left);
        // It is the caller's now, and to be used again when the caller lets go of it.
        self.release_current();
        Poll::Ready(Ok(Some(block)))
    }

    /// What is left of the current chunk, or else the next one; empty at the end.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        ready!(self.poll_seek(cx))?;
        if self.left().is_empty() {
            ready!(self.poll_chunk(cx))?;
        }
        Poll::Ready(Ok(self.left()))
    }

    /// So many bytes of what is left have been used.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.position += bytes.min(self.left().len()) as u64;
    }

    /// Copies what comes next into `bytes`, as much as there is at hand; how many bytes that was, 0
    /// at the end.
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

    /// What is to be copied next, of at most `room` bytes; empty at the end.
    pub(super) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
    ) -> Poll<io::Result<&[u8]>> {
        let len = ready!(self.poll_fill(cx))?.len().min(room).min(COPY_STEP);
        if len > 0 {
            // Not at the end, which would be looked for again.
            ready!(poll_proceed_in_memory(cx, len));
        }
        Poll::Ready(Ok(&self.left()[..len]))
    }

    /// Begins a seek. One that is not to be waited for is over at once.
    pub(super) fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        match to {
            SeekFrom::Start(offset) => self.seek_to(checked(Some(offset))?),
            SeekFrom::Current(distance) => {
                self.seek_to(checked(self.position.checked_add_signed(distance))?)
            }
            SeekFrom::End(_) => {
                let file = self.file.clone();
                let len = async move { Ok(file.metadata().await?.len()) };
                self.seek = Some(Seek { to, len: Eager::early(len) });
            }
        }
        Ok(())
    }

    /// Waits for the seek that was begun, if one was; the position.
    pub(super) fn poll_seek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if let Some(Seek { to, len }) = &mut self.seek {
            let (to, len) = (*to, ready!(len.poll(cx)));
            self.seek = None;
            if let SeekFrom::End(distance) = to {
                self.seek_to(checked(len?.min(self.end).checked_add_signed(distance))?);
            }
        }
        Poll::Ready(Ok(self.position))
    }

    /// The seek that has been begun and is not over.
    #[cfg(feature = "futures")]
    pub(super) fn seeking(&self) -> Option<SeekFrom> {
        self.seek.as_ref().map(|seek| seek.to)
    }

    fn left(&self) -> &[u8] {
        &self.current[(self.position - self.current_start) as usize..]
    }

    /// Gives the current chunk's memory back, of which nothing is left to be used.
    fn release_current(&mut self) {
        self.current = Block::default();
        self.current_start = self.position;
    }

    /// Makes the next chunk the current one, or none at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Before the next is read, which then has the same memory, still in the processor's cache.
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
                // Anything behind is of a file that has grown meanwhile, and would leave a gap.
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
            // It was the end when it was read read_ahead. Whoever has written to the file since is to
            // see that.
        }
        Poll::Ready(Ok(()))
    }

    /// Begins reads behind those on their way (or else behind the one that has come, to its `end`),
    /// up to as many as there may be, or until one is in the page cache already.
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
            .field("at_hand", &self.left().len())
            .field("on_their_way", &self.read_ahead.len())
            .finish_non_exhaustive()
    }
}
