//! Chains, barriers and timeouts, where files or clocks show the order. Cases that data can express
//! are in `conformance/chains.case`.

use super::world::{MS, World, bytes, pattern, pipe, write_all};
use ringway_core::op::{self, Position, Readiness};
use ringway_core::{File, OpenOptions, Operation};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn numbered(operations: impl IntoIterator<Item = Operation>) -> Vec<Operation> {
    (0u64..).zip(operations).map(|(number, operation)| operation.user_data(number)).collect()
}

fn results(expected: &[Result<u64, i32>]) -> BTreeMap<u64, Result<u64, i32>> {
    (0u64..).zip(expected.iter().copied()).collect()
}

const CANCELED: Result<u64, i32> = Err(libc::ECANCELED);

pub fn read_then_close(world: &World) {
    let path = world.dir("chain").join("file");
    std::fs::write(&path, "text").unwrap();
    let mut queue = world.queue();
    let mut idle = 0;
    for round in 0..50 {
        let file = File::open(&path).unwrap();
        queue.push_chain(numbered([op::read(&file, vec![0; 4], 0), op::close(file)])).unwrap();
        assert_eq!(queue.rest(), results(&[Ok(4), Ok(0)]));
        // By now the queue has opened its own descriptors.
        if round == 0 {
            idle = super::world::descriptors();
        }
        assert_eq!(super::world::descriptors(), idle);
    }
    // A chain that fails before its close drops the file, which closes it.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    queue.push_chain(numbered([op::read(&file, vec![0; 4], 0), op::close(file)])).unwrap();
    assert_eq!(queue.rest(), results(&[Err(libc::EBADF), CANCELED]));
    assert_eq!(super::world::descriptors(), idle);
}

pub fn a_failure_at_each_place(world: &World) {
    let file = world.file(b"before");
    let mut queue = world.queue();
    let write = |text: &str| op::write(&file, text.as_bytes().to_vec(), 0);
    for at in 0..4 {
        let mut chain: Vec<Operation> = (0..4).map(|_| write("after!")).collect();
        chain[at] = op::statx("no such file");
        queue.push_chain(numbered(chain)).unwrap();
        let mut expected = vec![Ok(6); at];
        expected.push(Err(libc::ENOENT));
        expected.resize(4, CANCELED);
        assert_eq!(queue.rest(), results(&expected));
        let text: &[u8] = if at == 0 { b"before" } else { b"after!" };
        assert_eq!(bytes(queue.one(op::read(&file, vec![0; 6], 0))), text);
        assert_eq!(queue.result(write("before")), Ok(6));
    }
    // An unaligned direct read as the first member.
    let direct = world.direct(&pattern(0, 8192));
    let chain = [
        op::read(&direct, super::world::buffer_for(&direct, 4096), 1),
        write("after!"),
        op::fsync(&file),
    ];
    queue.push_chain(numbered(chain)).unwrap();
    assert_eq!(queue.rest(), results(&[Err(libc::EINVAL), CANCELED, CANCELED]));
    assert_eq!(bytes(queue.one(op::read(&file, vec![0; 6], 0))), b"before");
}

pub fn among_other_operations(world: &World) {
    let files = world.files("among", &pattern(0, 1 << 20));
    let mut queue = world.build(&world.options().entries(8));
    let (reader, writer) = pipe();
    let mut number = 0;
    let mut next = |operation: Operation| {
        number += 1;
        operation.user_data(number)
    };
    // Long direct reads, chains, single operations and polls, all in flight together.
    for round in 0..10u64 {
        for file in &files {
            queue
                .push(next(op::read(file, super::world::buffer_for(file, 1 << 20), 0).exact()))
                .unwrap();
            let block = || super::world::buffer_for(file, 4096);
            queue
                .push_chain(
                    [op::read(file, block(), 4096 * round), op::fdatasync(file), op::nop()]
                        .map(&mut next),
                )
                .unwrap();
            queue.push(next(op::read(file, block(), 4096))).unwrap();
        }
        queue.push(next(op::poll(&reader, Readiness::READABLE))).unwrap();
        queue.push_chain([op::nop(), op::statx("no such file"), op::nop()].map(&mut next)).unwrap();
        if round % 3 == 0 {
            queue.submit().unwrap();
        }
    }
    write_all(&writer, b"x");
    let mut found = [0; 4];
    for done in queue.completions().into_values() {
        match done.result {
            Ok(0) => found[0] += 1,
            Ok(1) => found[1] += 1,
            Ok(len) if len == 4096 || len == 1 << 20 => {
                found[2] += 1;
                let buffer = done.into_buffer().unwrap();
                let first = buffer.as_slice()[0];
                assert_eq!(
                    buffer.as_slice()[4095],
                    first ^ super::world::byte(0) ^ super::world::byte(4095)
                );
            }
            Err(_) => found[3] += 1,
            other => panic!("{other:?}"),
        }
    }
    let count = files.len() * 10;
    assert_eq!(found, [2 * count + 10, 10, 3 * count, 20]);
}

/// Operations pushed between two barriers complete between them.
pub fn barriers_under_load(world: &World) {
    let files = world.files("load", &pattern(0, 65536));
    let mut queue = world.build(&world.options().entries(16));
    let (reader, writer) = pipe();
    write_all(&writer, b"x");
    let mut random = 12345u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % limit
    };
    let mut epoch = 0u64;
    let mut pushed = Vec::new();
    for _ in 0..600 {
        let file = &files[below(files.len() as u64) as usize];
        let at = below(16) * 4096;
        let buffer = || super::world::buffer_for(file, 4096);
        let mut operation = match below(8) {
            0 => op::fsync(file),
            1 => op::nop(),
            2 => op::poll(&reader, Readiness::READABLE),
            3 => op::timeout(MS / 10),
            4 => op::write(file, super::world::filled(file, at, 4096), at),
            _ => op::read(file, buffer(), at),
        };
        let drain = below(10) == 0;
        if drain {
            operation = operation.drain();
            epoch += 1;
        }
        // Barriers have the odd numbers.
        queue.push(operation.user_data(2 * epoch - u64::from(drain))).unwrap();
        pushed.push(2 * epoch - u64::from(drain));
        if below(20) == 0 {
            queue.submit().unwrap();
        }
    }
    let mut seen = Vec::new();
    while queue.in_flight() > 0 {
        seen.extend(queue.reap(1).unwrap().map(|done| {
            assert!(done.result.is_ok());
            done.user_data
        }));
        queue.check();
    }
    pushed.sort();
    if !world.faulty {
        assert!(seen.is_sorted(), "{seen:?}");
    }
    seen.sort();
    assert_eq!(seen, pushed);
}

pub fn operation_timeouts(world: &World) {
    let mut queue = world.queue();
    let (reader, writer) = pipe();
    let limit = 20 * MS;
    let late = Err(libc::ETIMEDOUT);
    let within =
        |begin: Instant| begin.elapsed() >= limit && begin.elapsed() < Duration::from_secs(5);
    let begin = Instant::now();
    assert_eq!(queue.result(op::poll(&reader, Readiness::READABLE).timeout(limit)), late);
    assert!(within(begin), "{:?}", begin.elapsed());
    let begin = Instant::now();
    let done = queue.one(op::read(&reader, vec![7; 16], Position::Current).timeout(limit));
    assert_eq!(done.result.as_ref().unwrap_err().errno(), libc::ETIMEDOUT);
    assert_eq!(done.into_buffer().unwrap().as_slice(), [7; 16]);
    assert!(within(begin), "{:?}", begin.elapsed());
    let read = op::readv(&reader, op::Vectored::new([vec![0; 16]]), Position::Current);
    assert_eq!(queue.result(read.timeout(limit)), late);
    assert_eq!(queue.result(op::timeout(Duration::from_secs(60)).timeout(limit)), late);
    assert_eq!(queue.result(op::poll(&reader, Readiness::READABLE).timeout(Duration::ZERO)), late);
    // The operation completes first; the timeout has no effect and no completion of its own.
    let file = world.file(b"text");
    write_all(&writer, b"x");
    let minute = Duration::from_secs(60);
    assert_eq!(queue.result(op::poll(&reader, Readiness::READABLE).timeout(minute)), Ok(1));
    assert_eq!(
        queue.result(op::read(&reader, vec![0; 16], Position::Current).timeout(minute)),
        Ok(1)
    );
    assert_eq!(queue.result(op::read(&file, vec![0; 16], 0).timeout(minute)), Ok(4));
    assert_eq!(queue.result(op::read(&file, vec![0; 16], 0).timeout(Duration::MAX)), Ok(4));
    assert_eq!(queue.result(op::fsync(&file).timeout(minute)), Ok(0));
    let direct = world.direct(&pattern(0, 4096));
    let read = op::read(&direct, super::world::buffer_for(&direct, 4096), 0);
    assert_eq!(bytes(queue.one(read.timeout(minute))), pattern(0, 4096));
    assert_eq!(queue.reap_until(1, Instant::now() + 30 * MS).unwrap().count(), 0);
    // ETIMEDOUT although part of an exact read has been done.
    write_all(&writer, b"abc");
    assert_eq!(
        queue.result(op::read(&reader, vec![0; 6], Position::Current).exact().timeout(limit)),
        late
    );
    // A cancelled operation with a timeout reports the cancel. (The first pipe may have bytes: on a
    // slow machine, the read above ends before it begins.)
    let (empty, _writer) = pipe();
    let id = queue.push(op::poll(&empty, Readiness::READABLE).timeout(minute)).unwrap();
    queue.submit().unwrap();
    assert!(queue.cancel(id));
    assert_eq!(queue.rest()[&0], CANCELED);
    assert_eq!(queue.stats().late, 0);
}

/// Many timeouts together, of which some expire, and timeouts in chains.
pub fn timeouts_of_queued_operations(world: &World) {
    let mut queue = world.build(&world.options().entries(8));
    let (reader, _writer) = pipe();
    let begin = Instant::now();
    for number in 0..60u64 {
        let limit = if number % 2 == 0 { 10 * MS } else { Duration::from_secs(60) };
        let wait = if number % 2 == 0 {
            op::poll(&reader, Readiness::READABLE)
        } else {
            op::timeout(5 * MS)
        };
        queue.push(wait.timeout(limit).user_data(number)).unwrap();
    }
    for (number, result) in queue.rest() {
        assert_eq!(result, if number % 2 == 0 { Err(libc::ETIMEDOUT) } else { Ok(0) });
    }
    assert!(begin.elapsed() < Duration::from_secs(20));
    let wait = || op::poll(&reader, Readiness::READABLE).timeout(10 * MS);
    queue.push_chain(numbered([op::nop(), wait(), op::nop()])).unwrap();
    assert_eq!(queue.rest(), results(&[Ok(0), Err(libc::ETIMEDOUT), CANCELED]));
    queue.push_chain(numbered([wait().continue_on_error(), op::nop()])).unwrap();
    assert_eq!(queue.rest(), results(&[Err(libc::ETIMEDOUT), Ok(0)]));
}

pub fn deadlines_of_reap(world: &World) {
    let mut queue = world.queue();
    let (reader, writer) = pipe();
    let begin = Instant::now();
    assert_eq!(queue.reap_until(1, begin + Duration::from_secs(60)).unwrap().count(), 0);
    assert!(begin.elapsed() < Duration::from_secs(5), "waited with nothing in flight");
    queue.push(op::poll(&reader, Readiness::READABLE).user_data(1)).unwrap();
    let begin = Instant::now();
    assert_eq!(queue.reap_until(1, begin + 20 * MS).unwrap().count(), 0);
    assert!(begin.elapsed() >= 20 * MS && begin.elapsed() < Duration::from_secs(5));
    // A deadline in the past still delivers what is ready, and so does one that expires while
    // something is ready.
    assert_eq!(queue.reap_until(1, begin).unwrap().count(), 0);
    queue.push(op::nop().user_data(2)).unwrap();
    let begin = Instant::now();
    let done: Vec<u64> =
        queue.reap_until(2, begin + 20 * MS).unwrap().map(|done| done.user_data).collect();
    assert_eq!(done, [2]);
    assert!(begin.elapsed() >= 20 * MS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(10 * MS);
            write_all(&writer, b"x");
        });
        let begin = Instant::now();
        let done: Vec<u64> = queue
            .reap_until(1, begin + Duration::from_secs(60))
            .unwrap()
            .map(|done| done.user_data)
            .collect();
        assert_eq!(done, [1]);
        assert!(begin.elapsed() < Duration::from_secs(20));
    });
}
