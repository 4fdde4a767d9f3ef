//! compio: a ring and an executor on each thread.

use super::{COMPIO, Contestant, per_core};
use crate::buffer::Buffer;
use crate::job::Job;
use crate::workload::Operation;
use compio::buf::{BufResult, IoBuf, IoBufMut, SetLen};
use compio::fs::{File, OpenOptions};
use compio::io::{AsyncReadAt, AsyncWriteAt};
use compio::runtime::Runtime;
use ringway_measure::rounds::Turn;
use std::io;
use std::mem::MaybeUninit;
use std::slice;

pub const RUNTIME: Contestant = Contestant {
    leaves_out: per_core::leaves_out,
    is_runtime: true,
    ..Contestant::new(
        COMPIO,
        "io_uring driver, one thread (cached rows: one for each core); default settings",
        run,
    )
};

fn run(job: &'static Job) -> anyhow::Result<Turn> {
    per_core::measure(job, |_, job, readers| {
        let runtime = Runtime::new().expect("io_uring is available");
        runtime.block_on(async {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(job.workload.operation == Operation::Write)
                .custom_flags(job.open_flags());
            let file = options.open(&job.file).await.expect("the parent has opened the file");
            per_core::run::<Compio>(job, readers, file).await;
        });
    })
}

struct Compio;

impl per_core::Runtime for Compio {
    type File = File;

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
