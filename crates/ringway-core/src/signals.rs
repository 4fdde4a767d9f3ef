//! Starting threads that take no signals: signals are for the program's own threads.

#[cfg(unix)]
use std::{mem, ptr};

/// Runs `start`, which should start a thread, with all signals blocked, since a thread inherits the
/// signal mask of the thread that starts it. The caller's own mask is restored before this returns.
///
/// ```
/// let thread = ringway_core::with_signals_blocked(|| std::thread::spawn(|| 1));
/// assert_eq!(thread.join().unwrap(), 1);
/// ```
pub fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    #[cfg(unix)]
    let _restore = block_all();
    start()
}

/// Blocks all signals until the result is dropped.
#[cfg(unix)]
fn block_all() -> impl Drop {
    /// Restores the mask, even if `start` panics.
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the call below filled the set in.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }
    // SAFETY: a signal set is plain bits; both are filled in before they are used.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: both sets live on this stack during the calls.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    Restore(before)
}
