//! The answer to one operation, with what it hands back.

use super::OpId;
use crate::buffer::{Buffer, SpareCapacity};
use crate::error::Error;
use crate::file::File;
use crate::op::{Held, Metadata, Opcode, Vectored};

/// The answer to one operation: its result, and the buffer that it owned.
#[derive(Debug)]
pub struct Completion {
    /// What the push returned.
    pub id: OpId,
    /// The caller's own number.
    pub user_data: u64,
    /// Which operation it was.
    pub opcode: Opcode,
    /// Bytes for transfers, readiness for a poll, else 0; or why it failed.
    pub result: Result<u64, Error>,
    pub(super) held: Held,
    pub(super) opened: Option<File>,
}

impl Completion {
    /// The buffer of a read or a write, whatever the result.
    #[inline]
    pub fn into_buffer(self) -> Option<Buffer> {
        self.held.into_buffer()
    }

    /// The buffer of a read into spare capacity: it has grown by what was read, or is as it was
    /// after an error.
    pub fn into_spare(self) -> Option<SpareCapacity> {
        self.held.into_spare()
    }

    /// The buffers of a vectored read or write, whatever the result.
    pub fn into_vectored(self) -> Option<Vectored> {
        self.held.into_vectored()
    }

    /// The file of an open, or why there is none. For any other operation, its error, or EINVAL.
    pub fn into_file(self) -> Result<File, Error> {
        let none = Error::new(libc::EINVAL, self.opcode);
        self.result.and(self.opened.ok_or(none))
    }

    /// The answer of a statx, or why there is none. For any other operation, its error, or EINVAL.
    pub fn into_metadata(self) -> Result<Metadata, Error> {
        let none = Error::new(libc::EINVAL, self.opcode);
        self.result.and(match self.held {
            Held::Statx { metadata, .. } => Ok(*metadata),
            _ => Err(none),
        })
    }
}
