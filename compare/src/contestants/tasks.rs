//! The tasks of readers, independent of the runtime. If an operation's future returns `None`, the
//! runtime is shutting down and the task ends.

use crate::buffer::Buffer;
use crate::job::Job;
use crate::reader::Reader;
use crate::tally::{self, Tally};
use crate::workload::{Operation, POLLS_WORKERS, RANGES};
use ringway_measure::clock;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// How long a busy worker computes without a pause.
const COMPUTING: Duration = Duration::from_millis(20);

/// A result and the buffer.
pub type Done<B> = Option<(io::Result<usize>, B)>;

/// A tokio runtime with default settings, or with the row's number of workers.
///
/// It is never dropped: dropping waits for tasks, and would hang if one never yields.
pub fn runtime(job: &Job) -> io::Result<&'static Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    match job.workload.operation {
        Operation::Null { workers } => _ = builder.worker_threads(workers),
        Operation::Polls => _ = builder.worker_threads(POLLS_WORKERS),
        _ => {}
    }
    Ok(Box::leak(Box::new(builder.enable_all().build()?)))
}

/// A tokio runtime on one thread, which it is given here. It is never dropped either.
pub fn current_thread() -> io::Result<&'static Runtime> {
    let runtime: &Runtime =
        Box::leak(Box::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?));
    std::thread::spawn(|| runtime.block_on(std::future::pending::<()>()));
    Ok(runtime)
}

/// Runs the future and times each of its polls.
pub async fn timed<F: Future>(tally: &Tally, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let (begun, cpu) = (clock::now(), clock::thread_cpu());
        let polled = future.as_mut().poll(cx);
        let cpu = clock::thread_cpu().saturating_sub(cpu);
        tally.record_poll(tally::Poll { wall: clock::now() - begun, cpu, ready: 0 });
        polled
    })
    .await
}

/// Reads or writes one block after the other.
pub async fn blocks<B>(
    mut reader: Reader,
    mut buffer: B,
    mut operate: impl AsyncFnMut(B, u64) -> Done<B>,
) {
    while reader.begin() {
        let Some((result, back)) = operate(buffer, reader.offset()).await else { return };
        buffer = back;
        reader.end(result);
    }
}

/// Makes one request for many ranges after the other. `start` begins a read at once and returns a
/// future that waits for it.
pub async fn ranges<T>(mut reader: Reader, mut start: impl FnMut(Buffer, u64) -> T)
where
    T: Future<Output = Done<Buffer>>,
{
    let block = reader.job().workload.block;
    let mut buffers: Vec<Buffer> = (0..RANGES).map(|_| Buffer::new(block)).collect();
    while reader.begin() {
        let reads: Vec<T> =
            buffers.drain(..).map(|buffer| start(buffer, reader.offset())).collect();
        let mut result = Ok(block);
        for read in reads {
            let Some((of_one, buffer)) = read.await else { return };
            buffers.push(buffer);
            result = result.and(of_one);
        }
        reader.end(result);
    }
}

/// Starts a reader in a task, or in `block_on` if the row requires it.
pub fn start(
    runtime: &Runtime,
    job: &'static Job,
    reader: impl Future<Output = ()> + Send + 'static,
) {
    if job.workload.operation.is_busy() {
        runtime.spawn(compute(job));
    }
    if job.workload.operation == Operation::BlockOn {
        let handle = runtime.handle().clone();
        std::thread::spawn(move || handle.block_on(reader));
    } else {
        runtime.spawn(reader);
    }
}

/// Starts a reader whose reads are submitted by a task that computes next, and awaited by a task on
/// another worker.
pub fn submitted<B, F>(
    runtime: &Runtime,
    reader: Reader,
    buffer: B,
    start: impl FnMut(B, u64) -> F + Send + 'static,
) where
    B: Send + 'static,
    F: Future<Output = Done<B>> + Send + 'static,
{
    // One read at a time is sent to the other task, which returns the reader and its buffer.
    let (to_other, begun) = mpsc::unbounded_channel();
    let (to_busy, done) = mpsc::unbounded_channel();
    let _ = to_busy.send((reader, buffer));
    runtime.spawn(begin_and_compute(start, done, to_other));
    runtime.spawn(finish(begun, to_busy));
}

async fn begin_and_compute<B, F>(
    mut start: impl FnMut(B, u64) -> F,
    mut done: mpsc::UnboundedReceiver<(Reader, B)>,
    to_other: mpsc::UnboundedSender<(Reader, Pin<Box<F>>)>,
) where
    F: Future<Output = Done<B>>,
{
    while let Some((mut reader, mut buffer)) = received(&mut done).await {
        loop {
            if !reader.begin() {
                return;
            }
            let mut read = Box::pin(start(buffer, reader.offset()));
            match poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
                Poll::Pending => {
                    if to_other.send((reader, read)).is_err() {
                        return;
                    }
                    spin(COMPUTING);
                    break;
                }
                // Rarely, the device is fast enough to complete the read at once.
                Poll::Ready(Some((result, back))) => {
                    reader.end(result);
                    buffer = back;
                }
                Poll::Ready(None) => return,
            }
        }
    }
}

async fn finish<B, F>(
    mut begun: mpsc::UnboundedReceiver<(Reader, Pin<Box<F>>)>,
    to_busy: mpsc::UnboundedSender<(Reader, B)>,
) where
    F: Future<Output = Done<B>>,
{
    while let Some((mut reader, read)) = received(&mut begun).await {
        let Some((result, buffer)) = read.await else { return };
        reader.end(result);
        if to_busy.send((reader, buffer)).is_err() {
            return;
        }
    }
}

/// Polls the channel in a loop: a woken task would wait behind the one that computes.
async fn received<T>(from: &mut mpsc::UnboundedReceiver<T>) -> Option<T> {
    loop {
        match from.try_recv() {
            Ok(item) => return Some(item),
            Err(mpsc::error::TryRecvError::Empty) => tokio::task::yield_now().await,
            Err(mpsc::error::TryRecvError::Disconnected) => return None,
        }
    }
}

fn spin(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Keeps a worker busy.
async fn compute(job: &'static Job) {
    while !job.is_over() {
        spin(COMPUTING);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
