//! Writers: errors, direct I/O, seeks, and files that cannot be written in order.

use crate::common::{open, pattern, wait_until_idle};
use crate::files::{engines, failing, open_with, sample};
use ringway::fs::OpenOptions;
use std::io::{self, IoSlice, SeekFrom};
use tokio::io::AsyncWriteExt;

/// Every operation fails: each call that submits one reports the error once, and no call reports an
/// error without submitting.
#[tokio::test]
async fn each_write_error_is_reported_once() -> io::Result<()> {
    let (_dir, path) = sample(b"");
    for behind in [1, 3] {
        let engine = failing(1000);
        let pushed = || engine.stats().counts.pushed;
        let mut writer = open(&engine, &path, false).writer().chunk(1000).write_behind(behind);
        while writer.write_all(&[1; 100]).await.is_ok() {
            assert!(writer.position() < 100_000, "no write failed");
        }
        let taken = writer.position();
        assert!((1000..=1000 * (behind as u64 + 1)).contains(&taken), "{taken}");
        for _ in 0..5 {
            let before = pushed();
            assert!(matches!(
                writer.flush().await.unwrap_err().raw_os_error(),
                Some(libc::EIO | libc::ENOSPC)
            ));
            assert!(pushed() > before, "the error was reported without a new attempt");
            let before = pushed();
            assert!(writer.write_all(&[2]).await.is_err(), "a byte was accepted without capacity");
            assert!(pushed() > before, "the error was reported without a new attempt");
            assert_eq!(
                (writer.written(), writer.position()),
                (0, taken),
                "a failed call accepted bytes"
            );
        }
        writer.abandon();
        wait_until_idle(&engine);
    }
    assert!(std::fs::read(&path)?.is_empty());
    Ok(())
}

/// How a caller continues after errors.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Caller {
    /// Writes on from the position that the failed call has reached, and flushes at the end.
    GoesOn,
    /// Flushes after each piece, and does not repeat a flush that failed: what a flush within a
    /// block has padded and cut off again takes nothing away from later bytes.
    Flushes,
    /// Repeats each call until it succeeds: a failed one has accepted nothing, however many chunks
    /// its bytes take.
    Repeats,
    /// Writes several slices at a time.
    Slices,
}

impl Caller {
    /// Writes the content at the writer's position. Returns the number of errors.
    async fn write(self, writer: &mut ringway::Writer, content: &[u8], size: usize) -> usize {
        let at = writer.position() as usize;
        let piece = &content[at..content.len().min(at + size)];
        if self == Self::Slices {
            let slices: Vec<_> = piece.chunks(700).map(IoSlice::new).collect();
            let taken = writer.write_vectored(&slices).await;
            assert_eq!(writer.position() as usize, at + *taken.as_ref().unwrap_or(&0));
            return usize::from(taken.is_err());
        }
        let mut errors = 0;
        while writer.write_all(piece).await.is_err() {
            errors += 1;
            if self == Self::GoesOn {
                return errors;
            }
            assert_eq!(writer.position() as usize, at, "a failed call accepted bytes");
        }
        assert_eq!(writer.position() as usize, at + piece.len());
        errors += usize::from(self == Self::Flushes && writer.flush().await.is_err());
        errors
    }
}

/// Some operations fail: a caller that continues writes all of it in the end, no byte twice, and
/// bytes that count as written are in the file.
#[tokio::test(flavor = "multi_thread")]
async fn errors_lose_no_data() -> io::Result<()> {
    use Caller::{Flushes, GoesOn, Repeats, Slices};
    let content = pattern(0, 400_001);
    for (caller, behind, size) in [
        (GoesOn, 1, 10_000),
        (GoesOn, 4, 10_000),
        (Flushes, 1, 5000),
        (Flushes, 4, 20_001),
        (Repeats, 1, 30_000),
        (Repeats, 2, 5000),
        (Repeats, 4, 100_000),
        (Slices, 2, 3000),
    ] {
        for direct in [false, true] {
            let (_dir, path) = sample(b"");
            let engine = failing(300);
            let mut writer = open(&engine, &path, direct).writer().chunk(4096).write_behind(behind);
            let mut errors = 0;
            while (writer.position() as usize) < content.len() {
                errors += caller.write(&mut writer, &content, size).await;
                let written = writer.written() as usize;
                assert!(std::fs::read(&path)?.starts_with(&content[..written]));
            }
            while AsyncWriteExt::shutdown(&mut writer).await.is_err() {
                errors += 1;
            }
            assert!(errors > 3, "{errors} errors");
            assert!(std::fs::read(&path)? == content, "{caller:?}, direct {direct}, {behind}");
            drop(writer);
            wait_until_idle(&engine);
        }
    }
    Ok(())
}

/// However often calls are repeated while every write fails, memory is bounded.
#[tokio::test]
async fn repeated_calls_take_no_more_memory() {
    let (_dir, path) = sample(b"");
    let engine = failing(1000);
    let mut writer = open(&engine, &path, false).writer().chunk(1000).write_behind(3);
    for _ in 0..100 {
        let _ = writer.write_all(&[7; 20_000]).await;
    }
    assert!(writer.position() <= 2 * 20_000 + 4 * 1000, "{}", writer.position());
    writer.abandon();
    wait_until_idle(&engine);
}

#[tokio::test]
async fn a_direct_file_is_truncated_only_at_its_end() -> io::Result<()> {
    let old = vec![0xee; 8192];
    for engine in engines() {
        let (_dir, path) = sample(&old);
        let file = open(engine, &path, true);
        // Whole blocks need no truncation, and the data after them stays.
        let mut writer = file.writer();
        writer.write_all(&[1; 4096]).await?;
        writer.flush().await?;
        writer.write_all(b"rest").await?;
        for _ in 0..2 {
            let error = writer.flush().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("4100"), "{error}");
        }
        assert_eq!((writer.written(), writer.position()), (4096, 4100));
        assert!(std::fs::read(&path)? == [&[1; 4096], &old[4096..]].concat());
        // Once the block is complete it can be written.
        writer.write_all(&[2; 4092]).await?;
        writer.flush().await?;
        assert!(std::fs::read(&path)?[4096..] == [&b"rest"[..], &[2; 4092]].concat());
        // At the end of the file nothing can be lost.
        let mut writer = file.writer().at(8192);
        writer.write_all(b"end").await?;
        writer.flush().await?;
        assert_eq!(std::fs::read(&path)?[8192..], *b"end");
    }
    Ok(())
}

#[tokio::test]
async fn unsuitable_files_are_refused() -> io::Result<()> {
    let (_dir, path) = sample(b"old");
    let refused = async |mut writer: ringway::Writer| {
        let error = writer.write_all(b"x").await.unwrap_err();
        assert_eq!(
            (error.kind(), writer.position() - writer.written()),
            (io::ErrorKind::InvalidInput, writer.position())
        );
        error.to_string()
    };
    let appending = open_with(OpenOptions::new().append(true), &path).await;
    assert!(refused(appending.writer()).await.contains("append"));
    let file = open_with(OpenOptions::new().write(true).direct(true), &path).await;
    assert!(refused(file.writer().at(100)).await.contains("aligned"));
    assert!(refused(file.writer().at(u64::MAX)).await.contains("i64::MAX"));
    let read_only = open_with(OpenOptions::new().read(true), &path).await;
    let mut writer = read_only.writer();
    writer.write_all(b"x").await?;
    assert_eq!(writer.flush().await.unwrap_err().raw_os_error(), Some(libc::EBADF));
    writer.abandon();
    assert_eq!(std::fs::read(&path)?, b"old");
    Ok(())
}

#[tokio::test]
#[should_panic(expected = "before the first write")]
async fn setting_the_start_after_a_write_panics() {
    let (_dir, path) = sample(b"");
    let mut writer = open(&engines()[0], &path, false).writer();
    writer.write_all(b"x").await.unwrap();
    let _ = writer.at(10);
}

/// A seek from the end uses the length at its own beginning, not that of an earlier, dropped seek.
#[tokio::test]
async fn a_seek_from_the_end_uses_the_current_length() -> io::Result<()> {
    for engine in engines() {
        let (_dir, path) = sample(b"0123");
        let mut writer = open(engine, &path, false).writer();
        let mut seek = Box::pin(writer.seek(SeekFrom::End(0)));
        let _ = futures::poll!(&mut seek);
        drop(seek);
        // Gives the dropped seek time to receive its result.
        for _ in 0..10 {
            writer.file().metadata().await?;
        }
        std::fs::write(&path, b"0123456")?;
        assert_eq!(writer.seek(SeekFrom::End(0)).await?, 7);
    }
    Ok(())
}

/// Buffered bytes are written to their place, or the seek fails and changes nothing.
#[tokio::test]
async fn a_failed_seek_keeps_the_position() -> io::Result<()> {
    let content = pattern(0, 60_000);
    for direct in [false, true] {
        let (_dir, path) = sample(b"");
        let engine = failing(500);
        let mut writer = open(&engine, &path, direct).writer().chunk(4096).write_behind(2);
        let mut errors = 0;
        // Writes pieces of two blocks from the last to the first, and repeats each failed call.
        for at in (0..60_000).step_by(8192).rev() {
            let piece = &content[at..content.len().min(at + 8192)];
            for to in [SeekFrom::Start(at as u64), SeekFrom::Current(0)] {
                loop {
                    let before = writer.position();
                    match writer.seek(to).await {
                        Ok(position) => break assert_eq!(position, at as u64),
                        Err(error) => {
                            assert!(
                                matches!(error.raw_os_error(), Some(libc::EIO | libc::ENOSPC)),
                                "{error}"
                            );
                            assert_eq!(writer.position(), before);
                            errors += 1;
                        }
                    }
                }
            }
            while writer.position() < (at + piece.len()) as u64 {
                let from = (writer.position() - at as u64) as usize;
                errors += i32::from(writer.write_all(&piece[from..]).await.is_err());
            }
        }
        while writer.flush().await.is_err() {
            errors += 1;
        }
        assert!(errors > 5, "{errors} errors");
        assert!(std::fs::read(&path)? == content, "direct {direct}");
        drop(writer);
        wait_until_idle(&engine);
    }
    Ok(())
}

#[tokio::test]
async fn invalid_seeks_are_refused() -> io::Result<()> {
    let (_dir, path) = sample(&[7; 5000]);
    let kind = async |writer: &mut ringway::Writer, to| writer.seek(to).await.unwrap_err().kind();
    for engine in engines() {
        let mut writer = open(engine, &path, false).writer();
        for to in [
            SeekFrom::Current(-1),
            SeekFrom::End(-5001),
            SeekFrom::Start(1 << 63),
            SeekFrom::Current(i64::MIN),
        ] {
            assert_eq!(kind(&mut writer, to).await, io::ErrorKind::InvalidInput, "{to:?}");
            assert_eq!(writer.position(), 0);
        }
        // Direct: only to the beginning of a block, or to the current position.
        let mut writer = open(engine, &path, true).writer().at(100);
        assert_eq!(kind(&mut writer, SeekFrom::Start(100 + 1)).await, io::ErrorKind::InvalidInput);
        assert_eq!(kind(&mut writer, SeekFrom::End(0)).await, io::ErrorKind::InvalidInput);
        assert_eq!(writer.seek(SeekFrom::Start(4096)).await?, 4096);
        writer.write_all(&[8; 904]).await?;
        assert_eq!(writer.seek(SeekFrom::Current(0)).await?, 5000);
        writer.write_all(&[9; 2]).await?;
        assert_eq!(writer.seek(SeekFrom::Start(0)).await?, 0);
        assert!(std::fs::read(&path)? == [&[7; 4096][..], &[8; 904], &[9; 2]].concat());
        // A partial block in the middle of the file cannot be written, but it can be completed.
        writer.write_all(&[1; 100]).await?;
        assert_eq!(kind(&mut writer, SeekFrom::Start(4096)).await, io::ErrorKind::InvalidInput);
        writer.write_all(&[2; 3996]).await?;
        assert_eq!(writer.seek(SeekFrom::Start(4096)).await?, 4096);
        assert!(std::fs::read(&path)?[..4096] == [&[1; 100][..], &[2; 3996]].concat());
        std::fs::write(&path, [7; 5000])?;
    }
    let mut appending = open_with(OpenOptions::new().append(true), &path).await.writer();
    assert_eq!(kind(&mut appending, SeekFrom::Start(0)).await, io::ErrorKind::InvalidInput);
    let (_reader, pipe) = io::pipe()?;
    let mut pipe = ringway::fs::File::from_fd(pipe.into(), &engines()[0]).writer();
    assert_eq!(pipe.seek(SeekFrom::Start(0)).await.unwrap_err().raw_os_error(), Some(libc::ESPIPE));
    Ok(())
}
