//! Ctrl-C while a bench measures: the first one ends the runs, and the finished ones are reported.
//! A second one ends the command at once, as Ctrl-C does before and after the runs.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: libc::c_int) {
    IS_INTERRUPTED.store(true, Ordering::Relaxed);
    set(libc::SIG_DFL);
}

/// Whether a SIGINT was caught.
pub fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}

/// Catches one SIGINT, until it is dropped.
pub struct Catch {
    before: libc::sighandler_t,
}

impl Catch {
    /// Starts to catch. A command that was started with SIGINT ignored keeps ignoring it.
    pub fn new() -> Self {
        let before = set(interrupt as *const () as usize);
        if before == libc::SIG_IGN {
            set(before);
        }
        Self { before }
    }
}

impl Drop for Catch {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// Sets the action of SIGINT and returns the one before. System calls that a handler interrupts are
/// restarted.
fn set(action: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the handler makes async-signal-safe calls only: it stores to an atomic, and calls
    // this function.
    unsafe { libc::signal(libc::SIGINT, action) }
}
