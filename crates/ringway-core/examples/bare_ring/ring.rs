//! The loop on the ring.

use io_uring::{IoUring, opcode, types};
use std::alloc::{Layout, alloc_zeroed};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;

pub fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "bare_ring FILE DEPTH SECONDS [BATCH]";
    let path = args.next().ok_or(usage)?;
    let depth: u32 = args.next().ok_or(usage)?.parse()?;
    let seconds: u64 = args.next().ok_or(usage)?.parse()?;
    let batch: usize = args.next().map_or(Ok(1), |batch| batch.parse())?;

    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path)?;
    let blocks = file.metadata()?.len() / BLOCK;
    let fd = types::Fd(file.as_raw_fd());
    let layout = Layout::from_size_align(depth as usize * BLOCK as usize, BLOCK as usize)?;
    // SAFETY: the size is not zero. The memory is never freed, so it outlives the ring.
    let memory = unsafe { alloc_zeroed(layout) };
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_no_sqarray()
        .setup_cqsize(depth * 4)
        .build(depth)?;

    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut read = |slot: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let addr = memory.wrapping_add((slot * BLOCK) as usize);
        opcode::Read::new(fd, addr, BLOCK as u32)
            .offset(random % blocks * BLOCK)
            .build()
            .user_data(slot)
    };
    for slot in 0..u64::from(depth) {
        // SAFETY: one request at a time reads into each slot's part of the memory, which outlives
        // the ring.
        unsafe { ring.submission().push(&read(slot))? };
    }

    let (start, before) = (Instant::now(), processor_time());
    let end = start + Duration::from_secs(seconds);
    let mut done = 0u64;
    let mut free = Vec::with_capacity(depth as usize);
    while Instant::now() < end {
        ring.submit_and_wait(batch)?;
        for entry in ring.completion() {
            assert_eq!(entry.result(), BLOCK as i32);
            free.push(entry.user_data());
        }
        done += free.len() as u64;
        let mut queue = ring.submission();
        for slot in free.drain(..) {
            // SAFETY: as above; the slot's last request has just completed.
            unsafe { queue.push(&read(slot))? };
        }
    }
    let (real, cpu) = (start.elapsed(), processor_time() - before);
    println!(
        "{:.0} op/s, {:.2} us CPU per operation",
        done as f64 / real.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / done as f64
    );
    Ok(())
}

/// User and system time of all threads of this process.
fn processor_time() -> Duration {
    // SAFETY: `struct rusage` is plain numbers, for which all zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writes during the call.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
