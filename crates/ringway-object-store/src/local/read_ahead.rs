//! [`ReadAhead`]: how the stream of an object is read.

/// How the stream of an object is read: in one piece, or in chunks that are read ahead.
///
/// A range of at most [`one_chunk`](Self::one_chunk) bytes is one chunk, which
/// `GetResult::bytes` returns without a copy. A longer one is read in chunks, and when they come
/// from the device, the following ones are requested before they are needed. A stream holds at most
/// [`chunk`](Self::chunk) times ([`depth`](Self::depth) + 1) bytes, not counting chunks that its
/// consumer keeps. Chunks in the page cache are copied when they are needed.
///
/// ```
/// use ringway_object_store::ReadAhead;
/// let deep = ReadAhead::default().chunk(1 << 20).depth(16);
/// # let _ = deep;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    pub(crate) one_chunk: u64,
    pub(crate) chunk: usize,
    pub(crate) depth: usize,
}

impl Default for ReadAhead {
    /// One chunk up to 8 MiB; above that chunks of 256 KiB, 4 of them ahead.
    fn default() -> Self {
        // DataFusion splits files of rows at 10 MiB, and those parts are to be streamed.
        Self { one_chunk: 8 << 20, chunk: 256 << 10, depth: 4 }
    }
}

impl ReadAhead {
    /// The longest range that is one chunk, in bytes. With 0, every range is read in chunks.
    pub fn one_chunk(self, bytes: u64) -> Self {
        Self { one_chunk: bytes, ..self }
    }

    /// Bytes of each chunk of a longer range, clamped to 1 to 1 GiB.
    pub fn chunk(self, bytes: usize) -> Self {
        Self { chunk: bytes, ..self }
    }

    /// How many chunks are read ahead of the current one, at most 256. With 0, each chunk is read
    /// when it is needed.
    pub fn depth(self, chunks: usize) -> Self {
        Self { depth: chunks, ..self }
    }
}
