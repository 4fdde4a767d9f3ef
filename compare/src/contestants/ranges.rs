//! Many ranges as one request, by those who have to make it of as many tasks.

use crate::buffer::Buffer;
use crate::reader::Reader;
use crate::shape::RANGES;
use std::io;

/// `start` begins a read at once, and its future waits for it. None when the runtime is going.
pub async fn by_tasks<T>(mut reader: Reader, mut start: impl FnMut(Buffer, u64) -> T)
where
    T: Future<Output = Option<(io::Result<usize>, Buffer)>>,
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
