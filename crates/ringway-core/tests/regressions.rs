//! Regression tests for what random scripts (`ringway_torture`) found. A defect of one backend has
//! its test in that backend.

// The tests use pipes, which Windows cannot poll.
#![cfg(unix)]

use ringway_core::op::Opcode;
use ringway_core::{
    BackendKind, Completion, FaultPlan, FaultStep, File, OpenOptions, Options, Queue, op,
};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const BACKENDS: &[BackendKind] = if cfg!(ringway_linux) {
    &[BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads]
} else {
    &[BackendKind::Threads]
};
const SOON: Duration = Duration::from_secs(20);

/// Runs `test` with a queue on each available backend.
fn on_each(options: &Options, test: impl Fn(Queue)) {
    for &backend in BACKENDS {
        match options.clone().backend(backend).build() {
            Ok(queue) => test(queue),
            Err(error) => {
                // If `CI` is set, every backend must be available.
                assert!(std::env::var_os("CI").is_none(), "{error}");
                println!("skipped: {error}");
            }
        }
    }
}

fn reap(queue: &mut Queue, count: usize) -> Vec<Completion> {
    let done: Vec<Completion> = queue.reap_until(count, Instant::now() + SOON).unwrap().collect();
    assert_eq!(done.len(), count, "{:?}: {done:?}", queue.backend());
    done
}

fn numbers(done: &[Completion]) -> Vec<u64> {
    done.iter().map(|done| done.user_data).collect()
}

fn scratch(name: &str, direct: bool) -> File {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("found-{name}-{}", std::process::id()));
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let file = OpenOptions::new().read(true).write(true).direct(direct).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}

fn is_readable(fd: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, on this stack, for the length of the call.
    unsafe { libc::poll(&raw mut poll, 1, SOON.as_millis() as i32) == 1 }
}

/// Before kernel 5.18, registering the eventfd only now waited for the poll.
#[test]
fn the_descriptor_does_not_wait_for_a_poll() {
    on_each(&Options::new().eventfd(true), |mut queue| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        queue.push(op::poll(&File::from(OwnedFd::from(reader)), op::Readiness::READABLE)).unwrap();
        queue.submit().unwrap();
        let fd = queue.poll_fd().unwrap().as_raw_fd();
        writer.write_all(b"x").unwrap();
        assert!(is_readable(fd));
        assert_eq!(reap(&mut queue, 1)[0].result, Ok(libc::POLLIN as u64));
    });
}

/// The rest was completed in reverse order by nested calls, so a long chain overflowed the stack.
#[test]
fn a_broken_chain_completes_in_order() {
    on_each(&Options::new().in_flight(100_000), |mut queue| {
        let missing = op::unlink("/nowhere/at-all").user_data(0);
        queue
            .push_chain(
                std::iter::once(missing).chain((1..100_000).map(|n| op::nop().user_data(n))),
            )
            .unwrap();
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            done.extend(queue.reap_until(1, Instant::now() + SOON).unwrap());
        }
        assert!(numbers(&done).into_iter().eq(0..100_000));
        assert!(done[1..].iter().all(|done| done.result.is_err_and(|error| error.is_cancelled())));
    });
}

/// The push returned `Full` forever, so a program that reaped and pushed again never ended.
#[test]
fn a_chain_longer_than_the_queue_is_invalid() {
    on_each(&Options::new().in_flight(4), |mut queue| {
        queue.push(op::nop()).unwrap();
        for count in [5, 6, 100] {
            let error = queue.push_chain((0..count).map(|_| op::nop())).unwrap_err();
            assert_eq!(error.reason().errno(), libc::EINVAL, "{count}");
        }
        assert!(queue.push_chain((0..4).map(|_| op::nop())).unwrap_err().is_full());
        queue.push_chain((0..3).map(|_| op::nop())).unwrap();
        reap(&mut queue, 4);
        queue.push_chain((0..4).map(|_| op::nop())).unwrap();
        reap(&mut queue, 4);
    });
}

/// When the first of a chain was cancelled behind a barrier, members after one with
/// `continue_on_error` began at once.
#[test]
fn a_cancel_does_not_let_a_chain_past_a_barrier() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let reader = File::from(OwnedFd::from(reader));
    on_each(&Options::new(), |mut queue| {
        let endless = queue.push(op::poll(&reader, op::Readiness::READABLE).user_data(0)).unwrap();
        queue.push(op::nop().drain().user_data(1)).unwrap();
        let chain = [op::nop().continue_on_error(), op::nop().continue_on_error(), op::nop()];
        let first =
            queue.push_chain((2..).zip(chain).map(|(number, op)| op.user_data(number))).unwrap();
        queue.submit().unwrap();
        assert!(queue.cancel(first));
        let done = reap(&mut queue, 3);
        assert_eq!(numbers(&done), [2, 3, 4]);
        assert!(
            done.iter().all(|done| done.result.is_err_and(|error| error.is_cancelled())),
            "{done:?}"
        );
        assert!(queue.cancel(endless));
        assert_eq!(numbers(&reap(&mut queue, 2)), [0, 1]);
    });
}

/// The operations that waited for the earlier barrier began too soon.
#[test]
fn a_cancelled_barrier_leaves_the_one_before_it_in_force() {
    on_each(&Options::new(), |mut queue| {
        queue.push(op::timeout(Duration::from_millis(20)).drain().user_data(0)).unwrap();
        let second = queue.push(op::nop().drain().user_data(1)).unwrap();
        queue.push(op::nop().user_data(2)).unwrap();
        queue.submit().unwrap();
        assert!(queue.cancel(second));
        assert_eq!(numbers(&reap(&mut queue, 3)), [1, 0, 2]);
    });
}

/// When the timeout expired before the close began, the descriptor was leaked.
#[test]
fn a_close_whose_timeout_expired_closes() {
    on_each(&Options::new().threads(1), |mut queue| {
        for _ in 0..50 {
            let (reader, mut writer) = std::io::pipe().unwrap();
            queue
                .push(op::close(File::from(OwnedFd::from(reader))).timeout(Duration::from_nanos(1)))
                .unwrap();
            reap(&mut queue, 1);
            // Its only reader is closed, so a write fails.
            let error = std::io::Write::write(&mut writer, b"x").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        }
    });
}

/// The kernel does not find a linked request that has not begun. It began after its cancel, and
/// never completed.
#[test]
fn an_endless_read_in_a_chain_can_be_cancelled() {
    let file = scratch("chain", true);
    let (reader, _writer) = std::io::pipe().unwrap();
    let reader = File::from(OwnedFd::from(reader));
    on_each(&Options::new(), |mut queue| {
        for _ in 0..50 {
            let first = op::read(&file, ringway_core::AlignedBuffer::new(1 << 20, 4096), 0);
            let endless = op::read(&reader, vec![0; 8], op::Position::Current).user_data(1);
            queue.push_chain([first, endless]).unwrap();
            queue.submit().unwrap();
            queue.cancel_all();
            let done = reap(&mut queue, 2);
            let endless = done.iter().find(|done| done.user_data == 1).unwrap();
            assert!(endless.result.is_err_and(|error| error.is_cancelled()), "{done:?}");
        }
    });
}

/// With deferred task work, a ring does not wake a poll of its descriptor, nor one of a descriptor
/// in front of it.
#[test]
fn the_descriptor_of_a_single_issuer_becomes_readable() {
    let file = scratch("single", true);
    for options in [Options::new(), Options::new().faults(FaultPlan::new(0))] {
        on_each(&options.single_issuer(true), |mut queue| {
            let fd = queue.poll_fd().unwrap().as_raw_fd();
            for round in 0..50 {
                queue
                    .push(op::read(&file, ringway_core::AlignedBuffer::new(1 << 18, 4096), 0))
                    .unwrap();
                queue.submit().unwrap();
                assert!(is_readable(fd), "{:?}, round {round}", queue.backend());
                reap(&mut queue, 1);
            }
        });
    }
}

/// The kernel completes linked requests with EFAULT when the thread that submitted them has ended.
#[test]
fn a_chain_outlives_the_thread_that_pushed_it() {
    let file = scratch("thread", true);
    on_each(&Options::new(), |mut queue| {
        for _ in 0..100 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let read = op::read(&file, ringway_core::AlignedBuffer::new(1 << 18, 4096), 0);
                    queue.push_chain([read, op::fdatasync(&file), op::nop()]).unwrap();
                    queue.submit().unwrap();
                });
            });
            let results: Vec<_> = reap(&mut queue, 3).iter().map(|done| done.result).collect();
            assert_eq!(results, [Ok(1 << 18), Ok(0), Ok(0)], "{:?}", queue.backend());
        }
    });
}

/// After a completion, the next of a chain or the rest of a transfer began only when the reap had
/// as many completions as it waited for. Some of these may depend on just that operation.
#[test]
fn continued_operations_begin_while_reap_waits_for_others() {
    on_each(&Options::new(), |mut queue| {
        let file = scratch("goes-on", false);
        let (reader, writer) = std::io::pipe().unwrap();
        let [reader, writer] = [OwnedFd::from(reader), OwnedFd::from(writer)].map(File::from);
        let at = op::Position::Current;
        queue
            .push_chain([op::read(&file, vec![0; 10], 0), op::write(&writer, vec![1; 10], at)])
            .unwrap();
        queue.push(op::read(&reader, vec![0; 10], at)).unwrap();
        reap(&mut queue, 3);

        // A peer that replies after it has read everything, which is more than a pipe holds.
        let (mut from_us, to_them) = std::io::pipe().unwrap();
        let (from_them, mut to_us) = std::io::pipe().unwrap();
        let [from_them, to_them] =
            [OwnedFd::from(from_them), OwnedFd::from(to_them)].map(File::from);
        let peer = std::thread::spawn(move || {
            from_us.read_exact(&mut vec![0; 1 << 20]).unwrap();
            to_us.write_all(b"done").unwrap();
        });
        queue.push(op::write(&to_them, vec![1; 1 << 20], at).exact()).unwrap();
        queue.push(op::read(&from_them, vec![0; 4], at)).unwrap();
        reap(&mut queue, 2);
        peer.join().unwrap();
    });
}

/// Before kernel 6.5 io_uring reads a pipe with a thread of its own. Where it can start none, it
/// cancels the read, and did so at each of endless retries.
#[test]
fn a_read_that_the_kernel_cancels_again_and_again_goes_to_the_threads() {
    const TIMES: u64 = 100;
    let plan = (0..TIMES).fold(FaultPlan::new(1), |plan, time| {
        plan.fail(FaultStep::Opcode(Opcode::Read, time), libc::ECANCELED)
    });
    on_each(&Options::new().faults(plan), |mut queue| {
        let file = scratch("cancelled", true);
        queue.push(op::read(&file, ringway_core::AlignedBuffer::new(4096, 4096), 0)).unwrap();
        assert_eq!(reap(&mut queue, 1)[0].result, Ok(4096));
        let stats = queue.stats();
        match queue.backend() {
            BackendKind::Threads => assert_eq!((stats.retries, stats.to_threads), (TIMES, 0)),
            _ => assert_eq!((stats.retries, stats.to_threads), (9, 1)),
        }
    });
}
