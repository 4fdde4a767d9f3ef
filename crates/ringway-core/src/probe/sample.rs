//! What trials read, and the memory they read it into.

use crate::AlignedBuffer;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Bytes of the sample, and what [`pages`] are aligned to.
pub(crate) const PAGE: usize = 4096;

/// Zeroed memory aligned for any direct I/O: `bytes`, rounded up to whole pages.
pub(crate) fn pages(bytes: usize) -> AlignedBuffer {
    AlignedBuffer::new(bytes.next_multiple_of(PAGE), PAGE)
}

/// A file of one page with bytes that no kernel would invent. It has no name, so nothing is left behind.
pub(crate) struct Sample {
    file: File,
    bytes: Vec<u8>,
}

impl Sample {
    /// In memory, or in the directory for temporary files where a sandbox has no `memfd_create` (kernel 3.17).
    ///
    /// # Errors
    ///
    /// EMFILE and its like where not even one descriptor is free.
    pub(crate) fn new() -> io::Result<Self> {
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

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether a read of the whole sample gave what is in it; EIO where it did not.
    pub(crate) fn check(&self, read: &[u8]) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_whole() {
        let pages = pages(PAGE + 1);
        assert_eq!(pages.len(), 2 * PAGE);
        assert_eq!(pages.as_ptr() as usize % PAGE, 0);
    }

    #[test]
    fn wrong_bytes_are_found() {
        let sample = Sample::new().unwrap();
        let mut pages = pages(PAGE);
        assert!(sample.check(&pages).is_err());
        sample.file().read_at(&mut pages, 0).unwrap();
        assert!(sample.check(&pages).is_ok());
        assert!(sample.check(&pages[1..]).is_err());
    }
}
