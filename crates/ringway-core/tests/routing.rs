//! Direct transfers that io_uring would pass to io-wq workers: they are counted, and reads go to
//! KAIO while that lasts, unless the backend is forced. The faulty backend stands for the kernel.

// Other systems have no ring, and no KAIO.
#![cfg(ringway_linux)]

use ringway_core::refusal::Feature;
use ringway_core::{AlignedBuffer, BackendKind, FaultPlan, File, OpenOptions, Options, Queue, op};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 256;
const SOON: Duration = Duration::from_secs(20);

/// A direct file whose block N consists of bytes N; `None` where there is no direct I/O.
fn scratch(name: &str) -> Option<(File, PathBuf)> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("routing-{name}-{}", std::process::id()));
    let content: Vec<u8> = (0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect();
    std::fs::write(&path, content).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    match OpenOptions::new().read(true).write(true).direct(true).open(&path) {
        Ok(file) => Some((file, path)),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

/// A queue on io_uring of which the faulty backend punts `per_thousand` transfers.
fn queue(options: Options, per_thousand: u16) -> Option<Queue> {
    let queue = options.faults(FaultPlan::new(1).punts(per_thousand)).build().unwrap();
    if queue.backend() != BackendKind::Uring || !has_kaio() {
        assert!(std::env::var_os("CI").is_none(), "{}", queue.explain());
        println!("skipped: it needs io_uring and KAIO\n{}", queue.explain());
        return None;
    }
    Some(queue)
}

fn has_kaio() -> bool {
    Options::new().backend(BackendKind::Kaio).build().is_ok()
}

fn read(file: &File, block: u64) -> op::Operation {
    op::read(file, AlignedBuffer::new(BLOCK, BLOCK), block * BLOCK as u64).user_data(block)
}

/// Reads `count` blocks, `depth` at a time, and checks their content.
fn read_all(queue: &mut Queue, file: &File, count: u64, depth: u64) {
    let mut block = 0;
    while block < count {
        let group = depth.min(count - block);
        for number in block..block + group {
            queue.push(read(file, number % BLOCKS)).unwrap();
        }
        let done: Vec<_> =
            queue.reap_until(group as usize, Instant::now() + SOON).unwrap().collect();
        assert_eq!(done.len() as u64, group);
        for done in done {
            assert_eq!(done.result, Ok(BLOCK as u64));
            let block = done.user_data as u8;
            let buffer = done.into_buffer().unwrap();
            assert!(buffer.as_slice().iter().all(|byte| *byte == block));
        }
        block += group;
    }
    let counts = queue.stats().counts;
    assert_eq!(counts.pushed, counts.delivered);
}

#[test]
fn punted_reads_go_to_kaio() {
    let Some((file, path)) = scratch("kaio") else { return };
    for depth in [1, 8, 32] {
        let Some(mut queue) = queue(Options::new(), 1000) else { return };
        read_all(&mut queue, &file, 1000, depth);
        let stats = queue.stats();
        assert!(stats.routed >= 900, "{stats:?}");
        assert!((1..=100).contains(&stats.punted), "most reads are not tried again: {stats:?}");
        let explanation = queue.explain();
        let refusal = explanation
            .refusals
            .iter()
            .find(|refusal| refusal.feature == Feature::AsyncDirect)
            .unwrap_or_else(|| panic!("{explanation}"));
        assert!(refusal.meaning.contains("KAIO did"), "{refusal}");
        assert!(!refusal.fix.is_empty());
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_forced_backend_counts_and_does_not_route() {
    let Some((file, path)) = scratch("forced") else { return };
    let Some(mut queue) = queue(Options::new().backend(BackendKind::Uring), 1000) else { return };
    read_all(&mut queue, &file, 500, 8);
    let stats = queue.stats();
    assert_eq!((stats.punted, stats.routed), (500, 0), "{stats:?}");
    assert!(queue.explain().to_string().contains("io-wq workers did them"));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_file_returns_to_io_uring() {
    let Some((file, path)) = scratch("return") else { return };
    let Some(mut queue) = queue(Options::new(), 5) else { return };
    read_all(&mut queue, &file, 20_000, 8);
    let stats = queue.stats();
    assert!(stats.punted > 1, "{stats:?}");
    // After a punt 64 reads or more are routed; then a check finds that reads are not punted.
    assert!(stats.routed >= 64 && stats.routed < 15_000, "{stats:?}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn nothing_is_punted_or_routed_without_cause() {
    let Some((file, path)) = scratch("none") else { return };
    let Some(mut queue) = queue(Options::new(), 0) else { return };
    read_all(&mut queue, &file, 1000, 8);
    let stats = queue.stats();
    assert_eq!((stats.punted, stats.routed), (0, 0), "{stats:?}");
    assert!(queue.explain().refusals.iter().all(|refusal| refusal.feature != Feature::AsyncDirect));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn writes_are_never_routed_and_arrive() {
    let Some((file, path)) = scratch("writes") else { return };
    let Some(mut queue) = queue(Options::new(), 1000) else { return };
    for round in 0..8u8 {
        for block in 0..BLOCKS {
            let mut buffer = AlignedBuffer::new(BLOCK, BLOCK);
            buffer.fill(round ^ block as u8);
            queue.push(op::write(&file, buffer, block * BLOCK as u64)).unwrap();
        }
        let done = queue.reap_until(BLOCKS as usize, Instant::now() + SOON).unwrap();
        assert!(done.map(|done| done.result).all(|result| result == Ok(BLOCK as u64)));
    }
    let stats = queue.stats();
    assert_eq!(stats.routed, 0, "{stats:?}");
    assert!(stats.punted > 0, "some writes are checked: {stats:?}");
    let content = std::fs::read(&path).unwrap();
    for (block, bytes) in content.chunks(BLOCK).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == 7 ^ block as u8), "block {block}");
    }
    std::fs::remove_file(path).unwrap();
}

/// The descriptor becomes readable for reads that KAIO has, also for those that it took before the
/// descriptor was asked for.
#[test]
fn the_polled_descriptor_covers_kaio() {
    let Some((file, path)) = scratch("polled") else { return };
    let Some(mut queue) = queue(Options::new(), 1000) else { return };
    for round in 0..200 {
        for block in 0..4 {
            queue.push(read(&file, block)).unwrap();
        }
        queue.submit().unwrap();
        let fd = queue.poll_fd().unwrap().as_raw_fd();
        let mut left = 4;
        while left > 0 {
            let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, on this stack, for the length of the call.
            let ready = unsafe { libc::poll(&raw mut poll, 1, SOON.as_millis() as i32) };
            assert_eq!(ready, 1, "round {round}: {left} left: {:?}", queue.stats());
            left -= queue.reap(0).unwrap().count();
        }
    }
    assert!(queue.stats().routed > 0);
    std::fs::remove_file(path).unwrap();
}

/// Reads with a time limit stay with io_uring, and cancelled ones end, whichever backend has them.
#[test]
fn cancelled_reads_end() {
    let Some((file, path)) = scratch("cancel") else { return };
    let Some(mut queue) = queue(Options::new(), 1000) else { return };
    for round in 0..50 {
        let ids: Vec<_> = (0..32).map(|block| queue.push(read(&file, block)).unwrap()).collect();
        if round % 2 == 0 {
            queue.submit().unwrap();
        }
        for id in ids {
            queue.cancel(id);
        }
        let done: Vec<_> = queue.reap_until(32, Instant::now() + SOON).unwrap().collect();
        assert_eq!(done.len(), 32);
        for done in done {
            let errno = done.result.as_ref().map_err(|error| error.errno());
            assert!(matches!(errno, Ok(4096) | Err(libc::ECANCELED)), "{errno:?}");
        }
    }
    std::fs::remove_file(path).unwrap();
}

/// A queue that is dropped with reads in flight in both backends waits for them.
#[test]
fn dropped_in_flight() {
    let Some((file, path)) = scratch("drop") else { return };
    for _ in 0..100 {
        let Some(mut queue) = queue(Options::new(), 500) else { return };
        for block in 0..64 {
            queue.push(read(&file, block)).unwrap();
            if block % 16 == 15 {
                queue.submit().unwrap();
                queue.reap(1).unwrap().for_each(drop);
            }
        }
    }
    std::fs::remove_file(path).unwrap();
}

/// Exact transfers, vectored ones and reads at the end of the file give what they give elsewhere.
#[test]
fn results_are_those_of_other_reads() {
    let Some((file, path)) = scratch("results") else { return };
    let end = BLOCKS * BLOCK as u64;
    for forced in [None, Some(BackendKind::Uring)] {
        let options = match forced {
            Some(kind) => Options::new().backend(kind),
            None => Options::new(),
        };
        let Some(mut queue) = queue(options, 700) else { return };
        for _ in 0..100 {
            for (offset, len, expected) in [
                (end, BLOCK, Ok(0)),
                (end - BLOCK as u64, 4 * BLOCK, Ok(BLOCK as u64)),
                (0, 8 * BLOCK, Ok(8 * BLOCK as u64)),
                (1, BLOCK, Err(libc::EINVAL)),
            ] {
                queue.push(op::read(&file, AlignedBuffer::new(len, BLOCK), offset)).unwrap();
                let done = queue.reap_until(1, Instant::now() + SOON).unwrap().next().unwrap();
                let result = done.result.as_ref().copied().map_err(|error| error.errno());
                assert_eq!(result, expected, "{len} bytes at {offset}");
            }
        }
    }
    std::fs::remove_file(path).unwrap();
}
