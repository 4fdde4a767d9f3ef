//! `read_file FILE` reads a file with direct I/O in blocks of 4 KiB, four at a time. It prints the
//! numbers of operations submitted and completed, and of bytes read.
//!
//! It shows direct I/O: buffers with the alignment that the device needs, made once and reused.

use ringway_core::{AlignedBuffer, OpenOptions, Options, op};
use std::error::Error;

const BLOCK: u64 = 4096;
const IN_FLIGHT: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: read_file FILE")?;
    let file = OpenOptions::new().read(true).direct(true).open(&path)?;
    let blocks = std::fs::metadata(&path)?.len().div_ceil(BLOCK);

    let mut queue = Options::new().build()?;
    let buffer = || AlignedBuffer::for_direct(file.direct_io(), BLOCK as usize);
    let mut buffers: Vec<_> = (0..IN_FLIGHT).map(|_| buffer()).collect();
    let (mut submitted, mut completed, mut bytes) = (0, 0, 0);
    while completed < blocks {
        while let Some(buffer) = buffers.pop_if(|_| submitted < blocks) {
            queue.push(op::read(&file, buffer, submitted * BLOCK).exact())?;
            submitted += 1;
        }
        for done in queue.reap(1)? {
            completed += 1;
            bytes += done.result?;
            let buffer = done.into_buffer().expect("a read returns its buffer");
            buffers.push(buffer.try_into().expect("the buffer that was pushed"));
        }
    }
    println!("submitted={submitted}, completed={completed}, bytes={bytes}");
    Ok(())
}
