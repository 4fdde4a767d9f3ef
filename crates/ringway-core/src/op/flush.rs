//! The NVMe command Flush as a system call, for a ring that cannot take it.

use super::SubmissionForms;
use crate::sys::RawFd;

/// What [`Fsync`](super::Fsync) of an NVMe generic device becomes on a queue that polls for
/// completions. Before 6.5 the kernel cannot poll for a command without data, and crashes when it
/// tries (seen on 6.1).
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    /// An NVMe generic device.
    pub fd: RawFd,
    /// The identifier of its namespace.
    pub nsid: u32,
}

impl SubmissionForms for Flush {
    fn call(&self) -> i64 {
        #[cfg(ringway_linux)]
        return crate::device::flush(self.fd, self.nsid);
        #[cfg(not(ringway_linux))]
        return -i64::from(crate::sys::libc::ENOSYS);
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext};
    use crate::sys::kaio::Iocb;
    use io_uring::squeue;

    impl LinuxForms for Flush {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            None
        }

        fn iocb(&self) -> Option<Iocb> {
            None
        }
    }
}
