//! Warming: what the page cache lacks of ranges of a file is read into it. Which pages those are is
//! found in the core (`page_scan.rs`).

use super::File;
use crate::align::InvalidRange;
use crate::engine::op_result::{forked, invalid, number};
use crate::engine::{COPY_STEP, OpFuture, OpResult, poll_proceed, without_yielding};
use ringway_core::{CacheHint, MissingPages, Operation, PageScan, op};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::Poll;

/// Reads that are submitted together.
const BATCH_READS: usize = 64;
/// Bytes of a batch, after which it takes no more reads. The submission copies what has come into
/// the page cache meanwhile.
const BATCH_BYTES: u64 = 1 << 20;
/// Batches in flight.
const BATCHES: usize = 4;

/// What [`File::warm`] has found and done. Bytes are those of whole pages, each counted once, up to
/// the end of the file.
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use = "a range that could not be read is in `failed`"]
pub struct Warmed {
    /// Bytes that were in the page cache when they were looked for. The kernel may have read some
    /// of them ahead, and a look that misses makes it do so: a fast device answers before the look
    /// ends.
    pub cached: u64,
    /// Bytes that were read: those of missing pages, and of pages that were read without a look: up
    /// to 31 pages (of 4 KiB) after each, the first ones where a look might wait, and others after
    /// several looks in a row that missed. All of them where the system does not tell what is
    /// cached.
    pub read: u64,
    /// What could not be read, in order of the reads. The other ranges were warmed.
    pub failed: Vec<UnreadRange>,
}

/// Pages that [`File::warm`] could not read. An access of a mapping to them may raise SIGBUS.
#[derive(Debug)]
#[non_exhaustive]
pub struct UnreadRange {
    /// The bytes of the reads that failed. Some of them may be in the page cache.
    pub range: Range<u64>,
    /// The error of the first one: EIO, for example.
    pub error: io::Error,
}

/// Reads in flight, or their results.
struct WarmBatch<'a> {
    /// The pages that each brings into the page cache.
    reads: Vec<Range<u64>>,
    state: BatchState<'a>,
}

enum BatchState<'a> {
    InFlight(OpFuture<'a, Vec<Operation>>),
    Done(Vec<OpResult>),
}

impl File {
    /// Brings ranges of the file into the page cache, and returns when they are there, for a
    /// program that reads them through a mapping: it then finds them without waiting for the
    /// device. Mappings are not touched: a later access still takes a fault, a minor one.
    ///
    /// `madvise(2)` with `MADV_POPULATE_READ` is the system call that waits, for one range after
    /// the other and in the caller's thread; [`advise`](Self::advise) with
    /// [`Advice::WillNeed`](super::Advice::WillNeed) does not wait, and tells of no error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("index");
    /// # std::fs::write(&path, vec![7; 100_000])?;
    /// let index = ringway::fs::File::open(&path).await?;
    /// // A program has mapped the index, and is about to read these parts of it.
    /// let warmed = index.warm(&[0..4096, 40_000..60_000, 99_000..u64::MAX]).await?;
    /// assert!(warmed.failed.is_empty());
    /// assert_eq!(warmed.cached + warmed.read, 4096 + 24_576 + 1_696); // whole pages of 4 KiB
    /// # Ok(()) }
    /// ```
    ///
    /// The ranges may be unsorted, overlapping or empty, and each page counts once. What is beyond
    /// the end of the file, when the call begins, is left out.
    ///
    /// - **What is missing** is found with `preadv2(2)` and `RWF_NOWAIT` (4.14) of one byte per
    ///   page: unlike `mincore(2)` and `cachestat(2)` it tells the truth of a file of another user.
    ///   Where the file system does not support that (an overlay, tmpfs), everything is read.
    ///   Where blocks are smaller than pages, a page of which a program has written a part may pass
    ///   for cached.
    /// - **Depth.** Up to 256 reads and 5 MiB are in flight. Their bytes are discarded: they all go
    ///   to one buffer of 128 KiB, which the process has once.
    /// - **Read-ahead.** The kernel's applies, as the descriptor's advice says, which is not
    ///   changed.
    /// - Pages stay until the kernel needs their memory. Ranges larger than free memory evict each
    ///   other.
    ///
    /// Errors: InvalidInput for a file that is open for direct I/O (its reads do not use the page
    /// cache), for one that is not a regular file, and for a range that ends before it begins;
    /// those of `statx(2)`. [`Warmed::failed`] has the errors of reads: those of `pread(2)`.
    ///
    /// If the future is dropped, no more reads are submitted, and those in flight are cancelled.
    pub async fn warm(&self, ranges: &[Range<u64>]) -> io::Result<Warmed> {
        if !self.engine().inner.is_current() {
            return Err(forked());
        }
        if self.is_direct() {
            return Err(invalid(
                "warm: the file is open for direct I/O, which does not use the page cache: open it \
                 without",
            ));
        }
        let len = self.regular_len().await?;
        if let Some(&Range { start, end }) = ranges.iter().find(|range| range.start > range.end) {
            return Err(InvalidRange::Backwards { start, end }.into());
        }
        let mut scan = PageScan::new(ranges.iter().cloned(), len, page_size());
        let mut warmed = Warmed::default();
        if self.core().read_now_may_wait()
            && let Some(first) = scan.advance(0)
        {
            // Read without a look, which might wait. Afterwards no look does.
            let batch = self.begin_batch(reads_of(first).collect()).await;
            warmed.end(batch).await;
        }
        let (mut in_flight, looks) = (VecDeque::new(), CacheHint::default());
        loop {
            let reads = self.missing(&mut scan, &looks).await;
            if reads.is_empty() {
                break;
            }
            if in_flight.len() == BATCHES
                && let Some(oldest) = in_flight.pop_front()
            {
                warmed.end(oldest).await;
            }
            in_flight.push_back(self.begin_batch(reads).await);
        }
        for batch in in_flight {
            warmed.end(batch).await;
        }
        warmed.cached = scan.cached();
        Ok(warmed)
    }

    /// The length of a regular file. Errors: InvalidInput for another one.
    async fn regular_len(&self) -> io::Result<u64> {
        let (is_file, len) = if self.core().is_local() {
            let metadata = self.core().with_std(std::fs::File::metadata)?;
            (metadata.is_file(), metadata.len())
        } else {
            let metadata = self.metadata().await?;
            (metadata.file_type().is_file(), metadata.len())
        };
        if is_file { Ok(len) } else { Err(invalid("warm: not a regular file")) }
    }

    /// Continues a scan until there are enough reads for a batch, or to its end.
    ///
    /// A look that misses makes the kernel send a request of its own to the device; those of a
    /// batch go together. So the more looks miss in a row, the more pages are read without one.
    async fn missing(&self, scan: &mut PageScan, looks: &CacheHint) -> Vec<Range<u64>> {
        let (mut reads, mut bytes) = (Vec::new(), 0);
        while let Some(probe) = scan.probe() {
            poll_fn(|cx| poll_proceed(cx, 0)).await;
            let cached = if looks.should_try() {
                let cached = self.core().read_now_partly(&mut [0; 2][..probe.len], probe.offset);
                if cached == probe.len {
                    looks.hit()
                } else {
                    looks.miss()
                }
                cached
            } else {
                0
            };
            let Some(missing) = scan.advance(cached) else { continue };
            bytes += missing.rest.end - missing.first.start;
            reads.extend(reads_of(missing));
            // (A missing page takes up to two reads.)
            if reads.len() + 1 >= BATCH_READS || bytes >= BATCH_BYTES {
                break;
            }
        }
        reads
    }

    /// Submits reads.
    async fn begin_batch(&self, reads: Vec<Range<u64>>) -> WarmBatch<'_> {
        let copied = reads.iter().map(len_of).sum::<usize>().min(COPY_STEP);
        poll_fn(|cx| poll_proceed(cx, copied)).await;
        let operations: Vec<_> = reads
            .iter()
            .map(|read| op::read_discard(self.core(), read.start, len_of(read)).exact())
            .collect();
        let mut future = OpFuture::new(&self.engine().inner, self.schedule(), operations);
        let first = |cx: &mut std::task::Context<'_>| {
            Poll::Ready(without_yielding(|| Pin::new(&mut future).poll(cx)))
        };
        let state = match poll_fn(first).await {
            Poll::Ready(results) => BatchState::Done(results),
            Poll::Pending => BatchState::InFlight(future),
        };
        WarmBatch { reads, state }
    }
}

impl Warmed {
    /// Waits for reads, and adds their results.
    async fn end(&mut self, batch: WarmBatch<'_>) {
        let results = match batch.state {
            BatchState::InFlight(future) => future.await,
            BatchState::Done(results) => results,
        };
        let mut results = results.into_iter();
        for range in batch.reads {
            // A forked child has no results: they belong to the parent.
            match results.next().map_or_else(|| Err(forked()), number) {
                // (Less if the file has become shorter meanwhile.)
                Ok(read) => self.read += read,
                Err(error) => self.fail(range, error),
            }
        }
    }

    /// Adds an error; to the last one if it is equal and the range follows.
    fn fail(&mut self, range: Range<u64>, error: io::Error) {
        match self.failed.last_mut() {
            Some(last)
                if last.range.end == range.start
                    && last.error.raw_os_error() == error.raw_os_error() =>
            {
                last.range.end = range.end;
            }
            _ => self.failed.push(UnreadRange { range, error }),
        }
    }
}

/// The reads of missing pages: of the first one, which the kernel may be reading already, and of
/// those after it. (Of a page whole: some of its blocks may be there.)
fn reads_of(missing: MissingPages) -> impl Iterator<Item = Range<u64>> {
    let MissingPages { first, rest, .. } = missing;
    [first, rest].into_iter().filter(|range| !range.is_empty())
}

/// The bytes of a read.
fn len_of(read: &Range<u64>) -> usize {
    (read.end - read.start) as usize
}

/// The size of a page of the page cache.
fn page_size() -> u64 {
    #[cfg(unix)]
    return rustix::param::page_size() as u64;
    #[cfg(not(unix))]
    4096
}
