//! monoio: an executor with a ring on each thread.

use super::{Contestant, per_core};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::workload::Operation;
use monoio::buf::{IoBuf, IoBufMut};
use monoio::fs::File;
use monoio::{IoUringDriver, RuntimeBuilder};
use std::io;
use std::rc::Rc;

pub const RUNTIME: Contestant = per_core::contestant::<Monoio>(
    "monoio",
    "io_uring driver, one thread (cached rows: one for each core); default settings",
);

struct Monoio;

impl per_core::Runtime for Monoio {
    type File = Rc<File>;

    fn block_on(future: impl Future<Output = ()>) {
        let runtime = RuntimeBuilder::<IoUringDriver>::new().build();
        runtime.expect("io_uring is available").block_on(future);
    }

    async fn open(job: &Job) -> io::Result<Rc<File>> {
        Ok(Rc::new(File::from_std(job.open()?)?))
    }

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
