//! Has the kernel read the list of a file's extents, which is in blocks of the file system. ext4
//! reads each of them when a transfer first needs it, in the thread that submits the transfer, also
//! with `RWF_NOWAIT`.

use crate::sys::{RawFd, libc};
use std::time::{Duration, Instant};

/// As many as are in one block of ext4's list.
const PER_BLOCK: usize = 340;

/// As many are asked for at a time. A call reads a block for each if the blocks are nearly empty,
/// and the time is checked between calls only.
const PER_CALL: usize = 32;

/// As many blocks of 512 bytes are in so many extents at least, of a file system with 4 KiB blocks:
/// the first transfer reads the list of a smaller file whole, without this.
pub(crate) const SMALL_FILE_BLOCKS: u64 = PER_BLOCK as u64 * 8;

/// A file is read by programs that wait. What is not read within this time is left.
const AT_MOST: Duration = Duration::from_secs(1);

/// `FS_IOC_FIEMAP` of linux/fs.h.
const FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
/// `FIEMAP_EXTENT_LAST`.
const LAST: u32 = 1;

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    len: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_flags: [u32; 3],
}

/// `struct fiemap`, with room for some extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; PER_CALL],
}

/// Has the list read, from the start of the file. Waits for the device. Returns how many calls it
/// has made.
pub(crate) fn load(fd: RawFd) -> u64 {
    let end = Instant::now() + AT_MOST;
    let mut found = Box::new(Fiemap {
        start: 0,
        len: u64::MAX,
        flags: 0,
        mapped: 0,
        count: PER_CALL as u32,
        reserved: 0,
        extents: [Extent::default(); PER_CALL],
    });
    let mut calls = 0;
    while Instant::now() < end {
        calls += 1;
        // SAFETY: `found` is a `struct fiemap` with room for `count` extents, and is valid for
        // reads and writes during the call.
        let result = unsafe { libc::ioctl(fd, FIEMAP, &raw mut *found) };
        let mapped = usize::try_from(found.mapped).unwrap_or(usize::MAX).min(PER_CALL);
        let Some(last) = found.extents[..mapped].last().filter(|_| result == 0) else { break };
        let next = last.logical.saturating_add(last.len);
        if last.flags & LAST != 0 || next <= found.start {
            break;
        }
        (found.start, found.len) = (next, u64::MAX - next);
    }
    calls
}
