//! What the extension module needs of the system, on Linux, macOS and others of the Unix family:
//! numbers of errors and descriptors, metadata, and threads that wait. `windows.rs` has the same
//! functions.

pub use libc::{ECHILD, ELOOP};

use pyo3::prelude::*;
use ringway::Engine;
use ringway::fs::{File, Metadata};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::thread;
use std::time::Duration;

/// The errno of an error of the system, and its number on Windows.
pub fn error_numbers(code: i32) -> (i32, Option<i32>) {
    (code, None)
}

/// The number by which the program knows an open file: that of its descriptor.
pub struct Number;

impl Number {
    /// That of a file which the engine has opened.
    pub fn new() -> Self {
        Self
    }

    /// The number of an open file.
    pub fn of(&self, _: Python<'_>, file: &File) -> io::Result<c_int> {
        Ok(file.as_raw_fd())
    }

    /// The file is about to be closed.
    pub fn close(&self) {}
}

/// A file for a descriptor of the program: the descriptor itself if it is `own`, otherwise a
/// duplicate. Errors: EBADF, EMFILE.
pub fn adopt(fd: c_int, own: bool, engine: &Engine) -> io::Result<(File, Number)> {
    let fd = if own {
        // This shows that it is open. (The close of a duplicate would release the locks of the
        // process on the file.)
        // SAFETY: the call only looks for the number.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the program says that it is its own, and that nobody else closes it.
        unsafe { OwnedFd::from_raw_fd(fd) }
    } else {
        duplicate(fd)?
    };
    Ok((File::from_fd(fd, engine), Number))
}

/// A descriptor that stands for the file of another one, for questions about the file. Its close
/// keeps the locks of the process on the file on Linux, where it has no access (`O_PATH`); that of
/// a duplicate, which it is elsewhere and without /proc, releases them (`F_SETLK` of `fcntl(2)`).
/// Errors: EBADF, EMFILE.
pub fn reference(fd: RawFd) -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    if let Ok(path) = rustix::fs::open(
        format!("/proc/thread-self/fd/{fd}"),
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    ) {
        return Ok(path);
    }
    duplicate(fd)
}

/// A duplicate of a descriptor that the program keeps. Errors: EBADF, EMFILE.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is only duplicated, which fails if it is no descriptor.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// A descriptor of an open file for the program, which closes it. Errors: EMFILE.
pub fn new_number(_: Python<'_>, file: &File) -> io::Result<c_int> {
    Ok(file.as_fd().try_clone_to_owned()?.into_raw_fd())
}

/// The number of the descriptor that is readable when the engine has something to reap. Errors:
/// EOPNOTSUPP if a thread of the engine reaps.
pub fn readable(engine: &Engine) -> io::Result<c_int> {
    engine.readable().map(|fd| fd.as_raw_fd())
}

/// Waits until there is something to reap, and reaps; or waits for an engine's thread that does.
/// Returns after `limit` in any case.
pub fn reap(engine: &Engine, limit: Duration) {
    match engine.readable() {
        Ok(fd) => {
            wait_readable(fd, limit);
            engine.reap();
        }
        Err(_) => thread::park_timeout(limit),
    }
}

fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one entry, which lives as long as the call. Callers look again after an error.
    unsafe { libc::poll(&raw mut entry, 1, limit) };
}

/// Blocks all signals on this thread: the program's threads handle them.
pub fn block_signals() {
    // SAFETY: the set is filled before it is used.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, ptr::null_mut());
    }
}

/// The numbers of an `os.stat_result`: mode, inode, device, links, user, group, size, the times of
/// access, modification and change in nanoseconds, block size, blocks, device number.
pub fn stat(metadata: &Metadata) -> [i128; 13] {
    let nanoseconds =
        |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    [
        i128::from(MetadataExt::mode(metadata)),
        metadata.ino().into(),
        metadata.dev().into(),
        metadata.nlink().into(),
        metadata.uid().into(),
        metadata.gid().into(),
        metadata.size().into(),
        nanoseconds(metadata.atime(), metadata.atime_nsec()),
        nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        metadata.blksize().into(),
        metadata.blocks().into(),
        metadata.rdev().into(),
    ]
}
