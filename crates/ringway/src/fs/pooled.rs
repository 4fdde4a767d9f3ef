//! Pooled reads: ranges of a file, of any offset and length, read into buffers of the engine's
//! pool.

use super::{File, ReadTarget};
use crate::Block;
use crate::align::{enclose, in_memory, part};
use crate::engine::op_result::transfer;
use crate::engine::{COPY_STEP, OpFuture, poll_proceed};
use crate::ranges::{Coalesce, Plan, PlannedRead};
use crate::stream::RangeStream;
use ringway_core::{Buffer, op};
use std::future::poll_fn;
use std::io;
use std::ops::Range;

impl File {
    /// Reads a range of bytes into a pooled buffer. The block is shorter if the file ends within
    /// the range, and empty if it ends before; a pipe or a terminal returns what has arrived.
    ///
    /// The range needs no alignment, even with direct I/O: ringway reads the enclosing range and
    /// trims it without a copy.
    ///
    /// With a borrowed buffer, such as `&mut [u8]`, instead of a range, it reads at the
    /// [cursor](Self) and returns the number of bytes, as tokio's `AsyncReadExt::read` does.
    ///
    /// Errors: those of `pread(2)`; InvalidInput for a range that ends before it begins, or above
    /// `i64::MAX`; OutOfMemory if there is no memory for the whole range, even if the file is
    /// shorter; ResourceBusy for a read at the cursor while another one waits on this handle. If
    /// the future is dropped, the read is cancelled; one at the cursor loses no data.
    pub async fn read<T: ReadTarget>(&self, target: T) -> io::Result<T::Output> {
        target.read(self).await
    }

    /// As [`read`](Self::read); tries the page cache only if `try_cache` is true. `exact`: waits
    /// for all of the range, also where a read returns what has arrived.
    pub(crate) async fn read_pooled(
        &self,
        range: Range<u64>,
        try_cache: bool,
        exact: bool,
    ) -> io::Result<Block> {
        let enclosed = enclose(&range, self.granularity())?;
        let pool = &self.engine().inner.pool;
        let len = in_memory(enclosed.end - enclosed.start);
        let tries = try_cache && self.tries_cache();
        if tries {
            // Before it takes a buffer: many tasks that wait for their turn need no memory then,
            // and each copies into a buffer that has just been used.
            poll_fn(|cx| poll_proceed(cx, len.min(COPY_STEP))).await;
        }
        let mut buffer = pool.get(len, self.is_direct())?;
        let cached =
            if tries { self.read_cached(&mut buffer, enclosed.start, true).await } else { None };
        let read = match cached {
            Some(read) => read,
            None => {
                let copied = self.copied(buffer.len());
                let (read, back) =
                    self.read_uncached(buffer, enclosed.start, copied, exact).await?;
                buffer = back;
                read
            }
        };
        let wanted = part(in_memory(enclosed.leading), in_memory(range.end - range.start), read);
        let len = wanted.len();
        Ok(pool.block(buffer.slice(wanted), len))
    }

    /// Reads a range of bytes and requires all of it: as [`read`](Self::read), but a file that ends
    /// within the range is an error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let file = ringway::fs::File::open("/etc/passwd").await?;
    /// assert_eq!(file.read_exact(0..4).await?, b"root");
    /// let error = file.read_exact(0..1 << 30).await.unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    /// # Ok(()) }
    /// ```
    ///
    /// With a borrowed buffer it fills that from the cursor, as tokio's `AsyncReadExt::read_exact`
    /// does.
    ///
    /// Errors: UnexpectedEof if the file ends before the range does; those of [`read`](Self::read).
    /// If the future is dropped, the read is cancelled; one at the cursor may have moved it.
    pub async fn read_exact<T: ReadTarget>(&self, target: T) -> io::Result<T::Output> {
        target.read_exact(self).await
    }

    /// Reads many ranges of bytes into pooled buffers and returns them in the order given. It is
    /// one future and one submission, and nearby ranges are coalesced ([`Coalesce::default`]).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let file = ringway::fs::File::open("/etc/passwd").await?;
    /// let parts = file.read_ranges(&[100..110, 0..4]).await?;
    /// assert_eq!(&parts[1][..], b"root");
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: the first error of any range. [`read_ranges_each`](Self::read_ranges_each) returns
    /// the result of each range.
    pub async fn read_ranges(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Block>> {
        self.read_ranges_each(ranges, Coalesce::default()).await?.into_iter().collect()
    }

    /// As [`read_ranges`](Self::read_ranges), with a policy for coalescing, and a result for each
    /// range.
    ///
    /// Errors: InvalidInput, with nothing read, for a range that ends before it begins or above
    /// `i64::MAX`; the results have all other errors.
    pub async fn read_ranges_each(
        &self,
        ranges: &[Range<u64>],
        coalesce: Coalesce,
    ) -> io::Result<Vec<io::Result<Block>>> {
        let plan = Plan::new(ranges, &coalesce, self.granularity())?;
        let blocks = self.read_planned(&plan).await?;
        let part = |part: &Option<crate::ranges::RangePart>| match part {
            // The range is empty.
            None => Ok(Block::from(Vec::new())),
            Some(part) => match &blocks[part.read] {
                Ok(block) => Ok(block.slice(part.within(block.len()))),
                Err(error) => Err(clone_error(error)),
            },
        };
        Ok(plan.parts().iter().map(part).collect())
    }

    /// Reads ranges of bytes as a stream that yields each range when it has been read, in no
    /// particular order, while others are in flight. The ranges come from any iterator, even an
    /// endless one. See [`RangeStream`].
    ///
    /// Nothing is read before the stream is polled.
    pub fn read_ranges_stream<I: IntoIterator<Item = Range<u64>>>(
        &self,
        ranges: I,
    ) -> RangeStream<I::IntoIter> {
        RangeStream::new(self.clone(), ranges.into_iter())
    }

    /// Makes the reads of a plan: cached ones at once, the others in one submission.
    async fn read_planned(&self, plan: &Plan) -> io::Result<Vec<io::Result<Block>>> {
        let pool = &self.engine().inner.pool;
        let mut blocks: Vec<Option<io::Result<Block>>> = Vec::with_capacity(plan.reads().len());
        let mut operations = Vec::new();
        for (index, read) in plan.reads().iter().enumerate() {
            // A short buffer may have to be zeroed, which counts as copying.
            poll_fn(|cx| poll_proceed(cx, if read.len() < COPY_STEP { read.len() } else { 0 }))
                .await;
            let mut buffer = pool.get(read.len(), self.is_direct())?;
            match self.read_cached(&mut buffer, read.start, false).await {
                Some(len) => blocks.push(Some(Ok(pool.block(buffer, len)))),
                None => {
                    if operations.is_empty() {
                        operations.reserve_exact(plan.reads().len() - index);
                    }
                    let read = op::read(self.core(), buffer, read.start).exact();
                    operations.push(self.flagged(read));
                    blocks.push(None);
                }
            }
        }
        let mut results =
            OpFuture::new(&self.engine().inner, self.schedule(), operations).await.into_iter();
        let mut submitted = || {
            let (result, buffer) = transfer(results.next()?);
            Some(match result {
                Ok(len) => Ok(pool.block(buffer, len)),
                Err(error) => {
                    pool.put(buffer);
                    Err(error)
                }
            })
        };
        // A forked child has no results: they belong to the parent.
        let missing = || Err(io::Error::from_raw_os_error(ringway_core::Reason::Forked.errno()));
        Ok(blocks
            .into_iter()
            .map(|block| block.or_else(&mut submitted).unwrap_or_else(missing))
            .collect())
    }

    /// Reads into a whole buffer of the pool, of which the submission may copy `copied` bytes.
    /// After an error the buffer goes back to the pool.
    async fn read_uncached(
        &self,
        buffer: Buffer,
        offset: u64,
        copied: usize,
        exact: bool,
    ) -> io::Result<(usize, Buffer)> {
        let read = op::read(self.core(), buffer, offset);
        let read = self.flagged(if exact { read.exact() } else { read });
        let (result, buffer) = transfer(
            OpFuture::new(&self.engine().inner, self.schedule(), read).copies(copied).await,
        );
        match result {
            Ok(read) => Ok((read, buffer)),
            Err(error) => {
                self.engine().inner.pool.put(buffer);
                Err(error)
            }
        }
    }

    /// Starts a planned read: copies cached data at once, if it is at most [`COPY_STEP`] bytes. The
    /// caller has called [`poll_proceed`].
    ///
    /// Errors: OutOfMemory.
    pub(crate) fn begin_planned(&self, read: &PlannedRead) -> io::Result<PlannedStart> {
        let pool = &self.engine().inner.pool;
        let mut buffer = pool.get(read.len(), self.is_direct())?;
        if buffer.len() <= COPY_STEP
            && let Some(len) = self.read_cached_now(&mut buffer, read.start)
        {
            return Ok(PlannedStart::Cached(pool.block(buffer, len)));
        }
        Ok(PlannedStart::Missed(buffer))
    }

    /// Finishes a planned read that was not cached.
    pub(crate) async fn end_planned(self, mut buffer: Buffer, offset: u64) -> io::Result<Block> {
        let cached = if buffer.len() > COPY_STEP {
            self.read_cached(&mut buffer, offset, false).await
        } else {
            None
        };
        let (len, buffer) = match cached {
            Some(len) => (len, buffer),
            None => self.read_uncached(buffer, offset, 0, true).await?,
        };
        Ok(self.engine().inner.pool.block(buffer, len))
    }

    /// The multiple that offsets and lengths of reads must have.
    pub(crate) fn granularity(&self) -> u64 {
        if self.is_direct() { u64::from(self.offset_align().max(1)) } else { 1 }
    }
}

/// A planned read that has started.
pub(crate) enum PlannedStart {
    /// The data was in the page cache.
    Cached(Block),
    /// The data was not in the page cache; this is the buffer for it.
    Missed(Buffer),
}

/// Returns an equal error, for each range that shares it.
pub(crate) fn clone_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
