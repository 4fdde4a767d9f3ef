//! The limits of the rows on the null backend: what is left of ringway without its engine, and without a runtime.

use super::{Contestant, FLOOR, QUEUE, tasks};
use crate::buffer::Buffer;
use crate::figures::Figures;
use crate::job::Job;
use crate::reader::Reader;
use crate::shape::{Shape, Work};
use ringway_core::{BackendKind, File, Options, Queue, op};
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;

/// Tasks that wait for nothing but to be woken, many at once.
pub struct Floor;

/// The queue below the engine.
pub struct Alone;

impl Contestant for Floor {
    fn name(&self) -> &'static str {
        FLOOR
    }

    fn about(&self) -> &'static str {
        "tokio tasks that are woken in groups of an eighth, and do no I/O at all"
    }

    fn run(&self, job: &'static Job) -> anyhow::Result<Figures> {
        let runtime = tasks::runtime(job)?;
        let asleep = Arc::new(Group { asleep: Mutex::default(), size: (job.shape.readers / 8).max(1) });
        for reader in job.readers() {
            let (asleep, tally, shape) = (asleep.clone(), reader.tally(), job.shape);
            let operate = async move |buffer, _| {
                tasks::timed(shape, tally, asleep.sleep()).await;
                Some((Ok(shape.block), buffer))
            };
            runtime.spawn(tasks::blocks(reader, Buffer::new(shape.block), operate));
        }
        job.measure()
    }
}

/// Tasks that sleep, until there are so many.
struct Group {
    asleep: Mutex<Vec<Waker>>,
    size: usize,
}

impl Group {
    /// Until the group is whole.
    async fn sleep(&self) {
        let mut woken = false;
        poll_fn(|cx| {
            if woken {
                return Poll::Ready(());
            }
            woken = true;
            let mut asleep = self.asleep.lock().expect("no task panics");
            asleep.push(cx.waker().clone());
            if asleep.len() == self.size {
                let group = std::mem::replace(&mut *asleep, Vec::with_capacity(self.size));
                drop(asleep);
                group.into_iter().for_each(Waker::wake);
            }
            Poll::Pending
        })
        .await;
    }
}

impl Contestant for Alone {
    fn name(&self) -> &'static str {
        QUEUE
    }

    fn about(&self) -> &'static str {
        "ringway-core's queue on one thread, without the engine: pushes as many as there are tasks, reaps them"
    }

    fn leaves_out(&self, shape: &Shape) -> Option<String> {
        (shape.work != (Work::Null { workers: 1 })).then(|| "it has one thread".into())
    }

    fn run(&self, job: &'static Job) -> anyhow::Result<Figures> {
        let depth = job.shape.readers;
        let queue = Options::new().backend(BackendKind::Null).in_flight(depth as u32).build()?;
        let file = File::from(job.open()?);
        let mut readers = job.at_most(1);
        thread::spawn(move || {
            if let Some(reader) = readers.pop()
                && let Err(error) = push_and_reap(queue, &file, depth, reader)
            {
                job.fail(error.to_string());
            }
        });
        job.measure()
    }
}

/// One reader's tally counts them all, a batch at a time.
fn push_and_reap(mut queue: Queue, file: &File, depth: usize, mut reader: Reader) -> io::Result<()> {
    let block = reader.job().shape.block;
    let mut buffers: Vec<ringway_core::Buffer> = (0..depth).map(|_| vec![0u8; block].into()).collect();
    while reader.begin_many(depth as u64) {
        for buffer in buffers.drain(..) {
            queue.push(op::read(file, buffer, reader.offset()))?;
        }
        buffers.extend(queue.reap(depth)?.filter_map(|completion| completion.into_buffer()));
        if buffers.len() != depth {
            return Err(io::Error::other(format!("{} reads of {depth}", buffers.len())));
        }
        reader.end_many(depth as u64);
    }
    Ok(())
}
