//! Completes after a given time.

use super::{Operation, SubmissionForms, syscall_result};
use crate::sys::RawFd;
use crate::sys::libc;
use std::time::Duration;

/// Completes with 0 after `duration`, counted from the submission on the monotonic clock.
///
/// A cancel ends it early with ECANCELED. For a time limit on another operation, see
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

/// A delay.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// The length of the delay.
    pub duration: Duration,
}

impl SubmissionForms for Timeout {
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn call(&self) -> i64 {
        let seconds = i64::try_from(self.duration.as_secs()).unwrap_or(i64::MAX);
        let time =
            libc::timespec { tv_sec: seconds, tv_nsec: i64::from(self.duration.subsec_nanos()) };
        // SAFETY: `time` lives on this stack during the call; a null pointer for the remainder is
        // allowed.
        syscall_result(i64::from(unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) }))
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext};
    use io_uring::{opcode, squeue, types};

    impl LinuxForms for Timeout {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            // SAFETY: `context.data` belongs to this operation's slot and lives as long; the ring's
            // backend guarantees both. No other reference to it exists while the SQE is made.
            let timespec = unsafe {
                // The kernel takes seconds beyond an i64 as negative, which is invalid.
                let seconds = self.duration.as_secs().min(i64::MAX as u64);
                (*context.data).timespec =
                    types::Timespec::new().sec(seconds).nsec(self.duration.subsec_nanos());
                &raw const (*context.data).timespec
            };
            Some(opcode::Timeout::new(timespec).build())
        }
    }
}
