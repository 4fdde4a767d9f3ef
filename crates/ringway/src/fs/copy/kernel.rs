//! Copies data within the kernel: `copy_file_range(2)`, on Linux.

use crate::fs::File;
use rustix::fs::copy_file_range;
use rustix::io::Errno;
use std::io;

/// Bytes that the kernel copies in one call. A dropped copy stops after the current call.
const STEP: usize = 8 << 20;

/// How much the kernel has copied.
pub(super) enum Copied {
    All(u64),
    Part(u64),
}

/// Copies as much as the kernel copies by itself.
pub(super) async fn copy(from: &File, to: &File) -> io::Result<Copied> {
    let engine = from.engine();
    let mut done = 0;
    loop {
        let (source, target) = (from.core().clone(), to.core().clone());
        let (mut read_at, mut write_at) = (done, done);
        let copied = engine.call(move || {
            match copy_file_range(source, Some(&mut read_at), target, Some(&mut write_at), STEP) {
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
            // The kernel copies nothing from files without a length, such as those in /proc.
            None => return Ok(Copied::Part(done)),
            Some(0) if done == 0 => return Ok(Copied::Part(0)),
            Some(0) => return Ok(Copied::All(done)),
            Some(copied) => done += copied as u64,
        }
    }
}
