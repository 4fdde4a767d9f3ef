//! In place of `manual.rs` on systems without epoll and timerfd: an engine with
//! [`Reaping::Manual`](crate::Reaping::Manual) is refused.

use super::notifier::Notifier;
use crate::engine::shard::Shard;
use ringway_core::BorrowedFd;
use std::io;
use std::time::Duration;

/// A timer of the kernel: there is none.
pub(crate) enum Timer {}

impl Timer {
    /// Errors: Unsupported.
    pub(super) fn new() -> io::Result<Self> {
        let text = "Reaping::Manual needs epoll(7) and timerfd_create(2), which only Linux has: \
                    use Reaping::Thread";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    pub(super) fn set(&self, _: Duration) {
        match *self {}
    }

    pub(super) fn expired(&self) -> bool {
        match *self {}
    }
}

/// A descriptor for everything that the program must react to: there is none.
pub(crate) enum Readable {}

impl Readable {
    /// Errors: Unsupported.
    pub(crate) fn new(_: &[Shard], _: &Notifier) -> io::Result<Self> {
        Timer::new().map(|timer| match timer {})
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}
