//! The part of Linux's C interface that this crate uses, for Windows: over the standard library.
//! Paths are the bytes of an [`OsStr`](std::ffi::OsStr), error numbers are those of Windows, and a
//! descriptor is the number of a handle. A call that Windows has no replacement for fails with
//! [`ENOSYS`].
//!
//! A transfer at an offset moves the current position of a handle, so that it is moved back before
//! another transfer begins. (Windows itself makes one transfer of such a handle at a time.)

// The names are those of C, and its manual documents them.
#![allow(missing_docs, clippy::missing_safety_doc, non_camel_case_types)]

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, OsString, c_uint, c_ulong};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem::ManuallyDrop;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::windows::io::{AsRawHandle, FromRawHandle, IntoRawHandle};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use windows_sys::Wdk::Storage::FileSystem::{
    FILE_ACCESS_INFORMATION, FileAccessInformation, NtQueryInformationFile,
};
use windows_sys::Win32::Foundation::{
    ERROR_IO_PENDING, ERROR_LOCK_VIOLATION, ERROR_NOT_LOCKED, SetLastError, WAIT_FAILED,
    WAIT_OBJECT_0, WAIT_TIMEOUT,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_APPEND_DATA, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
    FILE_FLAG_WRITE_THROUGH, FILE_ID_INFO, FILE_TYPE_CHAR, FILE_TYPE_PIPE, FILE_WRITE_DATA,
    FileIdInfo, GetFileInformationByHandleEx, GetFileType, GetFinalPathNameByHandleW,
    LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, MoveFileExW, UnlockFile,
};
use windows_sys::Win32::System::IO::{IO_STATUS_BLOCK, OVERLAPPED};
use windows_sys::Win32::System::Threading::WaitForMultipleObjects;

pub use std::ffi::{c_char, c_int};

type Fd = super::RawFd;

// Error numbers: those of the Windows error with the same meaning.
pub const EPERM: c_int = 1314; // ERROR_PRIVILEGE_NOT_HELD
pub const ENOENT: c_int = 2; // ERROR_FILE_NOT_FOUND
pub const EINTR: c_int = 10004; // WSAEINTR
pub const EIO: c_int = 1117; // ERROR_IO_DEVICE
pub const ENXIO: c_int = 20; // ERROR_BAD_UNIT
pub const EBADF: c_int = 6; // ERROR_INVALID_HANDLE
pub const ECHILD: c_int = 128; // ERROR_WAIT_NO_CHILDREN
pub const EAGAIN: c_int = 10035; // WSAEWOULDBLOCK
pub const ENOMEM: c_int = 8; // ERROR_NOT_ENOUGH_MEMORY
pub const EACCES: c_int = 5; // ERROR_ACCESS_DENIED
pub const EFAULT: c_int = 998; // ERROR_NOACCESS
pub const EBUSY: c_int = 170; // ERROR_BUSY
pub const EEXIST: c_int = 183; // ERROR_ALREADY_EXISTS
pub const EXDEV: c_int = 17; // ERROR_NOT_SAME_DEVICE
pub const ENOTDIR: c_int = 267; // ERROR_DIRECTORY
pub const EISDIR: c_int = 336; // ERROR_DIRECTORY_NOT_SUPPORTED
pub const EINVAL: c_int = 87; // ERROR_INVALID_PARAMETER
pub const ENFILE: c_int = 1450; // ERROR_NO_SYSTEM_RESOURCES
pub const EMFILE: c_int = 4; // ERROR_TOO_MANY_OPEN_FILES
pub const EFBIG: c_int = 223; // ERROR_FILE_TOO_LARGE
pub const ENOSPC: c_int = 112; // ERROR_DISK_FULL
pub const ESPIPE: c_int = 132; // ERROR_SEEK_ON_DEVICE
pub const EPIPE: c_int = 232; // ERROR_NO_DATA
pub const ENOSYS: c_int = 120; // ERROR_CALL_NOT_IMPLEMENTED
pub const ENOTEMPTY: c_int = 145; // ERROR_DIR_NOT_EMPTY
pub const ELOOP: c_int = 1921; // ERROR_CANT_RESOLVE_FILENAME
pub const ENAMETOOLONG: c_int = 206; // ERROR_FILENAME_EXCED_RANGE
pub const EMLINK: c_int = 1142; // ERROR_TOO_MANY_LINKS
pub const ETIME: c_int = 258; // WAIT_TIMEOUT
pub const ENOTSOCK: c_int = 10038; // WSAENOTSOCK
pub const EOPNOTSUPP: c_int = 50; // ERROR_NOT_SUPPORTED
pub const ESHUTDOWN: c_int = 10058; // WSAESHUTDOWN
pub const ETIMEDOUT: c_int = 1460; // ERROR_TIMEOUT
pub const ECANCELED: c_int = 1223; // ERROR_CANCELLED

// The flags of Linux on x86-64.
pub const O_ACCMODE: c_int = 3;
pub const O_RDONLY: c_int = 0;
pub const O_WRONLY: c_int = 1;
pub const O_RDWR: c_int = 2;
pub const O_CREAT: c_int = 0o100;
pub const O_EXCL: c_int = 0o200;
pub const O_TRUNC: c_int = 0o1000;
pub const O_APPEND: c_int = 0o2000;
pub const O_NONBLOCK: c_int = 0o4000;
pub const O_DSYNC: c_int = 0o10000;
pub const O_DIRECT: c_int = 0o40000;
pub const O_DIRECTORY: c_int = 0o200000;
pub const O_NOFOLLOW: c_int = 0o400000;
pub const O_CLOEXEC: c_int = 0o2000000;
pub const O_PATH: c_int = 0o10000000;
pub const O_TMPFILE: c_int = 0o20200000;
pub const AT_FDCWD: Fd = -100;
pub const AT_SYMLINK_NOFOLLOW: c_int = 0x100;
pub const AT_REMOVEDIR: c_int = 0x200;
pub const AT_EMPTY_PATH: c_int = 0x1000;
pub const RENAME_NOREPLACE: c_uint = 1;
pub const LOCK_SH: c_int = 1;
pub const LOCK_EX: c_int = 2;
pub const LOCK_NB: c_int = 4;
pub const LOCK_UN: c_int = 8;
pub const RWF_DSYNC: c_int = 2;
pub const RWF_NOWAIT: c_int = 8;
pub const POSIX_FADV_NORMAL: c_int = 0;
pub const POSIX_FADV_RANDOM: c_int = 1;
pub const POSIX_FADV_SEQUENTIAL: c_int = 2;
pub const POSIX_FADV_WILLNEED: c_int = 3;
pub const POSIX_FADV_DONTNEED: c_int = 4;
pub const POSIX_FADV_NOREUSE: c_int = 5;
pub const S_IFMT: u32 = 0o170000;
pub const S_IFIFO: u32 = 0o010000;
pub const S_IFCHR: u32 = 0o020000;
pub const S_IFDIR: u32 = 0o040000;
pub const S_IFBLK: u32 = 0o060000;
pub const S_IFREG: u32 = 0o100000;
pub const S_IFLNK: u32 = 0o120000;
pub const S_IFSOCK: u32 = 0o140000;
pub const STATX_BASIC_STATS: u32 = 0x7ff;
pub const STATX_BTIME: u32 = 0x800;
pub const STATX_MNT_ID: u32 = 0x1000;
pub const POLLIN: i16 = 1;
pub const POLLOUT: i16 = 4;
pub const POLLERR: i16 = 8;
pub const POLLHUP: i16 = 0x10;
pub const POLLNVAL: i16 = 0x20;

#[derive(Clone, Copy, Debug)]
pub struct iovec {
    pub iov_base: *mut std::ffi::c_void,
    pub iov_len: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct pollfd {
    pub fd: Fd,
    pub events: i16,
    pub revents: i16,
}

pub type nfds_t = c_ulong;
pub type time_t = i64;
pub type sigset_t = ();

#[derive(Clone, Copy, Debug)]
pub struct timespec {
    pub tv_sec: time_t,
    pub tv_nsec: i64,
}

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

/// The id of a file that has none, or whose id is not known.
pub const NO_ID: (u64, [u8; 16]) = (0, [0; 16]);

/// The fields of Linux's `struct statx` that this crate uses.
#[derive(Clone, Copy, Debug)]
pub struct statx {
    /// The volume and the number of an open file, else [`NO_ID`].
    pub stx_id: (u64, [u8; 16]),
    pub stx_mask: u32,
    pub stx_mode: u16,
    pub stx_size: u64,
    pub stx_mnt_id: u64,
    pub stx_atime: statx_timestamp,
    pub stx_btime: statx_timestamp,
    pub stx_mtime: statx_timestamp,
}

/// Sets the thread's last error and returns -1.
fn fail(errno: c_int) -> c_int {
    // SAFETY: the call takes a number only.
    unsafe { SetLastError(errno as u32) };
    -1
}

/// Windows has several codes for some errors: the one that stands for all of them here.
fn errno_of(error: &io::Error) -> c_int {
    match error.raw_os_error() {
        // PATH_NOT_FOUND, BAD_NETPATH, BAD_NET_NAME, BAD_PATHNAME
        Some(3 | 53 | 67 | 161) => ENOENT,
        Some(80) => EEXIST,      // FILE_EXISTS
        Some(1 | 131) => EINVAL, // INVALID_FUNCTION, NEGATIVE_SEEK
        Some(14) => ENOMEM,      // OUTOFMEMORY
        Some(39) => ENOSPC,      // HANDLE_DISK_FULL
        Some(32 | 33) => EBUSY,  // SHARING_VIOLATION, LOCK_VIOLATION
        Some(109) => EPIPE,      // BROKEN_PIPE
        Some(errno) => errno,
        None => match error.kind() {
            io::ErrorKind::InvalidInput => EINVAL,
            io::ErrorKind::Unsupported => ENOSYS,
            _ => EIO,
        },
    }
}

/// The error of a call with this path: Linux's for a name that is too long, and for a path that
/// goes on below a file.
fn of_path(path: &Path, error: io::Error) -> io::Error {
    const LONGEST_NAME: usize = 255;
    // FILE_NOT_FOUND, PATH_NOT_FOUND, INVALID_NAME
    if !matches!(error.raw_os_error(), Some(2 | 3 | 123)) {
        return error;
    }
    let is_long =
        |name: &OsStr| name.len() > LONGEST_NAME && { name.encode_wide().count() > LONGEST_NAME };
    let mut above = path.ancestors().skip(1);
    if path.iter().any(is_long) {
        io::Error::from_raw_os_error(ENAMETOOLONG)
    } else if above.find_map(|above| above.metadata().ok()).is_some_and(|above| !above.is_dir()) {
        io::Error::from_raw_os_error(ENOTDIR)
    } else {
        error
    }
}

/// The number for C, with the last error set if there is one.
fn returned<T>(result: io::Result<T>, number: impl FnOnce(T) -> i64) -> i64 {
    match result {
        Ok(value) => number(value),
        Err(error) => i64::from(fail(errno_of(&error))),
    }
}

fn done(result: io::Result<()>) -> c_int {
    returned(result, |()| 0) as c_int
}

fn unsupported() -> io::Error {
    io::Error::from_raw_os_error(ENOSYS)
}

/// Calls `call` with the file of a handle, which stays open.
fn on_file<T>(fd: Fd, call: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    if fd <= 0 {
        return Err(io::Error::from_raw_os_error(EBADF));
    }
    // SAFETY: the operation keeps its handle open during the call, and the file is not dropped.
    let file = ManuallyDrop::new(unsafe { File::from_raw_handle(fd as _) });
    call(&file)
}

/// Bytes of the longest transfer: Linux's own limit, which is within the 32 bits that Windows has
/// for a length.
const LONGEST: usize = 0x7fff_f000;

/// At most [`LONGEST`] bytes.
///
/// # Safety
///
/// `len` bytes at `first` are valid for writes until the slice is dropped.
unsafe fn bytes_mut<'a>(first: *mut u8, len: usize) -> &'a mut [u8] {
    match len.min(LONGEST) {
        0 => &mut [],
        // SAFETY: the caller promised it. (Memory that is not initialised is only written to.)
        len => unsafe { std::slice::from_raw_parts_mut(first, len) },
    }
}

/// At most [`LONGEST`] bytes.
///
/// # Safety
///
/// `len` bytes at `first` are valid for reads until the slice is dropped.
unsafe fn bytes<'a>(first: *const u8, len: usize) -> &'a [u8] {
    match len.min(LONGEST) {
        0 => &[],
        // SAFETY: the caller promised it.
        len => unsafe { std::slice::from_raw_parts(first, len) },
    }
}

/// One lock for the handles whose numbers have the same remainder. A handle's number is a multiple
/// of four.
static POSITIONS: [Mutex<()>; 256] = [const { Mutex::new(()) }; 256];

/// False for a pipe or a console; true for a file, a directory or a disk, and for a handle that is
/// not open, with which the call itself fails.
pub(crate) fn is_storage(fd: Fd) -> bool {
    // SAFETY: the call takes a number only.
    !matches!(unsafe { GetFileType(fd as _) }, FILE_TYPE_PIPE | FILE_TYPE_CHAR)
}

/// Waits until no other transfer uses the handle's current position. `None` for a pipe or a
/// console, which has none, and whose transfers may last forever.
fn lock_position(file: &File) -> Option<MutexGuard<'static, ()>> {
    let fd = file.as_raw_handle() as Fd;
    if !is_storage(fd) {
        return None;
    }
    let lock = &POSITIONS[fd as usize / 4 % POSITIONS.len()];
    Some(lock.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Makes a transfer at the current position.
fn at_position<T>(fd: Fd, transfer: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    on_file(fd, |file| {
        let _lock = lock_position(file);
        transfer(file)
    })
}

/// Makes a transfer at an offset, and moves the current position back.
fn at_offset<T>(fd: Fd, transfer: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    on_file(fd, |mut file| {
        let Some(_lock) = lock_position(file) else {
            return Err(io::Error::from_raw_os_error(ESPIPE));
        };
        let before = file.stream_position();
        let result = transfer(file);
        if let Ok(before) = before {
            file.seek(SeekFrom::Start(before))?;
        }
        result
    })
}

/// The error of a read: Linux's for a directory, and for a handle without the permission.
fn of_read(file: &File, error: io::Error) -> io::Error {
    match file.metadata() {
        Ok(metadata) if metadata.is_dir() => io::Error::from_raw_os_error(EISDIR),
        _ => of_write(error),
    }
}

/// The error of a write: Linux's for a handle without the permission.
fn of_write(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        // INVALID_FUNCTION, for a directory
        Some(1 | EACCES) => io::Error::from_raw_os_error(EBADF),
        _ => error,
    }
}

/// # Safety
///
/// The buffer is valid for writes.
pub unsafe fn read(fd: Fd, buf: *mut std::ffi::c_void, len: usize) -> i64 {
    // SAFETY: the caller promised it.
    let buf = unsafe { bytes_mut(buf.cast(), len) };
    returned(
        at_position(fd, |mut file| file.read(buf).map_err(|error| of_read(file, error))),
        |len| len as i64,
    )
}

/// # Safety
///
/// The buffer is valid for writes.
pub unsafe fn pread64(fd: Fd, buf: *mut std::ffi::c_void, len: usize, offset: i64) -> i64 {
    if offset < 0 {
        return i64::from(fail(EINVAL));
    }
    // SAFETY: the caller promised it.
    let buf = unsafe { bytes_mut(buf.cast(), len) };
    returned(
        at_offset(fd, |file| {
            file.seek_read(buf, offset as u64).map_err(|error| of_read(file, error))
        }),
        |len| len as i64,
    )
}

/// # Safety
///
/// The buffer is valid for reads.
pub unsafe fn write(fd: Fd, buf: *const std::ffi::c_void, len: usize) -> i64 {
    // SAFETY: the caller promised it.
    let buf = unsafe { bytes(buf.cast(), len) };
    returned(at_position(fd, |mut file| file.write(buf).map_err(of_write)), |len| len as i64)
}

/// # Safety
///
/// The buffer is valid for reads.
pub unsafe fn pwrite64(fd: Fd, buf: *const std::ffi::c_void, len: usize, offset: i64) -> i64 {
    if offset < 0 {
        return i64::from(fail(EINVAL));
    }
    // SAFETY: the caller promised it.
    let buf = unsafe { bytes(buf.cast(), len) };
    returned(at_offset(fd, |file| file.seek_write(buf, offset as u64).map_err(of_write)), |len| {
        len as i64
    })
}

/// The buffers of a vectored transfer.
///
/// # Safety
///
/// There are `count` entries at `iov`, which are live until the slice is dropped.
unsafe fn buffers<'a>(iov: *const iovec, count: c_int) -> io::Result<&'a [iovec]> {
    match count {
        0 => Ok(&[]),
        // SAFETY: the caller promised it.
        1..=1024 => Ok(unsafe { std::slice::from_raw_parts(iov, count as usize) }),
        _ => Err(io::Error::from_raw_os_error(EINVAL)),
    }
}

/// Reads into one buffer after the other, up to the first short or failed read. `read` gets how
/// many bytes have been read.
///
/// # Safety
///
/// The buffers are valid for writes.
unsafe fn scatter(
    buffers: &[iovec],
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<u64> {
    let mut total = 0;
    for one in buffers {
        // SAFETY: the caller promised it.
        let buf = unsafe { bytes_mut(one.iov_base.cast(), one.iov_len) };
        match read(buf, total) {
            Err(error) if total == 0 => return Err(error),
            Err(_) => break,
            Ok(len) => {
                total += len as u64;
                if len < one.iov_len {
                    break;
                }
            }
        }
    }
    Ok(total)
}

/// What the buffers contain, for one write: between several, others could append.
///
/// # Safety
///
/// The buffers are valid for reads until the result is dropped.
unsafe fn gather<'a>(buffers: &[iovec]) -> io::Result<Cow<'a, [u8]>> {
    // SAFETY: the caller promised it.
    let bytes = |one: &iovec| unsafe { bytes(one.iov_base.cast(), one.iov_len) };
    if let [one] = buffers {
        return Ok(Cow::Borrowed(bytes(one)));
    }
    let total = buffers.iter().fold(0usize, |total, one| total.saturating_add(one.iov_len));
    let mut all = Vec::new();
    all.try_reserve_exact(total.min(LONGEST)).map_err(|_| io::Error::from_raw_os_error(ENOMEM))?;
    for one in buffers {
        let (bytes, room) = (bytes(one), LONGEST - all.len());
        all.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
    Ok(Cow::Owned(all))
}

/// # Safety
///
/// There are `count` entries at `iov`, and the buffers are valid for writes.
pub unsafe fn readv(fd: Fd, iov: *const iovec, count: c_int) -> i64 {
    let read = |mut file: &File| {
        // SAFETY: the caller promised it.
        let mut buffers = unsafe { buffers(iov, count)? };
        let lock = lock_position(file);
        if lock.is_none() {
            // Where one read has filled a buffer, the next might wait forever.
            let first = buffers.iter().position(|one| one.iov_len > 0).unwrap_or(0);
            buffers = buffers.get(first..=first).unwrap_or_default();
        }
        // SAFETY: the caller promised it.
        unsafe { scatter(buffers, |buf, _| file.read(buf)) }.map_err(|error| of_read(file, error))
    };
    returned(on_file(fd, read), |len| len as i64)
}

/// # Safety
///
/// There are `count` entries at `iov`, and the buffers are valid for writes.
pub unsafe fn preadv64(fd: Fd, iov: *const iovec, count: c_int, offset: i64) -> i64 {
    let Ok(offset) = u64::try_from(offset) else { return i64::from(fail(EINVAL)) };
    let read = |file: &File| {
        // SAFETY: the caller promised it.
        unsafe { scatter(buffers(iov, count)?, |buf, done| file.seek_read(buf, offset + done)) }
            .map_err(|error| of_read(file, error))
    };
    returned(at_offset(fd, read), |len| len as i64)
}

/// # Safety
///
/// There are `count` entries at `iov`, and the buffers are valid for reads.
pub unsafe fn writev(fd: Fd, iov: *const iovec, count: c_int) -> i64 {
    // SAFETY: the caller promised it.
    let all = unsafe { buffers(iov, count).and_then(|buffers| gather(buffers)) };
    let written =
        all.and_then(|all| at_position(fd, |mut file| file.write(&all).map_err(of_write)));
    returned(written, |len| len as i64)
}

/// # Safety
///
/// There are `count` entries at `iov`, and the buffers are valid for reads.
pub unsafe fn pwritev64(fd: Fd, iov: *const iovec, count: c_int, offset: i64) -> i64 {
    let Ok(offset) = u64::try_from(offset) else { return i64::from(fail(EINVAL)) };
    // SAFETY: the caller promised it.
    let all = unsafe { buffers(iov, count).and_then(|buffers| gather(buffers)) };
    let written =
        all.and_then(|all| at_offset(fd, |file| file.seek_write(&all, offset).map_err(of_write)));
    returned(written, |len| len as i64)
}

/// There is no read that does not wait.
pub unsafe fn preadv2(_: Fd, _: *const iovec, _: c_int, _: i64, _: c_int) -> i64 {
    i64::from(fail(ENOSYS))
}

/// A durable write is a write and a sync.
///
/// # Safety
///
/// The buffers are valid for reads.
pub unsafe fn pwritev2(fd: Fd, iov: *const iovec, count: c_int, offset: i64, flags: c_int) -> i64 {
    if flags != RWF_DSYNC {
        return i64::from(fail(ENOSYS));
    }
    // SAFETY: the caller promised it.
    let written = unsafe {
        if offset < 0 { writev(fd, iov, count) } else { pwritev64(fd, iov, count, offset) }
    };
    // SAFETY: the call takes a number only.
    if written >= 0 && unsafe { fdatasync(fd) } < 0 { -1 } else { written }
}

pub unsafe fn fsync(fd: Fd) -> c_int {
    done(on_file(fd, |file| match () {
        // Windows would wait until the pipe is read.
        () if !is_storage(fd) => Err(io::Error::from_raw_os_error(EINVAL)),
        () => sync(file),
    }))
}

fn sync(file: &File) -> io::Result<()> {
    match file.sync_all() {
        // Windows has no sync of a directory; its file systems journal names.
        Err(error) if error.raw_os_error() == Some(EACCES) && file.metadata()?.is_dir() => Ok(()),
        result => result,
    }
}

/// There is no sync without metadata.
pub unsafe fn fdatasync(fd: Fd) -> c_int {
    // SAFETY: the call takes a number only.
    unsafe { fsync(fd) }
}

pub unsafe fn sync_file_range(_: Fd, _: i64, _: i64, _: c_uint) -> c_int {
    fail(ENOSYS)
}

/// Returns the error, as `posix_fadvise` does.
pub unsafe fn posix_fadvise64(_: Fd, _: i64, _: i64, _: c_int) -> c_int {
    ENOSYS
}

pub unsafe fn fallocate64(_: Fd, _: c_int, _: i64, _: i64) -> c_int {
    fail(ENOSYS)
}

pub unsafe fn ftruncate64(fd: Fd, len: i64) -> c_int {
    match u64::try_from(len) {
        Ok(len) => done(on_file(fd, |file| file.set_len(len))),
        Err(_) => fail(EINVAL),
    }
}

/// Locks or unlocks the whole file.
pub unsafe fn flock(fd: Fd, operation: c_int) -> c_int {
    const ALL: u32 = u32::MAX;
    let returned = on_file(fd, |file| {
        let handle = file.as_raw_handle() as _;
        if operation == LOCK_UN {
            // SAFETY: the handle is open.
            return match unsafe { UnlockFile(handle, 0, 0, ALL, ALL) } {
                0 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            };
        }
        let exclusive = if operation & LOCK_EX != 0 { LOCKFILE_EXCLUSIVE_LOCK } else { 0 };
        let fails = if operation & LOCK_NB != 0 { LOCKFILE_FAIL_IMMEDIATELY } else { 0 };
        let mut start = OVERLAPPED::default();
        // SAFETY: the handle is open, and the structure is live during the call, which ends before
        // it returns, because the handle is synchronous.
        match unsafe { LockFileEx(handle, exclusive | fails, 0, ALL, ALL, &raw mut start) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    });
    done(returned.or_else(|error| match error.raw_os_error().map(|errno| errno as u32) {
        // There was no lock. (Wine returns the second error.)
        Some(ERROR_NOT_LOCKED | ERROR_LOCK_VIOLATION) if operation == LOCK_UN => Ok(()),
        Some(ERROR_LOCK_VIOLATION | ERROR_IO_PENDING) => Err(io::Error::from_raw_os_error(EAGAIN)),
        _ => Err(error),
    }))
}

/// Closes a handle.
pub unsafe fn close(fd: Fd) -> c_int {
    if fd <= 0 {
        return fail(EBADF);
    }
    // SAFETY: the caller gives the handle away.
    match unsafe { windows_sys::Win32::Foundation::CloseHandle(fd as _) } {
        0 => -1,
        _ => 0,
    }
}

/// The path that a C string stands for, relative to a directory.
///
/// # Safety
///
/// `path` is a C string with the bytes of an `OsStr`.
unsafe fn path_of(dir: Fd, path: *const c_char) -> io::Result<PathBuf> {
    // SAFETY: the caller promised it.
    let path = unsafe { OsStr::from_encoded_bytes_unchecked(CStr::from_ptr(path).to_bytes()) };
    let path = Path::new(path);
    if path.as_os_str().is_empty() {
        return Err(io::Error::from_raw_os_error(ENOENT));
    }
    if dir == AT_FDCWD || path.is_absolute() {
        return Ok(path.to_owned());
    }
    on_file(dir, |dir| {
        let mut name = vec![0u16; 512];
        loop {
            let (handle, room) = (dir.as_raw_handle(), name.len() as u32);
            // SAFETY: the buffer has `room` characters, and the handle is open.
            let len = unsafe { GetFinalPathNameByHandleW(handle as _, name.as_mut_ptr(), room, 0) };
            match len as usize {
                0 => return Err(io::Error::last_os_error()),
                len if len < name.len() => {
                    name.truncate(len);
                    return Ok(PathBuf::from(OsString::from_wide(&name)).join(path));
                }
                len => name.resize(len + 1, 0),
            }
        }
    })
}

/// # Safety
///
/// `path` is a C string with the bytes of an `OsStr`.
pub unsafe fn openat2(dir: Fd, path: *const c_char, how: &open_how) -> i64 {
    // SAFETY: the caller promised it.
    let path = unsafe { path_of(dir, path) };
    returned(
        path.and_then(|path| open(&path, how).map_err(|error| of_path(&path, error))),
        |file| file.into_raw_handle() as i64,
    )
}

fn open(path: &Path, how: &open_how) -> io::Result<File> {
    let flags = how.flags as c_int;
    let is = |flag: c_int| flags & flag == flag;
    if how.resolve != 0 || is(O_PATH) || is(O_TMPFILE) || is(O_DIRECT) {
        return Err(unsupported());
    }
    let access = flags & O_ACCMODE;
    let writes = access != O_RDONLY;
    // A directory is opened with these semantics only.
    let mut custom = FILE_FLAG_BACKUP_SEMANTICS;
    if is(O_NOFOLLOW) {
        custom |= FILE_FLAG_OPEN_REPARSE_POINT;
    }
    if is(O_DSYNC) {
        custom |= FILE_FLAG_WRITE_THROUGH;
    }
    let writing = writes || is(O_CREAT) || is(O_TRUNC);
    let is_dir = |path: &Path| std::fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
    if writing && !is(O_CREAT | O_EXCL) && is_dir(path) {
        return Err(io::Error::from_raw_os_error(EISDIR));
    }
    let file = OpenOptions::new()
        .read(access != O_WRONLY)
        .write(writes && !is(O_APPEND))
        .append(writes && is(O_APPEND))
        .truncate(is(O_TRUNC) && !is(O_EXCL))
        .create(is(O_CREAT))
        .create_new(is(O_CREAT | O_EXCL))
        .custom_flags(custom)
        .open(path)?;
    if is(O_NOFOLLOW) && file.metadata()?.is_symlink() {
        return Err(io::Error::from_raw_os_error(ELOOP));
    }
    if is(O_DIRECTORY) && !file.metadata()?.is_dir() {
        return Err(io::Error::from_raw_os_error(ENOTDIR));
    }
    Ok(file)
}

/// # Safety
///
/// `path` is a C string with the bytes of an `OsStr`, and `result` is valid for writes.
pub unsafe fn statx(
    dir: Fd,
    path: *const c_char,
    flags: c_int,
    _mask: c_uint,
    result: *mut statx,
) -> c_int {
    // SAFETY: the caller promised it.
    let is_empty = unsafe { CStr::from_ptr(path) }.is_empty();
    let found = if is_empty && flags & AT_EMPTY_PATH != 0 {
        on_file(dir, |file| Ok((file.metadata()?, id_of(file))))
    } else {
        // SAFETY: the caller promised it.
        unsafe { path_of(dir, path) }
            .and_then(|path| match flags & AT_SYMLINK_NOFOLLOW {
                0 => std::fs::metadata(&path).map_err(|error| of_path(&path, error)),
                _ => std::fs::symlink_metadata(&path).map_err(|error| of_path(&path, error)),
            })
            .map(|metadata| (metadata, NO_ID))
    };
    done(found.map(|(metadata, id)| {
        // SAFETY: the caller keeps it valid for writes.
        unsafe { result.write(statx { stx_id: id, ..statx_of(&metadata) }) }
    }))
}

/// The volume and the number of a file, if its file system has numbers.
fn id_of(file: &File) -> (u64, [u8; 16]) {
    let mut id = FILE_ID_INFO::default();
    // SAFETY: the structure is live during the call, and of the right size.
    let returned = unsafe {
        GetFileInformationByHandleEx(
            file.as_raw_handle() as _,
            FileIdInfo,
            (&raw mut id).cast(),
            size_of::<FILE_ID_INFO>() as u32,
        )
    };
    if returned == 0 { NO_ID } else { (id.VolumeSerialNumber, id.FileId.Identifier) }
}

fn statx_of(metadata: &Metadata) -> statx {
    const NEVER: statx_timestamp = statx_timestamp { tv_sec: 0, tv_nsec: 0 };
    let time = |time: SystemTime| match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => {
            statx_timestamp { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos() }
        }
        Err(before) => {
            let before = before.duration();
            let whole = before.as_secs() as i64;
            match before.subsec_nanos() {
                0 => statx_timestamp { tv_sec: -whole, tv_nsec: 0 },
                part => statx_timestamp { tv_sec: -whole - 1, tv_nsec: 1_000_000_000 - part },
            }
        }
    };
    let kind = match metadata.file_type() {
        kind if kind.is_symlink() => S_IFLNK,
        kind if kind.is_dir() => S_IFDIR,
        _ => S_IFREG,
    };
    let permissions = if metadata.permissions().readonly() { 0o444 } else { 0o666 };
    statx {
        stx_id: NO_ID,
        stx_mask: STATX_BASIC_STATS | STATX_BTIME,
        stx_mode: (kind | permissions) as u16,
        stx_size: metadata.file_size(),
        stx_mnt_id: 0,
        stx_atime: metadata.accessed().map_or(NEVER, time),
        stx_btime: metadata.created().map_or(NEVER, time),
        stx_mtime: metadata.modified().map_or(NEVER, time),
    }
}

/// Renames as `rename(2)` does: a directory replaces an empty directory only, and a file no
/// directory. An empty directory is removed first, since Windows does not replace it.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    let is_same = || std::fs::canonicalize(from).ok() == std::fs::canonicalize(to).ok();
    match (is_real_dir(from), is_real_dir(to)) {
        (false, true) if exists(from) => Err(io::Error::from_raw_os_error(EISDIR)),
        (true, false) if exists(to) => Err(io::Error::from_raw_os_error(ENOTDIR)),
        (true, true) if !is_same() => {
            std::fs::remove_dir(to)?;
            std::fs::rename(from, to).inspect_err(|_| _ = std::fs::create_dir(to))
        }
        _ => std::fs::rename(from, to),
    }
}

/// # Safety
///
/// Both paths are C strings with the bytes of an `OsStr`.
pub unsafe fn renameat2(
    from_dir: Fd,
    from: *const c_char,
    to_dir: Fd,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller promised it.
    let (from, to) = unsafe { (path_of(from_dir, from), path_of(to_dir, to)) };
    let rename = || {
        let (from, to) = (from?, to?);
        match flags {
            0 => replace(&from, &to)
                .map_err(|error| of_path(&from, error))
                .map_err(|error| of_path(&to, error)),
            RENAME_NOREPLACE => {
                let wide = |path: &Path| -> Vec<u16> {
                    path.as_os_str().encode_wide().chain([0]).collect()
                };
                let (from, to) = (wide(&from), wide(&to));
                // SAFETY: both are wide strings that end with a zero.
                match unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), 0) } {
                    0 => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                }
            }
            _ => Err(unsupported()),
        }
    };
    done(rename())
}

/// Whether the path is that of a directory, and not of a link to one.
fn is_real_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

/// # Safety
///
/// `path` is a C string with the bytes of an `OsStr`.
pub unsafe fn unlinkat(dir: Fd, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller promised it.
    let path = unsafe { path_of(dir, path) };
    done(path.and_then(|path| match flags & AT_REMOVEDIR {
        0 => std::fs::remove_file(&path).map_err(|error| {
            if is_real_dir(&path) {
                io::Error::from_raw_os_error(EISDIR)
            } else {
                of_path(&path, error)
            }
        }),
        _ => std::fs::remove_dir(&path).map_err(|error| of_path(&path, error)),
    }))
}

/// # Safety
///
/// `path` is a C string with the bytes of an `OsStr`.
pub unsafe fn mkdirat(dir: Fd, path: *const c_char, _mode: u32) -> c_int {
    // SAFETY: the caller promised it.
    let path = unsafe { path_of(dir, path) };
    done(path.and_then(|path| std::fs::create_dir(&path).map_err(|error| of_path(&path, error))))
}

/// # Safety
///
/// Both paths are C strings with the bytes of an `OsStr`.
pub unsafe fn linkat(
    old_dir: Fd,
    old: *const c_char,
    new_dir: Fd,
    new: *const c_char,
    _flags: c_int,
) -> c_int {
    // SAFETY: the caller promised it.
    let (old, new) = unsafe { (path_of(old_dir, old), path_of(new_dir, new)) };
    done(old.and_then(|old| {
        let new = new?;
        if is_real_dir(&old) {
            let errno = if new.symlink_metadata().is_ok() { EEXIST } else { EPERM };
            return Err(io::Error::from_raw_os_error(errno));
        }
        std::fs::hard_link(&old, &new)
            .map_err(|error| of_path(&old, error))
            .map_err(|error| of_path(&new, error))
    }))
}

/// # Safety
///
/// Both paths are C strings with the bytes of an `OsStr`.
pub unsafe fn symlinkat(target: *const c_char, dir: Fd, path: *const c_char) -> c_int {
    // SAFETY: the caller promised it.
    let (target, path) = unsafe { (path_of(AT_FDCWD, target), path_of(dir, path)) };
    done(target.and_then(|target| {
        let path = path?;
        // Windows has a type of link for each type of target.
        let is_dir = path.parent().is_some_and(|parent| parent.join(&target).is_dir());
        if is_dir {
            std::os::windows::fs::symlink_dir(target, path)
        } else {
            std::os::windows::fs::symlink_file(target, path)
        }
    }))
}

/// # Safety
///
/// `time` is valid.
pub unsafe fn nanosleep(time: *const timespec, _rest: *mut timespec) -> c_int {
    // SAFETY: the caller promised it.
    let time = unsafe { &*time };
    std::thread::sleep(Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
    0
}

/// A handle cannot be polled.
pub unsafe fn poll(_: *mut pollfd, _: nfds_t, _: c_int) -> c_int {
    fail(ENOSYS)
}

/// Whether a handle may append and not write elsewhere.
pub(crate) fn appends(fd: Fd) -> io::Result<bool> {
    let mut access = FILE_ACCESS_INFORMATION::default();
    let mut status = IO_STATUS_BLOCK::default();
    on_file(fd, |file| {
        // SAFETY: both structures are live during the call, and of the right size.
        let returned = unsafe {
            NtQueryInformationFile(
                file.as_raw_handle() as _,
                &raw mut status,
                (&raw mut access).cast(),
                size_of::<FILE_ACCESS_INFORMATION>() as u32,
                FileAccessInformation,
            )
        };
        match returned {
            0.. => {
                Ok(access.AccessFlags & (FILE_APPEND_DATA | FILE_WRITE_DATA) == FILE_APPEND_DATA)
            }
            _ => Err(io::Error::from_raw_os_error(EBADF)),
        }
    })
}

/// Waits until one of the event objects is set. Negative handles are ignored.
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
    // SAFETY: the caller promised it.
    let (polls, timeout) = unsafe {
        let polls = match count {
            0 => &mut [][..],
            count => std::slice::from_raw_parts_mut(polls, count as usize),
        };
        (polls, timeout.as_ref())
    };
    let duration = timeout.map(|time| Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
    // Rounded up to whole milliseconds.
    let milliseconds = duration.map_or(u32::MAX, |duration| {
        u32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX - 1)
    });
    let handles: Vec<_> =
        polls.iter().filter(|poll| poll.fd > 0).map(|poll| poll.fd as *mut _).collect();
    if handles.is_empty() {
        std::thread::sleep(duration.unwrap_or(Duration::MAX));
        return 0;
    }
    // SAFETY: the handles are in the array, and open.
    let ended =
        unsafe { WaitForMultipleObjects(handles.len() as u32, handles.as_ptr(), 0, milliseconds) };
    match ended {
        WAIT_FAILED => return -1,
        WAIT_TIMEOUT => return 0,
        _ => {}
    }
    let mut ready = 0;
    for poll in polls.iter_mut().filter(|poll| poll.fd > 0) {
        // SAFETY: the handle is in the array, and open.
        let is_set =
            unsafe { WaitForMultipleObjects(1, &(poll.fd as *mut _), 0, 0) } == WAIT_OBJECT_0;
        poll.revents = if is_set { POLLIN } else { 0 };
        ready += c_int::from(is_set);
    }
    ready
}
