//! Errors: of one operation, of a push, and of making a queue.

use crate::Refusal;
use crate::op::{Opcode, Operation};
use crate::refusal::errno_name;
use std::fmt;
use std::io;

/// An operation failed: the kernel's errno, and of what.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error {
    errno: i32,
    operation: Opcode,
}

impl Error {
    pub(crate) fn new(errno: i32, operation: Opcode) -> Self {
        Self { errno, operation }
    }

    /// errno, as in `errno(3)`.
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// Which operation failed.
    pub fn operation(&self) -> Opcode {
        self.operation
    }

    /// True for an operation that was cancelled: on request, or because the chain before it broke.
    pub fn is_cancelled(&self) -> bool {
        self.errno == libc::ECANCELED
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, io::Error::from_raw_os_error(self.errno))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match errno_name(self.errno) {
            Some(name) => write!(f, "Error({}: {name})", self.operation),
            None => write!(f, "Error({}: errno {})", self.operation, self.errno),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::from_raw_os_error(error.errno)
    }
}

/// Why a push was not taken. Nothing has been submitted; the operations come back with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// As many operations are in flight as the queue allows, or, for a chain, too many for all of
    /// it: reap, and push again. (For a chain that is longer than the queue there never is room:
    /// that is invalid.)
    Full,
    /// The queue has been closed.
    Closed,
    /// The operation cannot be meant as it is; the text says why.
    Invalid(&'static str),
    /// This process is a fork of the one that made the queue.
    Forked,
}

impl Reason {
    /// The errno that a C program would be told: EAGAIN, ESHUTDOWN, EINVAL, ECHILD.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Full => libc::EAGAIN,
            Self::Closed => libc::ESHUTDOWN,
            Self::Invalid(_) => libc::EINVAL,
            Self::Forked => libc::ECHILD,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the queue is full: reap completions, then push again"),
            Self::Closed => f.write_str("the queue is closed"),
            Self::Invalid(text) => f.write_str(text),
            Self::Forked => {
                f.write_str("the queue belongs to the parent process: make one in the child")
            }
        }
    }
}

/// A push that was not taken, with the operations that it was for.
#[derive(Debug)]
pub struct PushError {
    reason: Reason,
    operations: Vec<Operation>,
}

impl PushError {
    pub(crate) fn new(reason: Reason, operations: Vec<Operation>) -> Self {
        Self { reason, operations }
    }

    /// Why it was not taken.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// True when there was no room: reap, and push again.
    pub fn is_full(&self) -> bool {
        self.reason == Reason::Full
    }

    /// The operation (of a chain: the operations), as it was pushed.
    pub fn into_operations(self) -> Vec<Operation> {
        self.operations
    }
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operations.first() {
            Some(first) => write!(f, "{}: {}", first.opcode(), self.reason),
            None => write!(f, "{}", self.reason),
        }
    }
}

impl std::error::Error for PushError {}

impl From<PushError> for io::Error {
    fn from(error: PushError) -> Self {
        io::Error::from_raw_os_error(error.reason.errno())
    }
}

/// A queue could not be made as asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The options contradict each other or mean nothing; the text says why.
    Invalid(String),
    /// A backend was forced and is refused, or something was refused and the options are strict.
    Refused(Refusal),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => f.write_str(text),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {}

impl From<BuildError> for io::Error {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Invalid(text) => io::Error::new(io::ErrorKind::InvalidInput, text),
            BuildError::Refused(refusal) => io::Error::from_raw_os_error(refusal.errno),
        }
    }
}
