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
