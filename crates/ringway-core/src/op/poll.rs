//! Waits until a descriptor is ready: `poll(2)`.

use super::{Operation, SubmissionForms, syscall_result};
use crate::File;
use crate::sys::{RawFd, libc};

/// Events to wait for: bits of `poll(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness(pub u16);

impl Readiness {
    /// Readable (`POLLIN`).
    pub const READABLE: Self = Self(libc::POLLIN as u16);
    /// Writable (`POLLOUT`).
    pub const WRITABLE: Self = Self(libc::POLLOUT as u16);
}

/// Waits until `file` (a pipe, a socket, an eventfd and so on) is ready; completes once.
///
/// The result is the ready events, as bits of `poll(2)`; they may include `POLLERR` and `POLLHUP`.
/// A regular file is always ready: the operation completes at once. Errors: EBADF; ECANCELED after
/// a cancel.
///
/// ```
/// # use ringway_core::{op, File, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (reader, mut writer) = std::io::pipe()?;
/// std::io::Write::write_all(&mut writer, b"x")?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::poll(&File::from(std::os::fd::OwnedFd::from(reader)), op::Readiness::READABLE))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(1));
/// # Ok(()) }
/// ```
pub fn poll(file: &File, events: Readiness) -> Operation {
    Operation::on(Poll { fd: file.fd(), events: events.0 }, file)
}

/// `poll(2)` on one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    /// The descriptor.
    pub fd: RawFd,
    /// `POLL*`.
    pub events: u16,
}

impl Poll {
    /// Polls once without waiting: the ready events, 0, or minus errno.
    pub(crate) fn poll_now(&self) -> i64 {
        self.wait(0)
    }

    fn wait(&self, milliseconds: i32) -> i64 {
        if self.fd < 0 {
            // `poll(2)` ignores a negative descriptor, and would wait forever.
            return -i64::from(libc::EBADF);
        }
        let mut poll = libc::pollfd { fd: self.fd, events: self.events as i16, revents: 0 };
        // SAFETY: one entry, which lives on this stack during the call.
        let returned =
            syscall_result(i64::from(unsafe { libc::poll(&raw mut poll, 1, milliseconds) }));
        if returned <= 0 {
            return returned;
        }
        if poll.revents & libc::POLLNVAL != 0 {
            -i64::from(libc::EBADF)
        } else {
            i64::from(poll.revents as u16)
        }
    }
}

impl SubmissionForms for Poll {
    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn call(&self) -> i64 {
        self.wait(-1)
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext, on_file};
    use crate::sys::kaio::{self, Iocb};
    use io_uring::{opcode, squeue};

    impl LinuxForms for Poll {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            Some(on_file!(context, self.fd, |file| opcode::PollAdd::new(
                file,
                u32::from(self.events)
            )
            .build()))
        }

        /// `IOCB_CMD_POLL` (4.18) takes the events in place of the buffer's address.
        fn iocb(&self) -> Option<Iocb> {
            Some(Iocb::new(kaio::IOCB_CMD_POLL, self.fd, u64::from(self.events), 0, 0))
        }
    }
}
