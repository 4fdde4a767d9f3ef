//! Group commit: records are written in order and without gaps, whichever futures are dropped and
//! whatever fails.

use crate::common::buffers::PanickingBuffer;
use crate::common::executor::Executor;
use crate::common::setup::Setup;
use crate::common::watchdog::Watchdog;
use crate::common::{
    WakeCounter, available, current_thread, multi_thread, on_each_backend, poll_once,
    reap_until_idle, wait_for,
};
use futures::executor::block_on;
use futures::future::join_all;
use proptest::prelude::*;
use ringway::fs::{File, OpenOptions};
use ringway::{BackendKind, Buffer, EngineBuilder, FaultPlan, LogWriter, Reaping};
use ringway_core::FaultStep;
use ringway_core::op::Opcode;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};
use std::thread;
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

/// Operations of a group: the write and the sync.
const OPERATIONS: u64 = 2;

/// Runs a test on each backend with an empty log.
fn on_each_log(
    name: &str,
    change: fn(EngineBuilder) -> EngineBuilder,
    test: impl Fn(&Setup, LogWriter),
) {
    on_each_backend(name, |kind| with_log(kind, change, &test));
}

/// Like `on_each_log` with manual reaping and these faults, on the backends where they reach
/// buffered writes and syncs.
fn on_each_faulty_log(name: &str, plan: FaultPlan, test: impl Fn(&Setup, LogWriter)) {
    on_each_backend(name, |kind| match kind {
        BackendKind::Kaio => {
            println!("skipped: kaio: injected faults do not reach buffered writes");
        }
        kind => with_log(kind, |builder| manual_reaping(builder).faults(plan.clone()), &test),
    });
}

fn with_log(
    kind: BackendKind,
    change: impl Fn(EngineBuilder) -> EngineBuilder,
    test: impl Fn(&Setup, LogWriter),
) {
    let setup = Setup::new(kind, Executor::BlockOn, change);
    test(&setup, empty_log(&setup));
    reap_until_idle(&setup.engine);
}

fn empty_log(setup: &Setup) -> LogWriter {
    let file = std::fs::File::create(setup.path("log")).unwrap();
    LogWriter::new(File::from_fd(file.into(), &setup.engine), 0).unwrap()
}

fn content(setup: &Setup) -> Vec<u8> {
    std::fs::read(setup.path("log")).unwrap()
}

fn manual_reaping(builder: EngineBuilder) -> EngineBuilder {
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
    poll_once(append.as_mut())
}

/// Runs `test` with appends of these records, which were begun while the group of the first one was
/// in flight: a quick disk may end that group meanwhile, and then new appends are begun to an empty
/// log.
fn behind_the_first(
    setup: &Setup,
    log: impl Fn() -> LogWriter,
    records: &[Vec<u8>],
    test: impl FnOnce(&LogWriter, Vec<Append<'_>>),
) {
    let mut test = Some(test);
    wait_for("a group in flight while appends begin", || {
        let log = log();
        let before = setup.counts().pushed;
        let appends: Vec<_> = records.iter().map(|record| begun(&log, record.clone())).collect();
        if setup.counts().pushed == before + OPERATIONS {
            test.take().expect("the test runs once")(&log, appends);
            return true;
        }
        // The log keeps the result of a group that no append takes.
        drop(appends);
        drop(log);
        reap_until_idle(&setup.engine);
        false
    });
}

/// Reaps and polls until the append is over.
fn end(setup: &Setup, append: &mut Append) -> io::Result<u64> {
    let mut result = None;
    wait_for("an append", || {
        setup.engine.reap();
        if let Poll::Ready(done) = poll(append) {
            result = Some(done);
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
    on_each_backend("many_tasks_append", |kind| {
        let setup = Setup::new(kind, Executor::TokioThreads, |builder| builder);
        setup.run(async |setup: Setup| {
            let log = empty_log(&setup);
            let tasks = (0..TASKS).map(|task| {
                let log = log.clone();
                setup.spawn(async move {
                    let mut offsets = Vec::new();
                    for number in 0..RECORDS {
                        let record = record(task as u8, (task * 31 + number * 17) % 500);
                        offsets.push((log.append(record.clone()).await.unwrap(), record));
                    }
                    assert!(
                        offsets.windows(2).all(|pair| pair[0].0 <= pair[1].0),
                        "a task's records are out of order"
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
            assert!(content(&setup) == expected);
        });
        let groups = setup.counts().pushed / OPERATIONS;
        assert!(groups < (TASKS * RECORDS) as u64, "{groups} groups: none had several records");
    });
}

#[test]
fn waiting_appends_are_one_group() {
    on_each_log("waiting_appends_are_one_group", manual_reaping, |setup, _| {
        let records: Vec<_> = (0..10).map(|mark| record(mark, 100)).collect();
        behind_the_first(
            setup,
            || empty_log(setup),
            &records,
            |_, mut appends| {
                let before = setup.counts().pushed;
                for (at, append) in appends.iter_mut().enumerate() {
                    assert_eq!(end(setup, append).unwrap(), at as u64 * 100);
                }
                // One group for the first record, which found nothing in progress, and one for all
                // that came meanwhile.
                assert_eq!(setup.counts().pushed, before + OPERATIONS);
                assert_eq!(content(setup), records.concat());
            },
        );
    });
}

#[test]
fn groups_are_limited_in_bytes() {
    on_each_log("groups_are_limited_in_bytes", manual_reaping, |setup, _| {
        let log = || empty_log(setup).max_group(250);
        let lens = [100, 100, 100, 100, 900, 0, 250, 1];
        behind_the_first(setup, log, &lens.map(|len| record(7, len)), |_, mut appends| {
            let before = setup.counts().pushed;
            let mut offset = 0;
            for (append, len) in appends.iter_mut().zip(lens) {
                assert_eq!(end(setup, append).unwrap(), offset);
                offset += len as u64;
            }
            // After the first record, which is alone: two records, one record and then the long one
            // alone, the empty record with that of 250 bytes, and the last.
            assert_eq!(setup.counts().pushed, before + 5 * OPERATIONS);
        });
    });
}

#[test]
fn short_writes_are_continued() {
    let short =
        |builder: EngineBuilder| builder.faults(FaultPlan::new(3).short(700).retryable(200));
    on_each_log("short_writes_are_continued", short, |setup, log| {
        let records: Vec<_> = (0..40).map(|mark| record(mark, 3000)).collect();
        let offsets = block_on(join_all(records.iter().map(|record| log.append(record.clone()))));
        assert!(
            offsets.into_iter().enumerate().all(|(at, offset)| offset.unwrap() == at as u64 * 3000)
        );
        assert!(content(setup) == records.concat());
    });
}

/// Every record of a group gets the error of its write or sync. Then the log has failed and submits
/// nothing more.
fn an_error_ends_the_log(step: FaultStep, errno: i32) {
    // Delayed, so that the first group does not end in the polls that begin it.
    let plan = FaultPlan::new(0).fail(step, errno).delay(1000, 1);
    on_each_faulty_log("an_error_ends_the_log", plan, |setup, log| {
        let mut appends: Vec<_> = (0..4).map(|mark| begun(&log, record(mark, 100))).collect();
        assert_eq!(end(setup, &mut appends[0]).unwrap(), 0);
        for append in &mut appends[1..] {
            assert_eq!(end(setup, append).unwrap_err().raw_os_error(), Some(errno));
        }
        let pushed = setup.counts().pushed;
        assert_eq!(pushed, 2 * OPERATIONS);
        let error = block_on(log.append(record(9, 9))).unwrap_err();
        assert!(error.to_string().contains("failed before"), "{error}");
        assert_eq!(setup.counts().pushed, pushed, "a failed log submitted operations");
    });
}

#[test]
fn a_sync_error_ends_the_log() {
    an_error_ends_the_log(FaultStep::Fdatasync(1), libc::EIO);
}

#[test]
fn a_write_error_ends_the_log() {
    an_error_ends_the_log(FaultStep::Opcode(Opcode::Writev, 1), libc::ENOSPC);
}

/// A record that uses the log when it is dropped.
struct UsesLog(LogWriter, [u8; 4]);

impl Drop for UsesLog {
    fn drop(&mut self) {
        let _ = self.0.clone().max_group(1 << 20);
    }
}

// (The bytes are part of the boxed value.)
ringway_torture::custom_buffer!(UsesLog, |this| this.1, false);

#[test]
fn a_record_may_use_the_log_when_it_is_dropped() {
    let plan = FaultPlan::new(0).fail(FaultStep::Fdatasync(0), libc::EIO);
    on_each_faulty_log("a_record_may_use_the_log_when_it_is_dropped", plan, |setup, log| {
        let record_with_log = || Buffer::custom(Box::new(UsesLog(log.clone(), *b"uses")));
        let mut first = begun(&log, record(1, 10));
        let mut removed: Append = Box::pin(log.append(record_with_log()));
        let _ = poll(&mut removed);
        drop(removed);
        let mut queued: Append = Box::pin(log.append(record_with_log()));
        let mut queued: Append = match poll(&mut queued) {
            Poll::Ready(result) => Box::pin(std::future::ready(result)),
            Poll::Pending => queued,
        };
        assert_eq!(end(setup, &mut first).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(end(setup, &mut queued).unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(
            block_on(log.append(record_with_log())).unwrap_err().kind(),
            io::ErrorKind::Other
        );
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
fn a_dropped_log_releases_its_file() {
    on_each_log("a_dropped_log_releases_its_file", manual_reaping, |setup, log| {
        let free = Arc::new(Mutex::new(None));
        let result = free.clone();
        let task = async move {
            log.append(record(1, 10)).await.unwrap();
            let file = log.file().clone();
            drop(log);
            *result.lock().unwrap() = Some(file.try_into_std().is_ok());
        };
        let task = Arc::new(Inline(Mutex::new(Some(Box::pin(task)))));
        task.poll();
        wait_for("the task", || {
            setup.engine.reap();
            free.lock().unwrap().is_some()
        });
        assert_eq!(*free.lock().unwrap(), Some(true));
    });
}

/// A log that is dropped during the write of a group releases its file when the operation
/// completes.
#[test]
fn a_log_dropped_during_a_write_releases_its_file() {
    on_each_log(
        "a_log_dropped_during_a_write_releases_its_file",
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

/// The same while a worker of a runtime may be ending the group and beginning the next.
#[test]
fn a_log_dropped_on_a_runtime_releases_its_file() {
    on_each_backend("a_log_dropped_on_a_runtime_releases_its_file", |kind| {
        let setup = Setup::new(kind, Executor::TokioThreads, |builder| builder);
        setup.run(async |setup: Setup| {
            for round in 0..200 {
                let log = empty_log(&setup);
                let mut appends: Vec<_> = (0..3).map(|_| begun(&log, record(1, 10))).collect();
                appends.truncate(round % 3);
                for _ in 0..round % 7 {
                    thread::yield_now();
                }
                drop(appends);
                let file = log.file().clone();
                drop(log);
                file.into_std().await.unwrap();
            }
        });
    });
}

/// A record that panics when it is dropped ends the log there as well, and the worker goes on.
#[test]
fn a_record_that_panics_in_drop_on_a_runtime() {
    on_each_backend("a_record_that_panics_in_drop_on_a_runtime", |kind| {
        let setup = Setup::new(kind, Executor::TokioThreads, |builder| builder);
        setup.run(async |setup: Setup| {
            let log = empty_log(&setup);
            // A poll that ends the group gets the panic.
            let append = async |record: Buffer| {
                let mut append = Box::pin(log.append(record));
                poll_fn(|cx| {
                    catch_unwind(AssertUnwindSafe(|| append.as_mut().poll(cx)))
                        .unwrap_or_else(|_| Poll::Ready(Err(io::Error::other("a panic"))))
                })
                .await
            };
            let panics = append(PanickingBuffer::buffer(b"record"));
            let others = [0, 1, 2].map(|mark| append(record(mark, 10).into()));
            let (result, others) = futures::future::join(panics, join_all(others)).await;
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Other);
            assert!(others.into_iter().all(|other| other.is_err()), "the log has ended");
            let error = log.append(record(9, 9)).await.unwrap_err();
            assert!(error.to_string().contains("failed before"), "{error}");
        });
    });
}

/// When the append that drives the log is dropped, at any of its steps, the others continue.
#[test]
fn others_continue_after_a_drop() {
    on_each_log(
        "others_continue_after_a_drop",
        |builder| builder,
        |setup, log| {
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
                for other in others {
                    _ = other.join().unwrap().unwrap()
                }
            }
            // The first record of each round may have been removed before it was written.
            let len = content(setup).len();
            assert!((60 * 20..=60 * 30).contains(&len) && len.is_multiple_of(10), "{len} bytes");
        },
    );
}

/// The same for several ignored appends, some of which wait for the next group.
#[test]
fn unpolled_appends_delay_no_other() {
    on_each_log("unpolled_appends_delay_no_other", manual_reaping, |setup, log| {
        for round in 0..4 {
            let mut first = begun(&log, record(1, 10));
            let mut ignored: Vec<_> = (0..4).map(|_| begun(&log, record(2, 10))).collect();
            let counter = WakeCounter::new();
            let mut seen = 0;
            let mut other: Append = Box::pin(log.append(record(3, 10)));
            let mut polled =
                || other.as_mut().poll(&mut Context::from_waker(&counter.clone().into()));
            assert!(polled().is_pending());
            if round % 2 == 0 {
                end(setup, &mut first).unwrap();
            } else {
                drop(first);
            }
            wait_for("the append after them", || {
                setup.engine.reap();
                let wakeups = counter.wakeups();
                std::mem::replace(&mut seen, wakeups) != wakeups && polled().is_ready()
            });
            for append in &mut ignored {
                _ = end(setup, append).unwrap()
            }
        }
    });
}

/// Outside of its workers tokio wakes a yielding task at once, during its poll.
#[test]
fn a_task_without_budget_yields() {
    on_each_backend("a_task_without_budget_yields", |kind| {
        let setup = Setup::new(kind, Executor::TokioThreads, |builder| builder);
        let log = empty_log(&setup);
        let runtime = multi_thread(1);
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
        reap_until_idle(&setup.engine);
    });
}

/// An append yields to its runtime, which may never come back to it.
#[test]
fn a_yield_that_is_lost_delays_no_other() {
    on_each_backend("a_yield_that_is_lost_delays_no_other", |kind| {
        let setup = Setup::new(kind, Executor::TokioThreads, |builder| builder);
        let log = empty_log(&setup);
        let mut lost: Append = Box::pin(log.append(record(1, 10)));
        current_thread().block_on(poll_fn(|cx| {
            while let Poll::Ready(unit) = tokio::task::coop::poll_proceed(cx) {
                unit.made_progress();
            }
            assert!(lost.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        }));
        let runtime = multi_thread(1);
        assert_eq!(runtime.block_on(log.append(record(2, 10))).unwrap(), 10);
        assert_eq!(runtime.block_on(lost).unwrap(), 0);
        reap_until_idle(&setup.engine);
    });
}

/// The worker that ends the groups also makes the writes of other files, which use up what a poll
/// may copy.
#[test]
fn logs_next_to_streams() {
    on_each_backend("logs_next_to_streams", |kind| {
        let setup = Setup::new(kind, Executor::TokioThreads, |builder| builder);
        setup.run(async |setup: Setup| {
            let streams: Vec<_> = (0..6)
                .map(|number| {
                    let file = std::fs::File::create(setup.path(&format!("stream{number}")));
                    let mut file = File::from_fd(file.unwrap().into(), &setup.engine);
                    tokio::spawn(async move {
                        loop {
                            for _ in 0..16 {
                                file.write_all(&[7; 512 << 10]).await.unwrap();
                            }
                            file.rewind().await.unwrap();
                        }
                    })
                })
                .collect();
            let log = empty_log(&setup);
            let appends = (0..8).map(|_| {
                let log = log.clone();
                setup.spawn(async move {
                    for _ in 0..200 {
                        log.append(record(1, 10)).await.unwrap();
                    }
                })
            });
            join_all(appends.collect::<Vec<_>>()).await;
            for stream in streams {
                stream.abort();
                assert!(stream.await.unwrap_err().is_cancelled());
            }
        });
    });
}

#[test]
fn an_append_works_after_all_others_were_dropped() {
    on_each_log("an_append_works_after_all_others_were_dropped", manual_reaping, |setup, _| {
        let records = [0, 1, 2, 3, 4].map(|mark| record(mark, 10));
        behind_the_first(
            setup,
            || empty_log(setup),
            &records,
            |log, appends| {
                // Nothing is reaped yet, so the first stays the only one that is written.
                drop(appends);
                let over = AtomicBool::new(false);
                let offset = thread::scope(|scope| {
                    scope.spawn(|| {
                        while !over.load(Relaxed) {
                            setup.engine.reap();
                            thread::yield_now();
                        }
                    });
                    let offset = block_on(log.append(record(9, 10)));
                    over.store(true, Relaxed);
                    offset
                });
                assert_eq!(offset.unwrap(), 10);
                assert_eq!(content(setup), [record(0, 10), record(9, 10)].concat());
                drop(begun(log, record(1, 10)));
            },
        );
        reap_until_idle(&setup.engine);
    });
}

#[test]
fn a_record_that_panics_in_drop() {
    on_each_log("a_record_that_panics_in_drop", manual_reaping, |setup, _| {
        wait_for("a group in flight while appends begin", || {
            let log = empty_log(setup);
            let begin = || {
                let mut first: Append = Box::pin(log.append(PanickingBuffer::buffer(b"record")));
                assert!(poll(&mut first).is_pending());
                (first, [0, 1, 2].map(|mark| begun(&log, record(mark, 10))))
            };
            // A quick disk may end the group meanwhile.
            let Ok((first, others)) = catch_unwind(AssertUnwindSafe(begin)) else { return false };
            a_panic_ends_the_log(setup, &log, first, others);
            true
        });
    });
}

/// A poll that ends the group gets the panic, like any caller that drops a panicking buffer. Who
/// reaps does not.
fn a_panic_ends_the_log(
    setup: &Setup,
    log: &LogWriter,
    mut first: Append,
    [mut second, third, fourth]: [Append; 3],
) {
    wait_for("the end of the group", || {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            setup.engine.reap();
            poll(&mut second)
        }));
        match polled {
            Ok(Poll::Ready(result)) => result.is_err(),
            Ok(Poll::Pending) => false,
            Err(_) => true,
        }
    });
    drop(second);
    assert_eq!(end(setup, &mut first).unwrap_err().kind(), io::ErrorKind::Other);
    for mut append in [third, fourth] {
        assert_eq!(end(setup, &mut append).unwrap_err().kind(), io::ErrorKind::Other);
    }
    assert!(block_on(log.append(record(9, 9))).unwrap_err().to_string().contains("failed before"));
}

#[test]
fn unsuitable_files_are_refused() {
    on_each_log(
        "unsuitable_files_are_refused",
        |builder| builder,
        |setup, _| {
            let refused = |file: File, end| {
                assert_eq!(
                    LogWriter::new(file, end).unwrap_err().kind(),
                    io::ErrorKind::InvalidInput
                );
            };
            let mut options = OpenOptions::new();
            options.engine(&setup.engine);
            block_on(async {
                refused(options.clone().append(true).open(setup.path("log")).await.unwrap(), 0);
                refused(
                    options.clone().write(true).direct(true).open(setup.path("log")).await.unwrap(),
                    0,
                );
                refused(
                    options.clone().write(true).open(setup.path("log")).await.unwrap(),
                    u64::MAX,
                );
            });
            refused(setup.pipe().0, 0);
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
        for kind in available() {
            let setup = Setup::new(kind, Executor::BlockOn, manual_reaping);
            let log = empty_log(&setup).max_group(100);
            let mut records: Vec<Vec<u8>> = Vec::new();
            let mut waiting: Vec<(usize, Append)> = Vec::new();
            let mut acknowledged: Vec<(usize, u64)> = Vec::new();
            for step in steps.clone() {
                match step {
                    Step::Append(len) => {
                        let number = records.len();
                        records.push(record(number as u8 + 1, len));
                        let mut append: Append = Box::pin(log.append(records[number].clone()));
                        match poll(&mut append) {
                            Poll::Ready(result) => acknowledged.push((number, result.unwrap())),
                            Poll::Pending => waiting.push((number, append)),
                        }
                    }
                    Step::Poll(which) if !waiting.is_empty() => {
                        let at = which.index(waiting.len());
                        if let Poll::Ready(result) = poll(&mut waiting[at].1) {
                            acknowledged.push((waiting.remove(at).0, result.unwrap()));
                        }
                    }
                    Step::Drop(which) if !waiting.is_empty() => {
                        drop(waiting.remove(which.index(waiting.len())));
                    }
                    Step::Reap => _ = setup.engine.reap(),
                    Step::Poll(_) | Step::Drop(_) => {}
                }
            }
            for (number, mut append) in waiting {
                acknowledged.push((number, end(&setup, &mut append).unwrap()));
            }
            // A last record, after everything that was begun and dropped.
            records.push(record(255, 1));
            let last = end(&setup, &mut begun(&log, record(255, 1))).unwrap();
            acknowledged.push((records.len() - 1, last));
            drop(log);
            reap_until_idle(&setup.engine);
            let content = content(&setup);
            // The file consists of whole records in order, including those of dropped appends.
            let mut found = Vec::new();
            let mut rest = &content[..];
            for (number, record) in records.iter().enumerate() {
                if !record.is_empty() && rest.first() == record.first() {
                    let offset = (content.len() - rest.len()) as u64;
                    let torn = rest.len() < record.len();
                    let is_whole = !torn && rest[..record.len()] == record[..];
                    prop_assert!(is_whole, "record {} is torn", number);
                    rest = &rest[record.len()..];
                    found.push((number, offset));
                }
            }
            prop_assert!(rest.is_empty());
            acknowledged.sort_unstable();
            prop_assert!(acknowledged.windows(2).all(|pair| pair[0].1 <= pair[1].1));
            for (number, offset) in acknowledged {
                prop_assert!(records[number].is_empty() || found.contains(&(number, offset)));
            }
        }
    }
}
