//! The `RWF_*` flags of one transfer. The transfer's file has all of its submission forms.

use crate::sys::libc;

/// Flags of a read or a write, for [`Raw`](crate::op::Raw): `RWF_*` of `preadv2(2)`.
///
/// They are part of the transfer, so each piece of a split transfer, the rest of a short one and a
/// retry have them, too.
///
/// ```
/// use ringway_core::op::RwFlags;
/// assert!(!RwFlags::NONE.has(RwFlags::DONT_CACHE));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RwFlags(u32);

impl RwFlags {
    /// No flag: a plain read or write.
    pub const NONE: Self = Self(0);
    /// `RWF_DONTCACHE` (6.14): the transfer leaves no pages of its own in the page cache. See
    /// [`Operation::dont_cache`](crate::Operation::dont_cache).
    pub const DONT_CACHE: Self = Self(0x80);
    /// `RWF_ATOMIC` (6.11): the write is untorn. See
    /// [`Operation::untorn`](crate::Operation::untorn), which checks first that the file has it.
    pub const ATOMIC: Self = Self(0x40);

    /// Whether these have a flag.
    #[inline]
    pub const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    /// With one flag more.
    pub(crate) fn set(&mut self, flag: Self) {
        self.0 |= flag.0;
    }

    pub(crate) fn clear(&mut self, flag: Self) {
        self.0 &= !flag.0;
    }

    /// As `preadv2(2)` and io_uring take them.
    #[inline]
    pub(crate) fn bits(self) -> libc::c_int {
        self.0 as libc::c_int
    }
}
