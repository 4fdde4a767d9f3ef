//! The notifier: it wakes the engine's thread, or, with
//! [`Reaping::Manual`](crate::Reaping::Manual), the program. For the program it has a timer too,
//! because no thread would otherwise handle operations that are held back.

use crate::engine::sync::{AtomicBool, Ordering};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long the program has to handle operations that are held back, before the timer wakes it.
const MANUAL_DELAY: Duration = Duration::from_millis(10);

/// Wakes the engine's thread, or the program with [`Reaping::Manual`](crate::Reaping::Manual).
pub(crate) struct Notifier {
    fd: OwnedFd,
    /// The thread sleeps or is about to. With [`Reaping::Manual`](crate::Reaping::Manual): the
    /// timer is not set.
    pub(in crate::engine) asleep: AtomicBool,
    /// Wakes the program. Only with [`Reaping::Manual`](crate::Reaping::Manual).
    timer: Option<OwnedFd>,
}

impl Notifier {
    /// Creates a notifier for the thread or, if `manual`, for the program. Errors: EMFILE, ENFILE,
    /// ENOMEM.
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

    /// Readable after [`notify`](Self::notify), until [`clear`](Self::clear).
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Readable when operations have been held back for a while.
    pub(crate) fn timer(&self) -> Option<BorrowedFd<'_>> {
        self.timer.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn notify(&self) {
        // If the counter is full, the write fails and the eventfd is readable anyway.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Resets the descriptor.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }

    /// Resets the timer, and returns whether it had expired. The caller must then drive the shards,
    /// which set the timer again if needed.
    pub(crate) fn timer_expired(&self) -> bool {
        let timer_expired =
            self.timer.as_ref().is_some_and(|timer| rustix::io::read(timer, &mut [0u8; 8]).is_ok());
        if timer_expired {
            self.asleep.store(true, Ordering::SeqCst);
        }
        timer_expired
    }

    /// Call this when a shard holds operations back until a runtime comes, which may be late, or
    /// until completions come, which may hang. Notifies the thread if it sleeps; sets the timer if
    /// it is not set.
    #[inline]
    pub(crate) fn notify_if_asleep(&self) {
        // The shard notes what it holds back under a lock that the thread takes after it has set
        // `asleep`, so one of the two sees the other.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            match &self.timer {
                Some(timer) => set(timer, MANUAL_DELAY),
                None => self.notify(),
            }
        }
    }
}

/// Sets a timer to expire after `time`.
fn set(timer: &OwnedFd, time: Duration) {
    let once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let Ok(it_value) = Timespec::try_from(time) else { return };
    // This cannot fail: the descriptor is a timer, and the time is valid.
    let _ = timerfd_settime(
        timer,
        TimerfdTimerFlags::empty(),
        &Itimerspec { it_interval: once, it_value },
    );
}
