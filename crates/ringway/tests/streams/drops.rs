//! Streams that are dropped in the middle: every operation is answered, and what a writer has
//! accepted is written, or its loss reported.

use crate::common::{open, pattern, wait_for, wait_readable, wait_until_idle};
use crate::files::{engines, failing, sample};
use ringway::{BackendKind, Engine, FaultPlan};
use ringway_core::op::Opcode;
use ringway_core::{FaultStep, Late};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_may_be_dropped_at_any_point() {
    let (_dir, path) = sample(&pattern(0, 2 << 20));
    for engine in engines() {
        for direct in [false, true] {
            for blocks in 0..4 {
                let mut reader = open(engine, &path, direct).reader().chunk(64 << 10).read_ahead(8);
                for _ in 0..blocks {
                    reader.next_block().await.unwrap();
                }
                let mut next = Box::pin(reader.next_block());
                let _ = futures::poll!(&mut next);
                drop(next);
                drop(reader);
                wait_until_idle(engine);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_may_be_dropped_at_any_point() {
    let (_dir, path) = sample(b"");
    for engine in engines() {
        for direct in [false, true] {
            for chunks in 1..5 {
                let mut writer =
                    open(engine, &path, direct).writer().chunk(16 << 10).write_behind(2);
                {
                    let bytes = vec![1; chunks * (16 << 10) - 5];
                    let mut write = Box::pin(writer.write_all(&bytes));
                    let _ = futures::poll!(&mut write);
                }
                writer.abandon();
                wait_until_idle(engine);
            }
        }
    }
}

/// Nothing that was accepted is lost, whatever is in flight, unless the writer is abandoned.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dropped_writer_has_accepted_is_written() {
    let content = pattern(0, 100_001);
    for engine in engines() {
        for direct in [false, true] {
            let (_dir, path) = sample(b"");
            let mut writer = open(engine, &path, direct).writer().chunk(16 << 10).write_behind(2);
            writer.write_all(&content).await.unwrap();
            drop(writer);
            wait_until_idle(engine);
            // With direct I/O, the last block is truncated after it is written.
            wait_for("the content", || std::fs::read(&path).unwrap() == content);
            wait_until_idle(engine);
        }
        let (_dir, path) = sample(b"");
        let mut writer = open(engine, &path, false).writer();
        writer.write_all(b"discarded").await.unwrap();
        writer.abandon();
        wait_until_idle(engine);
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}

/// The error of what a dropped handle had accepted reaches everybody who waits for it, also with a
/// duplicate of the descriptor, and is told once.
#[tokio::test]
async fn all_who_wait_for_a_dropped_writer_learn_of_its_error() {
    let (_dir, path) = sample(b"");
    let file = open(&failing(1000), &path, false);
    // (A duplicate of a file whose handles had left nothing so far.)
    let duplicate = file.try_clone().await.unwrap();
    let mut writer = file.clone().writer();
    writer.write_all(b"12345").await.unwrap();
    drop(writer);
    let (one, two) = futures::join!(file.sync_all(), duplicate.sync_data());
    for result in [one, two] {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    drop(duplicate);
    // (A sync would fail as well: all operations do.)
    assert!(file.into_std().await.is_ok(), "it was told before");
}

/// Another sync returns the error of a dropped writer while this one still flushes its own.
#[tokio::test]
async fn an_error_of_a_dropped_writer_meanwhile_reaches_a_sync_that_flushes() {
    let (_dir, path) = sample(b"");
    // The first write fails, and the second is late.
    let plan = FaultPlan::new(0)
        .fail(FaultStep::Opcode(Opcode::Write, 0), libc::EIO)
        .late(FaultStep::Opcode(Opcode::Write, 1), Late::Enters(200));
    let engine = Engine::builder().backend(BackendKind::Threads).faults(plan).shards(1);
    let file = open(&engine.build().unwrap(), &path, false);
    let mut dropped = file.clone().writer();
    dropped.write_all(b"12345").await.unwrap();
    drop(dropped);
    let mut writer = file.clone().writer();
    writer.write_all(b"12345").await.unwrap();
    let mut sync = Box::pin(writer.sync_data());
    assert!(futures::poll!(&mut sync).is_pending());
    assert_eq!(file.sync_data().await.unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(sync.await.unwrap_err().raw_os_error(), Some(libc::EIO));
    file.sync_data().await.unwrap();
}

/// A writer whose error nobody has seen, since the call that met it had accepted bytes.
#[tokio::test]
async fn an_error_that_a_dropped_writer_held_is_one_of_the_next_sync() {
    let (_dir, path) = sample(b"");
    let file = open(&failing(1000), &path, false);
    let mut writer = file.clone().writer().chunk(4096).write_behind(1);
    writer.write_all(&pattern(0, 5 * 4096)).await.unwrap();
    drop(writer);
    assert_eq!(file.close().await.unwrap_err().raw_os_error(), Some(libc::EIO));
}

/// The child process of `a_dropped_writer_reports_lost_bytes`.
#[test]
#[ignore = "runs in the child process of the next test"]
fn child_drops_a_writer() {
    let (_dir, path) = sample(b"");
    futures::executor::block_on(async {
        // All writes fail.
        let mut writer = open(&failing(1000), &path, false).writer();
        writer.write_all(b"12345").await.unwrap();
        match std::env::var("RINGWAY_DROP").as_deref() {
            Ok("reported") => drop(writer.flush().await.unwrap_err()),
            Ok("abandoned") => writer.abandon(),
            _ => {
                let engine = writer.file().engine().clone();
                drop(writer);
                wait_until_idle(&engine);
                // It reports after the operation has ended. Whoever waits for that closes a pipe.
                wait_readable(std::io::stdin().as_fd(), Duration::from_secs(20));
            }
        }
    });
}

#[test]
fn a_dropped_writer_reports_lost_bytes() {
    let reports_loss = |how| {
        let arguments = ["--exact", "drops::child_drops_a_writer", "--ignored", "--nocapture"];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .env("RINGWAY_DROP", how)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let reports = lines.any(|line| line.contains("dropped with 5 unwritten bytes"));
        drop(child.stdin.take());
        lines.for_each(drop);
        child.wait().unwrap();
        reports
    };
    assert_eq!(reports_loss("dropped"), cfg!(debug_assertions));
    assert!(!reports_loss("reported") && !reports_loss("abandoned"));
}
