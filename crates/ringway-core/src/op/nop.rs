//! Does nothing: for tests, and to measure the cost of the queue.

use super::{Operation, SubmissionForms};
use crate::sys::RawFd;

/// An operation that does nothing and returns 0.
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut queue = Options::new().build()?;
/// queue.push(op::nop())?;
/// let done: Vec<_> = queue.reap(1)?.collect();
/// assert_eq!(done[0].result, Ok(0));
/// # Ok(()) }
/// ```
pub fn nop() -> Operation {
    Operation::new(Nop)
}

/// The operation that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Nop;

impl SubmissionForms for Nop {
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn call(&self) -> i64 {
        0
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext};
    use io_uring::{opcode, squeue};

    impl LinuxForms for Nop {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            Some(opcode::Nop::new().build())
        }
    }
}
