//! Calls that are made again after EINTR.

use rustix::io::{Errno, Result};

/// How often. A file system may answer it for ever, and then the thread is not to stay in the call.
const MAX_INTERRUPTIONS: u32 = 10;

/// Makes a call, and makes it again after EINTR, as the standard library does with calls that may
/// be repeated.
pub(super) fn uninterrupted<T>(call: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 0..MAX_INTERRUPTIONS {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
    call()
}
