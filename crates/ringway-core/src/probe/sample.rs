//! The file that trials read, and the memory they read it into.

use crate::AlignedBuffer;
use crate::refusal::limits::Limit;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

/// Bytes of the sample, and the alignment of [`pages`].
pub(crate) const SAMPLE_PAGE: usize = 4096;

/// Memory aligned for any direct I/O: `bytes`, rounded up to whole pages. Filled with a pattern, so
/// that a read that transfers nothing is noticed.
pub(crate) fn pages(bytes: usize) -> AlignedBuffer {
    let mut pages = AlignedBuffer::new(bytes.next_multiple_of(SAMPLE_PAGE), SAMPLE_PAGE);
    pages.fill(0xa5);
    pages
}

/// A file whose first page is known.
pub(crate) struct Sample {
    file: File,
    bytes: Vec<u8>,
}

impl Sample {
    /// An unnamed file in memory. Where `RLIMIT_FSIZE` allows no page, writing it would raise
    /// SIGXFSZ, which kills the program; there, and where a sandbox has no `memfd_create`, the
    /// sample is the program's executable or `/dev/zero`.
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE if no descriptor is free.
    pub(crate) fn new() -> io::Result<Self> {
        match in_memory() {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                let executable = File::open("/proc/self/exe").and_then(Self::of);
                executable.or_else(|_| Self::of(File::open("/dev/zero")?))
            }
            other => Self::of(other?),
        }
    }

    fn of(file: File) -> io::Result<Self> {
        let mut bytes = vec![0; SAMPLE_PAGE];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Self { file, bytes })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Sets or clears `O_NONBLOCK`. With it, io_uring reads a file in memory at once. Without it,
    /// Linux 6.5 and later pass the read to a worker, which never ends: from then on the process
    /// has a second thread, so that each of its system calls on a descriptor counts references.
    pub(crate) fn set_nonblocking(&self, yes: bool) {
        let flags = if yes { libc::O_NONBLOCK } else { 0 };
        // SAFETY: the call accesses no memory. An error changes nothing.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETFL, flags) };
    }

    /// Checks that a read returned the whole sample; EIO if it did not.
    pub(crate) fn check(&self, read: &[u8]) -> io::Result<()> {
        if read == self.bytes { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
    }
}

/// True if a file of `len` bytes can be written without SIGXFSZ.
pub(crate) fn may_write(len: usize) -> bool {
    Limit::of_file_size().soft.is_none_or(|most| most >= len as u64)
}

/// A page with a content that no kernel would make up.
fn in_memory() -> io::Result<File> {
    if !may_write(SAMPLE_PAGE) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    // SAFETY: the name is a C string that the kernel copies; the call accesses nothing else.
    let fd = unsafe { libc::memfd_create(c"ringway-probe".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `memfd_create` has just returned this descriptor; it has no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    let bytes: Vec<u8> = b"ringway ".iter().copied().cycle().take(SAMPLE_PAGE).collect();
    file.write_all_at(&bytes, 0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_whole() {
        let pages = pages(SAMPLE_PAGE + 1);
        assert_eq!(pages.len(), 2 * SAMPLE_PAGE);
        assert_eq!(pages.as_ptr() as usize % SAMPLE_PAGE, 0);
    }

    #[test]
    fn wrong_bytes_are_detected() {
        let executable = Sample::of(File::open("/proc/self/exe").unwrap());
        let zeros = Sample::of(File::open("/dev/zero").unwrap());
        for sample in [Sample::new(), executable, zeros].map(Result::unwrap) {
            let mut pages = pages(SAMPLE_PAGE);
            assert!(sample.check(&pages).is_err());
            sample.file().read_at(&mut pages, 0).unwrap();
            assert!(sample.check(&pages).is_ok());
            assert!(sample.check(&pages[1..]).is_err());
        }
    }
}
