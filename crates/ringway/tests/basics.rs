//! Everyday use on tokio: a program reads what it wrote, and errors are those of the kernel.

mod common;

use common::{build_or_skip, open, wait_readable};
use ringway::fs::{self, File, OpenOptions};
use ringway::{BackendKind, Coalesce, Engine, Position, Reaping};
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn written_data_is_read_back() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    let file = OpenOptions::new().read(true).write(true).create(true).open(&path).await?;
    let content: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    let (written, back) = file.write_all_at(content.clone(), 0).await;
    written?;
    assert_eq!(back, content);
    file.sync_data().await?;
    let (read, buf) = file.read_at(vec![0; 1000], 50).await;
    assert_eq!((read?, &buf[..]), (1000, &content[50..1050]));
    assert_eq!(&file.read(99_990..200_000).await?[..], &content[99_990..]);
    assert!(file.read(100_000..100_001).await?.is_empty());
    let parts = file.read_ranges(&[10..20, 90_000..90_001, 0..5, 5..5]).await?;
    let wanted = [&content[10..20], &content[90_000..90_001], &content[0..5], &[]];
    assert!(parts.iter().zip(wanted).all(|(part, wanted)| part[..] == *wanted));
    let (read, buf) = file.read_at(vec![0; 10], Position::Current).await;
    assert_eq!((read?, &buf[..]), (10, &content[..10]));
    assert_eq!(file.metadata().await?.len(), 100_000);
    file.close().await?;
    assert_eq!(fs::read(&path).await?, content);
    Ok(())
}

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

#[tokio::test]
async fn errors_are_those_of_the_kernel() {
    assert_eq!(File::open("/no/such").await.unwrap_err().raw_os_error(), Some(2));
    let file = File::open("/etc/passwd").await.unwrap();
    let (written, buf) = file.write_at(b"x".to_vec(), 0).await;
    assert_eq!((written.unwrap_err().raw_os_error(), &buf[..]), (Some(9), &b"x"[..]));
    let (read, buf) = file.read_at(vec![0; 3], u64::MAX - 1).await;
    assert_eq!((read.unwrap_err().kind(), buf.len()), (io::ErrorKind::InvalidInput, 3));
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

/// On io_uring the thread that enters the ring copies data from the page cache. So one enter
/// submits only a few buffered reads, and leaves the rest to the next reap, which this test makes.
/// Direct reads are entered together.
#[test]
fn buffered_reads_are_submitted_in_small_batches() -> io::Result<()> {
    const READS: u64 = 64;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let path = dir.path().join("file");
    std::fs::File::create(&path)?.set_len(READS << 20)?;
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
