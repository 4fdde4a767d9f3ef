//! Let time pass.

use super::{Operation, SqeContext, SubmissionForms, syscall_result};
use crate::sys::kaio::Iocb;
use io_uring::{opcode, squeue, types};
use std::time::Duration;

/// Answer 0 after `duration`, counted from the submission on the monotonic clock.
///
/// Cancel ends it early with ECANCELED. For an operation with a time limit of its own, see
/// [`Operation::timeout`].
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut queue = Options::new().build()?;
/// queue.push(op::timeout(std::time::Duration::from_millis(1)))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(0));
/// # Ok(()) }
/// ```
pub fn timeout(duration: Duration) -> Operation {
    Operation::new(Timeout { duration })
}

/// Time to pass.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// How long.
    pub duration: Duration,
}

impl SubmissionForms for Timeout {
    fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
        // SAFETY: `context.data` is this operation's own and lives as long as its slot (the ring's
        // backend sees to both); nothing refers to it while the SQE is being made.
        let timespec = unsafe {
            // The kernel takes seconds that do not fit an i64 for negative ones, which are invalid.
            let seconds = self.duration.as_secs().min(i64::MAX as u64);
            (*context.data).timespec =
                types::Timespec::new().sec(seconds).nsec(self.duration.subsec_nanos());
            &raw const (*context.data).timespec
        };
        Some(opcode::Timeout::new(timespec).build())
    }

    fn iocb(&self) -> Option<Iocb> {
        None
    }

    fn call(&self) -> i64 {
        let seconds = i64::try_from(self.duration.as_secs()).unwrap_or(i64::MAX);
        let time =
            libc::timespec { tv_sec: seconds, tv_nsec: i64::from(self.duration.subsec_nanos()) };
        // SAFETY: `time` lives on this stack for the call; a null pointer for the remainder is
        // allowed.
        syscall_result(i64::from(unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) }))
    }
}
