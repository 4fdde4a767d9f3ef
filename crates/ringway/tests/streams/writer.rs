//! Writing.

use crate::common::{content, engines, open, sample};
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
                let file = open(engine, &path, OpenOptions::new().write(true).direct(direct)).await;
                let mut writer = file.writer().chunk(chunk).write_behind(behind);
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
