//! What trials read, and the memory they read it into.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Bytes of the sample, and what [`Pages`] are aligned to.
pub(super) const PAGE: usize = 4096;

/// Memory aligned for any direct I/O, in whole pages.
pub(super) struct Pages {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Pages {
    /// `bytes`, rounded up to whole pages, all zero.
    pub(super) fn zeroed(bytes: usize) -> Self {
        let length = bytes.next_multiple_of(PAGE);
        // One page more, so that there is an aligned place in it.
        let memory = vec![0; length + PAGE];
        let address = memory.as_ptr().addr();
        Self { start: address.next_multiple_of(PAGE) - address, memory, length }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

/// A file of one page with bytes that no kernel would invent. It has no name, so nothing is left behind.
pub(super) struct Sample {
    file: File,
    bytes: Vec<u8>,
}

impl Sample {
    /// In memory, or in the directory for temporary files where a sandbox has no `memfd_create` (kernel 3.17).
    ///
    /// # Errors
    ///
    /// EMFILE and its like where not even one descriptor is free.
    pub(super) fn new() -> io::Result<Self> {
        let file = match in_memory() {
            Err(error) if error.raw_os_error() != Some(libc::EMFILE) => OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_TMPFILE)
                .mode(0o600)
                .open(std::env::temp_dir())?,
            other => other?,
        };
        let bytes: Vec<u8> = b"ringway ".iter().copied().cycle().take(PAGE).collect();
        file.write_all_at(&bytes, 0)?;
        Ok(Self { file, bytes })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether a read of the whole sample gave what is in it; EIO where it did not.
    pub(super) fn check(&self, read: &[u8]) -> io::Result<()> {
        if read == self.bytes { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
    }
}

fn in_memory() -> io::Result<File> {
    // SAFETY: the name is a C string that the kernel copies; nothing else is touched.
    let fd = unsafe { libc::memfd_create(c"ringway-probe".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A new eventfd that is read without blocking.
pub(super) fn event_fd() -> io::Result<File> {
    // SAFETY: eventfd takes numbers only.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The error number; EIO for an error that did not come from the kernel.
pub(super) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_whole() {
        let mut pages = Pages::zeroed(PAGE + 1);
        assert_eq!(pages.bytes_mut().len(), 2 * PAGE);
        assert_eq!(pages.bytes_mut().as_ptr() as usize % PAGE, 0);
    }

    #[test]
    fn wrong_bytes_are_found() {
        let sample = Sample::new().unwrap();
        let mut pages = Pages::zeroed(PAGE);
        assert!(sample.check(pages.bytes_mut()).is_err());
        sample.file().read_at(pages.bytes_mut(), 0).unwrap();
        assert!(sample.check(pages.bytes_mut()).is_ok());
        assert!(sample.check(&pages.bytes_mut()[1..]).is_err());
    }
}
