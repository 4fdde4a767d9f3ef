//! Cancelling and abandoning operations in each state: exactly one result, and no descriptor left
//! open. Cases that data can express are in `conformance/queue.case`.

use super::waiting::by_descriptor;
use super::world::{MS, World, buffer_for, descriptors, pattern, pipe, wait_for, write_all};
use ringway_core::op::{self, Position, Readiness};
use ringway_core::{BackendKind, FaultPlan, FaultStep, Late, OpenOptions, Reason};
use std::time::{Duration, Instant};

pub fn completed_operations(world: &World) {
    let mut queue = world.queue();
    let id = queue.push(op::nop()).unwrap();
    while queue.submit().unwrap() == 0 {
        std::thread::sleep(MS);
    }
    assert!(!queue.cancel(id));
    assert_eq!(queue.cancel_all(), 0);
    assert_eq!(queue.rest()[&0], Ok(0));
    assert!(!queue.cancel(id));
    // Another operation has the slot now, under another id.
    let (reader, writer) = pipe();
    let other = queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
    assert_ne!(id, other);
    assert!(!queue.cancel(id) && !queue.abandon(id));
    write_all(&writer, b"x");
    assert_eq!(queue.rest()[&0], Ok(1));
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
        // Some are abandoned before they are submitted, some after, and some when they have
        // completed.
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
        assert_eq!(queue.reap(0).unwrap().count(), 0, "an abandoned operation has no completion");
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
    // An open that has completed and was not reaped.
    let id = queue.push(op::open(&path, &options)).unwrap();
    while queue.submit().unwrap() == 0 {
        std::thread::sleep(MS);
    }
    assert!(queue.abandon(id));
    assert_eq!(queue.in_flight(), 0);
    assert_eq!(queue.reap(1).unwrap().count(), 0);
    assert!(wait_for(Duration::from_secs(5), || descriptors() <= idle));
}

pub fn slots_are_free_at_the_completion(world: &World) {
    // The slot of an abandoned operation is free when the kernel or the thread has completed it.
    let mut queue = world.build(&world.options().in_flight(2));
    let (reader, _writer) = pipe();
    let ids = [0, 1].map(|_| queue.push(op::poll(&reader, Readiness::READABLE)).unwrap());
    queue.submit().unwrap();
    assert_eq!(queue.free_slots(), 0);
    assert!(queue.abandon(ids[0]));
    assert_eq!(queue.free_slots(), 0, "the kernel has not completed it");
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
    // Reap waits for operations that are not abandoned only.
    let begin = Instant::now();
    assert_eq!(queue.reap(1).unwrap().count(), 0);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

/// The ring does not support this operation. If it is cancelled before a thread has begun it, it
/// does not begin.
pub fn before_the_fallback_to_threads(world: &World) {
    if world.kind != BackendKind::Uring {
        return println!("left out: other backends are not given operations they do not support");
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

/// Two reads wait for one byte. Before Linux 6.5 workers of the kernel read for both, and one of
/// them blocks then; before 5.18 the kernel does not find a read at the moment when a worker takes
/// it.
pub fn while_a_worker_takes_the_operation(world: &World) {
    let mut queue = world.queue();
    for round in 0..500 {
        let (reader, writer) = pipe();
        for number in 0..2 {
            let read = op::read(&reader, vec![0; 1], Position::Current);
            queue.push(read.user_data(number)).unwrap();
        }
        queue.submit().unwrap();
        write_all(&writer, b"x");
        let moment = Instant::now() + Duration::from_micros(round % 250 * 2);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        queue.cancel_all();
        let until = Instant::now() + Duration::from_secs(10);
        let done: Vec<_> = queue.reap_until(2, until).unwrap().collect();
        assert_eq!(done.len(), 2, "round {round}: a read does not end");
        let gained: u64 = done.iter().filter_map(|done| done.result.as_ref().ok()).sum();
        assert!(gained <= 1, "{gained} bytes of 1");
    }
}

/// Cancels that find nothing at first, as they may before Linux 5.18.
pub fn that_miss_the_operation(world: &World) {
    // (Without faults of the operations themselves, which would move them to the threads.)
    let options = world.options().faults(FaultPlan::new(1).missed_cancels(700));
    let mut queue = world.build(&options);
    let (reader, _writer) = pipe();
    for by_poll in [false, true].repeat(20) {
        let reads = [(); 4].map(|()| op::read(&reader, vec![0; 1], Position::Current));
        let ids: Vec<_> = reads.into_iter().map(|read| queue.push(read).unwrap()).collect();
        queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
        queue.submit().unwrap();
        assert!(ids.iter().all(|id| queue.cancel(*id)));
        queue.cancel_all();
        let mut done = Vec::new();
        if by_poll {
            by_descriptor(&mut queue, |completion| done.push(completion));
        } else {
            let until = Instant::now() + Duration::from_secs(10);
            done.extend(queue.reap_until(5, until).unwrap());
        }
        assert_eq!(done.len(), 5, "a cancelled operation does not end");
        for done in done {
            assert_eq!(done.result.unwrap_err().errno(), libc::ECANCELED);
        }
    }
}

/// A cancel that found nothing is not repeated for what the device has: it would be, without end.
pub fn of_transfers_with_the_device(world: &World) {
    let options = world.options().faults(FaultPlan::new(1).missed_cancels(1000));
    let mut queue = world.build(&options);
    let file = world.direct(&pattern(0, 1 << 20));
    let ids: Vec<_> = (0..16)
        .map(|number| queue.push(op::read(&file, buffer_for(&file, 65536), number << 16)).unwrap())
        .collect();
    queue.submit().unwrap();
    for id in &ids {
        _ = queue.cancel(*id)
    }
    while queue.in_flight() > 0 {
        queue.reap(1).unwrap().for_each(drop);
    }
    let calls = queue.stats().system_calls;
    assert!(calls < 200, "{calls} system calls for 16 reads and their cancels");
}

/// With a driver whose operations no cancel finds, the cancel has no effect, and no call waits for
/// the cancels that are repeated.
pub fn that_never_find_the_operation(world: &World) {
    if world.kind == BackendKind::Kaio {
        return println!("left out: a read of a pipe is on the threads, which have no faults");
    }
    let options = world.options().faults(FaultPlan::new(1).missed_cancels(1000));
    let mut queue = world.build(&options);
    let (reader, writer) = pipe();
    for _ in 0..2 {
        let id = queue.push(op::read(&reader, vec![0; 1], Position::Current)).unwrap();
        queue.submit().unwrap();
        assert!(queue.cancel(id));
        assert_eq!(queue.reap(0).unwrap().count(), 0);
        write_all(&writer, b"x");
        assert_eq!(queue.reap(1).unwrap().next().unwrap().result, Ok(1));
    }
    const READS: usize = 200;
    for _ in 0..READS {
        queue.push(op::read(&reader, vec![0; 1], Position::Current)).unwrap();
    }
    queue.submit().unwrap();
    queue.cancel_all();
    let began = Instant::now();
    assert_eq!(queue.reap(0).unwrap().count(), 0);
    assert_eq!(queue.reap_until(1, Instant::now()).unwrap().count(), 0);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // They are repeated seldom.
    queue.reap_until(1, Instant::now() + Duration::from_millis(300)).unwrap().for_each(drop);
    let calls = queue.stats().system_calls;
    queue.reap_until(1, Instant::now() + Duration::from_millis(300)).unwrap().for_each(drop);
    let calls = queue.stats().system_calls - calls;
    assert!(calls < 20 * READS as u64, "{calls} system calls");
    write_all(&writer, &[0; READS]);
    let until = Instant::now() + Duration::from_secs(10);
    assert_eq!(queue.reap_until(READS, until).unwrap().count(), READS);
}
