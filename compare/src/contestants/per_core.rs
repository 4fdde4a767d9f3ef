//! Threads for the runtimes that run one executor on each core.

use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Operation, Workload};
use ringway_measure::rounds::Turn;
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
