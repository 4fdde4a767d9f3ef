//! Makes a file's data durable: `fsync(2)`, `fdatasync(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};

/// Waits until everything written to `file` is on the device, including its metadata.
///
/// It covers writes that completed before it started: to make it wait for a write, chain it after
/// the write ([`Queue::push_chain`](crate::Queue::push_chain)) or use a barrier
/// ([`Operation::drain`]). Errors: those of `fsync(2)`. After EIO the data may be lost, and a retry
/// that succeeds proves nothing. Linux reports a lost write once for each open file, to the first
/// sync, `sync_file_range(2)` or durable write that asks, so an error of one of them concerns all
/// that were in flight with it, and the next sync.
///
/// ```
/// # use ringway_core::{op, Options, OpenOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let log = OpenOptions::new().write(true).create(true).open(dir.path().join("log"))?;
/// let mut queue = Options::new().build()?;
/// queue.push_chain([op::write(&log, b"commit".to_vec(), 0).exact(), op::fdatasync(&log)])?;
/// for done in queue.reap(2)? {
///     done.result?;
/// }
/// # Ok(()) }
/// ```
pub fn fsync(file: &File) -> Operation {
    Operation::on(Fsync { fd: file.fd(), data_only: false }, file)
}

/// As [`fsync`], without metadata that is not needed to read the data (`fdatasync(2)`).
pub fn fdatasync(file: &File) -> Operation {
    Operation::on(Fsync { fd: file.fd(), data_only: true }, file)
}

/// `fsync(2)` or `fdatasync(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Fsync {
    /// The file.
    pub fd: RawFd,
    /// True for `fdatasync(2)`.
    pub data_only: bool,
}

impl SubmissionForms for Fsync {
    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn is_sync(&self) -> bool {
        true
    }

    fn call(&self) -> i64 {
        // SAFETY: the call takes a number; for a descriptor that is not open it fails with EBADF.
        syscall_result(i64::from(unsafe {
            if self.data_only { libc::fdatasync(self.fd) } else { libc::fsync(self.fd) }
        }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, Raw, SqeContext, on_file};
    use crate::sys::kaio::{self, Iocb};
    use io_uring::{opcode, squeue, types::FsyncFlags};

    impl LinuxForms for Fsync {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            let flags = if self.data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
            Some(on_file!(context, self.fd, |file| opcode::Fsync::new(file).flags(flags).build()))
        }

        fn iocb(&self) -> Option<Iocb> {
            let command = if self.data_only { kaio::IOCB_CMD_FDSYNC } else { kaio::IOCB_CMD_FSYNC };
            Some(Iocb::new(command, self.fd, 0, 0, 0))
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { fd: NO_FD, ..*self }.into())
        }
    }
}
