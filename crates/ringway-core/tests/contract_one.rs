//! Contract 1: nothing that the kernel may still touch is ever freed.
//!
//! Round after round, direct reads from a real disk are left in flight: given up, cancelled, or
//! with their queue dropped or closed at once without any wait. Their buffers are pages of a pool
//! that belongs to the test. A page that the library lets go of is marked at once and lies in
//! quarantine until every read must long have landed; a mark that has changed by then was
//! overwritten by the kernel after its buffer had been freed. A page that is never let go of (what
//! is in flight when its queue goes is leaked) never comes back to the pool, so it can harm nobody.
//!
//! That this would be seen is shown by the first test: a bare ring, dropped with reads in flight,
//! and a program that takes its buffers back at once. `RINGWAY_ROUNDS` sets the rounds of each test
//! below it.

use ringway_core::{BackendKind, Buffer, CustomBuffer, File, OpenOptions, Options, op};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Bytes of a read.
const LEN: usize = 4 * PAGE;
/// What the file holds.
const CONTENT: u8 = 0x5a;
/// What a freed page is filled with.
const MARK: u8 = 0xc3;
/// Bytes of the file; more than a few reads ahead of the device.
const FILE: u64 = 16 << 20;

/// Memory that outlives everything: leaked, so that a write after free is seen instead of crashing.
#[derive(Clone)]
struct Pool(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    /// Free and safe to use again.
    clean: Vec<usize>,
    /// Freed and marked; since when.
    quarantine: Vec<(usize, Instant)>,
    handed_out: usize,
}

/// A buffer of the pool: marked when it is freed.
struct Lent {
    address: usize,
    pool: Pool,
}

impl Pool {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn lend(&self) -> Buffer {
        let mut pages = self.0.lock().unwrap();
        pages.handed_out += 1;
        let address = match pages.clean.pop() {
            Some(address) => address,
            None => map(),
        };
        drop(pages);
        // SAFETY: the mapping has this length, is never unmapped, and is in nobody's use.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, LEN) }.fill(0);
        Buffer::custom(Box::new(Lent { address, pool: self.clone() }))
    }

    /// Looks at what was freed at least so long ago; each must be as it was marked.
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
    // SAFETY: a new private mapping, wherever the kernel likes.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), LEN, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(address, libc::MAP_FAILED);
    address.addr()
}

/// Whether freed memory is as it was left.
fn check(address: usize) -> Result<(), String> {
    // A kernel that writes where it should not does so behind the compiler's back.
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

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length and is never unmapped; the value is its only owner.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, LEN) }.fill(MARK);
        let mut pages = self.pool.0.lock().unwrap();
        pages.handed_out -= 1;
        pages.quarantine.push((self.address, Instant::now()));
    }
}

// SAFETY: the mapping stays where it is for ever, was initialised when it was lent, and is this
// value's alone.
unsafe impl CustomBuffer for Lent {
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

/// A file on the disk that is open for direct I/O; gone with the value.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("contract-one-{name}-{}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        let piece = vec![CONTENT; 1 << 20];
        (0..FILE >> 20).for_each(|_| file.write_all(&piece).unwrap());
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
        // A file that stays is in nobody's way.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn offset(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (FILE / LEN as u64) * LEN as u64
}

fn rounds() -> u64 {
    std::env::var("RINGWAY_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1000)
}

/// Longer than any read takes to land, a busy disk's included.
const LANDED: Duration = Duration::from_millis(1500);

fn many_rounds(backend: BackendKind) {
    if let Err(error) = Options::new().backend(backend).build() {
        // Where `CI` is set, everything can be tested.
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
                    .push(op::read(&scratch.file, pool.lend(), offset(round * 8 + number)))
                    .unwrap(),
            );
        }
        queue.submit().unwrap();
        match round % 4 {
            // Dropped as it is.
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
        inspected += pool.inspect(LANDED).unwrap();
    }
    std::thread::sleep(LANDED);
    inspected += pool.inspect(LANDED).unwrap();
    let pages = pool.0.lock().unwrap();
    assert!(pages.quarantine.is_empty());
    assert!(inspected > 0, "nothing was ever freed");
    assert!(
        in_flight_at_the_end > rounds() / 2,
        "too little was in flight when its queue went: nothing was tried"
    );
    println!(
        "{backend}: {} rounds, {in_flight_at_the_end} reads in flight at the end of their queues, {inspected} buffers freed, {} leaked",
        rounds(),
        pages.handed_out,
    );
}

/// A program that frees too early, on a ring of its own: some of its pages change after they were
/// freed. If this did not fail, the tests below would prove nothing.
#[test]
fn a_write_after_free_is_seen() {
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
        let buffers: Vec<Buffer> = (0..8).map(|_| pool.lend()).collect();
        for (number, buffer) in (0u64..).zip(&buffers) {
            let address = buffer.as_slice().as_ptr().cast_mut();
            let read = io_uring::opcode::Read::new(
                io_uring::types::Fd(scratch.file.as_raw_fd()),
                address,
                LEN as u32,
            );
            // SAFETY: the pool's memory is never unmapped; that it is written to too late is what
            // the test is about.
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
