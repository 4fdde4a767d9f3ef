//! tokio-uring: a current-thread tokio with a ring.

use super::{Contestant, per_core, ranges};
use crate::buffer::Buffer;
use crate::figures::Figures;
use crate::job::Job;
use crate::reader::Reader;
use crate::shape::{Shape, Work};
use std::io;
use std::rc::Rc;
use tokio_uring::buf::{IoBuf, IoBufMut};
use tokio_uring::fs::File;

pub struct TokioUring;

impl Contestant for TokioUring {
    fn name(&self) -> &'static str {
        "tokio-uring"
    }

    fn about(&self) -> &'static str {
        "tokio_uring::start on one thread; cached, on one for each core; its own settings"
    }

    fn leaves_out(&self, shape: &Shape) -> Option<String> {
        per_core::leaves_out(shape)
    }

    fn run(&self, job: &'static Job) -> anyhow::Result<Figures> {
        per_core::measure(job, |_, job, readers| {
            tokio_uring::start(async {
                let file = Rc::new(File::from_std(job.open().expect("it was opened before")));
                if job.shape.work == Work::Ranges {
                    let start = |buffer, offset| {
                        let file = file.clone();
                        let task =
                            tokio_uring::spawn(async move { operate(&file, Work::Ranges, buffer, offset).await });
                        async { task.await.ok() }
                    };
                    for reader in readers {
                        ranges::by_tasks(reader, start).await;
                    }
                    return;
                }
                let tasks: Vec<_> = readers
                    .into_iter()
                    .map(|reader| tokio_uring::spawn(blocks(reader, file.clone(), Buffer::new(job.shape.block))))
                    .collect();
                for task in tasks {
                    task.await.expect("no reader panics");
                }
            });
        })
    }

    fn is_runtime(&self) -> bool {
        true
    }
}

async fn blocks(mut reader: Reader, file: Rc<File>, mut buffer: Buffer) {
    let work = reader.job().shape.work;
    while reader.begin() {
        let (result, back) = operate(&file, work, buffer, reader.offset()).await;
        buffer = back;
        reader.end(result);
    }
}

async fn operate(file: &File, work: Work, buffer: Buffer, offset: u64) -> (io::Result<usize>, Buffer) {
    if work != Work::Write {
        return file.read_at(buffer, offset).await;
    }
    let (result, buffer) = file.write_at(buffer, offset).submit().await;
    (file.sync_data().await.and(result), buffer)
}

// SAFETY: the bytes are on the heap and do not move with the value; all of them are initialised, always.
unsafe impl IoBuf for Buffer {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len()
    }

    fn bytes_total(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for Buffer {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    unsafe fn set_init(&mut self, _: usize) {}
}
