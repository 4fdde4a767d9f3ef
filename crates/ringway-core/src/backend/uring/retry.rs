//! Entries that the kernel did not take, for want of memory or because completions must be reaped
//! first: a timer makes the ring's descriptor readable after a pause, so that a program that polls
//! it submits them again.
//!
//! The ring itself polls the timer, from the first call of [`Backend::poll_fd`] on: while the
//! kernel has no memory it would not take an entry for that.
//!
//! [`Backend::poll_fd`]: crate::backend::Backend::poll_fd

use super::{FromRawFd, OwnedFd, RawFd, io};
use crate::sys::eventfd::timespec;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The first pause, and how often it is doubled at most.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MOST_DOUBLINGS: u32 = 5;

/// After so many polls in a row that the kernel has refused, it is not asked again.
const MOST_REFUSALS: u32 = 8;

/// Whether the kernel may take the entries of a failed `io_uring_enter(2)` later.
pub(super) fn is_transient(error: &io::Error) -> bool {
    // (ENOMEM is that of a thread's first enter, for what the kernel keeps for each.)
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ENOMEM))
}

/// The state of the ring's poll of the timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TimerPoll {
    #[default]
    Missing,
    /// The entry is in the submission queue.
    Queued,
    /// The kernel has it.
    Armed,
}

#[derive(Default)]
pub(super) struct Retry {
    timer: Option<OwnedFd>,
    pub poll: TimerPoll,
    /// Pauses since an enter has last succeeded.
    pauses: u32,
    /// The timer is set, and its completion has not been seen.
    is_set: bool,
    /// Polls in a row that the kernel has refused: a filter may forbid them.
    refusals: u32,
}

impl Retry {
    /// The timer, made by the first call. Errors: those of `timerfd_create(2)`.
    pub fn make_timer(&mut self) -> io::Result<RawFd> {
        let timer = match self.timer.take() {
            Some(timer) => timer,
            None => new_timer()?,
        };
        Ok(self.timer.insert(timer).as_raw_fd())
    }

    /// The timer, if it was made.
    pub fn timer(&self) -> Option<RawFd> {
        self.timer.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether the poll must be armed again.
    pub fn wants_poll(&self) -> bool {
        self.timer.is_some() && self.may_poll()
    }

    /// Whether a poll is missing, and not because the kernel refuses it.
    pub fn may_poll(&self) -> bool {
        self.poll == TimerPoll::Missing && self.refusals < MOST_REFUSALS
    }

    /// The kernel has taken all entries.
    pub fn all_taken(&mut self) {
        self.pauses = 0;
        if self.poll == TimerPoll::Queued {
            self.poll = TimerPoll::Armed;
        }
    }

    /// Sets the timer. Returns false if the ring does not poll it.
    pub fn pause(&mut self) -> bool {
        let Some(timer) = self.timer.as_ref().filter(|_| self.poll == TimerPoll::Armed) else {
            return false;
        };
        if !self.is_set {
            set(timer, FIRST_PAUSE * (1 << self.pauses.min(MOST_DOUBLINGS)));
            self.pauses += 1;
            self.is_set = true;
        }
        true
    }

    /// The ring's poll has completed with this result; `more`: it goes on.
    pub fn expired(&mut self, result: i32, more: bool) {
        self.is_set = false;
        // (It is cancelled when the thread that submitted it ends.)
        self.refusals = match result {
            0.. => 0,
            _ => self.refusals + u32::from(result != -libc::ECANCELED),
        };
        if !more {
            self.poll = TimerPoll::Missing;
            if let Some(timer) = &self.timer {
                // A timer that has expired would end the next poll at once.
                set(timer, Duration::ZERO);
            }
        }
    }
}

fn new_timer() -> io::Result<OwnedFd> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: the call takes numbers only.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets the timer expire once after this time; zero disarms it. It is not readable until then.
fn set(timer: &OwnedFd, after: Duration) {
    let setting =
        libc::itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(after) };
    // SAFETY: the setting is live during the call, which only reads it.
    unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &setting, std::ptr::null_mut()) };
}
