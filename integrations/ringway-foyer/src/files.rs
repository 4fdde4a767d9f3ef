//! The files of foyer's devices as ringway's.

use foyer_storage::{Partition, RawFile, Statistics};
use ringway::Engine;
use ringway::fs::File;
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, PoisonError, RwLock, Weak};

/// A duplicate of each descriptor that partitions have named. So an operation in flight keeps the
/// file open, whatever becomes of its device.
#[derive(Debug)]
pub(crate) struct Files {
    engine: Engine,
    open: RwLock<HashMap<(RawFd, usize), Duplicate>>,
}

#[derive(Debug)]
struct Duplicate {
    /// The device that the descriptor belongs to. While it lives, the number is not another file's.
    /// The reference keeps the address, which is a part of the key, from being used again.
    device: Weak<Statistics>,
    file: File,
}

impl Files {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, open: RwLock::default() }
    }

    /// The file of an address in a partition, and its offset there. Blocks no longer than
    /// duplicating a descriptor takes.
    pub(crate) fn of(&self, partition: &dyn Partition, address: u64) -> io::Result<(File, u64)> {
        let (RawFile(fd), offset) = partition.translate(address);
        let device = partition.statistics();
        let key = (fd, Arc::as_ptr(device) as usize);
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = open.get(&key) {
            return Ok((found.file.clone(), offset));
        }
        drop(open);
        // SAFETY: the partition, which is borrowed here, keeps its file open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let file = File::from_fd(borrowed.try_clone_to_owned()?, &self.engine);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, duplicate| duplicate.device.strong_count() > 0);
        open.insert(key, Duplicate { device: Arc::downgrade(device), file: file.clone() });
        Ok((file, offset))
    }
}
