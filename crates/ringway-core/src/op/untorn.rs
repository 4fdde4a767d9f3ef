//! Untorn writes: why one is refused before it is submitted. Pure, except that an operation looks
//! up facts about its file. The flag itself is part of the write.

use super::{CURRENT_POSITION, Operation, Raw};
use crate::device::AtomicWriteUnit;
use crate::refusal::limits::Limit;
use crate::refusal::{Feature, Refusal};
use crate::sys::libc;

/// Why a write cannot be untorn, as is found out before it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UntornProblem {
    /// `statx(2)` reports no sizes of untorn writes for the file: EOPNOTSUPP.
    Unsupported,
    /// The file is not open for direct I/O: EOPNOTSUPP.
    NotDirect,
    /// The file is open for appending: EINVAL.
    Appends,
    /// The length is not one that the file takes: EINVAL.
    Length,
    /// The offset is not a multiple of the length: EINVAL.
    Offset,
    /// The buffer has not the alignment that direct I/O needs: EINVAL.
    Memory,
    /// The write would end beyond `RLIMIT_FSIZE`: EFBIG.
    FileSizeLimit,
}

impl UntornProblem {
    /// The kernel's errno for it.
    pub fn errno(self) -> i32 {
        match self {
            Self::Unsupported | Self::NotDirect => libc::EOPNOTSUPP,
            Self::Appends | Self::Length | Self::Offset | Self::Memory => libc::EINVAL,
            Self::FileSizeLimit => libc::EFBIG,
        }
    }

    /// The meaning and the fix, for a file with these sizes of untorn writes
    /// ([`File::atomic_write_unit`](crate::File::atomic_write_unit)).
    pub fn refusal(self, unit: Option<AtomicWriteUnit>) -> Refusal {
        let (feature, errno) = (Feature::AtomicWrite, self.errno());
        let fits = unit.map_or(String::new(), |unit| format!(", here {unit}"));
        let (meaning, fix) = match self {
            // Here the kernel's own refusal means the same.
            Self::Unsupported => return Refusal::new(feature, errno),
            Self::NotDirect => (
                "the file is not open for direct I/O, without which the kernel refuses untorn \
                 writes",
                "open the file with O_DIRECT".to_owned(),
            ),
            Self::Appends => (
                "the file is open for appending, so the write would not be at its offset",
                "open the file without O_APPEND".to_owned(),
            ),
            Self::Length => (
                "the length is not a power of two, or not one that the file takes",
                format!("write a power of two of bytes within its atomic write unit{fits}"),
            ),
            Self::Offset => (
                "the offset is not a multiple of the length",
                "place each untorn write at a multiple of its length".to_owned(),
            ),
            Self::Memory => (
                "the buffer has not the alignment that direct I/O on this file needs",
                "use an aligned buffer".to_owned(),
            ),
            Self::FileSizeLimit => (
                "the write would end beyond the limit on the size of files (RLIMIT_FSIZE), where \
                 the kernel cuts it",
                "raise the limit (ulimit -f)".to_owned(),
            ),
        };
        Refusal { feature, errno, meaning: meaning.to_owned(), fix }
    }
}

/// What decides whether a write can be untorn.
struct UntornWrite {
    unit: Option<AtomicWriteUnit>,
    is_direct: bool,
    appends: bool,
    memory_align: u32,
    /// The most bytes that a file may have, which does not hold for a block device.
    file_size: Option<u64>,
    is_block_device: bool,
    address: usize,
    offset: u64,
    len: u64,
}

impl UntornWrite {
    fn problem(&self) -> Option<UntornProblem> {
        let Some(unit) = self.unit else { return Some(UntornProblem::Unsupported) };
        let fits = |limit| self.offset.checked_add(self.len).is_some_and(|end| end <= limit);
        match () {
            () if !self.is_direct => Some(UntornProblem::NotDirect),
            () if self.appends => Some(UntornProblem::Appends),
            () if !unit.fits(self.len) => Some(UntornProblem::Length),
            () if !self.offset.is_multiple_of(self.len) => Some(UntornProblem::Offset),
            () if !self.address.is_multiple_of(self.memory_align.max(1) as usize) => {
                Some(UntornProblem::Memory)
            }
            () if !self.is_block_device && self.file_size.is_some_and(|limit| !fits(limit)) => {
                Some(UntornProblem::FileSizeLimit)
            }
            () => None,
        }
    }
}

/// Whether an operation is a write that could be untorn: from one buffer, at an offset.
pub(super) fn is_candidate(operation: &Operation) -> bool {
    let is_write = matches!(operation.raw, Raw::Write(_) | Raw::WriteDsync(_));
    is_write && operation.raw.offset() != Some(CURRENT_POSITION)
}

/// Why such a write cannot be untorn. What has no open descriptor is left to the kernel.
pub(super) fn problem(operation: &Operation) -> Option<UntornProblem> {
    let file = operation.file.as_ref()?;
    let appends = file.appends().ok()?;
    let file_size = Limit::of_file_size().soft;
    let mut write = UntornWrite {
        unit: file.known_atomic_write_unit(),
        is_direct: file.is_direct(),
        appends,
        memory_align: file.direct_io().memory_align,
        file_size,
        // (Without a limit it does not matter.)
        is_block_device: file_size.is_some() && file.is_block_device(),
        address: operation.address().unwrap_or(0),
        offset: operation.raw.offset().unwrap_or(0),
        len: operation.raw.bytes(),
    };
    let problem = write.problem();
    if !matches!(problem, Some(UntornProblem::Unsupported | UntornProblem::Length)) {
        return problem;
    }
    // A remount may have changed the sizes since they were read.
    write.unit = file.atomic_write_unit();
    write.problem()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: AtomicWriteUnit =
        AtomicWriteUnit { min: 4096, max: 65536, max_opt: None, max_segments: 1 };

    fn good() -> UntornWrite {
        UntornWrite {
            unit: Some(UNIT),
            is_direct: true,
            appends: false,
            memory_align: 512,
            file_size: None,
            is_block_device: false,
            address: 1024,
            offset: 16384,
            len: 8192,
        }
    }

    #[test]
    fn each_requirement_is_checked() {
        use UntornProblem as P;
        let cases = [
            (good(), None),
            (UntornWrite { unit: None, is_direct: false, ..good() }, Some(P::Unsupported)),
            (UntornWrite { is_direct: false, ..good() }, Some(P::NotDirect)),
            (UntornWrite { appends: true, ..good() }, Some(P::Appends)),
            (UntornWrite { len: 0, ..good() }, Some(P::Length)),
            (UntornWrite { len: 2048, ..good() }, Some(P::Length)),
            (UntornWrite { len: 12288, ..good() }, Some(P::Length)),
            (UntornWrite { len: 131_072, offset: 0, ..good() }, Some(P::Length)),
            (UntornWrite { len: 65536, offset: 0, ..good() }, None),
            (UntornWrite { offset: 4096, ..good() }, Some(P::Offset)),
            (UntornWrite { address: 1025, ..good() }, Some(P::Memory)),
            (UntornWrite { address: 1025, memory_align: 0, ..good() }, None),
            (UntornWrite { file_size: Some(24576), ..good() }, None),
            (UntornWrite { file_size: Some(24575), ..good() }, Some(P::FileSizeLimit)),
            (UntornWrite { file_size: Some(1), is_block_device: true, ..good() }, None),
        ];
        for (at, (write, expected)) in cases.into_iter().enumerate() {
            assert_eq!(write.problem(), expected, "case {at}");
        }
    }

    #[test]
    fn each_problem_has_an_errno_a_meaning_and_a_fix() {
        use UntornProblem as P;
        for problem in [
            P::Unsupported,
            P::NotDirect,
            P::Appends,
            P::Length,
            P::Offset,
            P::Memory,
            P::FileSizeLimit,
        ] {
            let refusal = problem.refusal(Some(UNIT));
            assert_eq!((refusal.feature, refusal.errno), (Feature::AtomicWrite, problem.errno()));
            assert!(!refusal.meaning.is_empty(), "{refusal}");
            assert_eq!(
                refusal.fix.is_empty(),
                cfg!(not(ringway_linux)) && problem == P::Unsupported
            );
        }
        assert!(P::Length.refusal(Some(UNIT)).fix.ends_with("here 4 KiB to 64 KiB"));
    }

    proptest! {
        /// What passes is what the kernel requires, for all values.
        #[test]
        fn what_passes_is_aligned(
            len in prop_oneof![any::<u64>(), (0u32..64).prop_map(|bit| 1 << bit)],
            offset in prop_oneof![any::<u64>(), (0u64..1 << 40).prop_map(|at| at * 4096)],
            address in any::<usize>(),
            (min, larger) in (0u32..20, 0u32..12),
            file_size in proptest::option::of(any::<u64>()),
        ) {
            let (min, max) = (1u32 << min, 1u32 << (min + larger));
            let unit = AtomicWriteUnit { min, max, ..UNIT };
            let write =
                UntornWrite { unit: Some(unit), len, offset, address, file_size, ..good() };
            if write.problem().is_none() {
                prop_assert!(len.is_power_of_two() && len >= min.into() && len <= max.into());
                prop_assert_eq!((offset % len, address % 512), (0, 0));
                prop_assert!(file_size.is_none_or(|limit| offset + len <= limit));
            }
        }
    }
}
