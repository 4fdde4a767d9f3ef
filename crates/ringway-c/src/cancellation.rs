//! Defers `pthread_cancel` while a thread is inside this library. Cancellation would otherwise
//! unwind through Rust frames in the middle of changing a queue.

use libc::c_int;

/// `PTHREAD_CANCEL_DISABLE` of <pthread.h>, the same in glibc and musl.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// A guard that defers cancellation of this thread until it is dropped.
pub struct Uncancellable(c_int);

impl Uncancellable {
    pub fn new() -> Self {
        let mut before = DISABLE;
        // SAFETY: the function writes one integer to `before`, which lives through the call.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancellable {
    fn drop(&mut self) {
        let mut previous = DISABLE;
        // SAFETY: as in `new`. pthread_setcancelstate is not itself a cancellation point.
        unsafe { pthread_setcancelstate(self.0, &raw mut previous) };
    }
}
