//! Copies data within the kernel: `copy_file_range(2)`, on Linux.

use crate::fs::File;
use rustix::fs::copy_file_range;
use rustix::io::Errno;
use std::io;

/// Bytes that the kernel copies in one call. A dropped copy stops after the current call.
const KERNEL_COPY: usize = 8 << 20;

/// Copies as much as the kernel copies by itself, and returns how much. It copies nothing from
/// files without a length, such as those in /proc, and only the first part of a file whose server
/// states another length or answers a read in parts.
pub(super) async fn copy(from: &File, to: &File) -> io::Result<u64> {
    let engine = from.engine();
    let mut done = 0;
    loop {
        let (source, target) = (from.core().clone(), to.core().clone());
        let (mut read_at, mut write_at) = (done, done);
        let copied = engine.call(move || {
            match copy_file_range(
                source,
                Some(&mut read_at),
                target,
                Some(&mut write_at),
                KERNEL_COPY,
            ) {
                // The kernel or the file system does not support it, for these two files or at all.
                Err(
                    Errno::NOSYS
                    | Errno::XDEV
                    | Errno::INVAL
                    | Errno::PERM
                    | Errno::OPNOTSUPP
                    | Errno::BADF
                    | Errno::OVERFLOW
                    | Errno::TXTBSY,
                ) => Ok(None),
                copied => Ok(Some(copied?)),
            }
        });
        match copied.await? {
            None | Some(0) => return Ok(done),
            Some(copied) => done += copied as u64,
        }
    }
}
