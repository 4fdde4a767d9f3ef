//! One reader: the part of the workload that one task, thread or slot does.

use crate::job::Job;
use crate::tally::Tally;
use ringway_measure::clock;
use ringway_measure::offsets::{Offsets, Order};
use ringway_measure::random::Random;
use std::io;

/// Chooses offsets, counts operations and times them.
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
    random: Random,
    /// Blocks of the file.
    blocks: u64,
    has_begun: bool,
    /// Operations that are left.
    left: u64,
    /// When the current operation began, if it is timed.
    since: Option<u64>,
}

impl Reader {
    /// A reader that ends after `left` operations, or earlier when the time is over.
    pub fn new(
        job: &'static Job,
        tally: &'static Tally,
        offsets: Offsets,
        random: Random,
        left: u64,
    ) -> Self {
        let blocks = job.size / job.workload.block as u64;
        Self { job, tally, offsets, random, blocks, has_begun: false, left, since: None }
    }

    pub fn job(&self) -> &'static Job {
        self.job
    }

    pub fn tally(&self) -> &'static Tally {
        self.tally
    }

    /// Begins an operation; false if the reader must stop.
    pub fn begin(&mut self) -> bool {
        // Without a disk, a read takes hardly longer than reading the clock twice, so only one in
        // eight is timed.
        let workload = self.job.workload;
        let waits = workload.direct && !workload.operation.is_null();
        let is_timed =
            !workload.operation.is_stream() && (waits || self.random.draw().is_multiple_of(8));
        self.since = is_timed.then(clock::now);
        self.begin_many(1)
    }

    /// Begins several operations that are not timed; false if the reader must stop.
    pub fn begin_many(&mut self, operations: u64) -> bool {
        if !self.has_begun {
            self.has_begun = true;
            self.job.reader_has_begun();
        }
        if self.job.is_over() {
            return false;
        }
        let Some(left) = self.left.checked_sub(operations) else {
            self.job.reader_has_ended();
            return false;
        };
        self.left = left;
        true
    }

    /// The offset of the next read or write.
    pub fn offset(&mut self) -> u64 {
        let block = self.job.workload.block as u64;
        match self.job.workload.order {
            // `Offsets` would add a tenth to the instructions of the row `null` with `queue`.
            Order::Random => self.random.below(self.blocks) * block,
            _ => self.offsets.advance(false, |_| block).offset,
        }
    }

    /// Counts several operations that were not timed.
    pub fn end_many(&mut self, operations: u64) {
        if self.job.is_measuring() {
            self.tally.count(operations);
        }
    }

    /// Ends an operation. Anything but one whole block fails the measurement.
    pub fn end(&mut self, result: io::Result<usize>) {
        let block = self.job.workload.block;
        match result {
            Ok(bytes) if bytes == block => self.count(),
            Ok(bytes) => self.job.fail(format!("{bytes} bytes instead of {block}")),
            Err(error) => self.job.fail(error.to_string()),
        }
    }

    fn count(&self) {
        if self.job.is_measuring() {
            self.tally.count(1);
            if let Some(since) = self.since {
                self.tally.record_latency(clock::now() - since);
            }
        }
    }
}
