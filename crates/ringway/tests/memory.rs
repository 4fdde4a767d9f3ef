//! Memory of reads: a read does not touch memory that it does not fill, and keeping a result takes
//! little more than its bytes. The only test of this binary, because it measures the memory of the
//! whole process.

use ringway::fs::File;
use ringway::{BackendKind, Engine};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const MIB: usize = 1 << 20;

/// Resident bytes of this process: `VmRSS` now, or `VmHWM` at most.
fn resident(what: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn memory_is_used_by_what_was_read() {
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        for try_cached in [true, false] {
            match Engine::builder().backend(kind).shards(1).try_cached(try_cached).build() {
                Ok(engine) => of(&engine),
                Err(error) => println!("skipped: {kind}: {error}"),
            }
        }
    }
}

fn of(engine: &Engine) {
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
            "memory was touched that nothing was read into"
        );

        let before = resident("VmRSS");
        let mut kept = Vec::new();
        for _ in 0..500 {
            kept.push(file.read(0..300 << 10).await.unwrap());
        }
        let used = resident("VmRSS") - before;
        let asked = 500 * (300 << 10);
        assert!(used < asked + asked / 8 + 16 * MIB, "{used} bytes for {asked}");
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
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let both = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let pipe = File::from_fd(both.into(), engine);
    let mut read = pin!(pipe.read(0..1 << 30));
    assert!(matches!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    assert!(resident("VmHWM") - before < 32 * MIB, "the memory was touched in a poll");
}
