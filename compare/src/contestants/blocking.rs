//! The blocking system calls, for contestants that make them on threads.

use crate::workload::Operation;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Reads one block, or writes and syncs it.
pub fn operate(
    file: &File,
    operation: Operation,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    if !operation.writes() {
        return file.read_at(buffer, offset);
    }
    let written = file.write_at(buffer, offset)?;
    file.sync_data()?;
    Ok(written)
}
