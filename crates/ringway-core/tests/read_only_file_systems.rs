//! Guarantee 5 on file systems that are only read, and on overlays of them: each backend returns
//! the same bytes, ends of files and errors as the system calls. With `RINGWAY_FILE_SYSTEMS=all`
//! (`make test-file-systems`), as root; `RINGWAY_PLACE` selects some.

#![cfg(ringway_linux)]

#[path = "common/places.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod places;
#[path = "common/skip.rs"]
mod skip;

use ringway_core::op::Vectored;
use ringway_core::{
    AlignedBuffer, BackendKind, Buffer, Completion, Error, File, OpenOptions, Operation, Options,
    Queue, op,
};
use skip::skip;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const KINDS: [BackendKind; 3] = [BackendKind::Threads, BackendKind::Uring, BackendKind::Kaio];
const PAGE: usize = 4096;

/// The flags of descriptors; a file system may refuse direct I/O.
const FLAGS: [(&str, i32); 3] =
    [("buffered", 0), ("O_NONBLOCK", libc::O_NONBLOCK), ("direct", libc::O_DIRECT)];

fn queue(kind: BackendKind) -> Option<Queue> {
    let built = Options::new().backend(kind).build();
    built.inspect_err(|error| skip(&format!("{kind}: {error}"))).ok()
}

#[test]
fn each_backend_reads_what_the_system_calls_read() {
    if !places::is_thorough() {
        return println!("skipped: RINGWAY_FILE_SYSTEMS is not set");
    }
    if let Some(why) = places::no_read_only() {
        return println!("skipped: {why}");
    }
    places::each_read_only(skip, |name, path| {
        for kind in KINDS {
            let Some(mut queue) = queue(kind) else { continue };
            for (flags_name, flags) in FLAGS {
                let context = format!("{name}, {kind}, {flags_name}");
                if let Some(file) = opened(&mut queue, path, flags, &context) {
                    reads(&mut queue, path, &file, flags, &context);
                    cancelled_reads(&mut queue, path, &file, &context);
                    refusals(&mut queue, path, &file, flags, &context);
                }
            }
        }
        println!("{name}: the same on each backend");
    });
}

fn one(queue: &mut Queue, operation: Operation) -> Completion {
    queue.push(operation).unwrap();
    queue.reap(1).unwrap().next().unwrap()
}

/// A result of std's, as the core reports results: a number, or an errno.
fn expected<T>(result: io::Result<T>, number: impl FnOnce(T) -> u64) -> Result<u64, Option<i32>> {
    result.map(number).map_err(|error| error.raw_os_error())
}

fn found(result: Result<u64, Error>) -> Result<u64, Option<i32>> {
    result.map_err(|error| Some(error.errno()))
}

/// The file, if it can be opened with these flags: the errors are std's.
fn opened(queue: &mut Queue, path: &Path, flags: i32, context: &str) -> Option<File> {
    let as_std = expected(open(path, flags), |_| 0);
    let options = OpenOptions::new().read(true).custom_flags(flags).clone();
    let completion = one(queue, op::open(path, &options));
    assert_eq!(found(completion.result), as_std, "{context}: open");
    completion.into_file().ok()
}

fn open(path: &Path, flags: i32) -> io::Result<fs::File> {
    fs::File::options().read(true).custom_flags(flags).open(path)
}

/// What `pread` of the same length into the same memory returns, and the bytes.
fn reads(queue: &mut Queue, path: &Path, file: &File, flags: i32, context: &str) {
    let std = open(path, flags).unwrap();
    let content = fs::read(path).unwrap();
    let len = content.len();
    let last = len / PAGE * PAGE;
    let whole = (len / PAGE + 2) * PAGE;
    let mut ranges =
        vec![(0, PAGE), (PAGE, 3 * PAGE), (last, PAGE), (last + PAGE, PAGE), (0, whole)];
    if flags & libc::O_DIRECT == 0 {
        let within = [(0, 0), (0, 1), (PAGE - 1, 2), (len - 10, 10), (len - 10, 11), (len, 1)];
        ranges.extend(within);
    }
    for (offset, count) in ranges {
        let context = format!("{context}: {count} bytes at {offset}");
        let mut memory = AlignedBuffer::new(count.max(1), PAGE);
        let as_std = std.read_at(&mut memory[..count], offset as u64);
        let as_std = expected(as_std, |count| count as u64);
        let part = Buffer::from(AlignedBuffer::new(count.max(1), PAGE)).slice(..count);
        let completion = one(queue, op::read(file, part, offset as u64));
        assert_eq!(found(completion.result), as_std, "{context}");
        let bytes = as_std.unwrap_or(0) as usize;
        let buffer = completion.into_buffer().unwrap();
        assert!(buffer.as_slice()[..bytes] == memory[..bytes], "{context}: the bytes");
        let parts = Vectored::new(vec![
            Buffer::from(AlignedBuffer::new(PAGE, PAGE)),
            AlignedBuffer::new(whole, PAGE).into(),
        ]);
        let vectored = one(queue, op::readv(file, parts, offset as u64));
        let rest = len.saturating_sub(offset).min(PAGE + whole) as u64;
        if as_std.is_ok() {
            assert_eq!(found(vectored.result), Ok(rest), "{context}: vectored");
            let buffers = vectored.into_vectored().unwrap().into_buffers();
            let bytes: Vec<u8> = buffers.iter().flat_map(|one| one.as_slice().to_vec()).collect();
            let (from, count) = (offset.min(len), rest as usize);
            assert!(bytes[..count] == content[from..from + count], "{context}: vectored bytes");
        }
    }
}

/// Each read is answered once: with what it was to read, or that it was cancelled.
fn cancelled_reads(queue: &mut Queue, path: &Path, file: &File, context: &str) {
    const READS: u64 = 64;
    let content = fs::read(path).unwrap();
    let blocks = (content.len() / PAGE) as u64;
    let mut ids = Vec::new();
    for number in 0..READS {
        let buffer = AlignedBuffer::new(PAGE, PAGE);
        let at = number * 7 % blocks * PAGE as u64;
        ids.push(queue.push(op::read(file, buffer, at).user_data(at)).unwrap());
    }
    queue.submit().unwrap();
    for id in ids.iter().step_by(2) {
        queue.cancel(*id);
    }
    let mut answered = HashSet::new();
    while queue.in_flight() > 0 || answered.len() < ids.len() {
        for completion in queue.reap(1).unwrap() {
            assert!(answered.insert(completion.id), "{context}: answered twice");
            let at = completion.user_data as usize;
            match &completion.result {
                Ok(count) => {
                    assert_eq!(*count, PAGE as u64, "{context}");
                    let buffer = completion.into_buffer().unwrap();
                    assert!(buffer.as_slice() == &content[at..at + PAGE], "{context}: the bytes");
                }
                Err(error) => assert!(error.is_cancelled(), "{context}: {error}"),
            }
        }
    }
}

/// A sync, a write and an allocation of a file that was opened for reading.
fn refusals(queue: &mut Queue, path: &Path, file: &File, flags: i32, context: &str) {
    let std = open(path, flags).unwrap();
    let synced = one(queue, op::fsync(file)).result;
    assert_eq!(found(synced), expected(std.sync_all(), |()| 0), "{context}: fsync");
    let synced = one(queue, op::fdatasync(file)).result;
    assert_eq!(found(synced), expected(std.sync_data(), |()| 0), "{context}: fdatasync");
    let memory = AlignedBuffer::new(PAGE, PAGE);
    let as_std = expected(std.write_at(&memory, 0), |count| count as u64);
    let written = one(queue, op::write(file, memory, 0)).result;
    assert_eq!(found(written), as_std, "{context}: write");
    assert!(as_std.is_err(), "{context}: written");
}
