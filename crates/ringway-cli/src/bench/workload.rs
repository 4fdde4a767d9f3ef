//! What one measurement does: the settings of a cell of the benchmark's matrix, whoever asked for
//! them (the command line or a job file). Pure data.

use std::path::PathBuf;
use std::time::Duration;

/// How operations reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// io_uring.
    Uring,
    /// Linux AIO (`io_submit`).
    Kaio,
    /// A pool of threads and blocking calls.
    Threads,
    /// Each job's own thread calls `pread` and `pwrite`, without a queue: one request in flight.
    Psync,
    /// Nothing is done at all: what the harness itself costs.
    Null,
}

/// The order and direction of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Sequential, reads and writes mixed.
    #[serde(rename = "rw")]
    ReadWrite,
    /// Reads at random offsets.
    RandRead,
    /// Writes at random offsets.
    RandWrite,
    /// Random offsets, reads and writes mixed.
    RandRw,
}

impl Access {
    /// The name that fio and the command line have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "rw",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::RandRw => "randrw",
        }
    }
}

/// What follows every N writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// `fsync` after every N writes.
    Fsync(u32),
    /// `fdatasync` after every N writes.
    Fdatasync(u32),
}

/// Where the requests go.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// A scratch file of the benchmark's own, made before and removed afterwards.
    Scratch {
        /// Bytes.
        size: u64,
    },
    /// Files or block devices that the user named.
    Files(Vec<PathBuf>),
    /// Files or block devices that the user named, of which only the beginning is used. A regular
    /// file that is missing or shorter is filled up to this size first, as fio does.
    SizedFiles {
        /// The files.
        paths: Vec<PathBuf>,
        /// Bytes used of each file.
        size: u64,
    },
    /// Files that the benchmark makes in a folder, some for each job, named as fio names them
    /// (`<section>.<job>.<file>`) and kept, as fio keeps them, for the next run.
    Directory {
        /// The folder; it is made when it does not exist.
        path: PathBuf,
        /// Bytes of each file.
        size: u64,
        /// Files of each job.
        files: u32,
    },
}

/// The sizes of requests. Each is a multiple of [`Workload::block_size`], the least of them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizes {
    /// All have the block size.
    One,
    /// Equally often from the block size up to this (`bsrange`).
    UpTo(u64),
    /// Bytes, and how many percent of the requests have that size (`bssplit`); 100 together.
    Split(Vec<(u64, u8)>),
}

/// Where in each file the requests begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// At this byte.
    Byte(u64),
    /// At this percentage of the size that the file had, rounded up to a whole block.
    Percent(u8),
}

impl Start {
    /// The byte, for a file that had this size.
    pub fn of(self, size: u64, block_size: u64) -> u64 {
        match self {
            Self::Byte(byte) => byte,
            Self::Percent(percent) => {
                let byte = (u128::from(size) * u128::from(percent) / 100) as u64;
                byte.div_ceil(block_size).saturating_mul(block_size)
            }
        }
    }
}

/// How fast a job starts its requests, whatever the device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rate {
    /// Requests a second.
    Requests(u64),
    /// Bytes a second.
    Bytes(u64),
}

impl Rate {
    /// Requests a second, where they have this size.
    pub fn requests(self, size: u64) -> f64 {
        match self {
            Self::Requests(rate) => rate as f64,
            Self::Bytes(rate) => rate as f64 / size.max(1) as f64,
        }
    }
}

/// A pause between requests, taken when those in flight have completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Pause {
    /// How long.
    pub time: Duration,
    /// After how many requests.
    pub after: u64,
}

/// What the kernel is told of the order of requests (`posix_fadvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Advice {
    /// Nothing.
    None,
    /// The order they have.
    Own,
    /// A random order.
    Random,
    /// A sequential order.
    Sequential,
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// After this time, beginning again at the start of the file as often as needed.
    After(Duration),
    /// After this many requests of each job.
    Requests(u64),
    /// When each job has moved this many bytes, or after the time if one is given.
    Bytes(u64, Option<Duration>),
    /// When each job has moved as many bytes as its files hold, or after the time if one is given.
    Whole(Option<Duration>),
}

/// One cell: everything that decides what is run.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Workload {
    /// The section's name in a job file; a made-up one (`randread-4k-32`) on the command line.
    pub name: String,
    /// The backend that is forced.
    pub backend: Backend,
    /// Order and direction.
    pub access: Access,
    /// Of a mixed workload, the share of reads in percent, 0 to 100.
    pub read_percent: u8,
    /// Bytes of a request; the least, where there are several sizes.
    pub block_size: u64,
    /// Whether there are several sizes.
    pub sizes: Sizes,
    /// Requests in flight of each job.
    pub depth: u32,
    /// Threads, each with a queue of its own.
    pub jobs: u32,
    /// O_DIRECT.
    pub direct: bool,
    /// A kernel thread polls the submission queue.
    pub sqpoll: bool,
    /// Completions are polled for (`hipri`).
    pub iopoll: bool,
    /// Registered buffers.
    pub fixed_buffers: bool,
    /// Registered files.
    pub fixed_files: bool,
    /// The most requests that are submitted together; `None`: see [`Workload::group`].
    pub batch: Option<u32>,
    /// Completions waited for at a time, at least.
    pub complete_min: u32,
    /// When it ends.
    pub stop: Stop,
    /// Run unmeasured first.
    pub ramp: Duration,
    /// Of each job; `None`: as fast as it goes.
    pub rate: Option<Rate>,
    /// Pauses between the requests of each job.
    pub pause: Option<Pause>,
    /// Sync after every N writes. It does not wait for writes in flight.
    pub sync: Option<Sync>,
    /// Seed of the offsets.
    pub seed: u64,
    /// The same offsets in every run (`randrepeat=1`).
    pub rand_repeat: bool,
    /// Random offsets may repeat before every block has been visited.
    pub no_random_map: bool,
    /// Check every byte that is read or was written.
    pub verify: bool,
    /// A failed request ends its job.
    pub stop_on_error: bool,
    /// Where.
    pub target: Target,
    /// Where in each file.
    pub start: Start,
    /// How much of each file's size is used, in percent.
    pub percent: u8,
    /// Missing bytes of a file are written before the run, not only allocated. Always so for what
    /// reads.
    pub lay_out: bool,
    /// Space for what is not laid out is allocated before the run (`fallocate`).
    pub preallocate: bool,
    /// What the kernel is told of the requests' order.
    pub advice: Advice,
    /// Report a job file's jobs together.
    pub group_reporting: bool,
}

impl Workload {
    /// The most requests that are submitted together. Unless it was said, an eighth of what may be
    /// in flight: more at a time and they complete together too, and the device has nothing to do
    /// until all are submitted again; fewer cost a system call each.
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

    /// True for what writes at all.
    pub fn writes(&self) -> bool {
        !matches!(self.access, Access::Read | Access::RandRead)
    }

    /// True for what reads at all.
    pub fn reads(&self) -> bool {
        !matches!(self.access, Access::Write | Access::RandWrite)
    }

    /// True for random offsets.
    pub fn is_random(&self) -> bool {
        matches!(self.access, Access::RandRead | Access::RandWrite | Access::RandRw)
    }
}

impl Default for Workload {
    /// Random reads of 4 KiB on a scratch file of no size, one at a time, for no time.
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
            start: Start::Byte(0),
            percent: 100,
            lay_out: true,
            preallocate: true,
            advice: Advice::Own,
            group_reporting: true,
        }
    }
}
