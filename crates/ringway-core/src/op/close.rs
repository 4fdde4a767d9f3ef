//! Closes a file: `close(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};

/// Closes `file` and reports the result of `close(2)` (a network file system may report a failed
/// write).
///
/// A descriptor in use must not be closed, since its number could be reused for another file. So if
/// the [`File`] has another holder when the operation is due (another operation in flight, a clone,
/// a queue that registered it), the operation fails with EBUSY, and the last holder closes the
/// file. In a chain, after the last operation on the file, the close is the only holder.
///
/// ```
/// # use ringway_core::{op, File, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut queue = Options::new().build()?;
/// let file = File::open("/etc/passwd")?;
/// queue.push_chain([op::read(&file, vec![0; 64], 0), op::close(file)])?;
/// for done in queue.reap(2)? {
///     done.result?;
/// }
/// # Ok(()) }
/// ```
pub fn close(file: File) -> Operation {
    let mut operation = Operation::new(Close { fd: file.fd() });
    operation.file = Some(file);
    operation
}

/// `close(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Close {
    /// The descriptor.
    pub fd: RawFd,
}

impl SubmissionForms for Close {
    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn call(&self) -> i64 {
        // SAFETY: the descriptor was given away with the operation: a safe operation was its last
        // holder, and the caller of `from_raw` promised it.
        syscall_result(i64::from(unsafe { libc::close(self.fd) }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, Raw, SqeContext, on_file};
    use io_uring::{opcode, squeue};

    impl LinuxForms for Close {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            // A registered file is closed by its descriptor too: the queue ends the registration.
            let by_descriptor = SqeContext { fixed_file: None, fixed_buffer: None, ..*context };
            Some(on_file!(by_descriptor, self.fd, |file| opcode::Close::new(file).build()))
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { fd: NO_FD }.into())
        }
    }
}
