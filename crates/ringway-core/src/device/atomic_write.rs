//! The sizes of the untorn writes of a file. They are looked up in the module above.

use crate::refusal::bytes_text;
#[cfg(ringway_linux)]
use crate::sys::libc;
use std::fmt;

/// The sizes of the writes that a file takes untorn, which Linux calls atomic as well: what
/// `statx(2)` reports with `STATX_WRITE_ATOMIC` (kernel 6.11). How to make such a write:
/// [`Operation::untorn`](crate::Operation::untorn).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct AtomicWriteUnit {
    /// Bytes of the shortest untorn write, a power of two.
    pub min: u32,
    /// Bytes of the longest one, a power of two.
    pub max: u32,
    /// Bytes of the longest one that the device makes itself (kernel 6.16). The file system makes
    /// longer ones: it writes elsewhere and then exchanges the blocks, which takes longer. `None`
    /// if no such limit is reported; on XFS that may mean that the device makes none, and the file
    /// system all.
    pub max_opt: Option<u32>,
    /// The most buffers of one; 1 on every kernel so far.
    pub max_segments: u32,
}

impl AtomicWriteUnit {
    /// Whether an untorn write may have this many bytes: a power of two from `min` to `max`.
    pub fn fits(&self, len: u64) -> bool {
        len.is_power_of_two() && (u64::from(self.min)..=u64::from(self.max)).contains(&len)
    }

    /// `None` if nothing is reported, or that there are none.
    #[cfg(ringway_linux)]
    pub(crate) fn of_statx(statx: &libc::statx) -> Option<Self> {
        // (The C interface of musl has no such field.)
        #[cfg(target_env = "musl")]
        let max_opt = 0;
        #[cfg(not(target_env = "musl"))]
        let max_opt = statx.stx_atomic_write_unit_max_opt;
        let unit = Self {
            min: statx.stx_atomic_write_unit_min,
            max: statx.stx_atomic_write_unit_max,
            max_opt: (max_opt != 0).then_some(max_opt),
            max_segments: statx.stx_atomic_write_segments_max,
        };
        (statx.stx_mask & libc::STATX_WRITE_ATOMIC != 0 && unit.max != 0).then_some(unit)
    }
}

/// `4 KiB to 64 KiB`.
impl fmt::Display for AtomicWriteUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, max] = [self.min, self.max].map(|bytes| bytes_text(bytes.into()));
        if min == max { f.write_str(&min) } else { write!(f, "{min} to {max}") }
    }
}
