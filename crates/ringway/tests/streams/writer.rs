//! Writing: errors, direct I/O, and files that cannot be written in order.

use crate::common::{content, engines, failing, open, open_with, sample, settles};
use ringway::fs::OpenOptions;
use std::io;
use tokio::io::AsyncWriteExt;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_there() -> io::Result<()> {
    let content = content(1_000_001);
    for engine in engines() {
        for direct in [false, true] {
            for (chunk, behind) in [(4096, 1), (5000, 3), (1 << 20, 4)] {
                let (_dir, path) = sample(b"");
                let mut writer = open(engine, &path, direct).writer().chunk(chunk).write_behind(behind);
                for piece in content.chunks(30_000) {
                    writer.write_all(piece).await?;
                }
                assert_eq!(writer.position(), content.len() as u64);
                writer.flush().await?;
                assert_eq!(writer.written(), content.len() as u64);
                assert!(std::fs::read(&path)? == content, "{engine:?}, direct {direct}, chunk {chunk}");
                writer.write_all(&content[..700]).await?;
                AsyncWriteExt::shutdown(&mut writer).await?;
                writer.write_all(&content[..5]).await?;
                writer.sync_data().await?;
                let expected = [&content, &content[..700], &content[..5]].concat();
                assert!(std::fs::read(&path)? == expected, "{engine:?}, direct {direct}, chunk {chunk}");
            }
        }
    }
    Ok(())
}

/// Every operation fails: each call that tries is told of it once, and without a try nobody is told anything.
#[tokio::test]
async fn each_error_is_told_once() -> io::Result<()> {
    let (_dir, path) = sample(b"");
    for behind in [1, 3] {
        let engine = failing(1000);
        let pushed = || engine.stats().counts.pushed;
        let mut writer = open(&engine, &path, false).writer().chunk(1000).write_behind(behind);
        while writer.write_all(&[1; 100]).await.is_ok() {
            assert!(writer.position() < 100_000, "nothing fails");
        }
        let taken = writer.position();
        assert!((1000..=1000 * (behind as u64 + 1)).contains(&taken), "{taken}");
        for _ in 0..5 {
            let before = pushed();
            assert!(matches!(writer.flush().await.unwrap_err().raw_os_error(), Some(libc::EIO | libc::ENOSPC)));
            assert!(pushed() > before, "told again without a try");
            let before = pushed();
            assert!(writer.write_all(&[2]).await.is_err(), "there is no room for it");
            assert!(pushed() > before, "told again without a try");
            assert_eq!((writer.written(), writer.position()), (0, taken), "a call that fails takes nothing in");
        }
        writer.abandon();
        settles(&engine);
    }
    assert!(std::fs::read(&path)?.is_empty());
    Ok(())
}

/// Some fail: who goes on has all of it in the end, and what is said to be written is.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_by_an_error() -> io::Result<()> {
    let content = content(300_001);
    for direct in [false, true] {
        for behind in [1, 4] {
            let (_dir, path) = sample(b"");
            let engine = failing(300);
            let mut writer = open(&engine, &path, direct).writer().chunk(4096).write_behind(behind);
            let mut errors = 0;
            loop {
                let at = writer.position() as usize;
                let result = match at < content.len() {
                    true => writer.write_all(&content[at..content.len().min(at + 10_000)]).await,
                    false => writer.flush().await,
                };
                let written = writer.written() as usize;
                assert!(written <= writer.position() as usize);
                assert!(std::fs::read(&path)?.starts_with(&content[..written]));
                match result {
                    Ok(()) if at == content.len() => break,
                    Ok(()) => {}
                    Err(_) => errors += 1,
                }
            }
            assert!(errors > 5);
            assert!(std::fs::read(&path)? == content, "direct {direct}, behind {behind}");
            drop(writer);
            settles(&engine);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_direct_file_is_cut_only_where_it_ends() -> io::Result<()> {
    let old = vec![0xee; 8192];
    for engine in engines() {
        let (_dir, path) = sample(&old);
        let file = open(engine, &path, true);
        // Whole blocks: nothing is cut, and what is behind stays.
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
        // The whole block is another matter.
        writer.write_all(&[2; 4092]).await?;
        writer.flush().await?;
        assert!(std::fs::read(&path)?[4096..] == [&b"rest"[..], &[2; 4092]].concat());
        // At the end of the file there is nothing to lose.
        let mut writer = file.writer().at(8192);
        writer.write_all(b"end").await?;
        writer.flush().await?;
        assert_eq!(std::fs::read(&path)?[8192..], *b"end");
    }
    Ok(())
}

#[tokio::test]
async fn files_that_cannot_be_written_in_order_are_refused() -> io::Result<()> {
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
#[should_panic(expected = "has not been written to")]
async fn a_writer_does_not_jump() {
    let (_dir, path) = sample(b"");
    let mut writer = open(&engines()[0], &path, false).writer();
    writer.write_all(b"x").await.unwrap();
    let _ = writer.at(10);
}
