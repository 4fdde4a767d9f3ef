//! Transfers and timeouts that succeed: the same bytes on every backend. Cases that data can
//! express are in `conformance/transfers.case` and `files.case`.

use super::world::{
    MS, World, buffer_for, byte, bytes, call_result, filled, pattern, pipe, vec_of, wait_for,
    write_all,
};
use ringway_core::op::{self, Position, Vectored};
use ringway_core::{Arena, Buffer, CustomBuffer, FaultPlan, File};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

pub fn read_and_write_at_offsets(world: &World) {
    for file in world.files("offsets", b"") {
        let mut queue = world.queue();
        // Out of order, all in flight together.
        for block in [3u64, 0, 2, 5, 1, 4] {
            let at = block * BLOCK as u64;
            queue.push(op::write(&file, filled(&file, at, BLOCK), at).user_data(block)).unwrap();
        }
        assert!(queue.rest().into_iter().eq((0..6).map(|block| (block, Ok(BLOCK as u64)))));
        for (number, (first, blocks)) in [(4u64, 2), (0, 6), (1, 1), (2, 3)].into_iter().enumerate()
        {
            let buffer = buffer_for(&file, blocks * BLOCK);
            queue
                .push(op::read(&file, buffer, first * BLOCK as u64).user_data(number as u64))
                .unwrap();
        }
        let done = queue.completions();
        for (done, (first, blocks)) in done.into_values().zip([(4u64, 2), (0, 6), (1, 1), (2, 3)]) {
            assert_eq!(bytes(done), pattern(first * BLOCK as u64, blocks * BLOCK));
        }
        assert_eq!(
            queue.result(op::read(&file, buffer_for(&file, BLOCK), 6 * BLOCK as u64)),
            Ok(0)
        );
        assert_eq!(queue.result(op::read(&file, buffer_for(&file, BLOCK), 1 << 40)), Ok(0));
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

pub fn vectored(world: &World) {
    for file in world.files("vectored", b"") {
        let mut queue = world.queue();
        let part = |block: u64| filled(&file, block * BLOCK as u64, BLOCK);
        let parts = Vectored::new([part(2), part(3), part(4)]);
        assert_eq!(queue.result(op::writev(&file, parts, 2 * BLOCK as u64)), Ok(3 * BLOCK as u64));
        let parts = Vectored::new([
            buffer_for(&file, 0),
            buffer_for(&file, BLOCK),
            buffer_for(&file, 0),
            buffer_for(&file, 2 * BLOCK),
        ]);
        let done = queue.one(op::readv(&file, parts, 2 * BLOCK as u64));
        assert_eq!(done.result, Ok(3 * BLOCK as u64));
        let buffers = done.into_vectored().unwrap().into_buffers();
        assert_eq!(buffers[1].as_slice(), pattern(2 * BLOCK as u64, BLOCK));
        assert_eq!(buffers[3].as_slice(), pattern(3 * BLOCK as u64, 2 * BLOCK));
        // The file ends within the second buffer; the third is not touched.
        let parts = Vectored::new([
            buffer_for(&file, BLOCK),
            buffer_for(&file, 2 * BLOCK),
            buffer_for(&file, BLOCK),
        ]);
        let done = queue.one(op::readv(&file, parts, 3 * BLOCK as u64).exact());
        assert_eq!(done.result, Ok(2 * BLOCK as u64));
        let buffers = done.into_vectored().unwrap().into_buffers();
        assert_eq!(buffers[0].as_slice(), pattern(3 * BLOCK as u64, BLOCK));
        assert_eq!(buffers[1].as_slice()[..BLOCK], pattern(4 * BLOCK as u64, BLOCK));
        // (A direct read may have put zeroes there.)
        assert!(file.is_direct() || buffers[2].as_slice().iter().all(|byte| *byte == 0xee));
    }
    // The largest number of buffers.
    let file = world.file(&pattern(0, 2048));
    let mut queue = world.queue();
    let done = queue.one(op::readv(&file, Vectored::new((0..1024).map(|_| vec![0; 2])), 0));
    assert_eq!(done.result, Ok(2048));
    let read: Vec<u8> =
        done.into_vectored().unwrap().into_buffers().into_iter().flat_map(vec_of).collect();
    assert_eq!(read, pattern(0, 2048));
}

/// A buffer that counts its drops.
struct Frame(Box<[u8]>, Arc<Mutex<u32>>);

// SAFETY: the bytes of a boxed slice do not move with the box, and this value owns them alone.
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

pub fn all_buffer_types(world: &World) {
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
        // Read into a part of the buffer.
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

/// Unread bytes in a pipe.
fn unread(pipe: &File) -> i32 {
    let mut count = 0;
    // SAFETY: the count is valid for writes for the length of the call.
    let returned = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    assert_eq!(returned, 0);
    count
}

/// Writes to a pipe in pieces, each after the one before has been read, while `act` reads.
fn with_pieces(
    world: &World,
    pieces: &[&str],
    act: impl FnOnce(&mut super::world::Checked, &File),
) {
    let (reader, writer) = pipe();
    let mut queue = world.queue();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for piece in pieces {
                assert!(wait_for(20_000 * MS, || unread(&writer) == 0), "the reader does not read");
                write_all(&writer, piece.as_bytes());
            }
            drop(writer);
        });
        act(&mut queue, &reader);
    });
}

pub fn exact_over_a_pipe(world: &World) {
    with_pieces(world, &["abc", "defg", "hi"], |queue, reader| {
        assert_eq!(
            bytes(queue.one(op::read(reader, vec![0; 9], Position::Current).exact())),
            b"abcdefghi"
        );
        assert!(queue.stats().continued >= 1);
    });
    with_pieces(world, &["abc", "defg"], |queue, reader| {
        assert_eq!(bytes(queue.one(op::read(reader, vec![0; 9], Position::Current))), b"abc");
        // The writer closes the pipe before all bytes have been written.
        assert_eq!(
            bytes(queue.one(op::read(reader, vec![0; 9], Position::Current).exact())),
            b"defg"
        );
        assert_eq!(queue.result(op::read(reader, vec![0; 9], Position::Current).exact()), Ok(0));
    });
}

/// Short, retried, late and reordered transfers still give the right bytes.
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
        let one = queue.one(op::read(&file, buffer_for(&file, len), 0).exact());
        assert_eq!(bytes(one), pattern(0, len));
        let parts = Vectored::new((0..64).map(|_| buffer_for(&file, BLOCK)));
        let done = queue.one(op::readv(&file, parts, 0).exact());
        assert_eq!(done.result, Ok(len as u64));
        let buffers = done.into_vectored().unwrap().into_buffers();
        for (at, buffer) in (0u64..).step_by(BLOCK).zip(buffers) {
            assert_eq!(buffer.as_slice(), pattern(at, BLOCK));
        }
        let stats = queue.stats();
        // The plan does not affect the fallback pool.
        assert!(stats.continued > 0 && stats.retries > 0 || stats.to_threads > 0, "{stats:?}");
    }
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
    // (Not in the order of their times: those that expire while the thread does not run may be
    // delivered in any order, as on 6.1.)
    let mut numbers: Vec<u64> = order.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3]);
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

/// More operations than fit into any of the queues, buffered and direct.
pub fn many_at_once(world: &World) {
    let content = pattern(0, 64 * BLOCK);
    let files = world.files("many", &content);
    let mut queue = world.queue();
    let (mut pushed, mut seen) = (0u64, 0);
    while seen < 3000 {
        while pushed < 3000 {
            let file = &files[pushed as usize % files.len()];
            let at = pushed * 7 % 64 * BLOCK as u64;
            match queue.push(op::read(file, buffer_for(file, BLOCK), at).user_data(at)) {
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
    // The system call reads the same bytes.
    let mut buffer = vec![0; BLOCK];
    // SAFETY: the buffer is valid for writes of its length.
    let read = unsafe { libc::pread(files[0].as_raw_fd(), buffer.as_mut_ptr().cast(), BLOCK, 0) };
    assert_eq!((call_result(read), buffer), (Ok(BLOCK as u64), content[..BLOCK].to_vec()));
}
