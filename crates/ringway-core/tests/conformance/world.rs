//! The environment of a case: the backend, directories for files, and a queue that checks its
//! counters.

use ringway_core::{
    AlignedBuffer, BackendKind, BuildError, Completion, FaultPlan, File, OpenOptions, Operation,
    Options, Queue, Refusal,
};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Reasons for skips that are allowed if `CI` is set.
const EXPECTED_SKIPS: &[&str] = &[
    "only root may mount",
    "only root may make a PID namespace",
    "a kernel before 6.16 has no untorn writes on XFS",
    "processors",
];

/// Prints why a test is skipped.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    let expected = EXPECTED_SKIPS.iter().any(|expected| why.contains(expected));
    assert!(expected || env::var_os("CI").is_none(), "a skip that CI does not expect: {why}");
}

/// Where a case runs.
pub struct World {
    pub kind: BackendKind,
    /// Uses the fault-injecting backend, with a plan without faults.
    pub faulty: bool,
    /// So little memory may be locked that a new ring may have to wait until the kernel has
    /// released closed ones.
    pub little_memory: bool,
    /// A directory on a real disk, relative to the working directory, since an ordinary user may be
    /// unable to walk down its absolute path.
    pub disk: PathBuf,
    /// A directory in memory.
    pub shm: PathBuf,
}

impl World {
    pub fn options(&self) -> Options {
        let options = Options::new().backend(self.kind);
        if self.faulty { options.faults(FaultPlan::new(0)) } else { options }
    }

    pub fn queue(&self) -> Checked {
        self.build(&self.options())
    }

    /// A queue with these options; its backend must be available.
    pub fn build(&self, options: &Options) -> Checked {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match options.build() {
                Ok(queue) => return Checked(queue),
                Err(BuildError::Refused(refusal))
                    if self.little_memory
                        && refusal.errno == libc::ENOMEM
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Registers buffers. Where enough may be locked, ENOMEM is of the rings of earlier cases: the
    /// kernel returns their memory late.
    pub fn register(
        &self,
        mut register: impl FnMut() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match register() {
                Err(refusal)
                    if !self.little_memory
                        && refusal.errno == libc::ENOMEM
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                registered => return registered,
            }
        }
    }

    /// New files with this content, opened in every way: on disk and in memory, buffered and
    /// direct.
    pub fn files(&self, name: &str, content: &[u8]) -> Vec<File> {
        let mut files = Vec::new();
        for dir in [&self.disk, &self.shm] {
            for direct in [false, true] {
                let path = dir.join(format!("{name}-{direct}"));
                fs::write(&path, content).unwrap();
                match OpenOptions::new().read(true).write(true).direct(direct).open(&path) {
                    Ok(file) => files.push(file),
                    Err(error) => skip(&format!("no direct I/O on {}: {error}", dir.display())),
                }
                fs::remove_file(&path).unwrap();
            }
        }
        files
    }

    /// A new buffered file on disk, open for reading and writing.
    pub fn file(&self, content: &[u8]) -> File {
        self.files("file", content).swap_remove(0)
    }

    /// A new file on disk, open for direct I/O.
    pub fn direct(&self, content: &[u8]) -> File {
        let file = self.files("file", content).swap_remove(1);
        assert!(file.is_direct(), "no direct I/O on disk");
        file
    }

    /// An empty directory on disk.
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.disk.join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        dir
    }
}

/// A queue whose counters are checked after every step: pushed = delivered + orphaned + in flight.
pub struct Checked(Queue);

impl Checked {
    pub fn new(queue: Queue) -> Self {
        Self(queue)
    }

    pub fn check(&self) {
        let counts = self.0.stats().counts;
        assert_eq!(
            counts.pushed,
            counts.delivered + counts.orphaned + counts.in_flight,
            "{counts:?}"
        );
        assert_eq!(counts.in_flight, self.0.in_flight() as u64);
    }

    /// Returns the queue.
    pub fn into_queue(self) -> Queue {
        // SAFETY: the queue is moved out once, and the wrapper is forgotten.
        let queue = unsafe { std::ptr::read(&raw const self.0) };
        std::mem::forget(self);
        queue
    }

    /// The completion of an operation that is the only one in the queue.
    pub fn one(&mut self, operation: Operation) -> Completion {
        assert_eq!(self.in_flight(), 0);
        let id = self.push(operation).unwrap();
        self.check();
        let done: Vec<Completion> = self.reap(1).unwrap().collect();
        self.check();
        assert_eq!(done.len(), 1);
        let done = done.into_iter().next().unwrap();
        assert_eq!(done.id, id);
        done
    }

    pub fn result(&mut self, operation: Operation) -> Result<u64, i32> {
        self.one(operation).result.map_err(|error| error.errno())
    }

    /// Results of all operations in flight, by user data.
    pub fn rest(&mut self) -> BTreeMap<u64, Result<u64, i32>> {
        self.completions()
            .into_iter()
            .map(|(number, done)| (number, done.result.map_err(|error| error.errno())))
            .collect()
    }

    /// Completions of all operations in flight, by user data.
    pub fn completions(&mut self) -> BTreeMap<u64, Completion> {
        let mut all = BTreeMap::new();
        while self.in_flight() > 0 {
            let some: Vec<Completion> = self.reap(1).unwrap().collect();
            self.check();
            assert!(
                !some.is_empty() || self.in_flight() == 0,
                "reap gave nothing, with {} in flight",
                self.in_flight()
            );
            for done in some {
                let number = done.user_data;
                assert!(all.insert(number, done).is_none(), "{number} came twice");
            }
        }
        all
    }
}

impl Deref for Checked {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.0
    }
}

impl DerefMut for Checked {
    fn deref_mut(&mut self) -> &mut Queue {
        &mut self.0
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// Bytes that depend on their position in the file.
pub fn pattern(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(byte).collect()
}

pub fn byte(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16 ^ at >> 24) as u8
}

/// A buffer aligned for this file, filled with 0xee.
pub fn buffer_for(file: &File, len: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::for_direct(file.direct_io(), len);
    buffer.fill(0xee);
    buffer
}

/// A buffer aligned for this file, filled with the pattern.
pub fn filled(file: &File, at: u64, len: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::for_direct(file.direct_io(), len);
    for (place, at) in buffer.iter_mut().zip(at..) {
        *place = byte(at);
    }
    buffer
}

/// The first `len` bytes of a completion's buffer.
pub fn bytes(done: Completion) -> Vec<u8> {
    let len = done.result.unwrap() as usize;
    done.into_buffer().unwrap().as_slice()[..len].to_vec()
}

/// Both ends of a pipe.
pub fn pipe() -> (File, File) {
    let (reader, writer) = std::io::pipe().unwrap();
    (std::os::fd::OwnedFd::from(reader).into(), std::os::fd::OwnedFd::from(writer).into())
}

/// Writes all of `content` with write(2).
pub fn write_all(fd: &File, content: &[u8]) {
    // SAFETY: the slice is valid for reads for the length of the call.
    let written = unsafe { libc::write(fd.as_raw_fd(), content.as_ptr().cast(), content.len()) };
    assert_eq!(written, content.len() as isize, "{}", std::io::Error::last_os_error());
}

/// Whether the descriptor becomes readable within this time.
pub fn readable(fd: RawFd, within: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let milliseconds = within.as_millis().try_into().unwrap();
    // SAFETY: one entry, on this stack, for the length of the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
    assert!(ready >= 0, "{}", std::io::Error::last_os_error());
    ready == 1
}

/// Descriptors of this process.
pub fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Threads of this process.
pub fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// The same without io_uring's workers, of which some kernels keep an idle one. (Seen on 6.1.)
pub fn own_threads() -> usize {
    thread_names().iter().filter(|name| !name.starts_with("iou-wrk-")).count()
}

/// The names of this process's threads, for a message.
pub fn thread_names() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| name(task.ok()?).ok()).map(|name| name.trim().to_owned()).collect()
}

/// Waits until `ready`, at most `limit`.
pub fn wait_for(limit: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !ready() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

pub const MS: Duration = Duration::from_millis(1);
