//! From what became of an operation to what its caller is told.

use crate::engine::OpResult;
use ringway_core::op::Vectored;
use ringway_core::{Buffer, File, Reason, SpareCapacity, op};
use std::io;

/// Why an operation was not taken, as an error that says it.
fn refusal(reason: Reason) -> io::Error {
    match reason {
        Reason::Invalid(text) => io::Error::new(io::ErrorKind::InvalidInput, text),
        _ => io::Error::from_raw_os_error(reason.errno()),
    }
}

/// An invalid argument, found before anything was asked of the kernel.
pub(super) fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.into())
}

/// Bytes transferred, readiness, or 0.
pub(super) fn number(outcome: OpResult) -> io::Result<u64> {
    match outcome {
        Ok(done) => done.result.map_err(io::Error::from),
        Err(refused) => Err(refusal(refused.reason)),
    }
}

/// Nothing but success.
pub(crate) fn nothing(outcome: OpResult) -> io::Result<()> {
    number(outcome).map(drop)
}

/// Bytes transferred, and the buffer.
pub(super) fn transfer(outcome: OpResult) -> (io::Result<usize>, Buffer) {
    let (result, buffer) = match outcome {
        Ok(done) => (done.result.map_err(io::Error::from), done.into_buffer()),
        Err(refused) => (Err(refusal(refused.reason)), refused.operation.into_buffer()),
    };
    // An operation that belongs to the parent process is out of reach, and so is its buffer.
    (result.map(|bytes| bytes as usize), buffer.unwrap_or_else(|| Buffer::from(Vec::new())))
}

/// Bytes read, and the buffer that has grown by them.
pub(super) fn spare_transfer(outcome: OpResult) -> (io::Result<usize>, SpareCapacity) {
    let (result, spare) = match outcome {
        Ok(done) => (done.result.map_err(io::Error::from), done.into_spare()),
        Err(refused) => (Err(refusal(refused.reason)), refused.operation.into_spare()),
    };
    (result.map(|bytes| bytes as usize), spare.unwrap_or_else(|| SpareCapacity::from(Vec::new())))
}

/// Bytes transferred, and the buffers.
pub(super) fn vectored(outcome: OpResult) -> (io::Result<usize>, Vec<Buffer>) {
    let (result, buffers) = match outcome {
        Ok(done) => (done.result.map_err(io::Error::from), done.into_vectored()),
        Err(refused) => (Err(refusal(refused.reason)), refused.operation.into_vectored()),
    };
    (result.map(|bytes| bytes as usize), buffers.map(Vectored::into_buffers).unwrap_or_default())
}

/// The file that was opened.
pub(super) fn opened(outcome: OpResult) -> io::Result<File> {
    match outcome {
        Ok(done) => done.into_file().map_err(io::Error::from),
        Err(refused) => Err(refusal(refused.reason)),
    }
}

/// What statx told.
pub(super) fn metadata(outcome: OpResult) -> io::Result<op::Metadata> {
    match outcome {
        Ok(done) => done.into_metadata().map_err(io::Error::from),
        Err(refused) => Err(refusal(refused.reason)),
    }
}
