//! The traits of both worlds, as programs use them.

use crate::common::{content, engines, open, sample};
use futures::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use std::io::{self, SeekFrom};

#[test]
fn streams_go_anywhere() {
    fn anywhere<T: Send + Sync + Unpin + 'static>() {}
    anywhere::<ringway::Reader>();
    anywhere::<ringway::Writer>();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokio_copies() -> io::Result<()> {
    let content = content(700_003);
    let (_dir, from) = sample(&content);
    for engine in engines() {
        let (_dir, into) = sample(b"");
        for direct in [false, true] {
            let mut reader = open(engine, &from, direct).reader().chunk(30_000);
            let mut writer = open(engine, &into, direct).writer().chunk(50_000);
            // In a task: everything is `Send`.
            let copied = tokio::spawn(async move {
                let copied = tokio::io::copy(&mut reader, &mut writer).await?;
                assert_eq!(writer.written(), copied);
                writer.sync_data().await.map(|()| copied)
            });
            assert_eq!(copied.await??, 700_003);
            assert!(std::fs::read(&into)? == content);
            let mut reader = open(engine, &from, direct).reader();
            let mut last = [0; 3];
            assert_eq!(tokio::io::AsyncSeekExt::seek(&mut reader, SeekFrom::End(-3)).await?, 700_000);
            tokio::io::AsyncReadExt::read_exact(&mut reader, &mut last).await?;
            assert_eq!(last, content[700_000..]);
        }
    }
    Ok(())
}

#[test]
fn futures_copy() -> io::Result<()> {
    let content = content(700_003);
    let (_dir, from) = sample(&content);
    for engine in engines() {
        let (_dir, into) = sample(b"");
        futures::executor::block_on(async {
            let mut reader = open(engine, &from, false).reader().chunk(30_000);
            let mut writer = open(engine, &into, false).writer().chunk(50_000);
            assert_eq!(futures::io::copy_buf(&mut reader, &mut writer).await?, 700_003);
            AsyncWriteExt::close(&mut writer).await?;
            assert!(std::fs::read(&into)? == content);
            assert_eq!(AsyncSeekExt::seek(&mut reader, SeekFrom::End(-10)).await?, 699_993);
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).await?;
            assert_eq!(rest, content[699_993..]);
            let beyond = AsyncSeekExt::seek(&mut reader, SeekFrom::Start(u64::MAX)).await;
            assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            io::Result::Ok(())
        })?;
    }
    Ok(())
}
