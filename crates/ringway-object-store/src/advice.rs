//! Advice for the kernel about how a file is read.

use ringway::fs::File;
use rustix::fs::{Advice, fadvise};

/// Advises the kernel to read only what is requested (`POSIX_FADV_RANDOM`). Otherwise it takes
/// ranges that are near each other for a sequential reader and reads further, which can be half as
/// much again as requested. Does not block: it sets a flag of the open file.
pub(crate) fn expect_random_reads(file: &File) {
    if !file.is_direct() {
        // Without the advice the kernel reads more than necessary.
        let _ = fadvise(file, 0, None, Advice::Random);
    }
}
