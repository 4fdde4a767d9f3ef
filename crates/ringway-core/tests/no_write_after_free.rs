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

use ringway_core::{BackendKind, Buffer, File, OpenOptions, Options, op};
use ringway_torture::pages::Pages;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Bytes of a read.
const LEN: usize = PAGES * PAGE;
const PAGES: usize = 4;
/// The content of the file.
const CONTENT: u8 = 0x5a;
/// Bytes of the file: far more than the reads in flight.
const FILE: u64 = 16 << 20;

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
    let pool = Pages::default();
    let mut in_flight_at_the_end = 0u64;
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
                    .push(op::read(
                        &scratch.file,
                        pool.take_many::<PAGES>(),
                        offset(round * 8 + number),
                    ))
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
        pool.inspect(READ_LIMIT);
    }
    std::thread::sleep(READ_LIMIT);
    pool.inspect(READ_LIMIT);
    let (leaked, inspected) = pool.counts();
    assert!(inspected > 0, "nothing was ever freed");
    assert!(
        in_flight_at_the_end > rounds() / 2,
        "too few reads were in flight when their queue ended, so nothing was tested"
    );
    println!(
        "{backend}: {} rounds, {in_flight_at_the_end} reads in flight at the end of their queues, \
         {inspected} buffers freed, {leaked} leaked",
        rounds(),
    );
}

/// A program that frees too early: some of its buffers change after the free. If this test did not
/// detect that, the others would prove nothing.
#[test]
fn a_write_after_free_is_detected() {
    let scratch = Scratch::new("bare");
    let pool = Pages::default();
    let until = Instant::now() + Duration::from_secs(60);
    for round in 0.. {
        let mut ring = match io_uring::IoUring::new(16) {
            Ok(ring) => ring,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "{error}");
                return println!("skipped: {error}");
            }
        };
        let buffers: Vec<Buffer> = (0..8).map(|_| pool.take_many::<PAGES>()).collect();
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
        if pool.check(Duration::ZERO).is_err() {
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
