//! How C functions report errors: minus an errno as the return value, and a text for
//! `ringway_last_error`, which each thread has its own of.

use libc::{c_char, c_int};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;

thread_local! {
    static LAST: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// An errno and a text that says what it means here.
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

    /// A failure that is part of normal operation; does not allocate.
    pub fn ordinary(errno: i32, text: &'static CStr) -> Self {
        Self { errno, text: Cow::Borrowed(text) }
    }

    /// The queue is full, which is normal flow control.
    #[cold]
    pub fn full() -> Self {
        Self::ordinary(libc::EAGAIN, c"the queue is full: reap completions, then push again")
    }

    /// Stores the text for `ringway_last_error` and returns minus the errno.
    #[cold]
    pub fn report(self) -> c_int {
        // Fails only if this thread's locals are already destroyed; then the text is lost.
        let _ = LAST.try_with(|last| *last.borrow_mut() = self.text);
        -self.errno
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), error)
    }
}

/// The return value of a C function: the number, capped at `INT_MAX`, or minus an errno.
pub fn to_return_value(result: Result<usize, Failure>) -> c_int {
    match result {
        Ok(number) => c_int::try_from(number).unwrap_or(c_int::MAX),
        Err(failure) => failure.report(),
    }
}

/// The result of an operation in its completion: the number, or minus an errno.
#[inline]
pub fn to_result(result: Result<u64, ringway_core::Error>) -> i64 {
    match result {
        Ok(number) => number as i64,
        Err(error) => -i64::from(error.errno()),
    }
}

/// `ringway_last_error`.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_last_error() -> *const c_char {
    // The pointer stays valid until the next failure on this thread replaces the text.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
