//! Chains, barriers and time limits: the same order everywhere, seen in what files hold.

use crate::world::{MS, World, bytes, pattern, pipe, put};
use ringway_core::op::{self, Position, Readiness};
use ringway_core::{FaultPlan, File, OpenOptions, Operation};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn numbered(operations: impl IntoIterator<Item = Operation>) -> Vec<Operation> {
    (0u64..).zip(operations).map(|(number, operation)| operation.user_data(number)).collect()
}

fn results(expected: &[Result<u64, i32>]) -> BTreeMap<u64, Result<u64, i32>> {
    (0u64..).zip(expected.iter().copied()).collect()
}

const CANCELED: Result<u64, i32> = Err(libc::ECANCELED);

pub fn in_order(world: &World) {
    for file in world.files("order", &pattern(0, 8192)) {
        let mut queue = world.queue();
        let block = |number: u8| {
            let mut buffer = crate::world::room(&file, 4096);
            buffer.fill(number);
            buffer
        };
        for round in 0..20 {
            // Each read must see what was written before it and nothing that is written after it.
            let chain = (0..4u8).flat_map(|step| {
                let write = op::write(&file, block(round * 4 + step), 0);
                [write, op::fdatasync(&file), op::read(&file, block(0xff), 0)]
            });
            queue.push_chain(numbered(chain)).unwrap();
            let done = queue.completions();
            for (number, done) in done {
                let step = number / 3;
                match number % 3 {
                    1 => assert_eq!(done.result, Ok(0)),
                    2 => assert!(bytes(done).iter().all(|byte| *byte == round * 4 + step as u8)),
                    _ => assert_eq!(done.result, Ok(4096)),
                }
            }
        }
    }
}

pub fn read_then_close(world: &World) {
    let path = world.dir("chain").join("file");
    std::fs::write(&path, "text").unwrap();
    let mut queue = world.queue();
    let mut idle = 0;
    for round in 0..50 {
        let file = File::open(&path).unwrap();
        queue.push_chain(numbered([op::read(&file, vec![0; 4], 0), op::close(file)])).unwrap();
        assert_eq!(queue.rest(), results(&[Ok(4), Ok(0)]));
        // By now the queue has opened what it needs.
        if round == 0 {
            idle = crate::world::descriptors();
        }
        assert_eq!(crate::world::descriptors(), idle);
    }
    // A chain that breaks before its close leaves the file to its owner, here nobody: it is closed
    // all the same.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    queue.push_chain(numbered([op::read(&file, vec![0; 4], 0), op::close(file)])).unwrap();
    assert_eq!(queue.rest(), results(&[Err(libc::EBADF), CANCELED]));
    assert_eq!(crate::world::descriptors(), idle);
}

pub fn write_sync_rename(world: &World) {
    let dir = world.dir("replace");
    let (new, name) = (dir.join("name.new"), dir.join("name"));
    let mut queue = world.queue();
    for round in 0..20 {
        let text = format!("round {round}").into_bytes();
        let file = OpenOptions::new().write(true).create_new(true).open(&new).unwrap();
        let chain = [
            op::write(&file, text.clone(), 0).exact(),
            op::fsync(&file),
            op::close(file),
            op::rename(&new, &name),
        ];
        queue.push_chain(numbered(chain)).unwrap();
        assert_eq!(queue.rest(), results(&[Ok(text.len() as u64), Ok(0), Ok(0), Ok(0)]));
        assert_eq!(std::fs::read(&name).unwrap(), text);
    }
    assert!(!new.exists());
}

pub fn a_failure_ends_it(world: &World) {
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
    // The head fails in another way: it cannot be a direct read as it stands.
    let direct = world.direct(&pattern(0, 8192));
    let chain = [
        op::read(&direct, crate::world::room(&direct, 4096), 1),
        write("after!"),
        op::fsync(&file),
    ];
    queue.push_chain(numbered(chain)).unwrap();
    assert_eq!(queue.rest(), results(&[Err(libc::EINVAL), CANCELED, CANCELED]));
    assert_eq!(bytes(queue.one(op::read(&file, vec![0; 6], 0))), b"before");
}

/// Not every failure ends a chain that the kernel links by itself; here each must.
pub fn every_failure_ends_it(world: &World) {
    let file = world.file(b"before");
    let reader = {
        let path = world.dir("every").join("file");
        std::fs::write(&path, "text").unwrap();
        File::open(path).unwrap()
    };
    let (pipe_reader, _pipe_writer) = pipe();
    let none = "no such directory/name";
    let mut queue = world.queue();
    let failing: Vec<(Operation, i32)> = vec![
        (op::read(&pipe_reader, vec![0; 4], Position::Current).timeout(MS), libc::ETIMEDOUT),
        (op::write(&reader, vec![0; 4], 0), libc::EBADF),
        (op::writev(&reader, op::Vectored::new([vec![0; 4]]), 0), libc::EBADF),
        (op::fsync(&pipe_reader), libc::EINVAL),
        (op::fdatasync(&pipe_reader), libc::EINVAL),
        (op::sync_range(&pipe_reader, 0, 0, 0), libc::ESPIPE),
        (op::open(none, OpenOptions::new().read(true)), libc::ENOENT),
        (op::statx(none), libc::ENOENT),
        (op::fallocate(&reader, 0, 0, 10), libc::EBADF),
        (op::ftruncate(&reader, 0), libc::EINVAL),
        (op::fadvise(&pipe_reader, 0, 0, op::Advice::WillNeed), libc::ESPIPE),
        (op::rename(none, "other"), libc::ENOENT),
        (op::unlink(none), libc::ENOENT),
        (op::rmdir(none), libc::ENOENT),
        (op::mkdir(none, 0o755), libc::ENOENT),
        (op::link(none, "other"), libc::ENOENT),
        (op::symlink("text", none), libc::ENOENT),
    ];
    let mut wrong = Vec::new();
    for (operation, errno) in failing {
        let kind = operation.opcode();
        queue
            .push_chain(numbered([
                op::nop(),
                operation,
                op::write(&file, b"after!".to_vec(), 0),
                op::nop(),
            ]))
            .unwrap();
        let found = queue.rest();
        if found != results(&[Ok(0), Err(errno), CANCELED, CANCELED]) {
            wrong.push((kind, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(bytes(queue.one(op::read(&file, vec![0; 6], 0))), b"before");
    // Time that has passed is a success.
    queue.push_chain(numbered([op::timeout(MS), op::timeout(MS), op::nop()])).unwrap();
    assert_eq!(queue.rest(), results(&[Ok(0), Ok(0), Ok(0)]));
}

pub fn a_short_transfer_ends_it(world: &World) {
    let file = world.file(&pattern(0, 100));
    let mut queue = world.queue();
    for exact in [false, true] {
        let mut read = op::read(&file, vec![0; 200], 0);
        if exact {
            read = read.exact();
        }
        queue.push_chain(numbered([read, op::write(&file, vec![9; 10], 0), op::nop()])).unwrap();
        assert_eq!(queue.rest(), results(&[Ok(100), CANCELED, CANCELED]));
        assert_eq!(bytes(queue.one(op::read(&file, vec![0; 10], 0))), pattern(0, 10));
    }
    // Nothing at all is as short.
    queue.push_chain(numbered([op::read(&file, vec![0; 8], 100), op::nop()])).unwrap();
    assert_eq!(queue.rest(), results(&[Ok(0), CANCELED]));
    // One that is continued over a pipe is not short.
    let (reader, writer) = pipe();
    put(&writer, b"abc");
    queue
        .push_chain(numbered([
            op::read(&reader, vec![0; 6], Position::Current).exact(),
            op::nop(),
            op::nop(),
        ]))
        .unwrap();
    queue.submit().unwrap();
    put(&writer, b"def");
    assert_eq!(queue.rest(), results(&[Ok(6), Ok(0), Ok(0)]));
    // Nor is one that was cut only on its way.
    let plan = FaultPlan::new(3).short(800).retryable(300);
    let mut queue = world.build(&world.options().faults(plan));
    for _ in 0..30 {
        queue.push_chain(numbered([op::read(&file, vec![0; 100], 0).exact(), op::nop()])).unwrap();
        assert_eq!(queue.rest(), results(&[Ok(100), Ok(0)]));
    }
}

pub fn always_goes_on(world: &World) {
    let file = world.file(b"abc");
    let mut queue = world.queue();
    let chain = [
        op::statx("no such file").continue_on_error(),
        op::read(&file, vec![0; 10], 0).continue_on_error(),
        op::nop(),
        op::unlink("no such file"),
        op::nop(),
    ];
    queue.push_chain(numbered(chain)).unwrap();
    let expected = [Err(libc::ENOENT), Ok(3), Ok(0), Err(libc::ENOENT), CANCELED];
    assert_eq!(queue.rest(), results(&expected));
}

pub fn longer_than_the_submission_queue(world: &World) {
    let file = world.file(&[0; 8]);
    let mut queue = world.build(&world.options().entries(4));
    let chain = (0..100u64).flat_map(|step| {
        [op::write(&file, step.to_le_bytes().to_vec(), 0), op::read(&file, vec![0xff; 8], 0)]
    });
    queue.push_chain(numbered(chain)).unwrap();
    for (number, done) in queue.completions() {
        assert_eq!(done.result, Ok(8));
        if number % 2 == 1 {
            assert_eq!(bytes(done), (number / 2).to_le_bytes());
        }
    }
    // Several of them at once, and what breaks is broken to its end.
    for first in [0, 1000] {
        let mut chain = numbered((0..50).map(|_| op::nop()));
        chain[25] = op::rmdir("no such directory").user_data(25);
        queue
            .push_chain(
                chain
                    .into_iter()
                    .zip(first..)
                    .map(|(operation, number)| operation.user_data(number)),
            )
            .unwrap();
    }
    let found = queue.rest();
    for first in [0, 1000] {
        assert!((first..first + 25).all(|number| found[&number] == Ok(0)));
        assert_eq!(found[&(first + 25)], Err(libc::ENOENT));
        assert!((first + 26..first + 50).all(|number| found[&number] == CANCELED));
    }
}

pub fn cancelled_in_the_middle(world: &World) {
    let mut queue = world.queue();
    let (reader, writer) = pipe();
    // The head waits; the rest has not begun.
    for submit in [false, true] {
        let chain = [op::poll(&reader, Readiness::READABLE), op::nop(), op::nop()];
        let id = queue.push_chain(numbered(chain)).unwrap();
        if submit {
            queue.submit().unwrap();
        }
        assert!(queue.cancel(id));
        assert_eq!(queue.rest(), results(&[CANCELED, CANCELED, CANCELED]));
    }
    // One in the middle waits.
    let chain = [op::nop(), op::read(&reader, vec![0; 4], Position::Current), op::nop(), op::nop()];
    queue.push_chain(numbered(chain)).unwrap();
    let first = queue.reap(1).unwrap().next().unwrap();
    assert_eq!((first.user_data, first.result), (0, Ok(0)));
    assert_eq!(queue.reap_until(1, Instant::now() + 5 * MS).unwrap().count(), 0);
    assert_eq!(queue.cancel_all(), 3);
    assert_eq!(queue.rest(), BTreeMap::from([(1, CANCELED), (2, CANCELED), (3, CANCELED)]));
    put(&writer, b"kept");
    assert_eq!(queue.result(op::read(&reader, vec![0; 4], Position::Current)), Ok(4));
}

pub fn beside_other_operations(world: &World) {
    let files = world.files("beside", &pattern(0, 1 << 20));
    let mut queue = world.build(&world.options().entries(8));
    let (reader, writer) = pipe();
    let mut number = 0;
    let mut next = |operation: Operation| {
        number += 1;
        operation.user_data(number)
    };
    // Long direct reads, chains, lone operations and polls, all in flight together.
    for round in 0..10u64 {
        for file in &files {
            queue.push(next(op::read(file, crate::world::room(file, 1 << 20), 0).exact())).unwrap();
            let block = || crate::world::room(file, 4096);
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
    put(&writer, b"x");
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
                    first ^ crate::world::byte(0) ^ crate::world::byte(4095)
                );
            }
            Err(_) => found[3] += 1,
            other => panic!("{other:?}"),
        }
    }
    let count = files.len() * 10;
    assert_eq!(found, [2 * count + 10, 10, 3 * count, 20]);
}

pub fn barriers(world: &World) {
    for file in world.files("barriers", &pattern(0, 4096)) {
        let mut queue = world.queue();
        let block = |byte: u8| {
            let mut buffer = crate::world::room(&file, 4096);
            buffer.fill(byte);
            buffer
        };
        for round in 0..20u8 {
            queue.push(op::write(&file, block(2 * round), 0).user_data(0)).unwrap();
            queue.push(op::read(&file, block(0xff), 0).drain().user_data(1)).unwrap();
            queue.push(op::write(&file, block(2 * round + 1), 0).user_data(2)).unwrap();
            queue.push(op::nop().drain().user_data(3)).unwrap();
            queue.push(op::read(&file, block(0xff), 0).user_data(4)).unwrap();
            let done = queue.completions();
            assert_eq!(done.len(), 5);
            for (number, done) in done {
                match number {
                    1 => assert!(bytes(done).iter().all(|byte| *byte == 2 * round)),
                    4 => assert!(bytes(done).iter().all(|byte| *byte == 2 * round + 1)),
                    3 => assert_eq!(done.result, Ok(0)),
                    _ => assert_eq!(done.result, Ok(4096)),
                }
            }
        }
        // A barrier that fails is a barrier, and so is one that is cancelled.
        queue.push(op::write(&file, block(1), 0).user_data(0)).unwrap();
        queue.push(op::statx("no such file").drain().user_data(1)).unwrap();
        let id = queue.push(op::nop().drain().user_data(2)).unwrap();
        queue.push(op::read(&file, block(0xff), 0).user_data(3)).unwrap();
        assert!(queue.cancel(id));
        let mut done = queue.completions();
        assert_eq!(done.remove(&1).unwrap().result.unwrap_err().errno(), libc::ENOENT);
        assert!(done.remove(&2).unwrap().result.unwrap_err().is_cancelled());
        assert!(bytes(done.remove(&3).unwrap()).iter().all(|byte| *byte == 1));
    }
}

/// What was pushed between two barriers completes between them.
pub fn barriers_under_load(world: &World) {
    let files = world.files("load", &pattern(0, 65536));
    let mut queue = world.build(&world.options().entries(16));
    let (reader, writer) = pipe();
    put(&writer, b"x");
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
        let room = || crate::world::room(file, 4096);
        let mut operation = match below(8) {
            0 => op::fsync(file),
            1 => op::nop(),
            2 => op::poll(&reader, Readiness::READABLE),
            3 => op::timeout(MS / 10),
            4 => op::write(file, crate::world::filled(file, at, 4096), at),
            _ => op::read(file, room(), at),
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

pub fn a_chain_behind_a_barrier(world: &World) {
    let file = world.file(b"0");
    let mut queue = world.queue();
    let write = |text: &str| op::write(&file, text.as_bytes().to_vec(), 0);
    let read = || op::read(&file, vec![0; 1], 0);
    queue.push(write("1").user_data(0)).unwrap();
    queue
        .push_chain([
            read().user_data(1),
            write("2").drain().user_data(2),
            op::fdatasync(&file).user_data(3),
        ])
        .unwrap();
    queue.push(read().drain().user_data(4)).unwrap();
    queue.push(write("3").user_data(5)).unwrap();
    let mut done = queue.completions();
    assert_eq!(bytes(done.remove(&1).unwrap()), b"1");
    assert_eq!(bytes(done.remove(&4).unwrap()), b"2");
    assert_eq!(done.remove(&3).unwrap().result, Ok(0));
    assert_eq!(bytes(queue.one(read())), b"3");
}

pub fn time_limits(world: &World) {
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
    // Limits that are not met: what they limit is over before, and nothing comes after it.
    let file = world.file(b"text");
    put(&writer, b"x");
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
    let read = op::read(&direct, crate::world::room(&direct, 4096), 0);
    assert_eq!(bytes(queue.one(read.timeout(minute))), pattern(0, 4096));
    assert_eq!(queue.reap_until(1, Instant::now() + 30 * MS).unwrap().count(), 0);
    // What was read before the time was up has been read, unless all of it was asked for.
    put(&writer, b"abc");
    assert_eq!(
        queue.result(op::read(&reader, vec![0; 6], Position::Current).exact().timeout(limit)),
        late
    );
    // A cancel is a cancel, though there be a limit.
    let id = queue.push(op::poll(&reader, Readiness::READABLE).timeout(minute)).unwrap();
    queue.submit().unwrap();
    assert!(queue.cancel(id));
    assert_eq!(queue.rest()[&0], CANCELED);
    assert_eq!(queue.stats().late, 0);
}

/// Many limits together, some met and some not, and within chains.
pub fn time_limits_of_queued_operations(world: &World) {
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
    // A deadline that is over looks all the same, and so does one that has something there already.
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
            put(&writer, b"x");
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
