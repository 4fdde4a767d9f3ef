//! The system calls that block, for those who have a thread to spare for them.

use crate::workload::Operation;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// One block at an offset: read, or written and synced.
pub fn operate(file: &File, operation: Operation, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    if !operation.writes() {
        return file.read_at(buffer, offset);
    }
    let written = file.write_at(buffer, offset)?;
    file.sync_data()?;
    Ok(written)
}
