//! Tells the kernel how a file will be read: `posix_fadvise(2)`.

use super::{Operation, SubmissionForms};
use crate::File;
use crate::sys::{RawFd, libc};

/// Advice about a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[non_exhaustive]
pub enum Advice {
    /// No advice.
    Normal = libc::POSIX_FADV_NORMAL,
    /// Reads in random order: no read-ahead.
    Random = libc::POSIX_FADV_RANDOM,
    /// Reads from front to back: more read-ahead.
    Sequential = libc::POSIX_FADV_SEQUENTIAL,
    /// Needed soon: start reading.
    WillNeed = libc::POSIX_FADV_WILLNEED,
    /// Not needed again soon: drop clean pages.
    DontNeed = libc::POSIX_FADV_DONTNEED,
    /// Read only once.
    NoReuse = libc::POSIX_FADV_NOREUSE,
}

/// Gives `advice` about `len` bytes of `file` from `offset` on; a `len` of 0 means to the end.
/// Errors: those of `posix_fadvise(2)`.
///
/// ```
/// # use ringway_core::{op, File, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = File::open("/etc/passwd")?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::fadvise(&file, 0, 0, op::Advice::WillNeed))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// # Ok(()) }
/// ```
pub fn fadvise(file: &File, offset: u64, len: u64, advice: Advice) -> Operation {
    Operation::on(Fadvise { fd: file.fd(), offset, len, advice: advice as i32 }, file)
}

/// `posix_fadvise(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Fadvise {
    /// The file.
    pub fd: RawFd,
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// Bytes; 0: to the end.
    pub len: u64,
    /// `POSIX_FADV_*`.
    pub advice: i32,
}

impl SubmissionForms for Fadvise {
    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn call(&self) -> i64 {
        // SAFETY: the call takes numbers only. It returns the errno instead of setting it.
        -i64::from(unsafe {
            libc::posix_fadvise64(self.fd, self.offset as i64, self.len as i64, self.advice)
        })
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, Raw, SqeContext, on_file};
    use io_uring::{opcode, squeue};

    impl LinuxForms for Fadvise {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            let len = i64::from(u32::try_from(self.len).ok()?); // The SQE has 32 bits for it.
            Some(on_file!(context, self.fd, |file| opcode::Fadvise::new(file, len, self.advice)
                .offset(self.offset)
                .build()))
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { fd: NO_FD, ..*self }.into())
        }
    }
}
