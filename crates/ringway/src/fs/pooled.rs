//! Reading into memory that ringway lends: ranges of a file, at any offset and of any length.

use super::File;
use super::op_result::transfer;
use crate::Block;
use crate::align::{enclose, in_memory, part};
use crate::engine::{COPY_STEP, OpFuture, poll_proceed};
use crate::ranges::{Coalesce, Plan, PlannedRead};
use crate::stream::RangeStream;
use ringway_core::{Buffer, op};
use std::future::poll_fn;
use std::io;
use std::ops::Range;

impl File {
    /// Reads a range of bytes into memory that ringway lends. The block is shorter where the file
    /// ends before, and empty beyond.
    ///
    /// With direct I/O too the range may be any: what encloses it is read, and the rest trimmed off
    /// without a copy.
    ///
    /// Errors: those of `pread(2)`; InvalidInput for a range that ends before it begins, or beyond
    /// `i64::MAX`; OutOfMemory where there is no memory for the whole range, however short the file
    /// is. Dropped, the read is cancelled.
    pub async fn read(&self, range: Range<u64>) -> io::Result<Block> {
        self.read_pooled(range, true).await
    }

    /// As [`read`](Self::read); out of the page cache at once only where that is to be tried.
    pub(crate) async fn read_pooled(
        &self,
        range: Range<u64>,
        try_cache: bool,
    ) -> io::Result<Block> {
        let enclosed = enclose(&range, self.granularity())?;
        let pool = &self.engine().inner.pool;
        let mut buffer = pool.get(in_memory(enclosed.end - enclosed.start), self.is_direct())?;
        let cached =
            if try_cache { self.read_cached(&mut buffer, enclosed.start).await } else { None };
        let read = match cached {
            Some(read) => read,
            None => {
                let copied = self.copied(buffer.len());
                let (read, back) = self.read_uncached(buffer, enclosed.start, copied).await?;
                buffer = back;
                read
            }
        };
        let wanted = part(in_memory(enclosed.front), in_memory(range.end - range.start), read);
        let len = wanted.len();
        Ok(pool.into_block(buffer.slice(wanted), len))
    }

    /// Reads a range and expects all of it: as [`read`](Self::read), but a file that ends before
    /// the range does is an error.
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
    /// Errors: UnexpectedEof where the file ends before the range; those of [`read`](Self::read).
    /// Dropped, the read is cancelled.
    pub async fn read_exact(&self, range: Range<u64>) -> io::Result<Block> {
        let wanted = range.end.saturating_sub(range.start);
        let block = self.read(range).await?;
        if block.len() as u64 == wanted {
            Ok(block)
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Reads many ranges of bytes, each into memory that ringway lends, in the order given: one
    /// future, one submission, ranges near each other read together ([`Coalesce::default`]).
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
    /// Errors: the first that any of them met; to have each range's own, use
    /// [`read_ranges_each`](Self::read_ranges_each).
    pub async fn read_ranges(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Block>> {
        self.read_ranges_each(ranges, &Coalesce::default()).await?.into_iter().collect()
    }

    /// As [`read_ranges`](Self::read_ranges), with a policy of one's own for what is read together,
    /// and each range with a result of its own.
    ///
    /// Errors: InvalidInput, with nothing read, for a range that ends before it begins or beyond
    /// `i64::MAX`; else the results tell.
    pub async fn read_ranges_each(
        &self,
        ranges: &[Range<u64>],
        coalesce: &Coalesce,
    ) -> io::Result<Vec<io::Result<Block>>> {
        let plan = Plan::new(ranges, coalesce, self.granularity())?;
        let blocks = self.read_planned(&plan).await?;
        let part = |part: &Option<crate::ranges::RangePart>| match part {
            // It asked for nothing.
            None => Ok(Block::from(Vec::new())),
            Some(part) => match &blocks[part.read] {
                Ok(block) => Ok(block.slice(part.within(block.len()))),
                Err(error) => Err(clone_error(error)),
            },
        };
        Ok(plan.parts().iter().map(part).collect())
    }

    /// Reads ranges of bytes as a stream: each is yielded when it has been read, in no particular
    /// order, while others are in flight. The ranges come from any iterator, also one without an
    /// end. See [`RangeStream`].
    ///
    /// Nothing is read before the stream is polled.
    pub fn read_ranges_stream<I: IntoIterator<Item = Range<u64>>>(
        &self,
        ranges: I,
    ) -> RangeStream<I::IntoIter> {
        RangeStream::new(self.clone(), ranges.into_iter())
    }

    /// Carries out a plan's reads: those in the page cache at once, the others together.
    async fn read_planned(&self, plan: &Plan) -> io::Result<Vec<io::Result<Block>>> {
        let pool = &self.engine().inner.pool;
        let mut blocks: Vec<Option<io::Result<Block>>> = Vec::with_capacity(plan.reads().len());
        let mut operations = Vec::new();
        for read in plan.reads() {
            // What is short may have to be zeroed.
            poll_fn(|cx| poll_proceed(cx, if read.len() < COPY_STEP { read.len() } else { 0 }))
                .await;
            let mut buffer = pool.get(read.len(), self.is_direct())?;
            match self.read_cached(&mut buffer, read.start).await {
                Some(len) => blocks.push(Some(Ok(pool.into_block(buffer, len)))),
                None => {
                    operations.push(op::read(self.core(), buffer, read.start).exact());
                    blocks.push(None);
                }
            }
        }
        let mut results =
            OpFuture::new(&self.engine().inner, self.schedule(), operations).await.into_iter();
        let mut carried = || {
            let (result, buffer) = transfer(results.next()?);
            Some(match result {
                Ok(len) => Ok(pool.into_block(buffer, len)),
                Err(error) => {
                    pool.put(buffer);
                    Err(error)
                }
            })
        };
        // (A forked child has no results: its parent has.)
        let missing = || Err(io::Error::from_raw_os_error(ringway_core::Reason::Forked.errno()));
        Ok(blocks
            .into_iter()
            .map(|block| block.or_else(&mut carried).unwrap_or_else(missing))
            .collect())
    }

    /// Reads into a whole buffer of the pool's, of which so many bytes may be copied at the push.
    /// An error puts the buffer back.
    async fn read_uncached(
        &self,
        buffer: Buffer,
        offset: u64,
        copied: usize,
    ) -> io::Result<(usize, Buffer)> {
        let read = op::read(self.core(), buffer, offset).exact();
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

    /// Begins a planned read: what the page cache has is copied at once, if that is at most
    /// [`COPY_STEP`] bytes. The caller has asked [`poll_proceed`].
    ///
    /// Errors: OutOfMemory.
    pub(crate) fn begin_planned(&self, read: &PlannedRead) -> io::Result<PlannedStart> {
        let pool = &self.engine().inner.pool;
        let mut buffer = pool.get(read.len(), self.is_direct())?;
        if buffer.len() <= COPY_STEP
            && let Some(len) = self.read_cached_now(&mut buffer, read.start)
        {
            return Ok(PlannedStart::Cached(pool.into_block(buffer, len)));
        }
        Ok(PlannedStart::Missed(buffer))
    }

    /// Ends a planned read that was not answered at once.
    pub(crate) async fn end_planned(self, mut buffer: Buffer, offset: u64) -> io::Result<Block> {
        let cached = if buffer.len() > COPY_STEP {
            self.read_cached(&mut buffer, offset).await
        } else {
            None
        };
        let (len, buffer) = match cached {
            Some(len) => (len, buffer),
            None => self.read_uncached(buffer, offset, 0).await?,
        };
        Ok(self.engine().inner.pool.into_block(buffer, len))
    }

    /// What offsets and lengths of reads must be multiples of.
    pub(crate) fn granularity(&self) -> u64 {
        match self.is_direct() {
            true => u64::from(self.alignment().offset_align.max(1)),
            false => 1,
        }
    }
}

/// A planned read that has begun.
pub(crate) enum PlannedStart {
    /// Its bytes, out of the page cache.
    Cached(Block),
    /// Memory for it.
    Missed(Buffer),
}

/// The same error for each of those that it concerns.
pub(crate) fn clone_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
