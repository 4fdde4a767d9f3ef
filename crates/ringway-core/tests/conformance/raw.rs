//! The API under the bindings for other languages: operations made from addresses, borrowed
//! descriptors, ids as numbers, and reaping of selected operations.

use super::world::{MS, World, buffer_for, pattern, pipe};
use ringway_core::op::{self, Position};
use ringway_core::refusal::Feature;
use ringway_core::{BackendKind, File, OpId, Operation};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub fn borrowed_descriptors(world: &World) {
    for owner in world.files("borrowed", &pattern(0, 8192)) {
        let fd = owner.as_raw_fd();
        // SAFETY: `owner` stays open for as long as this loop's body.
        let file = unsafe { File::borrow_raw(fd) }.unwrap();
        let mut queue = world.queue();
        let weak = file.downgrade();
        let mut buffer = buffer_for(&owner, 8192);
        let read = op::Read {
            fd,
            buf: buffer.as_mut_ptr(),
            len: 8192,
            offset: 0,
            flags: op::RwFlags::NONE,
        };
        // SAFETY: the buffer outlives the completion.
        let operation = unsafe { Operation::from_raw(read.into(), Some(file), None) };
        queue.push(operation).unwrap();
        assert!(weak.upgrade().is_some(), "an operation in flight holds its file");
        assert_eq!(queue.rest()[&0], Ok(8192));
        assert_eq!(&buffer[..], pattern(0, 8192));
        assert!(weak.upgrade().is_none(), "a completion does not");
        assert!(
            std::fs::metadata(format!("/proc/self/fd/{fd}")).is_ok(),
            "a borrowed descriptor is not closed"
        );
        // SAFETY: as above.
        let file = unsafe { File::borrow_raw(fd) }.unwrap();
        assert!(file.into_fd().is_err(), "nor given away");
    }
    // SAFETY: it is no descriptor's number.
    assert!(unsafe { File::borrow_raw(-1) }.is_none());
    let file = world.file(b"owned");
    let (fd, other) = (file.as_raw_fd(), file.clone());
    let file = file.into_fd().unwrap_err();
    drop(other);
    assert_eq!(file.into_fd().unwrap().as_raw_fd(), fd);
}

pub fn kept_memory(world: &World) {
    let dir = world.dir("kept");
    let mut queue = world.queue();
    let path =
        std::ffi::CString::new(dir.join("made").into_os_string().into_encoded_bytes()).unwrap();
    let mkdir = op::Mkdir { dir: libc::AT_FDCWD, path: path.as_ptr(), mode: 0o700 };
    // SAFETY: the operation keeps the path.
    queue.push(unsafe { Operation::from_raw(mkdir.into(), None, Some(Box::new(path))) }).unwrap();
    assert_eq!(queue.rest()[&0], Ok(0));
    assert!(dir.join("made").is_dir());
}

pub fn registered_memory(world: &World) {
    for file in world.files("memory", &pattern(0, 65536)) {
        let mut queue = world.queue();
        let (mut one, mut two) = (buffer_for(&file, 32768), buffer_for(&file, 16384));
        let iov = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let memory = [iov(&mut one), iov(&mut two)];
        let empty = [memory[0], libc::iovec { iov_len: 0, ..memory[1] }];
        // SAFETY: the queue is dropped before the buffers, at the end of this body.
        let refused = unsafe { queue.register_memory(&empty) }.unwrap_err();
        assert_eq!((refused.feature, refused.errno), (Feature::FixedBuffers, libc::EINVAL));
        // SAFETY: as above.
        match world.register(|| unsafe { queue.register_memory(&memory) }) {
            Ok(()) => assert_eq!(world.kind, BackendKind::Uring),
            Err(refusal) if world.kind == BackendKind::Uring => {
                assert!(world.little_memory && refusal.errno == libc::ENOMEM, "{refusal}");
            }
            Err(refusal) => assert_eq!(refusal.errno, libc::EOPNOTSUPP),
        }
        // In the first buffer, at its end, in the second, and in memory that is not registered.
        let mut three = buffer_for(&file, 4096);
        let places = [
            (one.as_mut_ptr(), 4096, 0),
            (one.as_mut_ptr().wrapping_add(28672), 4096, 4096),
            (two.as_mut_ptr(), 16384, 8192),
            (three.as_mut_ptr(), 4096, 32768),
            (one.as_mut_ptr().wrapping_add(8192), 0, 0),
        ];
        for (number, (buf, len, offset)) in (0u64..).zip(places) {
            let read =
                op::Read { fd: file.as_raw_fd(), buf, len, offset, flags: op::RwFlags::NONE };
            // SAFETY: the buffers outlive the completions.
            let operation = unsafe { Operation::from_raw(read.into(), Some(file.clone()), None) };
            queue.push(operation.user_data(number)).unwrap();
        }
        let done = queue.rest();
        for (number, (_, len, _)) in (0u64..).zip(places) {
            assert_eq!(done[&number], Ok(len as u64));
        }
        assert_eq!(&one[..4096], pattern(0, 4096));
        assert_eq!(&one[28672..], pattern(4096, 4096));
        assert_eq!(&two[..], pattern(8192, 16384));
        assert_eq!(&three[..], pattern(32768, 4096));
        drop(queue);
    }
}

/// Reaps selected operations; the others stay, completed or not.
pub fn reaping_selected_operations(world: &World) {
    let (reader, writer) = pipe();
    for file in world.files("those", &pattern(0, 64 * 4096)) {
        let mut queue = world.queue();
        queue.push(op::read(&reader, vec![0; 1], Position::Current).user_data(1000)).unwrap();
        queue.push(op::nop().user_data(1001)).unwrap();
        for number in 0..64 {
            queue
                .push(op::read(&file, buffer_for(&file, 4096), number * 4096).user_data(number))
                .unwrap();
        }
        let mut seen = Vec::new();
        queue.reap_matching(64, |number| number < 1000, |done| seen.push(done)).unwrap();
        queue.check();
        assert_eq!(seen.len(), 64);
        for done in seen {
            assert_eq!(done.result, Ok(4096));
            let offset = done.user_data * 4096;
            assert_eq!(super::world::bytes(done), pattern(offset, 4096));
        }
        queue.reap_matching(0, |number| number < 1000, |_| panic!("none is left")).unwrap();
        let mut fd = libc::pollfd {
            fd: queue.poll_fd().unwrap().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `fd` is one entry, for the length of the call.
        let ready = unsafe { libc::poll(&raw mut fd, 1, 10_000) };
        assert_eq!(ready, 1, "the descriptor is readable for the completion of the nop");
        assert_eq!(queue.reap(0).unwrap().map(|done| done.user_data).collect::<Vec<_>>(), [1001]);
        write_byte(&writer);
        assert_eq!(queue.rest().into_iter().collect::<Vec<_>>(), [(1000, Ok(1))]);
    }
}

/// An operation that never completes is not waited for unless it is selected: neither when the
/// selected ones have completed, nor when more are requested than are in flight.
pub fn reaping_selected_operations_while_others_wait(world: &World) {
    let (reader, writer) = pipe();
    let mut queue = world.queue();
    queue.push(op::read(&reader, vec![0; 1], Position::Current).user_data(1000)).unwrap();
    for at_least in [1, 2, usize::MAX] {
        queue.push(op::nop().user_data(1)).unwrap();
        // It completes before the reap.
        while queue.submit().unwrap() == 0 {
            std::thread::yield_now();
        }
        let mut seen = 0;
        queue.reap_matching(at_least, |number| number == 1, |_| seen += 1).unwrap();
        assert_eq!(seen, 1, "at least {at_least}");
        queue.check();
    }
    // Two that have completed, one that has not, and one that was abandoned.
    for number in [1, 1, 2] {
        queue.push(op::nop().user_data(number)).unwrap();
    }
    while queue.submit().unwrap() < 3 {
        std::thread::yield_now();
    }
    let abandoned =
        queue.push(op::read(&reader, vec![0; 1], Position::Current).user_data(1)).unwrap();
    queue.abandon(abandoned);
    queue.push(op::timeout(std::time::Duration::from_millis(5)).user_data(1)).unwrap();
    let mut seen = 0;
    queue.reap_matching(4, |number| number == 1, |_| seen += 1).unwrap();
    assert_eq!(seen, 3);
    assert_eq!(queue.reap(0).unwrap().map(|done| done.user_data).collect::<Vec<_>>(), [2]);
    write_byte(&writer);
    assert_eq!(queue.rest().into_iter().collect::<Vec<_>>(), [(1000, Ok(1))]);
}

fn write_byte(writer: &File) {
    // SAFETY: the byte is valid for the length of the call.
    assert_eq!(unsafe { libc::write(writer.as_raw_fd(), b"x".as_ptr().cast(), 1) }, 1);
}

pub fn ids_are_numbers(world: &World) {
    let mut queue = world.queue();
    for round in 0..100 {
        let id = queue.push(op::nop()).unwrap();
        assert!(id.to_bits() > 0 && id.to_bits() < 1 << 56);
        assert_eq!(OpId::from_bits(id.to_bits()), Some(id));
        assert_eq!(queue.rest().len(), 1, "round {round}");
        assert!(!queue.cancel(id));
    }
    assert_eq!(OpId::from_bits(0), None);
    assert_eq!(OpId::from_bits(u64::MAX), None);
}

/// A filter that panics loses no completion.
pub fn a_panic_while_reaping_selected_operations(world: &World) {
    let mut queue = world.queue();
    for number in 0..3 {
        queue.push(op::nop().user_data(number)).unwrap();
    }
    while queue.submit().unwrap() < 3 {
        std::thread::sleep(MS);
    }
    let panics = |number| if number == 1 { panic!("a test of a panic") } else { false };
    let reap = || queue.reap_matching(1, panics, |_| unreachable!());
    assert!(catch_unwind(AssertUnwindSafe(reap)).is_err());
    assert!(queue.completions().into_keys().eq(0..3));
}
