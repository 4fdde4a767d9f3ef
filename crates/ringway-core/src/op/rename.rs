//! Renames or moves a file: `renameat2(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};
use std::path::Path;

/// Renames `from` to `to`, both relative to the working directory. An existing file at `to` is
/// replaced atomically.
///
/// Errors: those of `rename(2)`; EINVAL, before anything is submitted, for a path with a NUL byte.
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (new, name) = (dir.path().join("name.new"), dir.path().join("name"));
/// # std::fs::write(&new, b"")?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::rename(&new, &name))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// # Ok(()) }
/// ```
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Operation {
    make((None, from.as_ref()), (None, to.as_ref()), 0)
}

/// As [`rename`], with a directory for each path and the `RENAME_*` flags of `renameat2(2)`.
pub fn rename_at(
    from_dir: &File,
    from: impl AsRef<Path>,
    to_dir: &File,
    to: impl AsRef<Path>,
    flags: u32,
) -> Operation {
    make((Some(from_dir), from.as_ref()), (Some(to_dir), to.as_ref()), flags)
}

fn make(from: (Option<&File>, &Path), to: (Option<&File>, &Path), flags: u32) -> Operation {
    Operation::with_paths(from, to, |(from_dir, from), (to_dir, to)| Rename {
        from_dir,
        from,
        to_dir,
        to,
        flags,
    })
}

/// `renameat2(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Rename {
    /// The old name's directory, or `AT_FDCWD`.
    pub from_dir: RawFd,
    /// The old name.
    pub from: *const libc::c_char,
    /// The new name's directory, or `AT_FDCWD`.
    pub to_dir: RawFd,
    /// The new name.
    pub to: *const libc::c_char,
    /// `RENAME_*`.
    pub flags: u32,
}

impl SubmissionForms for Rename {
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_on_path(&self) -> bool {
        true
    }

    fn call(&self) -> i64 {
        // SAFETY: the operation, or the caller of `from_raw`, keeps both paths valid C strings
        // until the completion.
        syscall_result(i64::from(unsafe {
            libc::renameat2(self.from_dir, self.from, self.to_dir, self.to, self.flags)
        }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, NO_PATH, Raw, SqeContext, is_refused_early};
    use io_uring::{opcode, squeue, types};

    impl LinuxForms for Rename {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            // SAFETY: as in `call`.
            if unsafe { is_refused_early(self.to) } {
                return None;
            }
            Some(
                opcode::RenameAt::new(
                    types::Fd(self.from_dir),
                    self.from,
                    types::Fd(self.to_dir),
                    self.to,
                )
                .flags(self.flags)
                .build(),
            )
        }

        fn on_nothing(&self) -> Option<Raw> {
            let path = NO_PATH.as_ptr();
            Some(Self { from_dir: NO_FD, from: path, to_dir: NO_FD, to: path, ..*self }.into())
        }
    }
}
