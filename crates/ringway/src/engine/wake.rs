//! Waking futures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes all of them, even if one panics: one task must not harm another.
pub(crate) fn wake_all(wakers: &mut Vec<Waker>) {
    for waker in wakers.drain(..) {
        // The panic hook has already reported the panic.
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}
