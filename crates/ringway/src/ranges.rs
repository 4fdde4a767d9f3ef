//! Plans the reads for many ranges of one file, as pure data.
//!
//! An additional read costs as much as some kilobytes more in an existing read. So ranges that
//! overlap or are near each other are coalesced into one read, within the limits of a [`Coalesce`],
//! and each range is cut out of the result. With direct I/O, reads consist of whole blocks.

use crate::align::{InvalidRange, enclose, in_memory, part};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::fmt;
use std::io;
use std::ops::Range;

/// When nearby ranges are coalesced into one read.
///
/// Ranges that overlap are coalesced, up to [`max_read`](Self::max_read) or to four times the
/// longest of them, whichever is more: so bytes that several ranges share are read once, or a third
/// of them twice. Other ranges are coalesced if all three limits allow it. Ranges that share a read
/// also share its error.
///
/// The default is a gap of 16 KiB, reads of 1 MiB and an amplification of 2.0, which suits local
/// disks and cached files. A device with high latency (a network disk) needs a larger gap and
/// amplification:
///
/// ```
/// use ringway::Coalesce;
/// let coalesce = Coalesce::default().max_gap(256 << 10).max_read(4 << 20).max_amplification(8.0);
/// # let _ = coalesce;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coalesce {
    max_gap: u64,
    max_read: u64,
    max_amplification: f64,
}

impl Default for Coalesce {
    /// A gap of 16 KiB, reads of 1 MiB, and an amplification of 2.0.
    fn default() -> Self {
        // On a virtio disk with 32 reads in flight, one read of 24 KiB takes as long as two of 4
        // KiB (`ringway bench --bs 4k,16k,32k --depth 32`). Reads from the page cache are similar.
        Self { max_gap: 16 << 10, max_read: 1 << 20, max_amplification: 2.0 }
    }
}

impl Coalesce {
    /// Reads every range separately, except one that lies within another range.
    pub fn never() -> Self {
        // A range within another one does not enlarge the read, so no limit applies to it.
        Self { max_gap: 0, max_read: 0, max_amplification: 1.0 }
    }

    /// The most bytes between two ranges of one read. They are read and discarded. 0 coalesces only
    /// ranges that touch or overlap.
    pub fn max_gap(self, bytes: u64) -> Self {
        Self { max_gap: bytes, ..self }
    }

    /// The largest read for several ranges that do not overlap, in bytes. A longer range gets a
    /// read of its own.
    pub fn max_read(self, bytes: u64) -> Self {
        Self { max_read: bytes, ..self }
    }

    /// The most bytes to read for each requested byte, within one read. With 1.0, less, or NaN, no
    /// gap is read. With direct I/O, all bytes of a needed block count as requested.
    pub fn max_amplification(self, ratio: f64) -> Self {
        Self { max_amplification: ratio, ..self }
    }
}

/// How many times the longest range a read of overlapping ranges may have. The next read begins
/// within the last of them, so at most a third of what it adds has been read.
const OVERLAPPING: u64 = 4;

impl Coalesce {
    /// The most bytes of a read of several ranges, the longest of which has `longest` bytes.
    fn limit(&self, longest: u64, overlaps: bool) -> u64 {
        if overlaps && self.max_read > 0 {
            self.max_read.max(longest.saturating_mul(OVERLAPPING))
        } else {
            self.max_read
        }
    }
}

/// The reads to make, and the place of each range in them.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    reads: Vec<PlannedRead>,
    parts: Vec<Option<RangePart>>,
}

/// One read. Its ends are multiples of the alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedRead {
    pub start: u64,
    pub end: u64,
    /// Bytes that some range needs.
    needed: u64,
    /// The length of the longest range, in whole blocks.
    longest: u64,
}

/// The place of one range in a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangePart {
    /// The index of the read.
    pub read: usize,
    /// Bytes of the read before the range.
    pub skip: usize,
    /// Bytes of the range.
    pub len: usize,
}

impl Plan {
    /// Plans the reads for these ranges, which may be unsorted, overlapping, equal or empty.
    /// Offsets and lengths of reads are multiples of `align`, which is 1 for buffered reads. Takes
    /// O(n log n), and O(n) if the ranges are sorted.
    ///
    /// # Errors
    ///
    /// If a range ends before it begins, or if it or its last block ends beyond `i64::MAX`.
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
            // The last read ends after all others, so a range that does not fit into it lies in
            // none.
            if !reads.last_mut().is_some_and(|read| read.join(start, end, coalesce)) {
                let len = end - start;
                reads.push(PlannedRead { start, end, needed: len, longest: len });
            }
            let read = reads.len() - 1;
            let range = &ranges[index];
            let skip = in_memory(range.start - reads[read].start);
            parts[index] = Some(RangePart { read, skip, len: in_memory(range.end - range.start) });
        }
        Ok(Self { reads, parts })
    }

    /// The reads, by offset. They overlap only where a single read would exceed the limits, by at
    /// most one range.
    pub fn reads(&self) -> &[PlannedRead] {
        &self.reads
    }

    /// The place of each range, in the order requested; `None` for an empty range, which needs no
    /// read.
    pub fn parts(&self) -> &[Option<RangePart>] {
        &self.parts
    }
}

impl PlannedRead {
    /// The length of the read: at least one byte.
    pub fn len(&self) -> usize {
        in_memory(self.end - self.start)
    }

    /// Extends the read to `end` if the limits allow it. `start` is not before the read.
    fn join(&mut self, start: u64, end: u64, coalesce: &Coalesce) -> bool {
        if end <= self.end {
            self.longest = self.longest.max(end - start);
            return true;
        }
        let longest = self.longest.max(end - start);
        let len = end - self.start;
        // Overlapping ranges add only needed bytes, so they never worsen the ratio.
        let fresh = end - start.max(self.end);
        let needed = self.needed + fresh;
        let near = start <= self.end
            || (start - self.end <= coalesce.max_gap
                && len as f64 <= coalesce.max_amplification * needed as f64);
        if !near || len > coalesce.limit(longest, start < self.end) {
            return false;
        }
        (self.end, self.needed, self.longest) = (end, needed, longest);
        true
    }
}

impl RangePart {
    /// The part of the `got` bytes that belongs to the range. It is shorter, or empty, if the read
    /// ended early (usually at the end of the file).
    pub fn within(&self, got: usize) -> Range<usize> {
        part(self.skip, self.len, got)
    }
}

/// Ranges that are planned together, and their reads one by one.
pub(crate) struct PlanWindow {
    ranges: Vec<IndexedRange>,
    plan: Plan,
    /// Indices in `ranges`, in the order of their reads.
    order: Vec<usize>,
    /// How many entries of `order` have been used.
    taken: usize,
}

/// A range with its index among all ranges of a stream.
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

/// A range that cannot be read, with its index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidRangeAt {
    index: usize,
    why: InvalidRange,
}

/// The text of `Display`: `main` prints the error of a `?` with `Debug`.
impl fmt::Debug for InvalidRangeAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
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
    use crate::align::MAX_OFFSET;
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

    /// Small limits, for readable tests.
    fn small() -> Coalesce {
        Coalesce { max_gap: 10, max_read: 100, max_amplification: 2.0 }
    }

    #[test]
    fn near_ranges_share_a_read() {
        assert_eq!(reads(&[20..30, 0..10], &small(), 1), [(0, 30)]);
        assert_eq!(
            reads(&[0..10, 21..31], &small(), 1),
            [(0, 10), (21, 31)],
            "the gap is too large"
        );
        assert_eq!(
            reads(&[0..2, 10..12], &small(), 1),
            [(0, 2), (10, 12)],
            "12 bytes for 4 exceed the amplification"
        );
        assert_eq!(
            reads(&[0..50, 50..101], &small(), 1),
            [(0, 50), (50, 101)],
            "too large for one read"
        );
        assert_eq!(reads(&[0..10, 10..20], &Coalesce::never(), 1), [(0, 10), (10, 20)]);
        assert_eq!(reads(&[0..10, 10..20], &small().max_amplification(f64::NAN), 1), [(0, 20)]);
    }

    #[test]
    fn overlapping_ranges_share_a_read_up_to_the_limit() {
        assert_eq!(reads(&[5..15, 0..10, 5..15, 6..6], &small(), 1), [(0, 15)]);
        assert_eq!(reads(&[0..60, 50..110, 60..70], &small(), 1), [(0, 110)]);
        assert_eq!(reads(&[0..60, 60..110], &small(), 1), [(0, 60), (60, 110)], "they only touch");
        let never = Coalesce::never();
        assert_eq!(reads(&[0..60, 50..110], &never, 1), [(0, 60), (50, 110)]);
        assert_eq!(
            reads(&[0..1000, 10..20, 0..5], &small(), 1),
            [(0, 1000)],
            "larger than max_read, and alone"
        );
        assert_eq!(reads(&[0..10, 2..4, 0..10], &Coalesce::never(), 1), [(0, 10)]);
    }

    /// Ranges that begin 10 bytes after each other and have 300: read once each, they are 30 times
    /// the file.
    #[test]
    fn bytes_that_many_ranges_share_are_read_little_more_than_once() {
        let ranges: Vec<_> = (0..1000u64).map(|at| at * 10..at * 10 + 300).collect();
        let read: u64 = reads(&ranges, &small(), 1).iter().map(|(start, end)| end - start).sum();
        let union = 999 * 10 + 300;
        assert!((union..union * 4 / 3).contains(&read), "{read} of {union} bytes");
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
    fn a_short_read_shortens_the_ranges_after_its_end() {
        let part = RangePart { read: 0, skip: 10, len: 10 };
        assert_eq!(
            [30, 20, 15, 10, 0].map(|got| part.within(got)),
            [10..20, 10..20, 10..15, 10..10, 0..0]
        );
    }

    #[test]
    fn an_invalid_range_is_named() {
        let backwards = Range { start: 9, end: 3 };
        let error = Plan::new(&[0..1, backwards], &Coalesce::default(), 1).unwrap_err();
        assert_eq!(error.to_string(), "range 1: 9..3 ends before it begins");
        assert!(Plan::new(&[0..MAX_OFFSET, 0..0], &Coalesce::default(), 1).is_ok());
        assert!(Plan::new(&[0..MAX_OFFSET + 1, 0..0], &Coalesce::default(), 1).is_err());
    }

    fn policies() -> impl Strategy<Value = Coalesce> {
        let ratio = prop_oneof![Just(f64::INFINITY), Just(f64::NAN), Just(0.0), 1.0..8.0];
        let coalesce = (0u64..300, 0u64..3_000, ratio);
        prop_oneof![
            Just(Coalesce::never()),
            coalesce.prop_map(|(max_gap, max_read, ratio)| {
                Coalesce::default().max_gap(max_gap).max_read(max_read).max_amplification(ratio)
            })
        ]
    }

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        let range = (0u64..6_000, prop_oneof![Just(0u64), 1u64..40, 0u64..2_000]);
        proptest::collection::vec(range.prop_map(|(start, len)| start..start + len), 0..40)
    }

    proptest! {
        /// With a file of any length, every range gets the bytes that a separate read would return.
        #[test]
        fn every_range_gets_its_bytes(
            ranges in ranges(),
            coalesce in policies(),
            shift in 0u32..9,
            file_len in 0u64..9_000,
        ) {
            let plan = Plan::new(&ranges, &coalesce, 1 << shift).unwrap();
            let file: Vec<u8> = (0..file_len).map(|at| (at % 251) as u8).collect();
            let of_file = |range: Range<u64>| {
                let end = range.end.min(file_len) as usize;
                &file[(range.start as usize).min(end)..end]
            };
            let of_read = |read: &PlannedRead| of_file(read.start..read.end);
            let results: Vec<&[u8]> = plan.reads().iter().map(of_read).collect();
            prop_assert_eq!(plan.parts().len(), ranges.len());
            for (range, part) in ranges.iter().zip(plan.parts()) {
                let bytes = part.map_or(&[][..], |part| {
                    let result = results[part.read];
                    &result[part.within(result.len())]
                });
                prop_assert_eq!(bytes, of_file(range.clone()));
            }
        }

        /// The reads of a window are those of its plan, in order, and serve each non-empty range
        /// once.
        #[test]
        fn a_window_serves_each_range_once(
            ranges in ranges(),
            coalesce in policies(),
            shift in 0u32..9,
        ) {
            let align = 1 << shift;
            let plan = Plan::new(&ranges, &coalesce, align).unwrap();
            let indexed = ranges.iter().cloned().enumerate();
            let indexed = indexed.map(|(at, range)| IndexedRange { index: at + 100, range });
            let mut window = PlanWindow::new(indexed.collect(), &coalesce, align).unwrap();
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

        /// Every read keeps to the limits and is needed at both ends, and there are as few as
        /// possible.
        #[test]
        fn reads_keep_to_the_limits(ranges in ranges(), coalesce in policies(), shift in 0u32..9) {
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
                prop_assert!(read.start % align == 0 && read.end % align == 0);
                prop_assert!(read.start < read.end);
                ranges.sort_by_key(|range| (range.start, range.end));
                // The plain union of the ranges in this read.
                let (mut end, mut needed) = (read.start, 0);
                for range in &ranges {
                    if range.start > end {
                        prop_assert!(range.start - end <= coalesce.max_gap);
                    }
                    needed += range.end.saturating_sub(range.start.max(end));
                    end = end.max(range.end);
                }
                prop_assert_eq!(ranges[0].start..end, read.start..read.end);
                prop_assert_eq!(needed, read.needed);
                let longest = ranges.iter().map(|range| range.end - range.start).max().unwrap();
                prop_assert_eq!(longest, read.longest);
                let single = ranges.contains(&(read.start..read.end));
                prop_assert!(single || read.end - read.start <= coalesce.limit(longest, true));
                let most = coalesce.max_amplification.max(1.0) * needed as f64;
                prop_assert!(read.len() as f64 <= most);
            }
            for (pair, second) in plan.reads().windows(2).zip(within.iter().skip(1)) {
                prop_assert!(pair[0].start <= pair[1].start && pair[0].end < pair[1].end);
                let first = second.iter().min_by_key(|range| (range.start, Reverse(range.end)));
                let first = first.unwrap();
                if first.start <= pair[0].end {
                    let both = first.end - pair[0].start;
                    let longest = pair[0].longest.max(first.end - first.start);
                    let most = coalesce.limit(longest, first.start < pair[0].end);
                    prop_assert!(both > most, "these two could be one read");
                }
            }
        }
    }
}
