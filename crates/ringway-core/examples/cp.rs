//! `cp FROM TO` copies a file with up to eight blocks in flight, each of which is read and then
//! written.
//!
//! It shows the loop of most programs: push while there is work and a free buffer, reap
//! completions, continue with them. It copies only the content, and TO must not exist.

use ringway_core::{Buffer, File, OpenOptions, Options, op};
use std::error::Error;

const BLOCK: u64 = 256 << 10;
const IN_FLIGHT: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, to] = paths.as_slice() else { return Err("usage: cp FROM TO".into()) };
    let from = File::open(from)?;
    let to = OpenOptions::new().write(true).create_new(true).open(to)?;

    let mut queue = Options::new().build()?;
    let mut buffers = vec![vec![0; BLOCK as usize]; IN_FLIGHT];
    let mut next = 0; // The offset of the next read.
    let mut read = Vec::new(); // Blocks that were read and are to be written to the same offset.
    let mut at_end = false;
    while !at_end || queue.in_flight() > 0 {
        while let Some(buffer) = buffers.pop_if(|_| !at_end) {
            queue.push(op::read(&from, buffer, next).exact().user_data(next))?;
            next += BLOCK;
        }
        for done in queue.reap(1)? {
            let (opcode, offset, len) = (done.opcode, done.user_data, done.result? as usize);
            let buffer = Vec::try_from(done.into_buffer().expect("reads and writes return it"))
                .expect("a Vec");
            match opcode {
                op::Opcode::Read if len > 0 => read.push((buffer, offset, len)),
                op::Opcode::Read => at_end = true,
                _ => buffers.push(buffer),
            }
        }
        for (buffer, offset, len) in read.drain(..) {
            queue.push(
                op::write(&to, Buffer::from(buffer).slice(..len), offset).exact().user_data(offset),
            )?;
        }
    }
    Ok(())
}
