//! The statistics of a queue.

use crate::slots::Counts;

/// Statistics of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Counts of operations.
    pub counts: Counts,
    /// System calls made for I/O, including those of the threads.
    pub system_calls: u64,
    /// Retries after EINTR, EAGAIN, or an unrequested ECANCELED. The program does not see these
    /// results.
    pub retries: u64,
    /// Short transfers that were continued.
    pub continued: u64,
    /// Operations that fell back to threads: the backend does not support them, or submitting them
    /// would have waited.
    pub to_threads: u64,
    /// Stale completions: their operation had already ended.
    pub late: u64,
}
