//! Memory of reads: a read does not touch memory that it does not fill, and keeping a result takes
//! little more than its bytes. The only test of this binary, because it measures the memory of the
//! whole process.

// On Linux only: the helpers in `common` use its interfaces (direct I/O, `/proc`, fork, seccomp).
// `portable.rs` has the tests for every system.
#![cfg(target_os = "linux")]

mod common;

use common::{available, fifo, poll_once, resident};
use ringway::fs::File;
use ringway::{BackendKind, Engine};
use std::env;
use std::pin::pin;
use std::process::Command;

const MIB: usize = 1 << 20;

/// Tells a child process which engine it makes: a backend, and whether it tries cached reads first.
const CASE: &str = "RINGWAY_MEMORY_CASE";

/// A process for each: memory that one has freed, and the allocator has kept, would serve the next.
#[test]
fn reads_use_memory_only_for_their_bytes() {
    if let Ok(case) = env::var(CASE) {
        let (kind, try_cached) = case.split_once(' ').unwrap();
        let kind: BackendKind = kind.parse().unwrap();
        let builder = Engine::builder().shards(1).backend(kind);
        check(&builder.try_cached(try_cached == "true").build().unwrap());
        return println!("checked {case}");
    }
    for kind in available() {
        for try_cached in [true, false] {
            let case = format!("{kind} {try_cached}");
            let mut child = Command::new(env::current_exe().unwrap());
            child.args(["reads_use_memory_only_for_their_bytes", "--exact", "--nocapture"]);
            let output = child.env(CASE, &case).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{case}: {}: {text}{errors}", output.status);
            assert!(text.contains(&format!("checked {case}")), "{case} did not run: {text}");
        }
    }
}

fn check(engine: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; 300 << 10]).unwrap();
    let file = File::from_fd(std::fs::File::open(&path).unwrap().into(), engine);
    futures::executor::block_on(async {
        let before = resident("VmHWM");
        for len in [4 * MIB, 5 * MIB, 64 * MIB, 4096 * MIB] {
            let block = file.read(0..len as u64).await.unwrap();
            assert_eq!(block.len(), 300 << 10);
            let parts = file.read_ranges(&[0..len as u64, 10..20]).await.unwrap();
            assert_eq!((parts[0].len(), parts[1].len()), (300 << 10, 10));
        }
        assert!(
            resident("VmHWM") - before < 48 * MIB,
            "a read touched memory that it did not fill"
        );

        let before = resident("VmRSS");
        let mut kept = Vec::new();
        for _ in 0..500 {
            kept.push(file.read(0..300 << 10).await.unwrap());
        }
        let used = resident("VmRSS") - before;
        let requested = 500 * (300 << 10);
        assert!(used < requested + requested / 8 + 16 * MIB, "{used} bytes for {requested}");
        let before = resident("VmRSS");
        let mut small = Vec::new();
        for at in 0..20_000 {
            small.push(file.read(at..at + 100).await.unwrap());
        }
        let used = resident("VmRSS").saturating_sub(before);
        assert!(used < 20_000 * 1024 + 8 * MIB, "{used} bytes for {}", 20_000 * 100);
        assert!(kept.iter().chain(&small).all(|block| block.iter().all(|byte| *byte == 7)));
    });
    // The first poll of a pending read does not touch the memory either.
    let before = resident("VmHWM");
    let path = dir.path().join("fifo");
    fifo(&path);
    let both = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let pipe = File::from_fd(both.into(), engine);
    let mut read = pin!(pipe.read(0..1 << 30));
    assert!(poll_once(read.as_mut()).is_pending());
    assert!(resident("VmHWM") - before < 32 * MIB, "a poll touched the memory");
}
