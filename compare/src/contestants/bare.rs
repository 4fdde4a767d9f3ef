//! A ring and a loop, as the textbook has it: what the kernel itself costs, and nothing awaits.

use super::{BARE, Contestant};
use crate::buffer::Buffer;
use crate::figures::Figures;
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{RANGES, Workload, Operation};
use io_uring::squeue::Flags;
use io_uring::{
    CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue, types,
};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::thread;

/// Entries of the rings: more than this is too much for one call to submit.
const MOST_ENTRIES: usize = 4096;
/// What the kernel has as the most for completions.
const MOST_COMPLETIONS: usize = 65536;

pub struct Bare {
    name: &'static str,
    about: &'static str,
    grouped: bool,
}

pub const TEXTBOOK: Bare = Bare {
    name: BARE,
    about: "one thread, one ring, no runtime: waits for one completion, reaps all, pushes as many again",
    grouped: false,
};

pub const GROUPED: Bare = Bare {
    name: "bare-grouped",
    about: "the same, but waits for an eighth of what is in flight",
    grouped: true,
};

impl Contestant for Bare {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn leaves_out(&self, workload: &Workload) -> Option<String> {
        match workload.operation {
            Operation::Sum => Some("this row compares readers of a whole file".into()),
            _ if self.grouped && workload.readers < 16 => {
                Some("fewer in flight than make groups".into())
            }
            _ => None,
        }
    }

    fn run(&self, job: &'static Job) -> anyhow::Result<Figures> {
        let (file, readers) = (job.open()?, job.readers());
        let grouped = self.grouped;
        thread::spawn(move || {
            let done = match job.workload.operation {
                Operation::Ranges => ranges(&file, readers),
                _ => blocks(&file, job.workload, readers, grouped),
            };
            if let Err(error) = done {
                job.fail(error.to_string());
            }
        });
        job.measure()
    }
}

/// One reader's place in the loop.
struct Slot {
    reader: Reader,
    buffer: Buffer,
}

/// Each reader has one operation in flight at any time.
fn blocks(file: &File, workload: Workload, readers: Vec<Reader>, grouped: bool) -> io::Result<()> {
    let mut ring = ring(readers.len())?;
    let group = if grouped { readers.len() / 8 } else { 1 };
    let slot = |reader| Slot { reader, buffer: Buffer::new(workload.block) };
    // The kernel may still write to the buffers when this returns.
    let slots = readers.into_iter().map(slot).collect::<Vec<Slot>>().leak();
    let (submitter, mut queue, mut completions) = ring.split();
    for (index, slot) in slots.iter_mut().enumerate() {
        slot.reader.begin();
        slot.push(index, workload, file, &submitter, &mut queue)?;
    }
    let mut at_work = slots.len();
    while at_work > 0 {
        wait(&submitter, &mut queue, &mut completions, group.min(at_work))?;
        for completion in completions.by_ref() {
            let index = completion.user_data() as usize;
            let slot = &mut slots[index];
            // An fdatasync says 0; the write before it was whole, or this one would not have been
            // done.
            let bytes = if workload.operation == Operation::Write { workload.block } else { 0 };
            slot.reader.end(result(&completion).map(|result| bytes + result));
            if slot.reader.begin() {
                slot.push(index, workload, file, &submitter, &mut queue)?;
            } else {
                at_work -= 1;
            }
        }
    }
    Ok(())
}

impl Slot {
    fn push(
        &mut self,
        index: usize,
        workload: Workload,
        file: &File,
        submitter: &Submitter<'_>,
        queue: &mut SubmissionQueue<'_>,
    ) -> io::Result<()> {
        let offset = self.reader.offset();
        if workload.operation != Operation::Write {
            let read = read(file, &mut self.buffer, offset, index as u64);
            return push(submitter, queue, &[read]);
        }
        let fd = types::Fd(file.as_raw_fd());
        let write = opcode::Write::new(fd, self.buffer.as_ptr(), self.buffer.len() as u32)
            .offset(offset)
            .build();
        let sync = opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build()
            .user_data(index as u64);
        push(submitter, queue, &[write.flags(Flags::IO_LINK | Flags::SKIP_SUCCESS), sync])
    }
}

/// All ranges are pushed at once, and waited for.
fn ranges(file: &File, readers: Vec<Reader>) -> io::Result<()> {
    let mut ring = ring(RANGES)?;
    let (submitter, mut queue, mut completions) = ring.split();
    for mut reader in readers {
        let block = reader.job().workload.block;
        let buffers = (0..RANGES).map(|_| Buffer::new(block)).collect::<Vec<_>>().leak();
        while reader.begin() {
            for buffer in &mut *buffers {
                push(&submitter, &mut queue, &[read(file, buffer, reader.offset(), 0)])?;
            }
            wait(&submitter, &mut queue, &mut completions, RANGES)?;
            reader.end(completions.by_ref().try_fold(block, |_, completion| result(&completion)));
        }
    }
    Ok(())
}

/// With the flags for one thread, where this kernel has them.
fn ring(in_flight: usize) -> io::Result<IoUring> {
    let entries = (2 * in_flight).next_power_of_two();
    let completions = entries.min(MOST_COMPLETIONS) as u32;
    let entries = entries.min(MOST_ENTRIES) as u32;
    let mut builder = IoUring::builder();
    builder.setup_cqsize(2 * completions).setup_clamp();
    let one_thread = builder.clone().setup_single_issuer().setup_defer_taskrun().build(entries);
    one_thread.or_else(|_| builder.build(entries))
}

fn read(file: &File, buffer: &mut Buffer, offset: u64, user_data: u64) -> squeue::Entry {
    let fd = types::Fd(file.as_raw_fd());
    opcode::Read::new(fd, buffer.as_mut_ptr(), buffer.len() as u32)
        .offset(offset)
        .build()
        .user_data(user_data)
}

/// Makes room first where there is none.
fn push(
    submitter: &Submitter<'_>,
    queue: &mut SubmissionQueue<'_>,
    entries: &[squeue::Entry],
) -> io::Result<()> {
    if queue.capacity() - queue.len() < entries.len() {
        queue.sync();
        submitter.submit()?;
        queue.sync();
    }
    // SAFETY: the entries point to buffers that are never freed, and the kernel keeps the file
    // itself.
    unsafe { queue.push_multiple(entries) }.map_err(io::Error::other)
}

fn wait(
    submitter: &Submitter<'_>,
    queue: &mut SubmissionQueue<'_>,
    completions: &mut CompletionQueue<'_>,
    want: usize,
) -> io::Result<()> {
    queue.sync();
    submitter.submit_and_wait(want)?;
    queue.sync();
    completions.sync();
    Ok(())
}

fn result(completion: &cqueue::Entry) -> io::Result<usize> {
    usize::try_from(completion.result())
        .map_err(|_| io::Error::from_raw_os_error(-completion.result()))
}
