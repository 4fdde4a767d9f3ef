//! Reserves, punches or zeroes a part of a file: `fallocate(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};

/// Changes the allocation of `len` bytes from `offset` on. `mode` is that of `fallocate(2)`: 0
/// reserves them and extends the file; `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE` and so on.
///
/// Errors: those of `fallocate(2)`; EOPNOTSUPP if the file system does not support it.
///
/// ```
/// # use ringway_core::{op, Options, OpenOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let file = OpenOptions::new().write(true).create(true).open(dir.path().join("wal"))?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::fallocate(&file, 0, 0, 1 << 20))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// # Ok(()) }
/// ```
pub fn fallocate(file: &File, mode: i32, offset: u64, len: u64) -> Operation {
    Operation::on(Fallocate { fd: file.fd(), mode, offset, len }, file)
}

/// `fallocate(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Fallocate {
    /// The file.
    pub fd: RawFd,
    /// `FALLOC_FL_*`.
    pub mode: i32,
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl SubmissionForms for Fallocate {
    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn call(&self) -> i64 {
        // SAFETY: the call takes numbers only.
        syscall_result(i64::from(unsafe {
            libc::fallocate64(self.fd, self.mode, self.offset as i64, self.len as i64)
        }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, Raw, SqeContext, on_file};
    use io_uring::{opcode, squeue};

    impl LinuxForms for Fallocate {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            Some(on_file!(context, self.fd, |file| opcode::Fallocate::new(file, self.len)
                .offset(self.offset)
                .mode(self.mode)
                .build()))
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { fd: NO_FD, ..*self }.into())
        }
    }
}
