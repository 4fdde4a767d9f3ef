//! Cancelling and abandoning, at every stage of an operation's life: one answer, and nothing left
//! behind.

use crate::world::{MS, World, descriptors, pipe, put, wait_for};
use ringway_core::op::{self, Position, Readiness};
use ringway_core::{BackendKind, FaultPlan, FaultStep, Late, OpenOptions, Reason};
use std::time::{Duration, Instant};

const CANCELED: Result<u64, i32> = Err(libc::ECANCELED);

pub fn before_submission(world: &World) {
    let file = world.file(b"before");
    let mut queue = world.queue();
    let write = queue.push(op::write(&file, b"after!".to_vec(), 0).user_data(1)).unwrap();
    queue.push(op::nop().user_data(2)).unwrap();
    assert!(queue.cancel(write));
    assert!(!queue.cancel(write), "it has its result");
    let mut done = queue.completions();
    assert_eq!(done.remove(&2).unwrap().result, Ok(0));
    let done = done.remove(&1).unwrap();
    assert!(done.result.as_ref().unwrap_err().is_cancelled());
    assert_eq!(done.into_buffer().unwrap().as_slice(), b"after!");
    assert_eq!(
        std::fs::read_to_string(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&file)
        ))
        .unwrap(),
        "before"
    );
    assert!(!queue.cancel(write), "it is over");
}

pub fn a_submitted_poll(world: &World) {
    let mut queue = world.queue();
    let (reader, writer) = pipe();
    for _ in 0..20 {
        let ids: Vec<_> = (0..5)
            .map(|number| {
                queue.push(op::poll(&reader, Readiness::READABLE).user_data(number)).unwrap()
            })
            .collect();
        assert_eq!(queue.submit().unwrap(), 0);
        assert!(queue.cancel(ids[2]));
        let done: Vec<_> =
            queue.reap(1).unwrap().map(|done| (done.user_data, done.result.is_err())).collect();
        assert_eq!(done, [(2, true)]);
        put(&writer, b"x");
        assert_eq!(queue.rest().into_values().filter(|result| *result == Ok(1)).count(), 4);
        assert_eq!(queue.result(op::read(&reader, vec![0; 1], Position::Current)), Ok(1));
    }
}

pub fn reads_of_pipes(world: &World) {
    let mut queue = world.queue();
    let (reader, writer) = pipe();
    for _ in 0..10 {
        let id =
            queue.push(op::read(&reader, vec![5; 100], Position::Current).user_data(1)).unwrap();
        queue
            .push(
                op::readv(&reader, op::Vectored::new([vec![0; 9]]), Position::Current).user_data(2),
            )
            .unwrap();
        queue.submit().unwrap();
        assert!(queue.cancel(id));
        let mut some: Vec<_> = queue.reap(1).unwrap().collect();
        let done = some.pop().unwrap();
        assert_eq!(
            (done.user_data, done.result.as_ref().unwrap_err().errno()),
            (1, libc::ECANCELED)
        );
        assert_eq!(done.into_buffer().unwrap().as_slice(), [5; 100]);
        put(&writer, b"still");
        assert_eq!(queue.rest()[&2], Ok(5));
    }
}

/// Behind a barrier, behind a chain's head, and in a queue that is fuller than the backend.
pub fn behind_others(world: &World) {
    let mut queue = world.build(&world.options().entries(4));
    let (reader, writer) = pipe();
    queue.push(op::poll(&reader, Readiness::READABLE).user_data(0)).unwrap();
    let barrier = queue.push(op::nop().drain().user_data(1)).unwrap();
    let behind = queue.push(op::nop().user_data(2)).unwrap();
    queue.push(op::nop().user_data(3)).unwrap();
    queue.submit().unwrap();
    assert!(queue.cancel(behind));
    assert_eq!(queue.reap(1).unwrap().map(|done| done.user_data).collect::<Vec<_>>(), [2]);
    assert!(queue.cancel(barrier));
    // With the barrier gone nothing holds the other one back.
    let mut rest: Vec<u64> = queue.reap(2).unwrap().map(|done| done.user_data).collect();
    rest.sort();
    assert_eq!(rest, [1, 3]);
    queue.check();
    put(&writer, b"x");
    assert_eq!(queue.rest()[&0], Ok(1));
    assert_eq!(queue.result(op::read(&reader, vec![0; 1], Position::Current)), Ok(1));
    let ids: Vec<_> = (0..100)
        .map(|number| queue.push(op::poll(&reader, Readiness::READABLE).user_data(number)).unwrap())
        .collect();
    queue.submit().unwrap();
    for id in ids.iter().skip(1).step_by(2) {
        assert!(queue.cancel(*id));
    }
    let done: Vec<_> =
        queue.reap(50).unwrap().map(|done| (done.user_data % 2, done.result.is_err())).collect();
    assert_eq!(done, [(1, true); 50]);
    put(&writer, b"x");
    assert_eq!(queue.rest().into_values().filter(|result| *result == Ok(1)).count(), 50);
}

pub fn when_done(world: &World) {
    let mut queue = world.queue();
    let id = queue.push(op::nop()).unwrap();
    while queue.submit().unwrap() == 0 {
        std::thread::sleep(MS);
    }
    assert!(!queue.cancel(id));
    assert_eq!(queue.cancel_all(), 0);
    assert_eq!(queue.rest()[&0], Ok(0));
    assert!(!queue.cancel(id));
    // The slot has another operation now; the old name does not fit it.
    let (reader, writer) = pipe();
    let other = queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
    assert_ne!(id, other);
    assert!(!queue.cancel(id) && !queue.abandon(id));
    put(&writer, b"x");
    assert_eq!(queue.rest()[&0], Ok(1));
}

pub fn everything(world: &World) {
    let mut queue = world.queue();
    let (reader, _writer) = pipe();
    let wait = || op::poll(&reader, Readiness::READABLE);
    for number in 0..10 {
        queue.push(wait().user_data(number)).unwrap();
        queue
            .push(op::read(&reader, vec![0; 8], Position::Current).user_data(100 + number))
            .unwrap();
        queue.push(op::timeout(Duration::from_secs(60)).user_data(200 + number)).unwrap();
        queue
            .push_chain([wait().user_data(300 + number), op::nop().user_data(400 + number)])
            .unwrap();
    }
    queue.submit().unwrap();
    queue.push(op::nop().drain().user_data(500)).unwrap();
    queue.push(op::nop().user_data(501)).unwrap();
    assert_eq!(queue.cancel_all(), 52);
    let rest = queue.rest();
    assert_eq!(rest.len(), 52);
    assert!(rest.values().all(|result| *result == CANCELED), "{rest:?}");
    assert_eq!(queue.result(op::nop()), Ok(0));
}

pub fn abandoned_opens_are_closed(world: &World) {
    let path = world.dir("abandon").join("file");
    std::fs::write(&path, "").unwrap();
    let options = OpenOptions::new().read(true).clone();
    let mut queue = world.queue();
    queue.one(op::open(&path, &options)).into_file().unwrap();
    let idle = descriptors();
    let mut ids = Vec::new();
    for round in 0..200 {
        ids.push(queue.push(op::open(&path, &options)).unwrap());
        // Some before they are submitted, some after, and some when they are done.
        if round % 3 == 0 {
            queue.submit().unwrap();
        }
        if round % 7 == 0 {
            for id in ids.drain(..) {
                assert!(queue.abandon(id));
                queue.check();
            }
        }
    }
    for id in ids.drain(..) {
        assert!(queue.abandon(id));
        assert!(!queue.abandon(id) || queue.stats().counts.in_flight > 0);
    }
    let emptied = wait_for(Duration::from_secs(10), || {
        assert_eq!(queue.reap(0).unwrap().count(), 0, "nobody waits for these");
        queue.check();
        queue.in_flight() == 0
    });
    assert!(emptied);
    assert_eq!(queue.stats().counts.orphaned, 200);
    assert!(
        wait_for(Duration::from_secs(5), || descriptors() <= idle),
        "{idle} before, {} now",
        descriptors()
    );
    // What is done and not handed out yet.
    let id = queue.push(op::open(&path, &options)).unwrap();
    while queue.submit().unwrap() == 0 {
        std::thread::sleep(MS);
    }
    assert!(queue.abandon(id));
    assert_eq!(queue.in_flight(), 0);
    assert_eq!(queue.reap(1).unwrap().count(), 0);
    assert!(wait_for(Duration::from_secs(5), || descriptors() <= idle));
}

pub fn capacity_comes_back_at_the_completion(world: &World) {
    // Behind a read that a thread has begun, or a poll that the kernel has: the place is free when
    // it has answered.
    let mut queue = world.build(&world.options().in_flight(2));
    let (reader, _writer) = pipe();
    let ids = [0, 1].map(|_| queue.push(op::poll(&reader, Readiness::READABLE)).unwrap());
    queue.submit().unwrap();
    assert_eq!(queue.free_slots(), 0);
    assert!(queue.abandon(ids[0]));
    assert_eq!(queue.free_slots(), 0, "the kernel still has it");
    assert_eq!(queue.push(op::nop()).unwrap_err().reason(), Reason::Full);
    queue.check();
    let begin = Instant::now();
    while queue.free_slots() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(10));
        assert_eq!(queue.reap_until(1, Instant::now() + MS).unwrap().count(), 0);
        queue.check();
    }
    assert_eq!(queue.stats().counts.orphaned, 1);
    queue.push(op::nop().user_data(9)).unwrap();
    assert_eq!(queue.reap(1).unwrap().map(|done| done.user_data).collect::<Vec<_>>(), [9]);
    assert!(queue.abandon(ids[1]));
    // Only what somebody waits for is waited for.
    let begin = Instant::now();
    assert_eq!(queue.reap(1).unwrap().count(), 0);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

/// A ring has said that it cannot carry it, and it is cancelled before it has begun on the threads:
/// it does not begin.
pub fn on_the_way_to_the_threads(world: &World) {
    if world.kind != BackendKind::Uring {
        return println!("left out: The others are asked before they are given anything");
    }
    let plan = FaultPlan::new(1).late(FaultStep::Job(0), Late::Forever);
    let mut queue = world.build(&world.options().faults(plan));
    let ran = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let run = ran.clone();
    let id = queue
        .push(op::blocking(move || run.store(true, std::sync::atomic::Ordering::SeqCst)))
        .unwrap();
    queue.submit().unwrap();
    assert!(queue.cancel(id));
    assert_eq!(queue.rest()[&0], Err(libc::ECANCELED));
    assert!(!ran.load(std::sync::atomic::Ordering::SeqCst));
}
