//! Builds a queue: tries the backends in order, and gives the reason for each that is refused.

use super::backends::ChosenBackend;
use super::options::{BACKEND_ENV, BackendKind, Explanation, ForcedBy, Options};
use super::{Backends, Queue, Table};
use crate::backend::Backend;
#[cfg(feature = "testing")]
use crate::backend::faulty::Faulty;
#[cfg(ringway_linux)]
use crate::backend::kaio::Kaio;
#[cfg(feature = "testing")]
use crate::backend::null::Null;
use crate::backend::threads::Threads;
#[cfg(ringway_linux)]
use crate::backend::uring::{CommandEntries, Entries, Settings, Uring, UsualEntries};
#[cfg(ringway_linux)]
use crate::backend::{EventKind, Job};
#[cfg(ringway_linux)]
use crate::buffer::AlignedBuffer;
use crate::error::BuildError;
#[cfg(ringway_linux)]
use crate::file::{File, FileKind};
#[cfg(ringway_linux)]
use crate::op;
#[cfg(ringway_linux)]
use crate::probe::sample::{SAMPLE_PAGE, Sample, pages};
use crate::refusal::{Feature, Refusal, errno_of};
use crate::slots::MAX_SLOTS;
#[cfg(ringway_linux)]
use crate::slots::{Key, Token};
#[cfg(ringway_linux)]
use crate::sys::Number;
use crate::sys::{OwnedFd, RawFd, borrowed, libc};
#[cfg(ringway_linux)]
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;
#[cfg(ringway_linux)]
use std::time::{Duration, Instant};

/// A file that is no ring.
const NULL_DEVICE: &str = if cfg!(windows) { "NUL" } else { "/dev/null" };

impl Options {
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
        let (table, backends) = assemble(self.choose_backend()?, self, self.in_flight);
        Ok(Queue::new(table, backends))
    }

    /// Builds the two parts of a queue, for an engine that shares it among threads. The table holds
    /// any number of operations, started or not; start at most [`in_flight`](Self::in_flight) of
    /// them at a time.
    ///
    /// Blocks and fails as [`build`](Self::build) does.
    pub fn build_parts<T: Default>(&self) -> Result<(Table<T>, Backends), BuildError> {
        Ok(assemble(self.choose_backend()?, self, MAX_SLOTS))
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
            forced_by: match self.backend {
                Some(_) => Some(ForcedBy::Option),
                None => forced.map(|_| ForcedBy::Environment),
            },
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

    /// Requests that a Linux AIO context takes. All contexts of the machine share
    /// `fs.aio-max-nr`, so no more are reserved than can be used at once.
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
            injects_faults: self.injects_faults(),
        };
        let Some(file) = &self.passthrough else {
            return Ok(self.build_ring::<UsualEntries>(settings)?.into_built());
        };
        match self.build_passthrough(settings.clone(), file) {
            Ok(built) => Ok(built),
            Err(refusal) => {
                let mut built = self.build_ring::<UsualEntries>(settings)?.into_built();
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
        let mut ring =
            self.build_ring::<CommandEntries>(settings).map_err(|refusal| refuse(refusal.errno))?;
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

/// A table for at most `cap` operations, and its backends.
fn assemble<T: Default>(
    chosen: ChosenBackend,
    options: &Options,
    cap: u32,
) -> (Table<T>, Backends) {
    let backends = Backends::new(chosen, options, Table::<T>::new_pair());
    (Table::new(&backends, cap), backends)
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

#[cfg(ringway_linux)]
/// A token that no operation has.
fn trial_token() -> Token {
    Token::new(Key { index: 0, generation: NonZeroU32::MAX }, 0)
}

#[cfg(ringway_linux)]
/// How long a trial may take before the backend counts as refused.
const BACKEND_TRIAL_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(ringway_linux)]
/// Reads a known page through the backend, as the queue will use it. Setting a backend up proves
/// nothing: some sandboxes allow that and then refuse every operation.
fn real_read(backend: &mut dyn Backend) -> Result<(), i32> {
    let sample = Sample::new().map_err(|error| errno_of(&error))?;
    // Leaked if no result comes: the kernel may still write to it.
    let buffer = Box::leak(Box::new(pages(SAMPLE_PAGE)));
    let read = op::Read {
        fd: sample.file().number(),
        buf: buffer.as_mut_ptr(),
        len: SAMPLE_PAGE,
        offset: 0,
        flags: op::RwFlags::NONE,
    };
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
    let read = op::Read {
        fd: file.fd(),
        buf: buffer.as_mut_ptr(),
        len,
        offset: 0,
        flags: op::RwFlags::NONE,
    };
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
    let until = Instant::now() + BACKEND_TRIAL_TIMEOUT;
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

/// The backend that `RINGWAY_BACKEND` names, if it is set.
fn backend_of_environment() -> Result<Option<BackendKind>, BuildError> {
    match std::env::var_os(BACKEND_ENV) {
        Some(name) if !name.is_empty() => BackendKind::from_str(&name.to_string_lossy())
            .map(Some)
            .map_err(|error| BuildError::Invalid(format!("{BACKEND_ENV}: {error}"))),
        _ => Ok(None),
    }
}
