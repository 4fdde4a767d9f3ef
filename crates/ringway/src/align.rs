//! The alignment rules of direct I/O, as pure arithmetic.
//!
//! A direct read can be widened to whole blocks and trimmed afterwards. A direct write cannot,
//! because the rest of its blocks would have to be read first. So this module encloses reads and
//! checks writes.

use ringway_core::device::DirectIo;
use std::fmt;
use std::io;
use std::ops::Range;

/// The largest offset of a file: the kernel's offsets are signed.
pub(crate) const MAX_OFFSET: u64 = i64::MAX as u64;

/// A range of bytes, widened to whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Enclosed {
    /// The beginning of the first block.
    pub start: u64,
    /// The end of the last block.
    pub end: u64,
    /// Bytes to trim before the range.
    pub leading: u64,
    /// Bytes to trim after the range.
    pub trailing: u64,
}

/// The part of a read that belongs to a range: `len` bytes after `skip` others, if `got` bytes were
/// read in total. It is shorter, or empty, if the file ended.
pub(crate) fn part(skip: usize, len: usize, got: usize) -> Range<usize> {
    skip.min(got)..skip.saturating_add(len).min(got)
}

/// Converts a number of bytes to `usize`. A number that does not fit becomes `usize::MAX`, which no
/// allocation can satisfy.
pub(crate) fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The smallest range of whole blocks of `align` bytes that contains `range`. An `align` of 0
/// counts as 1. An empty range gives an empty range.
///
/// # Errors
///
/// If the range ends before it begins, or if it or its last block ends beyond the largest offset.
pub(crate) fn enclose(range: &Range<u64>, align: u64) -> Result<Enclosed, InvalidRange> {
    let Range { start, end } = *range;
    let align = align.max(1);
    if start > end {
        return Err(InvalidRange::Backwards { start, end });
    }
    if end > MAX_OFFSET {
        return Err(InvalidRange::TooFar { start, end });
    }
    let leading = start % align;
    if start == end {
        return Ok(Enclosed {
            start: start - leading,
            end: start - leading,
            leading: 0,
            trailing: 0,
        });
    }
    let last = end.checked_next_multiple_of(align).filter(|last| *last <= MAX_OFFSET);
    let last = last.ok_or(InvalidRange::LastBlock { start, end, align })?;
    Ok(Enclosed { start: start - leading, end: last, leading, trailing: last - end })
}

/// Why a range of bytes cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidRange {
    /// It ends before it begins.
    Backwards { start: u64, end: u64 },
    /// It ends beyond the largest offset.
    TooFar { start: u64, end: u64 },
    /// Its last block of `align` bytes ends beyond the largest offset.
    LastBlock { start: u64, end: u64, align: u64 },
}

impl fmt::Display for InvalidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backwards { start, end } => write!(f, "{start}..{end} ends before it begins"),
            Self::TooFar { start, end } => {
                write!(f, "{start}..{end} ends beyond {MAX_OFFSET}, the largest offset of a file")
            }
            Self::LastBlock { start, end, align } => write!(
                f,
                "{start}..{end} cannot be read directly: its last block of {align} bytes ends \
                 beyond {MAX_OFFSET}, the largest offset of a file"
            ),
        }
    }
}

impl std::error::Error for InvalidRange {}

impl From<InvalidRange> for io::Error {
    fn from(error: InvalidRange) -> Self {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Checks that `bytes` can be written at `offset` with direct I/O.
///
/// # Errors
///
/// If offset, length or address is not a multiple of the file's alignment. The text names each of
/// them.
pub(crate) fn check_write(direct: &DirectIo, offset: u64, bytes: &[u8]) -> Result<(), Misaligned> {
    check_memory(direct, offset, bytes.len() as u64, bytes.as_ptr().addr() as u64)
}

/// As [`check_write`], for `len` bytes at this address.
pub(crate) fn check_memory(
    direct: &DirectIo,
    offset: u64,
    len: u64,
    address: u64,
) -> Result<(), Misaligned> {
    let (block, memory) = (u64::from(direct.offset_align), u64::from(direct.memory_align));
    // An alignment of 0 means that there is no requirement.
    let wrong = |given: u64, align: u64| {
        (align > 0 && !given.is_multiple_of(align)).then_some((given, align))
    };
    let found = Misaligned {
        offset: wrong(offset, block),
        len: wrong(len, block),
        address: wrong(address, memory),
    };
    if found == Misaligned::default() { Ok(()) } else { Err(found) }
}

/// A direct write that the kernel would refuse: each wrong value with its required alignment.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Misaligned {
    offset: Option<(u64, u64)>,
    len: Option<(u64, u64)>,
    address: Option<(u64, u64)>,
}

/// The text of `Display`: `main` prints the error of a `?` with `Debug`.
impl fmt::Debug for Misaligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Misaligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("direct write")?;
        let mut before = ": ";
        if let Some((offset, align)) = self.offset {
            write!(f, "{before}offset {offset} is not a multiple of {align}")?;
            before = ", ";
        }
        if let Some((len, align)) = self.len {
            write!(f, "{before}length {len} is not a multiple of {align}")?;
            before = ", ";
        }
        if let Some((address, align)) = self.address {
            write!(f, "{before}buffer address {address:#x} is not a multiple of {align}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Misaligned {}

impl From<Misaligned> for io::Error {
    fn from(error: Misaligned) -> Self {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIRECT: DirectIo = DirectIo::new(4, 512);

    #[test]
    fn a_range_is_widened_to_blocks() {
        assert_eq!(
            enclose(&(7..513), 512),
            Ok(Enclosed { start: 0, end: 1024, leading: 7, trailing: 511 })
        );
        assert_eq!(
            enclose(&(512..1024), 512),
            Ok(Enclosed { start: 512, end: 1024, leading: 0, trailing: 0 })
        );
        assert_eq!(enclose(&(7..9), 1), Ok(Enclosed { start: 7, end: 9, leading: 0, trailing: 0 }));
        assert_eq!(enclose(&(7..9), 0), enclose(&(7..9), 1));
        assert_eq!(
            enclose(&(700..700), 512),
            Ok(Enclosed { start: 512, end: 512, leading: 0, trailing: 0 })
        );
    }

    #[test]
    fn ranges_may_end_at_the_largest_offset() {
        let last = MAX_OFFSET;
        assert!(enclose(&(last - 1..last), 1).is_ok());
        assert!(enclose(&(last..last), 4096).is_ok());
        assert_eq!(enclose(&(last - 5000..last - 4095), 4096).unwrap().end, last - 4095);
        let error = enclose(&(last - 1..last), 4096).unwrap_err();
        assert_eq!(error, InvalidRange::LastBlock { start: last - 1, end: last, align: 4096 });
        let error = enclose(&(0..last + 1), 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "0..9223372036854775808 ends beyond 9223372036854775807, the largest offset of a file"
        );
        let backwards = Range { start: 2, end: 1 };
        assert_eq!(enclose(&backwards, 1).unwrap_err().to_string(), "2..1 ends before it begins");
    }

    #[test]
    fn a_misaligned_write_names_what_is_wrong() {
        assert_eq!(check_memory(&DIRECT, 1024, 512, 0x1004), Ok(()));
        assert_eq!(
            check_memory(&DIRECT, 7, 512, 0x1004).unwrap_err().to_string(),
            "direct write: offset 7 is not a multiple of 512"
        );
        assert_eq!(
            check_memory(&DIRECT, 7, 100, 0x1001).unwrap_err().to_string(),
            "direct write: offset 7 is not a multiple of 512, length 100 is not a multiple of 512, \
             buffer address 0x1001 is not a multiple of 4"
        );
        let debug = format!("{:?}", check_write(&DIRECT, 0, &[0; 3]).unwrap_err());
        assert!(debug.starts_with("direct write: "), "{debug}");
        let kind = io::Error::from(check_write(&DIRECT, 0, &[0; 3]).unwrap_err()).kind();
        assert_eq!(kind, io::ErrorKind::InvalidInput);
    }

    proptest! {
        /// For any range and any block size: an error or the tightest whole blocks, and never an
        /// overflow.
        #[test]
        fn enclosing_is_tight(
            start in ends(),
            end in ends(),
            align in prop_oneof![Just(1u64), 1u64..70_000, any::<u64>()],
        ) {
            match enclose(&Range { start, end }, align) {
                Ok(blocks) => {
                    let align = align.max(1);
                    prop_assert!(blocks.start % align == 0 && blocks.end % align == 0);
                    prop_assert!(blocks.end <= MAX_OFFSET);
                    prop_assert!(blocks.leading < align && blocks.trailing < align);
                    if start == end {
                        prop_assert_eq!(blocks.start, blocks.end);
                    } else {
                        prop_assert_eq!(blocks.start + blocks.leading, start);
                        prop_assert_eq!(blocks.end - blocks.trailing, end);
                    }
                }
                Err(InvalidRange::Backwards { .. }) => prop_assert!(start > end),
                Err(InvalidRange::TooFar { .. }) => prop_assert!(end > MAX_OFFSET),
                Err(InvalidRange::LastBlock { .. }) => prop_assert!(align > MAX_OFFSET - end),
            }
        }

        #[test]
        fn a_write_passes_when_all_are_multiples(
            (offset, len, address) in any::<(u64, u64, u64)>(),
            zeros in prop_oneof![Just((0, 0, 0)), (0u32..14, 0u32..14, 0u32..4)],
            shift in 0u32..14,
        ) {
            // Random numbers are hardly ever multiples, so add trailing zeroes.
            let (offset, len, address) = (offset << zeros.0, len << zeros.1, address << zeros.2);
            let direct = DirectIo::new(4, 1 << shift);
            let whole = |number: u64, align: u32| number.is_multiple_of(u64::from(align));
            let expected = whole(offset, 1 << shift) && whole(len, 1 << shift) && whole(address, 4);
            prop_assert_eq!(check_memory(&direct, offset, len, address).is_ok(), expected);
        }
    }

    /// Offsets that are near each other, near the largest one, or anywhere.
    fn ends() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..200_000, MAX_OFFSET - 100_000..=MAX_OFFSET + 10, any::<u64>()]
    }
}
