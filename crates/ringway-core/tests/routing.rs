//! Direct transfers that io_uring would pass to io-wq workers: they are counted, and reads go to
//! KAIO while that lasts, unless the backend is forced. The faulty backend stands for the kernel.

// Other systems have no ring, and no KAIO.
#![cfg(ringway_linux)]

use ringway_core::refusal::Feature;
use ringway_core::{
    AlignedBuffer, BackendKind, FaultPlan, FaultStep, File, OpenOptions, Options, Queue, op,
};
use std::io::Write as _;
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
    queue_with(options, FaultPlan::new(1).punts(per_thousand))
}

/// A queue on io_uring with these faults; `None` where there is no ring, or no KAIO.
fn queue_with(options: Options, faults: FaultPlan) -> Option<Queue> {
    let queue = options.faults(faults).build().unwrap();
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
        assert!(refusal.meaning.contains("kaio did"), "{refusal}");
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
    let Some(mut queue) = queue(Options::new(), 600) else { return };
    read_all(&mut queue, &file, 20_000, 8);
    let stats = queue.stats();
    assert!(stats.punted > 1 && stats.routed >= 64, "{stats:?}");
    // Were it checks alone that io_uring does, these would be about ten: the runs would get longer.
    let by_uring = 20_000 - stats.punted - stats.routed;
    assert!(by_uring > 40, "{stats:?}");
    std::fs::remove_file(path).unwrap();
}

/// The error of a check says nothing about punts: the next read is the check instead.
#[test]
fn a_check_that_fails_is_repeated() {
    let Some((file, path)) = scratch("failed-check") else { return };
    for errno in [libc::EIO, libc::EINVAL] {
        // Seven reads were submitted twice, and the eighth went to KAIO with the 64 that follow.
        let faults = FaultPlan::new(1).punts(1000).fail(FaultStep::Job(15), errno);
        let Some(mut queue) = queue_with(Options::new(), faults) else { return };
        read_all(&mut queue, &file, 72, 1);
        assert_eq!((queue.stats().punted, queue.stats().routed), (8, 65));
        queue.push(read(&file, 0)).unwrap();
        let done = queue.reap_until(1, Instant::now() + SOON).unwrap().next().unwrap();
        assert_eq!(done.result.unwrap_err().errno(), errno);
        read_all(&mut queue, &file, 129, 1);
        assert_eq!((queue.stats().punted, queue.stats().routed), (9, 65 + 129));
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_punt_now_and_then_routes_nothing() {
    let Some((file, path)) = scratch("rare") else { return };
    for depth in [1, 8, 64] {
        let Some(mut queue) = queue(Options::new(), 100) else { return };
        read_all(&mut queue, &file, 5000, depth);
        let stats = queue.stats();
        assert!(stats.punted > 100 && stats.routed == 0, "{stats:?}");
    }
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

/// A read of a descriptor without a [`File`], as the bindings of other languages push it.
fn raw_read(fd: i32, page: &mut AlignedBuffer) -> op::Operation {
    let read = op::Read { fd, buf: page.as_mut_ptr(), len: BLOCK, offset: 0 };
    // SAFETY: the test keeps the page and the descriptor until the completion.
    unsafe { op::Operation::from_raw(read.into(), None, None) }
}

/// What was found out about a file says nothing about a pipe that has its descriptor now: KAIO
/// would block the caller until somebody writes.
#[test]
fn a_pipe_with_the_descriptor_of_a_routed_file_is_not_given_to_kaio() {
    let Some((file, path)) = scratch("reuse") else { return };
    let Some(mut queue) = queue(Options::new(), 1000) else { return };
    let mut page = AlignedBuffer::new(BLOCK, BLOCK);
    for _ in 0..20 {
        queue.push(raw_read(file.as_raw_fd(), &mut page)).unwrap();
        let done = queue.reap_until(1, Instant::now() + SOON).unwrap().next().unwrap();
        assert_eq!(done.result, Ok(BLOCK as u64));
    }
    assert!(queue.stats().routed >= 10, "{:?}", queue.stats());
    let (reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: both descriptors are open, and `file` is not used as a file from here on.
    assert!(unsafe { libc::dup2(reader.as_raw_fd(), file.as_raw_fd()) } >= 0);
    let (submitted, wait) = std::sync::mpsc::channel();
    let blocked = std::thread::spawn(move || {
        let blocked = wait.recv_timeout(SOON).is_err();
        writer.write_all(b"x").unwrap();
        blocked
    });
    queue.push(raw_read(file.as_raw_fd(), &mut page)).unwrap();
    queue.submit().unwrap();
    let _ = submitted.send(());
    assert!(!blocked.join().unwrap(), "submitting waited for the pipe");
    let done = queue.reap_until(1, Instant::now() + SOON).unwrap().next().unwrap();
    assert_eq!(done.result, Ok(1));
    std::fs::remove_file(path).unwrap();
}

/// A wait that ends early leaves nothing behind that only another call would submit. The kernel
/// itself refuses this read, since pages of the file are dirty.
#[test]
fn a_read_that_is_submitted_again_is_in_flight_when_a_wait_ends() {
    let Some((file, path)) = scratch("deadline") else { return };
    let mut punted = 0;
    for round in 0..10 {
        let mut queue = Options::new().build().unwrap();
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(&[round; 64 * BLOCK]))
            .unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let reader = File::from(std::os::fd::OwnedFd::from(reader));
        let fd = queue.poll_fd().unwrap().as_raw_fd();
        queue.push(read(&file, 1)).unwrap();
        queue.push(op::read(&reader, vec![0; 1], op::Position::Current)).unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        let done = queue.reap_until(2, until).unwrap().count();
        // The caller does nothing but wait for the descriptor, and reap when it is readable.
        if done == 0 {
            let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, on this stack, for the length of the call.
            let ready = unsafe { libc::poll(&raw mut poll, 1, SOON.as_millis() as i32) };
            assert_eq!(ready, 1, "{:?}", queue.stats());
        }
        punted += queue.stats().punted;
    }
    if punted == 0 {
        println!("skipped: it needs io_uring and a file system that writes dirty pages first");
    }
    std::fs::remove_file(path).unwrap();
}

/// What KAIO has no room for is counted too.
#[test]
fn reads_beyond_the_size_of_kaio_are_counted() {
    let Some((file, path)) = scratch("full") else { return };
    let Some(mut queue) = queue(Options::new().entries(2), 1000) else { return };
    read_all(&mut queue, &file, 2000, 64);
    let stats = queue.stats();
    assert!(stats.routed > 0, "{stats:?}");
    assert!(stats.punted + stats.routed >= 2000, "{stats:?}");
    std::fs::remove_file(path).unwrap();
}

/// The pieces of one read may be with both backends.
#[test]
fn pieces_of_one_read_take_different_ways() {
    let Some((file, path)) = scratch("pieces") else { return };
    // The last block is cut off within: the read ends there.
    const LEN: usize = 16 << 20;
    const TAIL: usize = 1000;
    let content: Vec<u8> = (0..LEN + TAIL).map(|at| (at / BLOCK * 7 + at) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    for per_thousand in [200, 500, 1000] {
        let Some(mut queue) = queue(Options::new(), per_thousand) else { return };
        for round in 0..8 {
            let buffer = AlignedBuffer::new(LEN + BLOCK, BLOCK);
            let operation = op::read(&file, buffer, 0);
            let operation = if round % 2 == 0 { operation } else { operation.exact() };
            queue.push(operation).unwrap();
            let done = queue.reap_until(1, Instant::now() + SOON).unwrap().next().unwrap();
            assert_eq!(done.result, Ok((LEN + TAIL) as u64));
            let buffer = done.into_buffer().unwrap();
            assert!(buffer.as_slice()[..LEN + TAIL] == content, "wrong bytes");
        }
        assert!(queue.stats().punted > 0);
    }
    std::fs::remove_file(path).unwrap();
}

/// On a file system without `RWF_NOWAIT`, here tmpfs, all transfers work and count as punted.
#[test]
fn a_file_system_without_nowait() {
    let path = PathBuf::from(format!("/dev/shm/ringway-routing-{}", std::process::id()));
    std::fs::write(&path, [7; 4 * BLOCK]).unwrap();
    let file = OpenOptions::new().read(true).write(true).direct(true).open(&path);
    std::fs::remove_file(&path).unwrap();
    let mut queue = Options::new().build().unwrap();
    let (Ok(file), BackendKind::Uring) = (file, queue.backend()) else {
        println!("skipped: it needs io_uring and direct I/O on tmpfs (6.6)");
        return;
    };
    for block in 0..100 {
        queue.push(op::read(&file, AlignedBuffer::new(BLOCK, BLOCK), block % 4 * 4096)).unwrap();
        queue.push(op::write(&file, vec![7; BLOCK], block % 4 * 4096)).unwrap();
        let done: Vec<_> = queue.reap_until(2, Instant::now() + SOON).unwrap().collect();
        assert_eq!(done.len(), 2);
        assert!(done.iter().all(|done| done.result == Ok(BLOCK as u64)));
    }
    let stats = queue.stats();
    assert_eq!((stats.punted, stats.routed), (200, 0), "{}", queue.explain());
    assert!(queue.explain().to_string().contains("does not support RWF_NOWAIT"));
}

/// Gives the descriptor of a routed file to another file, as closing and opening does.
fn reuse_descriptor(queue: &mut Queue, file: &File, by: &impl AsRawFd) {
    let mut page = AlignedBuffer::new(BLOCK, BLOCK);
    queue.push(raw_read(file.as_raw_fd(), &mut page)).unwrap();
    let done = queue.reap_until(1, Instant::now() + SOON).unwrap().next().unwrap();
    assert_eq!(done.result, Ok(BLOCK as u64));
    // SAFETY: both descriptors are open, and `file` is not used as a file from here on.
    assert!(unsafe { libc::dup2(by.as_raw_fd(), file.as_raw_fd()) } >= 0);
}

/// A pipe returns what is in it, also if its descriptor was a routed file's.
#[test]
fn a_short_read_of_a_pipe_is_not_continued() {
    let Some((file, path)) = scratch("short-pipe") else { return };
    let Some(mut queue) = queue(Options::new(), 0) else { return };
    let (reader, mut writer) = std::io::pipe().unwrap();
    reuse_descriptor(&mut queue, &file, &reader);
    writer.write_all(&[7; 512]).unwrap();
    let mut page = AlignedBuffer::new(BLOCK, BLOCK);
    queue.push(raw_read(file.as_raw_fd(), &mut page)).unwrap();
    let done = queue.reap_until(1, Instant::now() + SOON).unwrap().next().expect("it waits");
    assert_eq!(done.result, Ok(512));
    std::fs::remove_file(path).unwrap();
}

/// A buffered file of which only the first page is in the page cache.
fn with_one_cached_page(path: &std::path::Path) -> std::fs::File {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::open(path).unwrap();
    for advice in [libc::POSIX_FADV_RANDOM, libc::POSIX_FADV_DONTNEED] {
        // SAFETY: the call takes numbers only.
        assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) }, 0);
    }
    file.read_exact_at(&mut [0; 1], 0).unwrap();
    file
}

/// With `RWF_NOWAIT`, a buffered read stops at the first page that is not cached. That must not
/// show, whatever had the descriptor before.
#[test]
fn a_buffered_read_with_the_descriptor_of_a_routed_file_is_whole() {
    const SKIP: usize = 100;
    let Some((file, path)) = scratch("reuse-buffered") else { return };
    for is_vectored in [false, true] {
        let mut queue = Options::new().build().unwrap();
        let buffered = with_one_cached_page(&path);
        let direct = OpenOptions::new().read(true).direct(true).open(&path).unwrap();
        reuse_descriptor(&mut queue, &direct, &buffered);
        let mut page = AlignedBuffer::new(4 * BLOCK, BLOCK);
        let (fd, buf, offset) = (direct.as_raw_fd(), page.as_mut_ptr(), SKIP as u64);
        let iov: [libc::iovec; 4] = std::array::from_fn(|at| libc::iovec {
            iov_base: buf.wrapping_add(at * BLOCK).cast(),
            iov_len: BLOCK,
        });
        let raw = match is_vectored {
            true => op::Readv { fd, iov: iov.as_ptr(), count: iov.len(), offset }.into(),
            false => op::Read { fd, buf, len: 4 * BLOCK, offset }.into(),
        };
        // SAFETY: the buffers and the descriptor are kept until the completion.
        queue.push(unsafe { op::Operation::from_raw(raw, None, None) }).unwrap();
        let done = queue.reap_until(1, Instant::now() + SOON).unwrap().next().unwrap();
        assert_eq!(done.result, Ok(4 * BLOCK as u64), "vectored: {is_vectored}");
        assert!((0..4 * BLOCK).all(|at| page[at] == ((at + SKIP) / BLOCK) as u8));
    }
    drop(file);
    std::fs::remove_file(path).unwrap();
}

/// The same for a transfer of which the kernel has done a part.
#[test]
fn a_read_that_is_continued_is_in_flight_when_a_wait_ends() {
    let Some((file, path)) = scratch("continued") else { return };
    let faults = FaultPlan::new(1).cut(FaultStep::Job(0));
    let mut queue = Options::new().faults(faults).build().unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let reader = File::from(std::os::fd::OwnedFd::from(reader));
    let fd = queue.poll_fd().unwrap().as_raw_fd();
    queue.push(op::read(&file, AlignedBuffer::new(8 * BLOCK, BLOCK), 0).exact()).unwrap();
    queue.push(read(&file, 0)).unwrap();
    queue.push(op::poll(&reader, op::Readiness::READABLE)).unwrap();
    let until = Instant::now() + Duration::from_millis(50);
    let mut left = 2 - queue.reap_until(3, until).unwrap().count();
    while left > 0 {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, on this stack, for the length of the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, SOON.as_millis() as i32) };
        assert_eq!(ready, 1, "{:?}", queue.stats());
        left -= queue.reap(0).unwrap().count();
    }
    assert_eq!(queue.stats().continued, 1);
    std::fs::remove_file(path).unwrap();
}
