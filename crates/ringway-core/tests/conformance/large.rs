//! Transfers longer than a device, a system call or 32 bits take at once: every byte is in its
//! place.

use super::common::wait_for_memory;
use super::errors::small_file_system;
use super::world::{MS, World, buffer_for, bytes, filled, pattern, skip};
use ringway_core::op::{self, Vectored};
use ringway_core::{BackendKind, Buffer, FaultPlan, FaultStep, File, Late, OpenOptions, Operation};
use ringway_torture::is_long;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn long_reads(world: &World, file: &File, content: &[u8]) {
    let len = content.len() as u64;
    let align = u64::from(file.direct_io().offset_align);
    let request = u64::from(file.largest_request().unwrap_or(1 << 20));
    println!("requests of at most {request} bytes, aligned to {align}");
    let mut queue = world.queue();
    // At odd blocks, with lengths around the limit.
    let spans = [
        (0, request),
        (align, request),
        (0, request + align),
        (align, request - align),
        (3 * align, 2 * request + 5 * align),
        (0, len),
        (align, len),
        (7 * align, len / 2),
        (len / 2, len),
    ];
    for exact in [false, true] {
        for (number, (at, requested)) in (0u64..).zip(spans) {
            let at = at / align * align;
            let requested = requested.div_ceil(align) * align;
            let read = op::read(file, buffer_for(file, requested as usize), at).user_data(number);
            queue.push(if exact { read.exact() } else { read }).unwrap();
        }
        for (number, done) in queue.completions() {
            let (at, requested) = spans[number as usize];
            let at = at / align * align;
            let there = (len - at).min(requested.div_ceil(align) * align);
            let read = bytes(done);
            assert_eq!(read.len() as u64, there, "{requested} at {at}");
            assert!(read == content[at as usize..][..there as usize], "{requested} at {at}");
        }
    }
    let parts =
        Vectored::new([2 * request, align, request].map(|len| buffer_for(file, len as usize)));
    let done = queue.one(op::readv(file, parts, align).exact());
    let mut at = align;
    let there = done.result.unwrap();
    assert_eq!(there, (len - align).min(3 * request + align));
    for buffer in done.into_vectored().unwrap().buffers() {
        let left = (align + there - at).min(buffer.len() as u64) as usize;
        assert_eq!(buffer.as_slice()[..left], pattern(at, left));
        at += left as u64;
    }
}

pub fn direct_reads_over_the_largest_request(world: &World) {
    let content = pattern(0, (18 << 20) + 1234);
    long_reads(world, &world.direct(&content), &content);
}

pub fn direct_writes_over_the_largest_request(world: &World) {
    let file = world.direct(b"");
    let align = file.direct_io().offset_align as usize;
    let mut queue = world.queue();
    // Contiguous writes, all in flight together.
    let lens = [(5 << 20) + align, 4 << 20, (9 << 20) - align, align, 1 << 20];
    let mut at = 0;
    for len in lens {
        queue.push(op::write(&file, filled(&file, at, len), at).exact().user_data(at)).unwrap();
        at += len as u64;
    }
    assert_eq!(queue.rest().into_values().map(Result::unwrap).sum::<u64>(), at);
    let done = queue.one(op::read(&file, buffer_for(&file, at as usize), 0).exact());
    let read = bytes(done);
    assert_eq!(read.len() as u64, at);
    assert!(read == pattern(0, at as usize));
}

/// A loop device takes smaller requests than the disk below it.
pub fn on_a_loop_device(world: &World) {
    let Some(dir) = small_file_system(world, 32 << 10) else { return };
    let path = dir.join("file");
    let content = pattern(0, (6 << 20) + 777);
    std::fs::write(&path, &content).unwrap();
    match OpenOptions::new().read(true).direct(true).open(&path) {
        Ok(file) => long_reads(world, &file, &content),
        Err(error) => skip(&format!("no direct I/O on a loop device: {error}")),
    }
}

/// A small file system on a loop device whose largest request is 64 KiB, so that long transfers
/// have many pieces.
fn small_requests(world: &World, kib: usize) -> Option<PathBuf> {
    let dir = small_file_system(world, kib)?;
    let device = std::fs::metadata(&dir).unwrap().dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let limit = format!("/sys/dev/block/{major}:{minor}/queue/max_sectors_kb");
    match std::fs::write(&limit, "64") {
        Ok(()) => Some(dir),
        Err(error) => {
            skip(&format!("{limit}: {error}"));
            None
        }
    }
}

/// Content in which each page is unique, made quickly.
fn pages(len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    for (number, page) in (1u32..).zip(content.chunks_mut(4096)) {
        page[..4].copy_from_slice(&number.to_le_bytes());
        page[4092..].copy_from_slice(&number.to_le_bytes());
    }
    content
}

/// The result of a piece that completes after all others.
#[derive(Clone, Copy, Debug)]
enum LateResult {
    Read,
    Cut,
    Fails(i32),
}

/// One piece completes after all that can overtake it, with each kind of result. Only bytes that
/// were read count, and retryable errors are retried.
pub fn one_late_piece(world: &World) {
    const REQUEST: usize = 64 << 10;
    let Some(dir) = small_requests(world, 80 << 10) else { return };
    let content = pages(64 << 20);
    let path = dir.join("file");
    std::fs::write(&path, &content).unwrap();
    let file = OpenOptions::new().read(true).direct(true).open(&path).unwrap();
    assert_eq!(file.largest_request(), Some(REQUEST as u32));
    let retried = [libc::EAGAIN, libc::EINTR, libc::ECANCELED].map(LateResult::Fails);
    let others =
        [LateResult::Read, LateResult::Cut, LateResult::Fails(libc::EIO), LateResult::Fails(0)];
    for (number, late_result) in retried.into_iter().chain(others).enumerate() {
        let all = [(0, true), (700, false), (0, false), (700, true)];
        let part = if is_long() { &all[..] } else { &all[number % 2 * 2..][..2] };
        for &(piece, exact) in part {
            let step = FaultStep::Job(piece);
            let plan = FaultPlan::new(1).late(step, Late::Last);
            let plan = match late_result {
                LateResult::Read => plan,
                LateResult::Cut => plan.cut(step),
                LateResult::Fails(errno) => plan.fail(step, errno),
            };
            let mut queue = world.build(&world.options().faults(plan));
            let read = op::read(&file, buffer_for(&file, content.len()), 0);
            let done = queue.one(if exact { read.exact() } else { read });
            let result = done.result.map(|read| read as usize).map_err(|error| error.errno());
            let start = piece as usize * REQUEST;
            let fits = match late_result {
                LateResult::Fails(libc::EIO) if exact || start == 0 => result == Err(libc::EIO),
                LateResult::Fails(libc::EIO) => result == Ok(start),
                // As at the end of the file. After a piece that was read, `exact` reads once more.
                LateResult::Fails(0) if !exact || start == 0 => result == Ok(start),
                LateResult::Cut if !exact => {
                    result.is_ok_and(|read| read > start && read < start + REQUEST)
                }
                _ => result == Ok(content.len()),
            };
            assert!(fits, "{late_result:?}, piece {piece}, exact: {exact}: {result:?}");
            let read = result.unwrap_or(0);
            let buffer = done.into_buffer().unwrap();
            assert!(
                buffer.as_slice()[..read] == content[..read],
                "{late_result:?}, piece {piece}, exact: {exact}"
            );
        }
    }
}

/// A cancel reaches every piece, above all the one that the others have overtaken.
pub fn a_late_piece_is_cancelled(world: &World) {
    let Some(dir) = small_requests(world, 80 << 10) else { return };
    let path = dir.join("file");
    let content = pages(64 << 20);
    std::fs::write(&path, &content).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let file = OpenOptions::new().read(true).direct(true).open(&path).unwrap();
    let begin = Instant::now();
    world.queue().one(op::read(&file, buffer_for(&file, 64 << 20), 0).exact()).result.unwrap();
    let whole = begin.elapsed();
    let all = [(500, false, false), (0, true, false), (0, false, true), (500, true, true)];
    for (piece, close, exact) in all.into_iter().take(if is_long() { 4 } else { 2 }) {
        let plan = FaultPlan::new(1).late(FaultStep::Job(piece), Late::Forever);
        let mut queue = world.build(&world.options().faults(plan));
        let read = op::read(&file, buffer_for(&file, 64 << 20), 0);
        let id = queue.push(if exact { read.exact() } else { read }).unwrap();
        // Long enough for the others to overtake it. If they do not, the test is weaker but passes,
        // except where the result below must include every piece before it.
        let reach = if piece > 0 && !exact { (4 * whole).max(5000 * MS) } else { 100 * MS };
        let moment = Instant::now() + reach;
        assert_eq!(queue.reap_until(1, moment).unwrap().len(), 0, "piece {piece} is not answered");
        if close {
            assert_eq!(queue.close(Duration::from_secs(20)).unwrap(), 0)
        } else {
            assert!(queue.cancel(id))
        }
        let done =
            queue.reap_until(1, Instant::now() + Duration::from_secs(20)).unwrap().next().unwrap();
        match done.result.map_err(|error| error.errno()) {
            Err(libc::ECANCELED) => assert!(exact),
            // The late piece was read after all.
            Ok(read) => {
                assert!(!exact && read > piece * (64 << 10) && read < 64 << 20, "{read}");
                assert!(
                    done.into_buffer().unwrap().as_slice()[..read as usize]
                        == content[..read as usize]
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Checks that `file` has all writes, each in one piece, in any order.
fn are_whole(path: &Path, writes: &[Vec<u8>]) {
    let content = std::fs::read(path).unwrap();
    assert_eq!(content.len(), writes.iter().map(Vec::len).sum::<usize>());
    let mut rest = &content[..];
    let mut left: Vec<&Vec<u8>> = writes.iter().collect();
    while !rest.is_empty() {
        let at = content.len() - rest.len();
        let next = left.iter().position(|write| rest.starts_with(write));
        let next = next.unwrap_or_else(|| panic!("no write is whole at {at}"));
        rest = &rest[left.remove(next).len()..];
    }
}

/// Appends longer than a request land one after the other, each whole and once. This holds when the
/// descriptor gets O_APPEND later, when it is borrowed, and when requests are retried.
pub fn long_appends(world: &World) {
    let Some(dir) = small_requests(world, 80 << 10) else { return };
    let path = dir.join("log");
    let lens = [8 << 20, 4096, (4 << 20) + 4096, 64 << 10, 8 << 20, 4 << 20];
    let plans = [
        FaultPlan::new(0),
        FaultPlan::new(1).retryable(400).reorder(500),
        FaultPlan::new(2).starve(300).retryable(300),
        FaultPlan::new(3).delay(500, 4),
    ];
    for (number, plan) in plans.into_iter().enumerate() {
        for later in
            [false, true].into_iter().filter(|later| is_long() || *later == (number % 2 == 0))
        {
            let _ = std::fs::remove_file(&path);
            let mut options = OpenOptions::new();
            options.write(true).create(true).direct(true);
            if !later {
                options.append(true);
            }
            let file = options.open(&path).unwrap();
            // Device facts are cached before O_APPEND is set.
            assert!(file.is_direct() && file.largest_request() == Some(64 << 10));
            if later {
                // SAFETY: the call takes numbers.
                let set = unsafe {
                    libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND | libc::O_DIRECT)
                };
                assert_eq!(set, 0);
            }
            // SAFETY: the descriptor stays open, since `file` outlives the queue.
            let borrowed = unsafe { File::borrow_raw(file.as_raw_fd()) }.unwrap();
            let mut queue = world.build(&world.options().faults(plan.clone()));
            let mut writes = Vec::new();
            for (number, len) in (1u64..).zip(lens) {
                let at = number << 24;
                let buffer = filled(&file, at, len);
                writes.push(buffer.to_vec());
                let file = if number % 2 == 0 { &file } else { &borrowed };
                let write: Operation = match number {
                    3 => op::writev(file, Vectored::new([buffer]), 0),
                    5 | 6 => op::write_dsync(file, buffer, 0),
                    _ => op::write(file, buffer, 0),
                };
                queue.push(write.exact().user_data(number)).unwrap();
            }
            for (number, result) in queue.rest() {
                assert_eq!(result, Ok(lens[number as usize - 1] as u64));
            }
            println!("plan {number}, later: {later}");
            are_whole(&path, &writes);
        }
    }
    // Short appends are continued at the end of the file, in order.
    let _ = std::fs::remove_file(&path);
    let file = OpenOptions::new().append(true).create(true).direct(true).open(&path).unwrap();
    let mut queue =
        world.build(&world.options().faults(FaultPlan::new(4).short(700).retryable(200)));
    let mut expected = Vec::new();
    for number in 0..8 {
        let buffer = filled(&file, number << 22, 1 << 20);
        expected.extend_from_slice(&buffer);
        assert_eq!(queue.result(op::write(&file, buffer, 0).exact()), Ok(1 << 20));
    }
    assert!(std::fs::read(&path).unwrap() == expected);
}

/// As for pwrite(2): beyond the count that a write returns, the file is unchanged.
pub fn a_short_write_changes_nothing_beyond_its_count(world: &World) {
    let Some(dir) = small_requests(world, 16 << 10) else { return };
    let path = dir.join("file");
    let len = 4 << 20;
    let faults = [(Some(libc::EIO), false), (Some(0), true), (None, false), (None, true)];
    for step in 0..8 {
        let part = if is_long() { &faults[..] } else { &faults[step as usize % 2 * 2..][..2] };
        for &(fault, durable) in part {
            std::fs::write(&path, vec![1; len]).unwrap();
            let file = OpenOptions::new().read(true).write(true).direct(true).open(&path).unwrap();
            let step = FaultStep::Job(step);
            let plan = match fault {
                Some(errno) => FaultPlan::new(5).fail(step, errno),
                None => FaultPlan::new(5).cut(step),
            };
            let mut queue = world.build(&world.options().faults(plan));
            let at = 4096;
            let (buffer, start) = (buffer_for(&file, len), at as u64);
            let result = queue.result(if durable {
                op::write_dsync(&file, buffer, start)
            } else {
                op::write(&file, buffer, start)
            });
            let count = result.unwrap_or(0) as usize;
            let content = std::fs::read(&path).unwrap();
            assert!(content[at..at + count] == vec![0xee; count]);
            let behind = &content[at + count..];
            assert!(behind == vec![1; behind.len()], "{step:?} {fault:?}: behind {count}");
            assert_eq!(content.len(), (at + count).max(len), "{step:?} {fault:?}");
            std::fs::remove_file(&path).unwrap();
        }
    }
    // On a full disk: the count of the system call, and as many bytes in the file.
    let mut direct = OpenOptions::new();
    direct.write(true).create(true).direct(true);
    let by_system_call = {
        let file = direct.open(&path).unwrap();
        let buffer = buffer_for(&file, 32 << 20);
        // SAFETY: the buffer is valid for the length of the call.
        let done =
            unsafe { libc::pwrite(file.as_raw_fd(), buffer.as_ptr().cast(), buffer.len(), 0) };
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap();
        let there = std::fs::metadata(&path).unwrap().len();
        std::fs::remove_file(&path).unwrap();
        (u64::try_from(done).map_err(|_| errno), there)
    };
    let file = direct.open(&path).unwrap();
    let result = world.queue().result(op::write(&file, buffer_for(&file, 32 << 20), 0));
    assert_eq!((result, std::fs::metadata(&path).unwrap().len()), by_system_call);
    drop(file);
    std::fs::remove_file(&path).unwrap();
}

/// A mapping with huge pages where available, since touching gibibytes of small pages takes longer
/// than the rest of the test.
struct Mapping(*mut u8, usize);

impl Mapping {
    fn new(len: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping, wherever the kernel likes; the advice changes nothing but
        // speed.
        let first = unsafe {
            let first = libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0);
            assert_ne!(first, libc::MAP_FAILED);
            libc::madvise(first, len, libc::MADV_HUGEPAGE);
            first
        };
        Self(first.cast(), len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and this value was its only owner.
        assert_eq!(unsafe { libc::munmap(self.0.cast(), self.1) }, 0);
    }
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared references only read it.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length and stays where it is until the value is dropped. It
        // is zeroed at first.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

ringway_torture::custom_buffer!(Mapping, |this| this.bytes(), true);

/// Makes `file` sparse with this length and the pattern at `marks`.
fn sparse(file: &File, len: u64, marks: &[u64]) {
    let file = std::fs::File::from(std::os::fd::AsFd::as_fd(file).try_clone_to_owned().unwrap());
    file.set_len(len).unwrap();
    for at in marks {
        file.write_all_at(&pattern(*at, 4096), *at).unwrap();
    }
}

fn check_marks(read: &[u8], marks: &[u64]) {
    for at in marks {
        let place = *at as usize;
        assert_eq!(read[place..place + 4096], pattern(*at, 4096), "at {at}");
        assert_eq!((read[place - 1], read[place + 4096]), (0, 0), "next to {at}");
    }
}

pub fn over_two_gibibytes(world: &World) {
    if world.kind != BackendKind::Uring && !is_long() {
        return println!("left out: RINGWAY_LONG=1 runs it on every backend");
    }
    let len = (2 << 30) + (200 << 20) + 12_345;
    if !wait_for_memory(2 * len) {
        return skip("too little memory for a buffer over 2 GiB");
    }
    // On tmpfs, where a hole takes no page cache.
    let file = world.files("file", b"").swap_remove(2);
    let marks = [1 << 12, (1 << 30) - 2048, (2 << 30) - 4096, (2 << 30) + 1, len - 5000];
    sparse(&file, len, &marks);
    let mut queue = world.queue();
    let done =
        queue.one(op::read(&file, Buffer::custom(Box::new(Mapping::new(len as usize))), 0).exact());
    assert_eq!(done.result, Ok(len));
    check_marks(done.into_buffer().unwrap().as_slice(), &marks);
}

pub fn over_four_gibibytes_direct(world: &World) {
    if world.kind != BackendKind::Uring && !is_long() {
        return println!("left out: RINGWAY_LONG=1 runs it on every backend");
    }
    if world.kind != BackendKind::Uring {
        return println!("left out: costly, and split in the same way on every backend");
    }
    let len = (4 << 30) + (16 << 20);
    if !wait_for_memory(2 * len) {
        return skip("too little memory for a buffer over 4 GiB");
    }
    let file = world.file(b"");
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let marks = [1 << 12, (2 << 30) - 4096, (4 << 30) - 4096, (4 << 30) + 4096, len - 8192];
    sparse(&file, len, &marks);
    let direct = OpenOptions::new().read(true).direct(true).open(path).unwrap();
    let mut queue = world.queue();
    let buffer = Buffer::custom(Box::new(Mapping::new(len as usize)));
    let done = queue.one(op::read(&direct, buffer, 0).exact());
    assert_eq!(done.result, Ok(len));
    check_marks(done.into_buffer().unwrap().as_slice(), &marks);
}
