//! What an engine with [`Reaping::Manual`](crate::Reaping::Manual) needs: a timer, because no
//! thread would otherwise handle operations that are held back, and one descriptor for everything
//! that the program must react to.

use super::notifier::Notifier;

use crate::engine::shard::Shard;
use ringway_core::{BorrowedFd, OwnedFd};
use rustix::event::{Timespec, epoll};
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

    /// Resets it, and returns whether it had expired.
    pub(super) fn expired(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]).is_ok()
    }
}

/// A descriptor that is readable when any shard's descriptor or the notifier's is, or when the
/// notifier's timer has expired.
pub(crate) struct Readable(OwnedFd);

impl Readable {
    /// Errors: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new(shards: &[Shard], notifier: &Notifier) -> io::Result<Self> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = notifier.timer.as_ref().map(|timer| timer.0.as_fd());
        for fd in shards.iter().map(Shard::readable).chain([notifier.fd()]).chain(timer) {
            epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self(all))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
