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
    /// Files that the benchmark makes in a folder, one for each job, named as fio names them
    /// (`<section>.<job>.0`) and kept, as fio keeps them, for the next run.
    Directory {
        /// The folder; it is made when it does not exist.
        path: PathBuf,
        /// Bytes of each job's file.
        size: u64,
    },
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
    /// Bytes of a request.
    pub block_size: u64,
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
    /// Requests a second of each job, started on schedule whatever the device does; `None`: as fast as it goes.
    pub rate: Option<u64>,
    /// Sync after every N writes.
    pub sync: Option<Sync>,
    /// Seed of the offsets.
    pub seed: u64,
    /// The same offsets in every run (`randrepeat=1`).
    pub rand_repeat: bool,
    /// Random offsets may repeat before every block has been visited.
    pub no_random_map: bool,
    /// Check every byte read against the pattern written beforehand.
    pub verify: bool,
    /// Where.
    pub target: Target,
    /// Report a job file's jobs together.
    pub group_reporting: bool,
}

impl Workload {
    /// The most requests that are submitted together. Unless it was said, an eighth of what may be in flight: more at a time
    /// and they complete together too, and the device has nothing to do until all are submitted again; fewer
    /// cost a system call each.
    pub fn group(&self) -> u32 {
        self.batch.unwrap_or(self.depth / 8).max(1)
    }
}
