//! What a queue is to be, and how a backend is chosen for it.

use super::{Backends, Queue, Table, halves};
#[cfg(feature = "testing")]
use crate::backend::faulty::{FaultPlan, Faulty};
use crate::backend::kaio::Kaio;
#[cfg(feature = "testing")]
use crate::backend::null::Null;
use crate::backend::threads::{ThreadOptions, Threads};
use crate::backend::uring::{Settings, Uring};
use crate::backend::{Answer, Backend, Job};
use crate::buffer::AlignedBuffer;
use crate::error::BuildError;
use crate::file::{File, FileKind};
use crate::op;
use crate::probe::sample::{PAGE, Sample, pages};
use crate::refusal::{Feature, Refusal, errno_of};
use crate::slots::{Key, MAX_SLOTS, Token};
use std::fmt;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How operations reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// io_uring.
    Uring,
    /// Linux AIO (`io_submit`): direct I/O and fsync; the rest goes to threads.
    Kaio,
    /// Threads that make blocking calls.
    Threads,
    /// Nothing is done, and all of it succeeds: what the queue itself costs. For tests and
    /// benchmarks, with the feature `testing`; only code chooses it, never the environment.
    #[cfg(feature = "testing")]
    Null,
}

impl BackendKind {
    /// The name; but for `null`, as in `RINGWAY_BACKEND`.
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
    type Err = String;

    /// The name of a backend that does what it is asked: text comes from the environment and from
    /// users, and so `Null` is chosen in code alone.
    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Uring, Self::Kaio, Self::Threads]
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| {
                format!("`{name}` is not a backend; the accepted values are uring, kaio, threads")
            })
    }
}

/// A kernel thread that polls the submission queue, so that submitting needs no system call
/// (`IORING_SETUP_SQPOLL`). It keeps a processor busy for as long as there is work, and a while
/// longer.
#[derive(Clone, Copy, Debug)]
pub struct SqPoll {
    /// How long it polls without work before it sleeps; whole milliseconds.
    pub idle: Duration,
    /// The processor that it is bound to.
    pub cpu: Option<u32>,
}

/// The environment variable that chooses the backend.
const VARIABLE: &str = "RINGWAY_BACKEND";

/// What a queue is to be. The defaults suit a queue of a few dozen operations at a time.
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
    single_issuer: bool,
    eventfd: bool,
    io_wq_workers: Option<[u32; 2]>,
    threads: u32,
    sync_threads: u32,
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
            single_issuer: false,
            eventfd: false,
            io_wq_workers: None,
            threads: 64,
            sync_threads: 4,
            strict: false,
            #[cfg(feature = "testing")]
            faults: None,
            close_wait: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// The defaults: 64 entries, 1024 operations in flight, the best backend that is granted.
    pub fn new() -> Self {
        Self::default()
    }

    /// This backend or an error. Without it, `RINGWAY_BACKEND` forces one, and without that the
    /// best is taken that passes a real read: uring, kaio, threads.
    pub fn backend(mut self, backend: BackendKind) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Entries of the submission queue: the most operations that one system call submits. They cost
    /// locked memory (`RLIMIT_MEMLOCK`), about 200 bytes each with their completions. Default 64.
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// Entries of the completion queue; default four times those of the submission queue. More
    /// completions than this at once are kept by the kernel, at some cost.
    pub fn completion_entries(mut self, entries: u32) -> Self {
        self.completion_entries = Some(entries);
        self
    }

    /// The most operations in flight: a push beyond them is answered with `Full`. Default 1024, at
    /// most 16 777 215.
    pub fn in_flight(mut self, cap: u32) -> Self {
        self.in_flight = cap;
        self
    }

    /// A kernel thread polls the submission queue (uring only).
    pub fn sqpoll(mut self, sqpoll: SqPoll) -> Self {
        self.sqpoll = Some(sqpoll);
        self
    }

    /// Shares the kernel threads of another queue, its SQPOLL thread and io-wq workers
    /// (`IORING_SETUP_ATTACH_WQ`). Refused, with the reason kept, when that queue has no ring.
    pub fn attach(mut self, other: &Queue) -> Self {
        // A queue without a ring is attached to by a descriptor that is none: the kernel's refusal
        // is the explanation.
        self.attach = other
            .ring_fd()
            .map(|fd| {
                // SAFETY: the ring's descriptor is open for as long as `other` is borrowed.
                unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
            })
            .or_else(|| Some(std::fs::File::open("/dev/null").map(OwnedFd::from)))
            .and_then(Result::ok)
            .map(Arc::new);
        self
    }

    /// Polls the device for completions instead of waiting for its interrupt
    /// (`IORING_SETUP_IOPOLL`). It needs `file` to be open for direct I/O on a device with poll
    /// queues; a real read of it decides. Everything but direct transfers then goes to the threads,
    /// waiting spins, and there is no descriptor to poll.
    pub fn iopoll(mut self, file: &File) -> Self {
        self.iopoll = Some(file.clone());
        self
    }

    /// Only the thread that builds the queue will use it, to submit and to wait. The kernel may
    /// then leave completions to that thread (`SINGLE_ISSUER`, `DEFER_TASKRUN`; 6.1; before that
    /// `COOP_TASKRUN`), and answers EEXIST to any other. Without this option completions interrupt
    /// the thread that submitted: another one may be waiting for them.
    pub fn single_issuer(mut self, yes: bool) -> Self {
        self.single_issuer = yes;
        self
    }

    /// The descriptor to poll is an eventfd on every backend, rather than the ring itself on uring.
    pub fn eventfd(mut self, yes: bool) -> Self {
        self.eventfd = yes;
        self
    }

    /// The most io-wq workers, kernel threads for what cannot be done without blocking: for files,
    /// and for the rest (5.15). 0 leaves the kernel's own limit. Those that hang in a file system
    /// do not count: the limit for files is raised for them, to at most 1024.
    pub fn io_wq_workers(mut self, files: u32, rest: u32) -> Self {
        self.io_wq_workers = Some([files, rest]);
        self
    }

    /// The most threads, on the threads backend and beside the others. Default 64. They are started
    /// as work needs them, and end when there is none. Not counted are threads that hang in a
    /// system call, and those of operations that may wait for ever (opens of FIFOs, blocking calls
    /// of streams): at most 1024 each. Beyond that, such an open is answered EAGAIN.
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// The most threads for fsync and its kin, which have a lane of their own. Default 4; those
    /// that hang are not counted.
    pub fn sync_threads(mut self, threads: u32) -> Self {
        self.sync_threads = threads;
        self
    }

    /// Anything refused is an error, instead of being done without.
    pub fn strict(mut self, yes: bool) -> Self {
        self.strict = yes;
        self
    }

    /// Injects faults: for tests of programs that must stand them. With the feature `testing`.
    #[cfg(feature = "testing")]
    pub fn faults(mut self, plan: FaultPlan) -> Self {
        self.faults = Some(plan);
        self
    }

    /// How long dropping the queue waits for operations in flight that will not be cancelled. What
    /// is in flight after that is leaked, never freed. Default five seconds.
    pub fn close_wait(mut self, wait: Duration) -> Self {
        self.close_wait = wait;
        self
    }

    /// Makes the queue. With [`single_issuer`](Self::single_issuer), on the thread that will use
    /// it.
    ///
    /// Blocks for some system calls, a real read among them.
    ///
    /// Errors: [`BuildError::Refused`] when a forced backend is refused, or anything at all in
    /// strict mode; [`BuildError::Invalid`] for numbers out of range, or a name that
    /// `RINGWAY_BACKEND` cannot have.
    pub fn build(&self) -> Result<Queue, BuildError> {
        let made = self.make_best()?;
        Ok(Queue::assemble(made.backend, made.ring_fd, self, made.explanation))
    }

    /// Makes the two halves of a queue, for an engine that shares it among threads. The table holds
    /// any number of operations, started or not; [`in_flight`](Self::in_flight) is how many should
    /// be started at a time.
    ///
    /// Blocks, and fails, as [`build`](Self::build).
    pub fn build_halves<T: Default>(&self) -> Result<(Table<T>, Backends), BuildError> {
        let made = self.make_best()?;
        Ok(halves(made.backend, made.ring_fd, self, made.explanation, MAX_SLOTS))
    }

    /// The best backend that is to be had.
    fn make_best(&self) -> Result<Best, BuildError> {
        self.check()?;
        let forced = match (self.backend, std::env::var(VARIABLE)) {
            (Some(backend), _) => Some(backend),
            (None, Ok(name)) if !name.is_empty() => Some(
                BackendKind::from_str(&name)
                    .map_err(|error| BuildError::Invalid(format!("{VARIABLE}: {error}")))?,
            ),
            _ => None,
        };
        let ladder = match &forced {
            Some(kind) => std::slice::from_ref(kind),
            None => &[BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads][..],
        };
        let mut explanation = Explanation {
            backend: BackendKind::Threads,
            available: Vec::new(),
            refusals: Vec::new(),
        };
        for kind in ladder {
            match self.make(*kind) {
                Ok(made) => {
                    explanation.backend = *kind;
                    explanation.available = made.available;
                    explanation.refusals.extend(made.refusals);
                    explanation.refusals.extend(self.needs_a_ring(*kind));
                    if let Some(refusal) = explanation.refusals.first().filter(|_| self.strict) {
                        return Err(BuildError::Refused(refusal.clone()));
                    }
                    return Ok(Best { backend: made.backend, ring_fd: made.ring_fd, explanation });
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

    pub(super) fn cap(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn drop_wait(&self) -> Duration {
        self.close_wait
    }

    pub(super) fn thread_options(&self) -> ThreadOptions {
        ThreadOptions {
            workers: self.threads as usize,
            sync_workers: self.sync_threads as usize,
            idle: Duration::from_secs(10),
        }
    }

    fn check(&self) -> Result<(), BuildError> {
        let invalid = |text: String| Err(BuildError::Invalid(text));
        if self.entries == 0 || self.entries > 32_768 {
            return invalid(format!("entries: {} is not within 1 to 32768", self.entries));
        }
        if self.in_flight == 0 || self.in_flight > MAX_SLOTS {
            return invalid(format!(
                "in_flight: {} is not within 1 to {MAX_SLOTS}",
                self.in_flight
            ));
        }
        if self.threads == 0 || self.sync_threads == 0 {
            return invalid("threads and sync_threads: at least 1".into());
        }
        Ok(())
    }

    fn make(&self, kind: BackendKind) -> Result<Made, Refusal> {
        let mut made = match kind {
            BackendKind::Uring => self.make_uring()?,
            BackendKind::Kaio => {
                // The machine's contexts share `fs.aio-max-nr`: no more than can be of use at once.
                let requests = self.in_flight.min(self.entries.saturating_mul(4));
                let kaio =
                    Kaio::new(requests).map_err(|errno| Refusal::new(Feature::Kaio, errno))?;
                let user_ring = kaio.has_user_ring();
                let mut made = Made::new(Box::new(kaio));
                if user_ring {
                    made.available.push(Feature::KaioUserRing);
                } else {
                    made.refusals.push(Refusal::new(Feature::KaioUserRing, libc::EOPNOTSUPP));
                }
                made
            }
            BackendKind::Threads => {
                let threads = Threads::new(self.thread_options())
                    .map_err(|error| Refusal::new(Feature::Threads, errno_of(&error)))?;
                Made::new(Box::new(threads))
            }
            #[cfg(feature = "testing")]
            BackendKind::Null => Made::new(Box::<Null>::default()),
        };
        let feature = match kind {
            BackendKind::Uring => Feature::Uring,
            BackendKind::Kaio => Feature::Kaio,
            BackendKind::Threads => Feature::Threads,
            #[cfg(feature = "testing")]
            BackendKind::Null => Feature::Threads,
        };
        // Threads make plain system calls: there is nothing to try, and they need no descriptor.
        if matches!(kind, BackendKind::Uring | BackendKind::Kaio)
            && !made.available.contains(&Feature::IoPoll)
        {
            real_read(&mut *made.backend).map_err(|errno| Refusal::new(feature, errno))?;
        }
        #[cfg(feature = "testing")]
        if let Some(plan) = &self.faults {
            let faulty = Faulty::new(made.backend, plan.clone())
                .map_err(|error| Refusal::new(Feature::EventFd, errno_of(&error)))?;
            made.backend = Box::new(faulty);
        }
        Ok(made)
    }

    /// A ring; one that polls for completions only if a real read of the file says that it can.
    fn make_uring(&self) -> Result<Made, Refusal> {
        let mut settings = Settings {
            // An operation with a time limit takes two entries at once.
            entries: self.entries.max(2),
            completion_entries: self.completion_entries.unwrap_or(self.entries.saturating_mul(4)),
            sqpoll: self.sqpoll.map(|sqpoll| {
                let idle = u32::try_from(sqpoll.idle.as_millis()).unwrap_or(u32::MAX);
                (idle, sqpoll.cpu)
            }),
            attach: self.attach.as_ref().map(|fd| fd.as_raw_fd()),
            iopoll: self.iopoll.is_some(),
            single_issuer: self.single_issuer,
            eventfd: self.eventfd,
            io_wq_workers: self.io_wq_workers,
        };
        let mut uring = Uring::new(&settings)?;
        let mut refused = None;
        if let Some(file) =
            self.iopoll.as_ref().filter(|_| uring.granted().contains(&Feature::IoPoll))
            && let Err(errno) = polled_read(&mut uring, file)
        {
            refused = Some(Refusal::new(Feature::IoPoll, errno));
            settings.iopoll = false;
            uring = Uring::new(&settings)?;
        }
        let refusals = refused.into_iter().chain(uring.refusals().iter().cloned()).collect();
        Ok(Made {
            available: uring.granted().to_vec(),
            refusals,
            ring_fd: Some(uring.ring_fd()),
            backend: Box::new(uring),
        })
    }

    /// What was asked for that only a ring can do.
    fn needs_a_ring(&self, kind: BackendKind) -> Vec<Refusal> {
        if kind == BackendKind::Uring {
            return Vec::new();
        }
        [
            (self.sqpoll.is_some(), Feature::SqPoll),
            (self.attach.is_some(), Feature::AttachWq),
            (self.iopoll.is_some(), Feature::IoPoll),
            (self.io_wq_workers.is_some(), Feature::IoWqWorkers),
        ]
        .into_iter()
        .filter(|(asked, _)| *asked)
        .map(|(_, feature)| Refusal::new(feature, libc::EOPNOTSUPP))
        .collect()
    }
}

/// A backend, and how it was chosen.
struct Best {
    backend: Box<dyn Backend>,
    ring_fd: Option<i32>,
    explanation: Explanation,
}

struct Made {
    backend: Box<dyn Backend>,
    ring_fd: Option<i32>,
    available: Vec<Feature>,
    refusals: Vec<Refusal>,
}

impl Made {
    fn new(backend: Box<dyn Backend>) -> Self {
        Self { backend, ring_fd: None, available: Vec::new(), refusals: Vec::new() }
    }
}

/// Which backend a queue has, what it was granted, and what was refused, with reason and fix.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The backend.
    pub backend: BackendKind,
    /// Flags and registrations that are in use.
    pub available: Vec<Feature>,
    /// What was asked for, or tried first, and refused.
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

/// A token that no operation will have.
fn trial() -> Token {
    Token::new(Key { index: 0, generation: NonZeroU32::MAX }, 0)
}

/// How long a trial may take before the backend counts as refused.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads something through the backend, as it will be used: setting one up proves nothing (some
/// sandboxes grant the set-up and refuse every operation).
fn real_read(backend: &mut dyn Backend) -> Result<(), i32> {
    let sample = Sample::new().map_err(|error| errno_of(&error))?;
    // Leaked if the answer does not come: the kernel may still write to it.
    let buffer = Box::leak(Box::new(pages(PAGE)));
    let read =
        op::Read { fd: sample.file().as_raw_fd(), addr: buffer.as_mut_ptr(), len: PAGE, offset: 0 };
    let answer = try_one(backend, op::Raw::Read(read))?;
    // SAFETY: the box was leaked above, its only user has answered, and it is taken back once.
    let buffer = unsafe { Box::from_raw(buffer) };
    answer?;
    sample.check(&buffer).map_err(|error| errno_of(&error))
}

/// A direct read of a file of the caller's, on a ring that polls for completions.
fn polled_read(backend: &mut dyn Backend, file: &File) -> Result<(), i32> {
    let align = file.direct_io();
    let len = align.offset_align.max(4096) as usize;
    let buffer = Box::leak(Box::new(AlignedBuffer::for_direct(align, len)));
    let read = op::Read { fd: file.as_raw_fd(), addr: buffer.as_mut_ptr(), len, offset: 0 };
    let answer = try_one(backend, op::Raw::Read(read))?;
    // SAFETY: the box was leaked above, its only user has answered, and it is taken back once.
    drop(unsafe { Box::from_raw(buffer) });
    answer.map(|_| ())
}

/// One job through a backend that has nothing else to do: its result or errno; or an error when it
/// has not been answered.
fn try_one(backend: &mut dyn Backend, raw: op::Raw) -> Result<Result<i64, i32>, i32> {
    let job = Job::new(trial(), raw, FileKind::Storage, true);
    // SAFETY: the callers leak what the job points at unless its answer has come.
    unsafe { backend.carry(&job) }.map_err(|_| libc::EAGAIN)?;
    let until = Instant::now() + PATIENCE;
    let mut events = Vec::new();
    while events.is_empty() {
        if Instant::now() >= until {
            return Err(libc::ETIMEDOUT);
        }
        backend.enter(1, Some(until), &mut events).map_err(|error| errno_of(&error))?;
    }
    Ok(match events[0].answer {
        Answer::Result(result) if result < 0 => Err(i32::try_from(-result).unwrap_or(libc::EIO)),
        Answer::Result(result) => Ok(result),
        Answer::CannotCarry | Answer::Expired => Err(libc::EOPNOTSUPP),
    })
}
