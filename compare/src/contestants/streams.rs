//! The rows `streams`, for every contestant: the timer or the small reads next to the streams, and
//! the position of a stream in its file.

use crate::job::Job;
use crate::workload::Operation;
use ringway_measure::offsets::{Offsets, Order, Region};
use ringway_measure::scratch;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Bytes of a small read.
pub const SMALL: usize = 4 << 10;
/// How long the timer waits.
const WAIT: Duration = Duration::from_millis(2);

/// The position of a stream in its file.
#[derive(Default)]
pub struct Pass {
    at: u64,
}

impl Pass {
    /// Returns true if the stream must begin at the start of the file. In the row `cold`, it then
    /// drops the file from the page cache.
    pub async fn begins(&self, job: &'static Job) -> bool {
        if self.at == 0 && job.workload.operation == Operation::Cold {
            let drop = tokio::task::spawn_blocking(|| scratch::drop_page_cache(&job.open()?));
            let dropped = drop.await;
            if !matches!(dropped, Ok(Ok(()))) {
                job.fail("the file cannot be dropped from the page cache".into());
            }
        }
        self.at == 0
    }

    /// Counts a block that was read.
    pub fn read(&mut self, job: &'static Job) {
        self.at += job.workload.block as u64;
        if self.at >= job.size {
            self.at = 0;
        }
    }
}

/// Waits repeatedly and records how late it was woken.
pub async fn timer(job: &'static Job) {
    while !job.is_over() {
        let due = Instant::now() + WAIT;
        sleep_until(due).await;
        job.record_latency(due.elapsed());
    }
}

/// Makes a small read every 2 ms and records how long it took.
pub async fn small_reads(job: &'static Job, mut read: impl AsyncFnMut(u64) -> io::Result<usize>) {
    let region = Region { start: 0, len: job.size };
    let mut offsets = Offsets::new(Order::Random, SMALL as u64, &[region], 0, 0.0);
    while !job.is_over() {
        let begun = Instant::now();
        match read(offsets.advance(false, |_| SMALL as u64).offset).await {
            Ok(SMALL) => job.record_latency(begun.elapsed()),
            Ok(bytes) => job.fail(format!("{bytes} bytes instead of {SMALL}")),
            Err(error) => job.fail(error.to_string()),
        }
        sleep_until(Instant::now() + WAIT).await;
    }
}
