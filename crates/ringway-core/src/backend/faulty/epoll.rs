//! One descriptor to poll for several, for the faulty backend.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll descriptor: readable while one of its members is.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    /// Errors: those of `epoll_create1(2)` and `epoll_ctl(2)`.
    pub fn new<const N: usize>(members: [RawFd; N]) -> io::Result<Self> {
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
    pub fn add(&self, member: RawFd) -> io::Result<()> {
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
