//! The workload of one row: what every contestant does in it, and the row's title and words.

use ringway_core::refusal::bytes_text;
use ringway_measure::offsets::Order;
use ringway_measure::text::plural;
use ringway_measure::units::size_text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Ranges in one request of the row `ranges`.
pub const RANGES: usize = 64;
/// The block size of the row `sum`.
pub const SUM_BLOCK: usize = 32 << 10;
/// The block size of streams.
pub const STREAM_BLOCK: usize = 256 << 10;
/// Workers of the row `polls`.
pub const POLLS_WORKERS: usize = 8;

/// What one operation does.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Reads one block.
    Read,
    /// Writes one block, then calls fdatasync.
    Write,
    /// Reads [`RANGES`] scattered blocks as one request.
    Ranges,
    /// Reads the next block of a file from its beginning to its end, and adds up its bytes.
    Sum,
    /// Reads the next block of a cached file that each task streams repeatedly. Latencies are those
    /// of a timer next to the streams.
    Timer,
    /// Like `Timer`; latencies are those of small reads next to the streams.
    Small,
    /// Like `Timer`, with a file that is not cached.
    Cold,
    /// Reads one block in a task, while another worker computes.
    Busy,
    /// Like `Busy`, on a thread in `block_on`.
    BlockOn,
    /// Like `Busy`; the task that submits the read computes next, and a task on another worker
    /// awaits the read.
    Submitted,
    /// Reads one block on the null backend, on a tokio runtime with this many workers.
    Null { workers: usize },
    /// Like `Null` with [`POLLS_WORKERS`] workers; each poll is timed.
    Polls,
    /// Appends one record to a log and makes it durable.
    Puts,
    /// Reads all ranges of a list once, with as many in flight as there are readers.
    Scan { cached: bool },
    /// Reads or overwrites one block on one thread, next to syncs; each poll is timed, and
    /// latencies are those of a timer on the same thread.
    Stall { overwrite: bool },
}

impl Operation {
    /// Whether tasks stream a file, and the timed task runs next to them.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Timer | Self::Small | Self::Cold)
    }

    /// Whether the latencies are those of a timed task next to the readers.
    pub const fn has_timed_task(self) -> bool {
        self.is_stream() || matches!(self, Self::Stall { .. })
    }

    /// Whether a worker computes meanwhile.
    pub const fn is_busy(self) -> bool {
        matches!(self, Self::Busy | Self::BlockOn | Self::Submitted)
    }

    /// Whether no device is read: the null backend completes each operation.
    pub const fn is_null(self) -> bool {
        matches!(self, Self::Null { .. } | Self::Polls)
    }

    /// Whether the file is written.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Puts | Self::Stall { overwrite: true })
    }
}

/// The workload of one row.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Workload {
    pub operation: Operation,
    /// Bytes of an operation.
    pub block: usize,
    pub direct: bool,
    pub readers: usize,
    /// Sequential readers start at different parts of the file.
    pub order: Order,
}

impl Workload {
    /// Random reads.
    pub const fn reads(block: usize, direct: bool, readers: usize) -> Self {
        Self { operation: Operation::Read, block, direct, readers, order: Order::Random }
    }

    /// Requests for many scattered blocks.
    pub const fn ranges() -> Self {
        Self { operation: Operation::Ranges, ..Self::reads(4 << 10, true, 1) }
    }

    /// One reader of a whole cached file.
    pub const fn sum() -> Self {
        let operation = Operation::Sum;
        Self { operation, order: Order::Sequential, ..Self::reads(SUM_BLOCK, false, 1) }
    }

    /// Tasks that stream a file.
    pub const fn streams(operation: Operation, readers: usize) -> Self {
        Self { operation, order: Order::Sequential, ..Self::reads(STREAM_BLOCK, false, readers) }
    }

    /// One reader of direct blocks while a worker computes.
    pub const fn busy(operation: Operation) -> Self {
        Self { operation, ..Self::reads(4 << 10, true, 1) }
    }

    /// Reads on the null backend.
    pub const fn null(workers: usize, readers: usize) -> Self {
        Self { operation: Operation::Null { workers }, ..Self::reads(4 << 10, true, readers) }
    }

    /// The row in which each poll is timed.
    pub const fn polls() -> Self {
        Self { operation: Operation::Polls, ..Self::reads(4 << 10, true, 1000) }
    }

    /// Durable appends to a log.
    pub const fn puts() -> Self {
        let operation = Operation::Puts;
        Self { operation, order: Order::Sequential, ..Self::reads(4 << 10, false, 64) }
    }

    /// A scan.
    pub const fn scan(cached: bool, readers: usize) -> Self {
        Self { operation: Operation::Scan { cached }, ..Self::reads(4 << 10, false, readers) }
    }

    /// Tasks on one thread next to syncs.
    pub const fn stall(overwrite: bool, direct: bool, readers: usize) -> Self {
        let operation = Operation::Stall { overwrite };
        Self { operation, ..Self::reads(4 << 10, direct, readers) }
    }

    /// Whether the whole file must be in the page cache before.
    pub fn is_cached(&self) -> bool {
        match self.operation {
            Operation::Scan { cached } => cached,
            Operation::Cold => false,
            _ => !self.direct,
        }
    }

    /// Bytes of the buffers of all readers.
    pub const fn buffers(&self) -> usize {
        self.block * self.readers
    }

    /// The words that select the row with `--only`.
    pub fn words(&self) -> Vec<String> {
        self.names().0.split(' ').map(str::to_owned).collect()
    }

    /// The words, and the title.
    fn names(&self) -> (String, String) {
        let (readers, block) = (self.readers, bytes_text(self.block as u64));
        let many = |noun| plural(readers as u64, noun);
        match self.operation {
            Operation::Read => self.names_of_blocks("read", "reads", "cached"),
            Operation::Write => self.names_of_blocks("write", "writes with fdatasync", "buffered"),
            Operation::Ranges => {
                ("ranges".into(), format!("{RANGES} scattered {block} direct reads as one request"))
            }
            Operation::Sum => {
                ("sum".into(), format!("Sum of a cached file's bytes, read in {block} blocks"))
            }
            Operation::Timer => (
                format!("streams timer {readers}"),
                format!("Lateness of a 2 ms timer next to {}", many("cached stream")),
            ),
            Operation::Small => (
                format!("streams small {readers}"),
                format!("Cached 4 KiB reads next to {}", many("cached stream")),
            ),
            Operation::Cold => (
                format!("streams cold {readers}"),
                format!("Lateness of a 2 ms timer next to {}", many("cold stream")),
            ),
            Operation::Busy => (
                "busy task".into(),
                format!("{block} direct reads in a task next to a busy worker"),
            ),
            Operation::BlockOn => (
                "busy block_on".into(),
                format!("{block} direct reads in block_on next to a busy worker"),
            ),
            Operation::Submitted => (
                "busy submitted".into(),
                format!("{block} direct reads submitted by a busy worker"),
            ),
            Operation::Null { workers } => (
                format!("null {readers} {workers}w"),
                format!(
                    "Reads on the null backend, {}, {}",
                    many("task"),
                    plural(workers as u64, "worker")
                ),
            ),
            Operation::Polls => (
                "polls".into(),
                format!(
                    "Longest polls on the null backend, {}, {POLLS_WORKERS} workers",
                    many("task")
                ),
            ),
            Operation::Puts => {
                ("puts".into(), format!("Durable puts of {block} records, {}", many("task")))
            }
            Operation::Scan { cached } => {
                let cache = if cached { "cached" } else { "cold" };
                (format!("scan {readers}"), format!("{cache}, {readers} in flight"))
            }
            Operation::Stall { overwrite } => {
                let title = match (overwrite, self.direct) {
                    (true, _) => "direct overwrite",
                    (false, true) => "direct read",
                    (false, false) => "cached read",
                };
                (format!("stall {readers}"), title.into())
            }
        }
    }

    /// Those of rows with many block sizes; `cached` is what they are without direct I/O.
    fn names_of_blocks(&self, word: &str, operations: &str, cached: &str) -> (String, String) {
        let Self { block, readers, .. } = *self;
        let size = size_text(block as u64);
        let order = if self.order == Order::Sequential { "sequential" } else { "random" };
        let [word_of_cache, cache] = if self.direct { ["direct"; 2] } else { ["cached", cached] };
        let (bytes, tasks) = (bytes_text(block as u64), plural(readers as u64, "task"));
        (
            format!("{word} {size} {word_of_cache} {order} {readers}"),
            format!("{bytes} {order} {operations}, {cache}, {tasks}"),
        )
    }
}

/// The row's title, such as "4 KiB random reads, direct, 128 tasks".
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().1)
    }
}
