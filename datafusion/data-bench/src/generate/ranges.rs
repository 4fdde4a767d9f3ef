//! The ranges that a scan of four columns of `lineitem` reads, as a list for `compare ranges`: one
//! line `OFFSET LENGTH` for each, in the order of the scan.
//!
//! The file is generated and its layout kept, but not its bytes: for reading them, any content is
//! as good.

use super::parquet_file::{self, Codec};
use anyhow::{Context, ensure};
use parquet::file::metadata::ParquetMetaData;
use std::fmt::Write;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

/// The columns that are read: those of query 6 with the comment instead of the quantity.
const COLUMNS: [&str; 4] = ["l_extendedprice", "l_discount", "l_shipdate", "l_comment"];
/// Longer column chunks are read page by page.
const LONGEST: u64 = 1 << 20;
/// Shorter pages are read together with the next.
const SHORTEST: u64 = 16 << 10;
/// Size of the file that the ranges are in.
const FILE: u64 = 8 << 30;
/// How many ranges are taken.
const RANGES: usize = 20_000;

/// Writes the list of ranges to `out`.
///
/// # Errors
///
/// A scale that is not positive; those of writing the file.
pub fn generate(out: &Path, scale: f64) -> anyhow::Result<()> {
    ensure!(scale > 0.0 && scale <= 1000.0, "the scale is {scale}, not between 0 and 1000");
    let lineitem = LineItemArrow::new(LineItemGenerator::new(scale, 1, 1));
    let metadata = parquet_file::write_to(io::sink(), Codec::Snappy, lineitem)?;
    let ranges = thinned(&repeated(&of_scan(&metadata)?, size(&metadata), FILE), RANGES);
    let mut text = format!(
        "# TPC-H lineitem at scale {scale}, Snappy, row groups of 1,000,000 rows, repeated in a \
         file of {FILE} bytes:\n# column chunks of {}, or their pages if longer than 1 MiB.\n",
        COLUMNS.join(", ")
    );
    for range in &ranges {
        writeln!(text, "{} {}", range.start, range.end - range.start)?;
    }
    fs::write(out, text).with_context(|| out.display().to_string())
}

/// The bytes of all row groups, from the start of the file.
fn size(metadata: &ParquetMetaData) -> u64 {
    let chunks = metadata.row_groups().iter().flat_map(|group| group.columns());
    chunks.map(|chunk| chunk.byte_range()).map(|(start, length)| start + length).max().unwrap_or(0)
}

/// The ranges that a scan of the whole file reads.
fn of_scan(metadata: &ParquetMetaData) -> anyhow::Result<Vec<Range<u64>>> {
    let index = metadata.offset_index().context("the file has no page index")?;
    let mut ranges = Vec::new();
    for (group, index) in metadata.row_groups().iter().zip(index) {
        for (chunk, index) in group.columns().iter().zip(index) {
            if COLUMNS.contains(&chunk.column_descr().name()) {
                let (start, length) = chunk.byte_range();
                let pages = index.page_locations().iter().map(|page| page.offset as u64);
                ranges.extend(of_chunk(start..start + length, pages));
            }
        }
    }
    Ok(ranges)
}

/// The whole chunk, or its pages. Each range has all bytes up to the next, so the first one begins
/// with the dictionary.
fn of_chunk(chunk: Range<u64>, pages: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    if chunk.end - chunk.start <= LONGEST {
        return vec![chunk];
    }
    let mut ranges = Vec::new();
    let mut start = chunk.start;
    for end in pages.skip(1).chain([chunk.end]) {
        if end - start >= SHORTEST {
            ranges.push(start..end);
            start = end;
        }
    }
    ranges.retain(|range| range.end - range.start <= LONGEST);
    ranges
}

/// The ranges of as many copies of a file of `size` bytes as begin in a larger file, without those
/// that are beyond its end.
fn repeated(ranges: &[Range<u64>], size: u64, within: u64) -> Vec<Range<u64>> {
    let copies = (0..within).step_by(size.max(1) as usize);
    let copy = |base| ranges.iter().map(move |range| base + range.start..base + range.end);
    copies.flat_map(copy).filter(|range| range.end <= within).collect()
}

/// At most `count` ranges, evenly spread: a filter on the page index would skip the others.
fn thinned(ranges: &[Range<u64>], count: usize) -> Vec<Range<u64>> {
    let count = count.min(ranges.len());
    (0..count).map(|range| ranges[range * ranges.len() / count].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_chunks_are_whole_and_long_ones_pages() {
        let whole = 100..LONGEST;
        assert_eq!(of_chunk(whole.clone(), [150, 9000].into_iter()), std::slice::from_ref(&whole));
        let (k, m) = (1 << 10, 1 << 20);
        // A dictionary, then pages of 20, 4, 20 and 956 KiB.
        let pages = [100 * k, 120 * k, 124 * k, 144 * k, 1100 * k];
        assert_eq!(
            of_chunk(0..2 * m, pages.into_iter()),
            [0..120 * k, 120 * k..144 * k, 144 * k..1100 * k, 1100 * k..2 * m]
        );
    }

    #[test]
    fn a_list_has_ranges_of_the_scan_within_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("ranges");
        generate(&out, 0.2).unwrap();
        let text = fs::read_to_string(out).unwrap();
        let number = |text: &str| text.parse::<u64>().unwrap();
        let ranges = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (offset, length) = line.split_once(' ').unwrap();
            (number(offset), number(length))
        });
        let mut end = 0;
        let mut count = 0;
        for (offset, length) in ranges {
            assert!(offset >= end && (SHORTEST..=LONGEST).contains(&length), "{offset} {length}");
            end = offset + length;
            count += 1;
        }
        assert!(end <= FILE && end > FILE - (1 << 28), "{end}");
        assert_eq!(count, RANGES);
    }
}
