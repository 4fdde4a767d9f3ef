//! The notifier that wakes whoever reaps: the engine's thread, or, with
//! [`Reaping::Manual`](crate::Reaping::Manual), a program with a loop of its own. For that there is
//! a timer too, since it has nobody else to pick up what is held back.

use crate::engine::sync::{AtomicBool, Ordering};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long a program with a loop of its own has to pick up what is held back, before it is called.
const MANUAL_DELAY: Duration = Duration::from_millis(10);

/// Wakes whoever reaps besides those who submit: the thread, or a program with a loop of its own.
pub(crate) struct Notifier {
    fd: OwnedFd,
    /// The thread sleeps, or is about to; for a program with a loop of its own: the timer is not
    /// set.
    pub(in crate::engine) asleep: AtomicBool,
    /// Calls a program with a loop of its own.
    timer: Option<OwnedFd>,
}

impl Notifier {
    /// `manual`: for a program with a loop of its own. Errors: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new(manual: bool) -> io::Result<Arc<Self>> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let timer = || {
            timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )
        };
        let timer = if manual { Some(timer()?) } else { None };
        Ok(Arc::new(Self { fd, asleep: AtomicBool::new(manual), timer }))
    }

    /// Readable when it has been rung.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Readable when something has been held back for a while.
    pub(crate) fn timer(&self) -> Option<BorrowedFd<'_>> {
        self.timer.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn notify(&self) {
        // An eventfd that cannot be written to, because it was rung so often, is readable.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// It has been heard.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }

    /// As [`clear`](Self::clear), of the timer: true if something has been held back for a while.
    /// Shards are to be moved after this, which sets it again.
    pub(crate) fn timer_expired(&self) -> bool {
        let timer_expired =
            self.timer.as_ref().is_some_and(|timer| rustix::io::read(timer, &mut [0u8; 8]).is_ok());
        if timer_expired {
            self.asleep.store(true, Ordering::SeqCst);
        }
        timer_expired
    }

    /// A shard holds something back until a runtime comes, which may be late, or until completions
    /// come, which may hang: rung if the thread sleeps; the timer is set if it is not.
    #[inline]
    pub(crate) fn notify_if_asleep(&self) {
        // What is held back is noted under a lock that the thread takes after it has said that it
        // sleeps: one of the two sees the other.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            match &self.timer {
                Some(timer) => set(timer, MANUAL_DELAY),
                None => self.notify(),
            }
        }
    }
}

/// Sets a timer to a time from now.
fn set(timer: &OwnedFd, time: Duration) {
    let once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let Ok(it_value) = Timespec::try_from(time) else { return };
    // It is a timer, and the time is one.
    let _ = timerfd_settime(
        timer,
        TimerfdTimerFlags::empty(),
        &Itimerspec { it_interval: once, it_value },
    );
}
