//! Writing a file from one end to the other.

use super::eager::Eager;
use super::write_behind::WriteBehind;
use super::{
    CHUNK, DEEPEST, DEPTH, LARGEST_CHUNK, block_of, checked, chunk_for, end_of_chunk, has_offsets,
};
use crate::align::{LARGEST_OFFSET, in_memory};
use crate::engine::{COPY_STEP, poll_proceed_in_memory};
use crate::fs::File;
use crate::pool::Pool;
use ringway_core::Buffer;
use rustix::fs::{OFlags, fcntl_getfl};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, SeekFrom};
use std::task::{Context, Poll, ready};

/// Writes a file in order, while the caller makes what comes next. From [`File::writer`].
///
/// Bytes are collected into chunks; a full chunk is written at its offset while the next is
/// collected. [`seek`](Self::seek) goes on elsewhere in the file. It is tokio's `AsyncWrite` and
/// `AsyncSeek` (feature `tokio`), and those of `futures-io` (feature `futures`); what it needs in
/// any case it has itself.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("table");
/// let file = ringway::fs::File::create(&path).await?;
/// let mut writer = file.writer();
/// for line in 0..1000 {
///     writer.write_all(format!("line {line}\n").as_bytes()).await?;
/// }
/// writer.sync_data().await?; // or `flush`, which leaves it to the kernel when it goes to the device
/// # assert_eq!(std::fs::read(&path)?.len(), 8890);
/// # Ok(()) }
/// ```
///
/// **Flush it.** Dropping a writer cancels what it has on its way and throws away what it has
/// collected: a drop cannot wait, and has nobody to tell an error to. In debug builds it says so on
/// standard error, and with the feature `tracing` always as an event; not while panicking, nor
/// after an error that was told. [`abandon`](Self::abandon) drops it in silence. `shutdown` and
/// `close` of the traits flush, and do not sync.
///
/// **Errors.** That of a write comes with the first call after it that hands over a chunk, flushes
/// or syncs. Nothing is thrown away: it is told once, for all the writes on their way, and the next
/// such call begins with trying them again. So a disk that is full can be made room on, and the
/// writer gone on with; a call that fails has taken none of its bytes in.
/// [`written`](Self::written) tells how much has been written without a gap; behind that there may
/// be more. Besides there are ESPIPE for what is neither a file nor a block device (pipes, sockets,
/// character devices), and InvalidInput for a file that was opened for appending, which writes
/// wherever it likes: open it for writing, and begin [`at`](Self::at) its length.
///
/// **Direct I/O** writes whole blocks: `at` has to be a multiple of the
/// [alignment](File::alignment) (InvalidInput). The last block is filled up with zeroes when it is
/// flushed, and the file then cut to its length; after a power cut between the two it may be
/// longer. Where the file goes on behind the last block's bytes, that would destroy them, and is
/// refused (InvalidInput). Nobody else may write to the end of the file meanwhile.
pub struct Writer {
    file: File,
    chunk: usize,
    depth: usize,
    start: u64,
    current: Option<Chunk>,
    write_behind: WriteBehind,
    seek: Option<Seek>,
    /// The file is one that can be written like this.
    file_checked: bool,
    /// Dropping it with bytes not written is what its owner means.
    silent: bool,
}

/// A seek that was begun: it takes place once all that was taken in has been written.
struct Seek {
    target: Target,
    /// The length of the file, which is asked for once all has been written.
    len: Option<Eager<io::Result<u64>>>,
}

/// Where a seek goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    At(u64),
    FromEnd(i64),
}

/// A chunk that bytes are collected in.
struct Chunk {
    start: u64,
    buffer: Buffer,
    filled: usize,
}

impl File {
    /// Writes the file in order from its beginning, or from [`at`](Writer::at); see [`Writer`].
    /// Nothing is written yet. The file is not cut: bytes that it has behind those written stay.
    pub fn writer(&self) -> Writer {
        Writer {
            file: self.clone(),
            chunk: CHUNK,
            depth: DEPTH,
            start: 0,
            current: None,
            write_behind: WriteBehind::new(self.clone(), 0),
            seek: None,
            file_checked: false,
            silent: false,
        }
    }
}

impl Writer {
    /// Bytes that are written at a time, 1 to 1 GiB (less or more counts as that); for direct I/O
    /// rounded up to whole blocks. Chunks end at multiples of it. Default 256 KiB.
    pub fn chunk(mut self, bytes: usize) -> Self {
        self.chunk = bytes.clamp(1, LARGEST_CHUNK);
        self
    }

    /// How many chunks may be on their way while the next is collected, 1 to 256 (less or more
    /// counts as that). So at most `chunk` times (this + 1) bytes of memory are in use. Default 4.
    pub fn write_behind(mut self, chunks: usize) -> Self {
        self.depth = chunks.clamp(1, DEEPEST);
        self
    }

    /// Begins at this offset of the file.
    ///
    /// # Panics
    ///
    /// When bytes have been written to it already.
    pub fn at(mut self, offset: u64) -> Self {
        assert_eq!(
            self.position(),
            self.start,
            "`at` is for a writer that has not been written to"
        );
        self.start = offset;
        self.write_behind = WriteBehind::new(self.file.clone(), offset);
        self
    }

    /// Takes all these bytes in. Waits while as many chunks are on their way as there may be.
    ///
    /// Errors: see [`Writer`]; how many of the bytes were taken in, the
    /// [`position`](Self::position) tells. Dropped, the future may have taken in a part of them.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = poll_fn(|cx| self.poll_write(cx, bytes)).await?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Takes in as many of these bytes, one slice after the other, as the current chunk has room
    /// for; how many that was. Waits as [`write_all`](Self::write_all) does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("log");
    /// use std::io::IoSlice;
    /// let mut writer = ringway::fs::File::create(&path).await?.writer();
    /// let parts = [IoSlice::new(b"header "), IoSlice::new(b"body")];
    /// assert_eq!(writer.write_vectored(&parts).await?, 11); // fewer at the end of a chunk
    /// writer.flush().await?;
    /// # assert_eq!(std::fs::read(&path)?, b"header body");
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: see [`Writer`]; none of the bytes were taken in then. Dropped, likewise.
    pub async fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_write_vectored(cx, bytes)).await
    }

    /// Writes what was taken in, as [`flush`](Self::flush) does, and goes on at another place of
    /// the file; the new [`position`](Self::position). Beyond the end of the file the gap reads as
    /// zeroes once it is written write_behind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("table");
    /// use std::io::SeekFrom;
    /// let mut writer = ringway::fs::File::create(&path).await?.writer();
    /// writer.write_all(b"length: ?, body").await?;
    /// writer.seek(SeekFrom::Start(8)).await?;
    /// writer.write_all(b"4").await?;
    /// writer.flush().await?;
    /// # assert_eq!(std::fs::read(&path)?, b"length: 4, body");
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: InvalidInput before the beginning, beyond `i64::MAX`, for a file opened for
    /// appending, and for a place that is not aligned on a file opened for direct I/O; ESPIPE for
    /// what is neither a file nor a block device; those of the flush (see [`Writer`]) and of asking
    /// for the length. The position is then what it was. Dropped, the seek takes place before the
    /// next byte is taken in, unless another one is begun; its error is then that call's.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.start_seek(to)?;
        poll_fn(|cx| self.poll_seek(cx)).await
    }

    /// Waits until all that was taken in has been written: the kernel has it, and whoever reads the
    /// file sees it. It may be lost in a power cut.
    ///
    /// Errors: see [`Writer`]. Dropped, it leaves everything to the next call.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Flushes, and then writes the file to the device: [`File::sync_data`].
    ///
    /// Errors: those of both. One of the sync is told once; after it, what was written may be lost,
    /// and is not tried again.
    pub async fn sync_data(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.file.sync_data().await
    }

    /// As [`sync_data`](Self::sync_data), with times and the like: [`File::sync_all`].
    pub async fn sync_all(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.file.sync_all().await
    }

    /// Offset in the file of the next byte to be taken in.
    pub fn position(&self) -> u64 {
        match &self.current {
            Some(current) => current.start + current.filled as u64,
            None => self.write_behind.end(),
        }
    }

    /// How many bytes, counted from where it began or last went on by a [`seek`](Self::seek), are
    /// known to have been written without a gap.
    pub fn written(&self) -> u64 {
        self.write_behind.written() - self.start
    }

    /// The file that is written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Drops it without a word about what has not been written. A write that the kernel has begun
    /// may still happen.
    pub fn abandon(mut self) {
        self.silent = true;
    }

    /// One that is dropped in silence, as [`abandon`](Self::abandon) does it.
    pub(crate) fn silent(mut self) -> Self {
        self.silent = true;
        self
    }

    /// Takes in as many of these bytes as the current chunk has room for.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_seek(cx))?;
        if self.current.as_ref().is_some_and(Chunk::is_full) {
            ready!(self.poll_submit(cx))?;
        }
        let bytes = &bytes[..bytes.len().min(COPY_STEP)];
        ready!(poll_proceed_in_memory(cx, bytes.len()));
        let current = match &mut self.current {
            Some(current) => current,
            None => {
                self.check_file()?;
                let start = self.write_behind.end();
                self.check_offset(start)?;
                let buffer = self.buffer_at(start)?;
                self.current.insert(Chunk { start, buffer, filled: 0 })
            }
        };
        let taken = current.append(bytes);
        if current.is_full() {
            // It goes at once if it may. This call has taken bytes in: whatever error there is, the
            // next one meets it.
            self.write_behind.reap(cx);
            if !self.write_behind.has_failed() && self.write_behind.len() <= self.max_others() {
                let _ = self.submit();
            }
        }
        Poll::Ready(Ok(taken))
    }

    /// Takes in as many of these bytes as the current chunk has room for.
    pub(super) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut parts = bytes.iter().filter(|part| !part.is_empty());
        let Some(first) = parts.next() else { return Poll::Ready(Ok(0)) };
        let mut taken = ready!(self.poll_write(cx, first))?;
        let mut was_whole = taken == first.len();
        // The rest only into a chunk that has room: no error can come then, which would be lost.
        for part in parts {
            let has_room = self.current.as_ref().is_some_and(|current| !current.is_full());
            if !was_whole || !has_room || taken >= COPY_STEP {
                break;
            }
            let Poll::Ready(Ok(more)) = self.poll_write(cx, part) else { break };
            was_whole = more == part.len();
            taken += more;
        }
        Poll::Ready(Ok(taken))
    }

    /// Begins a seek, in the place of another one that is not over.
    pub(super) fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        let target = self.target(to)?;
        self.seek = Some(Seek { target, len: None });
        Ok(())
    }

    /// Begins a seek, unless it is on its way.
    #[cfg(feature = "futures")]
    pub(super) fn ensure_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        let target = self.target(to)?;
        if self.seek.as_ref().is_none_or(|seek| seek.target != target) {
            self.seek = Some(Seek { target, len: None });
        }
        Ok(())
    }

    /// Where a seek goes that begins now.
    fn target(&mut self, to: SeekFrom) -> io::Result<Target> {
        self.check_file()?;
        Ok(match to {
            SeekFrom::Start(offset) => Target::At(self.checked_target(Some(offset))?),
            SeekFrom::Current(distance) => {
                Target::At(self.checked_target(self.position().checked_add_signed(distance))?)
            }
            SeekFrom::End(distance) => Target::FromEnd(distance),
        })
    }

    /// Waits for the seek that was begun, if one was; the position.
    pub(super) fn poll_seek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if self.seek.is_some() {
            ready!(self.poll_flush(cx)).inspect_err(|_| self.seek = None)?;
        }
        if let Some(seek) = &mut self.seek {
            let target = match seek.target {
                Target::At(offset) => Ok(offset),
                Target::FromEnd(distance) => {
                    let len = seek.len.get_or_insert_with(|| {
                        let file = self.file.clone();
                        Eager::early(async move { Ok(file.metadata().await?.len()) })
                    });
                    let len = ready!(len.poll(cx));
                    len.and_then(|len| self.checked_target(len.checked_add_signed(distance)))
                }
            };
            self.seek = None;
            self.restart_at(target?);
        }
        Poll::Ready(Ok(self.position()))
    }

    /// An offset to go on at.
    fn checked_target(&self, offset: Option<u64>) -> io::Result<u64> {
        let offset = checked(offset)?;
        if offset != self.position() {
            self.check_offset(offset)?;
        }
        Ok(offset)
    }

    /// Goes on at this offset; all that was taken in has been written.
    fn restart_at(&mut self, offset: u64) {
        if offset != self.position() {
            self.current = None;
            self.start = offset;
            self.write_behind = WriteBehind::new(self.file.clone(), offset);
        }
    }

    /// Waits until all that was taken in has been written.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.position() > self.write_behind.end() {
            ready!(self.poll_submit(cx))?;
        }
        self.write_behind.poll_at_most(cx, 0)
    }

    /// Begins to write what was collected, as soon as there may be another write.
    fn poll_submit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_behind.poll_at_most(cx, self.max_others()))?;
        Poll::Ready(self.submit())
    }

    /// How many writes there may be besides one that begins.
    fn max_others(&self) -> usize {
        if self.write_behind.truncates() { 0 } else { self.depth - 1 }
    }

    /// Begins to write what was collected.
    fn submit(&mut self) -> io::Result<()> {
        let Some(full) = &self.current else { return Ok(()) };
        let (start, whole) = (full.start, full.filled - full.filled % self.block());
        let rest = if whole < full.filled { Some(self.split(full, whole)?) } else { None };
        if let Some(full) = self.current.take()
            && whole > 0
        {
            self.write_behind.begin(start, full.buffer.slice(..whole));
        }
        if let Some((begun, padded)) = rest {
            self.write_behind.begin_truncating(
                begun.start,
                padded,
                begun.start + begun.filled as u64,
            );
            self.current = Some(begun);
        }
        Ok(())
    }

    /// What lies behind the whole blocks: once to be gone on with, and once as a block with zeroes,
    /// to be written now.
    fn split(&self, full: &Chunk, whole: usize) -> io::Result<(Chunk, Buffer)> {
        let (start, rest) =
            (full.start + whole as u64, &full.buffer.as_slice()[whole..full.filled]);
        let mut begun = Chunk { start, buffer: self.buffer_at(start)?, filled: 0 };
        begun.append(rest);
        let mut padded = Chunk { start, buffer: self.pool().get(self.block(), true)?, filled: 0 };
        padded.append(rest);
        padded.append(&vec![0; self.block() - rest.len()]);
        Ok((begun, padded.buffer))
    }

    /// Bytes of the blocks that the file is written in.
    fn block(&self) -> usize {
        block_of(&self.file) as usize
    }

    fn pool(&self) -> &Pool {
        &self.file.engine().inner.pool
    }

    /// An empty buffer for the chunk that begins at this offset.
    fn buffer_at(&self, start: u64) -> io::Result<Buffer> {
        let end = end_of_chunk(start, chunk_for(&self.file, self.chunk));
        self.pool().get(in_memory(end - start), self.file.is_direct())
    }

    /// Whether the file can be written at offsets.
    fn check_file(&mut self) -> io::Result<()> {
        let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.file_checked {
            return Ok(());
        }
        has_offsets(&self.file)?;
        if fcntl_getfl(&self.file)?.contains(OFlags::APPEND) {
            return invalid(
                "writer: the file was opened for appending; open it for writing, and begin at its length",
            );
        }
        self.file_checked = true;
        Ok(())
    }

    /// Whether the writer may begin a chunk at this offset.
    fn check_offset(&self, offset: u64) -> io::Result<()> {
        let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if offset > LARGEST_OFFSET {
            return invalid("writer: it begins beyond i64::MAX");
        }
        if !offset.is_multiple_of(block_of(&self.file)) {
            return invalid(
                "writer: it begins at an offset that is not aligned, and the file is opened for direct I/O",
            );
        }
        Ok(())
    }

    /// Bytes that were taken in and are not known to be written.
    fn unwritten(&self) -> u64 {
        self.position() - self.write_behind.written()
    }
}

impl Chunk {
    fn is_full(&self) -> bool {
        self.filled == self.buffer.len()
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self.buffer.as_mut_slice() {
            Some(bytes) => bytes,
            None => unreachable!("the pool's memory can be written to"),
        }
    }

    /// As many as there is room for.
    fn append(&mut self, bytes: &[u8]) -> usize {
        let filled = self.filled;
        let room = &mut self.bytes()[filled..];
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        self.filled += len;
        len
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let unwritten = self.unwritten();
        if unwritten == 0
            || self.silent
            || self.write_behind.error_reported()
            || std::thread::panicking()
        {
            return;
        }
        // Not a panic: dropping is also how a task is cancelled.
        if cfg!(debug_assertions) {
            eprintln!(
                "ringway: a writer was dropped with {unwritten} bytes not written: flush it, or abandon it"
            );
        }
        #[cfg(feature = "tracing")]
        tracing::error!(
            unwritten,
            "a writer was dropped with bytes not written: flush it, or abandon it"
        );
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("position", &self.position())
            .field("written", &self.written())
            .field("on_their_way", &self.write_behind.len())
            .finish_non_exhaustive()
    }
}
