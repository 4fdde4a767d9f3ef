//! A loop on one ring without a runtime: what the kernel itself costs.

use super::{BARE, Contestant};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Operation, RANGES, Workload};
use io_uring::squeue::Flags;
use io_uring::{
    CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue, types,
};
use ringway_measure::rounds::Turn;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::thread;

/// The most entries of a ring, so that one call does not submit too many.
const MOST_ENTRIES: usize = 4096;
/// The kernel's limit for completions.
const MOST_COMPLETIONS: usize = 65536;

pub const TEXTBOOK: Contestant = Contestant {
    leaves_out,
    ..Contestant::new(
        BARE,
        "one thread, one ring, no runtime; waits for one completion, reaps all, pushes as many",
        |job| run(job, false),
    )
};

pub const GROUPED: Contestant = Contestant {
    leaves_out: |workload| {
        let few = || "too few operations in flight for groups".into();
        leaves_out(workload).or_else(|| (workload.readers < 16).then(few))
    },
    ..Contestant::new(
        "bare-grouped",
        "the same, but waits for an eighth of the operations in flight",
        |job| run(job, true),
    )
};

fn leaves_out(workload: &Workload) -> Option<String> {
    (workload.operation == Operation::Sum)
        .then(|| "this row compares readers of a whole file".into())
}

fn run(job: &'static Job, grouped: bool) -> anyhow::Result<Turn> {
    let (file, readers) = (job.open()?, Reader::all(job));
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

/// A reader and its buffer.
struct Slot {
    reader: Reader,
    buffer: Buffer,
}

/// Runs rows in which each reader has one operation in flight.
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
    let mut running = slots.len();
    while running > 0 {
        wait(&submitter, &mut queue, &mut completions, group.min(running))?;
        for completion in completions.by_ref() {
            let index = completion.user_data() as usize;
            let slot = &mut slots[index];
            // An fdatasync returns 0. It is linked to the write, so it succeeds only if the whole
            // block was written.
            let bytes = if workload.operation == Operation::Write { workload.block } else { 0 };
            slot.reader.end(result(&completion).map(|result| bytes + result));
            if slot.reader.begin() {
                slot.push(index, workload, file, &submitter, &mut queue)?;
            } else {
                running -= 1;
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

/// Runs the row `ranges`: pushes all reads of a request, then waits for them.
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

/// A ring with the flags for one thread, if the kernel supports them.
pub fn ring(in_flight: usize) -> io::Result<IoUring> {
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

/// Pushes entries; submits first if the queue has too few free slots.
pub fn push(
    submitter: &Submitter<'_>,
    queue: &mut SubmissionQueue<'_>,
    entries: &[squeue::Entry],
) -> io::Result<()> {
    if queue.capacity() - queue.len() < entries.len() {
        queue.sync();
        submitter.submit()?;
        queue.sync();
    }
    // SAFETY: the callers leak the buffers that entries point to, so they outlive the operations,
    // and use none in two entries at the same time.
    // The kernel holds its own reference to the file of a submitted entry.
    unsafe { queue.push_multiple(entries) }.map_err(io::Error::other)
}

/// Submits what was pushed, and waits for this many completions.
pub fn wait(
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
