//! Removes a name: `unlinkat(2)`, `rmdir(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};
use std::path::Path;

/// Removes the file `path`, relative to the working directory. Errors: those of `unlink(2)`.
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("old");
/// # std::fs::write(&path, b"")?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::unlink(&path))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// # Ok(()) }
/// ```
pub fn unlink(path: impl AsRef<Path>) -> Operation {
    make(None, path.as_ref(), 0)
}

/// Removes the empty directory `path`, relative to the working directory. Errors: those of
/// `rmdir(2)`.
pub fn rmdir(path: impl AsRef<Path>) -> Operation {
    make(None, path.as_ref(), libc::AT_REMOVEDIR)
}

/// Removes `path` relative to the directory `dir`; `flags` are those of `unlinkat(2)`
/// (`AT_REMOVEDIR`).
pub fn unlink_at(dir: &File, path: impl AsRef<Path>, flags: i32) -> Operation {
    make(Some(dir), path.as_ref(), flags)
}

fn make(dir: Option<&File>, path: &Path, flags: i32) -> Operation {
    Operation::with_path((dir, path), |dir, path| Unlink { dir, path, flags })
}

/// `unlinkat(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Unlink {
    /// The directory, or `AT_FDCWD`.
    pub dir: RawFd,
    /// The path.
    pub path: *const libc::c_char,
    /// `AT_REMOVEDIR` or 0.
    pub flags: i32,
}

impl SubmissionForms for Unlink {
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_on_path(&self) -> bool {
        true
    }

    fn call(&self) -> i64 {
        // SAFETY: the operation, or the caller of `from_raw`, keeps `path` a valid C string until
        // the completion.
        syscall_result(i64::from(unsafe { libc::unlinkat(self.dir, self.path, self.flags) }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, NO_PATH, Raw, SqeContext};
    use io_uring::{opcode, squeue, types};

    impl LinuxForms for Unlink {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            Some(opcode::UnlinkAt::new(types::Fd(self.dir), self.path).flags(self.flags).build())
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { dir: NO_FD, path: NO_PATH.as_ptr(), ..*self }.into())
        }
    }
}
