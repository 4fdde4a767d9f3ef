//! An idle program makes no system calls: unused results, and operations that
//! may wait forever, wake no thread.

use crate::common::process::in_child;
use crate::common::watchdog::Watchdog;
use crate::common::{
    MS, PAGE, available, current_thread, direct, multi_thread, pattern, pipe, put, scratch,
    wait_for,
};
use futures::executor::block_on;
use futures::future::poll_immediate;
use ringway::{AlignedBuffer, Engine, Position};
use std::fs;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Voluntary context switches of all threads of this process, except the watchdog's, which wakes
/// periodically.
fn context_switches() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let of_task = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let mut lines = status.lines();
        if lines.next()?.ends_with("watchdog") {
            return None;
        }
        lines
            .filter_map(|line| {
                line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok()
            })
            .next()
    };
    tasks.filter_map(of_task).sum()
}

/// Asserts that within ten seconds there is a moment of 300 ms with fewer than 6 wakeups.
fn assert_idle(what: &str) {
    let mut last = 0;
    // Pool threads and kernel workers end some time after their last operation.
    for _ in 0..33 {
        let before = context_switches();
        std::thread::sleep(300 * MS);
        last = context_switches().saturating_sub(before);
        if last < 6 {
            return;
        }
    }
    panic!("{what}: {last} wakeups while idle");
}

fn check_idle(test: &str, runtime: fn() -> Option<Runtime>) {
    let name = format!("idle::{test}");
    in_child(
        &name,
        |_| {},
        || {
            let run = |work: &mut dyn FnMut()| match runtime() {
                Some(runtime) => {
                    let _inside = runtime.enter();
                    work();
                }
                None => work(),
            };
            for kind in available() {
                let _watch =
                    Watchdog::with_timeout(&format!("{kind} {test}"), Duration::from_secs(180));
                let dir = scratch();
                let engine = Engine::builder().backend(kind).shards(1).build().unwrap();
                let file = direct(&engine, dir.path(), 256);
                run(&mut || {
                    // A completed read whose future is not polled again.
                    let mut read = Box::pin(file.read_at(AlignedBuffer::new(PAGE, PAGE), 0));
                    _ = block_on(async { poll_immediate(&mut read).await.is_some() });
                    assert_idle(&format!("{kind}, an unused result"));
                    drop(read);
                    // A reader that has read ahead and is not used for a while.
                    let mut reader = file.reader().chunk(4 * PAGE);
                    block_on(async { reader.next_block().await.unwrap() });
                    assert_idle(&format!("{kind}, a paused reader"));
                    drop(reader);
                    // A read that may wait forever.
                    let (end, writer) = pipe(&engine);
                    let mut read = Box::pin(end.read_at(vec![0; 4], Position::Current));
                    block_on(async { assert!(poll_immediate(&mut read).await.is_none()) });
                    assert_idle(&format!("{kind}, a read of a pipe"));
                    put(&writer, &pattern(0, 4));
                    assert_eq!(block_on(read).0.unwrap(), 4);
                    wait_for("in_flight to return to 0", || engine.stats().counts.in_flight == 0);
                    assert_idle(&format!("{kind}, nothing in flight"));
                });
            }
        },
    );
}

#[test]
fn without_a_runtime() {
    check_idle("without_a_runtime", || None);
}

#[test]
fn in_an_idle_runtime() {
    check_idle("in_an_idle_runtime", || Some(multi_thread(2)));
}

#[test]
fn in_an_undriven_runtime() {
    check_idle("in_an_undriven_runtime", || Some(current_thread()));
}
