//! Transfers and timeouts that succeed: the same bytes on every backend. Cases that data can
//! express are in `conformance/transfers.case` and `files.case`.

use super::world::{MS, World, buffer_for, bytes, filled, pattern, pipe, wait_for, write_all};
use ringway_core::op::{self, Position, Readiness, Vectored};
use ringway_core::{Arena, Buffer, FaultPlan, File};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

/// A buffer that counts its drops.
struct Frame(Box<[u8]>, Arc<Mutex<u32>>);

// (The bytes of a boxed slice do not move with the box.)
ringway_torture::custom_buffer!(Frame, |this| this.0, true);

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
        let results: Vec<_> = queue.rest().into_values().collect();
        assert_eq!(results, [Ok((len / 8) as u64); 8]);
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

/// How many bytes wait in a pipe.
fn unread(pipe: &File) -> libc::c_int {
    let mut count = 0;
    // SAFETY: the call writes one number.
    assert_eq!(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) }, 0);
    count
}

/// A pipe ignores an offset. What it has at a time is a part of the transfer, or nothing if it is
/// not to block, and the rest comes only if the queue goes on.
pub fn on_a_pipe_beside_what_depends_on_them(world: &World) {
    const LIMIT: Duration = Duration::from_secs(10);
    for blocks in [false, true] {
        for position in [Position::Current, Position::Offset(0)] {
            let mut queue = world.queue();
            let ((reader, writer), (other_reader, other_writer)) = (pipe(), pipe());
            if !blocks {
                // SAFETY: the call takes numbers.
                let set =
                    unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
                assert_eq!(set, 0);
            }
            queue.push(op::read(&reader, vec![0; 8], position).exact()).unwrap();
            queue.push(op::poll(&other_reader, Readiness::READABLE)).unwrap();
            let writes = std::thread::spawn(move || {
                for _ in 0..8 {
                    std::thread::sleep(MS);
                    write_all(&writer, b"x");
                    if !wait_for(LIMIT, || unread(&reader) == 0) {
                        return false;
                    }
                }
                write_all(&other_writer, b"x");
                true
            });
            let done = queue.reap_until(2, Instant::now() + LIMIT).unwrap().count();
            assert_eq!((done, writes.join().unwrap()), (2, true), "{position:?}, blocks: {blocks}");
        }
    }
}
