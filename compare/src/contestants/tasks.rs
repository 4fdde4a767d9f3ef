//! What a task does, whoever runs it. Where an operation's future says None, the runtime is going, and the task ends.

use crate::buffer::Buffer;
use crate::reader::Reader;
use crate::shape::RANGES;
use std::io;

/// A result, and the buffer back.
pub type Done<B> = Option<(io::Result<usize>, B)>;

/// One block after the other.
pub async fn blocks<B>(mut reader: Reader, mut buffer: B, mut operate: impl AsyncFnMut(B, u64) -> Done<B>) {
    while reader.begin() {
        let Some((result, back)) = operate(buffer, reader.offset()).await else { return };
        buffer = back;
        reader.end(result);
    }
}

/// One request for many ranges after the other, of as many tasks: `start` begins a read at once, and its future waits for it.
pub async fn ranges<T>(mut reader: Reader, mut start: impl FnMut(Buffer, u64) -> T)
where
    T: Future<Output = Done<Buffer>>,
{
    let block = reader.job().shape.block;
    let mut buffers: Vec<Buffer> = (0..RANGES).map(|_| Buffer::new(block)).collect();
    while reader.begin() {
        let reads: Vec<T> = buffers.drain(..).map(|buffer| start(buffer, reader.offset())).collect();
        let mut result = Ok(block);
        for read in reads {
            let Some((of_one, buffer)) = read.await else { return };
            buffers.push(buffer);
            result = result.and(of_one);
        }
        reader.end(result);
    }
}
