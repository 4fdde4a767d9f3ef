//! Reading into memory that ringway lends: ranges of a file, at any offset and of any length.

use super::File;
use super::outcome::transfer;
use crate::Block;
use crate::align::{enclose, in_memory, part};
use crate::engine::{Flight, STEP, go_on};
use crate::ranges::{Merge, Plan};
use ringway_core::op;
use std::future::poll_fn;
use std::io;
use std::ops::Range;

impl File {
    /// Reads a range of bytes into memory that ringway lends. The block is shorter where the file ends before, and empty beyond.
    ///
    /// With direct I/O too the range may be any: what encloses it is read, and the rest trimmed off without a copy.
    ///
    /// Errors: those of `pread(2)`; InvalidInput for a range that ends before it begins, or beyond `i64::MAX`; OutOfMemory
    /// where there is no memory for the whole range, however short the file is. Dropped, the read is cancelled.
    pub async fn read(&self, range: Range<u64>) -> io::Result<Block> {
        self.read_lent(range, true).await
    }

    /// As [`read`](Self::read); out of the page cache at once only where that is to be tried.
    pub(crate) async fn read_lent(&self, range: Range<u64>, try_cache: bool) -> io::Result<Block> {
        let enclosed = enclose(&range, self.granularity())?;
        let pool = &self.engine().inner.pool;
        let mut buffer = pool.take(in_memory(enclosed.end - enclosed.start), self.is_direct())?;
        let cached = if try_cache { self.read_cached(&mut buffer, enclosed.start).await } else { None };
        let read = match cached {
            Some(read) => read,
            None => {
                let len = buffer.len();
                let read = op::read(self.core(), buffer, enclosed.start).exact();
                let (result, back) = transfer(self.fly(read, len).await);
                buffer = back;
                match result {
                    Ok(read) => read,
                    Err(error) => {
                        pool.put(buffer);
                        return Err(error);
                    }
                }
            }
        };
        let wanted = part(in_memory(enclosed.front), in_memory(range.end - range.start), read);
        let len = wanted.len();
        Ok(pool.lend(buffer.slice(wanted), len))
    }

    /// Reads many ranges of bytes, each into memory that ringway lends, in the order given: one future, one submission,
    /// ranges near each other read together ([`Merge::default`]).
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
    /// Errors: the first that any of them met; to have each range's own, use [`read_ranges_each`](Self::read_ranges_each).
    pub async fn read_ranges(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Block>> {
        self.read_ranges_each(ranges, &Merge::default()).await?.into_iter().collect()
    }

    /// As [`read_ranges`](Self::read_ranges), with a policy of one's own for what is read together, and each range with a result of
    /// its own.
    ///
    /// Errors: InvalidInput, with nothing read, for a range that ends before it begins or beyond `i64::MAX`; else the results tell.
    pub async fn read_ranges_each(&self, ranges: &[Range<u64>], merge: &Merge) -> io::Result<Vec<io::Result<Block>>> {
        let plan = Plan::new(ranges, merge, self.granularity())?;
        let blocks = self.read_planned(&plan).await?;
        let part = |part: &Option<crate::ranges::Part>| match part {
            // It asked for nothing.
            None => Ok(Block::from(Vec::new())),
            Some(part) => match &blocks[part.read] {
                Ok(block) => Ok(block.slice(part.within(block.len()))),
                Err(error) => Err(again(error)),
            },
        };
        Ok(plan.parts().iter().map(part).collect())
    }

    /// Carries out a plan's reads: those in the page cache at once, the others together.
    async fn read_planned(&self, plan: &Plan) -> io::Result<Vec<io::Result<Block>>> {
        let pool = &self.engine().inner.pool;
        let mut blocks: Vec<Option<io::Result<Block>>> = Vec::with_capacity(plan.reads().len());
        let mut operations = Vec::new();
        for read in plan.reads() {
            // What is short may have to be zeroed.
            poll_fn(|cx| go_on(cx, if read.len() < STEP { read.len() } else { 0 })).await;
            let mut buffer = pool.take(read.len(), self.is_direct())?;
            match self.read_cached(&mut buffer, read.start).await {
                Some(len) => blocks.push(Some(Ok(pool.lend(buffer, len)))),
                None => {
                    operations.push(op::read(self.core(), buffer, read.start).exact());
                    blocks.push(None);
                }
            }
        }
        let mut outcomes = Flight::new(&self.engine().inner, self.turn(), operations).await.into_iter();
        let mut carried = || {
            let (result, buffer) = transfer(outcomes.next()?);
            Some(match result {
                Ok(len) => Ok(pool.lend(buffer, len)),
                Err(error) => {
                    pool.put(buffer);
                    Err(error)
                }
            })
        };
        // (A forked child has no results: its parent has.)
        let missing = || Err(io::Error::from_raw_os_error(ringway_core::Reason::Forked.errno()));
        Ok(blocks.into_iter().map(|block| block.or_else(&mut carried).unwrap_or_else(missing)).collect())
    }

    /// What offsets and lengths of reads must be multiples of.
    fn granularity(&self) -> u64 {
        match self.is_direct() {
            true => u64::from(self.alignment().offset_align.max(1)),
            false => 1,
        }
    }
}

/// The same error for each of those that it concerns.
fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
