//! Readers: ends of files and ranges, growing files, errors, and the cost of seeks.

use crate::common::{open, pattern, wait_until_idle};
use crate::files::{engines, failing, sample};
use futures::stream::{FusedStream, StreamExt, TryStreamExt};
use ringway::fs::File;
use ringway::{Engine, FaultPlan};
use ringway_core::{FaultStep, Late};
use std::io::{self, SeekFrom, Write};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};

#[tokio::test]
async fn ranges_end_at_their_end() -> io::Result<()> {
    let (_dir, path) = sample(&pattern(0, 10_000));
    let all = pattern(0, 10_000);
    for engine in engines() {
        for direct in [false, true] {
            let file = open(engine, &path, direct);
            let read = async |reader: ringway::Reader| {
                let (mut reader, mut bytes) = (reader.chunk(512), Vec::new());
                reader.read_to_end(&mut bytes).await.map(|_| bytes)
            };
            assert!(read(file.reader().range(700..9_001)).await? == all[700..9_001]);
            assert!(read(file.reader().range(9_000..=20_000)).await? == all[9_000..]);
            let backwards = std::ops::Range { start: 5, end: 3 };
            for empty in [
                0..0,
                700..700,
                backwards,
                10_000..10_001,
                1 << 40..1 << 41,
                u64::MAX - 1..u64::MAX,
            ] {
                assert_eq!(read(file.reader().range(empty.clone())).await?, b"", "{empty:?}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn appended_data_is_read() -> io::Result<()> {
    for engine in engines() {
        let (_dir, path) = sample(b"one");
        let mut reader = open(engine, &path, false).reader().chunk(4096);
        let mut appended = std::fs::OpenOptions::new().append(true).open(&path)?;
        assert_eq!(reader.next_block().await?.unwrap(), b"one");
        for _ in 0..3 {
            assert_eq!(reader.next_block().await?, None);
        }
        appended.write_all(&[7; 10_000])?;
        let mut grown = Vec::new();
        reader.read_to_end(&mut grown).await?;
        assert_eq!(grown, [7; 10_000]);
        // The file grows between two chunks, when the second has been requested already.
        let mut reader = reader.chunk(10_003).range(..);
        assert_eq!(reader.next_block().await?.unwrap().len(), 10_003);
        appended.write_all(&[8; 10])?;
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await?;
        assert_eq!(rest, [8; 10]);
    }
    Ok(())
}

#[tokio::test]
async fn each_error_is_reported_once_and_skips_nothing() -> io::Result<()> {
    let content = pattern(0, 400_000);
    let (_dir, path) = sample(&content);
    for ahead in [0, 3] {
        let engine = failing(300);
        let mut reader = open(&engine, &path, false).reader().chunk(4096).read_ahead(ahead);
        let (mut read, mut errors) = (Vec::new(), 0);
        loop {
            match reader.next_block().await {
                Ok(Some(block)) => read.extend_from_slice(&block),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                    errors += 1;
                }
            }
            assert_eq!(reader.position(), read.len() as u64);
        }
        assert!(read == content);
        drop(reader);
        wait_until_idle(&engine);
        // 98 of the successful reads returned bytes and one the end. With read-ahead there may be
        // more.
        let answered = engine.stats().counts.delivered;
        assert!(
            errors > 10 && (ahead > 0 || answered == 99 + errors),
            "{errors} errors, {answered} completions"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_reader_seeks_after_errors() {
    let (_dir, path) = sample(&pattern(0, 100_000));
    let mut reader = open(&failing(1000), &path, false).reader().chunk(4096);
    for _ in 0..3 {
        assert_eq!(reader.next_block().await.unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(reader.position(), 0);
    }
    reader.seek_to(100_000);
    assert_eq!(reader.seek(SeekFrom::Current(-1)).await.unwrap(), 99_999);
    assert_eq!(reader.seek(SeekFrom::End(0)).await.unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(reader.position(), 99_999);
}

#[tokio::test]
async fn a_seek_forward_within_buffered_data_reads_nothing() -> io::Result<()> {
    let content = pattern(0, 1 << 20);
    let (_dir, path) = sample(&content);
    // Threads answer later than the page cache, so that there is something to read ahead.
    let engine =
        Engine::builder().backend(ringway::BackendKind::Threads).try_cached(false).build()?;
    let mut reader = open(&engine, &path, true).reader().chunk(64 << 10).read_ahead(4);
    assert_eq!(reader.next_block().await?.unwrap().len(), 64 << 10);
    assert_eq!(reader.fill_buf().await?.len(), 64 << 10);
    let pushed = engine.stats().counts.pushed;
    for offset in [70_000, 100_000, 131_071] {
        reader.seek_to(offset);
        assert!(reader.fill_buf().await? == &content[offset as usize..128 << 10]);
    }
    assert_eq!(engine.stats().counts.pushed, pushed);
    // A seek into the fourth chunk, which was read ahead: the one before it is dropped, and more
    // are requested.
    reader.seek_to(200_000);
    assert!(reader.fill_buf().await? == &content[200_000..256 << 10]);
    assert!(engine.stats().counts.pushed <= 8, "a chunk was read twice");
    // A seek outside of the chunks drops all of them.
    reader.seek_to(10);
    assert!(reader.fill_buf().await? == &content[10..64 << 10]);
    drop(reader);
    wait_until_idle(&engine);
    Ok(())
}

#[tokio::test]
async fn a_dropped_seek_takes_effect() -> io::Result<()> {
    let (_dir, path) = sample(&pattern(0, 9_000));
    let mut reader = open(&engines()[1], &path, false).reader().chunk(1000);
    assert_eq!(reader.read_u8().await?, pattern(0, 1)[0]);
    let mut seek = Box::pin(reader.seek(SeekFrom::End(-10)));
    let _ = futures::poll!(&mut seek);
    drop(seek);
    // The seek was requested, so it takes effect before the next read.
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).await?;
    assert_eq!(rest, pattern(0, 9_000)[8_990..]);
    Ok(())
}

#[tokio::test]
async fn pipes_are_refused() -> io::Result<()> {
    let (from, into) = io::pipe()?;
    let reader = File::from_fd(from.into(), &engines()[0]);
    assert_eq!(reader.reader().next_block().await.unwrap_err().raw_os_error(), Some(libc::ESPIPE));
    let writer = File::from_fd(into.into(), &engines()[0]);
    assert_eq!(
        writer.writer().write_all(b"x").await.unwrap_err().raw_os_error(),
        Some(libc::ESPIPE)
    );
    Ok(())
}

/// The stream ends with its first error; its reader can continue.
#[tokio::test]
async fn a_block_stream_ends_with_its_first_error() -> io::Result<()> {
    let content = pattern(0, 400_000);
    let (_dir, path) = sample(&content);
    for ahead in [0, 3] {
        let engine = failing(300);
        let mut blocks =
            open(&engine, &path, false).reader().chunk(4096).read_ahead(ahead).blocks();
        let (mut read, mut errors) = (Vec::new(), 0);
        loop {
            match blocks.next().await {
                Some(Ok(block)) => read.extend_from_slice(&block),
                None => break,
                Some(Err(error)) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                    assert!(blocks.is_terminated() && blocks.next().await.is_none());
                    errors += 1;
                    let reader = blocks.into_reader();
                    assert_eq!(reader.position(), read.len() as u64);
                    blocks = reader.blocks();
                }
            }
        }
        assert!(read == content && errors > 10, "{errors} errors");
        drop(blocks);
        wait_until_idle(&engine);
    }
    Ok(())
}

/// While the first chunk is pending, the chunks after it are requested as well. Dropping the stream
/// cancels all of them.
#[tokio::test]
async fn a_block_stream_reads_ahead() -> io::Result<()> {
    let (_dir, path) = sample(&pattern(0, 1 << 20));
    let plan =
        (0..5).fold(FaultPlan::new(0), |plan, read| plan.late(FaultStep::Job(read), Late::Forever));
    let builder = Engine::builder().backend(ringway::BackendKind::Threads).shards(1);
    let engine = builder.faults(plan).try_cached(false).build()?;
    let mut blocks = open(&engine, &path, true).reader().chunk(64 << 10).read_ahead(4).blocks();
    assert!(futures::poll!(blocks.next()).is_pending());
    assert_eq!(engine.stats().counts.pushed, 4, "the pending chunk counts as one of the four");
    drop(blocks);
    wait_until_idle(&engine);
    Ok(())
}

/// The reader continues with the chunks that its stream has requested: each chunk is read once.
#[tokio::test]
async fn a_reader_continues_with_blocks_read_ahead() -> io::Result<()> {
    let content = pattern(0, 1 << 20);
    let (_dir, path) = sample(&content);
    let engine =
        Engine::builder().backend(ringway::BackendKind::Threads).try_cached(false).build()?;
    let mut blocks = open(&engine, &path, true).reader().chunk(64 << 10).read_ahead(4).blocks();
    let mut read = blocks.try_next().await?.unwrap().to_vec();
    let mut reader = blocks.into_reader();
    while read.len() < content.len() {
        read.extend_from_slice(&reader.next_block().await?.unwrap());
    }
    assert!(read == content);
    // With read-ahead there may be reads beyond the end.
    let pushed = engine.stats().counts.pushed;
    assert!((16..=16 + 4).contains(&pushed), "{pushed} reads");
    Ok(())
}
