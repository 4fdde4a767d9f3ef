//! Reads many ranges of a file, with the errors that `LocalFileSystem::get_ranges` gives.

use crate::error::Error;
use crate::open::metadata;
use crate::stream::shortened;
use bytes::Bytes;
use ringway::Coalesce;
use ringway::fs::File;
use rustix::io::Errno;
use std::ops::Range;
use std::path::Path;

/// The end of the last byte that a file may have.
const MAX_END: u64 = i64::MAX as u64;
/// A range above this length is compared with the file's before memory is allocated for it.
const LARGE: u64 = 64 << 20;

/// Reads the ranges in one submission and returns them in their order.
///
/// `in_turn` are the ranges as `LocalFileSystem` would read them, one after the other: its error is
/// that of the first one that fails.
pub(crate) async fn read(
    file: &File,
    path: &Path,
    ranges: &[Range<u64>],
    coalesce: Coalesce,
    in_turn: impl Fn(&[Range<u64>]) -> Vec<Range<u64>>,
) -> Result<Vec<Bytes>, Error> {
    if let Some(range) = ranges.iter().find(|range| range.end < range.start) {
        return Err(Error::inconsistent(range.start, range.end));
    }
    let is_suspect = |range: &Range<u64>| range.end > MAX_END || range.end - range.start > LARGE;
    let blocks = if ranges.iter().any(is_suspect) {
        first_error(file, path, &in_turn(ranges)).await?;
        // What is left beyond the largest offset is empty.
        let clamp = |range: &Range<u64>| range.start.min(MAX_END)..range.end.min(MAX_END);
        let ranges: Vec<_> = ranges.iter().map(clamp).collect();
        file.read_ranges_each(&ranges, coalesce).await
    } else {
        file.read_ranges_each(ranges, coalesce).await
    };
    let blocks = blocks.map_err(|error| Error::read(path, error))?;
    let mut bytes = Vec::with_capacity(blocks.len());
    for (block, range) in blocks.into_iter().zip(ranges) {
        let block = block.map_err(|error| Error::read(path, error))?;
        let read = block.len() as u64;
        if read < range.end - range.start {
            first_error(file, path, &in_turn(ranges)).await?;
            // The file was shorter while it was read.
            return Err(shortened(file, path, range.clone(), read).await);
        }
        bytes.push(block.into());
    }
    Ok(bytes)
}

/// The error for the first of these ranges that the file does not have.
async fn first_error(file: &File, path: &Path, ranges: &[Range<u64>]) -> Result<(), Error> {
    let len = metadata(file, path).await?.len();
    let Some(range) = ranges.iter().find(|range| range.end > len && !range.is_empty()) else {
        return Ok(());
    };
    Err(match range {
        // As `pread(2)` for offsets that no file has.
        Range { end, .. } if *end > MAX_END => Error::read(path, Errno::INVAL.into()),
        Range { start, .. } if *start >= len => Error::start_too_large(*start, len),
        Range { start, .. } => {
            let expected = len - start;
            Error::OutOfRange { path: path.to_owned(), expected, actual: expected }
        }
    })
}
