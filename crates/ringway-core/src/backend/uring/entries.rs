//! The two sizes of a ring's entries: the usual ones, and those that NVMe commands need. The ring
//! itself does not differ.

use crate::backend::Job;
use crate::file::FileKind;
use crate::op::{NvmeCommand, SqeContext};
use io_uring::squeue::{Entry, Entry128, Flags};
use io_uring::{cqueue, squeue};

/// The entries of a ring.
pub(crate) trait Entries: 'static {
    /// A submission queue entry.
    type Sqe: squeue::EntryMarker + Send;
    /// A completion queue entry.
    type Cqe: cqueue::EntryMarker;
    /// Whether the ring takes NVMe commands.
    const PASSTHROUGH: bool;

    /// The NVMe command that the job is, with its entry, and whether it uses the job's registered
    /// buffer; `None` for any other job.
    fn command(job: &Job, context: &SqeContext) -> Option<(NvmeCommand, Self::Sqe, bool)>;

    /// Adds flags to an entry.
    fn with_flags(entry: Self::Sqe, flags: Flags) -> Self::Sqe;
}

/// Entries of 64 bytes, completions of 16.
pub(crate) enum Usual {}

impl Entries for Usual {
    type Sqe = Entry;
    type Cqe = cqueue::Entry;
    const PASSTHROUGH: bool = false;

    #[inline(always)]
    fn command(_: &Job, _: &SqeContext) -> Option<(NvmeCommand, Entry, bool)> {
        None
    }

    #[inline(always)]
    fn with_flags(entry: Entry, flags: Flags) -> Entry {
        entry.flags(flags)
    }
}

/// Entries of 128 bytes, completions of 32 (kernel 5.19).
pub(crate) enum Big {}

impl Entries for Big {
    type Sqe = Entry128;
    type Cqe = cqueue::Entry32;
    const PASSTHROUGH: bool = true;

    fn command(job: &Job, context: &SqeContext) -> Option<(NvmeCommand, Entry128, bool)> {
        let FileKind::Namespace { id, block_shift } = job.file else { return None };
        let command = NvmeCommand::new(&job.raw, id, block_shift)?;
        let (entry, is_fixed) =
            command.sqe(job.raw.fd()?, context.fixed_file, context.fixed_buffer);
        Some((command, entry, is_fixed))
    }

    fn with_flags(entry: Entry128, flags: Flags) -> Entry128 {
        entry.flags(flags)
    }
}
