//! A number for each thread, for sharing things between threads in round-robin order.

use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static NUMBER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// The number of the calling thread: 0 for the first one to ask, and so on.
pub(crate) fn number() -> usize {
    NUMBER.with(|number| *number)
}
