//! Reads many ranges of a file: for any caller, and for a store, with the errors that
//! `LocalFileSystem::get_ranges` gives.

use super::error::Error;
use super::open::metadata;
use super::stream::shortened;
use crate::advice::expect_random_reads;
use bytes::Bytes;
use ringway::Coalesce;
use ringway::fs::File;
use ringway_core::errno;
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The end of the last byte that a file may have.
const MAX_END: u64 = i64::MAX as u64;
/// A range above this length is compared with the file's before memory is allocated for it.
const LARGE: u64 = 64 << 20;

/// Reads ranges of bytes of an open file, all of each, in one submission, and returns them in the
/// order given. `get_ranges` of the stores reads with this, so it is for programs that read the
/// same file several times and open it once.
///
/// Nearby ranges are coalesced, and nothing is copied: see the documentation of
/// [`File::read_ranges_each`] and of `RingwayFileSystem`. The kernel is advised to read only what
/// is requested (`POSIX_FADV_RANDOM`), which stays so for the open file. Does not block. If the
/// future is dropped, the reads are cancelled.
///
/// Errors: UnexpectedEof if the file ends within a range; InvalidInput for a range that ends before
/// it begins; those of `read(2)`. They do not name the file. If several ranges fail, the error is
/// that of the first one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use ringway::{Coalesce, fs::File};
/// let file = File::open("/etc/passwd").await?;
/// let parts = ringway_object_store::read_ranges(&file, &[5..6, 0..4], Coalesce::default()).await?;
/// assert_eq!(parts, ["x", "root"]);
/// # Ok(()) }
/// ```
pub async fn read_ranges(
    file: &File,
    ranges: &[Range<u64>],
    coalesce: Coalesce,
) -> io::Result<Vec<Bytes>> {
    expect_random_reads(file);
    let mut ranges = Cow::Borrowed(ranges);
    let is_suspect =
        |range: &Range<u64>| range.end > MAX_END || range.end.saturating_sub(range.start) > LARGE;
    if ranges.iter().any(is_suspect) {
        let len = file.metadata().await?.len();
        for range in ranges.to_mut() {
            if range.start == range.end {
                // Nothing is at any offset, also at one that no file has.
                *range = 0..0;
            } else if range.end > len && range.start < range.end {
                let read = len.saturating_sub(range.start);
                return Err(Shortened { range: range.clone(), read }.into());
            }
        }
    }
    let blocks = file.read_ranges_each(&ranges, coalesce).await?;
    let mut bytes = Vec::with_capacity(blocks.len());
    for (block, range) in blocks.into_iter().zip(ranges.iter()) {
        let block = block?;
        let read = block.len() as u64;
        if read < range.end - range.start {
            return Err(Shortened { range: range.clone(), read }.into());
        }
        bytes.push(block.into());
    }
    Ok(bytes)
}

/// The file ends within this range: it has only `read` bytes of it.
#[derive(Debug)]
struct Shortened {
    range: Range<u64>,
    read: u64,
}

impl fmt::Display for Shortened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range: Range { start, end }, read } = self;
        write!(f, "the file ends within {start}..{end}, after {read} bytes of it")
    }
}

impl std::error::Error for Shortened {}

impl From<Shortened> for io::Error {
    fn from(shortened: Shortened) -> Self {
        Self::new(io::ErrorKind::UnexpectedEof, shortened)
    }
}

/// As [`read_ranges`], with the errors of `LocalFileSystem`.
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
    let error = match read_ranges(file, ranges, coalesce).await {
        Ok(bytes) => return Ok(bytes),
        Err(error) => error,
    };
    match error.get_ref().and_then(|error| error.downcast_ref::<Shortened>()) {
        None => Err(Error::read(path, error)),
        Some(Shortened { range, read }) => {
            first_error(file, path, &in_turn(ranges)).await?;
            // The file was shorter while it was read.
            Err(shortened(file, path, range.clone(), *read).await)
        }
    }
}

/// The error for the first of these ranges that the file does not have.
async fn first_error(file: &File, path: &Path, ranges: &[Range<u64>]) -> Result<(), Error> {
    let len = metadata(file, path).await?.len();
    let Some(range) = ranges.iter().find(|range| range.end > len && !range.is_empty()) else {
        return Ok(());
    };
    Err(match range {
        // As `pread(2)` for offsets that no file has.
        Range { end, .. } if *end > MAX_END => {
            Error::read(path, io::Error::from_raw_os_error(errno::EINVAL))
        }
        Range { start, .. } if *start >= len => Error::start_too_large(*start, len),
        Range { start, .. } => {
            let expected = len - start;
            Error::OutOfRange { path: path.to_owned(), expected, actual: expected }
        }
    })
}
