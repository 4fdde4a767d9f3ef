//! Reading.

use crate::common::{content, engines, open, sample};
use ringway::fs::OpenOptions;
use std::io;
use tokio::io::{AsyncBufReadExt, AsyncReadExt};

#[tokio::test(flavor = "multi_thread")]
async fn blocks_come_in_order_and_end() -> io::Result<()> {
    let content = content(1_000_001);
    let (_dir, path) = sample(&content);
    for engine in engines() {
        for direct in [false, true] {
            let file = open(engine, &path, OpenOptions::new().read(true).direct(direct)).await;
            for (chunk, ahead) in [(4096, 0), (4096, 3), (100_000, 1), (1 << 20, 4)] {
                let mut reader = file.reader().chunk(chunk).read_ahead(ahead);
                let mut read = Vec::new();
                while let Some(block) = reader.next_block().await? {
                    read.extend_from_slice(&block);
                }
                assert!(read == content, "direct {direct}, chunk {chunk}, ahead {ahead}");
                assert_eq!(reader.next_block().await?, None);
                let mut all = Vec::new();
                file.reader().chunk(chunk).range(5..).read_to_end(&mut all).await?;
                assert!(all == content[5..]);
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn lines() -> io::Result<()> {
    let text: String = (0..50_000).map(|line| format!("line {line}\n")).collect();
    let (_dir, path) = sample(text.as_bytes());
    let file = open(&engines()[0], &path, OpenOptions::new().read(true)).await;
    let mut lines = file.reader().chunk(1000).lines();
    for line in text.lines() {
        assert_eq!(lines.next_line().await?.as_deref(), Some(line));
    }
    assert_eq!(lines.next_line().await?, None);
    Ok(())
}
