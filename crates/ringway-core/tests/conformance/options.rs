//! Options: an available one works; a refused one is explained and ignored, and in strict mode it
//! is an error.

use super::world::{MS, World, buffer_for, bytes, pattern, pipe};
use ringway_core::op::{self, Position};
use ringway_core::refusal::Feature;
use ringway_core::{BackendKind, BuildError, File, Options, Queue, SqPoll};
use std::time::Duration;

const SQPOLL: SqPoll = SqPoll::new(Duration::from_millis(5));

/// More chains, in which an operation fails, and more time limits than a kernel thread takes at a
/// time, which polls the submission queues of several rings.
fn many_links(world: &World, queue: &mut super::world::Checked) {
    const CHAINS: u64 = 30;
    let path = world.dir("links").join("file");
    std::fs::write(&path, "text").unwrap();
    let file = File::open(&path).unwrap();
    for len in 2..8 {
        for chain in 0..CHAINS {
            let mut members: Vec<_> = (0..len).map(|_| op::nop()).collect();
            members[len as usize - 2] = op::write(&file, vec![1; 8], 0);
            let numbered = members.into_iter().zip(chain * len..);
            queue.push_chain(numbered.map(|(one, number)| one.user_data(number))).unwrap();
        }
        for (number, result) in queue.rest() {
            let expected = match len - number % len {
                1 => Err(libc::ECANCELED),
                2 => Err(libc::EBADF),
                _ => Ok(0),
            };
            assert_eq!(result, expected, "member {} of {len}", number % len);
        }
    }
    let (reader, _writer) = pipe();
    queue.push(op::nop().user_data(u64::MAX)).unwrap();
    for number in 0..CHAINS {
        let read = op::read(&reader, vec![0; 4], Position::Current);
        queue.push(read.timeout(20 * MS).user_data(number)).unwrap();
    }
    let mut results = queue.rest();
    assert_eq!(results.remove(&u64::MAX), Some(Ok(0)));
    assert!(results.into_values().all(|result| result == Err(libc::ETIMEDOUT)));
}

/// Direct and buffered reads, a chain and a poll, which work with any options.
fn works(world: &World, queue: &mut super::world::Checked) {
    for file in world.files("works", &pattern(0, 1 << 16)) {
        for number in 0..16 {
            queue
                .push(op::read(&file, buffer_for(&file, 4096), number * 4096).user_data(number))
                .unwrap();
        }
        for (number, done) in queue.completions() {
            assert_eq!(bytes(done), pattern(number * 4096, 4096));
        }
        queue
            .push_chain(
                [op::nop(), op::fsync(&file), op::poll(&file, op::Readiness::READABLE)]
                    .into_iter()
                    .zip(0..)
                    .map(|(one, number)| one.user_data(number)),
            )
            .unwrap();
        assert_eq!(queue.rest().into_values().collect::<Vec<_>>(), [Ok(0), Ok(0), Ok(1)]);
        assert_eq!(
            queue.result(op::timeout(Duration::from_secs(60)).timeout(5 * MS)),
            Err(libc::ETIMEDOUT)
        );
        assert_eq!(queue.result(op::fadvise(&file, 0, 1 << 33, op::Advice::Normal)), Ok(0));
    }
}

fn errno_of(queue: &Queue, feature: Feature) -> Option<i32> {
    let explanation = queue.explain();
    let refusal = explanation.refusals.iter().find(|refusal| refusal.feature == feature)?;
    assert!(!refusal.meaning.is_empty(), "{refusal}");
    assert!(!explanation.available.contains(&feature), "{explanation}");
    Some(refusal.errno)
}

/// Every option that needs a ring.
fn ring_options(world: &World) -> Vec<(Feature, Options)> {
    let file = world.direct(&pattern(0, 8192));
    let none = Options::new().backend(BackendKind::Threads).build().unwrap();
    let mut options = vec![
        (Feature::SqPoll, world.options().sqpoll(SQPOLL)),
        (Feature::AttachWq, world.options().attach(&none)),
        (Feature::IoPoll, world.options().iopoll(&file)),
        (Feature::Passthrough, world.options().passthrough(&file)),
    ];
    if world.kind == BackendKind::Uring {
        options.push((Feature::IoWqWorkers, world.options().io_wq_workers(2, 2)));
    }
    options
}

pub fn refused_options_are_explained(world: &World) {
    for (feature, options) in ring_options(world) {
        let mut queue = world.build(&options);
        works(world, &mut queue);
        match (errno_of(&queue, feature), world.kind) {
            (None, BackendKind::Uring) => {
                assert!(queue.explain().available.contains(&feature), "{feature}")
            }
            (None, _) => panic!("{feature} without a ring"),
            (Some(errno), BackendKind::Uring) => assert_ne!(errno, 0, "{feature}"),
            (Some(errno), _) => assert_eq!(errno, libc::EOPNOTSUPP, "{feature}"),
        }
        if feature == Feature::AttachWq {
            assert!(
                errno_of(&queue, feature).is_some(),
                "a queue on threads has no ring to attach to"
            );
        }
    }
    // A backend without workers keeps to any limit on their number.
    let queue = world.options().io_wq_workers(2, 2).strict(true).build();
    assert!(queue.is_ok() || world.kind == BackendKind::Uring, "{queue:?}");
    // Options that are valid on every backend. Where any thread may submit, `single_issuer` has no
    // effect.
    works(world, &mut world.build(&world.options().single_issuer(true)));
    works(world, &mut world.build(&world.options().completion_entries(4096).entries(3)));
    works(world, &mut world.build(&world.options().eventfd(true).single_issuer(true)));
    works(world, &mut world.build(&world.options().threads(1).sync_threads(1)));
}

pub fn strict(world: &World) {
    for (feature, options) in ring_options(world) {
        let refused = errno_of(&world.build(&options), feature);
        match (options.strict(true).build(), refused) {
            (Ok(queue), None) => assert_eq!(errno_of(&queue, feature), None),
            (Err(BuildError::Refused(refusal)), Some(_)) => assert!(!refusal.meaning.is_empty()),
            (Err(BuildError::Refused(refusal)), None) if world.little_memory => {
                assert_eq!(refusal.errno, libc::ENOMEM)
            }
            (other, expected) => panic!("{feature}: {other:?}, {expected:?}"),
        }
    }
}

pub fn out_of_range(world: &World) {
    let options = || world.options();
    for options in [
        options().entries(0),
        options().entries(32_769),
        options().in_flight(0),
        options().in_flight(1 << 24),
        options().threads(0),
        options().sync_threads(0),
    ] {
        assert!(matches!(options.build(), Err(BuildError::Invalid(_))), "{options:?}");
    }
}

pub fn sqpoll(world: &World) {
    if world.kind != BackendKind::Uring {
        return println!("left out: `refused_options_are_explained` tests the refusal");
    }
    for sqpoll in [SQPOLL, SQPOLL.cpu(Some(0))] {
        let mut queue = world.build(&world.options().sqpoll(sqpoll));
        assert_eq!(errno_of(&queue, Feature::SqPoll), None);
        works(world, &mut queue);
        // A chain stays a chain, however much of it the kernel thread sees at a time.
        let file = world.file(b"0");
        for round in 0..200u8 {
            let write = op::write(&file, vec![round], 0).user_data(0);
            let chain = [
                write,
                op::read(&file, vec![0xff], 0).user_data(1),
                op::read(&file, vec![0; 2], 0).user_data(2),
                op::write(&file, vec![0xee], 0).user_data(3),
            ];
            queue.push_chain(chain).unwrap();
            let mut done = queue.completions();
            assert_eq!(bytes(done.remove(&1).unwrap()), [round]);
            assert!(done.remove(&3).unwrap().result.unwrap_err().is_cancelled());
        }
        // The kernel thread is woken from its sleep.
        std::thread::sleep(30 * MS);
        works(world, &mut queue);
        let mut queue = world.build(&world.options().sqpoll(sqpoll).entries(2).in_flight(500));
        for number in 0..500 {
            queue.push(op::nop().user_data(number)).unwrap();
        }
        assert_eq!(queue.rest().len(), 500);
        works(world, &mut queue);
    }
    // A processor that does not exist, and two options that exclude each other.
    let queue = world.build(&world.options().sqpoll(SQPOLL.cpu(Some(100_000))));
    assert_eq!(errno_of(&queue, Feature::SqPoll), Some(libc::EINVAL));
    let mut queue = world.build(&world.options().sqpoll(SQPOLL).single_issuer(true));
    assert_eq!(errno_of(&queue, Feature::DeferTaskrun), Some(libc::EINVAL));
    works(world, &mut queue);
}

pub fn sqpoll_shared(world: &World) {
    if world.kind != BackendKind::Uring {
        return println!("left out: `refused_options_are_explained` tests the refusal");
    }
    let mut first = world.build(&world.options().sqpoll(SQPOLL));
    let mut second = world.build(&world.options().sqpoll(SQPOLL).attach(&first));
    assert!(second.explain().available.contains(&Feature::AttachWq), "{}", second.explain());
    for _ in 0..3 {
        works(world, &mut first);
        works(world, &mut second);
    }
    many_links(world, &mut first);
    many_links(world, &mut second);
    drop(first);
    works(world, &mut second);
    many_links(world, &mut second);
}
