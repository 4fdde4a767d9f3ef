//! Converts the result of an operation to what `File` and the functions of `fs` return.

use super::shard::OpResult;
use super::torn_write::TornWrite;
use ringway_core::device::AtomicWriteUnit;
use ringway_core::op::Vectored;
use ringway_core::{Buffer, Error, File, Reason, Refusal, SpareCapacity, op};
use std::io;

/// The error for an operation that the queue refused.
fn refusal(reason: Reason) -> io::Error {
    match reason {
        Reason::Invalid(text) => io::Error::new(io::ErrorKind::InvalidInput, text),
        _ => io::Error::from_raw_os_error(reason.errno()),
    }
}

/// The error of an operation that failed.
#[cfg(all(target_os = "linux", not(ringway_portable)))]
pub(crate) fn failure(error: Error) -> io::Error {
    error.into()
}

/// The error of an operation that failed. What the system does not have is named.
#[cfg(any(not(target_os = "linux"), ringway_portable))]
pub(crate) fn failure(error: Error) -> io::Error {
    match error.errno() {
        ringway_core::errno::ENOSYS => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{}: this system does not have it", error.opcode()),
        ),
        _ => error.into(),
    }
}

/// The error of every call in a forked child.
pub(crate) fn forked() -> io::Error {
    io::Error::from_raw_os_error(Reason::Forked.errno())
}

/// The error for an invalid argument that is found before the kernel is called.
pub(crate) fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.into())
}

/// The number in a result: bytes transferred, readiness, or 0.
pub(crate) fn number(outcome: OpResult) -> io::Result<u64> {
    match outcome {
        Ok(done) => done.result.map_err(failure),
        Err(refused) => Err(refusal(refused.reason)),
    }
}

/// Success without a value.
pub(crate) fn nothing(outcome: OpResult) -> io::Result<()> {
    number(outcome).map(drop)
}

/// Bytes transferred, and the buffer.
#[inline]
pub(crate) fn transfer(outcome: OpResult) -> (io::Result<usize>, Buffer) {
    let (result, buffer) = match outcome {
        Ok(done) => (done.result.map_err(failure), done.into_buffer()),
        Err(refused) => (Err(refusal(refused.reason)), refused.operation.into_buffer()),
    };
    // In a forked child the operation belongs to the parent, and so does its buffer.
    (result.map(|bytes| bytes as usize), buffer.unwrap_or_else(|| Buffer::from(Vec::new())))
}

/// Whether an untorn write was made, and the buffer. `unit` looks up the sizes of the file's.
pub(crate) fn untorn(
    outcome: OpResult,
    unit: impl FnOnce() -> Option<AtomicWriteUnit>,
) -> (io::Result<()>, Buffer) {
    let refused = |refusal: Refusal| {
        io::Error::new(io::Error::from_raw_os_error(refusal.errno).kind(), refusal)
    };
    let explained = match &outcome {
        Err(push) => match push.reason {
            Reason::Untorn(problem) => Some(refused(problem.refusal(unit()))),
            _ => None,
        },
        Ok(done) => match done.result {
            Err(error) if error.is_torn() => Some(io::Error::other(TornWrite::new())),
            Err(error) => error.untorn_refusal().map(refused),
            Ok(_) => None,
        },
    };
    let (result, buffer) = transfer(outcome);
    (explained.map_or(result.map(drop), Err), buffer)
}

/// Bytes read, and the buffer that has grown by them.
pub(crate) fn spare_transfer(outcome: OpResult) -> (io::Result<usize>, SpareCapacity) {
    let (result, spare) = match outcome {
        Ok(done) => (done.result.map_err(failure), done.into_spare()),
        Err(refused) => (Err(refusal(refused.reason)), refused.operation.into_spare()),
    };
    (result.map(|bytes| bytes as usize), spare.unwrap_or_else(|| SpareCapacity::from(Vec::new())))
}

/// Bytes transferred, and the buffers.
pub(crate) fn vectored(outcome: OpResult) -> (io::Result<usize>, Vec<Buffer>) {
    let (result, buffers) = match outcome {
        Ok(done) => (done.result.map_err(failure), done.into_vectored()),
        Err(refused) => (Err(refusal(refused.reason)), refused.operation.into_vectored()),
    };
    (result.map(|bytes| bytes as usize), buffers.map(Vectored::into_buffers).unwrap_or_default())
}

/// The opened file.
pub(crate) fn opened(outcome: OpResult) -> io::Result<File> {
    match outcome {
        Ok(done) => done.into_file().map_err(failure),
        Err(refused) => Err(refusal(refused.reason)),
    }
}

/// The metadata from `statx(2)`.
pub(crate) fn metadata(outcome: OpResult) -> io::Result<op::Metadata> {
    match outcome {
        Ok(done) => done.into_metadata().map_err(failure),
        Err(refused) => Err(refusal(refused.reason)),
    }
}
