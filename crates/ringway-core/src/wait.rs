//! Waiting for queues and for other threads, for an engine that shares queues among threads: an
//! event, and a wait for several descriptors.

use crate::sys::eventfd::{EventFd, poll_readable};
use crate::sys::{BorrowedFd, OwnedFd, borrow};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// An event that a thread can wait for: set from [`signal`](Self::signal) to
/// [`clear`](Self::clear). An eventfd on Linux, an event object on Windows, otherwise a pipe.
///
/// ```
/// use ringway_core::wait::{Event, readable};
/// use std::time::Duration;
/// # fn main() -> std::io::Result<()> {
/// let event = Event::new()?;
/// assert_eq!(readable(&[event.fd()], Some(Duration::ZERO))?, [false]);
/// event.signal();
/// assert_eq!(readable(&[event.fd()], None)?, [true]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Event(EventFd);

impl Event {
    /// An event that is not set. Errors: EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Self> {
        EventFd::new().map(Self)
    }

    /// Sets it. It may be set already.
    pub fn signal(&self) {
        self.0.signal();
    }

    /// Resets it.
    pub fn clear(&self) {
        self.0.drain();
    }

    /// What to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.borrow()
    }
}

/// What to poll for a queue that other threads own, open for as long as this lives:
/// [`Backends::shared_poll_fd`](crate::Backends::shared_poll_fd) makes it.
#[derive(Debug)]
pub struct PollFd(Held);

#[derive(Debug)]
enum Held {
    Shared(Arc<EventFd>),
    Copied(OwnedFd),
}

impl PollFd {
    pub(crate) fn shared(eventfd: Arc<EventFd>) -> Self {
        Self(Held::Shared(eventfd))
    }

    pub(crate) fn copied(fd: OwnedFd) -> Self {
        Self(Held::Copied(fd))
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Held::Shared(eventfd) => eventfd.borrow(),
            Held::Copied(fd) => borrow(fd),
        }
    }
}

/// Waits until one of these is readable, for at most `limit`; returns which ones are. The wait may
/// end earlier, after a signal.
///
/// If the limit of descriptors (RLIMIT_NOFILE) has become less than their number, `poll(2)` is
/// refused: this then returns after a millisecond at most, as if all were readable.
///
/// On Windows they are event objects: [`Event`]s and the descriptors of queues, at most 64.
///
/// Errors: those of `poll(2)`.
pub fn readable(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    poll_readable(fds, limit)
}
