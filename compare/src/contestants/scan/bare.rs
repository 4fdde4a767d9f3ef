//! A loop on one ring without a runtime: what the kernel itself costs. Each range in flight has a
//! buffer that is used again.

use super::{Contestant, Input, blocks};
use crate::buffer::Buffer;
use crate::contestants::bare::{push, ring, wait};
use anyhow::ensure;
use io_uring::squeue::Flags;
use io_uring::{opcode, squeue, types};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// From this size on, a kernel worker does a buffered read: otherwise the one thread would copy
/// everything itself.
const FOR_WORKER: usize = 64 << 10;

pub const BUFFERED: Contestant = Contestant::scan(
    "bare",
    "one thread, one ring, no runtime; waits for one completion, reaps all, pushes as many; \
     buffered reads of 64 KiB and more by kernel workers",
    run,
);

fn run(input: &Input<'_>) -> anyhow::Result<()> {
    let Input { work, concurrency, direct, .. } = *input;
    let file = input.open()?;
    let mut ring = ring(concurrency)?;
    let largest = work.ranges.iter().map(|range| range.end - range.start).max().unwrap_or(0);
    // The kernel may still write to the buffers if this returns early. Pages are provided when
    // a read first uses them.
    let slots: &mut [Slot] = (0..concurrency)
        .map(|_| Slot { buffer: Buffer::untouched(largest as usize + 8192), range: 0..0 })
        .collect::<Vec<_>>()
        .leak();
    let mut running = 0;
    let (submitter, mut queue, mut completions) = ring.split();
    for (index, slot) in slots.iter_mut().enumerate() {
        if let Some(range) = work.take_one() {
            let read = slot.read(&file, range, direct, index);
            push(&submitter, &mut queue, &[read])?;
            running += 1;
        }
    }
    while running > 0 {
        wait(&submitter, &mut queue, &mut completions, 1)?;
        for completion in completions.by_ref() {
            let index = completion.user_data() as usize;
            let slot = &mut slots[index];
            let (_, skip, _) = if direct { blocks(&slot.range) } else { (0, 0, 0) };
            let wanted = skip + (slot.range.end - slot.range.start) as usize;
            ensure!(completion.result() >= wanted as i32, "read: {}", completion.result());
            work.read(&slot.range, &slot.buffer[skip..wanted]);
            match work.take_one() {
                Some(range) => {
                    let read = slot.read(&file, range, direct, index);
                    push(&submitter, &mut queue, &[read])?;
                }
                None => running -= 1,
            }
        }
    }
    Ok(())
}

/// One range in flight.
struct Slot {
    buffer: Buffer,
    range: Range<u64>,
}

impl Slot {
    fn read(
        &mut self,
        file: &File,
        range: &Range<u64>,
        direct: bool,
        index: usize,
    ) -> squeue::Entry {
        self.range = range.clone();
        let (start, len) = if direct {
            let (start, _, len) = blocks(range);
            (start, len)
        } else {
            (range.start, (range.end - range.start) as usize)
        };
        let read =
            opcode::Read::new(types::Fd(file.as_raw_fd()), self.buffer.as_mut_ptr(), len as u32)
                .offset(start)
                .build()
                .user_data(index as u64);
        if !direct && len >= FOR_WORKER { read.flags(Flags::ASYNC) } else { read }
    }
}
