//! Durable writes, each with its sync: on every backend, with faults in each step, and dropped at
//! any moment.

use crate::common::executor::Executor;
use crate::common::setup::Setup;
use crate::common::watchdog::Watchdog;
use crate::common::{PAGE, available, errno, open, pattern, reap_until_idle};
use futures::executor::block_on;
use futures::future::{join_all, poll_immediate};
use ringway::fs::File;
use ringway::{AlignedBuffer, BackendKind, EngineBuilder, FaultPlan, Position, Reaping};
use ringway_core::op::Opcode;
use ringway_core::{FaultStep, Late};
use std::io;

fn page(mark: u8) -> AlignedBuffer {
    let mut page = AlignedBuffer::new(PAGE, PAGE);
    page.fill(mark);
    page
}

/// Whether injected faults reach a write to this file. On kaio, buffered writes fall back to
/// threads, which faults do not reach.
fn faults_reach(setup: &Setup, file: &File) -> bool {
    let reach = setup.kind != BackendKind::Kaio;
    if !reach {
        let what = if file.is_direct() { "direct writes on ext4" } else { "buffered writes" };
        println!("skipped: kaio: injected faults do not reach {what}, which threads make");
    }
    reach
}

/// Runs a test on each backend with a file of 64 pages, buffered and direct.
fn on_each_file(
    name: &str,
    change: fn(EngineBuilder) -> EngineBuilder,
    test: impl Fn(&Setup, File),
) {
    for kind in available() {
        for direct in [false, true] {
            let _watch = Watchdog::new(&format!("{kind} {name}, direct: {direct}"));
            let setup = Setup::new(kind, Executor::BlockOn, change);
            let path = setup.path("file");
            std::fs::write(&path, pattern(0, 64 * PAGE)).unwrap();
            let file = open(&setup.engine, &path, direct);
            test(&setup, file);
            reap_until_idle(&setup.engine);
        }
    }
}

fn content(setup: &Setup) -> Vec<u8> {
    std::fs::read(setup.path("file")).unwrap()
}

#[test]
fn it_writes_everything() {
    on_each_file(
        "it_writes_everything",
        |builder| builder,
        |setup, file| {
            block_on(async {
                // A short write, one that is split, and several at once, more than fit in flight.
                file.write_durable_at(page(1), 0).await.0.unwrap();
                let mut long = AlignedBuffer::new(4 << 20, PAGE);
                long.fill(2);
                file.write_durable_at(long, 64 * PAGE as u64).await.0.unwrap();
                let writes =
                    (1..64u64).map(|at| file.write_durable_at(page(at as u8), at * PAGE as u64));
                assert!(
                    join_all(writes)
                        .await
                        .into_iter()
                        .all(|(result, buffer)| result.is_ok() && buffer.len() == PAGE)
                );
            });
            let found = content(setup);
            assert_eq!(found.len(), 64 * PAGE + (4 << 20));
            assert!(found[..PAGE].iter().all(|byte| *byte == 1));
            assert!(
                (1..64).all(|at| found[at * PAGE..(at + 1) * PAGE]
                    .iter()
                    .all(|byte| *byte == at as u8))
            );
            assert!(found[64 * PAGE..].iter().all(|byte| *byte == 2));
        },
    );
}

#[test]
fn files_without_sync_are_not_written() {
    on_each_file(
        "files_without_sync_are_not_written",
        |builder| builder,
        |setup, file| {
            let (reader, writer) = io::pipe().unwrap();
            let writer = File::from_fd(writer.into(), &setup.engine);
            let (result, buffer) =
                block_on(writer.write_durable_at(vec![7; 10], Position::Current));
            assert_eq!(
                (result.unwrap_err().kind(), buffer),
                (io::ErrorKind::InvalidInput, vec![7; 10])
            );
            drop((reader, writer));
            if file.is_direct() {
                let (result, _) = block_on(file.write_durable_at(page(1), 7));
                assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            }
            assert_eq!(content(setup), pattern(0, 64 * PAGE));
        },
    );
}

/// An error of the sync reaches the caller. No retry hides it.
#[test]
fn a_sync_error_reaches_the_caller() {
    let faults = |builder: EngineBuilder| {
        let plan = FaultPlan::new(0).fail(FaultStep::Fdatasync(0), libc::EIO);
        builder.shards(1).faults(plan.fail(FaultStep::Opcode(Opcode::WriteDsync, 0), libc::EIO))
    };
    on_each_file("a_sync_error_reaches_the_caller", faults, |setup, file| {
        if file.is_direct() && !faults_reach(setup, &file) {
            return;
        }
        let (result, buffer) = block_on(file.write_durable_at(page(1), 0));
        assert_eq!((errno(result), buffer.len()), (libc::EIO, PAGE));
        // The error affects no later write.
        block_on(file.write_durable_at(page(2), 0)).0.unwrap();
        assert_eq!(setup.counts().orphaned, 0);
    });
}

/// An error of the write, in its first part or its rest, reaches the caller, and the sync does not
/// begin.
#[test]
fn a_write_error_reaches_the_caller() {
    fn no_dsync(plan: FaultPlan) -> FaultPlan {
        plan.fail(FaultStep::Opcode(Opcode::WriteDsync, 0), libc::EOPNOTSUPP)
    }
    let at_once = |builder: EngineBuilder| {
        let plan = FaultPlan::new(0).fail(FaultStep::Opcode(Opcode::Write, 0), libc::ENOSPC);
        builder.shards(1).faults(no_dsync(plan.fail(FaultStep::Fdatasync(0), libc::EIO)))
    };
    on_each_file("a_write_error_reaches_the_caller", at_once, |setup, file| {
        if !faults_reach(setup, &file) {
            return;
        }
        assert_eq!(errno(block_on(file.write_durable_at(page(1), 0)).0), libc::ENOSPC);
        // This call makes the first sync, which fails.
        assert_eq!(errno(block_on(file.write_durable_at(page(1), 0)).0), libc::EIO);
    });
    let in_the_rest = |builder: EngineBuilder| {
        let plan = FaultPlan::new(0)
            .cut(FaultStep::Opcode(Opcode::Write, 0))
            .late(FaultStep::Opcode(Opcode::Write, 0), Late::Last);
        let plan = plan.fail(FaultStep::Opcode(Opcode::Write, 1), libc::ENOSPC);
        builder.shards(1).faults(no_dsync(plan.fail(FaultStep::Fdatasync(0), libc::EIO)))
    };
    on_each_file("a_write_error_in_the_rest_reaches_the_caller", in_the_rest, |setup, file| {
        if !faults_reach(setup, &file) {
            return;
        }
        let two = AlignedBuffer::new(2 * PAGE, PAGE);
        assert_eq!(errno(block_on(file.write_durable_at(two, 0)).0), libc::ENOSPC);
        assert_eq!(errno(block_on(file.write_durable_at(page(1), 0)).0), libc::EIO);
    });
}

/// A short write is continued before the sync begins. Where `RWF_DSYNC` is refused, a sync follows
/// the write.
#[test]
fn a_short_write_is_continued() {
    let faults = |builder: EngineBuilder| {
        let mut plan =
            FaultPlan::new(0).fail(FaultStep::Opcode(Opcode::WriteDsync, 0), libc::EOPNOTSUPP);
        for write in 0..4 {
            plan = plan
                .cut(FaultStep::Opcode(Opcode::Write, write))
                .late(FaultStep::Opcode(Opcode::Write, write), Late::Enters(3));
        }
        builder.shards(1).faults(plan.retryable(200))
    };
    on_each_file("a_short_write_is_continued", faults, |setup, file| {
        let mut buffer = AlignedBuffer::new(8 * PAGE, PAGE);
        buffer.fill(9);
        block_on(file.write_durable_at(buffer, 0)).0.unwrap();
        assert!(content(setup)[..8 * PAGE].iter().all(|byte| *byte == 9));
    });
}

/// Dropped after any number of polls, with a delayed sync: the counts add up, and nothing is left.
#[test]
fn dropped_at_any_moment() {
    let late = |builder: EngineBuilder| {
        let late = |plan: FaultPlan, sync| plan.late(FaultStep::Fdatasync(sync), Late::Enters(2));
        builder.shards(1).reaping(Reaping::Manual).faults((0..40).fold(FaultPlan::new(0), late))
    };
    on_each_file("dropped_at_any_moment", late, |setup, file| {
        for polls in 0..20 {
            for len in [PAGE, 40 * PAGE] {
                let mut write = Box::pin(file.write_durable_at(AlignedBuffer::new(len, PAGE), 0));
                for _ in 0..=polls {
                    if block_on(async { poll_immediate(&mut write).await.is_some() }) {
                        break;
                    }
                    setup.engine.reap();
                }
            }
        }
        reap_until_idle(&setup.engine);
        let mut sync = Box::pin(file.sync_all());
        while block_on(async { poll_immediate(&mut sync).await.is_none() }) {
            setup.engine.reap();
        }
    });
}
