//! Waiting for queues and for other threads, for an engine that shares queues among threads: an
//! event, and a wait for several descriptors.

use crate::sys::BorrowedFd;
use crate::sys::eventfd::{EventFd, poll_readable};
use std::io;
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

/// Waits until one of these is readable, for at most `limit`; returns which ones are. The wait may
/// end earlier, after a signal.
///
/// On Windows they are event objects: [`Event`]s and the descriptors of queues, at most 64.
///
/// Errors: those of `poll(2)`.
pub fn readable(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    poll_readable(fds, limit)
}
