//! Everyday use on tokio: a program reads what it wrote, and errors are those of the kernel.

// On Linux only: the helpers in `common` use its interfaces (direct I/O, `/proc`, fork, seccomp).
// `portable.rs` has the tests for every system.
#![cfg(target_os = "linux")]

mod common;

use common::{
    build_or_skip, direct, on_each_backend, open, pattern, poll_once, reap_until_idle, scratch,
    wait_for, wait_readable,
};
use ringway::fs::{self, File, OpenOptions};
use ringway::{BackendKind, Block, Coalesce, Engine, Reaping};
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

#[tokio::test]
async fn direct_reads_work_at_any_offset() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    let content: Vec<u8> = (0..30_001u32).map(|at| (at % 251) as u8).collect();
    fs::write(&path, content.clone()).await?;
    File::open(&path).await?.sync_all().await?;
    let file = OpenOptions::new().read(true).direct(true).open(&path).await?;
    for range in [0..1, 511..513, 4095..9000, 29_999..40_000, 30_001..30_002] {
        let wanted = &content[range.start as usize..content.len().min(range.end as usize)];
        assert_eq!(&file.read(range.clone()).await?[..], wanted, "{range:?}");
        let (read, buf) =
            file.read_at(vec![0; (range.end - range.start) as usize], range.start).await;
        assert_eq!(&buf[..read?], wanted, "{range:?}");
    }
    let ranges: Vec<_> = (0..300).map(|at| at * 100..at * 100 + 7).collect();
    for (part, range) in
        file.read_ranges_each(&ranges, Coalesce::never()).await?.into_iter().zip(&ranges)
    {
        assert_eq!(part?[..], content[range.start as usize..range.end as usize]);
    }
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn debug_shows_what_a_file_is() -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let file = File::open("/dev/null").await?;
    let (fd, backend) = (file.as_raw_fd(), file.engine().backend());
    let expected = format!("File {{ fd: {fd}, direct: false, backend: {backend:?}, .. }}");
    assert_eq!(format!("{file:?}"), expected);
    Ok(())
}

#[tokio::test]
async fn a_file_system_without_direct_io_is_named_as_the_reason() {
    let path = "/proc/self/status";
    let error = OpenOptions::new().read(true).direct(true).open(path).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let text = error.to_string();
    assert!(
        text.starts_with("direct I/O refused: EINVAL (Invalid argument): the file or"),
        "{text}"
    );
    assert!(text.contains("; fix: open it without O_DIRECT, or move it to"), "{text}");
    let refusal = error.get_ref().and_then(|inner| inner.downcast_ref::<ringway::Refusal>());
    assert!(refusal.is_some_and(|refusal| !refusal.fix.is_empty()), "{error:?}");
    assert!(OpenOptions::new().read(true).open(path).await.is_ok());
}

/// Sixty-four scattered reads are one submission, and the engine finds most completions without a
/// system call. The best of several tries counts, because completions that arrive one by one can
/// take a further call.
#[tokio::test(flavor = "multi_thread")]
async fn scattered_ranges_are_one_submission() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    let content: Vec<u8> = (0..64 * 65_536u32).map(|at| (at / 4096 % 251) as u8).collect();
    fs::write(&path, content.clone()).await?;
    File::open(&path).await?.sync_all().await?;
    let engine = Engine::builder().build()?;
    if engine.backend() != BackendKind::Uring {
        println!("skipped: only on io_uring are system calls counted this way");
        let is_chosen = std::env::var_os("RINGWAY_BACKEND").is_some();
        assert!(is_chosen || std::env::var_os("CI").is_none(), "io_uring is not available in CI");
        return Ok(());
    }
    let file = OpenOptions::new().read(true).direct(true).engine(&engine).open(&path).await?;
    let ranges: Vec<_> = (0..64).map(|at| at * 65_536..at * 65_536 + 4096).collect();
    learn_queue_size(&engine, &file, &ranges).await?;
    let mut fewest = u64::MAX;
    for _ in 0..20 {
        let before = engine.stats();
        let parts = file.read_ranges(&ranges).await?;
        assert!(
            parts
                .iter()
                .zip(&ranges)
                .all(|(part, range)| part[..] == content[range.start as usize..range.end as usize])
        );
        let after = engine.stats();
        assert_eq!(after.batches.operations - before.batches.operations, 64);
        assert_eq!(after.batches.count - before.batches.count, 1, "several submissions");
        fewest = fewest.min(after.system_calls - before.system_calls);
    }
    assert!(fewest <= 2, "{fewest} system calls");
    Ok(())
}

/// Reads these ranges until one submission has all of them: a thread reads the size of the device's
/// queue when the first transfer comes, and until then it is taken to be small.
async fn learn_queue_size(engine: &Engine, file: &File, ranges: &[Range<u64>]) -> io::Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let before = engine.stats().batches.count;
        file.read_ranges(ranges).await?;
        if engine.stats().batches.count == before + 1 {
            return Ok(());
        }
        assert!(Instant::now() < until, "64 reads are several submissions");
    }
}

/// On io_uring the thread that enters the ring copies data from the page cache. So one enter
/// submits only a few buffered reads, and leaves the rest to the next reap, which this test makes.
/// Direct reads are entered together.
#[test]
fn buffered_reads_are_submitted_in_small_batches() -> io::Result<()> {
    const READS: u64 = 64;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let path = dir.path().join("file");
    std::fs::File::create(&path)?.set_len(READS << 20)?;
    // While this file is open, the size of its device's queue stays known.
    let other = Engine::builder().shards(1).build()?;
    let known = open(&other, &path, true);
    let ranges: Vec<_> = (0..READS).map(|at| at << 20..(at << 20) + 4096).collect();
    futures::executor::block_on(learn_queue_size(&other, &known, &ranges))?;
    for kind in [BackendKind::Uring, BackendKind::Threads] {
        // The length of the reads, whether they are direct, and how many of them one enter submits.
        let at_most = |some| if kind == BackendKind::Uring { some } else { READS };
        for (len, direct, most) in
            [(4096, true, READS), (4096, false, at_most(16)), (32 << 10, false, at_most(4))]
        {
            // Every read is to be an operation.
            let builder = Engine::builder().shards(1).reaping(Reaping::Manual).try_cached(false);
            let Some(engine) = build_or_skip(kind, builder) else { continue };
            let file = open(&engine, &path, direct);
            let ranges: Vec<_> = (0..READS).map(|at| at << 20..(at << 20) + len).collect();
            let mut reads = Box::pin(file.read_ranges(&ranges));
            let mut cx = Context::from_waker(Waker::noop());
            let mut ready = Poll::Pending;
            // The task may yield while it allocates buffers, before it submits the reads.
            while engine.stats().counts.pushed == 0 {
                ready = reads.as_mut().poll(&mut cx);
            }
            // Each reap enters once: no call enters several times in a row.
            let mut entered = 0;
            loop {
                let batches = engine.stats().batches;
                assert!(
                    batches.operations - entered <= most,
                    "{kind}, {len}, {direct}: {batches:?} after {entered}"
                );
                assert!(batches.largest <= most, "{kind}, {len}, {direct}: {batches:?}");
                assert!(
                    batches.operations > entered || entered == READS,
                    "{kind}, {len}, {direct}: no progress"
                );
                entered = batches.operations;
                if let Poll::Ready(parts) = ready {
                    assert!(parts?.iter().all(
                        |part| part.len() == len as usize && part.iter().all(|byte| *byte == 0)
                    ));
                    break;
                }
                assert!(
                    wait_readable(engine.readable()?, Duration::from_secs(20)),
                    "{kind}, {len}, {direct}: no completion"
                );
                engine.reap();
                ready = reads.as_mut().poll(&mut cx);
            }
            assert_eq!(entered, READS);
        }
    }
    Ok(())
}

/// Pooled memory is counted from the start of a read until its last block is dropped, wherever that
/// is, and until the kernel has ended a cancelled read.
#[test]
fn pooled_memory_is_counted() {
    on_each_backend("pooled_memory_is_counted", |kind| {
        let dir = scratch();
        let builder = Engine::builder().backend(kind).reaping(Reaping::Manual);
        let engine = builder.shards(1).pool_bytes(64 << 10).build().unwrap();
        let file = direct(&engine, dir.path(), 64);
        let pool = || engine.stats().pool;
        assert_eq!((pool().max_free, pool().max_pooled), (64 << 10, 256 << 10));
        let finish = |read: &mut (dyn Future<Output = io::Result<Block>> + Unpin)| {
            let mut block = None;
            wait_for("the read", || {
                engine.reap();
                if let Poll::Ready(read) = poll_once(Pin::new(&mut *read)) {
                    block = Some(read.unwrap());
                }
                block.is_some()
            });
            block.unwrap()
        };
        let mut read = Box::pin(file.read(0..5 * 4096));
        if poll_once(read.as_mut()).is_pending() {
            assert_eq!(pool().in_use, 5 * 4096, "in flight");
            let block = finish(&mut read);
            assert_eq!((block.len(), block.retained()), (5 * 4096, 5 * 4096));
        }
        drop(read);
        assert_eq!((pool().in_use, pool().free), (0, 5 * 4096));
        // A cancelled read's buffer is counted until the queue frees it.
        let mut dropped = Box::pin(file.read(4096..6 * 4096));
        let was_pending = poll_once(dropped.as_mut()).is_pending();
        drop(dropped);
        reap_until_idle(&engine);
        let free = if was_pending { 0 } else { 5 * 4096 };
        assert_eq!((pool().in_use, pool().free), (0, free), "{kind}");
        // A consumer that keeps more than the bound.
        let blocks: Vec<_> = (0..20)
            .map(|at| finish(&mut Box::pin(file.read(at * 4096..(at + 4) * 4096))))
            .collect();
        let now = pool();
        assert_eq!(now.in_use + now.free, 20 * 16384 + free);
        assert!(now.beyond >= 4 * 16384 && now.in_use - now.beyond <= now.max_pooled, "{now:?}");
        assert_eq!(now.beyond_count, now.beyond / 16384);
        for (at, block) in blocks.iter().enumerate() {
            assert_eq!(block[..], pattern(at as u64 * 4096, 16384));
        }
        let slices: Vec<_> = blocks.iter().map(|block| block.slice(5..10)).collect();
        std::thread::spawn(move || drop(blocks)).join().unwrap();
        assert_eq!(pool().in_use, now.in_use, "the slices keep it");
        assert!(format!("{:?} {engine:?}", engine.stats()).contains("beyond_count"));
        let mut slices = slices.into_iter();
        let outlives = slices.next().unwrap();
        std::thread::spawn(move || drop(slices)).join().unwrap();
        let now = pool();
        assert_eq!((now.in_use, now.beyond), (16384, 0));
        assert!(now.free <= now.max_free);
        drop((file, engine));
        assert_eq!(outlives, pattern(5, 5));
    });
}
