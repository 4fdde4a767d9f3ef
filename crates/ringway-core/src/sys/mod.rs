//! Interfaces of the system that operations, backends and the probe share. On Linux: the binding to
//! Linux AIO, eventfds, and the calls that wait for them (io_uring's are in the `io-uring` crate).
//! On other systems: what takes the place of Linux's C interface and of eventfds.

pub(crate) mod eventfd;
#[cfg(ringway_linux)]
pub(crate) mod kaio;
#[cfg(all(unix, not(ringway_linux)))]
#[path = "unix.rs"]
pub mod libc;
#[cfg(windows)]
#[path = "windows.rs"]
pub mod libc;

#[cfg(ringway_linux)]
pub use ::libc;
#[cfg(unix)]
pub use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// The number of a handle.
#[cfg(windows)]
pub type RawFd = isize;
#[cfg(windows)]
pub use std::os::windows::io::{BorrowedHandle as BorrowedFd, OwnedHandle as OwnedFd};

/// The number of an open descriptor or handle.
pub(crate) trait Number {
    fn number(&self) -> RawFd;
}

#[cfg(unix)]
impl<T: std::os::fd::AsRawFd> Number for T {
    fn number(&self) -> RawFd {
        self.as_raw_fd()
    }
}

#[cfg(windows)]
impl<T: std::os::windows::io::AsRawHandle> Number for T {
    fn number(&self) -> RawFd {
        self.as_raw_handle() as RawFd
    }
}

/// Takes ownership.
///
/// # Safety
///
/// The descriptor is open and has no other owner.
pub(crate) unsafe fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller promised it.
    #[cfg(unix)]
    unsafe {
        std::os::fd::FromRawFd::from_raw_fd(fd)
    }
    // SAFETY: the caller promised it.
    #[cfg(windows)]
    unsafe {
        std::os::windows::io::FromRawHandle::from_raw_handle(fd as _)
    }
}

/// Gives up ownership: the descriptor stays open.
pub(crate) fn into_number(fd: OwnedFd) -> RawFd {
    #[cfg(unix)]
    return std::os::fd::IntoRawFd::into_raw_fd(fd);
    #[cfg(windows)]
    return std::os::windows::io::IntoRawHandle::into_raw_handle(fd) as RawFd;
}

/// Borrows an open descriptor.
///
/// # Safety
///
/// It stays open for the lifetime.
pub(crate) unsafe fn borrowed<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the caller promised it.
    #[cfg(unix)]
    unsafe {
        BorrowedFd::borrow_raw(fd)
    }
    // SAFETY: the caller promised it.
    #[cfg(windows)]
    unsafe {
        BorrowedFd::borrow_raw(fd as _)
    }
}

/// Borrows from an owner.
pub(crate) fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
    #[cfg(unix)]
    return std::os::fd::AsFd::as_fd(fd);
    #[cfg(windows)]
    return std::os::windows::io::AsHandle::as_handle(fd);
}

/// The kernel's release, such as `6.1.0-18-amd64`.
#[cfg(ringway_linux)]
pub(crate) fn kernel_release() -> String {
    let mut name = std::mem::MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: uname writes C strings into `name`; if it fails, the zeroed `utsname` holds empty
    // ones.
    let name = unsafe {
        libc::uname(name.as_mut_ptr());
        name.assume_init()
    };
    // SAFETY: the field is a C string that ends within its array and lives until the end of this
    // function.
    unsafe { std::ffi::CStr::from_ptr(name.release.as_ptr()) }.to_string_lossy().into_owned()
}

/// Whether the release is of this version of the kernel or of a later one.
#[cfg(ringway_linux)]
pub(crate) fn is_since(version: (u32, u32), release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= version,
        _ => false,
    }
}
