//! Waiting for lockable memory: the kernel gives that of a closed ring back some milliseconds
//! later, so a process that makes rings as fast as others are closed meets its limit for a moment.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long to wait in total.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
const WAIT_STEP: Duration = Duration::from_millis(2);

/// After a wait in vain, the next calls do not wait for so long: the limit is simply too low.
const WITHOUT_HOPE: Duration = Duration::from_secs(1);

/// When a wait was last in vain.
static IN_VAIN: Mutex<Option<Instant>> = Mutex::new(None);

/// Calls `make`, again for a while after ENOMEM.
pub(super) fn wait_for<T>(make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let lacks_memory =
        |made: &io::Result<T>| made.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ENOMEM));
    let mut made = make();
    if !lacks_memory(&made) || is_hopeless() {
        return made;
    }
    let until = Instant::now() + LONGEST_WAIT;
    while lacks_memory(&made) && Instant::now() < until {
        std::thread::sleep(WAIT_STEP);
        made = make();
    }
    if lacks_memory(&made)
        && let Ok(mut in_vain) = IN_VAIN.try_lock()
    {
        *in_vain = Some(Instant::now());
    }
    made
}

/// (In a forked child the lock may be held for ever: then nothing is known.)
fn is_hopeless() -> bool {
    let last = IN_VAIN.try_lock().ok().and_then(|in_vain| *in_vain);
    last.is_some_and(|last| last.elapsed() < WITHOUT_HOPE)
}
