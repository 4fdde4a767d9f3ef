//! A number for each thread: those who share something in parts take parts in turn.

use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static NUMBER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// The number of the thread that calls: 0 for the first, and so on.
pub(crate) fn number() -> usize {
    NUMBER.with(|number| *number)
}
