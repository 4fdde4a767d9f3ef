//! tokio-uring: a current-thread tokio runtime with a ring on each thread.

use super::{Contestant, per_core};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::workload::Operation;
use std::io;
use std::rc::Rc;
use tokio_uring::buf::{IoBuf, IoBufMut};
use tokio_uring::fs::File;

pub const RUNTIME: Contestant = per_core::contestant::<TokioUring>(
    "tokio-uring",
    "tokio_uring::start, one thread (cached rows: one for each core); default settings",
);

struct TokioUring;

impl per_core::Runtime for TokioUring {
    type File = Rc<File>;

    fn block_on(future: impl Future<Output = ()>) {
        tokio_uring::start(future);
    }

    async fn open(job: &Job) -> io::Result<Rc<File>> {
        Ok(Rc::new(File::from_std(job.open()?)))
    }

    fn spawn<T: 'static>(
        task: impl Future<Output = T> + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        let task = tokio_uring::spawn(task);
        async { task.await.ok() }
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
        let (result, buffer) = file.write_at(buffer, offset).submit().await;
        (file.sync_data().await.and(result), buffer)
    }
}

// SAFETY: `Buffer` owns its bytes on the heap, so they do not move with the value, and initialises
// all of them.
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

// SAFETY: as for `IoBuf`; reads leave the bytes initialised.
unsafe impl IoBufMut for Buffer {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    unsafe fn set_init(&mut self, _: usize) {}
}
