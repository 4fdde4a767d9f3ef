//! Makes a symbolic link: `symlinkat(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};
use std::path::Path;

/// Makes `path`, relative to the working directory, a symbolic link to `target`. Errors: those of
/// `symlink(2)`.
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::symlink("releases/7", dir.path().join("current")))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// # Ok(()) }
/// ```
pub fn symlink(target: impl AsRef<Path>, path: impl AsRef<Path>) -> Operation {
    make(target.as_ref(), None, path.as_ref())
}

/// As [`symlink`], with `path` relative to the directory `dir`.
pub fn symlink_at(target: impl AsRef<Path>, dir: &File, path: impl AsRef<Path>) -> Operation {
    make(target.as_ref(), Some(dir), path.as_ref())
}

fn make(target: &Path, dir: Option<&File>, path: &Path) -> Operation {
    Operation::with_paths((None, target), (dir, path), |(_, target), (dir, path)| Symlink {
        target,
        dir,
        path,
    })
}

/// `symlinkat(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Symlink {
    /// The target of the link.
    pub target: *const libc::c_char,
    /// The directory of the link, or `AT_FDCWD`.
    pub dir: RawFd,
    /// The path of the link.
    pub path: *const libc::c_char,
}

impl SubmissionForms for Symlink {
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_on_path(&self) -> bool {
        true
    }

    fn call(&self) -> i64 {
        // SAFETY: the operation, or the caller of `from_raw`, keeps both paths valid C strings
        // until the completion.
        syscall_result(i64::from(unsafe { libc::symlinkat(self.target, self.dir, self.path) }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, NO_PATH, Raw, SqeContext};
    use io_uring::{opcode, squeue, types};

    impl LinuxForms for Symlink {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            Some(opcode::SymlinkAt::new(types::Fd(self.dir), self.target, self.path).build())
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { dir: NO_FD, path: NO_PATH.as_ptr(), ..*self }.into())
        }
    }
}
