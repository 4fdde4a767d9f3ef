//! The row `sum`: adds up and checks the bytes that a contestant reads.

use crate::job::Job;
use crate::reader::Reader;
use std::fs::File;
use std::io::{self, Read};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt};

/// The sum of all bytes.
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

/// Checks that each pass through the file has the right sum.
pub struct Check {
    job: &'static Job,
    expected: u64,
    sum: u64,
    bytes: u64,
}

impl Check {
    /// Reads the file once, which also loads it into the page cache.
    pub fn new(job: &'static Job) -> io::Result<Self> {
        let mut file = File::open(&job.file)?;
        let mut buffer = vec![0; job.workload.block];
        let mut expected = 0;
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(Self { job, expected, sum: 0, bytes: 0 }),
                bytes => expected += sum(&buffer[..bytes]),
            }
        }
    }

    /// Adds bytes. Returns true at the end of the file, when the next pass must begin.
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        self.sum += sum(bytes);
        self.bytes += bytes.len() as u64;
        if self.bytes < self.job.size {
            return false;
        }
        if self.sum != self.expected {
            self.job.fail(format!("the sum is {} instead of {}", self.sum, self.expected));
        }
        (self.sum, self.bytes) = (0, 0);
        true
    }
}

/// Reads the file repeatedly through tokio's traits.
pub async fn passes(
    mut reader: Reader,
    mut file: impl AsyncRead + AsyncSeek + Unpin,
    mut check: Check,
) {
    let mut buffer = vec![0; reader.job().workload.block];
    while reader.begin() {
        let result = file.read_exact(&mut buffer).await;
        let result = if check.add(&buffer) { file.rewind().await.and(result) } else { result };
        reader.end(result);
    }
}
