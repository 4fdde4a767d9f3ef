//! What a task does, whoever runs it. Where an operation's future says None, the runtime is going, and the task ends.

use crate::buffer::Buffer;
use crate::job::Job;
use crate::reader::Reader;
use crate::shape::{RANGES, Work};
use std::io;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long a busy worker computes at a time.
const COMPUTING: Duration = Duration::from_millis(20);

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

/// Starts a reader, where the row has it run.
pub fn start(runtime: &Runtime, job: &'static Job, reader: impl Future<Output = ()> + Send + 'static) {
    if job.shape.work.is_busy() {
        runtime.spawn(compute(job));
    }
    if job.shape.work == Work::BlockOn {
        let handle = runtime.handle().clone();
        std::thread::spawn(move || handle.block_on(reader));
    } else {
        runtime.spawn(reader);
    }
}

/// Keeps a worker busy.
async fn compute(job: &'static Job) {
    while !job.is_over() {
        let until = Instant::now() + COMPUTING;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
