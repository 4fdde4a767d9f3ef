//! The reads that a reader has on their way: one chunk after the other, without a gap.

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

/// What completed of a read.
pub(super) struct CompletedRead {
    /// What was asked for.
    pub range: Range<u64>,
    pub result: io::Result<Block>,
    /// It was answered when it was begun: out of the page cache.
    pub at_once: bool,
    /// It was begun before its turn: the file may have become longer since.
    pub early: bool,
}

impl ReadAhead {
    /// Begins a read that somebody waits for, where there is no other.
    pub(super) fn begin(&mut self, file: &File, range: Range<u64>, cx: &mut Context<'_>) {
        let (of, wanted) = (file.clone(), range.clone());
        let block = Eager::new(async move { of.read(wanted).await }, cx);
        self.push(range, block, false);
    }

    /// Begins a read before its turn; it has to follow the last one. It wakes nobody: only for the
    /// first of all reads does anybody wait. It copies nothing out of the page cache.
    pub(super) fn begin_early(&mut self, file: &File, range: Range<u64>) {
        let (of, wanted) = (file.clone(), range.clone());
        self.push(range, Eager::early(async move { of.read_pooled(wanted, false).await }), true);
    }

    fn push(&mut self, range: Range<u64>, block: Eager<io::Result<Block>>, early: bool) {
        debug_assert!(
            self.end().is_none_or(|end| end == range.start),
            "a gap in what is read ahead"
        );
        self.reads.push_back(PendingRead { range, at_once: block.is_over(), block, early });
    }

    /// What completed of the first read; there must be one.
    pub(super) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<CompletedRead> {
        let Some(first) = self.reads.front_mut() else { unreachable!("nothing is on its way") };
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.reads.len()
    }

    /// True when there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Where the last of them ends.
    pub(super) fn end(&self) -> Option<u64> {
        self.reads.back().map(|last| last.range.end)
    }

    /// The last of them was answered at once, so those behind it may well be, too, when they are
    /// asked for.
    pub(super) fn has_caught_up(&self) -> bool {
        self.reads.back().is_some_and(|last| last.at_once)
    }

    /// The next byte wanted is that at `offset`: drops the reads before it, and all where none has
    /// it.
    pub(super) fn skip_to(&mut self, offset: u64) {
        while self.reads.front().is_some_and(|first| !first.range.contains(&offset)) {
            self.reads.pop_front();
        }
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        self.reads.clear();
    }
}
