//! What this machine supports: every backend and every option is tried, and each refusal is
//! explained.
//!
//! ```
//! use ringway_core::probe;
//!
//! match probe::machine().uring {
//!     Ok(uring) => println!("io_uring with {} flags", uring.flags.len()),
//!     Err(refusal) => println!("{refusal}"),
//! }
//! ```
//!
//! A kernel's version says little: distributions backport, containers filter, and sandboxes allow a
//! ring and then fail every operation on it. So each result comes from a real trial: a ring is made
//! with the flag, and a file is read through it. A trial releases everything it makes, except
//! memory of a request that never completes.

mod container;
mod kaio;
pub(crate) mod sample;
mod uring;

pub use crate::refusal::limits::{Capability, Limit, Limits};
pub use kaio::KaioSupport;
pub use uring::{RingMemory, UringSupport, ring_memory};

use crate::device::{
    DirectIo, PathFacts, StorageKind, block_device_in_use, direct_alignment, is_nvme_generic,
};
use crate::refusal::{Feature, Refusal, errno_of};
use crate::sys::kernel_release;
use crate::thread::{SYSTEM_CALL_STACK, start_thread};
use sample::Sample;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long a trial waits for its completion. It reads from memory, so only a lost completion takes
/// this long.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// What the machine supports for this process, on this thread (seccomp filters may differ between
/// threads).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct Machine {
    /// Kernel release, `6.1.0-18-amd64`.
    pub kernel: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Effective user id.
    pub uid: u32,
    /// Bytes of a page.
    pub page_size: u64,
    /// Limits, capabilities and sysctls.
    pub limits: Limits,
    /// The container or sandbox, such as `docker`: a guess from typical traces.
    pub container: Option<String>,
    /// Memory of rings and how many of them the limit allows: with 64 entries, the default of a
    /// queue; 128, that of an engine's shard; and 256.
    pub ring_memory: Vec<RingMemory>,
    /// The io_uring backend: available if a read through a ring returned the right bytes.
    pub uring: Result<UringSupport, Refusal>,
    /// The Linux AIO backend: available if a read through a context returned the right bytes.
    pub kaio: Result<KaioSupport, Refusal>,
    /// The threads backend: available if a thread started and read the right bytes.
    pub threads: Result<(), Refusal>,
}

/// Tries everything. Takes some milliseconds, or a few seconds if memory or completions are slow;
/// makes and closes about twenty rings, one context and one thread.
///
/// Never fails: refusals are in the result. Needs three descriptors for all trials, and reports
/// EMFILE if there are none.
pub fn machine() -> Machine {
    let limits = Limits::of_this_process();
    let page_size = page_size();
    let sample = Sample::new().map(Arc::new);
    let with_sample = |feature, error: &io::Error| refused(feature, error, &limits);
    let (uring, kaio) = match &sample {
        Ok(sample) => (uring::trial(sample, &limits), kaio::trial(sample, &limits)),
        Err(error) => {
            (Err(with_sample(Feature::Uring, error)), Err(with_sample(Feature::Kaio, error)))
        }
    };
    Machine {
        kernel: kernel_release(),
        cpus: thread::available_parallelism().map_or(1, usize::from),
        // SAFETY: geteuid takes no arguments and cannot fail.
        uid: unsafe { libc::geteuid() },
        page_size,
        container: container::guess(),
        ring_memory: [64, 128, 256]
            .map(|entries| ring_memory(entries, page_size, &limits))
            .to_vec(),
        uring,
        kaio,
        threads: try_threads(sample.ok(), &limits),
        limits,
    }
}

/// The result of a trial; `None` if there was nothing to try.
pub type TrialResult = Option<Result<(), Refusal>>;

/// Facts about a path, and the results of direct and polled reads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct PathProbe {
    /// The file system, the device and the alignment.
    pub facts: PathFacts,
    /// For a block device: its use, from [`block_device_in_use`]; `None` if unused or unknown.
    pub in_use: Option<String>,
    /// A direct read.
    pub direct_read: TrialResult,
    /// A read through a ring with IOPOLL.
    pub io_poll: TrialResult,
    /// For an NVMe generic device: a read as an NVMe command.
    pub passthrough: TrialResult,
}

/// Reports facts about a path, and tries a direct and a polled read of its first block: of the file
/// or block device itself, or of an unnamed file (`O_TMPFILE`) made in a directory. Of an NVMe
/// generic device it tries a read as a command instead.
///
/// # Errors
///
/// Those of [`PathFacts::of_path`]. Failed reads are in the result. Blocks until the device
/// completes.
pub fn path(path: impl AsRef<Path>) -> io::Result<PathProbe> {
    let path = path.as_ref();
    let mut facts = PathFacts::of_path(path)?;
    let limits = Limits::of_this_process();
    let (direct_read, io_poll) = match open_direct(path, &facts) {
        None => (None, None),
        Some(Err(error)) => {
            // That a directory's files support it was a guess.
            facts.direct.supported &= facts.kind != StorageKind::Directory;
            (Some(Err(refused(Feature::DirectIo, &error, &limits))), None)
        }
        Some(Ok(file)) => {
            // The alignment of the directory was a guess; that of the file is exact.
            facts.direct = direct_alignment(file.as_fd());
            try_reads(&file, &facts, &limits)
        }
    };
    Ok(PathProbe {
        in_use: match facts.kind {
            StorageKind::Block => block_device_in_use(path).ok().flatten(),
            _ => None,
        },
        facts,
        direct_read,
        io_poll,
        passthrough: is_nvme_generic(path).then(|| uring::trial_of_passthrough(path, &limits)),
    })
}

/// Reads the first block: directly, then polled. Of an empty file only directly, since its end is
/// detected without the device.
fn try_reads(file: &File, facts: &PathFacts, limits: &Limits) -> (TrialResult, TrialResult) {
    let block = block_of(facts.direct);
    match file.read_at(&mut sample::pages(block), 0) {
        Err(error) => (Some(Err(refused(Feature::DirectIo, &error, limits))), None),
        Ok(0) => (Some(Ok(())), None),
        Ok(_) => (Some(Ok(())), Some(uring::trial_of_polling(file, facts, block, limits))),
    }
}

/// Opens a file for a direct read; `None` if there is nothing to try.
fn open_direct(path: &Path, facts: &PathFacts) -> Option<io::Result<File>> {
    let mut options = OpenOptions::new();
    options.read(true);
    match facts.kind {
        StorageKind::Regular | StorageKind::Block => {
            Some(options.custom_flags(libc::O_DIRECT).open(path))
        }
        StorageKind::Directory => {
            // If the directory cannot hold an unnamed file (read-only, no permission, network), or
            // the file size limit allows no block, there is nothing to try.
            let flags = libc::O_TMPFILE | libc::O_DIRECT;
            let file = match options.write(true).custom_flags(flags).mode(0o600).open(path) {
                Ok(file) => file,
                // The file was made, and does not support direct I/O.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    return Some(Err(error));
                }
                Err(_) => return None,
            };
            let block = sample::pages(block_of(facts.direct));
            if !sample::may_write(block.len()) {
                return None;
            }
            file.write_all_at(&block, 0).ok()?;
            Some(Ok(file))
        }
        _ => None,
    }
}

/// The length of a read that is aligned for `direct`: at least a page.
fn block_of(direct: DirectIo) -> usize {
    direct.offset_align.max(sample::SAMPLE_PAGE as u32) as usize
}

/// Starts one thread, and reads with it if there is a sample.
fn try_threads(sample: Option<Arc<Sample>>, limits: &Limits) -> Result<(), Refusal> {
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let read = |sample: &Sample| {
            let mut pages = sample::pages(sample::SAMPLE_PAGE);
            sample.file().read_at(&mut pages, 0)?;
            sample.check(&pages)
        };
        let result = sample.as_deref().map_or(Ok(()), read);
        // The descriptor is closed before the caller goes on.
        drop(sample);
        let _ = sender.send(result);
    };
    start_thread(c"ringway-probe", SYSTEM_CALL_STACK, read)
        .and_then(|()| receiver.recv().unwrap_or(Err(io::ErrorKind::Other.into())))
        .map_err(|error| refused(Feature::Threads, &error, limits))
}

fn refused(feature: Feature, error: &io::Error, limits: &Limits) -> Refusal {
    Refusal::with_limits(feature, errno_of(error), limits)
}

/// Polls until there is a result or the timeout is over.
fn wait_for<T>(timeout: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(result) = poll() {
            return Some(result);
        }
        if start.elapsed() >= timeout {
            return None;
        }
        thread::sleep(Duration::from_micros(100));
    }
}

fn page_size() -> u64 {
    // SAFETY: sysconf returns a constant of the system and accesses no memory of this process.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_a_result_or_at_the_timeout() {
        let mut asked = 0;
        let result = wait_for(TRIAL_TIMEOUT, || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(result, Some(3));
        assert_eq!(wait_for(Duration::ZERO, || None::<()>), None);
    }

    #[test]
    fn the_machine_has_a_name_and_pages() {
        assert!(!kernel_release().is_empty());
        assert!(page_size().is_power_of_two());
    }

    #[test]
    fn a_direct_read_of_a_character_device_is_not_tried() {
        let probe = path(Path::new("/dev/null")).unwrap();
        assert_eq!(probe.direct_read, None);
        assert_eq!(probe.io_poll, None);
        assert_eq!(probe.in_use, None);
    }
}
