//! The lower limits of the rows on the null backend: the runtime without ringway, and the queue of
//! ringway-core without a runtime.

use super::{Contestant, FLOOR, QUEUE, tasks};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::reader::Reader;
use crate::workload::{Operation, Workload};
use ringway_core::{BackendKind, File, Options, Queue, op};
use ringway_measure::rounds::Turn;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;

/// Tasks that only sleep and wake each other in groups.
pub const FLOOR_TASKS: Contestant = Contestant::new(
    FLOOR,
    "tokio tasks that are woken in groups of an eighth and do no I/O",
    run_floor,
);

/// ringway-core's queue on one thread.
pub const QUEUE_ONLY: Contestant = Contestant {
    leaves_out: |workload| {
        (workload.operation != (Operation::Null { workers: 1 }))
            .then(|| "it runs on one thread".into())
    },
    ..Contestant::new(
        QUEUE,
        "ringway-core's queue on one thread, without the engine; pushes one read for each task, \
 then reaps them",
        run_queue,
    )
};

fn run_floor(job: &'static Job) -> anyhow::Result<Turn> {
    let runtime = tasks::runtime(job)?;
    let Workload { operation, block, readers, .. } = job.workload;
    let group = Arc::new(Mutex::new(Group {
        asleep: Vec::new(),
        size: (readers / 8).max(1),
        tasks: readers,
    }));
    for reader in Reader::all(job) {
        let (member, tally) = (Member(group.clone()), reader.tally());
        let operate = async move |buffer, _| {
            match operation {
                Operation::Polls => tasks::timed(tally, member.sleep()).await,
                _ => member.sleep().await,
            }
            Some((Ok(block), buffer))
        };
        runtime.spawn(tasks::blocks(reader, Buffer::new(block), operate));
    }
    job.measure()
}

/// Tasks that sleep until `size` of them do.
struct Group {
    asleep: Vec<Waker>,
    size: usize,
    /// All tasks that have not ended.
    tasks: usize,
}

impl Group {
    /// Takes all sleeping tasks if the group is complete, or if no other task is left.
    fn complete(&mut self) -> Vec<Waker> {
        if self.asleep.len() < self.size.min(self.tasks) {
            return Vec::new();
        }
        std::mem::replace(&mut self.asleep, Vec::with_capacity(self.size))
    }
}

/// A task of the group.
struct Member(Arc<Mutex<Group>>);

impl Member {
    /// Sleeps until the group is complete.
    async fn sleep(&self) {
        let mut woken = false;
        poll_fn(|cx| {
            if woken {
                return Poll::Ready(());
            }
            woken = true;
            let complete = {
                let mut group = self.0.lock().expect("no task panics");
                group.asleep.push(cx.waker().clone());
                group.complete()
            };
            complete.into_iter().for_each(Waker::wake);
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let complete = {
            let mut group = self.0.lock().expect("no task panics");
            group.tasks -= 1;
            group.complete()
        };
        complete.into_iter().for_each(Waker::wake);
    }
}

fn run_queue(job: &'static Job) -> anyhow::Result<Turn> {
    let depth = job.workload.readers;
    let queue = Options::new().backend(BackendKind::Null).in_flight(depth as u32).build()?;
    let file = File::from(job.open()?);
    let mut readers = Reader::at_most(job, 1);
    thread::spawn(move || {
        if let Some(reader) = readers.pop()
            && let Err(error) = push_and_reap(queue, &file, depth, reader)
        {
            job.fail(error.to_string());
        }
    });
    job.measure()
}

/// Pushes and reaps batches of `depth` reads. One reader counts all of them.
fn push_and_reap(
    mut queue: Queue,
    file: &File,
    depth: usize,
    mut reader: Reader,
) -> io::Result<()> {
    let block = reader.job().workload.block;
    let mut buffers: Vec<ringway_core::Buffer> =
        (0..depth).map(|_| vec![0u8; block].into()).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn tasks_of_a_group_wake_when_others_have_ended() {
        const TASKS: usize = 5;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let group = Arc::new(Mutex::new(Group { asleep: Vec::new(), size: 4, tasks: TASKS }));
        runtime.block_on(async {
            let task = |times| {
                let member = Member(group.clone());
                tokio::spawn(async move {
                    for _ in 0..times {
                        member.sleep().await;
                    }
                })
            };
            for task in (0..TASKS).map(task).collect::<Vec<_>>() {
                tokio::time::timeout(Duration::from_secs(60), task)
                    .await
                    .expect("a task was never woken")
                    .unwrap();
            }
        });
        assert_eq!(group.lock().unwrap().tasks, 0);
    }
}
