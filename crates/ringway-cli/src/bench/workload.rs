//! The settings of one measurement, from the command line or from a job file. Pure data.

use clap::ValueEnum;
use ringway_core::BackendKind;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// The kernel's limit for one read or write.
pub const MAX_REQUEST: u64 = 0x7fff_f000;

/// The size limit of a file: the kernel's offsets are signed.
pub const MAX_FILE: u64 = i64::MAX as u64;

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// io_uring
    #[value(alias = "io_uring")]
    Uring,
    /// Linux AIO (`io_submit`)
    #[value(alias = "libaio")]
    Kaio,
    /// A pool of threads with blocking calls
    Threads,
    /// Blocking calls of each job's own thread, without a queue: one request in flight
    Psync,
    /// The backend that a queue chooses itself, which may pass some transfers to another one
    Auto,
    /// No I/O: the cost of the harness itself
    Null,
}

impl Backend {
    /// The backend that the queue is forced to use, if it has a queue.
    pub fn forced(self) -> Option<BackendKind> {
        match self {
            Self::Uring => Some(BackendKind::Uring),
            Self::Kaio => Some(BackendKind::Kaio),
            Self::Threads => Some(BackendKind::Threads),
            Self::Psync | Self::Auto => None,
            Self::Null => Some(BackendKind::Null),
        }
    }

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        let unforced = if self == Self::Psync { "psync" } else { "auto" };
        self.forced().map_or(unforced, BackendKind::name)
    }
}

/// The order and direction of the requests, by fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Access {
    /// Random reads
    RandRead,
    /// Random writes
    RandWrite,
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Random reads and writes
    RandRw,
    /// Sequential reads and writes
    #[value(name = "rw", alias = "readwrite")]
    ReadWrite,
}

impl Access {
    /// The name on the command line, in job files and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRw => "randrw",
            Self::ReadWrite => "rw",
        }
    }

    /// Whether some requests read.
    pub fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }

    /// Whether some requests write.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    /// Whether some requests read and others write.
    pub fn is_mixed(self) -> bool {
        self.reads() && self.writes()
    }

    /// Whether offsets are random.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }
}

/// A system call that follows every N writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// `fdatasync` instead of `fsync`.
    pub data_only: bool,
    /// The number of writes before each sync.
    pub every: u32,
}

impl Sync {
    /// The name of the system call.
    pub fn name(self) -> &'static str {
        if self.data_only { "fdatasync" } else { "fsync" }
    }
}

/// The files that requests go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A scratch file that exists for this bench only.
    Scratch {
        /// Bytes.
        size: u64,
    },
    /// Files or block devices that the user named.
    Files {
        /// The files.
        paths: Vec<PathBuf>,
        /// Bytes used from the beginning of each file, all of it if not given. A missing or shorter
        /// regular file is filled up to this size first, as in fio.
        size: Option<u64>,
    },
    /// Files in a folder, separate ones for each job. They have fio's names
    /// (`<section>.<job>.<file>`) and are kept for the next run, as in fio.
    Directory {
        /// The folder, which is created if it does not exist.
        path: PathBuf,
        /// Bytes of each file.
        size: u64,
        /// Files of each job.
        files: u32,
    },
}

impl Target {
    /// Bytes used of each file, from the start of the used part; `None`: to the end of the file.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Files { size, .. } => *size,
            Self::Scratch { size } | Self::Directory { size, .. } => Some(*size),
        }
    }
}

/// The sizes of requests, all multiples of [`Workload::block_size`], which is the smallest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All have the block size.
    One,
    /// Evenly distributed from the block size up to this (`bsrange`).
    UpTo(u64),
    /// Sizes and their shares in percent, which add up to 100 (`bssplit`).
    Split(Vec<(u64, u8)>),
}

/// Bytes, or a share of a file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This many bytes.
    Bytes(u64),
    /// This percentage of the file's size.
    Percent(u8),
}

impl Amount {
    /// The bytes, for a file that had this size. A percentage is rounded up to a whole block.
    pub fn of(self, size: u64, block_size: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                let bytes = (u128::from(size) * u128::from(percent) / 100) as u64;
                bytes.div_ceil(block_size).saturating_mul(block_size)
            }
        }
    }
}

/// The rate at which a job starts its requests, whether or not the device keeps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Requests a second.
    Requests(u64),
    /// Bytes a second.
    Bytes(u64),
}

/// A pause between requests; it starts when no request is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Its length.
    pub time: Duration,
    /// The number of requests between pauses.
    pub after: u64,
}

/// The access pattern announced to the kernel (`posix_fadvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// None.
    None,
    /// The workload's own.
    Own,
    /// Random.
    Random,
    /// Sequential.
    Sequential,
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After this time, with as many passes over the files as fit.
    After(Duration),
    /// After this many requests of each job.
    Requests(u64),
    /// When each job has moved this many bytes, or after the time if one is given.
    Bytes(u64, Option<Duration>),
    /// When each job has moved as many bytes as its files hold, or after the time if one is given.
    Whole(Option<Duration>),
}

impl Stop {
    /// The time limit.
    pub fn runtime(self) -> Option<Duration> {
        match self {
            Self::After(time) => Some(time),
            Self::Requests(_) => None,
            Self::Bytes(_, time) | Self::Whole(time) => time,
        }
    }
}

/// The page cache before a buffered run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Read the file once
    Warm,
    /// Drop the file from the page cache
    Cold,
    /// Leave the page cache as the previous run left it
    Keep,
}

/// All settings of one measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The section's name in a job file, or a generated name (`randread-4k-32`).
    pub name: String,
    /// The backend; bench never falls back to another one.
    pub backend: Backend,
    /// Order and direction.
    pub access: Access,
    /// The share of reads in a mixed workload, in percent.
    pub read_percent: u8,
    /// Bytes of a request; the smallest size where there are several.
    pub block_size: u64,
    /// The sizes of requests.
    pub sizes: Sizes,
    /// Requests in flight, for each job.
    pub depth: u32,
    /// Threads, each with its own queue.
    pub jobs: u32,
    /// O_DIRECT.
    pub direct: bool,
    /// A kernel thread polls the submission queue.
    pub sqpoll: bool,
    /// The kernel polls the device for completions (`hipri`).
    pub iopoll: bool,
    /// Commands to an NVMe disk, without the block layer.
    pub passthrough: bool,
    /// Registered buffers.
    pub fixed_buffers: bool,
    /// Registered files.
    pub fixed_files: bool,
    /// The maximum number of requests submitted together; `None`: see [`Workload::group`].
    pub batch: Option<u32>,
    /// The minimum number of completions to wait for.
    pub complete_min: u32,
    /// When it ends.
    pub stop: Stop,
    /// Time before measuring starts.
    pub ramp: Duration,
    /// The rate of each job; `None`: as fast as possible.
    pub rate: Option<Rate>,
    /// Pauses between the requests of each job.
    pub pause: Option<Pause>,
    /// Syncs between writes. They do not wait for writes in flight.
    pub sync: Option<Sync>,
    /// The seed of random offsets.
    pub seed: u64,
    /// The same offsets in every run (`randrepeat=1`).
    pub rand_repeat: bool,
    /// Random offsets may be repeated before every block has been visited.
    pub no_random_map: bool,
    /// Check every byte that is read or was written.
    pub verify: bool,
    /// A failed request ends its job.
    pub stop_on_error: bool,
    /// The files.
    pub target: Target,
    /// Where the used part of each file begins.
    pub start: Amount,
    /// The used share of each file's size, in percent.
    pub percent: u8,
    /// Write the missing bytes of a file before the run instead of only allocating them. Always
    /// done for a workload that reads.
    pub lay_out: bool,
    /// Allocate space that is not written before the run (`fallocate`).
    pub preallocate: bool,
    /// The access pattern announced to the kernel.
    pub advice: Advice,
    /// Report all jobs together.
    pub group_reporting: bool,
}

impl Workload {
    /// The maximum number of requests submitted together; by default an eighth of the depth. A
    /// larger group completes together, and the device is idle until the next one is submitted; a
    /// smaller one needs more system calls.
    pub fn group(&self) -> u32 {
        self.batch.unwrap_or(self.depth / 8).max(1)
    }

    /// Bytes of the largest request.
    pub fn largest_request(&self) -> u64 {
        match &self.sizes {
            Sizes::One => self.block_size,
            Sizes::UpTo(largest) => *largest,
            Sizes::Split(sizes) => {
                sizes.iter().map(|(size, _)| *size).max().unwrap_or(self.block_size)
            }
        }
    }

    /// Whether it does no I/O: the harness is measured.
    pub fn is_null(&self) -> bool {
        self.backend == Backend::Null
    }
}

impl Default for Workload {
    /// Random reads of 4 KiB, one at a time, on an empty scratch file.
    fn default() -> Self {
        Self {
            name: String::new(),
            backend: Backend::Uring,
            access: Access::RandRead,
            read_percent: 50,
            block_size: 4096,
            sizes: Sizes::One,
            depth: 1,
            jobs: 1,
            direct: true,
            sqpoll: false,
            iopoll: false,
            passthrough: false,
            fixed_buffers: false,
            fixed_files: false,
            batch: None,
            complete_min: 1,
            stop: Stop::After(Duration::ZERO),
            ramp: Duration::ZERO,
            rate: None,
            pause: None,
            sync: None,
            seed: 1,
            rand_repeat: true,
            no_random_map: false,
            verify: false,
            stop_on_error: false,
            target: Target::Scratch { size: 0 },
            start: Amount::Bytes(0),
            percent: 100,
            lay_out: true,
            preallocate: true,
            advice: Advice::Own,
            group_reporting: true,
        }
    }
}
