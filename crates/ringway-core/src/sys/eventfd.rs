//! Eventfds, and waiting for several until a given time. Backends use both to wait.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// An eventfd: readable from [`signal`](Self::signal) to [`drain`](Self::drain).
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// Errors: those of `eventfd(2)`: EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// A copy of the descriptor of an eventfd.
    ///
    /// Errors: those of `dup(2)`.
    pub fn copy(eventfd: RawFd) -> io::Result<Self> {
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::fcntl(eventfd, libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable; if it is readable already, this has no effect.
    pub fn signal(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read from `one`, which is live for the call.
        unsafe { libc::write(self.0.as_raw_fd(), ptr::from_ref(&one).cast(), size_of::<u64>()) };
    }

    /// Makes it unreadable. Returns false if it was unreadable already.
    pub fn drain(&self) -> bool {
        drain(self.0.as_raw_fd())
    }
}

/// An eventfd that is made when it is first needed, and whose number is readable without the lock
/// that guards it.
#[derive(Debug)]
pub(crate) struct LazyEventFd {
    eventfd: Option<EventFd>,
    /// -1 while there is none.
    number: Arc<AtomicI32>,
}

impl Default for LazyEventFd {
    fn default() -> Self {
        Self { eventfd: None, number: Arc::new(AtomicI32::new(-1)) }
    }
}

impl LazyEventFd {
    /// The eventfd; `None` before it is made.
    #[inline]
    pub fn get(&self) -> Option<&EventFd> {
        self.eventfd.as_ref()
    }

    /// Errors: those of [`EventFd::new`].
    pub fn get_or_make(&mut self) -> io::Result<&EventFd> {
        let eventfd = match self.eventfd.take() {
            Some(eventfd) => eventfd,
            None => EventFd::new()?,
        };
        self.number.store(eventfd.as_raw_fd(), Ordering::Relaxed);
        Ok(self.eventfd.insert(eventfd))
    }

    /// Closes it.
    pub fn close(&mut self) {
        self.number.store(-1, Ordering::Relaxed);
        self.eventfd = None;
    }

    /// Its number, also after later changes; -1 while there is none.
    pub fn number(&self) -> Arc<AtomicI32> {
        self.number.clone()
    }
}

/// As [`EventFd::drain`], for an eventfd with another owner.
pub(crate) fn drain(eventfd: RawFd) -> bool {
    let mut count = 0u64;
    // SAFETY: eight bytes are written to `count`, which is live for the call.
    unsafe {
        libc::read(eventfd, ptr::from_mut(&mut count).cast(), size_of::<u64>())
            == size_of::<u64>() as isize
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The time left until then; `None` for no limit.
pub(crate) fn left(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(Instant::now()))
}

pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    // 68 years: long enough, and within the range of every `time_t`.
    let seconds = duration.as_secs().min(i32::MAX as u64);
    libc::timespec { tv_sec: seconds as libc::time_t, tv_nsec: duration.subsec_nanos() as _ }
}

/// Waits until a descriptor is readable; returns which ones are. None are after `until` or a
/// signal.
pub(crate) fn wait_readable<const N: usize>(
    fds: [RawFd; N],
    until: Option<Instant>,
) -> io::Result<[bool; N]> {
    let mut polls = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let timespec = left(until).map(timespec);
    let timeout = timespec.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `N` entries and the timespec live on this stack during the call; no signal mask.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), N as libc::nfds_t, timeout, ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted {
            Ok([false; N])
        } else {
            Err(error)
        };
    }
    Ok(polls.map(|poll| poll.revents != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eventfd_is_readable_from_signal_to_drain() {
        let (one, two) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        let fds = [one.as_raw_fd(), two.as_raw_fd()];
        let now = Some(Instant::now());
        assert_eq!(wait_readable(fds, now).unwrap(), [false, false]);
        two.signal();
        two.signal();
        assert_eq!(wait_readable(fds, None).unwrap(), [false, true]);
        two.drain();
        two.drain();
        assert_eq!(wait_readable(fds, now).unwrap(), [false, false]);
    }

    #[test]
    fn waiting_ends_at_the_deadline() {
        let event = EventFd::new().unwrap();
        let until = Instant::now() + Duration::from_millis(5);
        assert_eq!(wait_readable([event.as_raw_fd()], Some(until)).unwrap(), [false]);
        assert!(Instant::now() >= until);
    }
}
