//! Operations: one file for each, or for each close family, with its submission forms side by side.
//!
//! - `sqe`: the io_uring entry; `None` where io_uring has none.
//! - `iocb`: the Linux AIO request; `None` where Linux AIO has none.
//! - `call`: the blocking system call that a thread makes for it.
//! - `try_call`: the same call where it need not wait; `None` where there is none.
//!
//! Adding an operation is a new file here and a line in the list below; no backend changes.
//! (Sockets will stand here too.)

mod blocking;
mod cancel;
mod close;
mod fadvise;
mod fallocate;
mod ftruncate;
mod link;
mod mkdir;
mod nop;
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
mod write;
mod write_dsync;
mod writev;

pub use blocking::{Blocking, blocking};
pub use close::{Close, close};
pub use fadvise::{Advice, Fadvise, fadvise};
pub use fallocate::{Fallocate, fallocate};
pub use ftruncate::{Ftruncate, ftruncate};
pub use link::{Link, link, link_at};
pub use mkdir::{Mkdir, mkdir, mkdir_at};
pub use nop::{Nop, nop};
pub(crate) use open::DetachedOpen;
pub use open::{Open, OpenOptions, open, open_at};
pub use operation::{Operation, Vectored};
pub use poll::{Poll, Readiness, poll};
pub use read::{Read, read, read_spare};
pub use readv::{Readv, readv};
pub use rename::{Rename, rename, rename_at};
pub use statx::{FileType, Metadata, Statx, lstat, statx, statx_at};
pub use symlink::{Symlink, symlink, symlink_at};
pub use sync::{Fsync, fdatasync, fsync};
pub use sync_range::{SyncRange, sync_range};
pub use timeout::{Timeout, timeout};
pub use unlink::{Unlink, rmdir, unlink, unlink_at};
pub use write::{Write, write};
pub use write_dsync::{WriteDsync, write_dsync};
pub use writev::{Writev, writev};

pub(crate) use cancel::Cancel;
pub(crate) use operation::{InvalidOperation, Resources, commit_spare, set_addresses};

use crate::sys::kaio::Iocb;
use io_uring::squeue;

/// Where a read or a write begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At this many bytes from the beginning, whatever the file's own position; at most `i64::MAX`.
    Offset(u64),
    /// At the file's own position, which moves on by what was transferred (`read(2)`, `write(2)`).
    /// The only one for pipes and terminals. Operations at the position of one file that are in
    /// flight together are carried out in no particular order.
    Current,
}

impl From<u64> for Position {
    fn from(offset: u64) -> Self {
        Self::Offset(offset)
    }
}

impl Position {
    /// What the kernel's interfaces take: `u64::MAX` (-1) stands for the file's own position.
    pub(crate) fn raw(self) -> u64 {
        match self {
            // The largest number is as invalid as the others beyond `i64::MAX`, and must not be
            // taken for the position.
            Self::Offset(offset) => offset.min(CURRENT_POSITION - 1),
            Self::Current => CURRENT_POSITION,
        }
    }
}

/// The offset that stands for the file's own position.
pub const CURRENT_POSITION: u64 = u64::MAX;

/// A transfer longer than this is looked at more closely; no device takes less in one request.
pub(crate) const MIN_DEVICE_REQUEST: u64 = 64 << 10;

/// The answer of a positional call on what has no position.
const ESPIPE: i64 = -(libc::ESPIPE as i64);

/// A transfer by a blocking call at `offset`, or at the file's own position. A pipe has no offsets:
/// io_uring ignores them there, and so does this.
fn call_at(
    offset: u64,
    at_offset: impl FnOnce(i64) -> i64,
    at_position: impl FnOnce() -> i64,
) -> i64 {
    if offset == CURRENT_POSITION {
        return at_position();
    }
    match at_offset(offset as i64) {
        ESPIPE => at_position(),
        done => done,
    }
}

/// What an SQE may use besides the operation's own numbers: registrations of this ring, and memory
/// that stays where it is for as long as the operation is in flight.
pub(crate) struct SqeContext {
    /// The file's index among the registered files.
    pub fixed_file: Option<u32>,
    /// The buffer's index among the registered buffers.
    pub fixed_buffer: Option<u16>,
    /// This operation's own side structures.
    pub data: *mut SqeData,
}

/// Side structures that the kernel reads when it takes an SQE.
#[derive(Default)]
pub(crate) struct SqeData {
    pub timespec: io_uring::types::Timespec,
    pub link_timespec: io_uring::types::Timespec,
    /// Whose time is limited, and until when.
    pub limited: Option<(crate::slots::Token, std::time::Instant)>,
    pub open_how: Option<io_uring::types::OpenHow>,
}

/// The submission forms of an operation. It holds numbers and addresses only; who owns what they
/// point at, and for how long, is the business of [`Operation`] and the queue.
pub(crate) trait SubmissionForms: Copy {
    /// For io_uring; `None`: io_uring cannot carry it as it stands.
    fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry>;

    /// For Linux AIO; `None`: Linux AIO cannot carry it.
    fn iocb(&self) -> Option<Iocb>;

    /// The blocking call: a result as the kernel gives it, at least 0, or minus errno.
    fn call(&self) -> i64;

    /// The call that does not wait (`RWF_NOWAIT`): a result as that of [`call`](Self::call), EAGAIN
    /// where `call` would wait, EOPNOTSUPP where the file and ENOSYS where the kernel cannot do
    /// without waiting. `None`: the operation has no such call.
    fn try_call(&self) -> Option<i64> {
        None
    }
}

/// Builds an SQE on a registered file where there is one, else on the descriptor.
macro_rules! on_file {
    ($context:expr, $fd:expr, |$target:ident| $build:expr) => {
        match $context.fixed_file {
            Some(index) => {
                let $target = io_uring::types::Fixed(index);
                $build
            }
            None => {
                let $target = io_uring::types::Fd($fd);
                $build
            }
        }
    };
}
pub(crate) use on_file;

/// What a libc call returned, with errno folded in.
pub(crate) fn syscall_result(returned: i64) -> i64 {
    if returned >= 0 { returned } else { -i64::from(last_errno()) }
}

/// errno of the libc call made just before; EIO should the C library have left none.
fn last_errno() -> i32 {
    crate::refusal::errno_of(&std::io::Error::last_os_error())
}

macro_rules! operations {
    ($($name:ident $text:literal,)*) => {
        /// An operation as numbers and addresses: what the `unsafe` lower push takes, and what a
        /// safe [`Operation`] becomes inside its slot.
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub enum Raw {
            $(#[doc = concat!("`", $text, "`")] $name($name),)*
        }

        /// Which operation: named in errors, statistics and reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Opcode {
            $(#[doc = concat!("`", $text, "`")] $name,)*
        }

        impl Opcode {
            /// The name in lower case, as in the function that makes the operation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The one with this name.
            #[cfg(feature = "testing")]
            pub(crate) fn from_name(name: &str) -> Option<Self> {
                [$(Self::$name,)*].into_iter().find(|kind| kind.name() == name)
            }
        }

        impl Raw {
            /// Which operation it is.
            pub const fn opcode(&self) -> Opcode {
                match self { $(Self::$name(_) => Opcode::$name,)* }
            }

            #[inline]
            pub(crate) fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
                match self { $(Self::$name(raw) => raw.sqe(context),)* }
            }

            #[inline]
            pub(crate) fn iocb(&self) -> Option<Iocb> {
                match self { $(Self::$name(raw) => raw.iocb(),)* }
            }

            pub(crate) fn call(&self) -> i64 {
                match self { $(Self::$name(raw) => raw.call(),)* }
            }

            pub(crate) fn try_call(&self) -> Option<i64> {
                match self { $(Self::$name(raw) => raw.try_call(),)* }
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
    Blocking "blocking",
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What the queue has to know of an operation to carry it in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// It has one answer and no length.
    None,
    /// A transfer of this many bytes that may be cut anywhere.
    Bytes(u64),
    /// A transfer of this many bytes from one position on that each piece moves: one piece at a
    /// time.
    Stream(u64),
    /// A vectored transfer of this many bytes: whole, and what is missing of it one buffer at a
    /// time.
    Vector(u64),
}

impl Raw {
    /// How it can be cut.
    #[inline]
    pub(crate) fn transfer(&self) -> Transfer {
        match self {
            Self::Read(r) => r.transfer(),
            Self::Write(w) => w.transfer(),
            Self::WriteDsync(w) => w.transfer(),
            Self::Readv(r) => r.transfer(),
            Self::Writev(w) => w.transfer(),
            _ => Transfer::None,
        }
    }

    /// The part of a transfer that begins `start` bytes in and has at most `len` bytes.
    pub(crate) fn piece(&self, start: u64, len: u64) -> Self {
        match self {
            Self::Read(r) => Self::Read(r.piece(start, len)),
            Self::Write(w) => Self::Write(w.piece(start, len)),
            Self::WriteDsync(w) => Self::WriteDsync(w.piece(start, len)),
            Self::Readv(r) => r.piece(start),
            Self::Writev(w) => w.piece(start),
            other => *other,
        }
    }

    /// The descriptor it acts on, if it acts on one.
    pub(crate) fn fd(&self) -> Option<std::os::fd::RawFd> {
        match self {
            Self::Read(x) => Some(x.fd),
            Self::Write(x) => Some(x.fd),
            Self::WriteDsync(x) => Some(x.0.fd),
            Self::Readv(x) => Some(x.fd),
            Self::Writev(x) => Some(x.fd),
            Self::Fsync(x) => Some(x.fd),
            Self::SyncRange(x) => Some(x.fd),
            Self::Close(x) => Some(x.fd),
            Self::Fallocate(x) => Some(x.fd),
            Self::Ftruncate(x) => Some(x.fd),
            Self::Fadvise(x) => Some(x.fd),
            Self::Poll(x) => Some(x.fd),
            _ => None,
        }
    }

    /// Where a transfer begins.
    #[inline]
    pub(crate) fn offset(&self) -> Option<u64> {
        match self {
            Self::Read(x) => Some(x.offset),
            Self::Write(x) => Some(x.offset),
            Self::WriteDsync(x) => Some(x.0.offset),
            Self::Readv(x) => Some(x.offset),
            Self::Writev(x) => Some(x.offset),
            _ => None,
        }
    }

    /// Bytes of a transfer; 0 for anything else.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Read(x) => x.len as u64,
            Self::Write(x) | Self::WriteDsync(WriteDsync(x)) => x.len as u64,
            Self::Readv(x) => operation::total(x.iov, x.count),
            Self::Writev(x) => operation::total(x.iov, x.count),
            _ => 0,
        }
    }

    /// True for transfers: what may be short, split and continued.
    pub(crate) fn is_transfer(&self) -> bool {
        matches!(
            self,
            Self::Read(_) | Self::Write(_) | Self::WriteDsync(_) | Self::Readv(_) | Self::Writev(_)
        )
    }

    /// True for transfers to a file.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Write(_) | Self::WriteDsync(_) | Self::Writev(_))
    }

    /// True for what waits for the device to have written everything: it has a lane of its own
    /// among the threads, so that reads do not stand behind it.
    pub(crate) fn is_sync(&self) -> bool {
        matches!(self, Self::Fsync(_) | Self::SyncRange(_) | Self::WriteDsync(_))
    }
}

/// Buffered transfers from so many bytes on are left to the kernel's workers.
const WORKER_MIN_BYTES: u64 = 64 << 10;

/// Whether a kernel worker is to make this transfer if it is a buffered one of a file on storage.
/// Through the page cache whoever enters would copy what is there, and start the device for the
/// rest page by page: a thread that has other things to do would stay in the kernel for a
/// millisecond; and for as long as the device takes where the write is to be durable. Any other
/// short transfer costs less than a worker does.
pub(crate) fn is_for_worker(raw: &Raw) -> bool {
    raw.bytes() >= WORKER_MIN_BYTES || matches!(raw, Raw::WriteDsync(_))
}
