//! Advice for the kernel about how a file is read.

use ringway::fs::File;

/// Advises the kernel to read only what is requested (`POSIX_FADV_RANDOM`). Otherwise it takes
/// ranges that are near each other for a sequential reader and reads further, which can be half as
/// much again as requested. Does not block: it sets a flag of the open file. macOS and Windows take
/// no such advice.
pub(crate) fn expect_random_reads(file: &File) {
    #[cfg(any(target_os = "linux", target_os = "freebsd"))]
    if !file.is_direct() {
        // Without the advice the kernel reads more than necessary.
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
    }
    #[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
    let _ = file;
}
