//! Creates or replaces a whole file: `open(2)`, `write(2)` and `close(2)` on one thread.

use super::{
    CURRENT_POSITION, Close, ESPIPE, Open, Operation, Resources, RwFlags, SubmissionForms, Write,
    operation::InvalidOperation,
};
use crate::Buffer;
use crate::sys::{RawFd, libc};
use std::ffi::CString;
use std::path::Path;

/// Creates the file `path` with the content of `buffer`, or replaces the content of an existing
/// one, as `std::fs::write` does, which ignores errors of the close. The result is the number of
/// bytes, all of them.
///
/// No queue of the kernel has an operation for this: on every backend a thread makes the system
/// calls, one after the other, which costs a third of three operations. It can be cancelled until
/// the thread has begun. After an error the file may have a part of the content.
///
/// Errors: those of `open(2)` and `write(2)`, and those of `close(2)`, where a network file system
/// may report that it could not write (EIO also for an EAGAIN, ECANCELED, EFAULT or ESPIPE of the
/// close, since the file was written; EINTR is no error, `close(2)`, NOTES). ESPIPE, with nothing
/// opened, if the path leads to a FIFO, a device or a socket, or if the open would wait for a
/// lease: those may keep a thread waiting for ever. Open such a file and [`write`](super::write())
/// to it. ESPIPE, with nothing written, if the path has become that of a FIFO or a device when it
/// is opened.
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("name");
/// let mut queue = Options::new().build()?;
/// queue.push(op::write_file(&path, b"text".to_vec()))?;
/// let done = queue.reap(1)?.next().unwrap();
/// assert_eq!(done.result, Ok(4));
/// assert_eq!(std::fs::read(&path)?, b"text");
/// # Ok(()) }
/// ```
pub fn write_file(path: impl AsRef<Path>, buffer: impl Into<Buffer>) -> Operation {
    let buffer = buffer.into();
    let path = CString::new(path.as_ref().as_os_str().as_encoded_bytes());
    let invalid = path.is_err().then_some(InvalidOperation::NulInPath);
    let path = path.unwrap_or_default();
    // The bytes of the path do not move with it. The address of the buffer is set in the slot.
    let raw = WriteFile { path: path.as_ptr(), buf: std::ptr::null(), len: buffer.len() };
    let resources = Resources::Named(Box::new((path, buffer)));
    Operation::make(raw.into(), resources, None, invalid)
}

/// Creates or replaces a file.
#[derive(Clone, Copy, Debug)]
pub struct WriteFile {
    /// The path, relative to the working directory.
    pub path: *const libc::c_char,
    /// The content.
    pub buf: *const u8,
    /// Its length in bytes.
    pub len: usize,
}

impl WriteFile {
    /// Opens the file, unless that may wait for ever.
    fn open(&self) -> i64 {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
        let open = |flags: i32| Open {
            dir: libc::AT_FDCWD,
            path: self.path,
            flags: flags as u64,
            mode: 0o666,
            resolve: 0,
        };
        if open(flags).leads_to_other_than_files() {
            return ESPIPE;
        }
        match open(flags | libc::O_NONBLOCK).call() {
            // It became a FIFO without a reader meanwhile, or has a lease.
            ENXIO | EAGAIN => ESPIPE,
            opened => opened,
        }
    }
}

/// How often a write is made again after EINTR before it has written anything.
const MAX_FRUITLESS_WRITES: u32 = 10;
const ENXIO: i64 = -(libc::ENXIO as i64);
const EAGAIN: i64 = -(libc::EAGAIN as i64);

impl SubmissionForms for WriteFile {
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_on_path(&self) -> bool {
        true
    }

    fn call(&self) -> i64 {
        let opened = self.open();
        let Some(fd) = RawFd::try_from(opened).ok().filter(|_| opened >= 0) else { return opened };
        if !is_regular(fd) {
            // It became a FIFO or a device between the look at its path and the open.
            Close { fd }.call();
            return ESPIPE;
        }
        // What a file system makes of the flag in a write is not known.
        #[cfg(unix)]
        // SAFETY: the call takes numbers, and the descriptor is this operation's.
        let _ = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_WRONLY) };
        let (mut written, mut interrupted) = (0, 0);
        let result = loop {
            if written == self.len {
                break written as i64;
            }
            let (buf, len) = (self.buf.wrapping_add(written), self.len - written);
            match (Write { fd, buf, len, offset: CURRENT_POSITION, flags: RwFlags::NONE }).call() {
                0 => break -i64::from(libc::ENOSPC),
                more @ 1.. => (written, interrupted) = (written + more as usize, 0),
                // A file system may answer it for ever: then the caller decides, and makes the
                // whole call again.
                error if error == -i64::from(libc::EINTR) && interrupted < MAX_FRUITLESS_WRITES => {
                    interrupted += 1;
                }
                error => break error,
            }
        };
        // A network file system may report only here that a write has failed.
        match i32::try_from(-(Close { fd }).call()) {
            Ok(errno @ 1..) if result >= 0 => {
                errno_of_written(errno).map_or(result, |errno| -i64::from(errno))
            }
            _ => result,
        }
    }
}

/// Whether a file that this operation has opened is regular, as far as that is known.
#[cfg(unix)]
fn is_regular(fd: RawFd) -> bool {
    // SAFETY: the descriptor is the operation's, which closes it later.
    let mode = crate::device::mode(unsafe { crate::sys::borrowed(fd) });
    !mode.is_ok_and(|mode| mode & libc::S_IFMT != libc::S_IFREG)
}

/// Such a path leads to nothing else.
#[cfg(not(unix))]
fn is_regular(_: RawFd) -> bool {
    true
}

/// The errno of a function that has written a whole file, from that of its close; `None` if it has
/// succeeded. The file is complete, and its descriptor closed (`close(2)`, NOTES): EINTR is no
/// error, and what elsewhere says that nothing was written (EAGAIN, ECANCELED, EFAULT, ESPIPE) is
/// EIO, so that nobody writes the file again.
///
/// ```
/// use ringway_core::{errno, op};
/// assert_eq!(op::errno_of_written(errno::EINTR), None);
/// assert_ne!(op::errno_of_written(errno::EAGAIN), Some(errno::EAGAIN));
/// ```
pub fn errno_of_written(errno: i32) -> Option<i32> {
    match errno {
        libc::EINTR => None,
        libc::EAGAIN | libc::ECANCELED | libc::EFAULT | libc::ESPIPE => Some(libc::EIO),
        other => Some(other),
    }
}

/// The submission forms of Linux's queues: there are none.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext};
    use io_uring::squeue;

    impl LinuxForms for WriteFile {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            None
        }
    }
}
