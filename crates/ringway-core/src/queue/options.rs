//! The options of a queue, and how they choose a backend.

use super::{Backends, Queue, Table, build_parts};
use crate::backend::Backend;
#[cfg(feature = "testing")]
use crate::backend::faulty::{FaultPlan, Faulty};
#[cfg(ringway_linux)]
use crate::backend::kaio::Kaio;
#[cfg(feature = "testing")]
use crate::backend::null::Null;
use crate::backend::threads::{ThreadOptions, Threads};
#[cfg(ringway_linux)]
use crate::backend::uring::{Big, Entries, Settings, Uring, Usual};
#[cfg(ringway_linux)]
use crate::backend::{EventKind, Job};
#[cfg(ringway_linux)]
use crate::buffer::AlignedBuffer;
use crate::error::BuildError;
use crate::file::File;
#[cfg(ringway_linux)]
use crate::file::FileKind;
#[cfg(ringway_linux)]
use crate::op;
#[cfg(ringway_linux)]
use crate::probe::sample::{PAGE, Sample, pages};
use crate::refusal::{Feature, Refusal, errno_of};
use crate::slots::MAX_SLOTS;
#[cfg(ringway_linux)]
use crate::slots::{Key, Token};
#[cfg(ringway_linux)]
use crate::sys::Number;
use crate::sys::{OwnedFd, RawFd, borrowed, libc};
use std::fmt;
#[cfg(ringway_linux)]
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
#[cfg(ringway_linux)]
use std::time::Instant;

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

/// A file that is no ring.
const NULL_DEVICE: &str = if cfg!(windows) { "NUL" } else { "/dev/null" };

/// The environment variable that chooses the backend.
const BACKEND_ENV: &str = "RINGWAY_BACKEND";

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
    backend: Option<BackendKind>,
    entries: u32,
    completion_entries: Option<u32>,
    in_flight: u32,
    sqpoll: Option<SqPoll>,
    attach: Option<Arc<OwnedFd>>,
    iopoll: Option<File>,
    passthrough: Option<File>,
    single_issuer: bool,
    eventfd: bool,
    io_wq_workers: Option<[u32; 2]>,
    threads: u32,
    sync_threads: u32,
    interruptible: bool,
    strict: bool,
    #[cfg(feature = "testing")]
    faults: Option<FaultPlan>,
    close_wait: Duration,
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

    /// Makes a kernel thread poll the submission queue (uring only).
    pub fn sqpoll(mut self, sqpoll: SqPoll) -> Self {
        self.sqpoll = Some(sqpoll);
        self
    }

    /// Shares the kernel threads of another queue: its SQPOLL thread and io-wq workers
    /// (`IORING_SETUP_ATTACH_WQ`). Refused, with the reason in [`explain`](Queue::explain), if that
    /// queue has no ring.
    pub fn attach(mut self, other: &Queue) -> Self {
        // For a queue without a ring, a descriptor that is no ring makes the kernel refuse, which
        // yields the explanation.
        self.attach = other
            .ring_fd()
            .map(|fd| {
                // SAFETY: the ring's descriptor stays open while `other` is borrowed.
                unsafe { borrowed(fd) }.try_clone_to_owned()
            })
            .or_else(|| Some(std::fs::File::open(NULL_DEVICE).map(OwnedFd::from)))
            .and_then(Result::ok)
            .map(Arc::new);
        self
    }

    /// Polls the device for completions instead of waiting for its interrupt
    /// (`IORING_SETUP_IOPOLL`). `file` must be open for reading and for direct I/O on a device with
    /// poll queues; what the kernel reports of the device, and a real read, decide whether that
    /// works. All operations but direct transfers then run on threads, waiting keeps a processor
    /// busy, and there is no descriptor to poll. A time limit of a direct transfer has no effect,
    /// and [`reap_until`](Queue::reap_until) may return after its deadline: the kernel polls until
    /// a transfer completes.
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
    /// Refused, with the reason in [`explain`](Queue::explain): on other backends and older
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
    /// [`Queue::reap`] or [`Queue::reap_until`], that returns the completions that are there,
    /// perhaps none. For runtimes that run their own signal handlers only when a call returns.
    /// Other calls that wait are not affected.
    ///
    /// A signal that arrives before the wait begins does not end it: make a descriptor that is
    /// polled readable in the handler, or wait with a deadline. Being stopped and continued may end
    /// a wait, too; so may, on io_uring, the end of a timeout, if the call waits for several
    /// completions.
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

    /// Builds the queue. With [`single_issuer`](Self::single_issuer), call it on the thread that
    /// will use the queue.
    ///
    /// Blocks for several system calls, including a real read.
    ///
    /// Errors: [`BuildError::Refused`] if a forced backend is refused, or, with
    /// [`strict`](Self::strict), if any requested feature is, or if no backend works (then with the
    /// refusal of the last); [`BuildError::Invalid`] for numbers out of range and for an unknown
    /// name in `RINGWAY_BACKEND`.
    ///
    /// ```
    /// use ringway_core::{BackendKind, BuildError, Options};
    /// match Options::new().backend(BackendKind::Kaio).build() {
    ///     Ok(queue) => println!("{}", queue.explain()),
    ///     Err(BuildError::Refused(refusal)) => {
    ///         println!("errno {}: {}; fix: {}", refusal.errno, refusal.meaning, refusal.fix);
    ///     }
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    pub fn build(&self) -> Result<Queue, BuildError> {
        let built = self.choose_backend()?;
        Ok(Queue::assemble(built, self))
    }

    /// Builds the two parts of a queue, for an engine that shares it among threads. The table holds
    /// any number of operations, started or not; start at most [`in_flight`](Self::in_flight) of
    /// them at a time.
    ///
    /// Blocks and fails as [`build`](Self::build) does.
    pub fn build_parts<T: Default>(&self) -> Result<(Table<T>, Backends), BuildError> {
        let built = self.choose_backend()?;
        Ok(build_parts(built, self, MAX_SLOTS))
    }

    /// The backend that the program or `RINGWAY_BACKEND` forces. Errors: as for
    /// [`build`](Self::build).
    pub fn forced_backend(&self) -> Result<Option<BackendKind>, BuildError> {
        match self.backend {
            Some(backend) => Ok(Some(backend)),
            None => backend_of_environment(),
        }
    }

    /// Builds the best available backend.
    fn choose_backend(&self) -> Result<ChosenBackend, BuildError> {
        self.check()?;
        let forced = self.forced_backend()?;
        let candidates = match &forced {
            Some(kind) => std::slice::from_ref(kind),
            None => &BackendKind::ALL[..],
        };
        let mut explanation = Explanation {
            backend: BackendKind::Threads,
            available: Vec::new(),
            refusals: Vec::new(),
        };
        for kind in candidates {
            match self.build_backend(*kind) {
                Ok(built) => {
                    explanation.backend = *kind;
                    explanation.available = built.available;
                    explanation.refusals.extend(built.refusals);
                    explanation.refusals.extend(self.ring_only_refusals(*kind));
                    let requested = |refusal: &&Refusal| self.is_requested(refusal.feature);
                    if self.strict
                        && let Some(refusal) = explanation.refusals.iter().find(requested)
                    {
                        return Err(BuildError::Refused(refusal.clone()));
                    }
                    return Ok(ChosenBackend {
                        backend: built.backend,
                        ring_fd: built.ring_fd,
                        explanation,
                    });
                }
                Err(refusal) if self.strict => return Err(BuildError::Refused(refusal)),
                Err(refusal) => explanation.refusals.push(refusal),
            }
        }
        let refusal = explanation.refusals.pop();
        Err(BuildError::Refused(
            refusal.unwrap_or_else(|| Refusal::new(Feature::Threads, libc::EAGAIN)),
        ))
    }

    /// Whether the program asked for a feature. A queue tries others too, which make it faster.
    fn is_requested(&self, feature: Feature) -> bool {
        match feature {
            Feature::CqSize => self.completion_entries.is_some(),
            Feature::SqPoll => self.sqpoll.is_some(),
            Feature::AttachWq => self.attach.is_some(),
            Feature::IoPoll => self.iopoll.is_some(),
            Feature::Passthrough => self.passthrough.is_some(),
            Feature::SingleIssuer => self.single_issuer,
            Feature::EventFd => self.eventfd,
            Feature::IoWqWorkers => self.io_wq_workers.is_some(),
            _ => false,
        }
    }

    pub(super) fn cap(&self) -> u32 {
        self.in_flight
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

    /// Requests that a KAIO context takes. All contexts of the machine share `fs.aio-max-nr`, so no
    /// more are reserved than can be used at once.
    #[cfg(ringway_linux)]
    fn kaio_requests(&self) -> u32 {
        self.in_flight.min(self.entries.saturating_mul(4))
    }

    fn check(&self) -> Result<(), BuildError> {
        let invalid = |text: String| Err(BuildError::Invalid(text));
        if self.entries == 0 || self.entries > Self::MAX_ENTRIES {
            return invalid(format!(
                "entries must be 1 to {1}, not {0}",
                self.entries,
                Self::MAX_ENTRIES
            ));
        }
        if self.in_flight == 0 || self.in_flight > Self::MAX_IN_FLIGHT {
            return invalid(format!(
                "in_flight must be 1 to {1}, not {0}",
                self.in_flight,
                Self::MAX_IN_FLIGHT
            ));
        }
        if self.threads == 0 || self.sync_threads == 0 {
            return invalid("threads and sync_threads must be at least 1".into());
        }
        Ok(())
    }

    fn build_backend(&self, kind: BackendKind) -> Result<BuiltBackend, Refusal> {
        #[cfg_attr(not(any(ringway_linux, feature = "testing")), expect(unused_mut))]
        let mut built = match kind {
            #[cfg(not(ringway_linux))]
            BackendKind::Uring => return Err(Refusal::new(Feature::Uring, libc::ENOSYS)),
            #[cfg(not(ringway_linux))]
            BackendKind::Kaio => return Err(Refusal::new(Feature::Kaio, libc::ENOSYS)),
            #[cfg(ringway_linux)]
            BackendKind::Uring => self.build_uring()?,
            #[cfg(ringway_linux)]
            BackendKind::Kaio => {
                let kaio = Kaio::new(self.kaio_requests())
                    .map_err(|errno| Refusal::new(Feature::Kaio, errno))?;
                let user_ring = kaio.has_user_ring();
                let mut built = BuiltBackend::new(Box::new(kaio));
                if user_ring {
                    built.available.push(Feature::KaioUserRing);
                } else {
                    built.refusals.push(Refusal::new(Feature::KaioUserRing, libc::EOPNOTSUPP));
                }
                built
            }
            BackendKind::Threads => {
                let threads = Threads::new(self.thread_options())
                    .map_err(|error| Refusal::new(Feature::Threads, errno_of(&error)))?;
                BuiltBackend::new(Box::new(threads))
            }
            #[cfg(feature = "testing")]
            BackendKind::Null => BuiltBackend::new(Box::<Null>::default()),
        };
        #[cfg(ringway_linux)]
        let feature = match kind {
            BackendKind::Uring => Feature::Uring,
            BackendKind::Kaio => Feature::Kaio,
            BackendKind::Threads => Feature::Threads,
            #[cfg(feature = "testing")]
            BackendKind::Null => Feature::Threads,
        };
        // Threads make ordinary system calls: a trial would prove nothing, and they need no
        // descriptor.
        #[cfg(ringway_linux)]
        if matches!(kind, BackendKind::Uring | BackendKind::Kaio)
            && !built.available.contains(&Feature::IoPoll)
        {
            real_read(&mut *built.backend).map_err(|errno| Refusal::new(feature, errno))?;
        }
        #[cfg(feature = "testing")]
        if let Some(plan) = &self.faults {
            let faulty = Faulty::new(built.backend, plan.clone())
                .map_err(|error| Refusal::new(Feature::EventFd, errno_of(&error)))?;
            built.backend = Box::new(faulty);
        }
        Ok(built)
    }

    /// Builds a ring, for NVMe commands if that is requested and works.
    #[cfg(ringway_linux)]
    fn build_uring(&self) -> Result<BuiltBackend, Refusal> {
        let settings = Settings {
            // An operation with a time limit takes two entries at once.
            entries: self.entries.max(2),
            completion_entries: self.completion_entries.unwrap_or(self.entries.saturating_mul(4)),
            sqpoll: self.sqpoll.map(|sqpoll| {
                let idle = u32::try_from(sqpoll.idle.as_millis()).unwrap_or(u32::MAX);
                (idle, sqpoll.cpu)
            }),
            attach: self.attach.as_ref().map(|fd| fd.number()),
            iopoll: self.iopoll.is_some(),
            single_issuer: self.single_issuer,
            eventfd: self.eventfd,
            io_wq_workers: self.io_wq_workers,
        };
        let Some(file) = &self.passthrough else {
            return Ok(self.build_ring::<Usual>(settings)?.into_built());
        };
        match self.build_passthrough(settings.clone(), file) {
            Ok(built) => Ok(built),
            Err(refusal) => {
                let mut built = self.build_ring::<Usual>(settings)?.into_built();
                built.refusals.push(refusal);
                Ok(built)
            }
        }
    }

    /// Builds a ring with these entries. It polls for completions only if a real read of the file
    /// succeeds that way.
    #[cfg(ringway_linux)]
    fn build_ring<R: Entries>(&self, mut settings: Settings) -> Result<BuiltRing<R>, Refusal> {
        let mut uring = Uring::new(&settings)?;
        let mut refused = None;
        if let Some(file) =
            self.iopoll.as_ref().filter(|_| uring.available().contains(&Feature::IoPoll))
            && let Err(errno) = polled_read(&mut uring, file)
        {
            refused = Some(Refusal::new(Feature::IoPoll, errno));
            settings.iopoll = false;
            uring = Uring::new(&settings)?;
        }
        Ok(BuiltRing { uring, refused })
    }

    /// Builds a ring that takes NVMe commands, if a read of this namespace succeeds.
    #[cfg(ringway_linux)]
    fn build_passthrough(&self, settings: Settings, file: &File) -> Result<BuiltBackend, Refusal> {
        let refuse = |errno| Refusal::new(Feature::Passthrough, errno);
        match file.namespace() {
            None => return Err(refuse(libc::ENOTTY)),
            Some(Err(refusal)) => return Err(refusal.clone()),
            Some(Ok(_)) => {}
        }
        let mut ring = self.build_ring::<Big>(settings).map_err(|refusal| refuse(refusal.errno))?;
        if !ring.uring.has_commands() {
            return Err(refuse(libc::EINVAL));
        }
        first_read(&mut ring.uring, file).map_err(refuse)?;
        let mut built = ring.into_built();
        built.available.push(Feature::Passthrough);
        Ok(built)
    }

    /// Refusals of the requested options that only a ring supports.
    fn ring_only_refusals(&self, kind: BackendKind) -> Vec<Refusal> {
        if kind == BackendKind::Uring {
            return Vec::new();
        }
        [
            (self.sqpoll.is_some(), Feature::SqPoll),
            (self.attach.is_some(), Feature::AttachWq),
            (self.iopoll.is_some(), Feature::IoPoll),
            (self.passthrough.is_some(), Feature::Passthrough),
        ]
        .into_iter()
        .filter(|(asked, _)| *asked)
        .map(|(_, feature)| Refusal::new(feature, libc::EOPNOTSUPP))
        .collect()
    }
}

/// The chosen backend, and the explanation of the choice.
pub(super) struct ChosenBackend {
    pub(super) backend: Box<dyn Backend>,
    pub(super) ring_fd: Option<RawFd>,
    pub(super) explanation: Explanation,
}

struct BuiltBackend {
    backend: Box<dyn Backend>,
    ring_fd: Option<RawFd>,
    available: Vec<Feature>,
    refusals: Vec<Refusal>,
}

/// A ring, and why it does not poll for completions, if that was requested.
#[cfg(ringway_linux)]
struct BuiltRing<R: Entries> {
    uring: Uring<R>,
    refused: Option<Refusal>,
}

#[cfg(ringway_linux)]
impl<R: Entries> BuiltRing<R> {
    fn into_built(self) -> BuiltBackend {
        let Self { uring, refused } = self;
        BuiltBackend {
            available: uring.available().to_vec(),
            refusals: refused.into_iter().chain(uring.refusals().iter().cloned()).collect(),
            ring_fd: Some(uring.ring_fd()),
            backend: Box::new(uring),
        }
    }
}

impl BuiltBackend {
    fn new(backend: Box<dyn Backend>) -> Self {
        Self { backend, ring_fd: None, available: Vec::new(), refusals: Vec::new() }
    }
}

/// The backend of a queue, its available features, and those that were refused, with reason and
/// fix.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The backend in use.
    pub backend: BackendKind,
    /// Features that are in use: flags and registrations.
    pub available: Vec<Feature>,
    /// Features and backends that were requested, or tried first, and refused.
    pub refusals: Vec<Refusal>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend {}", self.backend)?;
        for (number, feature) in self.available.iter().enumerate() {
            write!(f, "{}{feature}", if number == 0 { ", with " } else { ", " })?;
        }
        self.refusals.iter().try_for_each(|refusal| write!(f, "\n{refusal}"))
    }
}

#[cfg(ringway_linux)]
/// A token that no operation has.
fn trial_token() -> Token {
    Token::new(Key { index: 0, generation: NonZeroU32::MAX }, 0)
}

#[cfg(ringway_linux)]
/// How long a trial may take before the backend counts as refused.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(ringway_linux)]
/// Reads a known page through the backend, as the queue will use it. Setting a backend up proves
/// nothing: some sandboxes allow that and then refuse every operation.
fn real_read(backend: &mut dyn Backend) -> Result<(), i32> {
    let sample = Sample::new().map_err(|error| errno_of(&error))?;
    // Leaked if no result comes: the kernel may still write to it.
    let buffer = Box::leak(Box::new(pages(PAGE)));
    let read =
        op::Read { fd: sample.file().number(), buf: buffer.as_mut_ptr(), len: PAGE, offset: 0 };
    sample.set_nonblocking(true);
    let job = Job::new(trial_token(), op::Raw::Read(read), FileKind::Storage, true);
    let mut result = run_trial(backend, job)?;
    if result == Err(libc::EAGAIN) {
        sample.set_nonblocking(false);
        result = run_trial(backend, job)?;
    }
    // SAFETY: the box was leaked above, its requests have completed, and it is taken back once.
    let buffer = unsafe { Box::from_raw(buffer) };
    result?;
    sample.check(&buffer).map_err(|error| errno_of(&error))
}

/// The backend that `RINGWAY_BACKEND` names, if it is set.
fn backend_of_environment() -> Result<Option<BackendKind>, BuildError> {
    match std::env::var_os(BACKEND_ENV) {
        Some(name) if !name.is_empty() => BackendKind::from_str(&name.to_string_lossy())
            .map(Some)
            .map_err(|error| BuildError::Invalid(format!("{BACKEND_ENV}: {error}"))),
        _ => Ok(None),
    }
}

#[cfg(ringway_linux)]
/// Reads from the caller's file on a ring that polls for completions.
fn polled_read(backend: &mut dyn Backend, file: &File) -> Result<(), i32> {
    if !file.is_direct() {
        return Err(libc::EINVAL);
    }
    // A command to such a device succeeds, but nothing polls for it. So does a read of an empty
    // file or of a hole, which does not reach the device.
    if file.device_polls() == Some(false) {
        return Err(libc::EOPNOTSUPP);
    }
    first_read(backend, file)
}

#[cfg(ringway_linux)]
/// Reads the first block of the caller's file.
fn first_read(backend: &mut dyn Backend, file: &File) -> Result<(), i32> {
    let align = file.direct_io();
    let len = align.offset_align.max(4096) as usize;
    let buffer = Box::leak(Box::new(AlignedBuffer::for_direct(align, len)));
    let read = op::Read { fd: file.fd(), buf: buffer.as_mut_ptr(), len, offset: 0 };
    let kind = file.traits().kind;
    let result = run_trial(backend, Job::new(trial_token(), op::Raw::Read(read), kind, true))?;
    // SAFETY: the box was leaked above, its only request has completed, and it is taken back once.
    drop(unsafe { Box::from_raw(buffer) });
    result.map(|_| ())
}

#[cfg(ringway_linux)]
/// Runs one job on a backend that has no other: returns its result or errno. An outer error means
/// that the job has not completed.
fn run_trial(backend: &mut dyn Backend, job: Job) -> Result<Result<i64, i32>, i32> {
    // SAFETY: the callers leak what the job points at unless the job has completed.
    unsafe { backend.push(&job) }.map_err(|_| libc::EAGAIN)?;
    let until = Instant::now() + TRIAL_TIMEOUT;
    let mut events = Vec::new();
    while events.is_empty() {
        if Instant::now() >= until {
            return Err(libc::ETIMEDOUT);
        }
        backend.enter(1, Some(until), &mut events).map_err(|error| errno_of(&error))?;
    }
    Ok(match events[0].kind {
        EventKind::Result(result) if result < 0 => Err(i32::try_from(-result).unwrap_or(libc::EIO)),
        EventKind::Result(result) => Ok(result),
        EventKind::NvmeStatus(status) => Err(status.errno()),
        EventKind::Unsupported | EventKind::TimerExpired | EventKind::CancelMissed => {
            Err(libc::EOPNOTSUPP)
        }
    })
}
