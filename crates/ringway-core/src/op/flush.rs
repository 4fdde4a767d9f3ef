//! The NVMe command Flush as a system call, for a ring that cannot take it.

#[cfg(ringway_linux)]
use super::NvmeStatus;
use super::SubmissionForms;
use crate::sys::{RawFd, libc};
#[cfg(ringway_linux)]
use std::num::NonZeroU16;

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
    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn is_sync(&self) -> bool {
        true
    }

    #[cfg(ringway_linux)]
    fn call(&self) -> i64 {
        result_of(crate::device::flush(self.fd, self.nsid))
    }

    #[cfg(not(ringway_linux))]
    fn call(&self) -> i64 {
        -i64::from(libc::ENOSYS)
    }
}

/// The result for the device's status, or for the errno of the call.
#[cfg(ringway_linux)]
fn result_of(status: Result<u16, i32>) -> i64 {
    -i64::from(match status.map(NonZeroU16::new) {
        Ok(None) => 0,
        Ok(Some(status)) => NvmeStatus(status).errno(),
        // No signal interrupts the call: the kernel has given the command up. A retry that succeeds
        // would prove nothing.
        Err(libc::EINTR) => libc::EIO,
        Err(errno) => errno,
    })
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext};
    use io_uring::squeue;

    impl LinuxForms for Flush {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            None
        }
    }
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::*;

    #[test]
    fn a_status_or_a_lost_command_is_an_error() {
        let errno = |errno: i32| -i64::from(errno);
        assert_eq!(result_of(Ok(0)), 0);
        assert_eq!(result_of(Ok(0x4082)), errno(libc::EREMOTEIO));
        assert_eq!(result_of(Err(libc::EINTR)), errno(libc::EIO));
        assert_eq!(result_of(Err(libc::EBADF)), errno(libc::EBADF));
    }
}
