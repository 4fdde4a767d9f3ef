//! Makes a directory: `mkdirat(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};
use std::path::Path;

/// Makes the directory `path` with the permissions `mode` (before the umask), relative to the
/// working directory. Errors: those of `mkdir(2)`.
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::mkdir(dir.path().join("new"), 0o755))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// # Ok(()) }
/// ```
pub fn mkdir(path: impl AsRef<Path>, mode: u32) -> Operation {
    make(None, path.as_ref(), mode)
}

/// As [`mkdir`], relative to the directory `dir`.
pub fn mkdir_at(dir: &File, path: impl AsRef<Path>, mode: u32) -> Operation {
    make(Some(dir), path.as_ref(), mode)
}

fn make(dir: Option<&File>, path: &Path, mode: u32) -> Operation {
    Operation::with_path((dir, path), |dir, path| Mkdir { dir, path, mode })
}

/// `mkdirat(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Mkdir {
    /// The parent directory, or `AT_FDCWD`.
    pub dir: RawFd,
    /// The path.
    pub path: *const libc::c_char,
    /// Permissions.
    pub mode: u32,
}

impl SubmissionForms for Mkdir {
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_on_path(&self) -> bool {
        true
    }

    fn call(&self) -> i64 {
        // SAFETY: the operation, or the caller of `from_raw`, keeps `path` a valid C string until
        // the completion.
        syscall_result(i64::from(unsafe { libc::mkdirat(self.dir, self.path, self.mode) }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, NO_PATH, Raw, SqeContext};
    use io_uring::{opcode, squeue, types};

    impl LinuxForms for Mkdir {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            Some(opcode::MkDirAt::new(types::Fd(self.dir), self.path).mode(self.mode).build())
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { dir: NO_FD, path: NO_PATH.as_ptr(), ..*self }.into())
        }
    }
}
