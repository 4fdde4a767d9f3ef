//! Reads, writes, syncs, polls and timeouts that succeed: the same bytes everywhere.

use crate::world::{
    MS, World, answer, byte, bytes, filled, pattern, pipe, put, room, vec_of, wait_for,
};
use ringway_core::op::{self, Position, Readiness, Vectored};
use ringway_core::{Arena, Buffer, CustomBuffer, FaultPlan, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

pub fn nop(world: &World) {
    let mut queue = world.queue();
    assert_eq!(queue.result(op::nop().user_data(7)), Ok(0));
    (0..200).for_each(|number| _ = queue.push(op::nop().user_data(number)).unwrap());
    assert!(queue.rest().into_iter().eq((0..200).map(|number| (number, Ok(0)))));
}

pub fn read_and_write_at_offsets(world: &World) {
    for file in world.files("offsets", b"") {
        let mut queue = world.queue();
        // Not in their order, and all in flight at once.
        for block in [3u64, 0, 2, 5, 1, 4] {
            let at = block * BLOCK as u64;
            queue.push(op::write(&file, filled(&file, at, BLOCK), at).user_data(block)).unwrap();
        }
        assert!(queue.rest().into_iter().eq((0..6).map(|block| (block, Ok(BLOCK as u64)))));
        for (number, (first, blocks)) in [(4u64, 2), (0, 6), (1, 1), (2, 3)].into_iter().enumerate()
        {
            let buffer = room(&file, blocks * BLOCK);
            queue
                .push(op::read(&file, buffer, first * BLOCK as u64).user_data(number as u64))
                .unwrap();
        }
        let done = queue.completions();
        for (done, (first, blocks)) in done.into_values().zip([(4u64, 2), (0, 6), (1, 1), (2, 3)]) {
            assert_eq!(bytes(done), pattern(first * BLOCK as u64, blocks * BLOCK));
        }
        assert_eq!(queue.result(op::read(&file, room(&file, BLOCK), 6 * BLOCK as u64)), Ok(0));
        assert_eq!(queue.result(op::read(&file, room(&file, BLOCK), 1 << 40)), Ok(0));
    }
    // Without direct I/O, any offset and length.
    let file = world.file(&pattern(0, 10_000));
    let mut queue = world.queue();
    for (at, len) in [(0, 1), (1, 1), (9_999, 1), (4_095, 2), (17, 9_000), (511, 513)] {
        assert_eq!(bytes(queue.one(op::read(&file, vec![0; len], at))), pattern(at, len));
    }
    assert_eq!(queue.result(op::write(&file, b"hole".to_vec(), 20_001)), Ok(4));
    assert_eq!(bytes(queue.one(op::read(&file, vec![1; 8], 19_997))), b"\0\0\0\0hole");
}

/// The file's own position.
fn position(file: &File) -> u64 {
    // SAFETY: the call takes numbers only.
    unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_CUR) as u64 }
}

pub fn read_and_write_at_the_cursor(world: &World) {
    for file in world.files("cursor", b"") {
        let mut queue = world.queue();
        for block in 0..3 {
            let at = block * BLOCK as u64;
            assert_eq!(
                queue.result(op::write(&file, filled(&file, at, BLOCK), Position::Current)),
                Ok(BLOCK as u64)
            );
            assert_eq!(position(&file), at + BLOCK as u64);
        }
        // At an offset it stays where it is.
        assert_eq!(queue.result(op::read(&file, room(&file, BLOCK), 0)), Ok(BLOCK as u64));
        assert_eq!(position(&file), 3 * BLOCK as u64);
        // SAFETY: the call takes numbers only.
        unsafe { libc::lseek(file.as_raw_fd(), BLOCK as i64, libc::SEEK_SET) };
        let done = queue.one(op::read(&file, room(&file, 4 * BLOCK), Position::Current).exact());
        assert_eq!(done.result, Ok(2 * BLOCK as u64), "direct: {}", file.is_direct());
        assert_eq!(bytes(done), pattern(BLOCK as u64, 2 * BLOCK));
        assert_eq!(position(&file), 3 * BLOCK as u64);
        assert_eq!(queue.result(op::read(&file, room(&file, BLOCK), Position::Current)), Ok(0));
    }
}

pub fn vectored(world: &World) {
    for file in world.files("vectored", b"") {
        let mut queue = world.queue();
        let part = |block: u64| filled(&file, block * BLOCK as u64, BLOCK);
        let parts = Vectored::new([part(2), part(3), part(4)]);
        assert_eq!(queue.result(op::writev(&file, parts, 2 * BLOCK as u64)), Ok(3 * BLOCK as u64));
        let parts = Vectored::new([
            room(&file, 0),
            room(&file, BLOCK),
            room(&file, 0),
            room(&file, 2 * BLOCK),
        ]);
        let done = queue.one(op::readv(&file, parts, 2 * BLOCK as u64));
        assert_eq!(done.result, Ok(3 * BLOCK as u64));
        let buffers = done.into_vectored().unwrap().into_buffers();
        assert_eq!(buffers[1].as_slice(), pattern(2 * BLOCK as u64, BLOCK));
        assert_eq!(buffers[3].as_slice(), pattern(3 * BLOCK as u64, 2 * BLOCK));
        // The end of the file falls into the second buffer; the third is not touched.
        let parts = Vectored::new([room(&file, BLOCK), room(&file, 2 * BLOCK), room(&file, BLOCK)]);
        let done = queue.one(op::readv(&file, parts, 3 * BLOCK as u64).exact());
        assert_eq!(done.result, Ok(2 * BLOCK as u64));
        let buffers = done.into_vectored().unwrap().into_buffers();
        assert_eq!(buffers[0].as_slice(), pattern(3 * BLOCK as u64, BLOCK));
        assert_eq!(buffers[1].as_slice()[..BLOCK], pattern(4 * BLOCK as u64, BLOCK));
        // (A direct read may have put zeroes there.)
        assert!(file.is_direct() || buffers[2].as_slice().iter().all(|byte| *byte == 0xee));
    }
    // As many as there may be.
    let file = world.file(&pattern(0, 2048));
    let mut queue = world.queue();
    let done = queue.one(op::readv(&file, Vectored::new((0..1024).map(|_| vec![0; 2])), 0));
    assert_eq!(done.result, Ok(2048));
    let read: Vec<u8> =
        done.into_vectored().unwrap().into_buffers().into_iter().flat_map(vec_of).collect();
    assert_eq!(read, pattern(0, 2048));
}

pub fn vectored_at_the_cursor(world: &World) {
    let file = world.file(b"");
    let mut queue = world.queue();
    for part in [b"one, ", b"two, "] {
        let parts = Vectored::new([part[..2].to_vec(), part[2..].to_vec()]);
        assert_eq!(queue.result(op::writev(&file, parts, Position::Current)), Ok(5));
    }
    // SAFETY: the call takes numbers only.
    unsafe { libc::lseek(file.as_raw_fd(), 3, libc::SEEK_SET) };
    let done =
        queue.one(op::readv(&file, Vectored::new([vec![0; 4], vec![0; 10]]), Position::Current));
    assert_eq!(done.result, Ok(7));
    let buffers = done.into_vectored().unwrap().into_buffers();
    assert_eq!((buffers[0].as_slice(), &buffers[1].as_slice()[..3]), (&b", tw"[..], &b"o, "[..]));
}

/// On Linux a write to a file open for appending goes to the end, whatever the offset (pwrite(2),
/// BUGS).
pub fn append(world: &World) {
    let path = world.dir("append").join("log");
    let log = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    let mut queue = world.queue();
    for (number, at) in
        [Position::Offset(0), Position::Current, Position::Offset(1)].into_iter().enumerate()
    {
        assert_eq!(
            queue.result(op::write(&log, format!("line {number}\n").into_bytes(), at)),
            Ok(7)
        );
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"line 0\nline 1\nline 2\n");
}

/// A buffer that tells when it is dropped.
struct Frame(Box<[u8]>, Arc<Mutex<u32>>);

// SAFETY: a boxed slice's bytes stay where they are when the box moves, and nobody else has them.
unsafe impl CustomBuffer for Frame {
    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn writable(&self) -> bool {
        true
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
        self
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        *self.1.lock().unwrap() += 1;
    }
}

pub fn kinds_of_buffers(world: &World) {
    let file = world.file(&pattern(0, 100));
    let mut queue = world.queue();
    let dropped = Arc::new(Mutex::new(0));
    let kinds = || -> Vec<Buffer> {
        vec![
            vec![0u8; 20].into(),
            vec![0u8; 20].into_boxed_slice().into(),
            bytes::BytesMut::zeroed(20).into(),
            ringway_core::AlignedBuffer::new(20, 512).into(),
            Arena::new(20, 1).take().unwrap().into(),
            Buffer::custom(Box::new(Frame(vec![0; 20].into(), Arc::clone(&dropped)))),
        ]
    };
    for buffer in kinds() {
        // A part of it, and the whole of it given back.
        let done = queue.one(op::read(&file, buffer.slice(5..15), 30));
        assert_eq!(done.result, Ok(10));
        let buffer = done.into_buffer().unwrap();
        assert_eq!(buffer.as_slice(), pattern(30, 10));
    }
    assert_eq!(*dropped.lock().unwrap(), 1);
    for (number, buffer) in (0u64..).zip(kinds()) {
        assert_eq!(queue.result(op::write(&file, buffer, number * 20)), Ok(20));
    }
    assert_eq!(queue.result(op::write(&file, bytes::Bytes::from_static(b"shared"), 120)), Ok(6));
    let mut expected = vec![0; 126];
    expected[120..].copy_from_slice(b"shared");
    assert_eq!(bytes(queue.one(op::read(&file, vec![1; 200], 0))), expected);
    assert_eq!(*dropped.lock().unwrap(), 2);
}

pub fn nothing_to_transfer(world: &World) {
    for file in world.files("nothing", &pattern(0, BLOCK)) {
        let mut queue = world.queue();
        for at in [Position::Offset(0), Position::Offset(BLOCK as u64), Position::Current] {
            assert_eq!(queue.result(op::read(&file, room(&file, 0), at)), Ok(0));
            assert_eq!(queue.result(op::write(&file, room(&file, 0), at)), Ok(0));
            assert_eq!(queue.result(op::read(&file, room(&file, 0), at).exact()), Ok(0));
            assert_eq!(
                queue.result(op::readv(&file, Vectored::new(Vec::<Vec<u8>>::new()), at)),
                Ok(0)
            );
            assert_eq!(
                queue.result(op::writev(&file, Vectored::new([Vec::<u8>::new()]), at)),
                Ok(0)
            );
        }
        assert_eq!(
            queue.one(op::statx_at(&file, "", 0)).into_metadata().unwrap().len(),
            BLOCK as u64
        );
    }
}

/// A file whose length is no multiple of a block: the last read is short, and what is continued
/// ends there.
pub fn short_at_the_end(world: &World) {
    let len = 2 * BLOCK + 1000;
    for file in world.files("short", &pattern(0, len)) {
        let mut queue = world.queue();
        for exact in [false, true] {
            for (at, asked) in [(0, 3), (1, 2), (2, 1), (0, 20), (2, 20)] {
                let at = at * BLOCK as u64;
                let mut read = op::read(&file, room(&file, asked * BLOCK), at);
                if exact {
                    read = read.exact();
                }
                let done = queue.one(read);
                assert_eq!(
                    bytes(done),
                    pattern(at, len - at as usize),
                    "{asked} blocks at {at}, exact: {exact}"
                );
            }
        }
    }
}

/// Bytes in a pipe.
fn unread(pipe: &File) -> i32 {
    let mut count = 0;
    // SAFETY: the count is valid for writes for the length of the call.
    let returned = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    assert_eq!(returned, 0);
    count
}

/// Writes to a pipe bit by bit, each once the one before has been read.
fn in_bits(world: &World, bits: &[&str], act: impl FnOnce(&mut crate::world::Checked, &File)) {
    let (reader, writer) = pipe();
    let mut queue = world.queue();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for bit in bits {
                assert!(wait_for(20_000 * MS, || unread(&writer) == 0), "the reader does not read");
                put(&writer, bit.as_bytes());
            }
            drop(writer);
        });
        act(&mut queue, &reader);
    });
}

pub fn exact_over_a_pipe(world: &World) {
    in_bits(world, &["abc", "defg", "hi"], |queue, reader| {
        assert_eq!(
            bytes(queue.one(op::read(reader, vec![0; 9], Position::Current).exact())),
            b"abcdefghi"
        );
        assert!(queue.stats().continued >= 1);
    });
    in_bits(world, &["abc", "defg"], |queue, reader| {
        assert_eq!(bytes(queue.one(op::read(reader, vec![0; 9], Position::Current))), b"abc");
        // The writer is gone before there are that many.
        assert_eq!(
            bytes(queue.one(op::read(reader, vec![0; 9], Position::Current).exact())),
            b"defg"
        );
        assert_eq!(queue.result(op::read(reader, vec![0; 9], Position::Current).exact()), Ok(0));
    });
}

pub fn exact_vectored_over_a_pipe(world: &World) {
    in_bits(world, &["a", "bcdef", "g", "hijklmno"], |queue, reader| {
        let parts = Vectored::new([vec![0; 2], vec![], vec![0; 3], vec![0; 5], vec![0; 20]]);
        let done = queue.one(op::readv(reader, parts, Position::Current).exact());
        assert_eq!(done.result, Ok(15));
        let buffers = done.into_vectored().unwrap().into_buffers();
        let parts: Vec<&[u8]> = buffers.iter().map(Buffer::as_slice).collect();
        assert_eq!(parts[..4], [&b"ab"[..], b"", b"cde", b"fghij"]);
        assert_eq!(&parts[4][..6], b"klmno\0");
    });
}

pub fn exact_write_into_a_full_pipe(world: &World) {
    let (reader, writer) = pipe();
    let mut queue = world.queue();
    let len = 300_000;
    let read = std::thread::spawn(move || {
        let mut file =
            std::fs::File::from(std::os::fd::AsFd::as_fd(&reader).try_clone_to_owned().unwrap());
        drop(reader);
        let mut all = Vec::new();
        let mut bit = [0; 30_000];
        loop {
            match std::io::Read::read(&mut file, &mut bit).unwrap() {
                0 => return all,
                some => all.extend_from_slice(&bit[..some]),
            }
            std::thread::sleep(MS);
        }
    });
    assert_eq!(
        queue.result(op::write(&writer, pattern(0, len), Position::Current).exact()),
        Ok(len as u64)
    );
    let parts = Vectored::new([pattern(len as u64, len / 2), pattern(len as u64 * 3 / 2, len / 2)]);
    assert_eq!(queue.result(op::writev(&writer, parts, Position::Current).exact()), Ok(len as u64));
    drop((queue, writer));
    assert_eq!(read.join().unwrap(), pattern(0, 2 * len));
}

/// Short transfers, answers that ask to be tried again, late and out of order: the bytes are right
/// all the same.
pub fn exact_under_faults(world: &World) {
    let len = 64 * BLOCK;
    for (seed, file) in (1..).zip(world.files("faults", b"")) {
        let plan = FaultPlan::new(seed).short(500).retryable(200).delay(200, 3).reorder(500);
        let mut queue = world.build(&world.options().faults(plan));
        for part in 0..8 {
            let (at, len) = (part * (len / 8) as u64, len / 8);
            let blocks =
                (0..len / BLOCK).map(|block| filled(&file, at + (block * BLOCK) as u64, BLOCK));
            let write = match part % 2 {
                0 => op::write(&file, filled(&file, at, len), at),
                _ => op::writev(&file, Vectored::new(blocks), at),
            };
            queue.push(write.exact().user_data(part)).unwrap();
        }
        assert!(queue.rest().into_values().all(|result| result == Ok((len / 8) as u64)));
        let one = queue.one(op::read(&file, room(&file, len), 0).exact());
        assert_eq!(bytes(one), pattern(0, len));
        let parts = Vectored::new((0..64).map(|_| room(&file, BLOCK)));
        let done = queue.one(op::readv(&file, parts, 0).exact());
        assert_eq!(done.result, Ok(len as u64));
        let buffers = done.into_vectored().unwrap().into_buffers();
        for (at, buffer) in (0u64..).step_by(BLOCK).zip(buffers) {
            assert_eq!(buffer.as_slice(), pattern(at, BLOCK));
        }
        let stats = queue.stats();
        // What stands beside the backend is no part of it.
        assert!(stats.continued > 0 && stats.retries > 0 || stats.to_threads > 0, "{stats:?}");
    }
}

pub fn syncs(world: &World) {
    for file in world.files("syncs", b"") {
        let mut queue = world.queue();
        assert_eq!(
            queue.result(op::write(&file, filled(&file, 0, 2 * BLOCK), 0)),
            Ok(2 * BLOCK as u64)
        );
        assert_eq!(queue.result(op::fsync(&file)), Ok(0));
        assert_eq!(queue.result(op::fdatasync(&file)), Ok(0));
        let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        for (offset, len, flags) in
            [(0, 0, all), (100, 5000, libc::SYNC_FILE_RANGE_WRITE), (0, 1 << 40, all), (0, 0, 0)]
        {
            assert_eq!(queue.result(op::sync_range(&file, offset, len, flags)), Ok(0));
        }
    }
    // A file open for reading only, and a directory.
    let mut queue = world.queue();
    assert_eq!(queue.result(op::fsync(&File::open(&world.disk).unwrap())), Ok(0));
}

pub fn poll(world: &World) {
    let mut queue = world.queue();
    let both = Readiness(Readiness::READABLE.0 | Readiness::WRITABLE.0);
    let (reader, writer) = pipe();
    assert_eq!(queue.result(op::poll(&writer, Readiness::WRITABLE)), Ok(libc::POLLOUT as u64));
    assert_eq!(queue.result(op::poll(&writer, both)), Ok(libc::POLLOUT as u64));
    queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
    assert_eq!(queue.submit().unwrap(), 0);
    assert_eq!(queue.reap(0).unwrap().count(), 0);
    put(&writer, b"x");
    assert_eq!(queue.rest()[&0], Ok(libc::POLLIN as u64));
    assert_eq!(queue.result(op::poll(&reader, both)), Ok(libc::POLLIN as u64));
    drop(writer);
    assert_eq!(
        queue.result(op::poll(&reader, Readiness::READABLE)),
        Ok((libc::POLLIN | libc::POLLHUP) as u64)
    );
    assert_eq!(queue.result(op::poll(&reader, Readiness(0))), Ok(libc::POLLHUP as u64));
    let (reader, writer) = pipe();
    drop(reader);
    let ready = queue.result(op::poll(&writer, Readiness::WRITABLE));
    assert_eq!(ready, Ok((libc::POLLOUT | libc::POLLERR) as u64));
    // A hang-up while it is waited for.
    let (reader, writer) = pipe();
    queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
    queue.submit().unwrap();
    drop(writer);
    assert_eq!(queue.rest()[&0], Ok(libc::POLLHUP as u64));
    // Files are always ready.
    assert_eq!(
        queue.result(op::poll(&world.file(b""), both)),
        Ok((libc::POLLIN | libc::POLLOUT) as u64)
    );
    // Several waits for one file.
    let (reader, writer) = pipe();
    (0..50).for_each(|number| {
        _ = queue.push(op::poll(&reader, Readiness::READABLE).user_data(number)).unwrap()
    });
    queue.submit().unwrap();
    put(&writer, b"x");
    assert!(queue.rest().into_iter().eq((0..50).map(|number| (number, Ok(libc::POLLIN as u64)))));
}

pub fn timeout(world: &World) {
    let mut queue = world.queue();
    let begin = Instant::now();
    for (number, milliseconds) in [(0, 30), (1, 10), (2, 0), (3, 20)] {
        queue.push(op::timeout(milliseconds * MS).user_data(number)).unwrap();
    }
    let mut order = Vec::new();
    while queue.in_flight() > 0 {
        for done in queue.reap(1).unwrap() {
            assert_eq!(done.result, Ok(0));
            order.push((done.user_data, begin.elapsed()));
        }
    }
    let numbers: Vec<u64> = order.iter().map(|(number, _)| *number).collect();
    if !world.faulty {
        assert_eq!(numbers, [2, 1, 3, 0]);
    }
    for (number, elapsed) in order {
        let least = [30, 10, 0, 20][number as usize] * MS;
        assert!(
            elapsed >= least && elapsed < least + Duration::from_secs(5),
            "{number} after {elapsed:?}"
        );
    }
    let id = queue.push(op::timeout(Duration::MAX)).unwrap();
    queue.submit().unwrap();
    assert!(queue.cancel(id));
    assert_eq!(queue.rest()[&0], Err(libc::ECANCELED));
}

/// More than fit into any of the queues, buffered and direct together.
pub fn many_at_once(world: &World) {
    let content = pattern(0, 64 * BLOCK);
    let files = world.files("many", &content);
    let mut queue = world.queue();
    let (mut pushed, mut seen) = (0u64, 0);
    while seen < 3000 {
        while pushed < 3000 {
            let file = &files[pushed as usize % files.len()];
            let at = pushed * 7 % 64 * BLOCK as u64;
            match queue.push(op::read(file, room(file, BLOCK), at).user_data(at)) {
                Ok(_) => pushed += 1,
                Err(error) => {
                    assert!(error.is_full());
                    break;
                }
            }
        }
        for done in queue.reap(1).unwrap() {
            let at = done.user_data;
            assert_eq!(done.result, Ok(BLOCK as u64));
            let buffer = done.into_buffer().unwrap();
            assert!(buffer.as_slice().iter().zip(at..).all(|(found, at)| *found == byte(at)));
            seen += 1;
        }
        queue.check();
    }
    assert_eq!((pushed, queue.in_flight()), (3000, 0));
    // What they read is what the system call reads.
    let mut buffer = vec![0; BLOCK];
    // SAFETY: the buffer is valid for writes of its length.
    let read = unsafe { libc::pread(files[0].as_raw_fd(), buffer.as_mut_ptr().cast(), BLOCK, 0) };
    assert_eq!((answer(read), buffer), (Ok(BLOCK as u64), content[..BLOCK].to_vec()));
}
