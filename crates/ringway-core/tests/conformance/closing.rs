//! Closing and dropping a queue: both end in bounded time and leave no descriptor, thread or memory
//! behind.

use super::world::{
    Checked, MS, World, buffer_for, descriptors, own_threads, pattern, pipe, readable,
    thread_names, wait_for, write_all,
};
use ringway_core::op::{self, Position, Readiness};
use ringway_core::{BackendKind, FaultPlan, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

/// A close takes as long only if it waits for an operation that does not end: a busy machine needs
/// a part of it.
const LONG: Duration = Duration::from_secs(50);

pub fn with_operations_in_flight(world: &World) {
    let files = world.files("closing", &pattern(0, 1 << 20));
    let path = world.dir("closing").join("file");
    std::fs::write(&path, "").unwrap();
    let idle = descriptors();
    let (reader, writer) = pipe();
    for submit in [false, true] {
        let mut queue = world.build(&world.options().close_wait(LONG));
        for _ in 0..5 {
            queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
            queue.push(op::read(&reader, vec![0; 10], Position::Current)).unwrap();
            queue.push(op::timeout(Duration::from_secs(1000))).unwrap();
            queue.push(op::open(&path, OpenOptions::new().read(true))).unwrap();
            queue
                .push_chain([
                    op::poll(&reader, Readiness::READABLE),
                    op::close(File::open(&path).unwrap()),
                ])
                .unwrap();
            for file in &files {
                queue.push(op::read(file, buffer_for(file, 1 << 20), 0)).unwrap();
            }
        }
        queue.push(op::nop().drain()).unwrap();
        if submit {
            queue.submit().unwrap();
        }
        let begin = Instant::now();
        drop(queue);
        assert!(begin.elapsed() < LONG / 2, "{:?}", begin.elapsed());
    }
    drop((reader, writer));
    let gone = wait_for(Duration::from_secs(10), || descriptors() <= idle);
    assert!(gone, "{idle} before, {} now", descriptors());
}

pub fn close_returns_how_many_are_left(world: &World) {
    let mut queue = world.queue();
    let (reader, writer) = pipe();
    for number in 0..4 {
        queue.push(op::poll(&reader, Readiness::READABLE).user_data(number)).unwrap();
    }
    queue.push(op::nop().user_data(9)).unwrap();
    queue.submit().unwrap();
    write_all(&writer, b"x");
    let begin = Instant::now();
    assert_eq!(queue.close(LONG).unwrap(), 0);
    assert!(begin.elapsed() < LONG / 2);
    // Each operation has its completion, whether it was cancelled or ready.
    let rest = queue.rest();
    assert_eq!(rest.len(), 5);
    assert!([Ok(0), Err(libc::ECANCELED)].contains(&rest[&9]), "{rest:?}");
    assert!(
        (0..4).all(|number| [Ok(1), Err(libc::ECANCELED)].contains(&rest[&number])),
        "{rest:?}"
    );
}

/// Also a close that does not wait has cancelled what is in flight: its owner may only poll the
/// descriptor from then on.
pub fn without_waiting(world: &World) {
    let mut queue = world.queue();
    let (reader, _writer) = pipe();
    for _ in 0..4 {
        queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
    }
    let descriptor = queue.poll_fd().unwrap().as_raw_fd();
    queue.submit().unwrap();
    queue.close(Duration::ZERO).unwrap();
    let mut done = 0;
    while done < 4 {
        assert!(readable(descriptor, Duration::from_secs(10)), "{done} are cancelled");
        for completion in queue.reap(0).unwrap() {
            assert_eq!(completion.result.unwrap_err().errno(), libc::ECANCELED);
            done += 1;
        }
    }
}

/// The thread that made a single-issuer queue may have ended. The ring then accepts no submission
/// from any thread, and close still completes every operation.
pub fn by_a_thread_other_than_the_issuer(world: &World) {
    let (reader, writer) = pipe();
    let make = || {
        let mut queue = world.build(&world.options().single_issuer(true)).into_queue();
        for number in 0..2 {
            queue
                .push(op::read(&reader, vec![0; 10], Position::Current).user_data(number))
                .unwrap();
        }
        queue.push(op::poll(&reader, Readiness::READABLE).user_data(2)).unwrap();
        queue.push(op::nop().user_data(3)).unwrap();
        queue.submit().unwrap();
        queue.push(op::write(&writer, b"never".to_vec(), Position::Current).user_data(4)).unwrap();
        queue
    };
    let queue = std::thread::scope(|scope| scope.spawn(make).join().unwrap());
    let mut queue = Checked::new(queue);
    let begin = Instant::now();
    assert_eq!(queue.close(LONG).unwrap(), 0);
    assert!(begin.elapsed() < LONG / 2, "{:?}", begin.elapsed());
    let rest = queue.rest();
    assert_eq!(rest.len(), 5);
    assert!([Ok(0), Err(libc::ECANCELED)].contains(&rest[&3]), "{rest:?}");
    assert!([0, 1, 2, 4].iter().all(|number| rest[number] == Err(libc::ECANCELED)), "{rest:?}");
}

/// The kernel refuses to enter the ring. Close still completes what is in flight.
pub fn of_a_backend_that_fails(world: &World) {
    for enters in 0..3 {
        let (reader, writer) = pipe();
        let mut queue = world.build(&world.options().faults(FaultPlan::new(0).enters(enters)));
        for number in 0..4 {
            queue
                .push(op::read(&reader, vec![0; 10], Position::Current).user_data(number))
                .unwrap();
            let _ = queue.submit();
        }
        assert!(queue.reap(1).is_err());
        assert_eq!(queue.close(Duration::from_secs(60)).unwrap(), 0);
        let rest = queue.rest();
        assert_eq!(rest.len(), 4);
        assert!(rest.values().all(|result| *result == Err(libc::ECANCELED)), "{rest:?}");
        drop((queue, reader, writer));
    }
}

/// Opening a FIFO blocks in a thread and may outlast any close.
pub fn drop_waits_no_longer_than_close_wait(world: &World) {
    if world.kind == BackendKind::Uring {
        return println!("left out: io_uring opens a FIFO for reading without waiting");
    }
    let path = world.dir("fifo").join("fifo");
    super::hung::fifo(&path);
    let mut queue = world.build(&world.options().close_wait(50 * MS));
    queue.push(op::open(&path, OpenOptions::new().read(true)).user_data(1)).unwrap();
    queue.push(op::nop().user_data(2)).unwrap();
    assert_eq!(queue.reap(1).unwrap().map(|done| done.user_data).collect::<Vec<_>>(), [2]);
    std::thread::sleep(5 * MS);
    let begin = Instant::now();
    drop(queue);
    // (The default is 5 s.)
    assert!(begin.elapsed() < 4500 * MS, "{:?}", begin.elapsed());
    // Lets the blocked thread go, if there still is one.
    drop(std::fs::File::options().read(true).write(true).open(&path).unwrap());
}

pub fn a_thousand_queues(world: &World) {
    let files = world.files("thousand", &pattern(0, 8192));
    let (reader, _writer) = pipe();
    let (idle, alone) = (descriptors(), own_threads());
    // Destroying a Linux AIO context takes the kernel tens of milliseconds.
    let count = if world.kind == BackendKind::Kaio { 100 } else { 1000 };
    for number in 0..count {
        let mut queue =
            world.build(&world.options().entries(8).in_flight(32).eventfd(number % 2 == 0));
        let file = &files[number as usize % files.len()];
        if number % 3 == 0 {
            queue.poll_fd().unwrap();
        }
        queue.push(op::read(file, buffer_for(file, 4096), 4096)).unwrap();
        queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
        queue.push(op::fadvise(file, 0, 1 << 33, op::Advice::Normal)).unwrap();
        assert!(queue.reap(2).unwrap().all(|done| done.result.is_ok()));
    }
    let gone =
        wait_for(Duration::from_secs(15), || descriptors() <= idle && own_threads() <= alone);
    assert!(
        gone,
        "descriptors: {idle}, then {}; threads: {alone}, then {:?}",
        descriptors(),
        thread_names()
    );
}
