//! Group commit without a library: one thread writes all waiting records, then syncs once.

use super::{Contestant, GROUP_COMMIT, tasks};
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::Workload;
use ringway_measure::rounds::Turn;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

pub const GROUP: Contestant = Contestant::new(
    GROUP_COMMIT,
    "multi-thread tokio; one thread appends all waiting records with one write and one sync",
    run,
);

/// A record, and the channel that returns it when it is durable.
type Put = (Vec<u8>, oneshot::Sender<(Result<(), io::ErrorKind>, Vec<u8>)>);

fn run(job: &'static Job) -> anyhow::Result<Turn> {
    let (runtime, file) = (Runtime::new()?, job.open()?);
    let (sender, puts) = mpsc::channel::<Put>();
    thread::spawn(move || commit(job, &file, &puts));
    let Workload { block, .. } = job.workload;
    for reader in Reader::all(job) {
        let sender = sender.clone();
        let operate = async move |record, _| {
            let (done, committed) = oneshot::channel();
            sender.send((record, done)).ok()?;
            let (result, record) = committed.await.ok()?;
            Some((result.map(|()| block).map_err(io::Error::from), record))
        };
        runtime.spawn(tasks::blocks(reader, vec![1; block], operate));
    }
    job.measure()
}

fn commit(job: &Job, file: &File, puts: &mpsc::Receiver<Put>) {
    let mut log = Vec::new();
    while let Ok(first) = puts.recv() {
        let group: Vec<Put> = [first].into_iter().chain(puts.try_iter()).collect();
        log.clear();
        for (record, _) in &group {
            log.extend_from_slice(record);
        }
        let written =
            file.write_all_at(&log, job.append(group.len())).and_then(|()| file.sync_data());
        let result = written.map_err(|error| error.kind());
        for (record, done) in group {
            let _ = done.send((result, record));
        }
    }
}
