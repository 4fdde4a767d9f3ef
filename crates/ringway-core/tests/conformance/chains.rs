//! Chains, barriers and timeouts, where files or clocks show the order. Cases that data can express
//! are in `conformance/chains.case`.

use super::world::{MS, World, pipe, write_all};
use ringway_core::op::{self, Readiness};
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
    // something is ready. (On kaio a thread makes it, which takes its time on a busy machine.)
    assert_eq!(queue.reap_until(1, begin).unwrap().count(), 0);
    queue.push(op::nop().user_data(2)).unwrap();
    let (begin, limit) = (Instant::now(), 400 * MS);
    let done: Vec<u64> =
        queue.reap_until(2, begin + limit).unwrap().map(|done| done.user_data).collect();
    assert_eq!(done, [2]);
    assert!(begin.elapsed() >= limit);
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
