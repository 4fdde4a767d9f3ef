//! Gives a file another name: `linkat(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};
use std::path::Path;

/// Makes `new` another name of the file `old`, both relative to the working directory. Errors:
/// those of `link(2)`.
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
/// # std::fs::write(&old, b"")?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::link(&old, &new))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// # Ok(()) }
/// ```
pub fn link(old: impl AsRef<Path>, new: impl AsRef<Path>) -> Operation {
    make((None, old.as_ref()), (None, new.as_ref()), 0)
}

/// As [`link`], with a directory for each path and the flags of `linkat(2)` (`AT_SYMLINK_FOLLOW`).
pub fn link_at(
    old_dir: &File,
    old: impl AsRef<Path>,
    new_dir: &File,
    new: impl AsRef<Path>,
    flags: i32,
) -> Operation {
    make((Some(old_dir), old.as_ref()), (Some(new_dir), new.as_ref()), flags)
}

fn make(old: (Option<&File>, &Path), new: (Option<&File>, &Path), flags: i32) -> Operation {
    Operation::with_paths(old, new, |(old_dir, old), (new_dir, new)| Link {
        old_dir,
        old,
        new_dir,
        new,
        flags,
    })
}

/// `linkat(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The existing name's directory, or `AT_FDCWD`.
    pub old_dir: RawFd,
    /// The existing name.
    pub old: *const libc::c_char,
    /// The new name's directory, or `AT_FDCWD`.
    pub new_dir: RawFd,
    /// The new name.
    pub new: *const libc::c_char,
    /// `AT_*`.
    pub flags: i32,
}

impl SubmissionForms for Link {
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
            libc::linkat(self.old_dir, self.old, self.new_dir, self.new, self.flags)
        }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, NO_PATH, Raw, SqeContext, is_refused_early};
    use io_uring::{opcode, squeue, types};

    impl LinuxForms for Link {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            // SAFETY: as in `call`.
            if unsafe { is_refused_early(self.new) } {
                return None;
            }
            Some(
                opcode::LinkAt::new(
                    types::Fd(self.old_dir),
                    self.old,
                    types::Fd(self.new_dir),
                    self.new,
                )
                .flags(self.flags)
                .build(),
            )
        }

        fn on_nothing(&self) -> Option<Raw> {
            let path = NO_PATH.as_ptr();
            Some(Self { old_dir: NO_FD, old: path, new_dir: NO_FD, new: path, ..*self }.into())
        }
    }
}
