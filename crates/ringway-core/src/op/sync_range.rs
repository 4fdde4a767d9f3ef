//! Starts or waits for the write-back of a part of a file: `sync_file_range(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};

/// Writes back the dirty pages of `len` bytes from `offset` on; a `len` of 0 means to the end.
///
/// `flags` are `SYNC_FILE_RANGE_WAIT_BEFORE`, `_WRITE` and `_WAIT_AFTER` as in
/// `sync_file_range(2)`. This does not make data durable: it flushes neither metadata nor the
/// device's cache. It paces write-back, so that a later [`fdatasync`](super::fdatasync) has little
/// to do.
///
/// ```
/// # use ringway_core::{op, Options, OpenOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let file = OpenOptions::new().write(true).create(true).open(dir.path().join("data"))?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::sync_range(&file, 0, 1 << 20, 2 /* SYNC_FILE_RANGE_WRITE */))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// # Ok(()) }
/// ```
pub fn sync_range(file: &File, offset: u64, len: u64, flags: u32) -> Operation {
    Operation::on(SyncRange { fd: file.fd(), offset, len, flags }, file)
}

/// `sync_file_range(2)`.
#[derive(Clone, Copy, Debug)]
pub struct SyncRange {
    /// The file.
    pub fd: RawFd,
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// Bytes; 0: to the end.
    pub len: u64,
    /// `SYNC_FILE_RANGE_*`.
    pub flags: u32,
}

impl SubmissionForms for SyncRange {
    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn is_sync(&self) -> bool {
        true
    }

    fn call(&self) -> i64 {
        // SAFETY: the call takes numbers only.
        syscall_result(i64::from(unsafe {
            libc::sync_file_range(self.fd, self.offset as i64, self.len as i64, self.flags)
        }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, Raw, SqeContext, on_file};
    use io_uring::{opcode, squeue};

    impl LinuxForms for SyncRange {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            let len = u32::try_from(self.len).ok()?; // The SQE has 32 bits for it.
            Some(on_file!(context, self.fd, |file| opcode::SyncFileRange::new(file, len)
                .offset(self.offset)
                .flags(self.flags)
                .build()))
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { fd: NO_FD, ..*self }.into())
        }
    }
}
