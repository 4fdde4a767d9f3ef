//! ringway's log with group commit, for the row `puts`.

use super::{Contestant, RINGWAY_LOG};
use crate::job::Job;
use crate::reader::Reader;
use ringway::LogWriter;
use ringway::fs::OpenOptions;
use ringway_measure::rounds::Turn;
use std::io;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::RwLock;

/// Rounds of all tasks that fit behind the record at which the log starts again.
const ROUNDS_LEFT: usize = 16;

pub const LOG: Contestant = Contestant::new(
    RINGWAY_LOG,
    "multi-thread tokio; ringway::LogWriter::append; default settings",
    run,
);

fn run(job: &'static Job) -> anyhow::Result<Turn> {
    let runtime = Runtime::new()?;
    let mut options = OpenOptions::new();
    let file = runtime.block_on(options.read(true).write(true).open(&job.file))?;
    let reserve = (ROUNDS_LEFT * job.workload.buffers()) as u64;
    let log = RwLock::new(LogWriter::new(file, 0)?);
    let log = Arc::new(Log { log, last: job.size - reserve });
    for reader in Reader::all(job) {
        runtime.spawn(puts(reader, log.clone()));
    }
    job.measure()
}

/// A log that starts again before the end of its preallocated file. A log that grows would measure
/// the allocation of space, which the other contestants do not need.
struct Log {
    log: RwLock<LogWriter>,
    /// The offset of the record after which the log starts again. Records have one size, so each
    /// pass has exactly one such record.
    last: u64,
}

impl Log {
    async fn append(&self, record: Vec<u8>) -> io::Result<()> {
        let offset = self.log.read().await.append(record).await?;
        if offset == self.last {
            // The lock waits for all appends in flight: a file may have only one writer.
            let mut log = self.log.write().await;
            *log = LogWriter::new(log.file().clone(), 0)?;
        }
        Ok(())
    }
}

/// [`LogWriter::append`] does not return the record, so each one is allocated.
async fn puts(mut reader: Reader, log: Arc<Log>) {
    let block = reader.job().workload.block;
    while reader.begin() {
        let result = log.append(vec![1; block]).await;
        reader.end(result.map(|()| block));
    }
}
