//! The part of Linux's C interface that this crate uses, for macOS, FreeBSD and other systems of
//! the Unix family: their own C library, and what replaces Linux's calls. A call that they have no
//! replacement for fails with ENOSYS.

// The names are those of C, and its manual documents them.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    non_camel_case_types,
    clippy::useless_conversion
)]

pub use ::libc::{fstat as fstat64, ftruncate as ftruncate64, stat as stat64, *};
#[cfg(target_vendor = "apple")]
pub use absent::O_DIRECT;
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
pub use absent::RENAME_NOREPLACE;
#[cfg(not(target_os = "linux"))]
pub use absent::{
    AT_EMPTY_PATH, AT_NO_AUTOMOUNT, O_PATH, O_TMPFILE, RWF_DSYNC, RWF_NOWAIT, STATX_BASIC_STATS,
    STATX_BTIME, STATX_MNT_ID,
};
use std::ffi::CStr;

/// Constants that only Linux has, with values that these systems do not use.
#[cfg(not(target_os = "linux"))]
mod absent {
    use std::ffi::{c_int, c_uint};

    pub const RWF_DSYNC: c_int = 2;
    pub const RWF_NOWAIT: c_int = 8;
    #[cfg(not(target_os = "freebsd"))]
    pub const RENAME_NOREPLACE: c_uint = 1;
    pub const AT_EMPTY_PATH: c_int = 1 << 30;
    pub const AT_NO_AUTOMOUNT: c_int = 0;
    #[cfg(not(target_vendor = "apple"))]
    pub const O_PATH: c_int = 0x1000_0000;
    #[cfg(not(target_vendor = "apple"))]
    pub const O_TMPFILE: c_int = 0x2000_0000;
    #[cfg(target_vendor = "apple")]
    pub const O_PATH: c_int = 0x1_0000;
    #[cfg(target_vendor = "apple")]
    pub const O_TMPFILE: c_int = 0x4_0000;
    /// macOS has `F_NOCACHE` instead, which [`openat2`](super::openat2) sets.
    #[cfg(target_vendor = "apple")]
    pub const O_DIRECT: c_int = 0x8_0000;
    pub const STATX_BASIC_STATS: c_uint = 0x7ff;
    pub const STATX_BTIME: c_uint = 0x800;
    pub const STATX_MNT_ID: c_uint = 0x1000;
}

// The type of a mode is narrower on these systems.
pub const S_IFMT: u32 = ::libc::S_IFMT as u32;
pub const S_IFIFO: u32 = ::libc::S_IFIFO as u32;
pub const S_IFCHR: u32 = ::libc::S_IFCHR as u32;
pub const S_IFDIR: u32 = ::libc::S_IFDIR as u32;
pub const S_IFBLK: u32 = ::libc::S_IFBLK as u32;
pub const S_IFREG: u32 = ::libc::S_IFREG as u32;
pub const S_IFLNK: u32 = ::libc::S_IFLNK as u32;
pub const S_IFSOCK: u32 = ::libc::S_IFSOCK as u32;

/// Not on this system.
#[cfg(target_vendor = "apple")]
mod advice {
    pub const POSIX_FADV_NORMAL: i32 = 0;
    pub const POSIX_FADV_RANDOM: i32 = 1;
    pub const POSIX_FADV_SEQUENTIAL: i32 = 2;
    pub const POSIX_FADV_WILLNEED: i32 = 3;
    pub const POSIX_FADV_DONTNEED: i32 = 4;
    pub const POSIX_FADV_NOREUSE: i32 = 5;
}
#[cfg(target_vendor = "apple")]
pub use advice::*;

/// The expiry of a timer, which only a ring reports.
#[cfg(target_os = "freebsd")]
pub const ETIME: c_int = ETIMEDOUT + 10_000;

#[derive(Clone, Copy)]
pub struct open_how {
    pub flags: u64,
    pub mode: u64,
    pub resolve: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct statx_timestamp {
    pub tv_sec: i64,
    pub tv_nsec: u32,
}

/// The fields of Linux's `struct statx` that this crate uses.
#[derive(Clone, Copy, Debug)]
pub struct statx {
    pub stx_mask: u32,
    pub stx_blksize: u32,
    pub stx_nlink: u32,
    pub stx_uid: u32,
    pub stx_gid: u32,
    pub stx_mode: u16,
    pub stx_ino: u64,
    pub stx_size: u64,
    pub stx_blocks: u64,
    pub stx_dev_major: u32,
    pub stx_dev_minor: u32,
    pub stx_rdev_major: u32,
    pub stx_rdev_minor: u32,
    pub stx_mnt_id: u64,
    pub stx_atime: statx_timestamp,
    pub stx_btime: statx_timestamp,
    pub stx_ctime: statx_timestamp,
    pub stx_mtime: statx_timestamp,
}

/// The whole number of a device from its halves in [`struct@statx`].
pub fn makedev(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

/// Sets errno and returns -1.
fn fail(errno: c_int) -> c_int {
    // SAFETY: the C library returns the address of this thread's errno, which is always valid.
    unsafe {
        #[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
        let address = __error();
        #[cfg(target_os = "linux")]
        let address = __errno_location();
        *address = errno;
    }
    -1
}

/// Bytes of the longest transfer: Linux's own limit. macOS refuses more than 2 GiB with EINVAL,
/// where Linux transfers less than it was asked for.
const LONGEST: usize = 0x7fff_f000;

/// The buffers of a vectored transfer, as far as one call may take them.
#[derive(Clone, Copy)]
enum Vector {
    /// So many whole buffers.
    Buffers(c_int),
    /// The first buffer alone is too long.
    First,
}

/// # Safety
///
/// There are `count` entries at `iov`, or `count` is invalid.
unsafe fn fitting(iov: *const iovec, count: c_int) -> Vector {
    let mut left = LONGEST;
    // (A call with more buffers than this is refused.)
    for index in 0..count.clamp(0, 1024) {
        // SAFETY: the caller promised it.
        let len = unsafe { (*iov.add(index as usize)).iov_len };
        left = match left.checked_sub(len) {
            Some(left) => left,
            None if index == 0 => return Vector::First,
            None => return Vector::Buffers(index),
        };
    }
    Vector::Buffers(count)
}

/// # Safety
///
/// As for `read(2)`.
pub unsafe fn read(fd: c_int, buf: *mut c_void, len: usize) -> ssize_t {
    // SAFETY: the caller promised it.
    unsafe { ::libc::read(fd, buf, len.min(LONGEST)) }
}

/// # Safety
///
/// As for `pread(2)`.
pub unsafe fn pread64(fd: c_int, buf: *mut c_void, len: usize, at: off_t) -> ssize_t {
    // SAFETY: the caller promised it.
    unsafe { pread(fd, buf, len.min(LONGEST), at) }
}

/// # Safety
///
/// As for `write(2)`.
pub unsafe fn write(fd: c_int, buf: *const c_void, len: usize) -> ssize_t {
    // SAFETY: the caller promised it.
    unsafe { ::libc::write(fd, buf, len.min(LONGEST)) }
}

/// # Safety
///
/// As for `pwrite(2)`.
pub unsafe fn pwrite64(fd: c_int, buf: *const c_void, len: usize, at: off_t) -> ssize_t {
    // SAFETY: the caller promised it.
    unsafe { pwrite(fd, buf, len.min(LONGEST), at) }
}

/// # Safety
///
/// As for `readv(2)`.
pub unsafe fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller promised it.
    unsafe {
        match fitting(iov, count) {
            Vector::Buffers(count) => ::libc::readv(fd, iov, count),
            Vector::First => read(fd, (*iov).iov_base, LONGEST),
        }
    }
}

/// # Safety
///
/// As for `preadv(2)`.
pub unsafe fn preadv64(fd: c_int, iov: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the caller promised it.
    unsafe {
        match fitting(iov, count) {
            Vector::Buffers(count) => preadv(fd, iov, count, at),
            Vector::First => pread64(fd, (*iov).iov_base, LONGEST, at),
        }
    }
}

/// # Safety
///
/// As for `writev(2)`.
pub unsafe fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller promised it.
    unsafe {
        match fitting(iov, count) {
            Vector::Buffers(count) => ::libc::writev(fd, iov, count),
            Vector::First => write(fd, (*iov).iov_base, LONGEST),
        }
    }
}

/// # Safety
///
/// As for `pwritev(2)`.
pub unsafe fn pwritev64(fd: c_int, iov: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the caller promised it.
    unsafe {
        match fitting(iov, count) {
            Vector::Buffers(count) => pwritev(fd, iov, count, at),
            Vector::First => pwrite64(fd, (*iov).iov_base, LONGEST, at),
        }
    }
}

/// There is no read that does not wait.
pub unsafe fn preadv2(_: c_int, _: *const iovec, _: c_int, _: off_t, _: c_int) -> ssize_t {
    fail(ENOSYS) as ssize_t
}

/// A durable write is a write and a sync.
///
/// # Safety
///
/// As for `pwritev(2)`.
pub unsafe fn pwritev2(
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    if flags != RWF_DSYNC {
        return fail(ENOSYS) as ssize_t;
    }
    // SAFETY: the caller keeps the buffers valid.
    let written = unsafe {
        if offset < 0 { writev(fd, iov, count) } else { pwritev64(fd, iov, count, offset) }
    };
    if written < 0 {
        return written;
    }
    // A signal that interrupts the sync must not repeat the write, which may append.
    // SAFETY: the call takes a number only.
    while unsafe { fdatasync(fd) } < 0 {
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return -1;
        }
    }
    written
}

/// `fsync(2)` leaves the data in the device's cache on macOS.
#[cfg(target_vendor = "apple")]
pub unsafe fn fsync(fd: c_int) -> c_int {
    // SAFETY: the call takes numbers only.
    unsafe { fcntl(fd, F_FULLFSYNC) }
}

#[cfg(target_vendor = "apple")]
pub unsafe fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: the call takes a number only.
    unsafe { fsync(fd) }
}

pub unsafe fn sync_file_range(_: c_int, _: i64, _: i64, _: c_uint) -> c_int {
    fail(ENOSYS)
}

/// Returns the errno, as `posix_fadvise` does.
pub unsafe fn posix_fadvise64(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int {
    #[cfg(target_vendor = "apple")]
    {
        let _ = (fd, offset, len, advice);
        ENOSYS
    }
    // SAFETY: the call takes numbers only.
    #[cfg(not(target_vendor = "apple"))]
    unsafe {
        posix_fadvise(fd, offset, len, advice)
    }
}

/// Reserves space where the system can; none of the other modes exists.
pub unsafe fn fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    #[cfg(not(target_vendor = "apple"))]
    if mode == 0 {
        // SAFETY: the call takes numbers only.
        return match unsafe { posix_fallocate(fd, offset, len) } {
            0 => 0,
            errno => fail(errno),
        };
    }
    let _ = (fd, mode, offset, len);
    fail(ENOSYS)
}

/// # Safety
///
/// `path` is a C string.
pub unsafe fn openat2(dir: c_int, path: *const c_char, how: &open_how) -> c_int {
    let flags = how.flags as c_int;
    if how.resolve != 0 || flags & O_PATH != 0 || flags & O_TMPFILE == O_TMPFILE {
        return fail(ENOSYS);
    }
    #[cfg(target_vendor = "apple")]
    let (flags, uncached) = (flags & !O_DIRECT, flags & O_DIRECT != 0);
    // SAFETY: the caller keeps the path valid.
    let fd = unsafe { openat(dir, path, flags, how.mode as c_uint) };
    #[cfg(target_vendor = "apple")]
    // SAFETY: the call takes numbers only, for a descriptor made here.
    if fd >= 0 && uncached && unsafe { fcntl(fd, F_NOCACHE, 1) } < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        // SAFETY: the descriptor was made here, and nobody else knows it.
        unsafe { close(fd) };
        return fail(errno.unwrap_or(EINVAL));
    }
    fd
}

/// # Safety
///
/// `path` is a C string.
pub unsafe fn mkdirat(dir: c_int, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the caller keeps the path valid.
    unsafe { ::libc::mkdirat(dir, path, mode as mode_t) }
}

/// # Safety
///
/// `path` is a C string, and `result` is valid for writes.
pub unsafe fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    _mask: c_uint,
    result: *mut statx,
) -> c_int {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT) != 0 {
        return fail(EINVAL);
    }
    // SAFETY: `stat` is plain numbers, for which all zeroes are valid.
    let mut stat: stat = unsafe { std::mem::zeroed() };
    // SAFETY: the caller keeps the path valid; `stat` lives on this stack during the calls.
    let returned = unsafe {
        if flags & AT_EMPTY_PATH != 0 && CStr::from_ptr(path).is_empty() {
            fstat(dir, &raw mut stat)
        } else {
            fstatat(dir, path, &raw mut stat, flags & AT_SYMLINK_NOFOLLOW)
        }
    };
    if returned < 0 {
        return returned;
    }
    let time = |seconds: time_t, nanoseconds: c_long| statx_timestamp {
        tv_sec: i64::from(seconds),
        tv_nsec: nanoseconds as u32,
    };
    #[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
    let born = Some(time(stat.st_birthtime, stat.st_birthtime_nsec as c_long));
    #[cfg(not(any(target_vendor = "apple", target_os = "freebsd")))]
    let born = None;
    // (FreeBSD reports -1 for a file system that does not record it.)
    let born = born.filter(|born: &statx_timestamp| born.tv_sec >= 0);
    let found = statx {
        stx_mask: STATX_BASIC_STATS | if born.is_some() { STATX_BTIME } else { 0 },
        stx_blksize: stat.st_blksize as u32,
        stx_nlink: stat.st_nlink as u32,
        stx_uid: stat.st_uid,
        stx_gid: stat.st_gid,
        stx_mode: stat.st_mode as u16,
        stx_ino: stat.st_ino as u64,
        stx_size: stat.st_size as u64,
        stx_blocks: stat.st_blocks as u64,
        stx_dev_major: (stat.st_dev as u64 >> 32) as u32,
        stx_dev_minor: stat.st_dev as u32,
        stx_rdev_major: (stat.st_rdev as u64 >> 32) as u32,
        stx_rdev_minor: stat.st_rdev as u32,
        stx_mnt_id: 0,
        stx_atime: time(stat.st_atime, stat.st_atime_nsec as c_long),
        stx_btime: born.unwrap_or(statx_timestamp { tv_sec: 0, tv_nsec: 0 }),
        stx_ctime: time(stat.st_ctime, stat.st_ctime_nsec as c_long),
        stx_mtime: time(stat.st_mtime, stat.st_mtime_nsec as c_long),
    };
    // SAFETY: the caller keeps it valid for writes.
    unsafe { result.write(found) };
    0
}

/// # Safety
///
/// Both paths are C strings.
pub unsafe fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    match flags {
        // SAFETY: the caller keeps the paths valid.
        0 => unsafe { renameat(from_dir, from, to_dir, to) },
        #[cfg(target_vendor = "apple")]
        RENAME_NOREPLACE => {
            // SAFETY: the caller keeps the paths valid.
            unsafe { renameatx_np(from_dir, from, to_dir, to, RENAME_EXCL) }
        }
        _ => fail(ENOSYS),
    }
}

/// Waits in whole milliseconds, rounded up; there is no signal mask.
///
/// # Safety
///
/// `polls` has `count` entries, and `timeout` is null or valid.
pub unsafe fn ppoll(
    polls: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    _: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps it valid.
    let milliseconds = unsafe { timeout.as_ref() }.map_or(-1, |timeout| {
        let whole = i64::from(timeout.tv_sec).saturating_mul(1000);
        let rest = (i64::from(timeout.tv_nsec) + 999_999) / 1_000_000;
        c_int::try_from(whole.saturating_add(rest)).unwrap_or(c_int::MAX)
    });
    // SAFETY: the caller keeps the entries valid.
    unsafe { poll(polls, count, milliseconds) }
}
