//! Which pages of a file on an overlay are in memory: an overlay refuses to read "only if that does
//! not wait" (`RWF_NOWAIT`), so whoever wants to read without waiting looks first.
//!
//! `mincore(2)` shows it for a mapping, and a mapping of such a file is one of the file in its
//! layer. That is known to say what the next read does
//!
//! - on ext4, where a read of a page that is in memory takes no lock of the file. (On XFS it waits
//!   for whoever writes to the file.)
//! - for whoever may change the file's attributes: to others the call shows every page.
//! - until somebody writes to the file: that may move it to the upper layer, of which the mapping
//!   knows nothing.

use crate::device::inode_flags;
use crate::submit_waits::system::{statx, ticks, wall_clock};
use crate::sys::{BorrowedFd, RawFd, libc};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The mapping extends so far beyond the end of the file, since a folio across the end may have
/// pages there that are in memory.
const ROOM: usize = 4 << 20;

/// The most bytes of all mappings together, so that addresses and mappings are left to the program:
/// a process has 65,530 mappings and, on some processors, 256 GiB.
const MOST_MAPPED: usize = 64 << 30;

static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The most pages that one call looks at.
const PAGES_PER_LOOK: usize = 256;

/// The time, to be taken before ringway opens a file: with it, reads of the file may be made in
/// place.
pub(crate) fn opening_time() -> u64 {
    nanoseconds(wall_clock())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A mapping of an open file, without access to it: only its pages are asked about.
#[derive(Debug)]
pub(crate) struct ResidentPages {
    first: usize,
    len: usize,
    page: usize,
    /// When the file was changed last, and its size then.
    state: (u64, u64),
    /// The tick of the clock of the last look at the file, with its lowest bit for the answer.
    looked: AtomicU64,
}

impl ResidentPages {
    /// Those of a regular file of an overlay that ringway has opened after this time
    /// ([`opening_time`]), if reads of pages in memory do not wait. Such reads do not change the
    /// access time any more (`O_NOATIME`): that would wait for the journal of the layer.
    ///
    /// Makes some system calls, none of which waits if the layer is on a local file system.
    pub fn of(file: BorrowedFd<'_>, opened: u64) -> Option<Self> {
        const KIND: libc::c_int = libc::O_ACCMODE | libc::O_PATH | libc::O_DIRECT;
        let fd = file.as_raw_fd();
        // SAFETY: `fcntl` with F_GETFL takes numbers only.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags < 0 || flags & KIND != libc::O_RDONLY {
            return None;
        }
        // A file that was changed since may have been moved to the upper layer; the mapping would
        // still be one of the lower one.
        let state = state(fd).filter(|(changed, _)| is_before(*changed, opened))?;
        if !is_on_ext4(file) {
            return None;
        }
        // Before the mapping, which changes the access time too, and before `mincore(2)`. It fails
        // for whoever neither owns the file nor has CAP_FOWNER.
        // SAFETY: as above.
        let set = |flags: libc::c_int| unsafe { libc::fcntl(fd, libc::F_SETFL, flags) == 0 };
        if flags & libc::O_NOATIME == 0 && !set(flags | libc::O_NOATIME) {
            return None;
        }
        let found = Self::map(fd, state).filter(|found| found.look(fd));
        if found.is_none() {
            set(flags);
        }
        found
    }

    fn map(fd: RawFd, state: (u64, u64)) -> Option<Self> {
        // SAFETY: `sysconf` takes numbers only.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let size = usize::try_from(state.1).ok()?;
        let len = size.checked_add(ROOM)?.checked_next_multiple_of(page)?;
        if cfg!(not(target_pointer_width = "64")) || has_few_addresses() {
            return None;
        }
        let within =
            |mapped: usize| mapped.checked_add(len).filter(|mapped| *mapped <= MOST_MAPPED);
        MAPPED_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).ok()?;
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, to which nobody has access, where the kernel chooses.
        let first = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, fd, 0) };
        if first == libc::MAP_FAILED {
            MAPPED_BYTES.fetch_sub(len, Ordering::Relaxed);
            return None;
        }
        let mapped = Self { first: first.addr(), len, page, state, looked: AtomicU64::new(0) };
        // No core dump is to have the file in it (bit 2 of `coredump_filter`), nor is the mapping
        // to count as locked memory, as each new one does after `mlockall(2)` with MCL_FUTURE.
        // SAFETY: the mapping above, to which nobody has access.
        let is_set = unsafe {
            libc::madvise(first, len, libc::MADV_DONTDUMP) == 0 && libc::munlock(first, len) == 0
        };
        is_set.then_some(mapped)
    }

    /// Whether [`count`](Self::count) says what is in memory. The file, the one that was mapped, is
    /// looked at once in a tick of the kernel's clock.
    #[inline]
    pub fn are_known(&self, fd: RawFd) -> bool {
        let looked = self.looked.load(Ordering::Relaxed);
        if looked & !1 == ticks() & !1 { looked & 1 != 0 } else { self.look(fd) }
    }

    /// Whether the file is unchanged, and the kernel does not show pages behind its end.
    #[cold]
    fn look(&self, fd: RawFd) -> bool {
        let now = ticks() & !1;
        let mut behind = [1];
        let are_known = state(fd) == Some(self.state)
            && self.ask(self.len - self.page, &mut behind)
            && behind == [0];
        self.looked.store(now | u64::from(are_known), Ordering::Relaxed);
        are_known
    }

    /// How many of `len` bytes at `offset` there are, which is fewer at the end of the file, if all
    /// of these are in memory.
    #[inline]
    pub fn count(&self, fd: RawFd, offset: u64, len: usize) -> Option<usize> {
        let (_, size) = self.state;
        let end = offset.checked_add(len as u64)?;
        // (The end may be elsewhere by now.)
        if end > size && !self.look(fd) {
            return None;
        }
        // Both are within the mapping.
        let (start, end) = (offset.min(size) as usize, end.min(size) as usize);
        self.has(start, end).then_some(end - start)
    }

    fn has(&self, start: usize, end: usize) -> bool {
        let mut at = start - start % self.page;
        let mut found = [0; PAGES_PER_LOOK];
        while at < end {
            let count = (end - at).div_ceil(self.page).min(PAGES_PER_LOOK);
            let found = &mut found[..count];
            if !self.ask(at, found) || found.iter().any(|page| page & 1 == 0) {
                return false;
            }
            at += count * self.page;
        }
        true
    }

    /// Asks which pages from there on are in memory.
    fn ask(&self, at: usize, found: &mut [u8]) -> bool {
        let first = ptr::without_provenance_mut(self.first + at);
        let len = found.len() * self.page;
        // SAFETY: the kernel writes a byte for each page; it does not access the pages.
        unsafe { libc::mincore(first, len, found.as_mut_ptr()) == 0 }
    }
}

impl Drop for ResidentPages {
    fn drop(&mut self) {
        let first = ptr::without_provenance_mut(self.first);
        // SAFETY: the mapping is this value's, and nobody accesses it. (A forked child has one of
        // its own at the same place.)
        unsafe { libc::munmap(first, self.len) };
        MAPPED_BYTES.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// When the file was changed last, its size or its attributes included, in nanoseconds, and its
/// size. Waits for nothing.
fn state(fd: RawFd) -> Option<(u64, u64)> {
    let wanted = libc::STATX_CTIME | libc::STATX_SIZE;
    let found = statx(fd, wanted).filter(|found| found.stx_mask & wanted == wanted)?;
    let seconds = u64::try_from(found.stx_ctime.tv_sec).ok()?;
    let changed = Duration::new(seconds, found.stx_ctime.tv_nsec);
    Some((nanoseconds(changed), found.stx_size))
}

/// Whether a file that was changed last then is unchanged since a later time. Changes within one
/// tick of the kernel's clock have one time; on ext4 with inodes of 128 bytes, those within a
/// second.
fn is_before(changed: u64, opened: u64) -> bool {
    const SECOND: u64 = 1_000_000_000;
    let tick = if changed.is_multiple_of(SECOND) { SECOND } else { 1 };
    changed.saturating_add(tick) <= opened
}

/// Whether the file has extents of ext4. An overlay passes the question to the file's layer.
fn is_on_ext4(fd: BorrowedFd<'_>) -> bool {
    const FS_EXTENT_FL: libc::c_int = 0x0008_0000;
    inode_flags(fd) & FS_EXTENT_FL != 0
}

/// Whether the addresses of the process are limited: a mapping counts, though it takes no memory.
fn has_few_addresses() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes a whole `rlimit`.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    got != 0 || limit.rlim_cur != libc::RLIM_INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_whole_seconds_is_older_only_a_second_later() {
        const SECOND: u64 = 1_000_000_000;
        for (changed, opened, wanted) in [
            (5 * SECOND + 1, 5 * SECOND + 1, false),
            (5 * SECOND + 1, 5 * SECOND + 2, true),
            (5 * SECOND, 6 * SECOND - 1, false),
            (5 * SECOND, 6 * SECOND, true),
            (6 * SECOND, 5 * SECOND, false),
        ] {
            assert_eq!(is_before(changed, opened), wanted, "{changed} {opened}");
        }
    }
}
