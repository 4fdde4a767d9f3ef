//! `tokio::fs::File` in a build with tokio's own io_uring.

use super::{Contestant, Input, on_tokio};
use std::io::{self, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

pub const TOKIO_FS: Contestant = Contestant {
    needs_tokio_io_uring: true,
    ..Contestant::scan(
        "tokio-io-uring",
        "multi-thread tokio built with its unstable io_uring; tokio::fs::File, seek and read_buf, \
         with the largest buffer of a file as large as the range; each task opens the file",
        run,
    )
};

fn run(input: &Input<'_>) -> anyhow::Result<()> {
    let (path, work): (Arc<Path>, _) = (input.file.into(), input.work);
    on_tokio(input.concurrency, || {
        let path = path.clone();
        async move {
            let mut file = match File::open(path).await {
                Ok(file) => file,
                Err(error) => return work.fail(error),
            };
            while let Some(range) = work.take_one() {
                match read(&mut file, range).await {
                    Ok(bytes) => work.read(range, &bytes),
                    Err(error) => work.fail(error),
                }
            }
        }
    })
}

async fn read(file: &mut File, range: &Range<u64>) -> io::Result<Vec<u8>> {
    let len = (range.end - range.start) as usize;
    let mut bytes = Vec::with_capacity(len);
    file.set_max_buf_size(len);
    file.seek(SeekFrom::Start(range.start)).await?;
    let mut part = file.take(len as u64);
    while bytes.len() < len && part.read_buf(&mut bytes).await? > 0 {}
    Ok(bytes)
}
