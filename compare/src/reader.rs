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
    /// Operations that it has left, where they are counted.
    left: u64,
    since: Option<Instant>,
}

impl Reader {
    /// One that ends after `left` operations, if the time is not over before.
    pub fn new(job: &'static Job, tally: &'static Tally, offsets: Offsets, left: u64) -> Self {
        Self { job, tally, offsets, begun: false, left, since: None }
    }

    pub fn job(&self) -> &'static Job {
        self.job
    }

    pub fn tally(&self) -> &'static Tally {
        self.tally
    }

    /// Begins an operation, unless it is time to stop.
    pub fn begin(&mut self) -> bool {
        // Without a disk, a read takes hardly longer than two looks at the clock: one in eight is
        // timed.
        let shape = self.job.shape;
        let waits = shape.direct && !shape.work.is_null();
        let timed = !shape.work.is_stream() && (waits || self.offsets.draw().is_multiple_of(8));
        self.since = timed.then(Instant::now);
        self.begin_many(1)
    }

    /// Begins so many operations that are not timed, unless it is time to stop.
    pub fn begin_many(&mut self, operations: u64) -> bool {
        if !self.begun {
            self.begun = true;
            self.job.one_more_begins();
        }
        if self.job.is_over() {
            return false;
        }
        let Some(left) = self.left.checked_sub(operations) else {
            self.job.one_more_ends();
            return false;
        };
        self.left = left;
        true
    }

    /// Where it reads or writes.
    pub fn offset(&mut self) -> u64 {
        self.offsets.next()
    }

    /// So many are done that were not timed.
    pub fn end_many(&mut self, operations: u64) {
        if self.job.is_measuring() {
            self.tally.count_untimed(operations);
        }
    }

    /// The operation is done: one block, or it failed.
    pub fn end(&mut self, result: io::Result<usize>) {
        match result {
            Ok(bytes) if bytes == self.job.shape.block => self.count(),
            Ok(bytes) => {
                self.job.fail(format!("{bytes} bytes instead of {}", self.job.shape.block))
            }
            Err(error) => self.job.fail(error.to_string()),
        }
    }

    fn count(&self) {
        if self.job.is_measuring() {
            self.tally.count(self.since.map(|since| since.elapsed().as_nanos() as u64));
        }
    }
}
