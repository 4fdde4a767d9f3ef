//! monoio: an executor with a ring on each thread.

use super::{Contestant, per_core};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::workload::Operation;
use monoio::buf::{IoBuf, IoBufMut};
use monoio::fs::File;
use monoio::{IoUringDriver, RuntimeBuilder};
use ringway_measure::rounds::Turn;
use std::io;
use std::rc::Rc;

pub const RUNTIME: Contestant = Contestant {
    leaves_out: per_core::leaves_out,
    is_runtime: true,
    ..Contestant::new(
        "monoio",
        "io_uring driver, one thread (cached rows: one for each core); default settings",
        run,
    )
};

fn run(job: &'static Job) -> anyhow::Result<Turn> {
    per_core::measure(job, |_, job, readers| {
        let mut runtime =
            RuntimeBuilder::<IoUringDriver>::new().build().expect("io_uring is available");
        runtime.block_on(async {
            let file = job.open().and_then(File::from_std).expect("the parent has opened the file");
            per_core::run::<Monoio>(job, readers, Rc::new(file)).await;
        });
    })
}

struct Monoio;

impl per_core::Runtime for Monoio {
    type File = Rc<File>;

    fn spawn<T: 'static>(
        task: impl Future<Output = T> + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        let task = monoio::spawn(task);
        async { Some(task.await) }
    }

    async fn operate(
        file: &mut Rc<File>,
        operation: Operation,
        buffer: Buffer,
        offset: u64,
    ) -> (io::Result<usize>, Buffer) {
        if operation != Operation::Write {
            return file.read_at(buffer, offset).await;
        }
        let (result, buffer) = file.write_at(buffer, offset).await;
        (file.sync_data().await.and(result), buffer)
    }
}

// SAFETY: `Buffer` owns its bytes on the heap, so they do not move with the value, and initialises
// all of them.
unsafe impl IoBuf for Buffer {
    fn read_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len()
    }
}

// SAFETY: as for `IoBuf`; reads leave the bytes initialised.
unsafe impl IoBufMut for Buffer {
    fn write_ptr(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn bytes_total(&mut self) -> usize {
        self.len()
    }

    unsafe fn set_init(&mut self, _: usize) {}
}
