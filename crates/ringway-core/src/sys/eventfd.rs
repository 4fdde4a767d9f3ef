//! Eventfds, and waiting for several until a given time. Backends use both to wait. Systems without
//! eventfds have something else that is readable from `signal` to `drain`.

#[cfg(ringway_linux)]
#[path = "eventfd/linux.rs"]
mod event;
#[cfg(all(unix, not(ringway_linux)))]
#[path = "eventfd/pipe.rs"]
mod event;
#[cfg(windows)]
#[path = "eventfd/windows.rs"]
mod event;

use super::{BorrowedFd, Number, RawFd, borrowed, libc};
pub(crate) use event::{EventFd, drain};
use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::{Duration, Instant};

/// How long a wait takes at most that the kernel has refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

impl EventFd {
    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: this value keeps it open.
        unsafe { borrowed(self.number()) }
    }
}

/// The numbers of descriptors that may not exist yet; -1 stands for none.
pub(crate) type Numbers = Arc<[AtomicIsize; 2]>;

/// An eventfd that is made when it is first needed, and whose numbers are readable without the lock
/// that guards it.
#[derive(Debug)]
pub(crate) struct LazyEventFd {
    eventfd: Option<Arc<EventFd>>,
    numbers: Numbers,
}

impl Default for LazyEventFd {
    fn default() -> Self {
        Self { eventfd: None, numbers: Arc::new([const { AtomicIsize::new(-1) }; 2]) }
    }
}

impl LazyEventFd {
    /// The eventfd; `None` before it is made.
    #[inline]
    pub fn get(&self) -> Option<&EventFd> {
        self.eventfd.as_deref()
    }

    /// As [`get`](Self::get), for other owners.
    pub fn share(&self) -> Option<Arc<EventFd>> {
        self.eventfd.clone()
    }

    /// Errors: those of [`EventFd::new`].
    pub fn get_or_make(&mut self) -> io::Result<&EventFd> {
        let eventfd = match self.eventfd.take() {
            Some(eventfd) => eventfd,
            None => Arc::new(EventFd::new()?),
        };
        self.publish(eventfd.descriptors());
        Ok(self.eventfd.insert(eventfd))
    }

    /// Closes it, unless others share it.
    pub fn close(&mut self) {
        self.publish([-1; 2]);
        self.eventfd = None;
    }

    fn publish(&self, numbers: [RawFd; 2]) {
        for (place, number) in self.numbers.iter().zip(numbers) {
            place.store(number as isize, Ordering::Relaxed);
        }
    }

    /// The numbers of its descriptors, also after later changes.
    pub fn numbers(&self) -> Numbers {
        self.numbers.clone()
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

/// Waits until a descriptor is readable; returns which ones may be. None are after `until` or a
/// signal. All may be if the limit of descriptors (RLIMIT_NOFILE) has become less than their
/// number: the kernel refuses the call then, this returns soon, and the caller looks.
pub(crate) fn wait_readable<const N: usize>(
    fds: [RawFd; N],
    until: Option<Instant>,
) -> io::Result<[bool; N]> {
    let mut polls = fds.map(poll_for_input);
    poll_or_pause(&mut polls, left(until))?;
    Ok(polls.map(|poll| poll.revents != 0))
}

/// As [`wait_readable`], for any number of descriptors.
pub(crate) fn poll_readable(
    fds: &[BorrowedFd<'_>],
    limit: Option<Duration>,
) -> io::Result<Vec<bool>> {
    let mut polls: Vec<_> = fds.iter().map(|fd| poll_for_input(fd.number())).collect();
    poll_or_pause(&mut polls, limit)?;
    Ok(polls.iter().map(|poll| poll.revents != 0).collect())
}

/// The events, of those and of the ones that are always reported, for which a descriptor is ready.
pub(crate) fn poll_now(fd: RawFd, events: i16) -> io::Result<i16> {
    let mut polls = [libc::pollfd { fd, events, revents: 0 }];
    poll(&mut polls, Some(Duration::ZERO))?;
    Ok(polls[0].revents)
}

fn poll_for_input(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// As [`poll`]. If the kernel refuses so many, pauses, and all may be ready.
fn poll_or_pause(polls: &mut [libc::pollfd], limit: Option<Duration>) -> io::Result<()> {
    match poll(polls, limit) {
        Err(error) if cfg!(unix) && error.raw_os_error() == Some(libc::EINVAL) => {
            std::thread::sleep(limit.map_or(REFUSED_PAUSE, |limit| limit.min(REFUSED_PAUSE)));
            for poll in polls {
                poll.revents = poll.events;
            }
            Ok(())
        }
        result => result,
    }
}

/// `ppoll(2)`; a signal ends it without an error.
fn poll(polls: &mut [libc::pollfd], limit: Option<Duration>) -> io::Result<()> {
    let timespec = limit.map(timespec);
    let timeout = timespec.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = polls.len() as libc::nfds_t;
    // SAFETY: the entries and the timespec are live during the call; no signal mask.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), count, timeout, ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        for poll in polls.iter_mut() {
            poll.revents = 0;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eventfd_is_readable_from_signal_to_drain() {
        let (one, two) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        let fds = [one.number(), two.number()];
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
        assert_eq!(wait_readable([event.number()], Some(until)).unwrap(), [false]);
        assert!(Instant::now() >= until);
    }
}
