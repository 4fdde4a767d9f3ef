//! The trials of io_uring: a read through a plain ring, then one through a ring with each option.

use super::sample::{self, SAMPLE_PAGE, Sample};
use super::{TRIAL_TIMEOUT, refused, wait_for};
use crate::AlignedBuffer;
use crate::device::PathFacts;
use crate::op::{self, NvmeCommand};
use crate::refusal::limits::Limits;
use crate::refusal::{Feature, Refusal};
use crate::sys::eventfd::EventFd;
use io_uring::cqueue::Entry32;
use io_uring::squeue::Entry128;
use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, Parameters, Submitter, cqueue, opcode, squeue};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Entries of the rings of trials: as in a queue, and at most two pages.
const ENTRIES: u32 = 64;

/// Milliseconds until a polling thread sleeps: short, since it serves one read.
const SQPOLL_IDLE: u32 = 5;

/// Sizes of fixed buffers to try.
const BUFFER_SIZES: [usize; 3] = [64 << 10, 1 << 20, 8 << 20];

/// What io_uring supports besides a plain ring.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct UringSupport {
    /// Flags of `io_uring_setup(2)`, each tried by making a ring with it and reading through that.
    /// IOPOLL is only set up: whether reads work depends on the device, which [`path`](super::path)
    /// tries.
    pub flags: Vec<(Feature, Result<(), Refusal>)>,
    /// Features that are used or registered with a ring, each tried by a read.
    pub options: Vec<(Feature, Result<(), Refusal>)>,
    /// Fixed buffers by size in bytes, each tried by a read.
    pub fixed_buffers: Vec<(u64, Result<(), Refusal>)>,
    /// `IORING_FEAT_*`, as the kernel reports them.
    pub features: Vec<(&'static str, bool)>,
    /// Operations, as the kernel reports them (`IORING_REGISTER_PROBE`).
    pub opcodes: Result<Vec<(&'static str, bool)>, Refusal>,
}

/// The memory of a queue's ring that counts against `RLIMIT_MEMLOCK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct RingMemory {
    /// Entries of the submission queue ([`Options::entries`](crate::Options::entries)); the
    /// completion queue has four times as many.
    pub entries: u32,
    /// Bytes, in whole pages.
    pub bytes: u64,
    /// How many such rings the limit allows for all processes of this user together; `None` if the
    /// limit does not apply (no limit, or CAP_IPC_LOCK, which root has, in the initial
    /// user namespace).
    ///
    /// Kernels from 5.12 to about 6.13 do not charge rings to it, so there may be more.
    pub rings: Option<u64>,
}

/// The memory of a queue's ring with this many entries, and how many of them `limits` allow.
///
/// Two areas are charged: the submission entries of 64 bytes each; and a header of 64 bytes, the
/// completions of 16 bytes each and the index array of 4 bytes for each entry. Each area is rounded
/// up to whole pages.
pub fn ring_memory(entries: u32, page_size: u64, limits: &Limits) -> RingMemory {
    let entries = entries.next_power_of_two();
    let submissions = u64::from(entries) * 64;
    let completions = (64 + u64::from(entries) * 4 * 16).next_multiple_of(64);
    let indices = u64::from(entries) * 4;
    let bytes = submissions.next_multiple_of(page_size)
        + (completions + indices).next_multiple_of(page_size);
    let bound = !limits.may_lock_all_memory();
    RingMemory {
        entries,
        bytes,
        rings: limits.memlock.soft.filter(|_| bound).map(|limit| limit / bytes),
    }
}

/// Reads the sample through a plain ring, then tries every option.
pub(super) fn trial(sample: &Sample, limits: &Limits) -> Result<UringSupport, Refusal> {
    let trials = Trials { sample, limits, memory_wait_left: Cell::new(Duration::from_secs(1)) };
    let features = trials.plain()?;
    Ok(UringSupport {
        flags: trials.flags(),
        options: trials.options(),
        fixed_buffers: BUFFER_SIZES.map(|size| (size as u64, trials.fixed_buffer(size))).to_vec(),
        features,
        opcodes: trials.opcodes(),
    })
}

/// Reads `len` bytes at the start of `file`, which is open for direct I/O, through a ring with
/// IOPOLL.
pub(super) fn trial_of_polling(
    file: &File,
    facts: &PathFacts,
    len: usize,
    limits: &Limits,
) -> Result<(), Refusal> {
    let refuse = |error: io::Error| refused(Feature::IoPoll, &error, limits);
    let mut ring: IoUring = IoUring::builder().setup_iopoll().build(ENTRIES).map_err(refuse)?;
    // A read of a hole succeeds on every device, because it does not reach it.
    if facts.device.as_ref().is_some_and(|device| device.io_poll == Some(false)) {
        return Err(refuse(io::Error::from_raw_os_error(libc::EOPNOTSUPP)));
    }
    let pages = sample::pages(len);
    read(&mut ring, From::Descriptor(file.as_raw_fd()), pages).map(drop).map_err(refuse)
}

/// Reads the first block of an NVMe generic device with a command.
pub(super) fn trial_of_passthrough(path: &Path, limits: &Limits) -> Result<(), Refusal> {
    let refuse = |error: io::Error| refused(Feature::Passthrough, &error, limits);
    let file = crate::File::from(File::open(path).map_err(refuse)?);
    let namespace = match file.namespace() {
        Some(Ok(namespace)) => namespace,
        Some(Err(refusal)) => return Err(refusal.clone()),
        None => return Err(refuse(io::Error::from_raw_os_error(libc::ENOTTY))),
    };
    let mut ring: IoUring<Entry128, Entry32> = IoUring::builder().build(ENTRIES).map_err(refuse)?;
    let mut pages = sample::pages(SAMPLE_PAGE.max(1 << namespace.block_shift));
    let read = op::Read {
        fd: file.fd(),
        buf: pages.as_mut_ptr(),
        len: pages.len(),
        offset: 0,
        flags: op::RwFlags::NONE,
    };
    let command = NvmeCommand::new(&read.into(), namespace.id, namespace.block_shift);
    let entry = command.map(|command| command.sqe(read.fd, None, None).0);
    let unsupported = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    let result = entry.ok_or_else(unsupported).map(|entry| submit_and_wait(&mut ring, &entry));
    match result.map_err(refuse)? {
        Ok(Ok(0)) => Ok(()),
        Ok(Ok(_status)) => Err(refuse(io::Error::from_raw_os_error(libc::EIO))),
        Ok(Err(error)) => Err(refuse(error)),
        Err(StillInFlight) => {
            mem::forget(pages);
            Err(refuse(io::Error::from_raw_os_error(libc::ETIMEDOUT)))
        }
    }
}

/// Sets flags of a ring.
type Configure = fn(&mut Builder) -> &mut Builder;

/// What all trials use.
struct Trials<'a> {
    sample: &'a Sample,
    limits: &'a Limits,
    /// How long all trials together may still wait for memory.
    memory_wait_left: Cell<Duration>,
}

impl Trials<'_> {
    fn refuse(&self, feature: Feature) -> impl Fn(io::Error) -> Refusal {
        move |error| refused(feature, &error, self.limits)
    }

    /// Tries the plain ring that everything else is based on; returns the features that it reports.
    fn plain(&self) -> Result<Vec<(&'static str, bool)>, Refusal> {
        let refuse = self.refuse(Feature::Uring);
        let mut ring = self.ring(|ring| ring).map_err(&refuse)?;
        self.read_sample(&mut ring).map_err(&refuse)?;
        Ok(features(ring.params()))
    }

    fn ring(&self, configure: impl Fn(&mut Builder) -> &mut Builder) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        configure(&mut builder);
        self.retry_on_enomem(|| builder.build(ENTRIES))
    }

    /// Calls `take`, which needs lockable memory. A closed ring frees its memory only after a
    /// while, so with a tight limit ENOMEM may be due to earlier trials; then this retries, for up
    /// to a second in total.
    fn retry_on_enomem<T>(&self, take: impl Fn() -> io::Result<T>) -> io::Result<T> {
        const STEP: Duration = Duration::from_millis(20);
        loop {
            let left = self.memory_wait_left.get();
            match take() {
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && left >= STEP => {
                    self.memory_wait_left.set(left - STEP);
                    thread::sleep(STEP);
                }
                other => return other,
            }
        }
    }

    /// Reads the whole sample and compares it.
    fn read_sample(&self, ring: &mut IoUring) -> io::Result<()> {
        self.read_sample_from(ring, From::Descriptor(self.sample.file().as_raw_fd()))
    }

    fn read_sample_from(&self, ring: &mut IoUring, from: From) -> io::Result<()> {
        let pages = read(ring, from, sample::pages(SAMPLE_PAGE))?;
        self.sample.check(&pages)
    }

    fn flags(&self) -> Vec<(Feature, Result<(), Refusal>)> {
        let tried = |feature, configure: Configure| {
            let result = self.ring(configure).and_then(|mut ring| self.read_sample(&mut ring));
            (feature, result.map_err(self.refuse(feature)))
        };
        vec![
            tried(Feature::CqSize, |ring| ring.setup_cqsize(ENTRIES * 2)),
            tried(Feature::Clamp, |ring| ring.setup_clamp()),
            tried(Feature::SubmitAll, |ring| ring.setup_submit_all()),
            (Feature::RDisabled, self.enabled_later().map_err(self.refuse(Feature::RDisabled))),
            tried(Feature::CoopTaskrun, |ring| ring.setup_coop_taskrun()),
            tried(Feature::TaskrunFlag, |ring| ring.setup_coop_taskrun().setup_taskrun_flag()),
            tried(Feature::SingleIssuer, |ring| ring.setup_single_issuer()),
            tried(Feature::DeferTaskrun, |ring| ring.setup_single_issuer().setup_defer_taskrun()),
            tried(Feature::NoSqArray, |ring| ring.setup_no_sqarray()),
            tried(Feature::SqPoll, |ring| ring.setup_sqpoll(SQPOLL_IDLE)),
            (Feature::AttachWq, self.attached().map_err(self.refuse(Feature::AttachWq))),
            (
                Feature::IoPoll,
                self.ring(|ring| ring.setup_iopoll())
                    .map(drop)
                    .map_err(self.refuse(Feature::IoPoll)),
            ),
        ]
    }

    /// A ring that is made disabled and enabled before its first use.
    fn enabled_later(&self) -> io::Result<()> {
        let mut ring = self.ring(|ring| ring.setup_r_disabled())?;
        ring.submitter().register_enable_rings()?;
        self.read_sample(&mut ring)
    }

    /// A ring that uses the polling thread of another one.
    fn attached(&self) -> io::Result<()> {
        let first = self.ring(|ring| ring.setup_sqpoll(SQPOLL_IDLE))?;
        let mut second =
            self.ring(|ring| ring.setup_sqpoll(SQPOLL_IDLE).setup_attach_wq(first.as_raw_fd()))?;
        self.read_sample(&mut second)
    }

    fn options(&self) -> Vec<(Feature, Result<(), Refusal>)> {
        type Trial<'a> = fn(&Trials<'a>, &mut IoUring) -> io::Result<()>;
        let trials: [(Feature, Trial); 5] = [
            (Feature::ExtArg, |_, ring| waits_with_timeout(ring)),
            (Feature::FixedFiles, Self::fixed_file),
            (Feature::EventFd, Self::signals_event_fd),
            (Feature::IoWqWorkers, |_, ring| {
                // Zeroes only query the limits: setting them would outlive this ring, since they
                // belong to the thread.
                ring.submitter().register_iowq_max_workers(&mut [0, 0])
            }),
            (Feature::RingFd, |trials, ring| trials.registered_ring(ring)),
        ];
        let tried = trials.into_iter().map(|(feature, trial)| {
            let result = self.ring(|ring| ring).and_then(|mut ring| trial(self, &mut ring));
            (feature, result.map_err(self.refuse(feature)))
        });
        let commands = self.big_entries().map_err(self.refuse(Feature::Passthrough));
        tried.chain([(Feature::Passthrough, commands)]).collect()
    }

    /// A read through a ring of big entries, which has commands. Whether a device takes them is
    /// tried by [`trial_of_passthrough`].
    fn big_entries(&self) -> io::Result<()> {
        let mut ring: IoUring<Entry128, Entry32> =
            self.retry_on_enomem(|| IoUring::builder().build(ENTRIES))?;
        let from = From::Descriptor(self.sample.file().as_raw_fd());
        self.sample.check(&read(&mut ring, from, sample::pages(SAMPLE_PAGE))?)?;
        let mut table = io_uring::Probe::new();
        ring.submitter().register_probe(&mut table)?;
        if table.is_supported(opcode::UringCmd80::CODE) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        }
    }

    fn fixed_file(&self, ring: &mut IoUring) -> io::Result<()> {
        ring.submitter().register_files(&[self.sample.file().as_raw_fd()])?;
        self.read_sample_from(ring, From::FixedFile(0))
    }

    fn signals_event_fd(&self, ring: &mut IoUring) -> io::Result<()> {
        let event = EventFd::new()?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        self.read_sample(ring)?;
        wait_for(TRIAL_TIMEOUT, || event.drain().then_some(()))
            .ok_or(io::Error::from_raw_os_error(libc::ETIMEDOUT))
    }

    fn registered_ring(&self, ring: &mut IoUring) -> io::Result<()> {
        let (mut submitter, mut submissions, mut completions) = ring.split();
        submitter.register_ring_fd()?;
        // SAFETY: a NOP names no memory.
        let pushed = unsafe { submissions.push(&opcode::Nop::new().build()) };
        pushed.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
        submissions.sync();
        submit(&submitter)?;
        let result = wait_for(TRIAL_TIMEOUT, || {
            completions.sync();
            completions.next().map(|completion| completion.result())
        });
        // The registration belongs to the thread, so it must be ended before the ring.
        submitter.unregister_ring_fd()?;
        completion_result(result).map(drop)
    }

    /// Registers one buffer of `size` bytes and reads into it.
    fn fixed_buffer(&self, size: usize) -> Result<(), Refusal> {
        let trial = || {
            let mut ring = self.ring(|ring| ring)?;
            let mut pages = sample::pages(size);
            let buffer = libc::iovec { iov_base: pages.as_mut_ptr().cast(), iov_len: size };
            // SAFETY: `read` keeps the pages until the completion of the one request that uses
            // them, or leaks them. The kernel holds the pages of a registered buffer itself, so
            // freeing them before the ring is sound.
            let register = || unsafe { ring.submitter().register_buffers(&[buffer]) };
            // Waiting is useless if the buffer can never fit.
            match self.limits.memlock.soft {
                Some(limit) if size as u64 >= limit => register(),
                _ => self.retry_on_enomem(register),
            }?;
            let from = From::DescriptorIntoFixedBuffer(self.sample.file().as_raw_fd());
            let pages = read(&mut ring, from, pages)?;
            self.sample.check(&pages[..SAMPLE_PAGE])
        };
        trial().map_err(self.refuse(Feature::FixedBuffers))
    }

    fn opcodes(&self) -> Result<Vec<(&'static str, bool)>, Refusal> {
        let mut table = io_uring::Probe::new();
        self.ring(|ring| ring)
            .and_then(|ring| ring.submitter().register_probe(&mut table))
            .map_err(self.refuse(Feature::OpcodeTable))?;
        Ok(OPCODES.map(|(name, code)| (name, table.is_supported(code))).to_vec())
    }
}

/// The io_uring operations that queues use.
const OPCODES: [(&str, u8); 25] = [
    ("NOP", opcode::Nop::CODE),
    ("READ", opcode::Read::CODE),
    ("WRITE", opcode::Write::CODE),
    ("READV", opcode::Readv::CODE),
    ("WRITEV", opcode::Writev::CODE),
    ("READ_FIXED", opcode::ReadFixed::CODE),
    ("WRITE_FIXED", opcode::WriteFixed::CODE),
    ("FSYNC", opcode::Fsync::CODE),
    ("SYNC_FILE_RANGE", opcode::SyncFileRange::CODE),
    ("OPENAT2", opcode::OpenAt2::CODE),
    ("CLOSE", opcode::Close::CODE),
    ("STATX", opcode::Statx::CODE),
    ("FALLOCATE", opcode::Fallocate::CODE),
    ("FTRUNCATE", opcode::Ftruncate::CODE),
    ("FADVISE", opcode::Fadvise::CODE),
    ("RENAMEAT", opcode::RenameAt::CODE),
    ("UNLINKAT", opcode::UnlinkAt::CODE),
    ("MKDIRAT", opcode::MkDirAt::CODE),
    ("LINKAT", opcode::LinkAt::CODE),
    ("SYMLINKAT", opcode::SymlinkAt::CODE),
    ("POLL_ADD", opcode::PollAdd::CODE),
    ("TIMEOUT", opcode::Timeout::CODE),
    ("LINK_TIMEOUT", opcode::LinkTimeout::CODE),
    ("ASYNC_CANCEL", opcode::AsyncCancel::CODE),
    ("URING_CMD", opcode::UringCmd80::CODE),
];

fn features(found: &Parameters) -> Vec<(&'static str, bool)> {
    vec![
        ("SINGLE_MMAP", found.is_feature_single_mmap()),
        ("NODROP", found.is_feature_nodrop()),
        ("SUBMIT_STABLE", found.is_feature_submit_stable()),
        ("FAST_POLL", found.is_feature_fast_poll()),
        ("SQPOLL_NONFIXED", found.is_feature_sqpoll_nonfixed()),
        ("EXT_ARG", found.is_feature_ext_arg()),
        ("NATIVE_WORKERS", found.is_feature_native_workers()),
        ("RSRC_TAGS", found.is_feature_resource_tagging()),
        ("CQE_SKIP", found.is_feature_skip_cqe_on_success()),
        ("LINKED_FILE", found.is_feature_linked_file()),
        ("MIN_TIMEOUT", found.is_feature_min_timeout()),
        ("NO_IOWAIT", found.is_feature_no_iowait()),
    ]
}

/// Waits for a completion that never comes: the kernel must return ETIME.
fn waits_with_timeout(ring: &IoUring) -> io::Result<()> {
    if !ring.params().is_feature_ext_arg() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let timeout = Timespec::new().nsec(1_000_000);
    let waited = ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout));
    match waited {
        Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(()),
        // A signal came first, during an enter that accepted the timeout.
        Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
    }
}

/// What to read, and into what.
#[derive(Clone, Copy)]
enum From {
    Descriptor(RawFd),
    FixedFile(u32),
    /// Into the first page of fixed buffer 0.
    DescriptorIntoFixedBuffer(RawFd),
}

/// Reads from offset 0 into `pages` and returns them. If it does not complete in time they are
/// leaked, with the error ETIMEDOUT: the kernel may still write into them, and closing the ring
/// does not wait for it.
fn read<S: squeue::EntryMarker, C: cqueue::EntryMarker>(
    ring: &mut IoUring<S, C>,
    from: From,
    mut pages: AlignedBuffer,
) -> io::Result<AlignedBuffer> {
    let bytes = &mut *pages;
    let buf = bytes.as_mut_ptr();
    let len = bytes.len() as u32;
    let entry = match from {
        From::Descriptor(fd) => opcode::Read::new(Fd(fd), buf, len).build(),
        From::FixedFile(index) => opcode::Read::new(Fixed(index), buf, len).build(),
        From::DescriptorIntoFixedBuffer(fd) => {
            opcode::ReadFixed::new(Fd(fd), buf, SAMPLE_PAGE as u32, 0).build()
        }
    };
    match submit_and_wait(ring, &entry.into()) {
        Err(StillInFlight) => {
            mem::forget(pages);
            Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
        }
        Ok(result) => result.map(|_| pages),
    }
}

/// The kernel has, or may have, a request that is not completed.
struct StillInFlight;

/// Submits one entry and waits for its completion.
fn submit_and_wait<S: squeue::EntryMarker, C: cqueue::EntryMarker>(
    ring: &mut IoUring<S, C>,
    entry: &S,
) -> Result<io::Result<u32>, StillInFlight> {
    // SAFETY: the callers keep the memory that the entry names until its completion, or leak it.
    if unsafe { ring.submission().push(entry) }.is_err() {
        return Ok(Err(io::Error::from_raw_os_error(libc::EBUSY)));
    }
    let submitted = submit(&ring.submitter());
    if let Err(error) = submitted {
        // A polling thread may have taken the entry nevertheless.
        return if ring.params().is_setup_sqpoll() { Err(StillInFlight) } else { Ok(Err(error)) };
    }
    let result = wait_for(TRIAL_TIMEOUT, || {
        if let Some(completion) = ring.completion().next() {
            let completion: cqueue::Entry = completion.into();
            return Some(completion.result());
        }
        // If completions are deferred or polled for, an enter that asks for events makes them. Its
        // error is irrelevant. SAFETY: no signal mask is passed, so the call accesses no memory.
        let _ = unsafe {
            ring.submitter().enter::<libc::sigset_t>(0, 0, EnterFlags::GETEVENTS.bits(), None)
        };
        None
    });
    match result {
        None => Err(StillInFlight),
        some => Ok(completion_result(some)),
    }
}

/// The result of a completion.
fn completion_result(completion: Option<i32>) -> io::Result<u32> {
    let result = completion.unwrap_or(-libc::ETIMEDOUT);
    u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()))
}

/// Submits what was pushed, also if a signal interrupts it.
fn submit(submitter: &Submitter<'_>) -> io::Result<()> {
    loop {
        match submitter.submit() {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::limits::{Capability, Limit};

    fn limits(memlock: Option<u64>, capabilities: u64) -> Limits {
        Limits {
            memlock: Limit { soft: memlock, hard: memlock },
            capabilities: Some(capabilities),
            ..Limits::of_this_process()
        }
    }

    /// Measured on kernel 6.18 as an ordinary user, who made so many queues.
    #[test]
    fn ring_memory_is_what_the_kernel_charges() {
        let usual = limits(Some(8 << 20), 0);
        let rings = |entries| ring_memory(entries, 4096, &usual).rings;
        assert_eq!(rings(64), Some(682));
        assert_eq!(rings(128), Some(409));
        assert_eq!(rings(256), Some(227));
        assert_eq!(rings(4096), Some(15));
        assert_eq!(ring_memory(256, 4096, &usual).bytes, 9 * 4096);
        assert_eq!(ring_memory(256, 4096, &limits(Some(64 << 10), 0)).rings, Some(1));
    }

    #[test]
    fn without_a_limit_there_is_no_count() {
        let privileged = limits(Some(8 << 20), Capability::IpcLock.bit());
        assert_eq!(ring_memory(64, 4096, &privileged).rings, None);
        assert_eq!(ring_memory(64, 4096, &limits(None, 0)).rings, None);
    }

    #[test]
    fn a_negative_result_is_an_error() {
        assert_eq!(completion_result(Some(5)).unwrap(), 5);
        assert_eq!(
            completion_result(Some(-libc::EINVAL)).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
        assert_eq!(completion_result(None).unwrap_err().raw_os_error(), Some(libc::ETIMEDOUT));
        assert!(completion_result(Some(i32::MIN)).is_err());
    }
}
