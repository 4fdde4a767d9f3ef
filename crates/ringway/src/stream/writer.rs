//! Sequential writes of a file, with write-behind.

use super::eager::Eager;
use super::write_behind::WriteBehind;
use super::{
    DEFAULT_CHUNK, DEFAULT_DEPTH, MAX_CHUNK, MAX_DEPTH, block_of, checked, chunk_for, end_of_chunk,
    has_offsets,
};
use crate::align::{MAX_OFFSET, in_memory};
use crate::engine::{COPY_STEP, poll_proceed_in_memory, run_in_background};
use crate::fs::{File, SyncKind};
use crate::pool::Pool;
use ringway_core::Buffer;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, SeekFrom};
use std::task::{Context, Poll, ready};

/// Writes a file in order, while the caller produces the next bytes. From [`File::writer`].
///
/// Bytes are collected into chunks; a full chunk is written at its offset while the next one is
/// collected. [`seek`](Self::seek) continues at another offset. The writer implements tokio's
/// `AsyncWrite` and `AsyncSeek` (feature `tokio`), and those of `futures-io` (feature `futures`);
/// it also has methods of its own.
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
/// writer.sync_data().await?; // `flush` would leave the data in the page cache
/// # assert_eq!(std::fs::read(&path)?.len(), 8890);
/// # Ok(()) }
/// ```
///
/// **Flush it.** When a writer is dropped, what it has accepted is still written, in the
/// background, as with `tokio::fs::File`. A sync, [`close`](File::close) or
/// [`into_std`](File::into_std) of the file waits for that; it does not outlive the program. If
/// such a write fails, they return its error, and the writer reports the loss: on standard error in
/// debug builds, and as an event with the feature `tracing`. It does not retry what has failed
/// before, and reports nothing if it has returned that error. [`abandon`](Self::abandon) discards
/// what is not yet written. `shutdown` and `close` of the traits flush, and do not sync.
///
/// **Errors** of a write are returned by the next call that submits a chunk, flushes or syncs.
/// Nothing is discarded: the error is reported once for all writes in flight, and the next such
/// call retries them. So the caller can free space on a full disk and continue. A call that fails
/// has accepted none of its bytes, so repeat it: a [`write_all`](Self::write_all) that meets an
/// error when it has accepted a part accepts the rest, and the next call returns the error. (That
/// of the traits' extensions makes several calls, any of which may fail.)
/// [`written`](Self::written) returns how much is written without a gap; after that there may be
/// more. Other errors are ESPIPE for pipes, sockets and character devices, and InvalidInput for a
/// file opened for appending, whose writes ignore offsets: open it for writing, and start
/// [`at`](Self::at) its length.
///
/// **Direct I/O** writes whole blocks: `at` must be a multiple of the [alignment](File::alignment)
/// (InvalidInput). A flush pads the last block with zeroes and then truncates the file to its
/// length; after a power failure between the two the file may be longer. If the file continues
/// after the end of the written bytes, this would destroy data, so it is refused (InvalidInput). No
/// other writer may extend the file meanwhile.
pub struct Writer {
    file: File,
    chunk: usize,
    depth: usize,
    start: u64,
    current: Option<Chunk>,
    write_behind: WriteBehind,
    seek: Option<WriterSeek>,
    /// An error that a call met after it had accepted a part of its bytes: the next call that
    /// submits a chunk, flushes or syncs returns it.
    held: Option<io::Error>,
    /// The file is known to support writes at offsets.
    file_checked: bool,
    /// Discard unwritten bytes on drop.
    discards: bool,
}

/// A seek in flight: it takes place once all accepted bytes are written.
struct WriterSeek {
    target: Target,
    /// The length of the file, requested once everything is written.
    len: Option<Eager<io::Result<u64>>>,
}

/// The target of a seek.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    At(u64),
    FromEnd(i64),
}

/// A chunk that collects bytes.
struct Chunk {
    start: u64,
    buffer: Buffer,
    filled: usize,
}

impl File {
    /// Returns a writer from the beginning of the file, or from [`at`](Writer::at); see [`Writer`].
    /// Nothing is written yet. The file is not truncated: its bytes after those written stay.
    pub fn writer(&self) -> Writer {
        Writer {
            file: self.clone(),
            chunk: DEFAULT_CHUNK,
            depth: DEFAULT_DEPTH,
            start: 0,
            current: None,
            write_behind: WriteBehind::new(self.clone(), 0),
            seek: None,
            held: None,
            file_checked: false,
            discards: false,
        }
    }
}

impl Writer {
    /// Sets the bytes per write, clamped to 1 to 1 GiB; for direct I/O rounded up to whole blocks.
    /// Chunks end at multiples of it. Default 256 KiB.
    pub fn chunk(mut self, bytes: usize) -> Self {
        self.chunk = bytes.clamp(1, MAX_CHUNK);
        self
    }

    /// Sets how many chunks may be in flight while the next one is collected, clamped to 1 to 256.
    /// The writer uses at most `chunk` times (this + 1) bytes of memory, and after an error the
    /// rest of the [`write_all`](Self::write_all) that met it. Default 4.
    ///
    /// On Linux, where the file is not known to be local (on FUSE and network file systems), one
    /// chunk at a time is in flight, whatever is set here: some servers take only writes that
    /// follow each other.
    pub fn write_behind(mut self, chunks: usize) -> Self {
        self.depth = chunks.clamp(1, MAX_DEPTH);
        self
    }

    /// Writes without leaving pages in the page cache, or as usual: [`File::with_dont_cache`].
    /// Default: as the handle that the writer comes from.
    pub fn dont_cache(mut self, yes: bool) -> Self {
        self.file = self.file.clone().with_dont_cache(yes);
        self.write_behind.use_file(self.file.clone());
        self
    }

    /// Starts at this offset of the file.
    ///
    /// # Panics
    ///
    /// If bytes have already been written to it.
    pub fn at(mut self, offset: u64) -> Self {
        assert_eq!(self.position(), self.start, "`at` must be called before the first write");
        self.start = offset;
        self.write_behind = WriteBehind::new(self.file.clone(), offset);
        self
    }

    /// Accepts all these bytes. Waits while the limit of chunks is in flight.
    ///
    /// Errors: see [`Writer`]; then no bytes were accepted. (Only if there is no memory for the
    /// next chunk, a part may have been.) If the future is dropped, a part of them may have been
    /// accepted; the [`position`](Self::position) shows how many.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut begun = false;
        while !bytes.is_empty() {
            let taken = poll_fn(|cx| self.poll_accept(cx, bytes, begun)).await?;
            bytes = &bytes[taken..];
            begun = true;
        }
        Ok(())
    }

    /// Accepts as many of these bytes, one slice after the other, as fit into the current chunk.
    /// Returns their number. Waits as [`write_all`](Self::write_all) does.
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
    /// Errors: see [`Writer`]; then no bytes were accepted. The same holds if the future is
    /// dropped.
    pub async fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_write_vectored(cx, bytes)).await
    }

    /// Writes all accepted bytes, as [`flush`](Self::flush) does, and continues at another offset.
    /// Returns the new [`position`](Self::position). After a seek beyond the end of the file, the
    /// gap reads as zeroes once something is written.
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
    /// appending, and for an offset that is not aligned on a file opened for direct I/O; ESPIPE for
    /// pipes, sockets and character devices; those of the flush (see [`Writer`]) and of `statx(2)`.
    /// The position is then unchanged. If the future is dropped, the seek takes place before the
    /// next byte is accepted, unless another seek replaces it; that call then returns its error.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.start_seek(to)?;
        poll_fn(|cx| self.poll_seek(cx)).await
    }

    /// Waits until all accepted bytes are written: the kernel has them, and readers of the file see
    /// them. A power failure may still lose them.
    ///
    /// Errors: see [`Writer`]. If the future is dropped, the next call continues.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Flushes, and then writes the data to the device: [`File::sync_data`].
    ///
    /// Errors: those of both. An error of the sync is reported once; after it, written data may be
    /// lost, and the sync is not retried.
    pub async fn sync_data(&mut self) -> io::Result<()> {
        self.sync(SyncKind::Data).await
    }

    /// As [`sync_data`](Self::sync_data), including all metadata: [`File::sync_all`].
    pub async fn sync_all(&mut self) -> io::Result<()> {
        self.sync(SyncKind::All).await
    }

    async fn sync(&mut self, kind: SyncKind) -> io::Result<()> {
        let errors = self.file.unreported_errors()?;
        self.flush().await?;
        self.file.sync_written(kind, errors).await
    }

    /// Returns the offset in the file of the next byte to be accepted.
    pub fn position(&self) -> u64 {
        match &self.current {
            Some(current) => current.start + current.filled as u64,
            None => self.write_behind.end(),
        }
    }

    /// Returns how many bytes are known to be written without a gap, counted from the start or from
    /// the last [`seek`](Self::seek).
    pub fn written(&self) -> u64 {
        self.write_behind.written() - self.start
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Drops the writer and what it has not yet written. Writes in flight may still happen.
    pub fn abandon(mut self) {
        self.discards = true;
    }

    /// Returns a writer that discards what is not yet written when it is dropped.
    pub(crate) fn discarding(mut self) -> Self {
        self.discards = true;
        self
    }

    /// Accepts as many of these bytes as fit into the current chunk.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_accept(cx, bytes, false)
    }

    /// As [`poll_write`](Self::poll_write). With `begun`, the call has accepted bytes before these,
    /// and keeps an error of a write for the next call.
    fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        begun: bool,
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_seek(cx))?;
        if !begun {
            ready!(self.poll_may_begin(cx, bytes.len()))?;
        }
        if self.current.as_ref().is_some_and(Chunk::is_full) {
            if begun {
                ready!(self.poll_submit_or_defer(cx))
            } else {
                ready!(self.poll_submit(cx))?
            }
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
        let is_full = current.is_full();
        if !begun {
            self.write_behind.goes_on();
        }
        if is_full {
            // Submit it at once if possible. This call has accepted bytes, so the next call returns
            // any error.
            self.write_behind.reap(cx);
            if !self.write_behind.has_failed() && self.write_behind.len() <= self.max_others() {
                let _ = self.submit();
            }
        }
        Poll::Ready(Ok(taken))
    }

    /// Accepts as many of these bytes as fit into the current chunk.
    pub(super) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut parts = bytes.iter().filter(|part| !part.is_empty());
        let Some(first) = parts.next() else { return Poll::Ready(Ok(0)) };
        let mut taken = ready!(self.poll_write(cx, first))?;
        let mut was_whole = taken == first.len();
        // Further slices only while the chunk has space: no error can occur then, which would be
        // lost.
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

    /// Starts a seek, replacing one in flight.
    pub(super) fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        let target = self.target(to)?;
        self.seek = Some(WriterSeek { target, len: None });
        Ok(())
    }

    /// Starts a seek, unless it is in flight.
    #[cfg(feature = "futures")]
    pub(super) fn ensure_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        let target = self.target(to)?;
        if self.seek.as_ref().is_none_or(|seek| seek.target != target) {
            self.seek = Some(WriterSeek { target, len: None });
        }
        Ok(())
    }

    /// The target of a seek that starts now.
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

    /// Waits for a started seek, if any. Returns the position.
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

    /// Checks an offset to continue at.
    fn checked_target(&self, offset: Option<u64>) -> io::Result<u64> {
        let offset = checked(offset)?;
        if offset != self.position() {
            self.check_offset(offset)?;
        }
        Ok(offset)
    }

    /// Continues at this offset. All accepted bytes have been written.
    fn restart_at(&mut self, offset: u64) {
        if offset != self.position() {
            self.current = None;
            self.start = offset;
            self.write_behind = WriteBehind::new(self.file.clone(), offset);
        }
    }

    /// Waits until all accepted bytes are written.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.held.take() {
            return Poll::Ready(Err(error));
        }
        if self.position() > self.write_behind.end() {
            ready!(self.poll_submit(cx))?;
        }
        self.write_behind.poll_at_most(cx, 0)
    }

    /// Submits the collected bytes as soon as another write may be in flight.
    fn poll_submit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.held.take() {
            return Poll::Ready(Err(error));
        }
        ready!(self.write_behind.poll_at_most(cx, self.max_others()))?;
        Poll::Ready(self.submit())
    }

    /// Whether a call may accept `len` bytes: not with an error that an earlier call has held, and
    /// not while chunks that wait for a retry exceed the usual memory.
    fn poll_may_begin(&mut self, cx: &mut Context<'_>, len: usize) -> Poll<io::Result<()>> {
        if let Some(error) = self.held.take() {
            return Poll::Ready(Err(error));
        }
        if self.write_behind.len() > self.depth {
            ready!(self.write_behind.poll_at_most(cx, self.depth))?;
        }
        Poll::Ready(self.check_end(len))
    }

    /// Submits a full chunk as soon as another write may be in flight. If a write has failed, the
    /// error is held, and the chunk waits for the retry.
    fn poll_submit_or_defer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.held.is_none() {
            let room = ready!(self.write_behind.poll_at_most(cx, self.max_others()));
            self.held = room.and_then(|()| self.submit()).err();
        }
        if self.held.is_some()
            && let Some(full) = self.current.take()
        {
            self.write_behind.defer(full.start, full.buffer);
        }
        Poll::Ready(())
    }

    /// How many writes may be in flight besides one that starts. None where a server may take only
    /// what comes in order.
    fn max_others(&self) -> usize {
        if self.write_behind.truncates() || !self.file.takes_any_order() {
            0
        } else {
            self.depth - 1
        }
    }

    /// Submits the collected bytes.
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

    /// Copies the bytes after the last whole block: once to a chunk to continue with, and once to a
    /// block padded with zeroes, to be written now.
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

    /// The block size for writes to this file.
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

    /// Checks that the file supports writes at offsets.
    fn check_file(&mut self) -> io::Result<()> {
        let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.file_checked {
            return Ok(());
        }
        has_offsets(&self.file)?;
        if self.file.appends()? {
            return invalid(
                "writer: the file is open for appending; open it for writing, and start at its \
                 length",
            );
        }
        self.file_checked = true;
        Ok(())
    }

    /// Checks that bytes after the position, and a chunk after those, have valid offsets.
    fn check_end(&self, len: usize) -> io::Result<()> {
        match self.position().checked_add(len as u64) {
            Some(end) if end <= MAX_OFFSET => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "writer: the bytes would end above i64::MAX",
            )),
        }
    }

    /// Checks that a chunk may begin at this offset.
    fn check_offset(&self, offset: u64) -> io::Result<()> {
        let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if offset > MAX_OFFSET {
            return invalid("writer: offset above i64::MAX");
        }
        if !offset.is_multiple_of(block_of(&self.file)) {
            return invalid(
                "writer: the offset is not aligned, and the file is open for direct I/O",
            );
        }
        Ok(())
    }

    /// Bytes that were accepted and are not known to be written.
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
            None => unreachable!("pooled memory is writable"),
        }
    }

    /// Copies as many bytes as fit. Returns their number.
    fn append(&mut self, bytes: &[u8]) -> usize {
        let filled = self.filled;
        let space = &mut self.bytes()[filled..];
        let len = bytes.len().min(space.len());
        space[..len].copy_from_slice(&bytes[..len]);
        self.filled += len;
        len
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // (In a forked child the bytes are the parent's, and its writer writes them.)
        let is_forked = !self.file.engine().inner.is_current();
        if self.unwritten() == 0 || self.discards || is_forked {
            return;
        }
        if let Some(error) = self.held.take() {
            report_loss(self.unwritten(), &error);
            self.file.dropped_writes().note(error);
        } else if !self.write_behind.error_reported() {
            let behind = WriteBehind::new(self.file.clone(), self.write_behind.end());
            let mut rest = Self {
                file: self.file.clone(),
                chunk: self.chunk,
                depth: self.depth,
                start: self.start,
                current: self.current.take(),
                write_behind: std::mem::replace(&mut self.write_behind, behind),
                seek: None,
                held: None,
                file_checked: self.file_checked,
                discards: true,
            };
            let dropped = self.file.dropped_writes().clone();
            let write = dropped.begin();
            run_in_background(async move {
                if let Err(error) = rest.flush().await {
                    report_loss(rest.unwritten(), &error);
                    write.note(error);
                }
                // Who waits for the writes can then have the file.
                drop(rest);
                drop(write);
            });
            dropped.drive();
        }
    }
}

/// Reports bytes that nobody else learns of. Not by a panic: dropping is also how a task is
/// cancelled.
fn report_loss(unwritten: u64, error: &io::Error) {
    if cfg!(debug_assertions) && !std::thread::panicking() {
        eprintln!(
            "ringway: a writer was dropped with {unwritten} unwritten bytes ({error}): flush or \
             abandon it"
        );
    }
    #[cfg(feature = "tracing")]
    tracing::error!(
        unwritten,
        %error,
        "a writer was dropped with unwritten bytes: flush or abandon it"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (unwritten, error);
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("position", &self.position())
            .field("written", &self.written())
            .field("in_flight", &self.write_behind.len())
            .finish_non_exhaustive()
    }
}
