//! The entries of a ring: what a job becomes in the submission queue, and what its completion
//! means.

use crate::backend::{EventKind, Job};
use crate::op::SqeContext;
use crate::slots::Token;
use io_uring::squeue::{Entry, Flags};
use io_uring::{cqueue, squeue};

/// The kind of a ring's entries, and what such a ring remembers of those in flight.
pub(crate) trait Entries: Default + Send + 'static {
    /// A submission queue entry.
    type Sqe: squeue::EntryMarker + Send;
    /// A completion queue entry.
    type Cqe: cqueue::EntryMarker;

    /// The entry for a job that begins; `None` if there is none, or if the kernel does not support
    /// it.
    fn begin(
        &mut self,
        job: &Job,
        context: &SqeContext,
        is_supported: impl Fn(&Entry) -> bool,
    ) -> Option<Self::Sqe>;

    /// The event for the kernel's result of a job.
    fn end(&mut self, token: Token, result: i32) -> EventKind;

    /// Adds flags to an entry.
    fn with_flags(entry: Self::Sqe, flags: Flags) -> Self::Sqe;
}

/// The usual ones: entries of 64 bytes, completions of 16.
#[derive(Default)]
pub(crate) struct UsualEntries;

impl Entries for UsualEntries {
    type Sqe = Entry;
    type Cqe = cqueue::Entry;

    #[inline(always)]
    fn begin(
        &mut self,
        job: &Job,
        context: &SqeContext,
        is_supported: impl Fn(&Entry) -> bool,
    ) -> Option<Entry> {
        job.raw.sqe(context).filter(is_supported)
    }

    #[inline(always)]
    fn end(&mut self, _: Token, result: i32) -> EventKind {
        EventKind::Result(i64::from(result))
    }

    #[inline(always)]
    fn with_flags(entry: Entry, flags: Flags) -> Entry {
        entry.flags(flags)
    }
}
