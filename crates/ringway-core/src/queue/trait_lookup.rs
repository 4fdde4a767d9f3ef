//! Which files are looked at before a job on them is submitted.

use super::options::{BackendKind, Explanation};
use crate::file::{File, FileKind, Traits};
use crate::op::{CURRENT_POSITION, Raw, is_for_worker};
use crate::refusal::Feature;

/// The traits of a file that was not checked.
const UNKNOWN: Traits = Traits { kind: FileKind::Unknown, direct: false };

/// Which files are checked before a job on them is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraitLookup {
    /// None: a ring accepts every file. Exceptions are direct transfers at the current position,
    /// unless they are said to be those of sockets, and long or durable buffered transfers.
    None,
    /// Files of safe operations. The threads check bare descriptors themselves.
    Files,
    /// Files and bare descriptors: whether they are open for direct I/O.
    Descriptors,
}

impl TraitLookup {
    pub(super) fn for_backend(explanation: &Explanation) -> Self {
        match explanation.backend {
            BackendKind::Uring
                if !explanation
                    .available
                    .iter()
                    .any(|one| matches!(one, Feature::IoPoll | Feature::Passthrough)) =>
            {
                Self::None
            }
            #[cfg(feature = "testing")]
            BackendKind::Null => Self::None,
            BackendKind::Threads => Self::Files,
            BackendKind::Uring | BackendKind::Kaio => Self::Descriptors,
        }
    }

    #[inline]
    pub(super) fn traits(self, file: Option<&File>, raw: &Raw, socket: bool) -> Traits {
        match (self, file) {
            // The ring refuses it if the file is not a socket, so no facts are needed.
            _ if socket => UNKNOWN,
            (Self::None, _) if raw.offset() != Some(CURRENT_POSITION) && !is_for_worker(raw) => {
                UNKNOWN
            }
            (Self::Files, None) => UNKNOWN,
            (_, Some(file)) => file.traits(),
            (Self::None | Self::Descriptors, None) => raw.fd().map_or(UNKNOWN, Traits::of),
        }
    }
}
