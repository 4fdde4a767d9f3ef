//! The completion of an operation: its result, and the buffer or file that it returns.

use super::id::OpId;
use crate::buffer::{Buffer, SpareCapacity};
use crate::error::Error;
use crate::file::File;
use crate::op::{Metadata, Opcode, Resources, Vectored};
use crate::sys::libc;

/// The completion of an operation: its result, and what the operation owned.
#[derive(Debug)]
pub struct Completion {
    /// The id that the push returned.
    pub id: OpId,
    /// The number that the operation was given with
    /// [`Operation::user_data`](crate::Operation::user_data).
    pub user_data: u64,
    /// The opcode of the operation.
    pub opcode: Opcode,
    /// The number of bytes for transfers, the ready events for a poll, otherwise 0; or the error.
    pub result: Result<u64, Error>,
    pub(super) resources: Resources,
    pub(super) opened: Option<File>,
}

impl Completion {
    /// The buffer of a read or a write, also after an error.
    #[inline]
    pub fn into_buffer(self) -> Option<Buffer> {
        self.resources.into_buffer()
    }

    /// The buffer of a read into spare capacity: longer by the bytes read, or unchanged after an
    /// error.
    pub fn into_spare(self) -> Option<SpareCapacity> {
        self.resources.into_spare()
    }

    /// The buffers of a vectored read or write, also after an error.
    pub fn into_vectored(self) -> Option<Vectored> {
        self.resources.into_vectored()
    }

    /// The file of an open, or its error. EINVAL for any other operation that succeeded.
    pub fn into_file(self) -> Result<File, Error> {
        let none = Error::new(libc::EINVAL, self.opcode);
        self.result.and(self.opened.ok_or(none))
    }

    /// The metadata of a statx, or its error. EINVAL for any other operation that succeeded.
    pub fn into_metadata(self) -> Result<Metadata, Error> {
        let none = Error::new(libc::EINVAL, self.opcode);
        self.result.and(match self.resources {
            Resources::Statx { metadata, .. } => Ok(*metadata),
            _ => Err(none),
        })
    }
}
