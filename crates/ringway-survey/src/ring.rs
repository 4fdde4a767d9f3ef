//! One request on a ring of its own, by a thread of its own: who served it. The kernel's workers
//! belong to the thread that submits, and stay for some seconds, so their names tell.

use crate::cells::{PAGE, Page};
use io_uring::{IoUring, opcode, types};
use rustix::io::pwrite;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;

/// A request.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    Read { at: u64, len: usize },
    Write { at: u64, len: usize },
}

/// Who served a request that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Served {
    /// The submitting thread, before `io_uring_enter(2)` returned.
    InPlace,
    /// The device, later, without a thread.
    Asynchronously,
    /// A worker of the kernel.
    ByWorker,
}

/// Submits one request and waits for it. The error is that of the ring, or of the request.
pub fn serve(fd: BorrowedFd<'_>, request: Request) -> io::Result<Served> {
    on_a_thread(|| submit(fd, request, ticks)).map(|(served, _)| served)
}

/// Writes a page by a system call and submits another write of it, in one tick of the clock of time
/// stamps: they are due in the first one only. `None` if the clock ticked between the two in each
/// of several tries.
pub fn serve_second(fd: BorrowedFd<'_>, at: u64) -> io::Result<Option<Served>> {
    const TRIES: u32 = 20;
    let memory = Page([0xaa; PAGE]);
    let first = || {
        // A whole tick is left for both.
        let before = ticks();
        while ticks() == before {}
        let now = ticks();
        _ = pwrite(fd, &memory.0, at);
        now
    };
    for _ in 0..TRIES {
        let request = Request::Write { at, len: PAGE };
        if let (served, true) = on_a_thread(|| submit(fd, request, first))? {
            return Ok(Some(served));
        }
    }
    Ok(None)
}

/// The time of the clock that time stamps are taken from; it goes on by ticks.
fn ticks() -> Timespec {
    clock_gettime(ClockId::RealtimeCoarse)
}

/// Whether this kernel has the rings that tell who served a request.
///
/// # Errors
///
/// Why it has none: they need Linux 6.1.
pub fn supported() -> io::Result<()> {
    new_ring().map(drop)
}

/// A ring that takes completions when it is asked to, and not before: what is there after the
/// submission was done by it.
fn new_ring() -> io::Result<IoUring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(4)
}

fn on_a_thread<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(call).join().expect("it does not panic"))
}

/// Calls `first`, submits the request, and waits for it. Returns who served it, and whether the
/// time was still what `first` returned when it had been submitted.
fn submit(
    fd: BorrowedFd<'_>,
    request: Request,
    first: impl FnOnce() -> Timespec,
) -> io::Result<(Served, bool)> {
    let mut ring = new_ring()?;
    let (Request::Read { len, .. } | Request::Write { len, .. }) = request;
    let mut memory = vec![Page([0x5a; PAGE]); len.div_ceil(PAGE)];
    let (fd, memory_at) = (types::Fd(fd.as_raw_fd()), memory.as_mut_ptr().cast::<u8>());
    let len = u32::try_from(len).expect("a request is small");
    let entry = match request {
        Request::Read { at, .. } => opcode::Read::new(fd, memory_at, len).offset(at).build(),
        Request::Write { at, .. } => opcode::Write::new(fd, memory_at, len).offset(at).build(),
    };
    // SAFETY: `memory` has `len` bytes and outlives the request, because this function returns
    // after its completion only. The caller's borrow keeps the descriptor open.
    unsafe { ring.submission().push(&entry) }.expect("the ring is empty");
    let begun = first();
    ring.submit()?;
    let same_tick = ticks() == begun;
    let at_once = !ring.completion().is_empty();
    while ring.completion().is_empty() {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                // The kernel may still write to the memory.
                std::mem::forget(memory);
                return Err(error);
            }
            _ => {}
        }
    }
    let result = ring.completion().next().expect("it has completed").result();
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    let served = match (has_worker()?, at_once) {
        (true, _) => Served::ByWorker,
        (false, true) => Served::InPlace,
        (false, false) => Served::Asynchronously,
    };
    Ok((served, same_tick))
}

/// Whether the kernel has made a worker for the calling thread.
fn has_worker() -> io::Result<bool> {
    let name = format!("iou-wrk-{}", rustix::thread::gettid().as_raw_nonzero());
    for task in fs::read_dir("/proc/self/task")? {
        // A thread may end meanwhile.
        let comm = fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        if comm.trim_end() == name {
            return Ok(true);
        }
    }
    Ok(false)
}
