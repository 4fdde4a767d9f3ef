//! An event object in place of an eventfd, for Windows.

use crate::sys::{Number, OwnedFd, RawFd, owned};
use std::io;
use std::os::windows::io::{AsRawHandle, RawHandle};
use std::ptr;
use windows_sys::Win32::Foundation::WAIT_OBJECT_0;
use windows_sys::Win32::System::Threading::{
    CreateEventW, ResetEvent, SetEvent, WaitForSingleObject,
};

/// An event object: set from [`signal`](Self::signal) to [`drain`](Self::drain).
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// Errors: those of `CreateEventW`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: null pointers stand for no attributes and no name.
        let handle = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made this handle.
        Ok(Self(unsafe { owned(handle as RawFd) }))
    }

    /// Its descriptors; -1 stands for none.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.number(), -1]
    }

    /// Sets it; if it is set already, this has no effect.
    pub fn signal(&self) {
        // SAFETY: the handle is an open event object.
        unsafe { SetEvent(self.number() as _) };
    }

    /// Resets it. Returns false if it was not set.
    pub fn drain(&self) -> bool {
        drain(self.number())
    }
}

impl AsRawHandle for EventFd {
    fn as_raw_handle(&self) -> RawHandle {
        self.0.as_raw_handle()
    }
}

/// As [`EventFd::drain`], for an event object with another owner.
pub(crate) fn drain(eventfd: RawFd) -> bool {
    // SAFETY: the handle is an open event object.
    unsafe {
        WaitForSingleObject(eventfd as _, 0) == WAIT_OBJECT_0 && ResetEvent(eventfd as _) != 0
    }
}
