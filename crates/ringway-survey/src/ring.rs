//! One request on a ring of its own, by a thread of its own: who served it. The kernel's workers
//! belong to the thread that submits, and stay for some seconds, so their names tell.

use crate::cells::{PAGE, Page};
use io_uring::{IoUring, opcode, types};
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
    thread::scope(|scope| scope.spawn(|| submit(fd, request)).join().expect("it does not panic"))
}

fn submit(fd: BorrowedFd<'_>, request: Request) -> io::Result<Served> {
    // Such a ring takes completions by task work when it is asked to, and not before: what is there
    // after the submission was done by it (6.1).
    let mut ring: IoUring =
        IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(4)?;
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
    ring.submit()?;
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
    Ok(match (has_worker()?, at_once) {
        (true, _) => Served::ByWorker,
        (false, true) => Served::InPlace,
        (false, false) => Served::Asynchronously,
    })
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
