//! What makes the descriptor of the faulty backend readable: an eventfd of its own, next to the
//! descriptor of the inner backend, behind one epoll descriptor.

use crate::backend::Backend;
use crate::sys::eventfd::EventFd;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The descriptor to poll, once it is asked for, and the eventfd that makes it readable.
#[derive(Debug)]
pub(super) struct Signal {
    eventfd: EventFd,
    epoll: Option<Epoll>,
}

impl Signal {
    /// Errors: those of `eventfd(2)`.
    pub fn new() -> io::Result<Self> {
        Ok(Self { eventfd: EventFd::new()?, epoll: None })
    }

    /// Whether the descriptor was asked for.
    pub fn is_polled(&self) -> bool {
        self.epoll.is_some()
    }

    /// The descriptor to poll. Errors: those of the inner backend and of epoll.
    pub fn poll_fd(&mut self, inner: &mut dyn Backend) -> io::Result<RawFd> {
        let epoll = match self.epoll.take() {
            Some(epoll) => epoll,
            None => Epoll::new([inner.poll_fd()?, self.eventfd.as_raw_fd()])?,
        };
        Ok(self.epoll.insert(epoll).as_raw_fd())
    }

    /// Makes it readable.
    pub fn raise(&self, _: &mut dyn Backend) {
        self.eventfd.signal();
    }

    /// Ends what [`raise`](Self::raise) did.
    pub fn clear(&self) {
        self.eventfd.drain();
    }

    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.epoll.iter().map(AsRawFd::as_raw_fd).chain([self.eventfd.as_raw_fd()])
    }
}

/// An epoll descriptor: readable while one of its members is.
#[derive(Debug)]
struct Epoll(OwnedFd);

impl Epoll {
    /// Errors: those of `epoll_create1(2)` and `epoll_ctl(2)`.
    fn new<const N: usize>(members: [RawFd; N]) -> io::Result<Self> {
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `epoll_create1` has just returned this descriptor; it has no other owner.
        let epoll = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        members.iter().try_for_each(|member| epoll.add(*member))?;
        Ok(epoll)
    }

    /// Adds a member, unless it is one already. Closing a member removes it.
    fn add(&self, member: RawFd) -> io::Result<()> {
        let mut readable = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the kernel reads one event, which lives during the call.
        let done = unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, member, &raw mut readable)
        };
        let error = io::Error::last_os_error();
        if done == 0 || error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::eventfd::{EventFd, wait_readable};
    use std::time::Instant;

    #[test]
    fn an_epoll_is_readable_while_a_member_is() {
        let (one, two) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        let epoll = Epoll::new([one.as_raw_fd()]).unwrap();
        epoll.add(two.as_raw_fd()).unwrap();
        epoll.add(two.as_raw_fd()).unwrap();
        let readable =
            || wait_readable([epoll.as_raw_fd()], Some(Instant::now())).unwrap() == [true];
        for event in [one, two] {
            assert!(!readable());
            event.signal();
            assert!(readable());
            event.drain();
        }
        assert!(!readable());
    }
}
