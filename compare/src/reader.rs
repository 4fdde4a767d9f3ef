//! One task's, thread's or slot's part of the work.

use crate::job::Job;
use crate::offsets::Offsets;
use crate::tally::Tally;
use std::io;
use std::time::Instant;

/// Says where to read, and counts.
///
/// ```text
/// while reader.begin() {
///     let result = file.read_at(&mut buffer, reader.offset());
///     reader.end(result);
/// }
/// ```
#[derive(Debug)]
pub struct Reader {
    job: &'static Job,
    tally: &'static Tally,
    offsets: Offsets,
    begun: bool,
    since: Option<Instant>,
}

impl Reader {
    pub fn new(job: &'static Job, tally: &'static Tally, offsets: Offsets) -> Self {
        Self { job, tally, offsets, begun: false, since: None }
    }

    pub fn job(&self) -> &'static Job {
        self.job
    }

    /// Begins an operation, unless it is time to stop.
    pub fn begin(&mut self) -> bool {
        if !self.begun {
            self.begun = true;
            self.job.one_more_begins();
        }
        // A cached read takes not much longer than looking at the clock twice: then one in eight is looked at.
        let shape = self.job.shape;
        let timed = !shape.work.is_stream() && (shape.direct || self.offsets.draw().is_multiple_of(8));
        self.since = timed.then(Instant::now);
        !self.job.is_over()
    }

    /// Where it reads or writes.
    pub fn offset(&mut self) -> u64 {
        self.offsets.next()
    }

    /// The operation is done: one block, or it failed.
    pub fn end(&mut self, result: io::Result<usize>) {
        match result {
            Ok(bytes) if bytes == self.job.shape.block => self.count(),
            Ok(bytes) => self.job.fail(format!("{bytes} bytes instead of {}", self.job.shape.block)),
            Err(error) => self.job.fail(error.to_string()),
        }
    }

    fn count(&self) {
        if self.job.is_measuring() {
            self.tally.count(self.since.map(|since| since.elapsed().as_nanos() as u64));
        }
    }
}
