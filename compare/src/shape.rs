//! What is done in one row of the comparison: the same for each contestant.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Ranges that one request of the row `ranges` asks for.
pub const RANGES: usize = 64;
/// What the row `sum` reads at a time.
pub const SUM_BLOCK: usize = 32 << 10;
/// What streams read at a time.
pub const STREAM_BLOCK: usize = 256 << 10;

/// What one operation is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// One block is read.
    Read,
    /// One block is written, and fdatasync after it.
    Write,
    /// So many scattered blocks are read, as one request.
    Ranges,
    /// The next block of a file that is read from its beginning to its end, and its bytes summed.
    Sum,
    /// The next block of a cached file that each task streams over and over. Latencies are those of
    /// a timer beside them.
    Timer,
    /// As `Timer`, but latencies are those of small reads beside them.
    Small,
    /// As `Timer`, of a file that is not cached.
    Cold,
    /// One block is read by a task, beside a worker that computes.
    Busy,
    /// As `Busy`, by a thread in `block_on`.
    BlockOn,
    /// As `Busy`, submitted by the task that computes next; a task on another worker awaits it.
    Submitted,
    /// One block is read on the null backend, on a tokio with so many workers.
    Null { workers: usize },
    /// As `Null`, with 8 workers; the time of each poll is measured.
    Polls,
    /// One record is appended to a log and made durable.
    Puts,
}

impl Work {
    /// Whether tasks stream, and what is timed runs beside them.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Timer | Self::Small | Self::Cold)
    }

    /// Whether a worker computes beside the readers.
    pub const fn is_busy(self) -> bool {
        matches!(self, Self::Busy | Self::BlockOn | Self::Submitted)
    }

    /// Whether no disk is read: the null backend answers.
    pub const fn is_null(self) -> bool {
        matches!(self, Self::Null { .. } | Self::Polls)
    }

    /// Whether the file is written to.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Puts)
    }
}

/// Which block comes next.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    Random,
    /// Each reader goes through a part of the file of its own.
    Sequential,
}

/// Workers of the row `Polls`.
pub const POLLS_WORKERS: usize = 8;

/// One row.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Shape {
    pub work: Work,
    pub block: usize,
    pub direct: bool,
    pub readers: usize,
    pub order: Order,
}

impl Shape {
    /// Random reads.
    pub const fn reads(block: usize, direct: bool, readers: usize) -> Self {
        Self { work: Work::Read, block, direct, readers, order: Order::Random }
    }

    pub const fn ranges() -> Self {
        Self { work: Work::Ranges, block: 4 << 10, direct: true, readers: 1, order: Order::Random }
    }

    pub const fn sum() -> Self {
        Self {
            work: Work::Sum,
            block: SUM_BLOCK,
            direct: false,
            readers: 1,
            order: Order::Sequential,
        }
    }

    /// So many tasks that stream a file.
    pub const fn streams(work: Work, readers: usize) -> Self {
        Self { work, block: STREAM_BLOCK, direct: false, readers, order: Order::Sequential }
    }

    /// One reader of direct blocks beside a worker that computes.
    pub const fn busy(work: Work) -> Self {
        Self { work, ..Self::reads(4 << 10, true, 1) }
    }

    /// Reads on the null backend.
    pub const fn null(workers: usize, readers: usize) -> Self {
        Self { work: Work::Null { workers }, ..Self::reads(4 << 10, true, readers) }
    }

    /// The row of which each poll is timed.
    pub const fn polls() -> Self {
        Self { work: Work::Polls, ..Self::reads(4 << 10, true, 1000) }
    }

    /// Durable puts.
    pub const fn puts() -> Self {
        Self { work: Work::Puts, order: Order::Sequential, ..Self::reads(4 << 10, false, 64) }
    }

    /// Whether the whole file is to be in the page cache before.
    pub fn is_cached(&self) -> bool {
        !self.direct && self.work != Work::Cold
    }

    /// What the buffers of all readers take.
    pub const fn buffers(&self) -> usize {
        self.block * self.readers
    }

    /// The words by which `--only` chooses it.
    pub fn words(&self) -> Vec<String> {
        let work = match self.work {
            Work::Read => "read",
            Work::Write => "write",
            Work::Ranges => return vec!["ranges".into()],
            Work::Sum => return vec!["sum".into()],
            Work::Timer => return vec!["streams".into(), "timer".into(), self.readers.to_string()],
            Work::Small => return vec!["streams".into(), "small".into(), self.readers.to_string()],
            Work::Cold => return vec!["streams".into(), "cold".into(), self.readers.to_string()],
            Work::Busy => return vec!["busy".into(), "task".into()],
            Work::BlockOn => return vec!["busy".into(), "block_on".into()],
            Work::Submitted => return vec!["busy".into(), "submitted".into()],
            Work::Null { workers } => {
                return vec!["null".into(), self.readers.to_string(), format!("{workers}w")];
            }
            Work::Polls => return vec!["polls".into()],
            Work::Puts => return vec!["puts".into()],
        };
        let order = match self.order {
            Order::Random => "random",
            Order::Sequential => "sequential",
        };
        let cache = if self.direct { "direct" } else { "cached" };
        [work, &short_size(self.block), cache, order, &self.readers.to_string()]
            .map(String::from)
            .into()
    }
}

/// A title, such as "4 KiB random reads, direct, 128 readers".
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            Order::Random => "random",
            Order::Sequential => "sequential",
        };
        let work = match self.work {
            Work::Read => "reads",
            Work::Write => "writes with fdatasync",
            Work::Ranges => {
                return write!(f, "{RANGES} scattered 4 KiB direct reads as one request");
            }
            Work::Sum => {
                return write!(
                    f,
                    "Sum of a cached file's bytes, read in {} KiB blocks",
                    SUM_BLOCK >> 10
                );
            }
            Work::Timer => {
                return write!(f, "Lateness of a 2 ms timer beside {} cached streams", self.readers);
            }
            Work::Small => {
                return write!(f, "Cached 4 KiB reads beside {} cached streams", self.readers);
            }
            Work::Cold => {
                return write!(f, "Lateness of a 2 ms timer beside {} cold streams", self.readers);
            }
            Work::Busy => return write!(f, "4 KiB direct reads in a task beside a busy worker"),
            Work::BlockOn => {
                return write!(f, "4 KiB direct reads in block_on beside a busy worker");
            }
            Work::Submitted => return write!(f, "4 KiB direct reads submitted by a busy worker"),
            Work::Null { workers } => {
                let (tasks, workers) = (counted(self.readers, "task"), counted(workers, "worker"));
                return write!(f, "Reads on the null backend, {tasks}, {workers}");
            }
            Work::Polls => {
                let tasks = counted(self.readers, "task");
                return write!(
                    f,
                    "Longest polls on the null backend, {tasks}, {POLLS_WORKERS} workers"
                );
            }
            Work::Puts => {
                return write!(
                    f,
                    "Durable puts of 4 KiB records, {}",
                    counted(self.readers, "task")
                );
            }
        };
        let cache = match (self.direct, self.work) {
            (true, _) => "direct",
            (false, Work::Write) => "buffered",
            (false, _) => "cached",
        };
        write!(
            f,
            "{} {order} {work}, {cache}, {}",
            size(self.block as u64),
            counted(self.readers, "task")
        )
    }
}

/// A number of bytes in words; it is a power of two, or a multiple of a large one.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ => format!("{} KiB", bytes >> 10),
    }
}

fn short_size(bytes: usize) -> String {
    if bytes >= 1 << 20 { format!("{}m", bytes >> 20) } else { format!("{}k", bytes >> 10) }
}

fn counted(number: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(number as u64), if number == 1 { "" } else { "s" })
}

/// A number with commas between the thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
