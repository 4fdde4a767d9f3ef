//! Guarantee 1: memory that the kernel may still access is never freed.
//!
//! Each round leaves direct reads from a real disk in flight: abandoned, cancelled, or with their
//! queue dropped or closed without waiting. Their buffers come from a pool of the test. When the
//! library frees a buffer, the pool marks it at once and keeps it in quarantine until every read
//! must have completed. A mark that has changed by then was overwritten by the kernel after the
//! free. A buffer that is leaked with its queue never returns to the pool, and does no harm.
//!
//! The first test shows that the method works: it drops a bare ring with reads in flight and frees
//! the buffers at once. `RINGWAY_ROUNDS` sets the rounds of the other tests.

// It needs direct I/O, and a bare ring to compare with; the build with `ringway_portable` runs it
// for the code of the other systems.
#![cfg(target_os = "linux")]

use ringway_core::{BackendKind, Buffer, CustomBuffer, File, OpenOptions, Options, op};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Bytes of a read.
const LEN: usize = 4 * PAGE;
/// The content of the file.
const CONTENT: u8 = 0x5a;
/// The mark in a freed page.
const MARK: u8 = 0xc3;
/// Bytes of the file: far more than the reads in flight.
const FILE: u64 = 16 << 20;

/// Memory that is never unmapped, so that a write after free is detected instead of crashing.
#[derive(Clone)]
struct Pool(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    /// Free and safe to use again.
    clean: Vec<usize>,
    /// Freed and marked, with the time of the free.
    quarantine: Vec<(usize, Instant)>,
    handed_out: usize,
}

/// A buffer of the pool: marked when it is freed.
struct PooledBuffer {
    address: usize,
    pool: Pool,
}

impl Pool {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn take(&self) -> Buffer {
        let mut pages = self.0.lock().unwrap();
        pages.handed_out += 1;
        let address = match pages.clean.pop() {
            Some(address) => address,
            None => map(),
        };
        drop(pages);
        // SAFETY: the mapping has this length and is never unmapped, and only the caller has its
        // address.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, LEN) }.fill(0);
        Buffer::custom(Box::new(PooledBuffer { address, pool: self.clone() }))
    }

    /// Checks the marks of all buffers that were freed at least `age` ago.
    fn inspect(&self, age: Duration) -> Result<usize, String> {
        let mut pages = self.0.lock().unwrap();
        let (old, young) = std::mem::take(&mut pages.quarantine)
            .into_iter()
            .partition(|(_, since)| since.elapsed() >= age);
        pages.quarantine = young;
        let old: Vec<(usize, Instant)> = old;
        for (address, _) in &old {
            check(*address)?;
            pages.clean.push(*address);
        }
        Ok(old.len())
    }
}

fn map() -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), LEN, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(address, libc::MAP_FAILED);
    address.addr()
}

/// Checks that the mark of a freed buffer is intact.
fn check(address: usize) -> Result<(), String> {
    // Volatile, because the kernel writes without the compiler's knowledge.
    let byte = |at: usize| {
        // SAFETY: within a mapping that is never unmapped.
        unsafe { ((address + at) as *const u8).read_volatile() }
    };
    match (0..LEN).step_by(512).find(|at| byte(*at) != MARK) {
        Some(at) => {
            Err(format!("byte {at} of a freed buffer was overwritten with {:#x}", byte(at)))
        }
        None => Ok(()),
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length and is never unmapped; the value is its only owner.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, LEN) }.fill(MARK);
        let mut pages = self.pool.0.lock().unwrap();
        pages.handed_out -= 1;
        pages.quarantine.push((self.address, Instant::now()));
    }
}

// SAFETY: the mapping never moves, was initialised when it was taken from the pool, and belongs to
// this value alone.
unsafe impl CustomBuffer for PooledBuffer {
    fn as_ptr(&self) -> *const u8 {
        self.address as *const u8
    }
    fn len(&self) -> usize {
        LEN
    }
    fn writable(&self) -> bool {
        true
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
        self
    }
}

/// A file on disk, open for direct I/O, and removed when dropped.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("no-write-after-free-{name}-{}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        let piece = vec![CONTENT; 1 << 20];
        for _ in 0..FILE >> 20 {
            file.write_all(&piece).unwrap();
        }
        file.sync_all().unwrap();
        let file = OpenOptions::new()
            .read(true)
            .direct(true)
            .open(&path)
            .expect("the target directory is on a disk");
        Self { path, file }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that cannot be removed does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn offset(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (FILE / LEN as u64) * LEN as u64
}

fn rounds() -> u64 {
    std::env::var("RINGWAY_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1000)
}

/// Longer than any read takes, even on a busy disk.
const READ_LIMIT: Duration = Duration::from_millis(1500);

fn many_rounds(backend: BackendKind) {
    if let Err(error) = Options::new().backend(backend).build() {
        // If `CI` is set, every backend must be available.
        assert!(std::env::var_os("CI").is_none(), "{error}");
        return println!("skipped: {error}");
    }
    let scratch = Scratch::new(backend.name());
    let pool = Pool::new();
    let mut in_flight_at_the_end = 0u64;
    let mut inspected = 0;
    for round in 0..rounds() {
        let reads = 1 + round % 8;
        let wait = if round % 16 < 12 { Duration::ZERO } else { Duration::from_secs(5) };
        let mut queue = Options::new()
            .backend(backend)
            .entries(8)
            .in_flight(16)
            .threads(2)
            .close_wait(wait)
            .single_issuer(round % 2 == 0)
            .build()
            .unwrap();
        let mut ids = Vec::new();
        for number in 0..reads {
            ids.push(
                queue
                    .push(op::read(&scratch.file, pool.take(), offset(round * 8 + number)))
                    .unwrap(),
            );
        }
        queue.submit().unwrap();
        match round % 4 {
            // Dropped with all reads in flight.
            0 => {}
            1 => {
                in_flight_at_the_end += queue.close(Duration::ZERO).unwrap() as u64;
            }
            2 => ids.iter().for_each(|id| {
                queue.abandon(*id);
            }),
            _ => {
                queue.cancel_all();
                for done in queue.reap(1).unwrap() {
                    let full = done.result == Ok(LEN as u64);
                    let buffer = done.into_buffer().unwrap();
                    assert!(!full || buffer.as_slice().iter().all(|byte| *byte == CONTENT));
                }
            }
        }
        in_flight_at_the_end += queue.in_flight() as u64;
        drop(queue);
        inspected += pool.inspect(READ_LIMIT).unwrap();
    }
    std::thread::sleep(READ_LIMIT);
    inspected += pool.inspect(READ_LIMIT).unwrap();
    let pages = pool.0.lock().unwrap();
    assert!(pages.quarantine.is_empty());
    assert!(inspected > 0, "nothing was ever freed");
    assert!(
        in_flight_at_the_end > rounds() / 2,
        "too few reads were in flight when their queue ended, so nothing was tested"
    );
    println!(
        "{backend}: {} rounds, {in_flight_at_the_end} reads in flight at the end of their queues, \
         {inspected} buffers freed, {} leaked",
        rounds(),
        pages.handed_out,
    );
}

/// A program that frees too early: some of its buffers change after the free. If this test did not
/// detect that, the others would prove nothing.
#[test]
fn a_write_after_free_is_detected() {
    let scratch = Scratch::new("bare");
    let pool = Pool::new();
    let until = Instant::now() + Duration::from_secs(60);
    for round in 0.. {
        let mut ring = match io_uring::IoUring::new(16) {
            Ok(ring) => ring,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "{error}");
                return println!("skipped: {error}");
            }
        };
        let buffers: Vec<Buffer> = (0..8).map(|_| pool.take()).collect();
        for (number, buffer) in (0u64..).zip(&buffers) {
            let address = buffer.as_slice().as_ptr().cast_mut();
            let read = io_uring::opcode::Read::new(
                io_uring::types::Fd(scratch.file.as_raw_fd()),
                address,
                LEN as u32,
            );
            // SAFETY: the memory of the pool is never unmapped. The write after free is the purpose
            // of the test.
            unsafe { ring.submission().push(&read.offset(offset(round * 8 + number)).build()) }
                .unwrap();
        }
        ring.submit().unwrap();
        drop(ring);
        drop(buffers);
        std::thread::sleep(Duration::from_millis(20));
        if pool.inspect(Duration::ZERO).is_err() {
            return;
        }
        assert!(Instant::now() < until, "no write after free was seen in {round} rounds");
    }
}

#[test]
fn uring() {
    many_rounds(BackendKind::Uring);
}

#[test]
fn kaio() {
    many_rounds(BackendKind::Kaio);
}

#[test]
fn threads() {
    many_rounds(BackendKind::Threads);
}
