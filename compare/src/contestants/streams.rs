//! What the rows of streams have in common: a timer or small reads beside them, and when a pass
//! through the file ends.

use crate::job::Job;
use crate::offsets::Offsets;
use crate::workload::{Order, Operation};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// What a small read reads.
pub const SMALL: usize = 4 << 10;
/// What the timer waits.
const WAIT: Duration = Duration::from_millis(2);

/// Where a stream is in its file.
#[derive(Default)]
pub struct Pass {
    at: u64,
}

impl Pass {
    /// True where the file is to be read from its beginning. It is not cached then, if it is to be
    /// cold.
    pub async fn begins(&self, job: &'static Job) -> bool {
        if self.at == 0 && job.workload.operation == Operation::Cold {
            let dropped = tokio::task::spawn_blocking(|| drop_cached(job)).await;
            if !matches!(dropped, Ok(Ok(()))) {
                job.fail("the page cache keeps the file".into());
            }
        }
        self.at == 0
    }

    /// A block more was read.
    pub fn read(&mut self, job: &'static Job) {
        self.at += job.workload.block as u64;
        if self.at >= job.size {
            self.at = 0;
        }
    }
}

fn drop_cached(job: &Job) -> io::Result<()> {
    let file = job.open()?;
    // SAFETY: the descriptor is open for the length of the call, which touches no memory of this
    // process.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Waits again and again, and tells how late it was woken.
pub async fn timer(job: &'static Job) {
    while !job.is_over() {
        let due = Instant::now() + WAIT;
        sleep_until(due).await;
        job.beside(due.elapsed());
    }
}

/// Reads a little every now and then, and tells how long that took.
pub async fn small_reads(job: &'static Job, mut read: impl AsyncFnMut(u64) -> io::Result<usize>) {
    let mut offsets = Offsets::new(Order::Random, SMALL as u64, job.size / SMALL as u64, 0, 1);
    while !job.is_over() {
        let begun = Instant::now();
        match read(offsets.next()).await {
            Ok(SMALL) => job.beside(begun.elapsed()),
            Ok(bytes) => job.fail(format!("{bytes} bytes instead of {SMALL}")),
            Err(error) => job.fail(error.to_string()),
        }
        sleep_until(Instant::now() + WAIT).await;
    }
}
