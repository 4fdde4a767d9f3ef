//! Sets a file's length: `ftruncate(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};

/// Truncates or extends `file` to `len` bytes. Errors: those of `ftruncate(2)`.
///
/// io_uring supports it from kernel 6.9; before that it runs on threads.
///
/// ```
/// # use ringway_core::{op, Options, OpenOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let file = OpenOptions::new().write(true).create(true).open(dir.path().join("data"))?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::ftruncate(&file, 4096))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// # Ok(()) }
/// ```
pub fn ftruncate(file: &File, len: u64) -> Operation {
    Operation::on(Ftruncate { fd: file.fd(), len }, file)
}

/// `ftruncate(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Ftruncate {
    /// The file.
    pub fd: RawFd,
    /// Bytes.
    pub len: u64,
}

impl SubmissionForms for Ftruncate {
    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn call(&self) -> i64 {
        // SAFETY: the call takes numbers only.
        syscall_result(i64::from(unsafe { libc::ftruncate64(self.fd, self.len as i64) }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, Raw, SqeContext, on_file};
    use io_uring::{opcode, squeue};

    impl LinuxForms for Ftruncate {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            Some(on_file!(context, self.fd, |file| opcode::Ftruncate::new(file, self.len).build()))
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { fd: NO_FD, ..*self }.into())
        }
    }
}
