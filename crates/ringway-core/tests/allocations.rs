//! In the steady state the queue does not allocate: with reused buffers, a push, its submission and
//! its completion take no memory from the allocator, on any backend or thread.
//!
//! A counting allocator counts for the whole process, so all checks are one test.

use ringway_core::{
    AlignedBuffer, BackendKind, Buffer, File, OpenOptions, Operation, Options, Queue, op,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system allocator does the work; the counter touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of this method, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of this method, which is the same.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of this method, which is the same.
        unsafe { System.realloc(memory, layout, len) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const DEPTH: usize = 32;
const BLOCK: usize = 4096;
const BLOCKS: u64 = 256;

/// Rounds before everything has its final size, and rounds that are counted.
const WARM_UP: usize = 500;
const COUNTED: usize = 100;

/// Runs `round` repeatedly and returns the allocations of the best series. A thread that starts, or
/// a queue that grows under load, allocates occasionally; what allocates for each operation does so
/// in every series.
fn count(mut round: impl FnMut()) -> u64 {
    for _ in 0..WARM_UP {
        round();
    }
    let mut series = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..COUNTED {
            round();
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    let mut least = series();
    for _ in 0..4 {
        if least == 0 {
            break;
        }
        least = least.min(series());
    }
    least
}

/// One round: as many operations as the queue is deep, each with a buffer that the previous round
/// returned.
fn transfers(
    queue: &mut Queue,
    buffers: &mut Vec<Buffer>,
    mut make: impl FnMut(Buffer) -> Operation,
) {
    while let Some(buffer) = buffers.pop() {
        queue.push(make(buffer)).unwrap();
    }
    queue.submit().unwrap();
    while buffers.len() < DEPTH {
        for done in queue.reap(DEPTH - buffers.len()).unwrap() {
            assert_eq!(done.result, Ok(BLOCK as u64));
            buffers.push(done.into_buffer().unwrap());
        }
    }
}

/// A chain of a write and an fdatasync.
fn commit(queue: &mut Queue, file: &File, buffer: &mut Option<Buffer>) {
    let write = op::write(file, buffer.take().unwrap(), 0).exact();
    queue.push_chain([write, op::fdatasync(file)]).unwrap();
    while queue.in_flight() > 0 {
        for done in queue.reap(2).unwrap() {
            done.result.unwrap();
            *buffer = done.into_buffer().or_else(|| buffer.take());
        }
    }
}

#[test]
fn the_steady_state_allocates_nothing() {
    let control = count(|| drop(std::hint::black_box(Box::new(0u8))));
    assert_eq!(control, COUNTED as u64, "the count itself does not work");

    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("allocations-{}", std::process::id()));
    let mut file = std::fs::File::create(&path).unwrap();
    for _ in 0..BLOCKS {
        file.write_all(&[7; BLOCK]).unwrap();
    }
    file.sync_all().unwrap();
    let open =
        |direct| OpenOptions::new().read(true).write(true).direct(direct).open(&path).unwrap();
    let (buffered, direct) = (open(false), open(!cfg!(windows)));
    std::fs::remove_file(&path).unwrap();

    for backend in [BackendKind::Null, BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads]
    {
        if let Err(error) = Options::new().backend(backend).build() {
            // If `CI` is set, every backend must be available.
            assert!(std::env::var_os("CI").is_none(), "{error}");
            println!("skipped: {error}");
            continue;
        }
        for file in [&buffered, &direct] {
            let mut queue =
                Options::new().backend(backend).in_flight(DEPTH as u32).threads(8).build().unwrap();
            let mut buffers: Vec<Buffer> =
                (0..DEPTH).map(|_| AlignedBuffer::new(BLOCK, BLOCK).into()).collect();
            let mut block = 0;
            let reads = count(|| {
                transfers(&mut queue, &mut buffers, |buffer| {
                    block = (block * 5 + 3) % BLOCKS;
                    op::read(file, buffer, block * BLOCK as u64)
                });
            });
            assert_eq!(
                reads,
                0,
                "{backend}, direct {}: {COUNTED} rounds of {DEPTH} reads",
                file.is_direct()
            );
            let nops = count(|| {
                for _ in 0..DEPTH {
                    _ = queue.push(op::nop()).unwrap();
                }
                assert_eq!(queue.reap(DEPTH).unwrap().count(), DEPTH);
            });
            assert_eq!(nops, 0, "{backend}: {COUNTED} rounds of {DEPTH} nops");
        }
        // On a file in memory, because the time of a device would only make the test slow.
        let place =
            if cfg!(target_os = "linux") { "/dev/shm" } else { env!("CARGO_TARGET_TMPDIR") };
        let memory =
            std::path::Path::new(place).join(format!("allocations-{}", std::process::id()));
        let log = OpenOptions::new().read(true).write(true).create(true).open(&memory).unwrap();
        std::fs::remove_file(&memory).unwrap();
        let mut queue = Options::new().backend(backend).build().unwrap();
        let mut buffer = Some(Buffer::from(vec![1; BLOCK]));
        let commits = count(|| commit(&mut queue, &log, &mut buffer));
        assert_eq!(commits, 0, "{backend}: {COUNTED} chains of a write and an fdatasync");
    }
}
