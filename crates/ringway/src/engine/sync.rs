//! The atomics and locks of what is handed over between threads: those of the standard library, or loom's when that checks them.

#[cfg(not(ringway_loom))]
pub(crate) use std::sync::atomic::{AtomicU8, Ordering};

#[cfg(ringway_loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, Ordering};
