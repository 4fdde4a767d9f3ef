//! The atomics and locks that threads share state with: those of the standard library, or loom's
//! for the tests in `loom_tests.rs`.

#[cfg(not(ringway_loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

#[cfg(ringway_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use std::sync::PoisonError;

/// Locks a mutex and ignores poisoning: its data is consistent whenever a holder may panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
