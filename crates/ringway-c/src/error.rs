//! Errors as the header has them: minus an errno, and in words what this thread's last one was.

use libc::{c_char, c_int};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;

thread_local! {
    static LAST: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// An errno with what it means here.
#[derive(Debug)]
pub struct Failure {
    errno: i32,
    text: Cow<'static, CStr>,
}

impl Failure {
    pub fn new(errno: i32, text: impl fmt::Display) -> Self {
        let text = CString::new(text.to_string().replace('\0', "?")).unwrap_or_default();
        Self { errno, text: Cow::Owned(text) }
    }

    /// One that is part of ordinary operation: it allocates nothing.
    pub fn ordinary(errno: i32, text: &'static CStr) -> Self {
        Self { errno, text: Cow::Borrowed(text) }
    }

    /// There is no room: ordinary flow control.
    #[cold]
    pub fn full() -> Self {
        Self::ordinary(libc::EAGAIN, c"the queue is full: reap completions, then push again")
    }

    /// Remembers it for `ringway_last_error`, and gives what the function is to return.
    #[cold]
    pub fn report(self) -> c_int {
        // A thread that is ending has nobody to tell.
        let _ = LAST.try_with(|last| *last.borrow_mut() = self.text);
        -self.errno
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), error)
    }
}

/// What a function returns: the number, or minus an errno.
pub fn answer(result: Result<usize, Failure>) -> c_int {
    match result {
        Ok(number) => c_int::try_from(number).unwrap_or(c_int::MAX),
        Err(failure) => failure.report(),
    }
}

/// An operation's own result, likewise.
#[inline]
pub fn result(result: Result<u64, ringway_core::Error>) -> i64 {
    match result {
        Ok(number) => number as i64,
        Err(error) => -i64::from(error.errno()),
    }
}

/// `ringway_last_error`.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_last_error() -> *const c_char {
    // The string's bytes stay where they are until the next failure replaces it.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
