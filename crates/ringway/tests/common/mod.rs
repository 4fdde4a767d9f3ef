//! Helpers of all test suites: available backends, temporary files, waiting, runtimes and forks.
//! Cases that run on several executors use [`setup`].
#![allow(dead_code, reason = "each suite uses a part")]

pub mod buffers;
pub mod executor;
pub mod mounted;
#[path = "../../../ringway-core/tests/common/places.rs"]
pub mod places;
/// Changes of a whole process, in a process of its own.
#[path = "../../../ringway-core/tests/common/mod.rs"]
pub mod process;
pub mod setup;

pub use ringway_torture::watchdog;

use ringway::fs::File;
use ringway::{AlignedBuffer, BackendKind, Counts, Engine, EngineBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use watchdog::Watchdog;

pub const BACKENDS: [BackendKind; 3] =
    [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];
pub const PAGE: usize = 4096;
pub const MS: Duration = Duration::from_millis(1);

/// Skips that are allowed where `CI` is set. Any other skip fails there.
const EXPECTED_SKIPS: &[&str] = &["the kernel makes no user namespace in a chroot"];

/// Prints why something is not tested.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    let expected = EXPECTED_SKIPS.iter().any(|expected| why.contains(expected));
    assert!(expected || std::env::var_os("CI").is_none(), "unexpected skip in CI: {why}");
}

/// The engine, or `None` if this machine does not support its backend.
pub fn build_or_skip(kind: BackendKind, builder: EngineBuilder) -> Option<Engine> {
    builder.backend(kind).build().inspect_err(|error| skip(&format!("{kind}: {error}"))).ok()
}

pub fn is_available(kind: BackendKind) -> bool {
    build_or_skip(kind, Engine::builder().shards(1)).is_some()
}

/// The backends that are available on this machine.
pub fn available() -> Vec<BackendKind> {
    BACKENDS.into_iter().filter(|kind| is_available(*kind)).collect()
}

/// Runs a test on each available backend, under the watchdog.
pub fn on_each_backend(name: &str, test: impl Fn(BackendKind)) {
    for kind in available() {
        let _watch = Watchdog::new(&format!("{kind} {name}"));
        test(kind);
    }
}

/// A tokio runtime on the calling thread.
pub fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A tokio runtime with this number of worker threads.
pub fn multi_thread(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
}

/// A temporary directory on a real disk.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Content that differs at all offsets that a mistake is likely to confuse.
pub fn pattern(offset: u64, len: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (offset..offset + len as u64).map(byte).collect()
}

/// Writes a file and syncs it, so that it can be read directly.
pub fn write_synced(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
    fs::File::open(path).unwrap().sync_all().unwrap();
}

/// Opens the file for reading and writing on this engine. The standard library opens it, so no
/// injected fault can fail the open.
pub fn open(engine: &Engine, path: &Path, direct: bool) -> File {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let file = fs::File::options().read(true).write(true).custom_flags(flags).open(path);
    File::from_fd(file.expect("the temporary directory supports direct I/O").into(), engine)
}

/// A file of `pages` pages of [`pattern`], open for direct I/O, so that every read is an operation.
pub fn direct(engine: &Engine, dir: &Path, pages: usize) -> File {
    let path = dir.join("direct");
    fs::write(&path, pattern(0, pages * PAGE)).unwrap();
    open(engine, &path, true)
}

/// Whether the kernel is older than this version.
pub fn is_older_than(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>());
    let mut next = || numbers.next().unwrap().unwrap();
    (next(), next()) < (major, minor)
}

/// Removes a file's pages from the page cache.
pub fn drop_cached_pages(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Reads a page of a file of [`direct`] with at least 16 pages, and checks its content.
pub async fn read_page(file: &File, number: u64) {
    let offset = number % 16 * PAGE as u64;
    let (read, buffer) = file.read_at(AlignedBuffer::new(PAGE, PAGE), offset).await;
    assert_eq!((read.unwrap(), &buffer[..]), (PAGE, &pattern(offset, PAGE)[..]));
}

/// A pipe whose reading end is a file of the engine.
pub fn pipe(engine: &Engine) -> (File, io::PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    (File::from_fd(reader.into(), engine), writer)
}

/// Writes all of `content` to a pipe and blocks meanwhile.
pub fn put(mut writer: &io::PipeWriter, content: &[u8]) {
    io::Write::write_all(&mut writer, content).unwrap();
}

/// Makes a FIFO.
pub fn fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Whether any process has a FIFO open for reading.
pub fn has_reader(path: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, open};
    open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

/// Whether a descriptor is closed on exec.
pub fn is_cloexec(fd: impl AsFd) -> bool {
    rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC)
}

/// The number of descriptors and of threads of this process. The watchdog's thread counts once it
/// has started.
pub fn descriptors_and_threads() -> (usize, usize) {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    // A thread may have ended since. io_uring's last idle worker of a thread ends with that thread.
    let is_own = |name: io::Result<String>| name.is_ok_and(|name| !name.starts_with("iou-wrk-"));
    let threads = tasks.filter(|task| is_own(fs::read_to_string(task.join("comm")))).count();
    (fs::read_dir("/proc/self/fd").unwrap().count(), threads)
}

/// Resident bytes of this process: `VmRSS` now, or `VmHWM` at most.
pub fn resident(which: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(which)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// The errno of a result that must be an error.
pub fn errno<T>(result: io::Result<T>) -> i32 {
    result.map(drop).expect_err("an error").raw_os_error().unwrap_or(0)
}

/// Polls a future once, with a waker that wakes nothing.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A waker that counts its wakeups and unparks the thread that made it.
pub struct WakeCounter {
    wakeups: AtomicU64,
    thread: Thread,
}

impl WakeCounter {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { wakeups: AtomicU64::new(0), thread: std::thread::current() })
    }

    pub fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::SeqCst)
    }
}

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.wakeups.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Blocks until `ready` returns true.
pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + watchdog::LIMIT / 2;
    while !ready() {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        std::thread::sleep(MS);
    }
}

/// Like [`wait_for`], in a task: other tasks run meanwhile.
pub async fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + watchdog::LIMIT / 2;
    while !ready() {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        std::thread::sleep(MS);
        yield_once().await;
    }
}

/// Lets other tasks run once.
pub async fn yield_once() {
    let mut first = true;
    std::future::poll_fn(|cx| {
        if std::mem::take(&mut first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// The engine's counts. Asserts that they add up.
pub fn counts(engine: &Engine) -> Counts {
    let counts = engine.stats().counts;
    assert_eq!(counts.pushed, counts.delivered + counts.orphaned + counts.in_flight, "{counts:?}");
    counts
}

/// Waits until nothing is in flight: every dropped operation has completed and is counted. The
/// engine must reap by itself.
pub fn wait_until_idle(engine: &Engine) {
    wait_for("in_flight to return to 0", || counts(engine).in_flight == 0);
}

/// Like [`wait_until_idle`], but this thread reaps as well.
pub fn reap_until_idle(engine: &Engine) {
    wait_for("in_flight to return to 0", || {
        engine.reap();
        counts(engine).in_flight == 0
    });
}

/// Waits until a descriptor is readable, or until the time is over. Returns whether it is.
pub fn wait_readable(fd: BorrowedFd<'_>, time: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::try_from(time).unwrap())).unwrap() > 0
}

/// Runs `body` in a forked child and returns its wait status: 0 unless it panicked or hung.
pub fn in_fork(body: impl FnOnce()) -> i32 {
    // SAFETY: the child runs `body` on this thread only and exits without returning from this
    // function.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: `alarm` takes a number. It ends a child that hangs, because the watchdog's thread
        // exists only in the parent.
        unsafe { libc::alarm(20) };
        let succeeded = catch_unwind(AssertUnwindSafe(body)).is_ok();
        // SAFETY: `_exit` takes a number and does not return; it runs no code of the parent.
        unsafe { libc::_exit(i32::from(!succeeded)) }
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// Measures how long this thread is blocked: it neither runs nor waits for a processor, so other
/// programs hardly change it.
pub struct Blocked {
    begun: Instant,
    ran: Duration,
    faults: libc::c_long,
}

impl Blocked {
    pub fn measure() -> Self {
        Self { begun: Instant::now(), ran: Self::ran(), faults: Self::faults() }
    }

    /// Zero if the thread has waited for the disk with its code or memory.
    pub fn time(&self) -> Duration {
        let time = self.begun.elapsed().saturating_sub(Self::ran().saturating_sub(self.ran));
        if Self::faults() == self.faults { time } else { Duration::ZERO }
    }

    /// The time for which this thread has run or waited for a processor so far. Zero on a kernel
    /// that does not count it.
    fn ran() -> Duration {
        let counts = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let times = counts.split(' ').take(2).filter_map(|nanos| nanos.parse().ok());
        times.map(Duration::from_nanos).sum()
    }

    /// Page faults of this thread that have waited for a disk.
    fn faults() -> libc::c_long {
        // SAFETY: every bit pattern of the struct is valid, and the call writes one.
        unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage.ru_majflt
        }
    }
}

/// Runs a future on this thread, and returns the longest time for which a poll blocked the thread.
pub fn block_on_timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let mut future = std::pin::pin!(future);
    let mut longest = Duration::ZERO;
    let timed = std::future::poll_fn(|cx| {
        let blocked = Blocked::measure();
        let polled = future.as_mut().poll(cx);
        longest = longest.max(blocked.time());
        polled
    });
    let result = futures::executor::block_on(timed);
    (result, longest)
}
