//! Finds the pages of ranges that the page cache lacks, as pure data: which bytes to try next, and
//! which pages to read. The caller makes the calls and the reads.

use std::ops::Range;

/// The most bytes that are read after one missing page without a look at the pages between. A
/// read of so many bytes is as fast as the device, and costs little if they are cached.
pub(crate) const RUN: u64 = 128 << 10;

/// A scan of ranges of a file for pages that the page cache lacks.
///
/// One call tells of two pages: it reads the last byte of a page and the first of the next one.
/// That costs half as much as a call for each page, and less than copying the pages.
///
/// ```
/// # use ringway_core::{File, PageScan};
/// # fn main() -> std::io::Result<()> {
/// let file = File::open("/etc/passwd")?;
/// let mut scan = PageScan::new([0..4096, 9000..u64::MAX], 100_000, 4096);
/// while let Some(probe) = scan.probe() {
///     let cached = file.read_now_partly(&mut [0; 2][..probe.len], probe.offset);
///     if let Some(missing) = scan.advance(cached) {
///         println!("to read: {:?} and {:?}", missing.first, missing.rest);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PageScan {
    /// Whole pages, cut at the end of the file, in order and with gaps between them.
    extents: Vec<Range<u64>>,
    /// The index of the extent that is scanned.
    current: usize,
    /// How far the current extent was scanned.
    at: u64,
    page: u64,
    /// Bytes of the pages that were found in the page cache.
    cached: u64,
}

/// Bytes that tell whether pages are cached: the last one of a page and the first of the next, or
/// the first of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// Where they are in the file.
    pub offset: u64,
    /// How many there are: 1 or 2.
    pub len: usize,
}

/// Pages to read, from a missing one on. Trying has made the kernel read the first page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingPages {
    /// The missing page, cut at the end of the file.
    pub first: Range<u64>,
    /// The pages after that; empty if there are none.
    pub rest: Range<u64>,
}

impl PageScan {
    /// Scans these ranges of a file of `len` bytes, with pages of `page` bytes. They may be
    /// unsorted, overlapping or empty; what is beyond the end of the file is left out. Takes
    /// O(n log n), and O(n) if they are sorted.
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>, len: u64, page: u64) -> Self {
        let page = page.max(1);
        let mut pages: Vec<(u64, u64)> = ranges
            .into_iter()
            .map(|range| (range.start, range.end.min(len)))
            .filter(|(start, end)| start < end)
            .map(|(start, end)| (start - start % page, end))
            .collect();
        pages.sort_unstable();
        let mut extents: Vec<Range<u64>> = Vec::new();
        for (start, end) in pages {
            let end = end.checked_next_multiple_of(page).map_or(len, |end| end.min(len));
            match extents.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => extents.push(start..end),
            }
        }
        let at = extents.first().map_or(0, |extent| extent.start);
        Self { extents, current: 0, at, page, cached: 0 }
    }

    /// What to try next; `None` after the last page.
    pub fn probe(&self) -> Option<Probe> {
        let extent = self.extents.get(self.current)?;
        let next = self.at.saturating_add(self.page);
        Some(if next < extent.end {
            Probe { offset: next - 1, len: 2 }
        } else {
            Probe { offset: self.at, len: 1 }
        })
    }

    /// Takes the result of the [`probe`](Self::probe): how many of its bytes are cached. Returns
    /// the pages to read.
    pub fn advance(&mut self, cached: usize) -> Option<MissingPages> {
        let probe = self.probe()?;
        let end = self.extents.get(self.current)?.end;
        let found = cached.min(probe.len);
        let missing = self.at.saturating_add(self.page.saturating_mul(found as u64)).min(end);
        self.cached += missing - self.at;
        self.at = missing;
        let run = (found < probe.len).then(|| {
            let rest = missing.saturating_add(self.page).min(end);
            self.at = missing.saturating_add(RUN).min(end).max(rest);
            MissingPages { first: missing..rest, rest: rest..self.at }
        });
        if self.at == end {
            self.current += 1;
            self.at = self.extents.get(self.current).map_or(0, |extent| extent.start);
        }
        run
    }

    /// Bytes of the pages that were found in the page cache so far.
    pub fn cached(&self) -> u64 {
        self.cached
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of one range are meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGE: u64 = 4096;

    /// Scans with a page cache that has these pages. Returns what is read.
    fn scan(
        ranges: &[Range<u64>],
        len: u64,
        mut has: impl FnMut(u64) -> bool,
    ) -> (Vec<MissingPages>, PageScan, usize) {
        let mut scan = PageScan::new(ranges.iter().cloned(), len, PAGE);
        let (mut read, mut probes) = (Vec::new(), 0);
        while let Some(Probe { offset, len }) = scan.probe() {
            probes += 1;
            let cached = (offset..offset + len as u64).take_while(|byte| has(byte / PAGE)).count();
            read.extend(scan.advance(cached));
        }
        (read, scan, probes)
    }

    fn runs(read: &[MissingPages]) -> Vec<Range<u64>> {
        read.iter().map(|run| run.first.start..run.rest.end).collect()
    }

    #[test]
    fn one_call_tells_of_two_pages() {
        let (read, scan, probes) = scan(&[0..64 * PAGE], 64 * PAGE, |_| true);
        assert_eq!((read.len(), scan.cached(), probes), (0, 64 * PAGE, 32));
    }

    #[test]
    fn a_missing_page_is_read_with_those_after_it() {
        let len = 100 * PAGE + 5;
        let (read, found, _) = scan(&[0..len], len, |page| page < 3);
        let first = MissingPages { first: 3 * PAGE..4 * PAGE, rest: 4 * PAGE..35 * PAGE };
        assert_eq!(read[0], first);
        let all = [3 * PAGE..35 * PAGE, 35 * PAGE..67 * PAGE, 67 * PAGE..99 * PAGE, 99 * PAGE..len];
        assert_eq!((runs(&read), found.cached()), (all.into(), 3 * PAGE));
        let (read, _, _) = scan(&[10..11, 9 * PAGE..9 * PAGE + 1], len, |_| false);
        assert_eq!(runs(&read), [0..PAGE, 9 * PAGE..10 * PAGE], "no more than was asked for");
    }

    #[test]
    fn ranges_are_cut_and_joined() {
        let extents =
            |ranges: &[Range<u64>], len| PageScan::new(ranges.iter().cloned(), len, PAGE).extents;
        assert_eq!(extents(&[5000..5001, 1..2, 4095..4097], 1 << 20), [0..8192]);
        assert_eq!(extents(&[9000..9001, 0..1], 1 << 20), [0..4096, 8192..12288]);
        assert_eq!(extents(&[0..u64::MAX, 7..7], 5000), [0..5000]);
        assert_eq!(extents(&[5000..6000, u64::MAX - 1..u64::MAX], 5000), []);
        let most = i64::MAX as u64;
        assert_eq!(extents(&[most - 1..u64::MAX], most), [most - 4095..most]);
        assert_eq!(extents(&[most - 1..u64::MAX], u64::MAX), [most - 4095..u64::MAX]);
        assert_eq!(extents(&[Range { start: 5, end: 4 }], 10), []);
    }

    proptest! {
        /// Each page of the ranges is found or read, and each once.
        #[test]
        fn every_page_counts_once(
            ranges in proptest::collection::vec((0u64..400_000, 0u64..200_000), 0..20),
            len in 0u64..500_000,
            cached in proptest::collection::btree_set(0u64..130, 0..130),
        ) {
            let ranges: Vec<_> =
                ranges.iter().map(|(start, len)| *start..start + len).collect();
            let (read, found, _) = scan(&ranges, len, |page| cached.contains(&page));
            let pages = |range: &Range<u64>| range.start / PAGE..range.end.div_ceil(PAGE);
            let wanted: BTreeSet<u64> = ranges
                .iter()
                .map(|range| range.start..range.end.min(len))
                .filter(|range| range.start < range.end)
                .flat_map(|range| pages(&range))
                .collect();
            let read: Vec<u64> = runs(&read).iter().flat_map(pages).collect();
            let unique: BTreeSet<u64> = read.iter().copied().collect();
            prop_assert_eq!(unique.len(), read.len());
            prop_assert!(unique.is_subset(&wanted));
            let bytes = |page: &u64| PAGE.min(len - page * PAGE);
            let rest: Vec<_> = wanted.difference(&unique).collect();
            prop_assert!(rest.iter().all(|page| cached.contains(page)));
            prop_assert_eq!(found.cached(), rest.into_iter().map(bytes).sum::<u64>());
        }
    }
}
