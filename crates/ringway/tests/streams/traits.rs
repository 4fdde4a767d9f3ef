//! The I/O traits of tokio and futures, used as programs use them.

use crate::common::{open, pattern};
use crate::files::{engines, sample};
use futures::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use std::io::{self, IoSlice, SeekFrom};

#[test]
fn streams_are_send_sync_and_unpin() {
    fn anywhere<T: Send + Sync + Unpin + 'static>() {}
    anywhere::<ringway::Reader>();
    anywhere::<ringway::Writer>();
    anywhere::<ringway::Blocks>();
    anywhere::<ringway::fs::AtomicFile>();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokio_traits() -> io::Result<()> {
    let content = pattern(0, 700_003);
    let (_dir, from) = sample(&content);
    for engine in engines() {
        let (_dir, into) = sample(b"");
        for direct in [false, true] {
            let mut reader = open(engine, &from, direct).reader().chunk(30_000);
            let mut writer = open(engine, &into, direct).writer().chunk(50_000);
            // In a task, because everything is `Send`.
            let copied = tokio::spawn(async move {
                let copied = tokio::io::copy(&mut reader, &mut writer).await?;
                assert_eq!(writer.written(), copied);
                writer.sync_data().await.map(|()| copied)
            });
            assert_eq!(copied.await??, 700_003);
            assert!(std::fs::read(&into)? == content);
            // Overwrites some bytes in the middle, from slices.
            let mut writer = open(engine, &into, false).writer();
            assert!(tokio::io::AsyncWrite::is_write_vectored(&writer));
            assert_eq!(
                tokio::io::AsyncSeekExt::seek(&mut writer, SeekFrom::End(-700_000)).await?,
                3
            );
            let slices = [IoSlice::new(b"one"), IoSlice::new(b"two")];
            assert_eq!(tokio::io::AsyncWriteExt::write_vectored(&mut writer, &slices).await?, 6);
            assert_eq!(tokio::io::AsyncSeekExt::stream_position(&mut writer).await?, 9);
            tokio::io::AsyncWriteExt::shutdown(&mut writer).await?;
            assert!(std::fs::read(&into)? == [&content[..3], b"onetwo", &content[9..]].concat());
            let mut reader = open(engine, &from, direct).reader();
            let mut last = [0; 3];
            assert_eq!(
                tokio::io::AsyncSeekExt::seek(&mut reader, SeekFrom::End(-3)).await?,
                700_000
            );
            tokio::io::AsyncReadExt::read_exact(&mut reader, &mut last).await?;
            assert_eq!(last, content[700_000..]);
        }
    }
    Ok(())
}

#[test]
fn futures_traits() -> io::Result<()> {
    let content = pattern(0, 700_003);
    let (_dir, from) = sample(&content);
    for engine in engines() {
        let (_dir, into) = sample(b"");
        futures::executor::block_on(async {
            let mut reader = open(engine, &from, false).reader().chunk(30_000);
            let mut writer = open(engine, &into, false).writer().chunk(50_000);
            assert_eq!(futures::io::copy_buf(&mut reader, &mut writer).await?, 700_003);
            AsyncWriteExt::close(&mut writer).await?;
            assert!(std::fs::read(&into)? == content);
            assert_eq!(AsyncSeekExt::seek(&mut writer, SeekFrom::Current(-700_000)).await?, 3);
            let slices = [IoSlice::new(b"one"), IoSlice::new(b"two")];
            assert_eq!(writer.write_vectored(&slices).await?, 6);
            assert_eq!(AsyncSeekExt::seek(&mut writer, SeekFrom::End(1)).await?, 700_004);
            assert!(std::fs::read(&into)? == [&content[..3], b"onetwo", &content[9..]].concat());
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
