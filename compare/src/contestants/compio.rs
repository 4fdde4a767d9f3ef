//! compio: a ring and an executor on each thread.

use super::{COMPIO, Contestant, per_core};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::workload::Operation;
use compio::buf::{BufResult, IoBuf, IoBufMut, SetLen};
use compio::fs::{File, OpenOptions};
use compio::io::{AsyncReadAt, AsyncWriteAt};
use compio::runtime::Runtime;
use std::io;
use std::mem::MaybeUninit;
use std::slice;

pub const RUNTIME: Contestant = per_core::contestant::<Compio>(
    COMPIO,
    "io_uring driver, one thread (cached rows: one for each core); default settings",
);

struct Compio;

impl per_core::Runtime for Compio {
    type File = File;

    fn block_on(future: impl Future<Output = ()>) {
        Runtime::new().expect("io_uring is available").block_on(future);
    }

    async fn open(job: &Job) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(job.workload.operation.writes()).custom_flags(job.open_flags());
        options.open(&job.file).await
    }

    fn spawn<T: 'static>(
        task: impl Future<Output = T> + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        let task = compio::runtime::spawn(task);
        async { task.await.ok() }
    }

    async fn operate(
        file: &mut File,
        operation: Operation,
        buffer: Buffer,
        offset: u64,
    ) -> (io::Result<usize>, Buffer) {
        if operation != Operation::Write {
            let BufResult(result, buffer) = file.read_at(buffer, offset).await;
            return (result, buffer);
        }
        let BufResult(result, buffer) = file.write_at(buffer, offset).await;
        (file.sync_data().await.and(result), buffer)
    }
}

impl IoBuf for Buffer {
    fn as_init(&self) -> &[u8] {
        self
    }
}

impl SetLen for Buffer {
    unsafe fn set_len(&mut self, _: usize) {}
}

impl IoBufMut for Buffer {
    fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let (bytes, len) = (self.as_mut_ptr(), self.len());
        // SAFETY: the bytes are initialised and borrowed mutably as long as the slice. A read only
        // fills them, so they stay initialised.
        unsafe { slice::from_raw_parts_mut(bytes.cast(), len) }
    }
}
