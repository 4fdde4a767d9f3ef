//! Borrowing a descriptor, or a handle on Windows, where the standard library's trait has another
//! name.

use ringway_core::{BorrowedFd, OwnedFd};

#[cfg(unix)]
#[inline]
pub(crate) fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(fd)
}

#[cfg(windows)]
#[inline]
pub(crate) fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
    std::os::windows::io::AsHandle::as_handle(fd)
}
