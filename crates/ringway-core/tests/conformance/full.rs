//! Back-pressure: a push to a full queue returns the operation, waiting always ends, and more
//! operations than the kernel queues hold are neither lost nor doubled.

use super::world::{MS, World, buffer_for, bytes, pattern, pipe, write_all};
use ringway_core::Reason;
use ringway_core::op::{self, Position, Readiness};
use std::time::Duration;

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
