//! The options of a queue, and what they choose: a backend, with reasons.

#[cfg(feature = "testing")]
use crate::backend::faulty::FaultPlan;
use crate::backend::threads::ThreadOptions;
use crate::file::File;
use crate::refusal::{Feature, Refusal};
use crate::slots::MAX_SLOTS;
use crate::sys::OwnedFd;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// A way to pass operations to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// io_uring.
    Uring,
    /// Linux AIO (`io_submit`): direct I/O, fsync and poll; other operations run on threads.
    Kaio,
    /// Threads that make blocking calls.
    Threads,
    /// Does nothing and reports success, to measure the cost of the queue itself. For tests and
    /// benchmarks, with the feature `testing`. Only code can choose it, never the environment.
    #[cfg(feature = "testing")]
    Null,
}

impl BackendKind {
    /// The backends that do I/O, in the order in which a queue tries them.
    pub const ALL: [Self; 3] = [Self::Uring, Self::Kaio, Self::Threads];

    /// The name, as in `RINGWAY_BACKEND` (which does not accept `null`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Kaio => "kaio",
            Self::Threads => "threads",
            #[cfg(feature = "testing")]
            Self::Null => "null",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BackendKind {
    type Err = ParseBackendError;

    /// Parses the name of one of [`ALL`](Self::ALL). Names come from users and the environment, so
    /// `null` is not accepted: only code chooses it.
    fn from_str(name: &str) -> Result<Self, ParseBackendError> {
        Self::ALL
            .into_iter()
            .find(|backend| backend.name() == name)
            .ok_or_else(|| ParseBackendError { name: name.to_owned() })
    }
}

/// A text that is not the name of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBackendError {
    name: String,
}

impl fmt::Display for ParseBackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a backend; use one of uring, kaio, threads", self.name)
    }
}

impl std::error::Error for ParseBackendError {}

/// A kernel thread that polls the submission queue, so that submitting needs no system call
/// (`IORING_SETUP_SQPOLL`). It keeps a processor busy while there is work, and for a while after.
/// Chains are not linked in the kernel then.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SqPoll {
    /// How long it polls without work before it sleeps; in whole milliseconds.
    pub idle: Duration,
    /// The processor that it is bound to.
    pub cpu: Option<u32>,
}

impl SqPoll {
    /// A thread that sleeps after `idle` without work, on any processor.
    pub const fn new(idle: Duration) -> Self {
        Self { idle, cpu: None }
    }

    /// Binds the thread to a processor; `None` binds it to none.
    pub const fn cpu(self, cpu: Option<u32>) -> Self {
        Self { cpu, ..self }
    }
}

/// Options of a queue. The defaults suit a queue with a few dozen operations at a time.
///
/// ```
/// use ringway_core::Options;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = Options::new().entries(128).in_flight(4096).single_issuer(true).build()?;
/// println!("{}", queue.explain());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) backend: Option<BackendKind>,
    pub(super) entries: u32,
    pub(super) completion_entries: Option<u32>,
    pub(super) in_flight: u32,
    pub(super) sqpoll: Option<SqPoll>,
    pub(super) attach: Option<Arc<OwnedFd>>,
    pub(super) iopoll: Option<File>,
    pub(super) passthrough: Option<File>,
    pub(super) single_issuer: bool,
    pub(super) eventfd: bool,
    pub(super) io_wq_workers: Option<[u32; 2]>,
    pub(super) threads: u32,
    pub(super) sync_threads: u32,
    pub(super) interruptible: bool,
    pub(super) strict: bool,
    #[cfg(feature = "testing")]
    pub(super) faults: Option<FaultPlan>,
    pub(super) close_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: None,
            entries: 64,
            completion_entries: None,
            in_flight: 1024,
            sqpoll: None,
            attach: None,
            iopoll: None,
            passthrough: None,
            single_issuer: false,
            eventfd: false,
            io_wq_workers: None,
            threads: 64,
            sync_threads: 4,
            interruptible: false,
            strict: false,
            #[cfg(feature = "testing")]
            faults: None,
            close_wait: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// The most [`entries`](Self::entries) that a queue may have.
    pub const MAX_ENTRIES: u32 = 32_768;

    /// The most operations that a queue may have [in flight](Self::in_flight).
    pub const MAX_IN_FLIGHT: u32 = MAX_SLOTS;

    /// The defaults: 64 entries, 1024 operations in flight, the best available backend.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forces this backend; building fails if it is refused. Without this option, `RINGWAY_BACKEND`
    /// forces one. Without that, the queue takes the first of uring, kaio and threads that passes a
    /// real read.
    pub fn backend(mut self, backend: BackendKind) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Entries of the submission queue: the most operations that one system call submits. They use
    /// locked memory (`RLIMIT_MEMLOCK`), about 200 bytes each including their completions. Default
    /// 64.
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// Entries of the completion queue; default four times those of the submission queue. The
    /// kernel keeps further completions elsewhere, at some cost.
    pub fn completion_entries(mut self, entries: u32) -> Self {
        self.completion_entries = Some(entries);
        self
    }

    /// The most operations in flight; a push beyond that fails with `Full`. Default 1024, at most
    /// [`MAX_IN_FLIGHT`](Self::MAX_IN_FLIGHT).
    pub fn in_flight(mut self, cap: u32) -> Self {
        self.in_flight = cap;
        self
    }

    /// Makes a kernel thread poll the submission queue (uring only). Operations on paths run on
    /// threads then: the kernel's thread would keep the user, the capabilities and the restrictions
    /// with which the queue was made, whatever the process has given up since.
    pub fn sqpoll(mut self, sqpoll: SqPoll) -> Self {
        self.sqpoll = Some(sqpoll);
        self
    }

    /// Polls the device for completions instead of waiting for its interrupt
    /// (`IORING_SETUP_IOPOLL`). `file` must be open for reading and for direct I/O on a device with
    /// poll queues; what the kernel reports of the device, and a real read, decide whether that
    /// works. All operations but direct transfers then run on threads, waiting keeps a processor
    /// busy, and there is no descriptor to poll. A time limit of a direct transfer has no effect,
    /// and [`reap_until`](crate::Queue::reap_until) may return after its deadline: the kernel polls
    /// until a transfer completes.
    pub fn iopoll(mut self, file: &File) -> Self {
        self.iopoll = Some(file.clone());
        self
    }

    /// Passes reads, writes and syncs of NVMe generic devices (`/dev/ng0n1`) to the device as
    /// commands, without the block layer (uring only, kernel 5.19; polled for with
    /// [`iopoll`](Self::iopoll) from 6.1 on). `file` is such a device; a real read of its first
    /// block decides whether that works. Other files work on the queue as usual.
    ///
    /// A namespace behaves as its block device opened with `O_DIRECT` does: offsets and lengths are
    /// whole blocks ([`File::direct_io`]), at its end reads are short and writes fail with ENOSPC,
    /// and a sync is a flush of the device. There are three differences. A transfer that is longer
    /// than a command, or has more buffers, is several commands; those of a write follow one
    /// another. The kernel does not repeat a command that the device fails
    /// ([`Error::nvme_status`](crate::Error::nvme_status)). And commands bypass the page cache of
    /// the block device and the check whether it is mounted.
    ///
    /// Refused, with the reason in [`explain`](crate::Queue::explain): on other backends and older
    /// kernels, for a file that is no such device, for namespaces with metadata or protection
    /// information, and, before kernel 6.2, without CAP_SYS_ADMIN. Transfers of such devices then
    /// fail with EINVAL. The entries of the ring take twice the memory.
    ///
    /// A command cannot be cancelled once it is submitted: it completes with its result, as a
    /// transfer that the device has started does.
    ///
    /// ```no_run
    /// use ringway_core::{AlignedBuffer, File, Options, op};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let namespace = File::open("/dev/ng0n1")?;
    /// let mut queue = Options::new().passthrough(&namespace).strict(true).build()?;
    /// let buffer = AlignedBuffer::for_direct(namespace.direct_io(), 4096);
    /// queue.push(op::read(&namespace, buffer, 0))?;
    /// assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(4096));
    /// # Ok(()) }
    /// ```
    pub fn passthrough(mut self, file: &File) -> Self {
        self.passthrough = Some(file.clone());
        self
    }

    /// Promises that only the thread that builds the queue submits and waits. The kernel may then
    /// leave completion work to that thread (`SINGLE_ISSUER` and `DEFER_TASKRUN` from 6.1,
    /// `COOP_TASKRUN` before), and fails calls of other threads with EEXIST. Without this option
    /// completions interrupt the thread that submitted, since another one may be waiting for them.
    pub fn single_issuer(mut self, yes: bool) -> Self {
        self.single_issuer = yes;
        self
    }

    /// Makes the descriptor to poll an eventfd on every backend, instead of the ring itself on
    /// uring.
    pub fn eventfd(mut self, yes: bool) -> Self {
        self.eventfd = yes;
        self
    }

    /// Limits the io-wq workers, the kernel threads for operations that would block (5.15): those
    /// that the kernel hands over itself on files, and all others. Each thread that submits has
    /// its own workers, for all of its rings. The others include buffered transfers that are
    /// durable or of 64 KiB and more, and transfers whose submission may wait, which ringway hands
    /// over on purpose. 0 keeps the kernel's own
    /// limit of the former, and means 24 of the others; if only `files` is set, it is also the
    /// limit of the others, so that no more workers than that are busy with files. Workers that
    /// hang in a file system do not count: the limits are raised for them, up to 1024. Other
    /// backends have no such workers, and keep to any limit.
    pub fn io_wq_workers(mut self, files: u32, rest: u32) -> Self {
        self.io_wq_workers = Some([files, rest]);
        self
    }

    /// The most threads, for the threads backend and for the fallback pool of the others. Default
    /// 64. Threads start when there is work and end when there is none. Not counted are threads
    /// that hang in a system call, and those of operations that may wait forever (opens of FIFOs,
    /// blocking calls on streams): at most 1024 of each. An open beyond that fails with EAGAIN.
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// The most threads for fsync and other syncs, which have a lane of their own. Default 4;
    /// threads that hang are not counted.
    pub fn sync_threads(mut self, threads: u32) -> Self {
        self.sync_threads = threads;
        self
    }

    /// Makes a signal end a wait: after a signal handler has run on the thread that waits in
    /// [`reap`](crate::Queue::reap) or [`reap_until`](crate::Queue::reap_until), that returns the
    /// completions that are there, perhaps none. For runtimes that run their own signal handlers
    /// only when a call returns. Other calls that wait are not affected.
    ///
    /// A signal that arrives before the wait begins does not end it: make a descriptor that is
    /// polled readable in the handler, or wait with a deadline. Being stopped and continued may end
    /// a wait, too; so may, on io_uring, the end of a timeout, if the call waits for several
    /// completions, and on Linux AIO the end of a ring that the thread has used: the kernel works
    /// it off in that thread after the ring is closed, and `io_getevents(2)` fails with EINTR for
    /// it (observed on 6.18). So a wait that ended with too few completions is repeated.
    pub fn interruptible(mut self, yes: bool) -> Self {
        self.interruptible = yes;
        self
    }

    /// Makes building fail if any requested feature is refused, instead of doing without it. The
    /// best backend counts as requested. What a queue uses unasked, such as
    /// `IORING_SETUP_NO_SQARRAY` from Linux 6.6 on, may be missing.
    pub fn strict(mut self, yes: bool) -> Self {
        self.strict = yes;
        self
    }

    /// Whether faults are injected.
    #[inline]
    pub(super) fn injects_faults(&self) -> bool {
        #[cfg(feature = "testing")]
        return self.faults.is_some();
        #[cfg(not(feature = "testing"))]
        false
    }

    /// Injects faults, to test programs that must handle them. With the feature `testing`.
    #[cfg(feature = "testing")]
    pub fn faults(mut self, plan: FaultPlan) -> Self {
        self.faults = Some(plan);
        self
    }

    /// How long dropping the queue waits for operations in flight that cannot be cancelled. What is
    /// in flight after that is leaked, never freed. Default five seconds.
    pub fn close_wait(mut self, wait: Duration) -> Self {
        self.close_wait = wait;
        self
    }

    pub(super) fn drop_wait(&self) -> Duration {
        self.close_wait
    }

    pub(super) fn is_interruptible(&self) -> bool {
        self.interruptible
    }

    pub(super) fn thread_options(&self) -> ThreadOptions {
        ThreadOptions {
            workers: self.threads as usize,
            sync_workers: self.sync_threads as usize,
            idle: Duration::from_secs(10),
            // (Only systems with signals have what such a wait needs.)
            interruptible: self.interruptible && cfg!(unix),
        }
    }
}

/// What forced the backend of a queue, so that no other one was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForcedBy {
    /// The program: [`Options::backend`].
    Option,
    /// The environment variable `RINGWAY_BACKEND`.
    Environment,
}

/// The environment variable that chooses the backend.
pub(super) const BACKEND_ENV: &str = "RINGWAY_BACKEND";

impl fmt::Display for ForcedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Option => "the option backend",
            Self::Environment => BACKEND_ENV,
        })
    }
}

/// The backend of a queue, its available features, and those that were refused, with reason and
/// fix.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The backend in use.
    pub backend: BackendKind,
    /// What forced it; `None` if it is the best available one (of an engine: that leaves
    /// descriptors for files).
    pub forced_by: Option<ForcedBy>,
    /// Features that are in use: flags and registrations.
    pub available: Vec<Feature>,
    /// Features and backends that were requested, or tried first, and refused.
    pub refusals: Vec<Refusal>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend {}", self.backend)?;
        if let Some(forced_by) = self.forced_by {
            write!(f, " (forced by {forced_by})")?;
        }
        for (number, feature) in self.available.iter().enumerate() {
            write!(f, "{}{feature}", if number == 0 { ", with " } else { ", " })?;
        }
        self.refusals.iter().try_for_each(|refusal| write!(f, "\n{refusal}"))
    }
}
