//! The runtimes that run one executor on each core: their threads, and the tasks on each.

use super::{Contestant, tasks};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Operation, Workload};
use ringway_measure::rounds::Turn;
use std::io;
use std::pin::Pin;
use std::thread;

/// The reason why such a runtime takes no part in a row.
pub fn leaves_out(workload: &Workload) -> Option<String> {
    (workload.operation == Operation::Sum)
        .then(|| "this row compares readers with tokio's AsyncRead".into())
}

/// Runs `body` on each thread with the thread's number and its share of the readers, and measures.
///
/// The processors limit reads of cached data, so there is a thread for each core, as all of these
/// runtimes recommend. The disk limits direct reads, so one thread suffices, and a second would
/// only cost CPU time.
pub fn measure(
    job: &'static Job,
    body: fn(usize, &'static Job, Vec<Reader>),
) -> anyhow::Result<Turn> {
    let cores = thread::available_parallelism()?.get();
    let threads = if job.workload.direct { 1 } else { cores.min(job.workload.readers) };
    let mut shares: Vec<Vec<Reader>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, reader) in Reader::all(job).into_iter().enumerate() {
        shares[index % threads].push(reader);
    }
    for (number, share) in shares.into_iter().enumerate() {
        thread::spawn(move || body(number, job, share));
    }
    job.measure()
}

/// The executor of a thread, and its files.
pub trait Runtime {
    type File: Clone + 'static;

    /// Runs the future on a new executor of this thread.
    fn block_on(future: impl Future<Output = ()>);

    /// Opens the file of the job.
    async fn open(job: &Job) -> io::Result<Self::File>;

    /// Starts a task. The future waits for it; `None` if the runtime is shutting down.
    fn spawn<T: 'static>(
        task: impl Future<Output = T> + 'static,
    ) -> impl Future<Output = Option<T>> + 'static;

    /// Reads one block, or writes and syncs it.
    async fn operate(
        file: &mut Self::File,
        operation: Operation,
        buffer: Buffer,
        offset: u64,
    ) -> (io::Result<usize>, Buffer);
}

/// A runtime with such executors.
pub const fn contestant<R: Runtime>(name: &'static str, about: &'static str) -> Contestant {
    let run = |job| measure(job, |_, job, readers| R::block_on(run_readers::<R>(job, readers)));
    Contestant { leaves_out, is_runtime: true, ..Contestant::new(name, about, run) }
}

/// Runs each reader in a task, and waits for them.
async fn run_readers<R: Runtime>(job: &'static Job, readers: Vec<Reader>) {
    let Workload { operation, block, .. } = job.workload;
    let file = R::open(job).await.expect("the parent has opened the file");
    let mut tasks: Vec<Pin<Box<dyn Future<Output = Option<()>>>>> = Vec::new();
    for reader in readers {
        let mut file = file.clone();
        if operation == Operation::Ranges {
            let start = move |buffer, offset| {
                let mut file = file.clone();
                R::spawn(async move { R::operate(&mut file, operation, buffer, offset).await })
            };
            tasks.push(Box::pin(R::spawn(tasks::ranges(reader, start))));
        } else {
            let operate = async move |buffer, offset| {
                Some(R::operate(&mut file, operation, buffer, offset).await)
            };
            let blocks = tasks::blocks(reader, Buffer::new(block), operate);
            tasks.push(Box::pin(R::spawn(blocks)));
        }
    }
    for task in tasks {
        task.await.expect("no reader panics");
    }
}
