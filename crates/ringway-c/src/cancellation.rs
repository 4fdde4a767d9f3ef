//! `pthread_cancel`: a thread inside of this library cannot be cancelled, since it would unwind
//! through what is not made for it.

use libc::c_int;

/// PTHREAD_CANCEL_DISABLE of <pthread.h>, of glibc as of musl.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// While it lives, a request to cancel this thread waits.
pub struct Uncancellable(c_int);

impl Uncancellable {
    pub fn new() -> Self {
        let mut before = DISABLE;
        // SAFETY: a number is written to `before`, which is live for the call.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancellable {
    fn drop(&mut self) {
        let mut disabled = DISABLE;
        // SAFETY: as in `new`. It is no cancellation point by itself.
        unsafe { pthread_setcancelstate(self.0, &raw mut disabled) };
    }
}
