//! Which reads to make for many ranges of one file, as pure data.
//!
//! Another read costs as much as some kilobytes more in a read that is made anyway. So ranges that
//! overlap or lie near each other are read together, within the limits of a [`Coalesce`], and each
//! is cut out of what came. Where the file is read directly, everything is counted in whole blocks,
//! since less than a block cannot be read.

use crate::align::{InvalidRange, enclose, in_memory, part};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::fmt;
use std::io;
use std::ops::Range;

/// When ranges that lie near each other are read together.
///
/// Ranges that overlap always are, up to the [`largest`](Self::largest) read; others if all three
/// limits allow it. They share an error too, if their read meets one.
///
/// The default is a gap of 16 KiB, 1 MiB for the largest read and an amplification of 2.0, which
/// suits local disks and cached files. A device that is slow to begin (a network disk) wants a
/// wider gap and a higher amplification:
///
/// ```
/// use ringway::Coalesce;
/// let coalesce = Coalesce::default().gap(256 << 10).largest(4 << 20).amplification(8.0);
/// # let _ = merge;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coalesce {
    gap: u64,
    largest: u64,
    amplification: f64,
}

impl Default for Coalesce {
    /// A gap of 16 KiB, 1 MiB, and an amplification of 2.0.
    fn default() -> Self {
        // On a virtio disk with 32 reads in flight, one of 24 KiB takes as long as two of 4 KiB
        // (`ringway bench --bs 4k,16k,32k --depth 32`); out of the page cache it is much the same.
        Self { gap: 16 << 10, largest: 1 << 20, amplification: 2.0 }
    }
}

impl Coalesce {
    /// Every range is a read of its own, except one that lies within another range: that comes with
    /// it.
    pub fn never() -> Self {
        // A range within another does not make the read any larger, so it does not ask for a limit.
        Self { gap: 0, largest: 0, amplification: 1.0 }
    }

    /// The most bytes between two ranges that are read together. They are read too, and thrown
    /// away. 0: only ranges that touch or overlap.
    pub fn gap(self, bytes: u64) -> Self {
        Self { gap: bytes, ..self }
    }

    /// The most bytes of a read of several ranges. A range that is longer is a read of its own.
    pub fn largest(self, bytes: u64) -> Self {
        Self { largest: bytes, ..self }
    }

    /// The most bytes that are read for each byte that was asked for, in any one read. 1.0, or
    /// anything less or not a number: no gap is read. With direct I/O, all of a block that is
    /// needed counts as asked for.
    pub fn amplification(self, ratio: f64) -> Self {
        Self { amplification: ratio, ..self }
    }
}

/// The reads to make, and where each range lies in them.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    reads: Vec<PlannedRead>,
    parts: Vec<Option<RangePart>>,
}

/// One read to make; its ends are multiples of the alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedRead {
    pub start: u64,
    pub end: u64,
    /// Bytes of it that some range needs.
    needed: u64,
}

/// Where one range lies in a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangePart {
    /// The read's number.
    pub read: usize,
    /// Bytes of the read before the range.
    pub skip: usize,
    /// Bytes of the range.
    pub len: usize,
}

impl Plan {
    /// The plan for these ranges: unsorted, overlapping, equal or empty as they may be. `align` is
    /// what offsets and lengths must be multiples of; 1 for buffered reads. Takes O(n log n), and
    /// O(n) when they are sorted.
    ///
    /// # Errors
    ///
    /// When a range ends before it begins, or it or its last block ends beyond `i64::MAX`.
    pub fn new(
        ranges: &[Range<u64>],
        coalesce: &Coalesce,
        align: u64,
    ) -> Result<Self, InvalidRangeAt> {
        let mut wanted = Vec::with_capacity(ranges.len());
        for (index, range) in ranges.iter().enumerate() {
            let blocks = enclose(range, align).map_err(|why| InvalidRangeAt { index, why })?;
            if !range.is_empty() {
                wanted.push((blocks.start, Reverse(blocks.end), index));
            }
        }
        // Of ranges that begin together the longest comes first, so that the others lie within it.
        wanted.sort_unstable();
        let mut reads: Vec<PlannedRead> = Vec::new();
        let mut parts = vec![None; ranges.len()];
        for (start, Reverse(end), index) in wanted {
            // The last read ends behind all others, so a range that does not fit into it lies in
            // none.
            if !reads.last_mut().is_some_and(|read| read.join(start, end, coalesce)) {
                reads.push(PlannedRead { start, end, needed: end - start });
            }
            let read = reads.len() - 1;
            let range = &ranges[index];
            let skip = in_memory(range.start - reads[read].start);
            parts[index] = Some(RangePart { read, skip, len: in_memory(range.end - range.start) });
        }
        Ok(Self { reads, parts })
    }

    /// The reads, by offset. They overlap only where one read of both would be larger than the
    /// largest allowed.
    pub fn reads(&self) -> &[PlannedRead] {
        &self.reads
    }

    /// Where each range lies, in the order in which they were asked for; `None` for an empty one,
    /// which needs no read.
    pub fn parts(&self) -> &[Option<RangePart>] {
        &self.parts
    }
}

impl PlannedRead {
    /// Bytes to read: at least one.
    pub fn len(&self) -> usize {
        in_memory(self.end - self.start)
    }

    /// Grows to hold `start..end`, which does not begin before it, if that is within the limits.
    fn join(&mut self, start: u64, end: u64, coalesce: &Coalesce) -> bool {
        if end <= self.end {
            return true;
        }
        let len = end - self.start;
        // In an overlap the new bytes are all needed, so it never makes the ratio worse.
        let fresh = end - start.max(self.end);
        let needed = self.needed + fresh;
        let near = start <= self.end
            || (start - self.end <= coalesce.gap
                && len as f64 <= coalesce.amplification * needed as f64);
        if !near || len > coalesce.largest {
            return false;
        }
        (self.end, self.needed) = (end, needed);
        true
    }
}

impl RangePart {
    /// The range's part of the `got` bytes that came of its read. A read that ended early (with the
    /// file, as a rule) makes it shorter; it is empty when nothing of the range came.
    pub fn within(&self, got: usize) -> Range<usize> {
        part(self.skip, self.len, got)
    }
}

/// Ranges that are planned together, read by read.
pub(crate) struct PlanWindow {
    ranges: Vec<IndexedRange>,
    plan: Plan,
    /// Positions in `ranges` of those that need a read, by the number of their read.
    order: Vec<usize>,
    /// How many of `order` have been taken.
    taken: usize,
}

/// A range with its number among all ranges of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexedRange {
    pub index: usize,
    pub range: Range<u64>,
}

/// One read of a window, with the ranges that it serves.
pub(crate) struct SharedRead {
    pub read: PlannedRead,
    pub parts: SmallVec<[(IndexedRange, RangePart); 1]>,
}

impl PlanWindow {
    /// Plans these ranges, none of which is empty.
    ///
    /// # Errors
    ///
    /// As for [`Plan::new`].
    pub fn new(
        ranges: Vec<IndexedRange>,
        coalesce: &Coalesce,
        align: u64,
    ) -> Result<Self, InvalidRangeAt> {
        let plain: Vec<_> = ranges.iter().map(|numbered| numbered.range.clone()).collect();
        let plan = Plan::new(&plain, coalesce, align)?;
        let read = |at: usize| plan.parts()[at].map(|part| part.read);
        let mut order: Vec<_> = (0..ranges.len()).filter(|at| read(*at).is_some()).collect();
        order.sort_by_key(|at| read(*at));
        Ok(Self { ranges, plan, order, taken: 0 })
    }

    /// The next read in the order of offsets; `None` after the last.
    pub fn next_read(&mut self) -> Option<SharedRead> {
        let part = |at: usize| self.plan.parts()[at];
        let number = part(*self.order.get(self.taken)?)?.read;
        let mut parts = SmallVec::new();
        while let Some(at) = self.order.get(self.taken).copied()
            && let Some(part) = part(at).filter(|part| part.read == number)
        {
            parts.push((self.ranges[at].clone(), part));
            self.taken += 1;
        }
        Some(SharedRead { read: self.plan.reads()[number], parts })
    }
}

/// A range among many that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidRangeAt {
    index: usize,
    why: InvalidRange,
}

impl fmt::Display for InvalidRangeAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "range {}: {}", self.index, self.why)
    }
}

impl std::error::Error for InvalidRangeAt {}

impl From<InvalidRangeAt> for io::Error {
    fn from(error: InvalidRangeAt) -> Self {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::align::LARGEST_OFFSET;
    use proptest::prelude::*;

    /// Start and end of each read.
    fn reads(ranges: &[Range<u64>], coalesce: &Coalesce, align: u64) -> Vec<(u64, u64)> {
        Plan::new(ranges, coalesce, align)
            .unwrap()
            .reads()
            .iter()
            .map(|read| (read.start, read.end))
            .collect()
    }

    /// Gaps and sizes that are easy to see.
    fn small() -> Coalesce {
        Coalesce { gap: 10, largest: 100, amplification: 2.0 }
    }

    #[test]
    fn near_ranges_are_read_together() {
        assert_eq!(reads(&[20..30, 0..10], &small(), 1), [(0, 30)]);
        assert_eq!(
            reads(&[0..10, 21..31], &small(), 1),
            [(0, 10), (21, 31)],
            "the gap is too wide"
        );
        assert_eq!(
            reads(&[0..2, 10..12], &small(), 1),
            [(0, 2), (10, 12)],
            "12 bytes for 4 are too many"
        );
        assert_eq!(
            reads(&[0..50, 50..101], &small(), 1),
            [(0, 50), (50, 101)],
            "too large together"
        );
        assert_eq!(reads(&[0..10, 10..20], &Coalesce::never(), 1), [(0, 10), (10, 20)]);
        assert_eq!(reads(&[0..10, 10..20], &small().amplification(f64::NAN), 1), [(0, 20)]);
    }

    #[test]
    fn overlapping_ranges_share_a_read_where_it_may_be_as_large() {
        assert_eq!(reads(&[5..15, 0..10, 5..15, 6..6], &small(), 1), [(0, 15)]);
        assert_eq!(reads(&[0..60, 50..110, 60..70], &small(), 1), [(0, 60), (50, 110)]);
        assert_eq!(
            reads(&[0..1000, 10..20, 0..5], &small(), 1),
            [(0, 1000)],
            "larger than the largest, and alone"
        );
        assert_eq!(reads(&[0..10, 2..4, 0..10], &Coalesce::never(), 1), [(0, 10)]);
    }

    #[test]
    fn direct_reads_are_whole_blocks() {
        assert_eq!(
            reads(&[600..601, 1..2, 511..512], &Coalesce::never(), 512),
            [(0, 512), (512, 1024)]
        );
        let plan = Plan::new(&[600..601, 3..3, 1..2], &Coalesce::never(), 512).unwrap();
        let part = |read, skip, len| Some(RangePart { read, skip, len });
        assert_eq!(plan.parts(), [part(1, 88, 1), None, part(0, 1, 1)]);
    }

    #[test]
    fn a_short_read_shortens_what_lies_behind_its_end() {
        let part = RangePart { read: 0, skip: 10, len: 10 };
        assert_eq!(
            [30, 20, 15, 10, 0].map(|got| part.within(got)),
            [10..20, 10..20, 10..15, 10..10, 0..0]
        );
    }

    #[test]
    fn a_range_that_cannot_be_is_named() {
        let backwards = Range { start: 9, end: 3 };
        let error = Plan::new(&[0..1, backwards], &Coalesce::default(), 1).unwrap_err();
        assert_eq!(error.to_string(), "range 1: 9..3 ends before it begins");
        assert!(Plan::new(&[0..LARGEST_OFFSET, 0..0], &Coalesce::default(), 1).is_ok());
        assert!(Plan::new(&[0..LARGEST_OFFSET + 1, 0..0], &Coalesce::default(), 1).is_err());
    }

    fn merges() -> impl Strategy<Value = Coalesce> {
        let ratio = prop_oneof![Just(f64::INFINITY), Just(f64::NAN), Just(0.0), 1.0..8.0];
        let coalesce = (0u64..300, 0u64..3_000, ratio);
        prop_oneof![
            Just(Coalesce::never()),
            coalesce.prop_map(|(gap, largest, ratio)| {
                Coalesce::default().gap(gap).largest(largest).amplification(ratio)
            })
        ]
    }

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        let range = (0u64..6_000, prop_oneof![Just(0u64), 1u64..40, 0u64..2_000]);
        proptest::collection::vec(range.prop_map(|(start, len)| start..start + len), 0..40)
    }

    proptest! {
        /// A file of any length, read as planned: every range has the bytes that it would have had
        /// alone.
        #[test]
        fn every_range_gets_its_bytes(
            ranges in ranges(),
            coalesce in merges(),
            shift in 0u32..9,
            file_len in 0u64..9_000,
        ) {
            let plan = Plan::new(&ranges, &coalesce, 1 << shift).unwrap();
            let file: Vec<u8> = (0..file_len).map(|at| (at % 251) as u8).collect();
            let of_file = |range: Range<u64>| {
                let end = range.end.min(file_len) as usize;
                &file[(range.start as usize).min(end)..end]
            };
            let came: Vec<&[u8]> = plan.reads().iter().map(|read| of_file(read.start..read.end)).collect();
            prop_assert_eq!(plan.parts().len(), ranges.len());
            for (range, part) in ranges.iter().zip(plan.parts()) {
                let bytes = part.map_or(&[][..], |part| &came[part.read][part.within(came[part.read].len())]);
                prop_assert_eq!(bytes, of_file(range.clone()));
            }
        }

        /// A window's reads are its plan's in order, and serve each range that is not empty once.
        #[test]
        fn a_window_serves_each_range_once(ranges in ranges(), coalesce in merges(), shift in 0u32..9) {
            let align = 1 << shift;
            let plan = Plan::new(&ranges, &coalesce, align).unwrap();
            let numbered = ranges.iter().enumerate().map(|(at, range)| IndexedRange { index: at + 100, range: range.clone() });
            let mut window = PlanWindow::new(numbered.collect(), &coalesce, align).unwrap();
            let mut served = vec![None; ranges.len()];
            for (number, read) in plan.reads().iter().enumerate() {
                let shared = window.next_read().unwrap();
                prop_assert_eq!(shared.read, *read);
                prop_assert!(!shared.parts.is_empty());
                for (IndexedRange { index, range }, part) in shared.parts {
                    prop_assert_eq!(&range, &ranges[index - 100]);
                    prop_assert_eq!((part.read, served[index - 100].replace(part)), (number, None));
                }
            }
            prop_assert!(window.next_read().is_none());
            prop_assert_eq!(&served[..], plan.parts());
        }

        /// Every read keeps to the limits, is needed at both ends, and is as few as they allow.
        #[test]
        fn reads_keep_to_the_limits(ranges in ranges(), coalesce in merges(), shift in 0u32..9) {
            let align = 1 << shift;
            let plan = Plan::new(&ranges, &coalesce, align).unwrap();
            let mut within = vec![Vec::new(); plan.reads().len()];
            for (range, part) in ranges.iter().zip(plan.parts()) {
                prop_assert_eq!(part.is_none(), range.is_empty());
                if let Some(part) = part {
                    let blocks = enclose(range, align).unwrap();
                    within[part.read].push(blocks.start..blocks.end);
                }
            }
            for (read, mut ranges) in plan.reads().iter().zip(within.iter().cloned()) {
                prop_assert!(read.start % align == 0 && read.end % align == 0 && read.start < read.end);
                ranges.sort_by_key(|range| (range.start, range.end));
                // A naive union of the ranges in this read.
                let (mut end, mut needed) = (read.start, 0);
                for range in &ranges {
                    if range.start > end {
                        prop_assert!(range.start - end <= coalesce.gap);
                    }
                    needed += range.end.saturating_sub(range.start.max(end));
                    end = end.max(range.end);
                }
                prop_assert_eq!((ranges[0].start, end, needed), (read.start, read.end, read.needed));
                let single = ranges.contains(&(read.start..read.end));
                prop_assert!(single || read.end - read.start <= coalesce.largest);
                prop_assert!(read.len() as f64 <= coalesce.amplification.max(1.0) * needed as f64);
            }
            for (pair, behind) in plan.reads().windows(2).zip(within.iter().skip(1)) {
                prop_assert!(pair[0].start <= pair[1].start && pair[0].end < pair[1].end);
                let first = behind.iter().min_by_key(|range| (range.start, Reverse(range.end))).unwrap();
                if first.start <= pair[0].end {
                    prop_assert!(first.end - pair[0].start > coalesce.largest, "nothing forced these two apart");
                }
            }
        }
    }
}
