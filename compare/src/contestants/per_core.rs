//! Threads for the runtimes that have one for each core.

use crate::figures::Figures;
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Workload, Operation};
use std::thread;

/// Why they take no part in a row.
pub fn leaves_out(workload: &Workload) -> Option<String> {
    (workload.operation == Operation::Sum)
        .then(|| "this row compares readers that speak tokio's AsyncRead".into())
}

/// Runs `body` on each thread, with its number and its share of the readers, and measures.
///
/// Processors are what cached data waits for, so each has a thread then, with its share of the
/// tasks, as all of these runtimes recommend. A disk keeps one thread waiting: a second would have
/// nothing to do but to cost.
pub fn measure(
    job: &'static Job,
    body: fn(usize, &'static Job, Vec<Reader>),
) -> anyhow::Result<Figures> {
    let cores = thread::available_parallelism()?.get();
    let threads = if job.workload.direct { 1 } else { cores.min(job.workload.readers) };
    let mut shares: Vec<Vec<Reader>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, reader) in job.readers().into_iter().enumerate() {
        shares[index % threads].push(reader);
    }
    for (number, share) in shares.into_iter().enumerate() {
        thread::spawn(move || body(number, job, share));
    }
    job.measure()
}
