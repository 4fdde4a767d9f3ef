//! A timer that makes a descriptor readable: `timerfd_create(2)`.

use ringway_core::{BorrowedFd, OwnedFd};
use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

/// A timer of the kernel, on the monotonic clock.
pub(crate) struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set. Errors: EMFILE, ENFILE, ENOMEM.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Lets it expire after `time`.
    pub(super) fn set(&self, time: Duration) {
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok(it_value) = Timespec::try_from(time) else { return };
        // This cannot fail: the descriptor is a timer, and the time is valid.
        let _ = timerfd_settime(
            &self.0,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: once, it_value },
        );
    }

    /// Readable when it has expired.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Resets it, and returns whether it had expired.
    pub(super) fn expired(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]).is_ok()
    }
}
