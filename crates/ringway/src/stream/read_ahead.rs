//! The reads that a reader has in flight: consecutive chunks without gaps.

use super::eager::Eager;
use crate::Block;
use crate::fs::File;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::task::{Context, Poll, ready};

/// Reads in the order of their offsets. Dropping them cancels them.
#[derive(Default)]
pub(super) struct ReadAhead {
    reads: VecDeque<PendingRead>,
}

struct PendingRead {
    range: Range<u64>,
    block: Eager<io::Result<Block>>,
    at_once: bool,
    early: bool,
}

/// A completed read.
pub(super) struct CompletedRead {
    /// The requested range.
    pub range: Range<u64>,
    pub result: io::Result<Block>,
    /// It completed when it was started: the data was in the page cache.
    pub at_once: bool,
    /// It was started ahead of its use; the file may have grown since.
    pub early: bool,
}

impl ReadAhead {
    /// Starts a read that a task waits for. There must be no other.
    pub(super) fn begin(&mut self, file: &File, range: Range<u64>, cx: &mut Context<'_>) {
        let (of, wanted) = (file.clone(), range.clone());
        let block = Eager::new(async move { of.read(wanted).await }, cx);
        self.push(range, block, false);
    }

    /// Starts a read ahead of its use, directly after the last one. It wakes no task, because a
    /// task waits only for the first of all reads, and it copies nothing from the page cache.
    pub(super) fn begin_early(&mut self, file: &File, range: Range<u64>) {
        let (of, wanted) = (file.clone(), range.clone());
        self.push(
            range,
            Eager::early(async move { of.read_pooled(wanted, false, true).await }),
            true,
        );
    }

    fn push(&mut self, range: Range<u64>, block: Eager<io::Result<Block>>, early: bool) {
        debug_assert!(self.end().is_none_or(|end| end == range.start), "a gap in the read-ahead");
        self.reads.push_back(PendingRead { range, at_once: block.is_over(), block, early });
    }

    /// Polls the first read, which must exist.
    pub(super) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<CompletedRead> {
        let Some(first) = self.reads.front_mut() else { unreachable!("no read is in flight") };
        let result = ready!(first.block.poll(cx));
        let completed = CompletedRead {
            range: first.range.clone(),
            result,
            at_once: first.at_once,
            early: first.early,
        };
        self.reads.pop_front();
        Poll::Ready(completed)
    }

    /// The number of reads.
    pub(super) fn len(&self) -> usize {
        self.reads.len()
    }

    /// Whether there are no reads.
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// The end of the last read.
    pub(super) fn end(&self) -> Option<u64> {
        self.reads.back().map(|last| last.range.end)
    }

    /// Whether the last read completed when it was started. Then the next ones are likely to be
    /// cached when they are needed.
    pub(super) fn has_caught_up(&self) -> bool {
        self.reads.back().is_some_and(|last| last.at_once)
    }

    /// Moves on to `offset`: drops the reads before it, or all of them if none contains it.
    pub(super) fn skip_to(&mut self, offset: u64) {
        while self.reads.front().is_some_and(|first| !first.range.contains(&offset)) {
            self.reads.pop_front();
        }
    }

    /// Drops all reads.
    pub(super) fn clear(&mut self) {
        self.reads.clear();
    }
}
