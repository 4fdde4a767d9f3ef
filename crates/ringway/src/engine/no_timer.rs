//! In place of `timer.rs` on systems without `timerfd_create(2)`.

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
