//! The set-up of a case: the backend and the executor that it runs on, an engine for them, and a
//! directory for its files.

use crate::executor::{Executor, Spawned};
use crate::guarded::PAGE;
use crate::watchdog::PATIENCE;
use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Counts, Engine, EngineBuilder};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

pub const KINDS: [BackendKind; 3] = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];

/// Skips that are allowed where `CI` is set. Any other skip fails there.
const EXPECTED_SKIPS: &[&str] = &[];

/// Prints why something is not tested.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    let expected = EXPECTED_SKIPS.iter().any(|expected| why.contains(expected));
    assert!(expected || std::env::var_os("CI").is_none(), "a skip that CI does not expect: {why}");
}

/// The backends that are available on this machine.
pub fn granted() -> Vec<BackendKind> {
    KINDS.into_iter().filter(|kind| is_granted(*kind)).collect()
}

pub fn is_granted(kind: BackendKind) -> bool {
    match Engine::builder().backend(kind).shards(1).build() {
        Ok(_) => true,
        Err(error) => {
            skip(&format!("{kind}: {error}"));
            false
        }
    }
}

/// The environment of one case. Clones share it.
#[derive(Clone)]
pub struct World {
    pub kind: BackendKind,
    pub executor: Executor,
    pub engine: Engine,
    pub spawned: Spawned,
    pub dir: Arc<tempfile::TempDir>,
}

impl World {
    /// Makes a directory and an engine. `change` changes the engine's usual options.
    pub fn new(
        kind: BackendKind,
        executor: Executor,
        change: fn(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        // More than one shard, so that threads reap each other's operations.
        let builder = Engine::builder().shards(2).backend(kind).reaping(executor.reaping());
        let engine = change(builder).build().unwrap();
        Self { kind, executor, engine, spawned: Spawned::default(), dir: Arc::new(scratch()) }
    }

    /// Runs a case to its end.
    pub fn run<W: Future<Output = ()> + Send + 'static>(&self, case: impl FnOnce(Self) -> W) {
        self.executor.run(&self.engine, &self.spawned, case(self.clone()));
        settled(&self.engine);
    }

    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        self.executor.spawn(&self.spawned, work)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file on disk with this content, open for reading and writing.
    pub async fn file(&self, name: &str, content: &[u8], direct: bool) -> File {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).direct(direct).engine(&self.engine);
        options.open(&path).await.expect("the target directory is on a disk")
    }

    /// Both ends of a pipe. The reading end is a file of the engine.
    pub fn pipe(&self) -> (File, std::io::PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        (File::from_fd(OwnedFd::from(reader), &self.engine), writer)
    }

    pub fn counts(&self) -> Counts {
        counts(&self.engine)
    }

    /// Waits until nothing is in flight. Other tasks run meanwhile.
    pub async fn quiet(&self) {
        until("in_flight to return to 0", || self.counts().in_flight == 0).await;
    }
}

/// A temporary directory on a real disk.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file of `pages` pages of [`pattern`], open for direct I/O, so that every read is an operation.
pub fn direct(engine: &Engine, dir: &Path, pages: usize) -> File {
    let path = dir.join("direct");
    fs::write(&path, pattern(0, pages * PAGE)).unwrap();
    let file = fs::File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
    File::from_fd(file.expect("the target directory is on a disk").into(), engine)
}

/// The engine's counts. Asserts that they add up.
pub fn counts(engine: &Engine) -> Counts {
    let counts = engine.stats().counts;
    assert_eq!(counts.pushed, counts.delivered + counts.orphaned + counts.in_flight, "{counts:?}");
    counts
}

/// Waits until nothing is in flight: every dropped operation has completed and is counted.
pub fn settled(engine: &Engine) {
    wait_for("in_flight to return to 0", || {
        engine.reap();
        counts(engine).in_flight == 0
    });
}

/// Blocks until `ready` returns true.
pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE / 2;
    while !ready() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(MS);
    }
}

/// Like [`wait_for`], in a task: other tasks run meanwhile.
pub async fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE / 2;
    while !ready() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(MS);
        give_way().await;
    }
}

/// Lets other tasks run once.
pub async fn give_way() {
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

/// Bytes that differ by their offset, so that a test notices data from the wrong place.
pub fn pattern(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(byte).collect()
}

pub fn byte(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16 ^ at >> 24) as u8
}

/// Writes all of `content` to a pipe and blocks meanwhile.
pub fn put(mut writer: &std::io::PipeWriter, content: &[u8]) {
    std::io::Write::write_all(&mut writer, content).unwrap();
}

/// Makes a FIFO.
pub fn fifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
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
    let count = |dir: &str| fs::read_dir(dir).unwrap().count();
    (count("/proc/self/fd"), count("/proc/self/task"))
}

pub const MS: Duration = Duration::from_millis(1);
