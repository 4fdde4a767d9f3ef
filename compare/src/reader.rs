//! One reader: the part of the workload that one task, thread or slot does.

use crate::job::Job;
use crate::tally::Tally;
use crate::workload::Workload;
use ringway_measure::clock;
use ringway_measure::offsets::{Offsets, Order, Region};
use ringway_measure::random::{Random, mix};
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
    /// All readers of the job's workload.
    pub fn all(job: &'static Job) -> Vec<Self> {
        Self::at_most(job, job.workload.readers)
    }

    /// At most `most` readers, for a contestant that limits them.
    pub fn at_most(job: &'static Job, most: usize) -> Vec<Self> {
        let Workload { order, block, readers, .. } = job.workload;
        let readers = readers.min(most);
        job.expect_readers(readers);
        let region = [Region { start: 0, len: job.size }];
        let reader = |index| {
            let (seed, start) = (mix(index as u64 + 1), index as f64 / readers as f64);
            Self {
                job,
                tally: &job.tallies[index],
                offsets: Offsets::new(order, block as u64, &region, seed, start),
                random: Random::new(!seed),
                blocks: job.size / block as u64,
                has_begun: false,
                left: job.operations.map_or(u64::MAX, |all| all.div_ceil(readers as u64)),
                since: None,
            }
        };
        (0..readers).map(reader).collect()
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
            !workload.operation.has_timed_task() && (waits || self.random.draw().is_multiple_of(8));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::job_of;
    use crate::workload::Operation;

    #[test]
    fn sequential_readers_start_at_parts_of_their_own_and_wrap_around() {
        let workload = Workload { block: 10, ..Workload::streams(Operation::Timer, 2) };
        let mut second = Reader::all(job_of(workload, 40)).remove(1);
        assert_eq!([second.offset(), second.offset(), second.offset()], [20, 30, 0]);
    }

    #[test]
    fn random_offsets_reach_every_block_and_none_beyond() {
        let mut reader = Reader::all(job_of(Workload::reads(10, true, 1), 40)).remove(0);
        let mut seen = [false; 4];
        for _ in 0..100 {
            seen[(reader.offset() / 10) as usize] = true;
        }
        assert_eq!(seen, [true; 4]);
    }
}
