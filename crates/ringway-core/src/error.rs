//! The errors of operations, of pushes and of building a queue. What refusals mean is in `refusal`.

use crate::op::{InvalidOperation, NvmeStatus, Opcode, Operation, UntornProblem};
use crate::refusal::{Feature, errno_name};
use crate::sys::libc;
use crate::{File, Refusal};
use std::fmt;
use std::io;
use std::num::NonZeroU16;

/// An operation failed: its opcode and the kernel's errno.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error {
    errno: i32,
    opcode: Opcode,
    detail: Option<ErrorDetail>,
}

/// What is known of an error besides its errno: an NVMe status of 15 bits, or another cause. (Every
/// slot of a queue has room for one, so it is small.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ErrorDetail(NonZeroU16);

impl ErrorDetail {
    /// A transfer of an NVMe generic device, on a queue without passthrough.
    pub const NEEDS_PASSTHROUGH: Self = Self(NonZeroU16::MAX);
    /// The kernel has refused an untorn write.
    pub const UNTORN_REFUSED: Self = Self(NonZeroU16::new(u16::MAX - 1).unwrap());
    /// The kernel has made a part of an untorn write.
    pub const TORN: Self = Self(NonZeroU16::new(u16::MAX - 2).unwrap());

    /// An NVMe device failed the command with this status.
    pub const fn of_status(status: NvmeStatus) -> Self {
        Self(status.0)
    }

    fn status(self) -> Option<NvmeStatus> {
        match self {
            Self::NEEDS_PASSTHROUGH | Self::UNTORN_REFUSED | Self::TORN => None,
            Self(status) => Some(NvmeStatus(status)),
        }
    }
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEEDS_PASSTHROUGH => f.write_str(
                "an NVMe generic device needs a queue with passthrough; fix: build it with \
                 Options::passthrough (its explanation shows a refusal), or open the block device",
            ),
            Self::UNTORN_REFUSED => f.write_str("the kernel has refused an untorn write"),
            Self::TORN => f.write_str("the kernel has made only a part of an untorn write"),
            Self(status) => NvmeStatus(status).fmt(f),
        }
    }
}

impl Error {
    pub(crate) fn new(errno: i32, opcode: Opcode) -> Self {
        Self { errno, opcode, detail: None }
    }

    pub(crate) fn with_detail(self, detail: Option<ErrorDetail>) -> Self {
        Self { detail, ..self }
    }

    /// The error number, as in `errno(3)`.
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// The opcode of the operation that failed.
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// The status with which an NVMe device failed a command of a queue with
    /// [`passthrough`](crate::Options::passthrough): status code type and status code, and above
    /// them the bits that say whether a retry may help. `None` for all other errors, and for a
    /// sync on a queue that polls for completions.
    pub fn nvme_status(&self) -> Option<u16> {
        self.detail.and_then(ErrorDetail::status).map(|status| status.0.get())
    }

    /// True if the kernel has made only a part of an untorn write
    /// ([`Operation::untorn`](crate::Operation::untorn)): the bytes that follow are the old ones.
    pub fn is_torn(&self) -> bool {
        self.detail == Some(ErrorDetail::TORN)
    }

    /// The reason and the fix, if the kernel has refused an untorn write
    /// ([`Operation::untorn`](crate::Operation::untorn)). Nothing is written then.
    pub fn untorn_refusal(&self) -> Option<Refusal> {
        let is_refused = self.detail == Some(ErrorDetail::UNTORN_REFUSED);
        is_refused.then(|| Refusal::new(Feature::AtomicWrite, self.errno))
    }

    /// True if the operation was cancelled: on request, or because its chain broke before it.
    pub fn is_cancelled(&self) -> bool {
        self.errno == libc::ECANCELED
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { errno, opcode, detail } = *self;
        if let Some(refusal) = self.untorn_refusal() {
            return write!(f, "{opcode}: {refusal}");
        }
        write!(f, "{opcode}: {}", io::Error::from_raw_os_error(errno))?;
        detail.map_or(Ok(()), |detail| write!(f, ": {detail}"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match errno_name(self.errno) {
            Some(name) => write!(f, "Error({}: {name})", self.opcode),
            None => write!(f, "Error({}: errno {})", self.opcode, self.errno),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::from_raw_os_error(error.errno)
    }
}

/// Why a push was rejected. Nothing was submitted, and the operations are returned with the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The queue has no free slot, or too few for the whole chain: reap, then push again. (A chain
    /// longer than the queue is [`Invalid`](Self::Invalid) instead, since it would never fit.)
    Full,
    /// The queue is closed.
    Closed,
    /// The operation is invalid; the text says why.
    Invalid(&'static str),
    /// The write cannot be untorn. The text of the [`PushError`] has the reason and the fix.
    Untorn(UntornProblem),
    /// This process is a fork of the process that made the queue.
    Forked,
}

impl Reason {
    /// The errno that stands for this reason: EAGAIN, ESHUTDOWN, EINVAL, ECHILD, or that of the
    /// [`UntornProblem`].
    pub fn errno(&self) -> i32 {
        match self {
            Self::Full => libc::EAGAIN,
            Self::Closed => libc::ESHUTDOWN,
            Self::Invalid(_) => libc::EINVAL,
            Self::Untorn(problem) => problem.errno(),
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
            Self::Untorn(problem) => problem.refusal(None).fmt(f),
            Self::Forked => {
                f.write_str("the queue belongs to the parent process: make one in the child")
            }
        }
    }
}

/// A rejected push, with the operations that were pushed.
#[derive(Debug)]
pub struct PushError {
    reason: Reason,
    operations: Vec<Operation>,
}

impl PushError {
    pub(crate) fn new(reason: Reason, operations: Vec<Operation>) -> Self {
        Self { reason, operations }
    }

    /// Why the push was rejected.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// True if the queue had too few free slots: reap, then push again.
    pub fn is_full(&self) -> bool {
        self.reason == Reason::Full
    }

    /// The operation (or all operations of the chain), unchanged.
    pub fn into_operations(self) -> Vec<Operation> {
        self.operations
    }
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Reason::Untorn(problem) = self.reason {
            // (Of a chain, any operation may be the one that is refused.)
            let invalid = Some(InvalidOperation::Untorn(problem));
            let refused = self.operations.iter().find(|operation| operation.invalid == invalid);
            let unit = refused
                .and_then(|operation| operation.file.as_ref())
                .and_then(File::atomic_write_unit);
            let opcode = refused.map_or(Opcode::Write, Operation::opcode);
            return write!(f, "{opcode}: {}", problem.refusal(unit));
        }
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

/// A queue could not be built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The options are out of range or contradict each other; the text says why.
    Invalid(String),
    /// The chosen backend was refused, or the options are strict and a feature was refused.
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

impl BuildError {
    /// The errno: EINVAL for invalid options, else that of the refusal.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Invalid(_) => libc::EINVAL,
            Self::Refused(refusal) => refusal.errno,
        }
    }
}

/// Keeps the text, so that [`io::Error::raw_os_error`] is `None`. The errno is that of the
/// [`BuildError`], which [`io::Error::get_ref`] returns.
impl From<BuildError> for io::Error {
    fn from(error: BuildError) -> Self {
        let kind = match &error {
            BuildError::Invalid(_) => io::ErrorKind::InvalidInput,
            BuildError::Refused(refusal) => io::Error::from_raw_os_error(refusal.errno).kind(),
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_error_keeps_its_text_and_errno() {
        let refusal = Refusal::new(Feature::Uring, libc::EACCES);
        let text = refusal.to_string();
        let error = io::Error::from(BuildError::Refused(refusal));
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::PermissionDenied, text));
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<BuildError>());
        assert_eq!(inner.map(BuildError::errno), Some(libc::EACCES));
        let invalid = io::Error::from(BuildError::Invalid("entries".to_owned()));
        assert_eq!(
            (invalid.kind(), &*invalid.to_string()),
            (io::ErrorKind::InvalidInput, "entries")
        );
    }
}
