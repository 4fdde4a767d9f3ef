//! Back-pressure: a push to a full queue returns the operation, waiting always ends, and more
//! operations than the kernel queues hold are neither lost nor doubled.

use super::world::{MS, World, buffer_for, bytes, pattern, pipe, write_all};
use ringway_core::op::{self, Position, Raw, Readiness};
use ringway_core::{File, Operation, Reason};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

pub fn a_refused_push_returns_the_operation(world: &World) {
    let (reader, writer) = pipe();
    let mut queue = world.build(&world.options().in_flight(3));
    for number in 0..3 {
        _ = queue.push(op::read(&reader, vec![0; 1], Position::Current).user_data(number)).unwrap()
    }
    assert_eq!((queue.free_slots(), queue.in_flight()), (0, 3));
    let error = queue
        .push(op::write(&writer, b"text".to_vec(), Position::Current).user_data(77))
        .unwrap_err();
    assert!(error.is_full());
    assert_eq!((error.reason(), error.reason().errno()), (Reason::Full, libc::EAGAIN));
    let operation = error.into_operations().pop().unwrap();
    queue.check();
    write_all(&writer, b"abc");
    assert!(queue.rest().into_values().all(|result| result == Ok(1)));
    // The returned operation can be pushed again unchanged.
    queue.push(operation).unwrap();
    assert_eq!(queue.rest()[&77], Ok(4));
    assert_eq!(bytes(queue.one(op::read(&reader, vec![0; 9], Position::Current))), b"text");
    // A completion that was not delivered still occupies its slot.
    for _ in 0..3 {
        _ = queue.push(op::nop()).unwrap();
    }
    while queue.submit().unwrap() < 3 {
        std::thread::sleep(MS);
    }
    assert!(queue.push(op::nop()).unwrap_err().is_full());
    assert_eq!(queue.reap(0).unwrap().take(1).count(), 1);
    queue.push(op::nop()).unwrap();
    assert_eq!(queue.reap(3).unwrap().count(), 3);
}

pub fn chains_are_pushed_whole_or_not_at_all(world: &World) {
    let mut queue = world.build(&world.options().in_flight(4));
    queue.push(op::nop().user_data(100)).unwrap();
    queue.push(op::nop().user_data(101)).unwrap();
    let error = queue.push_chain((0..3).map(|number| op::nop().user_data(number))).unwrap_err();
    assert!(error.is_full());
    let operations = error.into_operations();
    assert_eq!((operations.len(), queue.stats().counts.pushed), (3, 2));
    assert_eq!(queue.rest().len(), 2);
    queue.push_chain(operations).unwrap();
    assert_eq!(queue.rest().into_keys().collect::<Vec<_>>(), [0, 1, 2]);
    // A chain longer than the queue can never be pushed.
    let error = queue.push_chain((0..5).map(|_| op::nop())).unwrap_err();
    assert!(matches!(error.reason(), Reason::Invalid(_)));
    assert_eq!(queue.in_flight(), 0);
}

pub fn after_close(world: &World) {
    let mut queue = world.queue();
    let (reader, _writer) = pipe();
    queue.push(op::poll(&reader, Readiness::READABLE).user_data(1)).unwrap();
    queue.push(op::nop().user_data(2)).unwrap();
    queue.submit().unwrap();
    assert_eq!(queue.close(Duration::from_secs(10)).unwrap(), 0);
    let error = queue.push(op::nop()).unwrap_err();
    assert_eq!((error.reason(), error.reason().errno()), (Reason::Closed, libc::ESHUTDOWN));
    assert_eq!(error.into_operations().len(), 1);
    assert_eq!(queue.push_chain([op::nop(), op::nop()]).unwrap_err().into_operations().len(), 2);
    let rest = queue.rest();
    assert_eq!((rest.len(), rest[&1]), (2, Err(libc::ECANCELED)));
    assert_eq!(queue.close(Duration::ZERO).unwrap(), 0);
    assert_eq!(queue.reap(1).unwrap().count(), 0);
}

pub fn nothing_in_flight(world: &World) {
    let mut queue = world.queue();
    let begin = Instant::now();
    assert_eq!(queue.reap(0).unwrap().count(), 0);
    assert_eq!(queue.reap(1).unwrap().count(), 0);
    assert_eq!(queue.reap(usize::MAX).unwrap().count(), 0);
    assert_eq!(queue.submit().unwrap(), 0);
    assert_eq!(queue.result(op::nop()), Ok(0));
    assert_eq!(queue.reap(1).unwrap().count(), 0);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

pub fn reap_of_more_than_are_in_flight(world: &World) {
    let mut queue = world.queue();
    for _ in 0..5 {
        _ = queue.push(op::nop()).unwrap();
    }
    assert_eq!(queue.reap(100).unwrap().count(), 5);
    for _ in 0..5 {
        _ = queue.push(op::nop()).unwrap();
    }
    let mut done = queue.reap(usize::MAX).unwrap();
    assert_eq!(done.len(), 5);
    // Completions that the iterator did not yield stay.
    assert!(done.next().is_some() && done.next().is_some());
    drop(done);
    assert_eq!(queue.in_flight(), 3);
    assert_eq!(queue.reap(0).unwrap().count(), 3);
}

/// Operations that the kernel refuses at the start, in the middle and at the end of a batch.
pub fn invalid_operations_in_a_batch(world: &World) {
    for file in world.files("batch", &pattern(0, 64 * 4096)) {
        for bad in [&[0][..], &[5], &[31], &[0, 1, 2], &[3, 4, 29, 30, 31], &[0, 31]] {
            let mut queue = world.build(&world.options().entries(32));
            let mut buffers: Vec<_> = (0..32).map(|_| buffer_for(&file, 4096)).collect();
            for (number, buffer) in (0u64..).zip(&mut buffers) {
                let good = op::Read {
                    fd: file.as_raw_fd(),
                    buf: buffer.as_mut_ptr(),
                    len: 4096,
                    offset: number * 4096,
                };
                let raw = match bad.contains(&number) {
                    false => Raw::from(good),
                    true if number % 3 == 0 => op::Read { fd: 1_000_000, ..good }.into(),
                    true if number % 3 == 1 => op::Read { offset: i64::MAX as u64, ..good }.into(),
                    true => op::Write { fd: -1, buf: good.buf, len: 4096, offset: 0 }.into(),
                };
                // SAFETY: the buffers live until all have completed.
                let operation = unsafe { Operation::from_raw(raw, None, None) };
                queue.push(operation.user_data(number)).unwrap();
            }
            let done = queue.rest();
            assert_eq!(done.len(), 32);
            for (number, result) in done {
                match result {
                    Ok(4096) => assert!(!bad.contains(&number)),
                    Err(libc::EBADF | libc::EINVAL) => assert!(bad.contains(&number)),
                    other => panic!("{number}: {other:?}"),
                }
            }
            for (number, buffer) in
                (0u64..).zip(&buffers).filter(|(number, _)| !bad.contains(number))
            {
                assert_eq!(**buffer, pattern(number * 4096, 4096));
            }
        }
    }
}

/// Far more completions than the completion queue holds, while nothing reaps.
pub fn completion_queue_overflow(world: &World) {
    let options = world.options().entries(8).completion_entries(8).in_flight(2000);
    let mut queue = world.build(&options);
    let files = world.files("overflow", &pattern(0, 64 * 4096));
    let (reader, writer) = pipe();
    let push = |queue: &mut super::world::Checked, number: u64| {
        let file = &files[number as usize % files.len()];
        let operation = match number % 4 {
            0 => op::nop(),
            1 => op::poll(&reader, Readiness::READABLE),
            _ => op::read(file, buffer_for(file, 4096), number % 64 * 4096),
        };
        queue.push(operation.user_data(number)).unwrap();
        if number.is_multiple_of(50) {
            queue.submit().unwrap();
        }
    };
    for number in 0..1000 {
        push(&mut queue, number);
    }
    queue.submit().unwrap();
    write_all(&writer, b"x");
    std::thread::sleep(5 * MS);
    // Some are delivered, and as many are pushed again.
    let mut seen: Vec<u64> =
        queue.reap(100).unwrap().take(100).map(|done| done.user_data).collect();
    assert_eq!(seen.len(), 100);
    queue.check();
    for number in 1000..1100 {
        push(&mut queue, number);
    }
    for (number, done) in queue.completions() {
        seen.push(number);
        match number % 4 {
            0 => assert_eq!(done.result, Ok(0)),
            1 => assert_eq!(done.result, Ok(1)),
            _ => assert_eq!(bytes(done), pattern(number % 64 * 4096, 4096)),
        }
    }
    seen.sort();
    assert!(seen.into_iter().eq(0..1100));
}

pub fn in_flight_thousands(world: &World) {
    let mut queue = world.build(&world.options().in_flight(20_000));
    let (reader, writer) = pipe();
    let files: Vec<File> = world.files("thousands", &pattern(0, 4096));
    for number in 0..20_000 {
        let file = &files[number as usize % files.len()];
        let operation = match number % 10 {
            0 => op::poll(&reader, Readiness::READABLE),
            1 => op::timeout(MS),
            // (A device may have blocks of 4096 bytes.)
            _ => op::read(file, buffer_for(file, if file.is_direct() { 4096 } else { 512 }), 0),
        };
        queue.push(operation.user_data(number)).unwrap();
    }
    assert!(queue.push(op::nop()).unwrap_err().is_full());
    queue.submit().unwrap();
    write_all(&writer, b"x");
    let done = queue.completions();
    assert_eq!(done.len(), 20_000);
    assert!(done.values().all(|done| done.result.is_ok()));
}
