//! Whether the kernel may keep the thread that submits a transfer of a file waiting, also where the
//! transfer itself is asynchronous. Such a transfer is submitted by a thread that may wait. Which
//! thread that is, the backends decide.
//!
//! - ext4 changes an inode in a handle of its journal. While a commit is under way, the change
//!   waits for it, also with `RWF_NOWAIT`. A direct write changes the inode's times, and so does a
//!   read whose access time is due: with `relatime` the first one after a write, and one a day.
//! - ext4 and XFS read the list of a file's extents when it is first needed: XFS the whole list,
//!   ext4 a block of it. So before the first transfer of a file on ext4 whose list may have several
//!   blocks, a thread has the kernel read all of them.

use crate::sys::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// How long after a write, or a read that was due, the times are compared for each read.
const WATCHED_FOR: u64 = 1_000_000_000;

/// An access time that is due for so long is one that reads do not change (`chattr +A`, or an owner
/// that the mount does not map).
const NEVER_CHANGED: u64 = 10_000_000_000;

/// What the file system does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    Unknown,
    /// Submitting does not wait, as far as is known.
    Never,
    /// The first transfer may wait.
    FirstTransfer,
    /// The first transfer and direct writes may wait; reads change no access time.
    Writes,
    /// The first transfer, direct writes, and reads whose access time is due may wait.
    Journal,
}

impl Class {
    fn of_byte(byte: u8) -> Self {
        [Self::Never, Self::FirstTransfer, Self::Writes, Self::Journal]
            .into_iter()
            .find(|class| *class as u8 == byte)
            .unwrap_or(Self::Unknown)
    }
}

/// A transfer, as far as it decides whether its submission may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    DirectWrite,
    /// io_uring passes a buffered write on ext4 to a worker by itself.
    BufferedWrite,
}

/// The times of a file that decide whether a read changes its access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    /// Seconds and nanoseconds.
    accessed: (i64, u32),
    modified: (i64, u32),
    changed: (i64, u32),
    /// Seconds now.
    now: i64,
}

impl Times {
    /// Whether a read changes the access time, on a mount with `relatime`.
    fn is_due(&self) -> bool {
        const DAY: i64 = 24 * 60 * 60;
        self.accessed <= self.modified.max(self.changed) || self.now - self.accessed.0 >= DAY
    }

    /// A number that differs, almost surely, if one of the times does.
    fn fingerprint(&self) -> u32 {
        let parts = [self.accessed, self.modified, self.changed];
        let mixed = parts.into_iter().fold(0u64, |all, (seconds, nanoseconds)| {
            let time = (seconds as u64) << 30 ^ u64::from(nanoseconds);
            (all ^ time).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        (mixed ^ mixed >> 32) as u32
    }
}

/// Whether a thread has had the list of extents read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum List {
    /// It is short: the first transfer reads it. Or the file's class is not known yet.
    Short,
    Unread,
    /// An operation is about to have it read.
    Reading,
    Read,
}

/// What is known of one open file. All of it is a hint: threads may race here.
#[derive(Debug, Default)]
pub(crate) struct SubmitWaits {
    class: AtomicU8,
    /// A transfer has completed, so the list of extents is in memory.
    is_loaded: AtomicBool,
    /// The list of extents, as a [`List`].
    list: AtomicU8,
    /// The time of the last comparison, if no read was due then.
    compared: AtomicU64,
    /// Until when each read compares the times.
    watched_until: AtomicU64,
    /// Reads may stop changing the access time, once it is not due.
    may_stop_access_times: AtomicBool,
    /// The times when they were last compared.
    seen: AtomicU32,
    /// The times for which a read was due, and since when.
    due: AtomicU32,
    due_since: AtomicU64,
}

impl SubmitWaits {
    /// Whether submitting this transfer of the file may wait.
    #[inline]
    pub fn may_wait(&self, fd: RawFd, access: Access) -> bool {
        match self.class(fd) {
            Class::Unknown | Class::Never => false,
            Class::FirstTransfer => !self.is_loaded.load(Ordering::Relaxed),
            Class::Writes if access == Access::Read => self.reads_list(),
            Class::Writes | Class::Journal => self.journal_may_wait(fd, access),
        }
    }

    /// Whether the list of extents is to be read before the next transfer. (Known once
    /// [`Self::may_wait`] was asked.)
    #[inline]
    pub fn has_list_to_read(&self) -> bool {
        self.list.load(Ordering::Relaxed) == List::Unread as u8
    }

    /// Makes the caller the one who has the list read, and who calls [`Self::end_list`] after that.
    pub fn begin_list(&self) -> bool {
        self.change_list(List::Unread, List::Reading)
    }

    /// The list was read, or the operation that was to do it has ended without that.
    pub fn end_list(&self, is_read: bool) {
        self.change_list(List::Reading, if is_read { List::Read } else { List::Unread });
    }

    /// Leaves the list to the transfers: what is known of the file is about to be forgotten.
    pub fn leave_list(&self) {
        self.list.store(List::Read as u8, Ordering::Relaxed);
    }

    fn change_list(&self, from: List, to: List) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.list.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether a transfer reads blocks of the list.
    fn reads_list(&self) -> bool {
        let list = self.list.load(Ordering::Relaxed);
        list == List::Unread as u8
            || list == List::Reading as u8
            || !self.is_loaded.load(Ordering::Relaxed)
    }

    /// Whether a read of pages in the page cache may wait.
    #[inline]
    pub fn cached_read_may_wait(&self, fd: RawFd) -> bool {
        self.class(fd) == Class::Journal && self.is_access_time_due(fd)
    }

    /// Whether a try to read from the page cache may wait, also where it misses: there it starts
    /// the read.
    pub fn try_may_wait(&self, fd: RawFd) -> bool {
        match self.class(fd) {
            Class::Unknown | Class::Never => false,
            // (The list stays unread where threads make all transfers.)
            _ if !self.is_loaded.load(Ordering::Relaxed) => true,
            _ => self.cached_read_may_wait(fd),
        }
    }

    /// A transfer has completed.
    #[inline]
    pub fn note_completed(&self, is_write: bool) {
        if !self.is_loaded.load(Ordering::Relaxed) {
            self.is_loaded.store(true, Ordering::Relaxed);
        }
        if is_write && self.class.load(Ordering::Relaxed) == Class::Journal as u8 {
            self.watch();
        }
    }

    /// Permits to set `O_NOATIME`, once the access time is not due.
    pub fn allow_no_access_times(&self) {
        self.may_stop_access_times.store(true, Ordering::Relaxed);
    }

    fn class(&self, fd: RawFd) -> Class {
        // Whoever sees the class sees the list.
        match Class::of_byte(self.class.load(Ordering::Acquire)) {
            Class::Unknown => {
                let (class, blocks) = system::class(fd);
                let is_ext4 = matches!(class, Class::Writes | Class::Journal);
                if is_ext4 && blocks > system::SMALL_FILE_BLOCKS {
                    self.change_list(List::Short, List::Unread);
                }
                self.class.store(class as u8, Ordering::Release);
                class
            }
            class => class,
        }
    }

    fn journal_may_wait(&self, fd: RawFd, access: Access) -> bool {
        match access {
            Access::DirectWrite => true,
            Access::BufferedWrite => {
                self.watch();
                false
            }
            Access::Read => self.reads_list() || self.is_access_time_due(fd),
        }
    }

    /// The times may change soon.
    fn watch(&self) {
        self.watched_until.store(system::ticks() + WATCHED_FOR, Ordering::Relaxed);
    }

    /// Whether the next read changes the access time. Where the file was not written recently, the
    /// times are compared once a tick of the kernel's clock, 1 to 10 ms; others may have written.
    fn is_access_time_due(&self, fd: RawFd) -> bool {
        let now = system::ticks();
        let is_watched = now < self.watched_until.load(Ordering::Relaxed);
        if !is_watched && self.compared.load(Ordering::Relaxed) == now {
            return false;
        }
        let Some(times) = system::times(fd) else { return false };
        let fingerprint = times.fingerprint();
        let is_due = times.is_due() && !self.is_never_changed(fingerprint, now);
        let before = self.seen.swap(fingerprint, Ordering::Relaxed);
        if is_due || before != fingerprint && before != 0 {
            self.watched_until.store(now + WATCHED_FOR, Ordering::Relaxed);
        }
        self.compared.store(now, Ordering::Relaxed);
        if !is_due
            && self.may_stop_access_times.load(Ordering::Relaxed)
            && self.may_stop_access_times.swap(false, Ordering::Relaxed)
            && system::stop_access_times(fd)
        {
            self.class.store(Class::Writes as u8, Ordering::Relaxed);
        }
        is_due
    }

    /// Whether reads have not changed an access time that is due, for long.
    fn is_never_changed(&self, times: u32, now: u64) -> bool {
        if self.due.swap(times, Ordering::Relaxed) != times {
            self.due_since.store(now, Ordering::Relaxed);
            return false;
        }
        now.saturating_sub(self.due_since.load(Ordering::Relaxed)) >= NEVER_CHANGED
    }
}

#[cfg(ringway_linux)]
pub(crate) mod system {
    use super::{Class, RawFd, Times};
    pub(super) use crate::extents::SMALL_FILE_BLOCKS;
    use crate::sys::libc;
    use std::mem::MaybeUninit;
    use std::time::Duration;

    const EXT4: u32 = 0xef53;
    const XFS: u32 = 0x5846_5342;

    /// Nanoseconds of a clock that advances with the kernel's ticks. (Reading it is no system
    /// call.)
    pub fn ticks() -> u64 {
        u64::try_from(clock(libc::CLOCK_MONOTONIC_COARSE).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The time of day, of a clock that advances with the kernel's ticks, as the times of files do.
    pub fn wall_clock() -> Duration {
        clock(libc::CLOCK_REALTIME_COARSE)
    }

    fn clock(id: libc::clockid_t) -> Duration {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is valid for writes during the call, which does not fail for these clocks.
        unsafe { libc::clock_gettime(id, &raw mut now) };
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    /// What the file system does, and how many blocks of 512 bytes the file has. Two short system
    /// calls, which ask nobody outside the kernel.
    pub(super) fn class(fd: RawFd) -> (Class, u64) {
        statx(fd, libc::STATX_TYPE | libc::STATX_BLOCKS)
            .map_or((Class::Never, 0), |inode| (class_of(fd, &inode), inode.stx_blocks))
    }

    fn class_of(fd: RawFd, inode: &libc::statx) -> Class {
        let is_regular = u32::from(inode.stx_mode) & libc::S_IFMT == libc::S_IFREG;
        // Other file systems than those on a block device have no major number; to ask them could
        // mean to ask a server.
        if !is_regular || inode.stx_dev_major == 0 {
            return Class::Never;
        }
        let mut statfs = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: on success fstatfs writes a whole `statfs` into `statfs`.
        if unsafe { libc::fstatfs(fd, statfs.as_mut_ptr()) } != 0 {
            return Class::Never;
        }
        // SAFETY: fstatfs succeeded, so the value is initialised.
        match unsafe { statfs.assume_init() }.f_type as u32 {
            XFS => Class::FirstTransfer,
            EXT4 if changes_access_times(fd) => Class::Journal,
            EXT4 => Class::Writes,
            _ => Class::Never,
        }
    }

    /// False for `O_NOATIME` and for a mount with `noatime`.
    fn changes_access_times(fd: RawFd) -> bool {
        let mut statvfs = MaybeUninit::<libc::statvfs>::zeroed();
        // SAFETY: on success fstatvfs writes a whole `statvfs` into `statvfs`.
        let result = unsafe { libc::fstatvfs(fd, statvfs.as_mut_ptr()) };
        // SAFETY: every bit pattern is a valid `statvfs`, and the value was zeroed.
        let flags = unsafe { statvfs.assume_init() }.f_flag;
        // SAFETY: `fcntl` with F_GETFL takes numbers only.
        let opened = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        (result != 0 || flags & (libc::ST_NOATIME | libc::ST_RDONLY) == 0)
            && (opened < 0 || opened & libc::O_NOATIME == 0)
    }

    /// Sets `O_NOATIME`. False if that is not permitted: the caller neither owns the file nor has
    /// CAP_FOWNER.
    pub(super) fn stop_access_times(fd: RawFd) -> bool {
        // SAFETY: `fcntl` with F_GETFL takes numbers only.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        // SAFETY: as above.
        flags >= 0 && unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NOATIME) } == 0
    }

    /// What a server would have to be asked for is not, so this does not wait.
    pub fn statx(fd: RawFd, mask: u32) -> Option<libc::statx> {
        let mut inode = MaybeUninit::<libc::statx>::zeroed();
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        // SAFETY: the path is a C string, and the kernel writes at most one `statx` into `inode`.
        let result = unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, inode.as_mut_ptr()) };
        // SAFETY: every bit pattern is a valid `statx`, and the value was zeroed.
        (result == 0).then(|| unsafe { inode.assume_init() })
    }

    /// One system call, which waits for no journal.
    pub(super) fn times(fd: RawFd) -> Option<Times> {
        let mask = libc::STATX_ATIME | libc::STATX_MTIME | libc::STATX_CTIME;
        let inode = statx(fd, mask)?;
        let time = |time: libc::statx_timestamp| (time.tv_sec, time.tv_nsec);
        Some(Times {
            accessed: time(inode.stx_atime),
            modified: time(inode.stx_mtime),
            changed: time(inode.stx_ctime),
            now: wall_clock().as_secs() as i64,
        })
    }
}

/// Nothing is known of other systems' file systems.
#[cfg(not(ringway_linux))]
mod system {
    use super::{Class, RawFd, Times};

    pub(super) fn ticks() -> u64 {
        0
    }

    pub(super) const SMALL_FILE_BLOCKS: u64 = 0;

    pub(super) fn class(_: RawFd) -> (Class, u64) {
        (Class::Never, 0)
    }

    pub(super) fn times(_: RawFd) -> Option<Times> {
        None
    }

    pub(super) fn stop_access_times(_: RawFd) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(accessed: i64, modified: i64, changed: i64) -> Times {
        let [accessed, modified, changed] = [accessed, modified, changed].map(|time| (time, 0));
        Times { accessed, modified, changed, now: 1_000_000 }
    }

    #[test]
    fn an_access_time_is_due_after_a_change_and_once_a_day() {
        assert!(times(999_999, 999_999, 0).is_due(), "it was written in the same moment");
        assert!(times(999_999, 0, 999_999).is_due(), "it was changed");
        assert!(!times(999_999, 999_998, 999_998).is_due());
        assert!(times(1_000_000 - 86_400, 0, 0).is_due());
        assert!(!times(1_000_000 - 86_399, 0, 0).is_due());
    }

    #[test]
    fn a_time_that_is_due_for_long_never_changes() {
        let waits = SubmitWaits::default();
        assert!(!waits.is_never_changed(1, 5));
        assert!(!waits.is_never_changed(1, 4 + NEVER_CHANGED));
        assert!(waits.is_never_changed(1, 5 + NEVER_CHANGED));
        assert!(!waits.is_never_changed(2, 6 + NEVER_CHANGED), "the file was written since");
        assert_ne!(times(1, 2, 3).fingerprint(), times(1, 3, 2).fingerprint());
    }

    /// A new file, if the tests' folder is on ext4 with access times.
    #[cfg(ringway_linux)]
    fn file_with_a_journal() -> Option<(std::fs::File, RawFd)> {
        use std::os::fd::AsRawFd;
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        if system::class(fd).0 != Class::Journal {
            println!("skipped: no ext4 that changes access times");
            return None;
        }
        Some((file, fd))
    }

    #[cfg(ringway_linux)]
    #[test]
    fn only_the_read_that_changes_the_access_time_may_wait() {
        use std::os::unix::fs::FileExt;
        let Some((file, fd)) = file_with_a_journal() else { return };
        let waits = SubmitWaits::default();
        file.write_all_at(&[1; 16], 0).unwrap();
        for _ in 0..2 {
            assert!(waits.cached_read_may_wait(fd), "the file was written since its last read");
        }
        // (A kernel's tick, so that the read is later than the write.)
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.read_exact_at(&mut [0; 16], 0).unwrap();
        assert!(!waits.cached_read_may_wait(fd), "the read has changed it");
        waits.note_completed(true);
        file.write_all_at(&[1; 16], 0).unwrap();
        assert!(waits.cached_read_may_wait(fd), "seen at once after a write of the same file");
    }

    /// The access time changes once more, in the first read; later ones leave it.
    #[cfg(ringway_linux)]
    #[test]
    fn reads_of_a_file_of_ones_own_stop_changing_its_access_time() {
        use std::os::unix::fs::FileExt;
        let Some((file, fd)) = file_with_a_journal() else { return };
        let waits = SubmitWaits::default();
        waits.allow_no_access_times();
        file.write_all_at(&[1; 16], 0).unwrap();
        assert!(waits.cached_read_may_wait(fd));
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.read_exact_at(&mut [0; 16], 0).unwrap();
        let accessed = || system::times(fd).unwrap().accessed;
        let first = accessed();
        assert!(!waits.cached_read_may_wait(fd));
        file.write_all_at(&[1; 16], 0).unwrap();
        assert!(!waits.cached_read_may_wait(fd), "no read changes it any more");
        file.read_exact_at(&mut [0; 16], 0).unwrap();
        assert_eq!(accessed(), first);
    }

    #[cfg(ringway_linux)]
    #[test]
    fn direct_writes_and_first_transfers_may_wait() {
        use std::os::unix::fs::FileExt;
        let Some((file, fd)) = file_with_a_journal() else { return };
        file.write_all_at(&[1; 16], 0).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.read_exact_at(&mut [0; 16], 0).unwrap();
        let waits = SubmitWaits::default();
        assert!(waits.may_wait(fd, Access::Read), "the first one");
        waits.note_completed(false);
        assert!(!waits.may_wait(fd, Access::Read));
        assert!(waits.may_wait(fd, Access::DirectWrite));
        assert!(!waits.may_wait(fd, Access::BufferedWrite));
    }

    #[cfg(ringway_linux)]
    #[test]
    fn what_is_no_regular_file_of_a_disk_never_waits() {
        use std::os::fd::AsRawFd;
        let (end, _other) = std::io::pipe().unwrap();
        let proc = std::fs::File::open("/proc/self/status").unwrap();
        for fd in [end.as_raw_fd(), proc.as_raw_fd(), -1] {
            assert_eq!(system::class(fd).0, Class::Never);
        }
    }
}
