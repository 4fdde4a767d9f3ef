//! Splits a stream of bytes in Arrow's IPC format into messages, and checks what Arrow's decoder
//! would believe: it allocates as many bytes as a damaged length asks for, which ends the process.

use bytes::Bytes;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::ipc::{RecordBatch, root_as_message};
use futures::stream::{Stream, StreamExt};
use std::io;

/// The most bytes of a decompressed buffer, unless it is compressed to less than 1/256, which LZ4
/// cannot do. A batch has some thousand rows.
const MAX_DECOMPRESSED: i64 = 1 << 30;

/// Reads messages from blocks of bytes.
#[derive(Debug)]
pub(crate) struct Messages<S> {
    blocks: S,
    /// What is left of the last block.
    block: Buffer,
    /// How many bytes have not been taken, in `block` and after it.
    left: u64,
}

/// The pieces of a message, which the decoder takes one after the other.
#[derive(Debug)]
pub(crate) enum Message {
    /// The prefix with the length, the metadata, and the body.
    Content([Buffer; 3]),
    /// The prefix that ends a stream. Another stream may follow.
    EndOfStream(Buffer),
}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> Messages<S> {
    /// Takes the blocks, which have `len` bytes together.
    pub(crate) fn new(blocks: S, len: u64) -> Self {
        Self { blocks, block: Buffer::from(Vec::<u8>::new()), left: len }
    }

    /// The next message; `None` at the end.
    ///
    /// # Errors
    ///
    /// Those of the blocks; bytes that are no message.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Message>> {
        if self.left == 0 {
            // An error may be all that comes.
            return self.blocks.next().await.transpose().map(|_| None);
        }
        let prefix = self.take(8).await?;
        let (marker, len) = prefix.split_at(4);
        if marker != [0xff; 4] {
            return Err(invalid("no message begins here"));
        }
        let len = len.first_chunk().map_or(0, |len| u32::from_le_bytes(*len));
        if len == 0 {
            return Ok(Some(Message::EndOfStream(prefix)));
        }
        let metadata = self.take(u64::from(len)).await?;
        let message = root_as_message(&metadata).map_err(|error| invalid(&error.to_string()))?;
        let len = u64::try_from(message.bodyLength()).map_err(|_| invalid("a negative length"))?;
        let body = self.take(len).await?;
        let dictionary = message.header_as_dictionary_batch().and_then(|batch| batch.data());
        if let Some(batch) = message.header_as_record_batch().or(dictionary) {
            check(&batch, &body)?;
        }
        Ok(Some(Message::Content([prefix, metadata, body])))
    }

    /// The next bytes. They are copied if they are in several blocks, or if they are little of one:
    /// a batch keeps its whole block, and operators charge all of it to the memory they may use.
    async fn take(&mut self, len: u64) -> io::Result<Buffer> {
        self.left = self.left.checked_sub(len).ok_or_else(|| invalid("a message is cut"))?;
        let len = usize::try_from(len).map_err(|_| invalid("a message is too long"))?;
        if len <= self.block.len() && len >= self.block.capacity() / 2 {
            let taken = self.block.slice_with_length(0, len);
            self.block.advance(len);
            return Ok(taken);
        }
        let mut taken = Vec::with_capacity(len);
        while taken.len() < len {
            if self.block.is_empty() {
                let next = self.blocks.next().await.transpose()?;
                self.block = next.ok_or_else(|| invalid("a message is cut"))?.into();
            }
            let piece = self.block.len().min(len - taken.len());
            taken.extend_from_slice(&self.block[..piece]);
            self.block.advance(piece);
        }
        Ok(taken.into())
    }
}

/// Checks the lengths of compressed buffers. Each begins with its length when it is decompressed.
fn check(batch: &RecordBatch<'_>, body: &[u8]) -> io::Result<()> {
    let compressed = batch.compression().and_then(|_| batch.buffers());
    for buffer in compressed.into_iter().flatten().filter(|buffer| buffer.length() > 0) {
        let start = usize::try_from(buffer.offset()).ok();
        let bytes = start.and_then(|start| body.get(start..)?.first_chunk::<8>());
        let bytes = bytes.ok_or_else(|| invalid("a buffer is outside of its batch"))?;
        if i64::from_le_bytes(*bytes) > MAX_DECOMPRESSED.max(buffer.length().saturating_mul(256)) {
            return Err(invalid("the length of a buffer is damaged"));
        }
    }
    Ok(())
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
