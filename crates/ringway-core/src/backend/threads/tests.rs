//! Tests of the threads backend: every job completes once, and jobs that wait forever delay no
//! others.

use super::*;
use crate::op;
use std::collections::HashMap;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read as _, Seek as _, Write as _};
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;

const SECOND: Duration = Duration::from_secs(1);

fn options(workers: usize) -> ThreadOptions {
    ThreadOptions { workers, sync_workers: 2, idle: 10 * SECOND, interruptible: false }
}

fn token(index: u32) -> Token {
    Token::new(crate::slots::Key { index, generation: NonZeroU32::MIN }, 0)
}

fn job(index: u32, raw: impl Into<Raw>, file: FileKind) -> Job {
    // Buffered files are marked direct too, so that their reads go to a worker, cached or not.
    Job::new(token(index), raw.into(), file, file == FileKind::Storage)
}

/// Memory that is never freed, so that any job may stay in flight.
fn memory(len: usize) -> &'static mut [u8] {
    vec![0; len].leak()
}

fn read(file: &impl AsRawFd, len: usize, offset: u64) -> op::Read {
    op::Read {
        fd: file.as_raw_fd(),
        buf: memory(len).as_mut_ptr(),
        len,
        offset,
        flags: op::RwFlags::NONE,
    }
}

fn next_byte(file: &impl AsRawFd) -> op::Read {
    read(file, 1, op::CURRENT_POSITION)
}

fn push(threads: &mut Threads, job: &Job) {
    // SAFETY: the memory of these tests is never freed, and on a descriptor that is closed too
    // early a job fails with EBADF.
    unsafe { threads.push(job) }.unwrap();
}

fn push_all(threads: &mut Threads, jobs: &[Job]) {
    for job in jobs {
        push(threads, job);
    }
}

fn enter(threads: &mut Threads, want: usize, wait: Duration) -> Vec<(u32, EventKind)> {
    let mut events = Vec::new();
    threads.enter(want, Some(Instant::now() + wait), &mut events).unwrap();
    events.into_iter().map(|event| (event.token.index(), event.kind)).collect()
}

/// Waits for the wanted number of events, and panics after a timeout.
fn reap(threads: &mut Threads, want: usize) -> HashMap<u32, EventKind> {
    let mut all = HashMap::new();
    let until = Instant::now() + 20 * SECOND;
    while all.len() < want {
        assert!(Instant::now() < until, "{} of {want} events came", all.len());
        for (index, kind) in enter(threads, want - all.len(), SECOND) {
            assert_eq!(all.insert(index, kind), None, "job {index} completed twice");
        }
    }
    all
}

fn one(threads: &mut Threads) -> (u32, EventKind) {
    let all = reap(threads, 1);
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

fn error(errno: i32) -> EventKind {
    EventKind::Result(-i64::from(errno))
}

/// A file in memory with 64 KiB of bytes that depend on their offset.
fn sample() -> File {
    let mut file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
    file.write_all(&pattern(0, 64 << 10)).unwrap();
    file
}

fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (offset..).take(len).map(|place| (place ^ (place >> 8)) as u8).collect()
}

/// Keeps workers busy until the writers are dropped, with reads of pipes that are marked as
/// storage.
fn block(threads: &mut Threads, workers: u32) -> (Vec<PipeReader>, Vec<PipeWriter>) {
    let (readers, writers): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| std::io::pipe().unwrap()).unzip();
    for (index, reader) in readers.iter().enumerate() {
        push(threads, &job(1_000_000 + index as u32, next_byte(reader), FileKind::Storage));
    }
    enter(threads, 0, Duration::ZERO);
    let until = Instant::now() + 10 * SECOND;
    while threads.shared.lock().queued() > 0 {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    (readers, writers)
}

fn readable(fd: RawFd) -> bool {
    op::Poll { fd, events: libc::POLLIN as u16 }.poll_now() > 0
}

#[test]
fn many_jobs_on_many_files_return_what_the_calls_return() {
    let files: Vec<File> = (0..8).map(|_| sample()).collect();
    let mut threads = Threads::new(options(4)).unwrap();
    for (direct, kind) in
        [(true, FileKind::Storage), (false, FileKind::Storage), (false, FileKind::Unknown)]
    {
        let mut jobs = Vec::new();
        for index in 0..800u32 {
            // The last ones are at the end of the file and after it.
            let read = read(&files[index as usize % 8], 200, u64::from(index) * 83);
            jobs.push((Job { direct, ..job(index, read, kind) }, read));
        }
        for (job, _) in &jobs {
            push(&mut threads, job);
        }
        let results = reap(&mut threads, jobs.len());
        for (job, read) in jobs {
            let expected =
                pattern(read.offset, ((64 << 10) - read.offset.min(64 << 10)).min(200) as usize);
            assert_eq!(results[&job.token.index()], EventKind::Result(expected.len() as i64));
            // SAFETY: the job has completed, and its memory is never freed.
            let bytes = unsafe { std::slice::from_raw_parts(read.buf, expected.len()) };
            assert_eq!(bytes, expected);
        }
    }
    assert_eq!(threads.pending(), 0);
}

#[test]
fn writes_and_vectored_reads_work() {
    let mut file = tempfile::tempfile().unwrap();
    let mut threads = Threads::new(options(2)).unwrap();
    let bytes: &[u8] = pattern(0, 8192).leak();
    for index in 0..8u32 {
        let buf = &raw const bytes[index as usize * 1024];
        let read = op::Write {
            fd: file.as_raw_fd(),
            buf,
            len: 1024,
            offset: u64::from(index) * 1024,
            flags: op::RwFlags::NONE,
        };
        push(&mut threads, &job(index, read, FileKind::Storage));
    }
    assert!(reap(&mut threads, 8).values().all(|kind| *kind == EventKind::Result(1024)));
    let mut written = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut written).unwrap();
    assert_eq!(written, bytes);

    let (first, second) = (memory(100), memory(300));
    let iov = vec![
        libc::iovec { iov_base: first.as_mut_ptr().cast(), iov_len: 100 },
        libc::iovec { iov_base: second.as_mut_ptr().cast(), iov_len: 300 },
    ]
    .leak();
    for direct in [false, true] {
        let read = op::Readv {
            fd: file.as_raw_fd(),
            iov: iov.as_ptr(),
            count: 2,
            offset: 50,
            flags: op::RwFlags::NONE,
        };
        push(&mut threads, &Job { direct, ..job(9, read, FileKind::Storage) });
        assert_eq!(one(&mut threads), (9, EventKind::Result(400)));
        assert_eq!([&*first, &*second].concat(), pattern(50, 400));
    }
}

#[test]
fn cached_reads_need_no_thread() {
    let file = tempfile::tempfile().unwrap();
    (&file).write_all(&pattern(0, 4096)).unwrap();
    let mut threads = Threads::new(options(4)).unwrap();
    let read = read(&file, 4096, 0);
    if nowait::try_nowait(&read.into(), &mut 0) != TryResult::Done(4096) {
        println!("skipped: the file system of temporary files has no reads that do not wait");
        return;
    }
    push(&mut threads, &Job { direct: false, ..job(0, read, FileKind::Storage) });
    assert_eq!(enter(&mut threads, 0, Duration::ZERO), [(0, EventKind::Result(4096))]);
    assert_eq!(threads.shared.lock().threads(), [0; 3]);
    assert_eq!((threads.pending(), threads.system_calls()), (0, 1));
}

#[test]
fn misses_are_tried_less_often_until_a_hit() {
    let file = tempfile::tempfile().unwrap();
    (&file).write_all(&pattern(0, 4096)).unwrap();
    let (hit, miss): (Raw, Raw) = (read(&file, 512, 0).into(), read(&file, 512, 1 << 20).into());
    if nowait::try_nowait(&hit, &mut 0) != TryResult::Done(512) {
        println!("skipped: the file system of temporary files has no reads that do not wait");
        return;
    }
    let mut cached = CachedReads::default();
    cached.begin();
    let mut calls = 0;
    for _ in 0..1000 {
        assert_eq!(cached.try_nowait(&miss, &mut calls), None);
    }
    assert!((8..20).contains(&calls), "{calls}");
    while cached.try_nowait(&hit, &mut calls).is_none() {}
    assert_eq!(cached.try_nowait(&hit, &mut calls), Some(512));
    // Long reads go to the threads.
    cached.begin();
    let long: Raw = read(&file, 2 << 20, 0).into();
    assert_eq!(cached.try_nowait(&long, &mut calls), None);
    // A partial read at the current position would be lost.
    assert_eq!(cached.try_nowait(&next_byte(&file).into(), &mut calls), None);
}

#[test]
fn queued_jobs_are_cancelled_and_running_ones_are_not() {
    let file = sample();
    let mut threads = Threads::new(options(2)).unwrap();
    let (_readers, writers) = block(&mut threads, 2);
    push_all(
        &mut threads,
        &[0, 1, 2].map(|index| job(index, read(&file, 8, 0), FileKind::Storage)),
    );
    threads.cancel(token(0)); // in the batch
    assert_eq!(enter(&mut threads, 0, Duration::ZERO), [(0, error(libc::ECANCELED))]);
    threads.cancel(token(1)); // in the lane
    threads.cancel(token(1)); // completed
    threads.cancel(token(1_000_000)); // running
    threads.cancel(token(77)); // unknown
    drop(writers);
    let results = reap(&mut threads, 4);
    assert_eq!(results[&1], error(libc::ECANCELED));
    assert_eq!(results[&2], EventKind::Result(8));
    assert_eq!(
        (results[&1_000_000], results[&1_000_001]),
        (EventKind::Result(0), EventKind::Result(0))
    );
    assert_eq!(threads.pending(), 0);
}

#[test]
fn waiting_jobs_are_cancelled() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut threads = Threads::new(options(1)).unwrap();
    let poll = op::Poll { fd: reader.as_raw_fd(), events: libc::POLLIN as u16 };
    let jobs = [
        job(0, poll, FileKind::Stream),
        job(1, op::Timeout { duration: 3600 * SECOND }, FileKind::Unknown),
        job(2, next_byte(&reader), FileKind::Stream),
        job(3, next_byte(&reader), FileKind::Unknown),
        job(4, op::Timeout { duration: Duration::MAX }, FileKind::Unknown),
    ];
    push_all(&mut threads, &jobs);
    assert_eq!(enter(&mut threads, 1, Duration::from_millis(20)), []);
    for index in 0..5 {
        threads.cancel(token(index));
    }
    let results = reap(&mut threads, 5);
    assert!(results.values().all(|kind| *kind == error(libc::ECANCELED)), "{results:?}");
    // After the cancel has completed, nothing holds the file, and its writer gets EPIPE. (A child
    // that another test is starting may hold it for a moment.)
    drop(reader);
    let until = Instant::now() + 20 * SECOND;
    let error = loop {
        match writer.write(b"x") {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < until, "the file is held"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
    assert_eq!(threads.shared.lock().threads()[0], 1);
}

#[test]
fn a_thousand_waiting_pipe_reads_delay_no_others() {
    let file = sample();
    let mut threads = Threads::new(options(4)).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut others = Vec::new();
    for index in 0..1000u32 {
        // Half of them on one pipe, some on pipes of their own; some are unchecked.
        let kind = if index % 3 == 0 { FileKind::Unknown } else { FileKind::Stream };
        if index < 500 || index % 10 != 0 {
            push(&mut threads, &job(index, next_byte(&reader), kind));
        } else {
            others.push(std::io::pipe().unwrap());
            push(&mut threads, &job(index, next_byte(&others.last().unwrap().0), kind));
        }
    }
    push_all(&mut threads, &[job(5000, read(&file, 8, 0), FileKind::Storage)]);
    assert_eq!(one(&mut threads), (5000, EventKind::Result(8)));

    // One read gets the byte, and the others keep waiting.
    for _ in 0..3 {
        writer.write_all(b"x").unwrap();
        assert_eq!(one(&mut threads).1, EventKind::Result(1));
        assert_eq!(enter(&mut threads, 1, Duration::from_millis(20)), []);
    }
    others[7].1.write_all(b"x").unwrap();
    assert_eq!(one(&mut threads), (570, EventKind::Result(1)));
    push_all(&mut threads, &[job(5001, read(&file, 8, 0), FileKind::Storage)]);
    assert_eq!(one(&mut threads), (5001, EventKind::Result(8)));
    assert_eq!(threads.pending(), 996);
    drop((writer, others));
}

#[test]
fn reads_of_one_stream_complete_in_order() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut threads = Threads::new(options(1)).unwrap();
    for index in 0..10 {
        push(&mut threads, &job(index, next_byte(&reader), FileKind::Stream));
    }
    assert_eq!(enter(&mut threads, 0, Duration::ZERO), []);
    for index in 0..10 {
        writer.write_all(b"x").unwrap();
        assert_eq!(one(&mut threads), (index, EventKind::Result(1)));
    }
}

/// Inotify has no call that does not wait: it is polled for, and a worker makes the call.
// (inotify has no call that does not wait.)
#[cfg(target_os = "linux")]
#[test]
fn a_stream_without_nowait_has_one_blocking_call_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = std::ffi::CString::new(dir.path().as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: numbers and a C string that lives during the call; the descriptor is new and has no
    // other owner.
    let inotify = unsafe {
        let fd = libc::inotify_init1(libc::IN_CLOEXEC);
        assert!(fd >= 0 && libc::inotify_add_watch(fd, path.as_ptr(), libc::IN_CREATE) >= 0);
        crate::sys::owned(fd)
    };
    let file = sample();
    let mut threads = Threads::new(options(1)).unwrap();
    let next_event = || read(&inotify, 256, op::CURRENT_POSITION);
    push_all(&mut threads, &[0, 1].map(|index| job(index, next_event(), FileKind::Stream)));
    push(&mut threads, &job(2, next_event(), FileKind::Unknown));
    assert_eq!(enter(&mut threads, 1, Duration::from_millis(20)), []);
    for name in ["one", "two"] {
        File::create(dir.path().join(name)).unwrap();
        let (index, kind) = one(&mut threads);
        assert!(index < 3 && matches!(kind, EventKind::Result(16..)), "{kind:?}");
        assert_eq!(enter(&mut threads, 1, Duration::from_millis(20)), []);
        push(&mut threads, &job(10, read(&file, 8, 0), FileKind::Storage));
        assert_eq!(one(&mut threads), (10, EventKind::Result(8)), "the only worker is hung");
    }
    for index in 0..3 {
        threads.cancel(token(index));
    }
    assert_eq!(one(&mut threads).1, error(libc::ECANCELED));
}

// Without `RWF_NOWAIT`, such a write occupies a thread until all of it is written.
#[cfg(ringway_linux)]
#[test]
fn writes_wait_for_space_and_get_a_broken_pipe() {
    let (reader, writer) = std::io::pipe().unwrap();
    let byte = op::Write {
        fd: writer.as_raw_fd(),
        buf: b"x".as_ptr(),
        len: 1,
        offset: op::CURRENT_POSITION,
        flags: op::RwFlags::NONE,
    };
    if let nowait::TryResult::Unsupported = nowait::try_stream(&byte.into(), &mut 0) {
        println!("skipped: pipes do not support RWF_NOWAIT (6.5), so that a write takes a thread");
        return;
    }
    let mut threads = Threads::new(options(1)).unwrap();
    let bytes = memory(1 << 20);
    let read = op::Write {
        fd: writer.as_raw_fd(),
        buf: bytes.as_ptr(),
        len: bytes.len(),
        offset: op::CURRENT_POSITION,
        flags: op::RwFlags::NONE,
    };
    push(&mut threads, &job(0, read, FileKind::Stream));
    assert!(matches!(one(&mut threads).1, EventKind::Result(4096..)), "as much as fits");
    push(&mut threads, &job(1, read, FileKind::Stream));
    push(&mut threads, &job(2, read, FileKind::Unknown));
    assert_eq!(enter(&mut threads, 1, Duration::from_millis(20)), []);
    drop(reader);
    assert!(reap(&mut threads, 2).values().all(|kind| *kind == error(libc::EPIPE)));
}

#[test]
fn syncs_and_reads_do_not_delay_each_other() {
    let file = sample();
    let mut threads = Threads::new(options(1)).unwrap();
    let (_readers, writers) = block(&mut threads, 1);
    let sync = op::Fsync { fd: file.as_raw_fd(), data_only: false };
    push_all(&mut threads, &[0, 1, 2].map(|index| job(index, sync, FileKind::Storage)));
    assert!(reap(&mut threads, 3).values().all(|kind| *kind == EventKind::Result(0)));
    let [io, sync, _] = threads.shared.lock().threads();
    assert_eq!(io, 1);
    assert!((1..=2).contains(&sync));
    drop(writers);
    assert_eq!(one(&mut threads), (1_000_000, EventKind::Result(0)));
}

#[test]
fn there_are_no_more_threads_than_jobs_and_idle_ones_end() {
    let file = sample();
    let mut threads =
        Threads::new(ThreadOptions { idle: Duration::from_millis(50), ..options(64) }).unwrap();
    assert_eq!(threads.shared.lock().threads(), [0; 3]);
    push_all(&mut threads, &[0, 1].map(|index| job(index, read(&file, 8, 0), FileKind::Storage)));
    push(
        &mut threads,
        &job(2, op::Timeout { duration: Duration::from_millis(1) }, FileKind::Unknown),
    );
    let completed = enter(&mut threads, 0, Duration::ZERO).len();
    let [io, sync, watcher] = threads.shared.lock().threads();
    assert!(io <= 2 && sync == 0 && watcher <= 1, "{io} {sync} {watcher}");
    // Threads end although the events were not reaped.
    let until = Instant::now() + 10 * SECOND;
    while threads.shared.lock().threads() != [0; 3] {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(reap(&mut threads, 3 - completed).len(), 3 - completed);
    // Threads start again.
    push(&mut threads, &job(0, read(&file, 8, 0), FileKind::Storage));
    assert_eq!(one(&mut threads), (0, EventKind::Result(8)));
}

#[test]
fn polls_and_timeouts_complete() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut threads = Threads::new(options(1)).unwrap();
    let poll = |fd| op::Poll { fd, events: (libc::POLLIN | libc::POLLOUT) as u16 };
    let (r, w) = (reader.as_raw_fd(), writer.as_raw_fd());
    push_all(
        &mut threads,
        &[
            job(0, poll(w), FileKind::Stream),
            job(1, poll(r), FileKind::Stream),
            // Other tests open no file with this number, as they may with that of a closed one.
            job(3, poll(i32::MAX), FileKind::Unknown),
        ],
    );
    assert_eq!(
        enter(&mut threads, 1, SECOND),
        [(0, EventKind::Result(i64::from(libc::POLLOUT))), (3, error(libc::EBADF)),]
    );
    let before = Instant::now();
    let timeout = op::Timeout { duration: Duration::from_millis(30) };
    push(&mut threads, &job(2, timeout, FileKind::Unknown));
    assert_eq!(one(&mut threads), (2, EventKind::Result(0)));
    assert!(before.elapsed() >= Duration::from_millis(30));
    writer.write_all(b"x").unwrap();
    assert_eq!(one(&mut threads), (1, EventKind::Result(i64::from(libc::POLLIN))));
    drop(writer);
    push(&mut threads, &job(4, poll(r), FileKind::Stream));
    assert_eq!(one(&mut threads), (4, EventKind::Result(i64::from(libc::POLLIN | libc::POLLHUP))));
}

#[test]
fn errors_are_results() {
    let mut threads = Threads::new(options(2)).unwrap();
    for (index, kind) in
        [FileKind::Storage, FileKind::Stream, FileKind::Unknown].into_iter().enumerate()
    {
        let index = index as u32;
        let read = op::Read { fd: -1, ..next_byte(&0) };
        push(&mut threads, &job(index, read, kind));
        push(&mut threads, &Job { direct: false, ..job(10 + index, read, kind) });
        push(&mut threads, &job(20 + index, op::Poll { fd: 1 << 20, events: 1 }, kind));
    }
    push(&mut threads, &job(30, op::Fsync { fd: -1, data_only: true }, FileKind::Unknown));
    push(&mut threads, &job(31, op::Close { fd: -1 }, FileKind::Unknown));
    let results = reap(&mut threads, 11);
    assert!(results.values().all(|kind| *kind == error(libc::EBADF)), "{results:?}");
    let (reader, _writer) = std::io::pipe().unwrap();
    push(
        &mut threads,
        &job(1, op::Fsync { fd: reader.as_raw_fd(), data_only: true }, FileKind::Stream),
    );
    assert_eq!(one(&mut threads), (1, error(libc::EINVAL)));
}

#[test]
fn an_offset_on_a_pipe_is_ignored() {
    let mut threads = Threads::new(options(2)).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    push(&mut threads, &job(0, read(&reader, 1, 7), FileKind::Stream));
    writer.write_all(b"x").unwrap();
    assert_eq!(one(&mut threads), (0, EventKind::Result(1)));
}

#[test]
fn the_descriptor_is_readable_while_there_are_events() {
    let file = sample();
    let mut threads = Threads::new(options(2)).unwrap();
    let (_readers, writers) = block(&mut threads, 1);
    drop(writers);
    while threads.shared.lock().events.is_empty() {
        std::thread::yield_now();
    }
    let fd = threads.poll_fd().unwrap();
    assert!(readable(fd), "there was an event before poll_fd");
    assert_eq!(one(&mut threads), (1_000_000, EventKind::Result(0)));
    assert!(!readable(fd));

    for poll_set in 0..200 {
        push_all(
            &mut threads,
            &[1, 2].map(|index| job(index, read(&file, 8, 0), FileKind::Storage)),
        );
        let mut completed = enter(&mut threads, 0, Duration::ZERO).len();
        while completed < 2 {
            let poll = op::Poll { fd, events: libc::POLLIN as u16 };
            assert_eq!(Raw::from(poll).call(), 1, "round {poll_set}");
            let events = enter(&mut threads, 0, Duration::ZERO);
            assert!(!events.is_empty(), "readable for nothing");
            completed += events.len();
        }
        assert!(!readable(fd));
    }

    threads.wake();
    assert!(readable(fd));
    assert_eq!(enter(&mut threads, 0, Duration::ZERO), []);
    assert!(!readable(fd));

    // A cancel is an event too.
    push(&mut threads, &job(3, read(&file, 8, 0), FileKind::Storage));
    threads.cancel(token(3));
    assert!(readable(fd));
    assert_eq!(one(&mut threads), (3, error(libc::ECANCELED)));
    assert!(!readable(fd));
}

#[test]
fn waiting_ends_at_the_deadline() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut threads = Threads::new(options(1)).unwrap();
    let before = Instant::now();
    assert_eq!(enter(&mut threads, 1, Duration::from_millis(20)), []);
    assert!(before.elapsed() >= Duration::from_millis(20));
    // With no jobs and no deadline it does not wait.
    threads.enter(5, None, &mut Vec::new()).unwrap();
    push(&mut threads, &job(0, next_byte(&reader), FileKind::Stream));
    let before = Instant::now();
    assert_eq!(enter(&mut threads, 1, Duration::from_millis(20)), []);
    assert!(before.elapsed() >= Duration::from_millis(20));
    assert!(before.elapsed() < 5 * SECOND);
    // It does not wait for more events than there are jobs.
    threads.cancel(token(0));
    let mut events = Vec::new();
    threads.enter(5, None, &mut events).unwrap();
    assert_eq!(events.len(), 1);
}

#[test]
fn timers_expire_and_do_not_pile_up() {
    let mut threads = Threads::new(options(1)).unwrap();
    let now = Instant::now();
    for _ in 0..1000 {
        threads.set_timer(token(1), now + 3600 * SECOND);
        threads.set_timer(token(2), now + 7200 * SECOND);
    }
    assert_eq!(threads.shared.lock().watch.alarms(), 2);
    // An earlier timer is noticed although the watcher sleeps for the later ones.
    std::thread::sleep(Duration::from_millis(5));
    let at = Instant::now() + Duration::from_millis(20);
    threads.set_timer(token(1), at);
    let mut events = Vec::new();
    threads.enter(1, None, &mut events).unwrap();
    assert_eq!(events, [JobEvent { token: token(1), kind: EventKind::TimerExpired }]);
    assert!(Instant::now() >= at);
    assert_eq!(threads.shared.lock().watch.alarms(), 1);
    // A timer and a timeout of one slot are independent.
    push(
        &mut threads,
        &job(2, op::Timeout { duration: Duration::from_millis(5) }, FileKind::Unknown),
    );
    assert_eq!(one(&mut threads), (2, EventKind::Result(0)));
    assert_eq!(threads.shared.lock().watch.alarms(), 1);
}

/// Every job completes once, with any mix of jobs and cancels.
#[test]
fn every_job_completes_once() {
    let file = sample();
    let (reader, mut writer) = std::io::pipe().unwrap();
    for seed in 1..6u64 {
        let mut threads = Threads::new(options(3)).unwrap();
        let mut random = Random(seed);
        let mut open = std::collections::HashSet::new();
        let mut events = Vec::new();
        for index in 0..4000u32 {
            let jobs = [
                job(index, op::Nop, FileKind::Unknown),
                job(index, read(&file, 64, u64::from(index)), FileKind::Storage),
                Job { direct: false, ..job(index, read(&file, 64, 0), FileKind::Storage) },
                job(index, next_byte(&reader), FileKind::Stream),
                job(index, next_byte(&reader), FileKind::Unknown),
                job(
                    index,
                    op::Timeout { duration: Duration::from_micros(random.below(300)) },
                    FileKind::Unknown,
                ),
                job(
                    index,
                    op::Poll { fd: reader.as_raw_fd(), events: libc::POLLIN as u16 },
                    FileKind::Stream,
                ),
                job(index, op::Fsync { fd: file.as_raw_fd(), data_only: true }, FileKind::Storage),
            ];
            push(&mut threads, &jobs[random.below(8) as usize]);
            open.insert(index);
            match random.below(6) {
                0 => {
                    threads.cancel(token(index - random.below(u64::from(index.min(20)) + 1) as u32))
                }
                1 => writer.write_all(b"x").unwrap(),
                2 => threads.set_timer(
                    token(index),
                    Instant::now() + Duration::from_micros(random.below(200)),
                ),
                3 => {
                    let want = random.below(3) as usize;
                    threads.enter(want, Some(Instant::now()), &mut events).unwrap();
                }
                _ => {}
            }
            settle(&mut events, &mut open);
        }
        for index in &open {
            threads.cancel(token(*index));
        }
        let until = Instant::now() + 20 * SECOND;
        while !open.is_empty() {
            assert!(Instant::now() < until, "seed {seed}: {} are left", open.len());
            threads.enter(1, Some(Instant::now() + SECOND), &mut events).unwrap();
            settle(&mut events, &mut open);
        }
        assert_eq!(threads.pending(), 0);
    }

    fn settle(events: &mut Vec<JobEvent>, open: &mut std::collections::HashSet<u32>) {
        for event in events.drain(..).filter(|event| event.kind != EventKind::TimerExpired) {
            assert!(open.remove(&event.token.index()), "{event:?} is one too many");
        }
    }
}

#[test]
fn stress() {
    let file = sample();
    let mut threads = Threads::new(options(4)).unwrap();
    let mut random = Random(7);
    let depth = 64;
    let buffers: Vec<_> = (0..depth).map(|_| read(&file, 64, 0)).collect();
    let (mut free, mut pushed, mut completed): (Vec<u32>, _, _) = ((0..depth).collect(), 0, 0);
    let mut offsets = vec![None; depth as usize];
    let mut events = Vec::new();
    let until = Instant::now() + 120 * SECOND;
    while completed < 100_000 {
        assert!(Instant::now() < until);
        while pushed < 100_000 && random.below(10) > 0 {
            let Some(index) = free.pop() else { break };
            let slot = index as usize;
            offsets[slot] = (random.below(2) == 0).then(|| random.below(60_000));
            let raw = match offsets[slot] {
                Some(offset) => Raw::Read(op::Read { offset, ..buffers[slot] }),
                None => Raw::Nop(op::Nop),
            };
            push(&mut threads, &job(index, raw, FileKind::Storage));
            pushed += 1;
        }
        let want = random.below(threads.pending() as u64 + 1) as usize;
        threads.enter(want, None, &mut events).unwrap();
        assert!(events.len() >= want);
        for event in events.drain(..) {
            let index = event.token.index();
            let Some(offset) = offsets[index as usize] else {
                assert_eq!(event.kind, EventKind::Result(0));
                free.push(index);
                completed += 1;
                continue;
            };
            assert_eq!(event.kind, EventKind::Result(64));
            // SAFETY: the job has completed, and its memory is never freed.
            let bytes = unsafe { std::slice::from_raw_parts(buffers[index as usize].buf, 64) };
            assert_eq!(bytes, pattern(offset, 64));
            free.push(index);
            completed += 1;
        }
    }
    assert_eq!(threads.pending(), 0);
    assert!(threads.system_calls() >= 100_000);
}

#[test]
fn dropping_never_waits_and_ends_the_threads() {
    let file = sample();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut threads = Threads::new(options(2)).unwrap();
    let (_readers, writers) = block(&mut threads, 2);
    push_all(
        &mut threads,
        &[0, 1, 2].map(|index| job(index, read(&file, 8, 0), FileKind::Storage)),
    );
    push(&mut threads, &job(3, next_byte(&reader), FileKind::Stream));
    push(&mut threads, &job(4, op::Timeout { duration: 3600 * SECOND }, FileKind::Unknown));
    enter(&mut threads, 0, Duration::ZERO);
    push(&mut threads, &job(5, read(&file, 8, 0), FileKind::Storage));
    let shared = Arc::clone(&threads.shared);
    let before = Instant::now();
    drop(threads);
    assert!(before.elapsed() < 20 * SECOND);
    // The watcher drops the pipe.
    drop(reader);
    let until = Instant::now() + 10 * SECOND;
    while writer.write(b"x").is_ok() || shared.lock().threads() != [2, 0, 0] {
        assert!(Instant::now() < until);
    }
    // A running call ends.
    drop(writers);
    while Arc::strong_count(&shared) > 1 {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    assert!(shared.lock().events.is_empty());
}

const NO_THREADS: &str = "RINGWAY_TEST_NO_THREADS";

/// Runs in a process of its own, since limits apply to the whole process (and the whole user).
#[test]
fn without_threads_the_submitter_does_the_work() {
    use std::os::unix::process::CommandExt;
    if std::env::var_os(NO_THREADS).is_some() {
        return work_without_threads();
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let name = std::thread::current().name().unwrap().to_owned();
    command.args(["--exact", &name, "--test-threads=1", "--nocapture"]).env(NO_THREADS, "1");
    // SAFETY: the call takes no arguments.
    if unsafe { libc::geteuid() } == 0 {
        // The limit does not apply to root.
        command.uid(65534).gid(65534);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            return println!("skipped: an ordinary user cannot run this program: {error}");
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter(|line| line.starts_with("skipped")).for_each(|line| println!("{line}"));
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn work_without_threads() {
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives on this stack during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
    if std::thread::Builder::new().spawn(|| ()).is_ok() {
        return println!("skipped: RLIMIT_NPROC does not keep this user from starting threads");
    }
    let file = sample();
    let mut threads = Threads::new(options(4)).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    push_all(
        &mut threads,
        &[0, 1, 2].map(|index| job(index, read(&file, 8, 0), FileKind::Storage)),
    );
    push(
        &mut threads,
        &job(3, op::Fsync { fd: file.as_raw_fd(), data_only: false }, FileKind::Storage),
    );
    push(&mut threads, &job(4, next_byte(&reader), FileKind::Stream));
    push(&mut threads, &job(5, next_byte(&reader), FileKind::Unknown));
    push(
        &mut threads,
        &job(6, op::Timeout { duration: Duration::from_millis(30) }, FileKind::Unknown),
    );
    threads.set_timer(token(7), Instant::now() + Duration::from_millis(1));
    let results = reap(&mut threads, 6);
    assert!((0..3).all(|index| results[&index] == EventKind::Result(8)), "{results:?}");
    assert_eq!((results[&3], results[&6]), (EventKind::Result(0), EventKind::Result(0)));
    assert_eq!(results[&7], EventKind::TimerExpired);
    // The descriptor is readable, since no thread watches the pipe.
    let fd = threads.poll_fd().unwrap();
    assert!(readable(fd));
    writer.write_all(b"xx").unwrap();
    assert!(reap(&mut threads, 2).values().all(|kind| *kind == EventKind::Result(1)));
    assert_eq!(threads.pending(), 0);
    let [refusal] = threads.refusals() else { panic!("{:?}", threads.refusals()) };
    assert_eq!((refusal.feature, refusal.errno), (Feature::Threads, libc::EAGAIN));
    assert_eq!(threads.shared.lock().threads(), [0; 3]);
}

/// xorshift64: the same sequence for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn hung_threads_are_replaced_and_end_later() {
    let file = sample();
    let mut threads = Threads::new(options(2)).unwrap();
    let (_readers, writers) = block(&mut threads, 2);
    for index in 0..6 {
        push(&mut threads, &job(index, read(&file, 100, 0), FileKind::Storage));
        assert_eq!(one(&mut threads), (index, EventKind::Result(100)));
    }
    assert!(threads.shared.lock().threads()[0] > 2);
    // The hung calls return, and there are too many threads.
    drop(writers);
    assert_eq!(reap(&mut threads, 2).len(), 2);
    let until = Instant::now() + 10 * SECOND;
    while threads.shared.lock().threads()[0] > 2 {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
}

/// A stream that poll(2) reports as ready while a call on it would have to wait keeps no thread
/// busy. An eventfd is such a one: writable if 1 can be added, whatever is to be added.
#[cfg(ringway_linux)]
#[test]
fn a_stream_that_is_falsely_ready_is_tried_now_and_then() {
    use std::os::fd::{FromRawFd as _, OwnedFd};
    // SAFETY: the call takes numbers, and the descriptor is this value's own.
    let eventfd =
        unsafe { OwnedFd::from_raw_fd(libc::eventfd(1, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)) };
    let most = memory(8);
    most.copy_from_slice(&(u64::MAX - 1).to_ne_bytes());
    let write = op::Write {
        fd: eventfd.as_raw_fd(),
        buf: most.as_ptr(),
        len: 8,
        offset: op::CURRENT_POSITION,
        flags: op::RwFlags::NONE,
    };
    let mut threads = Threads::new(options(2)).unwrap();
    push(&mut threads, &job(0, write, FileKind::Device));
    let begin = Instant::now();
    assert_eq!(enter(&mut threads, 1, SECOND / 5), []);
    let most_calls = 20 + 5 * begin.elapsed().as_millis() as u64;
    assert!(threads.system_calls() < most_calls, "{} calls", threads.system_calls());
    let mut file = File::from(eventfd);
    file.read_exact(&mut [0; 8]).unwrap();
    assert_eq!(one(&mut threads), (0, EventKind::Result(8)));
}
