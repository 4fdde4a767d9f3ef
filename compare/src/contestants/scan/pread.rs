//! tokio's thread pool, with one range in each call of `spawn_blocking`.

use super::{Contestant, Input, blocks, on_tokio};
use ringway::AlignedBuffer;
use rustix::buffer::spare_capacity;
use rustix::io::pread;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tokio::task::spawn_blocking;

pub const BUFFERED: Contestant = Contestant::scan(
    "pread",
    "multi-thread tokio; one pread in each spawn_blocking, into a Vec that is not zeroed",
    run,
);
pub const DIRECT: Contestant = Contestant {
    about: "as pread, with O_DIRECT, into aligned buffers",
    ..BUFFERED.direct("pread-direct")
};

fn run(input: &Input<'_>) -> anyhow::Result<()> {
    let Input { work, concurrency, direct, .. } = *input;
    let file = Arc::new(input.open()?);
    on_tokio(concurrency, || {
        let file = file.clone();
        async move {
            while let Some(range) = work.take_one() {
                let file = file.clone();
                let read = move || {
                    if direct {
                        read_direct(&file, range).map(Bytes::Aligned)
                    } else {
                        read(&file, range).map(Bytes::Plain)
                    }
                };
                match spawn_blocking(read).await {
                    Ok(Ok(Bytes::Plain(bytes))) => work.read(range, &bytes),
                    Ok(Ok(Bytes::Aligned((bytes, part)))) => work.read(range, &bytes[part]),
                    Ok(Err(error)) => work.fail(error),
                    Err(error) => work.fail(error),
                }
            }
        }
    })
}

enum Bytes {
    Plain(Vec<u8>),
    Aligned((AlignedBuffer, Range<usize>)),
}

fn read(file: &File, range: &Range<u64>) -> io::Result<Vec<u8>> {
    let len = (range.end - range.start) as usize;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = range.start + bytes.len() as u64;
        if pread(file, spare_capacity(&mut bytes), at)? == 0 {
            break;
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

fn read_direct(file: &File, range: &Range<u64>) -> io::Result<(AlignedBuffer, Range<usize>)> {
    let (start, skip, len) = blocks(range);
    let mut bytes = AlignedBuffer::new(len, 4096);
    let mut done = 0;
    while done < len {
        match file.read_at(&mut bytes[done..], start + done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    let end = done.min(skip + (range.end - range.start) as usize);
    Ok((bytes, skip.min(end)..end))
}
