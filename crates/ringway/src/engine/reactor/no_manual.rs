//! In place of `manual.rs` on systems without epoll and timerfd: an engine with
//! [`Reaping::Manual`](crate::Reaping::Manual) is refused.

use crate::engine::notifier::Notifier;
use crate::engine::shard::Shard;
use crate::engine::timer::Timer;
use ringway_core::BorrowedFd;
use std::io;

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
