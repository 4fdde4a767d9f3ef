//! An eventfd.

use crate::sys::{Number, OwnedFd, RawFd, owned};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

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
        Ok(Self(unsafe { owned(fd) }))
    }

    /// Its descriptors; -1 stands for none.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.number(), -1]
    }

    /// Makes it readable; if it is readable already, this has no effect.
    pub fn signal(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read from `one`, which is live for the call.
        unsafe { libc::write(self.number(), ptr::from_ref(&one).cast(), size_of::<u64>()) };
    }

    /// Makes it unreadable. Returns false if it was unreadable already.
    pub fn drain(&self) -> bool {
        drain(self.number())
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
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
