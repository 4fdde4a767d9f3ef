//! Syncs of one file: concurrent ones share, and an error of any operation that may take the
//! kernel's report of a lost write reaches everybody whom it concerns.

use crate::common::executor::Executor;
use crate::common::setup::Setup;
use crate::common::watchdog::Watchdog;
use crate::common::{PAGE, available, errno, open, pattern, reap_until_idle};
use futures::executor::block_on;
use futures::future::{FutureExt, join_all, poll_immediate};
use ringway::fs::File;
use ringway::{BackendKind, EngineBuilder, FaultPlan, LogWriter, Reaping};
use ringway_core::op::Opcode;
use ringway_core::{FaultStep, Late};
use std::io;
use std::pin::pin;

/// Runs a test on each backend with a buffered file of four pages, one shard, and these faults.
fn with_faults(name: &str, change: fn(FaultPlan) -> FaultPlan, test: impl AsyncFn(&Setup, &File)) {
    run(name, |builder, plan| builder.shards(1).faults(plan), change, test);
}

/// As [`with_faults`], for a test that reaps itself.
fn with_manual_faults(
    name: &str,
    change: fn(FaultPlan) -> FaultPlan,
    test: impl AsyncFn(&Setup, &File),
) {
    let options =
        |builder: EngineBuilder, plan| builder.shards(1).reaping(Reaping::Manual).faults(plan);
    run(name, options, change, test);
}

fn run(
    name: &str,
    options: fn(EngineBuilder, FaultPlan) -> EngineBuilder,
    change: fn(FaultPlan) -> FaultPlan,
    test: impl AsyncFn(&Setup, &File),
) {
    for kind in available() {
        let _watch = Watchdog::new(&format!("{kind} {name}"));
        let builder = ringway::Engine::builder().backend(kind);
        let engine = options(builder, change(FaultPlan::new(0))).build().unwrap();
        let mut setup = Setup::new(kind, Executor::BlockOn, |builder| builder);
        setup.engine = engine;
        let path = setup.path("file");
        std::fs::write(&path, pattern(0, 4 * PAGE)).unwrap();
        let file = open(&setup.engine, &path, false);
        block_on(test(&setup, &file));
        reap_until_idle(&setup.engine);
    }
}

fn errnos<T>(results: Vec<io::Result<T>>) -> Vec<i32> {
    results
        .into_iter()
        .map(|result| result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0))
        .collect()
}

/// Faults do not reach what falls back to threads: `sync_file_range(2)` on kaio.
fn faults_reach_ranges(setup: &Setup) -> bool {
    if setup.kind == BackendKind::Kaio {
        println!("skipped: kaio: injected faults do not reach sync_file_range(2)");
    }
    setup.kind != BackendKind::Kaio
}

#[test]
fn an_error_reaches_all_who_wait() {
    let fail = |plan: FaultPlan| {
        let first = FaultStep::Fdatasync(0);
        plan.fail(first, libc::EIO).late(first, Late::Enters(200))
    };
    with_faults("an_error_reaches_all_who_wait", fail, async |setup, file| {
        let clone = file.try_clone().await.unwrap();
        let before = setup.counts().pushed;
        let syncs = (0..16).map(|n| if n % 2 == 0 { file.sync_data() } else { clone.sync_data() });
        assert_eq!(errnos(join_all(syncs).await), [libc::EIO; 16]);
        let syncs = setup.counts().pushed - before;
        assert_eq!(syncs, 1, "syncs for 16 callers at once");
        // It was reported, and affects no later sync.
        assert_eq!(errnos(vec![file.sync_data().await, clone.sync_all().await]), [0, 0]);
    });
}

#[test]
fn an_error_that_comes_at_once_reaches_all_who_wait() {
    let fail = |plan: FaultPlan| plan.fail(FaultStep::Fdatasync(0), libc::EIO);
    with_faults("an_error_that_comes_at_once", fail, async |_, file| {
        let syncs = (0..16).map(|_| file.sync_data());
        assert_eq!(errnos(join_all(syncs).await), [libc::EIO; 16]);
        assert_eq!(errnos(vec![file.sync_data().await]), [0]);
    });
}

/// A caller that yields to other tasks before anything else waits, too.
#[test]
fn an_error_reaches_a_caller_that_yields_first() {
    let fail = |plan: FaultPlan| plan.fail(FaultStep::Fdatasync(0), libc::EIO);
    for reads in 0..20 {
        with_faults("an_error_reaches_a_caller_that_yields", fail, async |_, file| {
            for _ in 0..reads {
                file.read_at(vec![0; 4 * PAGE], 0).await.0.unwrap();
            }
            let mut first = pin!(file.sync_data());
            assert!(poll_immediate(&mut first).await.is_none());
            assert_eq!(errnos(vec![file.sync_data().await, first.await]), [libc::EIO; 2]);
        });
    }
}

/// A sync that began before a caller's write does not cover it, so the caller waits for the next.
#[test]
fn a_sync_in_flight_serves_nobody_who_comes_later() {
    let late = |plan: FaultPlan| plan.late(FaultStep::Fdatasync(0), Late::Enters(4));
    with_manual_faults("later", late, async |setup, file| {
        let before = setup.counts().pushed;
        let (mut first, mut second) = (pin!(file.sync_data()), pin!(file.sync_data()));
        // The first one yields, then begins.
        for _ in 0..2 {
            assert!(poll_immediate(&mut first).await.is_none());
        }
        assert!(poll_immediate(&mut second).await.is_none());
        let mut done = (None, None);
        while done.0.is_none() || done.1.is_none() {
            setup.engine.reap();
            if done.0.is_none() {
                done.0 = poll_immediate(&mut first).await;
            }
            if done.1.is_none() {
                done.1 = poll_immediate(&mut second).await;
                assert!(done.1.is_none() || done.0.is_some(), "the later one ended first");
            }
        }
        assert_eq!(setup.counts().pushed - before, 2);
    });
}

/// One caller who needs metadata makes the shared sync an fsync; the result serves all.
#[test]
fn sync_all_serves_sync_data() {
    // All of fsync and fdatasync: the second one is the shared one.
    let fail = |plan: FaultPlan| {
        plan.late(FaultStep::Opcode(Opcode::Fsync, 0), Late::Enters(2))
            .fail(FaultStep::Opcode(Opcode::Fsync, 1), libc::EIO)
            // If it were an fdatasync, it would have another error.
            .fail(FaultStep::Fdatasync(1), libc::ENOSPC)
    };
    with_faults("sync_all_serves_sync_data", fail, async |setup, file| {
        let before = setup.counts().pushed;
        let mut first = pin!(file.sync_data());
        for _ in 0..2 {
            assert!(poll_immediate(&mut first).await.is_none(), "it yields, then begins");
        }
        let (first, data, all, more) =
            futures::join!(first, file.sync_data(), file.sync_all(), file.sync_data());
        assert_eq!(setup.counts().pushed - before, 2);
        assert_eq!(errnos(vec![first, data, all, more])[1..], [libc::EIO; 3]);
    });
}

/// `sync_range` and durable writes take the kernel's report, and a sync still returns it, once.
#[test]
fn errors_of_other_operations_are_remembered() {
    let fail = |plan: FaultPlan| {
        plan.fail(FaultStep::Opcode(Opcode::SyncRange, 0), libc::EIO)
            .fail(FaultStep::Opcode(Opcode::SyncRange, 1), libc::EINVAL)
            .fail(FaultStep::Fdatasync(2), libc::ENOSPC)
    };
    with_faults("errors_of_other_operations_are_remembered", fail, async |setup, file| {
        if faults_reach_ranges(setup) {
            assert_eq!(errno(file.sync_range(0, 0).await), libc::EIO);
            assert_eq!(errno(file.sync_data().await), libc::EIO);
            file.sync_data().await.unwrap();
            // A call that the kernel refuses has not looked at the file.
            assert_eq!(errno(file.sync_range(0, 0).await), libc::EINVAL);
        } else {
            file.sync_data().await.unwrap();
            file.sync_data().await.unwrap();
        }
        // A durable write returns errors of its own time, and leaves the report to a sync.
        assert_eq!(errno(file.write_durable_at(vec![1], 0).await.0), libc::ENOSPC);
        file.write_durable_at(vec![1], 0).await.0.unwrap();
        assert_eq!(errno(file.sync_all().await), libc::ENOSPC);
        file.sync_all().await.unwrap();
    });
}

/// The sync of a dropped future may still take the report.
#[test]
fn an_error_of_a_dropped_sync_is_remembered() {
    for polls in 1..4 {
        // (A server may answer that to the write of data which it had allowed before.)
        let fail = |plan: FaultPlan| plan.fail(FaultStep::Fdatasync(0), libc::EROFS);
        with_manual_faults("a dropped sync", fail, async |setup, file| {
            {
                let mut sync = pin!(file.sync_data());
                for _ in 0..polls {
                    // Completed or not: the result is not taken, unless it is there at once.
                    if setup.counts().pushed == 0
                        && let Some(result) = poll_immediate(&mut sync).await
                    {
                        return assert_eq!(errno(result), libc::EROFS);
                    }
                    setup.engine.reap();
                }
            }
            reap_until_idle(&setup.engine);
            let mut sync = pin!(file.sync_data());
            let mut result = None;
            while result.is_none() {
                result = poll_immediate(&mut sync).await;
                setup.engine.reap();
            }
            // A sync that was cancelled before it began has met no error, and the next one is the
            // first.
            assert_eq!(errno(result.unwrap()), libc::EROFS, "{}: after {polls} polls", setup.kind);
        });
    }
}

/// Another sync returns the error while this one still waits for what it is to sync: the lost bytes
/// may be its own.
#[test]
fn an_error_meanwhile_reaches_a_sync_that_waits_for_writes() {
    let fail = |plan: FaultPlan| plan.fail(FaultStep::Fdatasync(0), libc::EIO);
    with_faults("an error meanwhile", fail, async |setup, file| {
        let mut writer = file.clone().writer();
        writer.write_all(b"12345").await.unwrap();
        let mut sync = pin!(writer.sync_data());
        assert!(poll_immediate(&mut sync).await.is_none());
        assert_eq!(errno(file.sync_data().await), libc::EIO);
        assert_eq!(errno(sync.await), libc::EIO, "{}", setup.kind);
        file.sync_data().await.unwrap();
    });
}

/// Whoever is dropped, the others get their result; if all are, the sync is cancelled.
#[test]
fn dropped_callers_do_not_cancel_for_others() {
    let late = |plan: FaultPlan| {
        plan.late(FaultStep::Fdatasync(0), Late::Enters(8))
            .late(FaultStep::Fdatasync(1), Late::Enters(8))
            .late(FaultStep::Fdatasync(2), Late::Forever)
    };
    with_manual_faults("dropped_callers", late, async |setup, file| {
        let mut syncs: Vec<_> = (0..8).map(|_| Box::pin(file.sync_data())).collect();
        // The first one yields, and then begins before the others come.
        assert!((&mut syncs[0]).now_or_never().is_none());
        for sync in &mut syncs {
            assert!(sync.now_or_never().is_none());
        }
        // The one that has started the first sync, and some of those that wait for the second.
        drop(syncs.remove(6));
        syncs.drain(..3);
        for sync in syncs {
            let mut sync = pin!(sync);
            while poll_immediate(&mut sync).await.map(Result::unwrap).is_none() {
                setup.engine.reap();
            }
        }
        // A sync that hangs ends when its only caller is dropped, and the next one works.
        let mut hangs = Box::pin(file.sync_data());
        while setup.counts().in_flight == 0 {
            assert!(poll_immediate(&mut hangs).await.is_none());
        }
        drop(hangs);
        let mut next = pin!(file.sync_data());
        while poll_immediate(&mut next).await.map(Result::unwrap).is_none() {
            setup.engine.reap();
        }
    });
}

/// A sync that succeeds while another operation on the file is in flight returns that one's error.
#[test]
fn an_error_of_an_operation_in_flight_reaches_a_sync_that_succeeds() {
    let fail = |plan: FaultPlan| {
        let range = FaultStep::Opcode(Opcode::SyncRange, 0);
        plan.fail(range, libc::EIO).late(range, Late::Enters(8))
    };
    with_faults("overlap", fail, async |setup, file| {
        if faults_reach_ranges(setup) {
            let (range, sync) = futures::join!(file.sync_range(0, 0), file.sync_data());
            assert_eq!((errno(range), errno(sync)), (libc::EIO, libc::EIO));
            file.sync_data().await.unwrap();
        }
    });
}

/// The log's own sync may succeed because another one took the report.
#[test]
fn an_error_of_a_sync_beside_it_ends_a_log() {
    let fail = |plan: FaultPlan| {
        let first = FaultStep::Fdatasync(0);
        plan.fail(first, libc::EIO).late(first, Late::Enters(200))
    };
    with_faults("log", fail, async |_, file| {
        let log = LogWriter::new(file.clone(), 0).unwrap();
        let (sync, record) = futures::join!(file.sync_data(), log.append(b"record".to_vec()));
        assert_eq!((errno(sync), errno(record)), (libc::EIO, libc::EIO));
        assert!(log.append(b"record".to_vec()).await.is_err(), "the log has ended");
    });
}

/// Durable writes share the sync that follows them, and all of them learn of its error.
#[test]
fn durable_writes_share_their_sync() {
    let fail = |plan: FaultPlan| {
        let first = FaultStep::Fdatasync(0);
        plan.fail(first, libc::EIO).late(first, Late::Enters(200))
    };
    with_faults("durable_writes_share_their_sync", fail, async |setup, file| {
        let write = |at: u64| async move { file.write_durable_at(vec![7; 16], at * 16).await.0 };
        // So few that all begin before the task yields.
        let results = errnos(join_all((0..16).map(write)).await);
        assert_eq!(results, [libc::EIO; 16], "{}", setup.kind);
        let before = setup.counts().pushed;
        assert_eq!(errnos(join_all((0..64).map(write)).await), [0; 64]);
        let syncs = setup.counts().pushed - before - 64;
        assert!(syncs <= 32, "{syncs} syncs for 64 writes");
    });
}

/// On each executor: tasks that write and sync need far fewer syncs than there are calls.
#[test]
fn tasks_share() {
    for kind in available() {
        for executor in [Executor::TokioCurrent, Executor::TokioThreads, Executor::BlockOn] {
            let _watch = Watchdog::new(&format!("{kind} {executor:?} tasks_share"));
            let setup = Setup::new(kind, executor, |builder| builder);
            setup.run(|setup| async move {
                let file = setup.file("file", &pattern(0, 4 * PAGE), false).await;
                let before = setup.counts().pushed;
                let tasks = (0..32u64).map(|task| {
                    let file = file.clone();
                    setup.spawn(async move {
                        for round in 0..8 {
                            file.write_all_at(vec![1; 16], (task * 8 + round) * 16).await.0?;
                            file.sync_data().await?;
                        }
                        io::Result::Ok(())
                    })
                });
                let tasks: Vec<_> = tasks.collect();
                assert_eq!(errnos(join_all(tasks).await), [0; 32]);
                let syncs = setup.counts().pushed - before - 32 * 8;
                println!("{kind}, {executor:?}: {syncs} syncs for {} calls", 32 * 8);
                assert!(syncs < 32 * 8 / 2);
            });
        }
    }
}

/// A future that has yielded before it pushed its operation, and is not polled again, holds back no
/// sync.
#[test]
fn a_future_that_has_not_pushed_holds_back_nobody() {
    with_faults(
        "unpushed",
        |plan| plan,
        async |_, file| {
            // More than one poll of a task may push.
            let mut ranges: Vec<_> =
                (0..600).map(|_| Box::pin(file.sync_range(0, PAGE as u64))).collect();
            let mut ended = Vec::new();
            for range in &mut ranges {
                ended.push(poll_immediate(range).await.is_some());
            }
            let other = file.clone();
            let (sender, receiver) = std::sync::mpsc::channel();
            std::thread::spawn(move || sender.send(block_on(other.sync_data())));
            let synced = receiver.recv_timeout(std::time::Duration::from_secs(20));
            synced.expect("the sync waits for an operation that was not pushed").unwrap();
            let all = ranges.into_iter().zip(ended).filter(|(_, ended)| !ended);
            for result in join_all(all.map(|(range, _)| range)).await {
                result.unwrap();
            }
        },
    );
}
