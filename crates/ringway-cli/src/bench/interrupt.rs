//! Ctrl-C while a bench measures: the first one ends the runs, and the finished ones are reported.
//! A second one ends the command at once, as Ctrl-C does before and after the runs.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: libc::c_int) {
    IS_INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Whether a SIGINT was caught.
pub fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}

/// Catches one SIGINT, until it is dropped.
pub struct Catch {
    before: libc::sigaction,
}

impl Catch {
    /// Starts to catch. A command that was started with SIGINT ignored keeps ignoring it.
    pub fn new() -> Self {
        // The handler is called once: SA_RESETHAND restores the default action before.
        let action = action(interrupt as *const () as usize, libc::SA_RESETHAND | libc::SA_RESTART);
        let before = set(&action);
        if before.sa_sigaction == libc::SIG_IGN {
            set(&before);
        }
        Self { before }
    }
}

impl Drop for Catch {
    fn drop(&mut self) {
        set(&self.before);
    }
}

fn action(handler: libc::sighandler_t, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: every field of a `sigaction` may be zero.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

/// Sets the action of SIGINT and returns the one before.
fn set(new: &libc::sigaction) -> libc::sigaction {
    let mut before = action(libc::SIG_DFL, 0);
    // SAFETY: the call reads and writes two live values. The handler only stores to an atomic,
    // which is async-signal-safe.
    unsafe { libc::sigaction(libc::SIGINT, new, &raw mut before) };
    before
}
