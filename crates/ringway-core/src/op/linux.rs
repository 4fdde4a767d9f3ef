//! What the submission forms of Linux's queues have in common. The forms of an operation are in its
//! file.

use super::{CURRENT_POSITION, Raw, RwFlags};
use crate::sys::kaio::Iocb;
use crate::sys::{RawFd, libc};
use io_uring::squeue;
use std::ffi::CStr;

/// What an SQE needs in addition to the operation: registrations of the ring, and memory that stays
/// valid while the operation is in flight.
pub(crate) struct SqeContext {
    /// The index of the registered file.
    pub fixed_file: Option<u32>,
    /// The index of the registered buffer.
    pub fixed_buffer: Option<u16>,
    /// The file is a socket.
    pub socket: bool,
    /// Memory of this operation that the kernel reads.
    pub data: *mut SqeData,
}

/// Structures that the kernel reads when it takes an SQE.
#[derive(Default)]
pub(crate) struct SqeData {
    pub timespec: io_uring::types::Timespec,
    pub link_timespec: io_uring::types::Timespec,
    /// The operation with the time limit, and its deadline.
    pub time_limit: Option<(crate::slots::Token, std::time::Instant)>,
    pub open_how: Option<io_uring::types::OpenHow>,
}

/// The forms in which Linux's queues take an operation.
pub(crate) trait LinuxForms: super::SubmissionForms {
    /// The io_uring entry; `None` if io_uring does not support the operation as it is.
    fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry>;

    /// The Linux AIO request; `None` if Linux AIO does not support the operation.
    fn iocb(&self) -> Option<Iocb> {
        None
    }

    /// The same operation on nothing ([`NO_FD`]): the kernel fails it with EBADF before it looks up
    /// a path, and no file system learns of it. `None` for one that no file system is asked about,
    /// and for transfers, which a ring makes only where no server answers.
    fn on_nothing(&self) -> Option<Raw> {
        None
    }
}

/// A descriptor, or a directory, that no process has; and a path below it.
pub(crate) const NO_FD: RawFd = -1;
pub(crate) const NO_PATH: &CStr = c"nothing";

/// Whether the ring refuses a path before it looks up another one that the system call looks up
/// first: a path that is empty or too long. Of two errors the ring would return the other one.
///
/// # Safety
///
/// `path` must be a valid C string.
pub(crate) unsafe fn is_refused_early(path: *const libc::c_char) -> bool {
    // SAFETY: the caller guarantees it.
    let len = unsafe { std::ffi::CStr::from_ptr(path) }.count_bytes();
    len == 0 || len >= libc::PATH_MAX as usize
}

/// The Linux AIO request of a transfer, which has no current position.
#[inline]
pub(crate) fn transfer_iocb(
    command: u16,
    fd: RawFd,
    (memory, len): (u64, usize),
    offset: u64,
    flags: RwFlags,
) -> Option<Iocb> {
    (offset != CURRENT_POSITION)
        .then(|| Iocb::new(command, fd, memory, len as u64, offset).rw_flags(flags.bits() as u32))
}

/// Builds an SQE for the registered file if there is one, otherwise for the descriptor.
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
