//! Registered buffers and files: the same bytes with them, without them, and where registration is
//! refused.

use super::world::{World, bytes, pattern, pipe};
use ringway_core::op::{self, Position};
use ringway_core::refusal::Feature;
use ringway_core::{Arena, ArenaBuffer, BackendKind, File};

/// Checks the result of a registration: available on a ring if enough memory may be locked, and
/// refused with an explanation elsewhere. Returns whether it is available.
fn expect(
    world: &World,
    queue: &ringway_core::Queue,
    feature: Feature,
    registered: Result<(), ringway_core::Refusal>,
) -> bool {
    let explanation = queue.explain();
    match registered {
        Ok(()) => {
            assert_eq!(world.kind, BackendKind::Uring);
            assert!(explanation.available.contains(&feature), "{explanation}");
            true
        }
        Err(refusal) => {
            assert_eq!(refusal.feature, feature);
            let expected =
                if world.kind == BackendKind::Uring { libc::ENOMEM } else { libc::EOPNOTSUPP };
            assert_eq!(refusal.errno, expected, "{refusal}");
            assert!(world.kind != BackendKind::Uring || world.little_memory, "{refusal}");
            assert!(explanation.refusals.contains(&refusal), "{explanation}");
            assert!(!refusal.meaning.is_empty());
            false
        }
    }
}

pub fn buffers(world: &World) {
    let arena = Arena::new(16384, 16);
    let other = Arena::new(4096, 4);
    for file in world.files("fixed", &pattern(0, 16 * 16384)) {
        let mut queue = world.queue();
        let registered = world.register(|| queue.register_arena(&arena));
        let available = expect(world, &queue, Feature::FixedBuffers, registered);
        assert_eq!(queue.register_arena(&arena).is_ok(), available, "twice is once");
        let _ = queue.register_arena(&other);
        // All blocks in flight together, whole and in part, registered or not.
        for part in [0..16384, 4096..8192, 0..0, 8192..16384] {
            while let Some(mut block) = arena.take() {
                block.fill(0xee);
                let number = (16 - arena.free() - 1) as u64;
                let at = number * 16384 + part.start as u64;
                queue
                    .push(
                        op::read(&file, ringway_core::Buffer::from(block).slice(part.clone()), at)
                            .user_data(number),
                    )
                    .unwrap();
            }
            for (number, done) in queue.completions() {
                assert_eq!(done.result, Ok(part.len() as u64));
                let block = ArenaBuffer::try_from(done.into_buffer().unwrap()).unwrap();
                let expected = pattern(number * 16384, 16384);
                assert_eq!(block[part.clone()], expected[part.clone()]);
                assert!(
                    block[..part.start].iter().chain(&block[part.end..]).all(|byte| *byte == 0xee)
                );
            }
            assert_eq!(arena.free(), 16);
        }
        let mut block = other.take().unwrap();
        block.copy_from_slice(&pattern(777, 4096));
        assert_eq!(queue.result(op::write(&file, block, 8192)), Ok(4096));
        let mut block = arena.take().unwrap();
        block[4096..8192].copy_from_slice(&pattern(55, 4096));
        let buffer = ringway_core::Buffer::from(block).slice(4096..8192);
        assert_eq!(queue.result(op::write(&file, buffer, 0)), Ok(4096));
        let read = bytes(queue.one(op::read(&file, super::world::buffer_for(&file, 12288), 0)));
        assert_eq!(
            (&read[..4096], &read[8192..]),
            (&pattern(55, 4096)[..], &pattern(777, 4096)[..])
        );
    }
    // Streams and chains use registered buffers too.
    let mut queue = world.queue();
    let _ = queue.register_arena(&arena);
    let (reader, writer) = pipe();
    let mut block = arena.take().unwrap();
    block[..5].copy_from_slice(b"piped");
    let chain = [
        op::write(&writer, ringway_core::Buffer::from(block).slice(..5), Position::Current)
            .user_data(1),
        op::read(
            &reader,
            ringway_core::Buffer::from(arena.take().unwrap()).slice(100..105),
            Position::Current,
        )
        .exact()
        .user_data(2),
    ];
    queue.push_chain(chain).unwrap();
    let mut done = queue.completions();
    assert_eq!(bytes(done.remove(&2).unwrap()), b"piped");
    drop((queue, done));
    assert_eq!(arena.free(), 16);
    // Longer than the device's largest request, so that it is split.
    let arena = Arena::new(10 << 20, 1);
    let file = world.direct(&pattern(0, 10 << 20));
    let mut queue = world.queue();
    let _ = queue.register_arena(&arena);
    let done = queue.one(op::read(&file, arena.take().unwrap(), 0).exact());
    assert_eq!(bytes(done), pattern(0, 10 << 20));
}

/// Whether this kernel has tables of buffers with free entries, to which buffers can be added at
/// any time (5.19).
fn has_sparse_tables() -> bool {
    io_uring::IoUring::new(2).unwrap().submitter().register_buffers_sparse(1).is_ok()
}

pub fn buffers_while_operations_are_in_flight(world: &World) {
    if world.kind != BackendKind::Uring || world.little_memory {
        return println!("left out: the case `buffers` tests that nothing is registered here");
    }
    let arenas = [4096, 8192, 4096].map(|block| Arena::new(block, 4));
    let file = world.direct(&pattern(0, 16384));
    let (reader, writer) = pipe();
    let mut queue = world.queue();
    // The ring polls for the threads now.
    assert_eq!(queue.one(op::blocking(|| {})).result, Ok(0));
    world.register(|| queue.register_arena(&arenas[0])).unwrap();
    queue.push(op::read(&reader, vec![0; 1], Position::Current).user_data(1)).unwrap();
    queue.submit().unwrap();
    match queue.register_arena(&arenas[1]) {
        Ok(()) => assert!(has_sparse_tables()),
        Err(refusal) => {
            assert!(!has_sparse_tables(), "{refusal}");
            assert_eq!((refusal.feature, refusal.errno), (Feature::FixedBuffers, libc::EBUSY));
            assert!(refusal.meaning.contains("5.19"), "{refusal}");
        }
    }
    let read = |arena: &Arena, at: u64| op::read(&file, arena.take().unwrap(), at);
    let check = |queue: &mut super::world::Checked, others: u64| {
        for (number, arena) in (10u64..).zip(&arenas) {
            queue.push(read(arena, (number - 10) * 4096).user_data(number)).unwrap();
        }
        let mut done = 0;
        while done < 3 {
            for completion in queue.reap(1).unwrap() {
                let at = (completion.user_data - 10) * 4096;
                let len = completion.result.unwrap() as usize;
                assert_eq!(bytes(completion), pattern(at, len));
                done += 1;
            }
        }
        assert_eq!(queue.in_flight() as u64, others);
    };
    check(&mut queue, 1);
    super::world::write_all(&writer, b"1");
    assert_eq!(queue.rest()[&1], Ok(1));
    // Nothing is in flight: the other arenas are registered next to the first.
    world.register(|| queue.register_arena(&arenas[1])).unwrap();
    world.register(|| queue.register_arena(&arenas[2])).unwrap();
    check(&mut queue, 0);
}

pub fn sixty_four_buffers(world: &World) {
    if world.kind != BackendKind::Uring || world.little_memory {
        return println!("left out: the case `buffers` tests that nothing is registered here");
    }
    let mut queue = world.queue();
    let arenas: Vec<Arena> = (0..65).map(|_| Arena::new(4096, 1)).collect();
    for arena in &arenas[..64] {
        world.register(|| queue.register_arena(arena)).unwrap();
    }
    let refusal = queue.register_arena(&arenas[64]).unwrap_err();
    assert_eq!((refusal.feature, refusal.errno), (Feature::FixedBuffers, libc::ENOSPC));
    assert!(refusal.meaning.contains("64"), "{refusal}");
    // A refusal leaves the others as they are.
    let file = world.direct(&pattern(0, 65 * 4096));
    for (number, arena) in (0u64..).zip(&arenas) {
        let read = op::read(&file, arena.take().unwrap(), number * 4096);
        queue.push(read.user_data(number)).unwrap();
    }
    for (number, done) in queue.completions() {
        assert_eq!(bytes(done), pattern(number * 4096, 4096));
    }
    assert_eq!(queue.stats().retries, 0, "every buffer is registered");
}

pub fn files(world: &World) {
    let mut queue = world.queue();
    for file in world.files("registered", &pattern(0, 8192)) {
        let registered = queue.register_file(&file);
        let available = expect(world, &queue, Feature::FixedFiles, registered);
        assert_eq!(
            queue.register_file(&file.clone()).is_ok(),
            available,
            "a clone is the same file"
        );
        let read = || op::read(&file, super::world::buffer_for(&file, 4096), 4096);
        assert_eq!(bytes(queue.one(read())), pattern(4096, 4096));
        assert_eq!(
            queue.result(op::write(&file, super::world::filled(&file, 0, 4096), 0)),
            Ok(4096)
        );
        assert_eq!(queue.result(op::fdatasync(&file)), Ok(0));
        assert_eq!(queue.result(op::fallocate(&file, 0, 0, 8192)), Ok(0));
        assert_eq!(queue.result(op::fadvise(&file, 0, 0, op::Advice::Normal)), Ok(0));
        if cfg!(ringway_linux) {
            assert_eq!(queue.result(op::sync_range(&file, 0, 0, 0)), Ok(0));
        }
        assert_eq!(queue.result(op::ftruncate(&file, 8192)), Ok(0));
        assert_eq!(queue.one(op::statx_at(&file, "", 0)).into_metadata().unwrap().len(), 8192);
        queue.push_chain([read().user_data(1), op::fsync(&file).user_data(2)]).unwrap();
        assert_eq!(queue.rest().into_values().collect::<Vec<_>>(), [Ok(4096), Ok(0)]);
        assert_eq!(queue.unregister_file(&file), available);
        assert!(!queue.unregister_file(&file));
        assert_eq!(bytes(queue.one(read())), pattern(4096, 4096));
    }
    // A file in use stays registered. A free index serves the next file.
    let (reader, writer) = pipe();
    if queue.register_file(&reader).is_ok() {
        queue.push(op::read(&reader, vec![0; 4], Position::Current)).unwrap();
        queue.submit().unwrap();
        assert!(!queue.unregister_file(&reader));
        super::world::write_all(&writer, b"text");
        assert_eq!(queue.rest()[&0], Ok(4));
        assert!(queue.unregister_file(&reader));
    }
    // A registration keeps the file open, so a close is refused.
    let file = world.file(b"text");
    if queue.register_file(&file).is_ok() {
        assert_eq!(queue.result(op::close(file.clone())), Err(libc::EBUSY));
        assert!(queue.unregister_file(&file));
    }
    assert_eq!(queue.result(op::close(file)), Ok(0));
}

pub fn sixty_four_files(world: &World) {
    if world.kind != BackendKind::Uring {
        return println!("left out: the case `files` tests that this backend registers nothing");
    }
    let mut queue = world.queue();
    let files: Vec<File> = (0..65u8).map(|number| world.file(&[number; 8])).collect();
    for file in files[..64].iter() {
        queue.register_file(file).unwrap();
    }
    let refusal = queue.register_file(&files[64]).unwrap_err();
    assert_eq!((refusal.feature, refusal.errno), (Feature::FixedFiles, libc::ENOSPC));
    let check = |queue: &mut super::world::Checked| {
        for (number, file) in (0u8..).zip(&files) {
            queue.push(op::read(file, vec![0xff; 8], 0).user_data(u64::from(number))).unwrap();
        }
        for (number, done) in queue.completions() {
            assert_eq!(bytes(done), [number as u8; 8]);
        }
    };
    check(&mut queue);
    assert!(queue.unregister_file(&files[10]));
    queue.register_file(&files[64]).unwrap();
    check(&mut queue);
    for file in files.iter().step_by(2) {
        let _ = queue.unregister_file(file);
    }
    check(&mut queue);
}
