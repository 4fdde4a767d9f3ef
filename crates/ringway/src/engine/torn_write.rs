//! The error of an untorn write that the kernel has made in part.

use std::error::Error;
use std::fmt;

/// The kernel has made a part of an untorn write
/// ([`File::write_untorn_at`](crate::fs::File::write_untorn_at)): the range begins with new bytes
/// and ends with old ones. ringway refuses the writes of which kernels are known to do so. Read the
/// range back, and write it again.
///
/// It is in the [`io::Error`](std::io::Error), whose kind is `Other`, and which has no errno: so it
/// is not taken for the EIO of a device.
///
/// ```
/// use ringway::fs::TornWrite;
///
/// fn is_torn(error: &std::io::Error) -> bool {
///     error.get_ref().is_some_and(|inner| inner.is::<TornWrite>())
/// }
/// # assert!(!is_torn(&std::io::Error::from_raw_os_error(5)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornWrite(());

impl TornWrite {
    pub(super) fn new() -> Self {
        Self(())
    }
}

impl fmt::Display for TornWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kernel has made only a part of an untorn write")
    }
}

impl Error for TornWrite {}
