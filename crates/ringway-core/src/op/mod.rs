//! Operations: the requests that a [`Queue`](crate::Queue) takes.
//!
//! ```
//! use ringway_core::{File, Options, op};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = File::open("/etc/passwd")?;
//! let mut queue = Options::new().build()?;
//! queue.push(op::read(&file, vec![0; 4096], 0).exact().user_data(7))?;
//! queue.push(op::statx("/etc/passwd").user_data(8))?;
//! for done in queue.reap(2)? {
//!     println!("{} {}: {:?}", done.user_data, done.opcode, done.result);
//! }
//! # Ok(()) }
//! ```
//!
//! Functions such as [`read()`] make an [`Operation`], and its methods modify it. Types such as
//! [`Read`] are the same operations as numbers and addresses ([`Raw`]), for bindings to other
//! languages.
//!
//! # Other systems
//!
//! On systems other than Linux all operations run on threads. What a system lacks fails with
//! ENOSYS, whose [`ErrorKind`](std::io::ErrorKind) is `Unsupported`:
//!
//! | operation | lacking on |
//! |---|---|
//! | [`sync_range`] | all of them |
//! | [`fallocate`]: modes | all of them |
//! | [`fallocate`]: mode 0 | macOS, Windows |
//! | [`fadvise`] | macOS, Windows |
//! | [`open`]: `O_PATH`, `O_TMPFILE`, resolution flags | all of them |
//! | [`open`] for direct I/O | Windows |
//! | [`rename_at`] with `RENAME_NOREPLACE` | FreeBSD |
//! | [`rename_at`] with other flags | all of them |
//! | [`poll`] | Windows |
//!
//! A durable sync is `F_FULLFSYNC` on macOS, where direct I/O is `F_NOCACHE`, which needs no
//! alignment and which [`File::is_direct`](crate::File::is_direct) does not show. A write to a pipe
//! or a socket occupies a thread until all of it is written.
//!
//! On Windows
//!
//! - error numbers are the system's error codes, one for each name in `errno(3)`;
//! - a file can be synced only if it is open for writing, and syncing a directory has no effect,
//!   since Windows has no call for it;
//! - a rename replaces an empty directory in two steps, and the modes of [`mkdir`] and [`open`]
//!   have no effect;
//! - Windows makes one transfer of a handle at a time, and one at an offset moves the current
//!   position meanwhile: do not use it through duplicates of the handle, which share it;
//! - a transfer on a pipe or a console cannot be cancelled once it has begun: its memory is kept
//!   until it ends.

// Each operation, or close family, has one file with all its submission forms:
//
// - `sqe`: the io_uring entry; `None` if io_uring has none.
// - `iocb`: the Linux AIO request; `None` if Linux AIO has none.
// - `call`: the blocking system call that a thread makes.
// - `try_call`: the same call without waiting; `None` if there is none.
//
// To add an operation, add a file here and a line to the list below; no backend changes.

mod blocking;
#[cfg(ringway_linux)]
mod cancel;
mod close;
mod fadvise;
mod fallocate;
mod flush;
mod ftruncate;
mod link;
#[cfg(ringway_linux)]
mod linux;
mod mkdir;
mod nop;
mod nvme;
mod open;
mod operation;
mod poll;
mod read;
mod readv;
mod rename;
mod statx;
mod symlink;
mod sync;
mod sync_range;
mod timeout;
mod unlink;
mod untorn;
mod write;
mod write_dsync;
mod write_file;
mod writev;

pub use crate::rw_flags::RwFlags;
pub use blocking::{Blocking, blocking};
pub use close::{Close, close};
pub use fadvise::{Advice, Fadvise, fadvise};
pub use fallocate::{Fallocate, fallocate};
pub use flush::Flush;
pub use ftruncate::{Ftruncate, ftruncate};
pub use link::{Link, link, link_at};
pub use mkdir::{Mkdir, mkdir, mkdir_at};
pub use nop::{Nop, nop};
pub(crate) use open::DetachedOpen;
pub use open::{NotOpened, Open, OpenOptions, metadata_now, open, open_at};
pub use operation::{Operation, Vectored};
pub use poll::{Poll, Readiness, poll};
pub use read::{MAX_DISCARD, Read, read, read_discard, read_spare};
pub use readv::{Readv, readv};
pub use rename::{Rename, rename, rename_at};
pub use statx::{FileType, Metadata, Statx, lstat, lstat_at, statx, statx_at};
pub use symlink::{Symlink, symlink, symlink_at};
pub use sync::{Fsync, fdatasync, fsync};
pub use sync_range::{SyncRange, sync_range};
pub use timeout::{Timeout, timeout};
pub use unlink::{Unlink, rmdir, unlink, unlink_at};
pub use untorn::UntornProblem;
pub use write::{Write, write};
pub use write_dsync::{WriteDsync, write_dsync};
pub use write_file::{WriteFile, errno_of_written, write_file};
pub use writev::{Writev, writev};

#[cfg(ringway_linux)]
pub(crate) use cancel::Cancel;
pub(crate) use nvme::Status as NvmeStatus;
#[cfg(ringway_linux)]
pub(crate) use nvme::{Command as NvmeCommand, Plan as NvmePlan, plan as plan_nvme};
pub(crate) use operation::{InvalidOperation, Resources, commit_spare, set_addresses};

use crate::file::{FileKind, Traits, has_offsets};
use crate::sys::{RawFd, libc};
#[cfg(ringway_linux)]
pub(crate) use linux::{
    LinuxForms, NO_FD, NO_PATH, SqeContext, SqeData, is_refused_early, on_file, transfer_iocb,
};

/// The position at which a read or a write starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// This many bytes from the beginning of the file; at most `i64::MAX`. The file's current
    /// position neither matters nor changes.
    Offset(u64),
    /// The file's current position, which advances by the bytes transferred (`read(2)`,
    /// `write(2)`). Pipes and terminals have no other. Concurrent operations at the current
    /// position of one file run in no particular order.
    Current,
}

impl From<u64> for Position {
    fn from(offset: u64) -> Self {
        Self::Offset(offset)
    }
}

impl Position {
    /// The offset as the kernel takes it: `u64::MAX` (-1) is the current position.
    pub(crate) fn raw(self) -> u64 {
        match self {
            // `u64::MAX` is as invalid as any offset above `i64::MAX`, and must not mean the
            // current position.
            Self::Offset(offset) => offset.min(CURRENT_POSITION - 1),
            Self::Current => CURRENT_POSITION,
        }
    }
}

/// The offset that means the file's current position.
pub const CURRENT_POSITION: u64 = u64::MAX;

/// No device has a smaller limit for one request; longer transfers may have to be split.
pub(crate) const MIN_DEVICE_REQUEST: u64 = 64 << 10;

/// The result of a positional call on a file without offsets.
const ESPIPE: i64 = -(libc::ESPIPE as i64);

/// The result of a transfer by a system call at `offset`, or at the current position. For a pipe
/// the offset is ignored, as io_uring does. Of a file that has offsets the errno is an answer: that
/// of a server that takes only what comes in order.
fn call_at(
    fd: RawFd,
    offset: u64,
    at_offset: impl FnOnce(i64) -> i64,
    at_position: impl FnOnce() -> i64,
) -> i64 {
    if offset != CURRENT_POSITION {
        let result = syscall_result(at_offset(offset as i64));
        if result != ESPIPE || has_offsets(fd) {
            return result;
        }
    }
    syscall_result(at_position())
}

/// The same by `preadv2(2)` or `pwritev2(2)`, for which the current position is -1. A call that
/// does not wait (`RWF_NOWAIT`) is not repeated there on storage: it would wait for whoever reads
/// or writes at the position.
fn call_with_flags(fd: RawFd, offset: u64, flags: libc::c_int, call: impl Fn(i64) -> i64) -> i64 {
    if flags & libc::RWF_NOWAIT != 0 && offset != CURRENT_POSITION {
        let result = syscall_result(call(offset as i64));
        if result != ESPIPE || Traits::of(fd).kind == FileKind::Storage {
            return result;
        }
        return syscall_result(call(-1));
    }
    call_at(fd, offset, &call, || call(-1))
}

/// The offset of what starts `start` bytes into a transfer at `offset`.
fn advanced(offset: u64, start: u64) -> u64 {
    if offset == CURRENT_POSITION { CURRENT_POSITION } else { offset + start }
}

/// What the queue asks of an operation, and its submission forms. A form holds only numbers and
/// addresses; [`Operation`] and the queue keep valid what they refer to.
pub(crate) trait SubmissionForms: Copy + Into<Raw> {
    /// The descriptor that it acts on, if any: what it is placed, limited and registered by.
    fn fd(&self) -> Option<RawFd>;

    /// True for operations on paths: the kernel checks then what the caller may do.
    fn is_on_path(&self) -> bool {
        false
    }

    /// The offset of a transfer; `None` for other operations.
    fn offset(&self) -> Option<u64> {
        None
    }

    /// How the operation can be split.
    fn transfer(&self) -> Transfer {
        Transfer::None
    }

    /// The part of a transfer that starts at byte `start` and has at most `len` bytes.
    fn piece(&self, _start: u64, _len: u64) -> Raw {
        (*self).into()
    }

    /// The flags of a transfer.
    #[inline]
    fn rw_flags(&self) -> RwFlags {
        RwFlags::NONE
    }

    /// The same, to be changed; `None` for other operations.
    fn rw_flags_mut(&mut self) -> Option<&mut RwFlags> {
        None
    }

    /// True for transfers that write.
    fn is_write(&self) -> bool {
        false
    }

    /// True for operations that wait until the device has written everything. The threads run them
    /// in a lane of their own, so that reads do not wait behind them.
    fn is_sync(&self) -> bool {
        false
    }

    /// The blocking call: the kernel's result, at least 0, or minus errno.
    fn call(&self) -> i64;

    /// The call that does not wait (`RWF_NOWAIT`): a result as from [`call`](Self::call); EAGAIN if
    /// `call` would wait; EOPNOTSUPP or ENOSYS if the file or the kernel does not support it.
    /// `None` if the operation has no such call.
    fn try_call(&self) -> Option<i64> {
        None
    }
}

/// The return value of a libc call, or minus errno.
pub(crate) fn syscall_result(returned: i64) -> i64 {
    if returned >= 0 { returned } else { -i64::from(last_errno()) }
}

/// The errno of the last libc call; EIO if there is none.
fn last_errno() -> i32 {
    crate::refusal::errno_of(&std::io::Error::last_os_error())
}

macro_rules! operations {
    ($($name:ident $text:literal,)*) => {
        /// An operation as numbers and addresses, for [`Operation::from_raw`] and inside the slots
        /// of a queue.
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub enum Raw {
            $(#[doc = concat!("`", $text, "`")] $name($name),)*
        }

        /// The type of an operation, for errors, statistics and reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Opcode {
            $(#[doc = concat!("`", $text, "`")] $name,)*
        }

        impl Opcode {
            /// The name in lower case, the same as that of the function that makes the operation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The opcode with this name.
            #[cfg(feature = "testing")]
            pub(crate) fn from_name(name: &str) -> Option<Self> {
                [$(Self::$name,)*].into_iter().find(|kind| kind.name() == name)
            }
        }

        impl Raw {
            /// The opcode.
            pub const fn opcode(&self) -> Opcode {
                match self { $(Self::$name(_) => Opcode::$name,)* }
            }

            pub(crate) fn fd(&self) -> Option<RawFd> {
                match self { $(Self::$name(raw) => raw.fd(),)* }
            }

            pub(crate) fn is_on_path(&self) -> bool {
                match self { $(Self::$name(raw) => raw.is_on_path(),)* }
            }

            #[inline]
            pub(crate) fn offset(&self) -> Option<u64> {
                match self { $(Self::$name(raw) => raw.offset(),)* }
            }

            #[inline]
            pub(crate) fn transfer(&self) -> Transfer {
                match self { $(Self::$name(raw) => raw.transfer(),)* }
            }

            #[inline]
            pub(crate) fn rw_flags(&self) -> RwFlags {
                match self { $(Self::$name(raw) => raw.rw_flags(),)* }
            }

            pub(crate) fn rw_flags_mut(&mut self) -> Option<&mut RwFlags> {
                match self { $(Self::$name(raw) => raw.rw_flags_mut(),)* }
            }

            pub(crate) fn piece(&self, start: u64, len: u64) -> Self {
                match self { $(Self::$name(raw) => raw.piece(start, len),)* }
            }

            #[inline]
            pub(crate) fn is_write(&self) -> bool {
                match self { $(Self::$name(raw) => raw.is_write(),)* }
            }

            #[inline]
            pub(crate) fn is_sync(&self) -> bool {
                match self { $(Self::$name(raw) => raw.is_sync(),)* }
            }

            pub(crate) fn call(&self) -> i64 {
                match self { $(Self::$name(raw) => raw.call(),)* }
            }

            pub(crate) fn try_call(&self) -> Option<i64> {
                match self { $(Self::$name(raw) => raw.try_call(),)* }
            }
        }

        #[cfg(ringway_linux)]
        impl Raw {
            #[inline]
            pub(crate) fn sqe(&self, context: &SqeContext) -> Option<io_uring::squeue::Entry> {
                match self { $(Self::$name(raw) => raw.sqe(context),)* }
            }

            #[inline]
            pub(crate) fn iocb(&self) -> Option<crate::sys::kaio::Iocb> {
                match self { $(Self::$name(raw) => raw.iocb(),)* }
            }

            pub(crate) fn on_nothing(&self) -> Option<Self> {
                match self { $(Self::$name(raw) => raw.on_nothing(),)* }
            }
        }

        $(impl From<$name> for Raw {
            fn from(raw: $name) -> Self {
                Self::$name(raw)
            }
        })*
    };
}

operations! {
    Nop "nop",
    Read "read",
    Write "write",
    WriteDsync "write_dsync",
    Readv "readv",
    Writev "writev",
    Fsync "fsync",
    Flush "flush",
    SyncRange "sync_range",
    Open "open",
    Close "close",
    Statx "statx",
    Fallocate "fallocate",
    Ftruncate "ftruncate",
    Fadvise "fadvise",
    Rename "rename",
    Unlink "unlink",
    Mkdir "mkdir",
    Link "link",
    Symlink "symlink",
    Poll "poll",
    Timeout "timeout",
    WriteFile "write_file",
    Blocking "blocking",
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How an operation can be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// Not a transfer: one result, no length.
    None,
    /// A transfer of this many bytes, which can be split anywhere.
    Bytes(u64),
    /// A transfer of this many bytes at the current position, which each piece advances: one piece
    /// at a time.
    Stream(u64),
    /// A vectored transfer of this many bytes: submitted whole; after a short result, the rest of
    /// one buffer at a time.
    Vector(u64),
}

impl Transfer {
    /// A transfer of `len` bytes at `offset`.
    #[inline]
    fn at(offset: u64, len: usize) -> Self {
        let len = len as u64;
        if offset == CURRENT_POSITION { Self::Stream(len) } else { Self::Bytes(len) }
    }
}

impl Raw {
    /// The length of a transfer in bytes; 0 for other operations.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        match self.transfer() {
            Transfer::None => 0,
            Transfer::Bytes(len) | Transfer::Stream(len) | Transfer::Vector(len) => len,
        }
    }

    /// True for transfers: they can be short, split and continued.
    #[inline]
    pub(crate) fn is_transfer(&self) -> bool {
        self.offset().is_some()
    }
}

/// From this length on, buffered transfers are left to io-wq workers.
const WORKER_MIN_BYTES: u64 = 64 << 10;
/// From this length on, direct transfers are. The thread that makes the request for the device pins
/// each page, which takes some 20 ns, and 1 us for a page that was never touched.
const WORKER_MIN_DIRECT_BYTES: u64 = 1 << 20;

/// Whether an io-wq worker should run this transfer, if it is a buffered one on storage. Otherwise
/// the submitting thread copies cached bytes and starts the device page by page for the rest, which
/// can keep it in the kernel for a millisecond; for a durable write it waits for the device. For
/// any other short transfer a worker costs more than that.
pub(crate) fn is_for_worker(raw: &Raw) -> bool {
    raw.bytes() >= WORKER_MIN_BYTES || matches!(raw, Raw::WriteDsync(_))
}

/// The same for a direct transfer on storage.
pub(crate) fn is_direct_for_worker(raw: &Raw) -> bool {
    raw.bytes() >= WORKER_MIN_DIRECT_BYTES
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::os::fd::AsRawFd as _;

    /// Some file systems have regular files without offsets. Whoever reads such a file holds the
    /// lock of its position while the server does not answer.
    #[test]
    fn a_call_that_does_not_wait_does_not_use_the_position_of_storage() {
        let file = tempfile::tempfile().unwrap();
        let (pipe, _other) = std::io::pipe().unwrap();
        let offsets = |fd, flags, offset| {
            let made = RefCell::new(Vec::new());
            let call = |at| {
                made.borrow_mut().push(at);
                // SAFETY: the call takes numbers. It fails with ESPIPE.
                unsafe { libc::lseek(pipe.as_raw_fd(), 0, libc::SEEK_CUR) }
            };
            assert_eq!(call_with_flags(fd, offset, flags, call), ESPIPE);
            made.into_inner()
        };
        let (file, pipe) = (file.as_raw_fd(), pipe.as_raw_fd());
        assert_eq!(offsets(file, libc::RWF_NOWAIT, 7), [7]);
        assert_eq!(offsets(pipe, libc::RWF_NOWAIT, 7), [7, -1]);
        assert_eq!(offsets(pipe, libc::RWF_DSYNC, 7), [7, -1]);
        assert_eq!(offsets(pipe, libc::RWF_NOWAIT, CURRENT_POSITION), [-1]);
    }
}
