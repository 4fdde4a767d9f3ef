//! Signals are for the program's own threads: none of ringway's takes any.

use std::mem;
use std::ptr;

/// Runs `start`, which starts a thread, with all signals blocked: a thread inherits the mask of the
/// one that starts it. The caller's own mask is as before when it returns.
///
/// ```
/// let thread = ringway_core::with_signals_blocked(|| std::thread::spawn(|| 1));
/// assert_eq!(thread.join().unwrap(), 1);
/// ```
pub fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    /// Puts a mask back, even when starting panics.
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set was filled in by the call below.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }
    // SAFETY: a signal set is plain bits, which are set before they are used.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: both sets live on this stack for the length of the calls.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let _restore = Restore(before);
    start()
}
