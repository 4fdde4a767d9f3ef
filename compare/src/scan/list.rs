//! The list of ranges: from a file, or made up.

use anyhow::{Context, ensure};
use ringway_measure::random::Random;
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// The smallest and the largest range of a made-up list.
const SIZES: Range<u64> = 16 << 10..1 << 20;
/// The share of the file that a made-up list reads, unless it has fewer ranges.
const MOST_OF_FILE: f64 = 0.6;
/// The columns of a row group that a made-up list reads. Their chunks are next to others that it
/// does not read.
const COLUMNS: usize = 4;

/// Reads a list: `OFFSET LENGTH` in each line, in bytes. Lines that begin with `#` are comments.
pub fn read(path: &Path) -> anyhow::Result<Vec<Range<u64>>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    let ranges = lines.map(|(number, line)| {
        range(line).with_context(|| format!("{}:{}: {line}", path.display(), number + 1))
    });
    ranges.collect()
}

/// The text of a list.
pub fn text(ranges: &[Range<u64>]) -> String {
    let mut text = String::new();
    for range in ranges {
        let _ = writeln!(text, "{} {}", range.start, range.end - range.start);
    }
    text
}

fn range(line: &str) -> anyhow::Result<Range<u64>> {
    let (offset, len) = line.split_once(' ').context("expected OFFSET LENGTH")?;
    let (offset, len): (u64, u64) = (offset.trim().parse()?, len.trim().parse()?);
    ensure!(len > 0, "the range is empty");
    Ok(offset..offset.checked_add(len).context("the range ends beyond 2^64")?)
}

/// Makes up `count` ranges of a file of `size` bytes, or fewer if the file is too small: sizes are
/// uniform on a logarithmic scale, offsets ascend and are not aligned.
pub fn synthetic(count: usize, size: u64) -> Vec<Range<u64>> {
    let mut random = Random::new(1);
    let mut lengths = Vec::with_capacity(count);
    let mut total = 0;
    while lengths.len() < count {
        let scale = random.below(1 << 20) as f64 / f64::from(1 << 20);
        let ratio = SIZES.end as f64 / SIZES.start as f64;
        let len = (SIZES.start as f64 * ratio.powf(scale)) as u64;
        if (total + len) as f64 > size as f64 * MOST_OF_FILE {
            break;
        }
        total += len;
        lengths.push(len);
    }
    // Some chunks are neighbours, as the columns of a table are; the others are far apart.
    let groups = lengths.len().div_ceil(COLUMNS).max(1) as u64;
    let gap = (size - total) / groups;
    let mut at = 0;
    let mut ranges = Vec::with_capacity(lengths.len());
    for group in lengths.chunks(COLUMNS) {
        let mut left = gap;
        for len in group {
            let skip = if random.below(2) == 0 { 0 } else { random.below(left + 1) };
            left -= skip;
            at += skip;
            ranges.push(at..at + len);
            at += len;
        }
        at += left;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_offset_and_a_length() {
        assert_eq!(range("5 10").unwrap(), 5..15);
        assert!(
            ["", "5", "5 0", "5 x", "18446744073709551615 1"]
                .iter()
                .all(|line| range(line).is_err())
        );
    }

    #[test]
    fn a_made_up_list_ascends_and_lies_within_the_file() {
        for (count, size) in [(20_000, 8 << 30), (100, 4 << 20), (10, 0)] {
            let ranges = synthetic(count, size);
            assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start));
            assert!(ranges.iter().all(|range| SIZES.contains(&(range.end - range.start))));
            assert!(ranges.last().is_none_or(|last| last.end <= size));
        }
        assert_eq!(synthetic(20_000, 8 << 30).len(), 20_000);
    }
}
