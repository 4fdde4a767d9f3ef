//! Group commit: records are written in order and without gaps, whichever futures are dropped and
//! whatever fails.

use crate::executor::Executor;
use crate::watchdog::Watchdog;
use crate::world::{World, granted, settled, wait_for};
use futures::executor::block_on;
use futures::future::join_all;
use proptest::prelude::*;
use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Buffer, CustomBuffer, EngineBuilder, FaultPlan, LogWriter, Reaping};
use ringway_core::FaultStep;
use ringway_core::op::Opcode;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Operations of a group: the write and the sync.
const OPERATIONS: u64 = 2;

/// Runs a test on each backend with an empty log.
fn each(name: &str, change: fn(EngineBuilder) -> EngineBuilder, test: impl Fn(&World, LogWriter)) {
    each_of(&granted(), name, change, test);
}

/// Like `each`, on the backends where faults reach buffered writes and syncs.
fn each_faulty(
    name: &str,
    change: fn(EngineBuilder) -> EngineBuilder,
    test: impl Fn(&World, LogWriter),
) {
    let mut kinds = granted();
    kinds.retain(|kind| *kind != BackendKind::Kaio);
    println!("skipped: kaio: no fault reaches a buffered write, which the threads make");
    each_of(&kinds, name, change, test);
}

fn each_of(
    kinds: &[BackendKind],
    name: &str,
    change: fn(EngineBuilder) -> EngineBuilder,
    test: impl Fn(&World, LogWriter),
) {
    for kind in kinds {
        let _watch = Watchdog::new(&format!("{kind} {name}"));
        let world = World::new(*kind, Executor::BlockOn, change);
        test(&world, empty_log(&world));
        settled(&world.engine);
    }
}

fn empty_log(world: &World) -> LogWriter {
    let file = std::fs::File::create(world.path("log")).unwrap();
    LogWriter::new(File::from_fd(file.into(), &world.engine), 0).unwrap()
}

fn content(world: &World) -> Vec<u8> {
    std::fs::read(world.path("log")).unwrap()
}

fn by_hand(builder: EngineBuilder) -> EngineBuilder {
    builder.shards(1).reaping(Reaping::Manual)
}

type Append<'a> = Pin<Box<dyn Future<Output = io::Result<u64>> + Send + 'a>>;

/// An append that was polled once. Where completions are reaped automatically it may be over
/// already.
fn begun(log: &LogWriter, record: Vec<u8>) -> Append<'_> {
    let mut append: Append = Box::pin(log.append(record));
    match poll(&mut append) {
        Poll::Ready(result) => Box::pin(std::future::ready(result)),
        Poll::Pending => append,
    }
}

fn poll(append: &mut Append) -> Poll<io::Result<u64>> {
    append.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Reaps and polls until the append is over.
fn end(world: &World, append: &mut Append) -> io::Result<u64> {
    let mut result = None;
    wait_for("an append", || {
        world.engine.reap();
        if let Poll::Ready(over) = poll(append) {
            result = Some(over);
        }
        result.is_some()
    });
    result.unwrap()
}

fn record(mark: u8, len: usize) -> Vec<u8> {
    vec![mark; len]
}

#[test]
fn many_tasks_append() {
    const TASKS: usize = 32;
    const RECORDS: usize = 20;
    for kind in granted() {
        let _watch = Watchdog::new(&format!("{kind} many_tasks_append"));
        let world = World::new(kind, Executor::TokioThreads, |builder| builder);
        world.run(async |world: World| {
            let log = empty_log(&world);
            let tasks = (0..TASKS).map(|task| {
                let log = log.clone();
                world.spawn(async move {
                    let mut offsets = Vec::new();
                    for number in 0..RECORDS {
                        let record = record(task as u8, (task * 31 + number * 17) % 500);
                        offsets.push((log.append(record.clone()).await.unwrap(), record));
                    }
                    assert!(
                        offsets.windows(2).all(|pair| pair[0].0 <= pair[1].0),
                        "a task's own records out of order"
                    );
                    offsets
                })
            });
            let mut all: Vec<_> =
                join_all(tasks.collect::<Vec<_>>()).await.into_iter().flatten().collect();
            all.sort_by_key(|(offset, record)| (*offset, record.len()));
            let mut end = 0;
            for (offset, record) in &all {
                assert_eq!(*offset, end, "a gap or an overlap");
                end += record.len() as u64;
            }
            let expected: Vec<u8> = all.into_iter().flat_map(|(_, record)| record).collect();
            assert!(content(&world) == expected);
        });
        let groups = world.counts().pushed / OPERATIONS;
        assert!(groups < (TASKS * RECORDS) as u64, "{groups} groups: none had two records");
    }
}

#[test]
fn those_that_wait_are_one_group() {
    each("those_that_wait_are_one_group", by_hand, |world, log| {
        let mut appends: Vec<_> = (0..10).map(|mark| begun(&log, record(mark, 100))).collect();
        for (at, append) in appends.iter_mut().enumerate() {
            assert_eq!(end(world, append).unwrap(), at as u64 * 100);
        }
        // One group for the first record, which found nothing in progress, and one for all that
        // came meanwhile.
        assert_eq!(world.counts().pushed, 2 * OPERATIONS);
        assert_eq!(content(world), (0..10).flat_map(|mark| record(mark, 100)).collect::<Vec<_>>());
    });
}

#[test]
fn a_group_has_its_most_bytes() {
    each("a_group_has_its_most_bytes", by_hand, |world, log| {
        let log = log.max_group(250);
        let lens = [100, 100, 100, 100, 900, 0, 250, 1];
        let mut appends: Vec<_> = lens.iter().map(|len| begun(&log, record(7, *len))).collect();
        let mut offset = 0;
        for (append, len) in appends.iter_mut().zip(lens) {
            assert_eq!(end(world, append).unwrap(), offset);
            offset += len as u64;
        }
        // The first record alone, two records, one record and then the long one alone, the empty
        // record with that of 250 bytes, and the last.
        assert_eq!(world.counts().pushed, 6 * OPERATIONS);
    });
}

#[test]
fn a_record_of_nothing_waits_its_turn() {
    each(
        "a_record_of_nothing_waits_its_turn",
        |builder| builder,
        |world, log| {
            assert_eq!(block_on(log.append(Vec::new())).unwrap(), 0);
            assert_eq!(block_on(log.append(record(1, 5))).unwrap(), 0);
            assert_eq!(block_on(log.append(Vec::new())).unwrap(), 5);
            assert_eq!(content(world), record(1, 5));
        },
    );
}

#[test]
fn short_writes_go_on() {
    let short =
        |builder: EngineBuilder| builder.faults(FaultPlan::new(3).short(700).retryable(200));
    each("short_writes_go_on", short, |world, log| {
        let records: Vec<_> = (0..40).map(|mark| record(mark, 3000)).collect();
        let offsets = block_on(join_all(records.iter().map(|record| log.append(record.clone()))));
        assert!(
            offsets.into_iter().enumerate().all(|(at, offset)| offset.unwrap() == at as u64 * 3000)
        );
        assert!(content(world) == records.concat());
    });
}

/// Every record of a group gets the error of its write or sync. Then the log has failed and submits
/// nothing more.
fn an_error_ends_the_log(world: &World, log: &LogWriter, errno: i32) {
    let mut appends: Vec<_> = (0..4).map(|mark| begun(log, record(mark, 100))).collect();
    assert_eq!(end(world, &mut appends[0]).unwrap_err().raw_os_error(), Some(errno));
    for append in &mut appends[1..] {
        let error = end(world, append).unwrap_err();
        assert_eq!((error.kind(), error.raw_os_error()), (io::ErrorKind::Other, None), "{error}");
    }
    let pushed = world.counts().pushed;
    assert_eq!(pushed, OPERATIONS);
    let error = block_on(log.append(record(9, 9))).unwrap_err();
    assert!(error.to_string().contains("failed before"), "{error}");
    assert_eq!(world.counts().pushed, pushed, "a log that has failed asks for nothing");
}

#[test]
fn an_error_of_the_sync_ends_the_log() {
    let faults = |builder: EngineBuilder| {
        by_hand(builder).faults(FaultPlan::new(0).fail(FaultStep::Fdatasync(0), libc::EIO))
    };
    each_faulty("an_error_of_the_sync_ends_the_log", faults, |world, log| {
        an_error_ends_the_log(world, &log, libc::EIO);
    });
}

#[test]
fn an_error_of_the_write_ends_the_log() {
    let faults = |builder: EngineBuilder| {
        by_hand(builder)
            .faults(FaultPlan::new(0).fail(FaultStep::Opcode(Opcode::Writev, 0), libc::ENOSPC))
    };
    each_faulty("an_error_of_the_write_ends_the_log", faults, |world, log| {
        an_error_ends_the_log(world, &log, libc::ENOSPC);
    });
}

#[test]
fn each_of_a_failed_group_is_told() {
    let faults = |builder: EngineBuilder| {
        by_hand(builder).faults(FaultPlan::new(0).fail(FaultStep::Fdatasync(1), libc::EIO))
    };
    each_faulty("each_of_a_failed_group_is_told", faults, |world, log| {
        let mut appends: Vec<_> = (0..4).map(|mark| begun(&log, record(mark, 100))).collect();
        assert_eq!(end(world, &mut appends[0]).unwrap(), 0);
        for append in &mut appends[1..] {
            assert_eq!(end(world, append).unwrap_err().raw_os_error(), Some(libc::EIO));
        }
    });
}

#[test]
fn what_has_not_begun_is_taken_out_and_what_has_stays() {
    each("what_has_not_begun_is_taken_out_and_what_has_stays", by_hand, |world, log| {
        let mut appends: Vec<_> = (0..5).map(|mark| begun(&log, record(mark, 10))).collect();
        let mut last = appends.pop().unwrap();
        drop(appends.remove(2));
        drop(appends.remove(0));
        assert_eq!(end(world, &mut last).unwrap(), 30);
        for (append, offset) in appends.iter_mut().zip([10, 20]) {
            assert_eq!(end(world, append).unwrap(), offset);
        }
        assert_eq!(content(world), [0, 1, 3, 4].map(|mark| record(mark, 10)).concat());
    });
}

/// A record that uses the log when it is dropped.
struct Nosy(LogWriter, [u8; 4]);

impl Drop for Nosy {
    fn drop(&mut self) {
        let _ = self.0.clone().max_group(1 << 20);
    }
}

// SAFETY: the bytes are part of the boxed value, so they stay in place, and nothing writes to them.
unsafe impl CustomBuffer for Nosy {
    fn as_ptr(&self) -> *const u8 {
        self.1.as_ptr()
    }
    fn len(&self) -> usize {
        self.1.len()
    }
    fn writable(&self) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
        self
    }
}

#[test]
fn a_record_may_use_the_log_when_it_is_dropped() {
    let faults = |builder: EngineBuilder| {
        by_hand(builder).faults(FaultPlan::new(0).fail(FaultStep::Fdatasync(0), libc::EIO))
    };
    each_faulty("a_record_may_use_the_log_when_it_is_dropped", faults, |world, log| {
        let nosy = || Buffer::custom(Box::new(Nosy(log.clone(), *b"nosy")));
        let mut first = begun(&log, record(1, 10));
        let mut taken_out: Append = Box::pin(log.append(nosy()));
        let _ = poll(&mut taken_out);
        drop(taken_out);
        let mut queued: Append = Box::pin(log.append(nosy()));
        let mut queued: Append = match poll(&mut queued) {
            Poll::Ready(result) => Box::pin(std::future::ready(result)),
            Poll::Pending => queued,
        };
        assert_eq!(end(world, &mut first).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(end(world, &mut queued).unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(block_on(log.append(nosy())).unwrap_err().kind(), io::ErrorKind::Other);
    });
}

/// A task that is polled from within its wakeup.
struct Inline(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Inline {
    fn poll(self: &Arc<Self>) {
        let mut task = self.0.lock().unwrap();
        if task.as_mut().is_some_and(|task| {
            task.as_mut().poll(&mut Context::from_waker(&self.clone().into())).is_ready()
        }) {
            *task = None;
        }
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

/// A dropped log releases its file, even when the task that drops it is still being woken by the
/// engine.
#[test]
fn the_file_is_free_when_the_log_is_dropped() {
    each("the_file_is_free_when_the_log_is_dropped", by_hand, |world, log| {
        let free = Arc::new(Mutex::new(None));
        let told = free.clone();
        let task = async move {
            log.append(record(1, 10)).await.unwrap();
            let file = log.file().clone();
            drop(log);
            *told.lock().unwrap() = Some(file.try_into_std().is_ok());
        };
        let task = Arc::new(Inline(Mutex::new(Some(Box::pin(task)))));
        task.poll();
        wait_for("the task", || {
            world.engine.reap();
            free.lock().unwrap().is_some()
        });
        assert_eq!(*free.lock().unwrap(), Some(true));
    });
}

/// A log that is dropped during the write of a group releases its file when the operation
/// completes.
#[test]
fn a_log_dropped_meanwhile_frees_its_file() {
    each(
        "a_log_dropped_meanwhile_frees_its_file",
        |builder| builder,
        |_, log| {
            let append = begun(&log, record(1, 10));
            drop(append);
            let file = log.file().clone();
            drop(log);
            block_on(file.into_std()).unwrap();
        },
    );
}

/// When the append that drives the log is dropped, at any of its steps, the others continue.
#[test]
fn somebody_else_goes_on() {
    each(
        "somebody_else_goes_on",
        |builder| builder,
        |world, log| {
            for round in 0..60u8 {
                let mut first = begun(&log, record(round, 10));
                let others: Vec<_> = (0..2)
                    .map(|_| {
                        let log = log.clone();
                        std::thread::spawn(move || block_on(log.append(record(round, 10))))
                    })
                    .collect();
                // The append may complete meanwhile, unnoticed.
                for _ in 0..round % 6 {
                    std::thread::yield_now();
                    if poll(&mut first).is_ready() {
                        break;
                    }
                }
                drop(first);
                others.into_iter().for_each(|other| _ = other.join().unwrap().unwrap());
            }
            // The first record of each round may have been removed before it was written.
            let len = content(world).len();
            assert!((60 * 20..=60 * 30).contains(&len) && len.is_multiple_of(10), "{len} bytes");
        },
    );
}

/// A future that was polled once and then ignored delays no other append.
#[test]
fn an_append_that_is_not_polled_keeps_nobody_waiting() {
    each(
        "an_append_that_is_not_polled_keeps_nobody_waiting",
        |builder| builder,
        |world, log| {
            for round in 0..40 {
                let mut left = begun(&log, record(1, 10));
                let other = {
                    let log = log.clone();
                    std::thread::spawn(move || block_on(log.append(record(2, 10))))
                };
                other.join().unwrap().unwrap();
                let offset = block_on(&mut left).unwrap();
                assert_eq!(content(world)[offset as usize..][..10], record(1, 10), "round {round}");
            }
        },
    );
}

/// The same for several ignored appends, some of which wait for the next group.
#[test]
fn appends_that_are_not_polled_keep_nobody_waiting() {
    each("appends_that_are_not_polled_keep_nobody_waiting", by_hand, |world, log| {
        for round in 0..4 {
            let mut first = begun(&log, record(1, 10));
            let mut left: Vec<_> = (0..4).map(|_| begun(&log, record(2, 10))).collect();
            let woken = Arc::new(Woken::default());
            let mut other: Append = Box::pin(log.append(record(3, 10)));
            let mut polled =
                || other.as_mut().poll(&mut Context::from_waker(&woken.clone().into()));
            assert!(polled().is_pending());
            if round % 2 == 0 {
                end(world, &mut first).unwrap();
            } else {
                drop(first);
            }
            wait_for("the append behind them", || {
                world.engine.reap();
                woken.0.swap(false, Ordering::SeqCst) && polled().is_ready()
            });
            left.iter_mut().for_each(|append| _ = end(world, append).unwrap());
        }
    });
}

/// Records a wakeup.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Outside of its workers tokio wakes a yielding task at once, during its poll.
#[test]
fn a_task_without_budget_gives_way() {
    for kind in granted() {
        let _watch = Watchdog::new(&format!("{kind} a_task_without_budget_gives_way"));
        let world = World::new(kind, Executor::TokioThreads, |builder| builder);
        let log = empty_log(&world);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut append = std::pin::pin!(log.append(record(1, 10)));
            let first = poll_fn(|cx| {
                while let Poll::Ready(unit) = tokio::task::coop::poll_proceed(cx) {
                    unit.made_progress();
                }
                Poll::Ready(append.as_mut().poll(cx))
            });
            assert!(first.await.is_pending());
            assert_eq!(append.await.unwrap(), 0);
        });
        settled(&world.engine);
    }
}

#[test]
fn all_are_dropped_and_another_goes_on() {
    each(
        "all_are_dropped_and_another_goes_on",
        |builder| builder,
        |world, log| {
            let appends: Vec<_> = (0..5).map(|mark| begun(&log, record(mark, 10))).collect();
            drop(appends);
            assert_eq!(block_on(log.append(record(9, 10))).unwrap(), 10);
            assert_eq!(content(world), [record(0, 10), record(9, 10)].concat());
            let _begun = begun(&log, record(1, 10));
            drop(_begun);
            drop(log);
            settled(&world.engine);
        },
    );
}

/// A record that panics when it is dropped.
struct Fragile([u8; 4]);

impl Drop for Fragile {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a record that panics, as the test wants");
        }
    }
}

// SAFETY: the bytes are part of the boxed value, so they stay in place, and nothing writes to them.
unsafe impl CustomBuffer for Fragile {
    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn writable(&self) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
        self
    }
}

#[test]
fn a_record_that_panics_when_it_is_dropped() {
    each("a_record_that_panics_when_it_is_dropped", by_hand, |world, log| {
        let fragile = Buffer::custom(Box::new(Fragile(*b"frag")));
        let mut first: Append = Box::pin(log.append(fragile));
        assert!(poll(&mut first).is_pending());
        let mut others: Vec<_> = (0..3).map(|mark| begun(&log, record(mark, 10))).collect();
        let mut unlucky = others.remove(0);
        // The caller that ends the group gets the panic, like any caller that drops a panicking
        // buffer.
        wait_for("the panic", || {
            catch_unwind(AssertUnwindSafe(|| {
                world.engine.reap();
                poll(&mut unlucky)
            }))
            .is_err()
        });
        drop(unlucky);
        assert_eq!(end(world, &mut first).unwrap_err().kind(), io::ErrorKind::Other);
        for append in &mut others {
            assert_eq!(end(world, append).unwrap_err().kind(), io::ErrorKind::Other);
        }
        assert!(
            block_on(log.append(record(9, 9))).unwrap_err().to_string().contains("failed before")
        );
    });
}

#[test]
fn files_that_cannot_be_logs() {
    each(
        "files_that_cannot_be_logs",
        |builder| builder,
        |world, _| {
            let refused = |file: File, end| {
                assert_eq!(
                    LogWriter::new(file, end).unwrap_err().kind(),
                    io::ErrorKind::InvalidInput
                );
            };
            let mut options = OpenOptions::new();
            options.engine(&world.engine);
            block_on(async {
                refused(options.clone().append(true).open(world.path("log")).await.unwrap(), 0);
                refused(
                    options.clone().write(true).direct(true).open(world.path("log")).await.unwrap(),
                    0,
                );
                refused(
                    options.clone().write(true).open(world.path("log")).await.unwrap(),
                    u64::MAX,
                );
            });
            refused(world.pipe().0, 0);
        },
    );
}

/// A step in the random life of a log.
#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Poll(prop::sample::Index),
    Drop(prop::sample::Index),
    Reap,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0usize..50).prop_map(Step::Append),
        4 => any::<prop::sample::Index>().prop_map(Step::Poll),
        1 => any::<prop::sample::Index>().prop_map(Step::Drop),
        4 => Just(Step::Reap),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Appends are begun, polled and dropped in any order. Each acknowledged record is at its
    /// reported offset, in the order in which the appends began, and only records of dropped
    /// appends lie between.
    #[test]
    fn any_order_of_polls_and_drops(steps in steps()) {
        let _watch = Watchdog::new("any_order_of_polls_and_drops");
        for kind in granted() {
            let world = World::new(kind, Executor::BlockOn, by_hand);
            let log = empty_log(&world).max_group(100);
            let mut records: Vec<Vec<u8>> = Vec::new();
            let mut waiting: Vec<(usize, Append)> = Vec::new();
            let mut over: Vec<(usize, u64)> = Vec::new();
            for step in steps.clone() {
                match step {
                    Step::Append(len) => {
                        let number = records.len();
                        records.push(record(number as u8 + 1, len));
                        let mut append: Append = Box::pin(log.append(records[number].clone()));
                        match poll(&mut append) {
                            Poll::Ready(result) => over.push((number, result.unwrap())),
                            Poll::Pending => waiting.push((number, append)),
                        }
                    }
                    Step::Poll(which) if !waiting.is_empty() => {
                        let at = which.index(waiting.len());
                        if let Poll::Ready(result) = poll(&mut waiting[at].1) {
                            over.push((waiting.remove(at).0, result.unwrap()));
                        }
                    }
                    Step::Drop(which) if !waiting.is_empty() => drop(waiting.remove(which.index(waiting.len()))),
                    Step::Reap => _ = world.engine.reap(),
                    Step::Poll(_) | Step::Drop(_) => {}
                }
            }
            for (number, mut append) in waiting {
                over.push((number, end(&world, &mut append).unwrap()));
            }
            // A last record, after everything that was begun and dropped.
            records.push(record(255, 1));
            over.push((records.len() - 1, end(&world, &mut begun(&log, record(255, 1))).unwrap()));
            drop(log);
            settled(&world.engine);
            let content = content(&world);
            // The file consists of whole records in order, including those of dropped appends.
            let mut found = Vec::new();
            let mut rest = &content[..];
            for (number, record) in records.iter().enumerate() {
                if !record.is_empty() && rest.first() == record.first() {
                    let offset = (content.len() - rest.len()) as u64;
                    let torn = rest.len() < record.len();
                    prop_assert!(!torn && rest[..record.len()] == record[..], "record {} is torn", number);
                    rest = &rest[record.len()..];
                    found.push((number, offset));
                }
            }
            prop_assert!(rest.is_empty());
            over.sort_unstable();
            prop_assert!(over.windows(2).all(|pair| pair[0].1 <= pair[1].1));
            for (number, offset) in over {
                prop_assert!(records[number].is_empty() || found.contains(&(number, offset)));
            }
        }
    }
}
