//! The atomics and locks of what is handed over between threads: those of the standard library, or
//! loom's when that checks them.

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
