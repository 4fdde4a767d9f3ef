//! Facts about a file and its device on systems other than Linux, which do not report them: a page
//! is assumed as the alignment of direct I/O.

#[path = "alignment.rs"]
mod alignment;

use crate::sys::BorrowedFd;
use alignment::ASSUMED_ALIGNMENT;
pub use alignment::{AlignmentSource, DirectIo};
use std::path::Path;

/// The requirements of direct I/O on `fd`: assumed. Windows has no direct I/O here.
pub fn direct_alignment(fd: BorrowedFd<'_>) -> DirectIo {
    FileFacts::of(fd).direct
}

/// Bytes of the largest request that the device takes: unknown.
pub fn largest_request(_: BorrowedFd<'_>) -> Option<u32> {
    None
}

/// The facts that a queue needs about a file.
#[derive(Debug)]
pub(crate) struct FileFacts {
    pub direct: DirectIo,
    /// No device is known.
    pub device: Option<Device>,
}

impl FileFacts {
    pub fn of(_: BorrowedFd<'_>) -> Self {
        let direct = DirectIo { supported: cfg!(unix), ..ASSUMED_ALIGNMENT };
        Self { direct, device: None }
    }
}

/// A device; none is known.
#[derive(Debug)]
pub(crate) enum Device {}

impl Device {
    pub(crate) fn largest_request(&self) -> Option<u32> {
        match *self {}
    }
}

/// The mounts of this process, which only Linux reports: no path counts as local.
#[derive(Debug, Default)]
pub struct LocalMounts(());

impl LocalMounts {
    /// Reads nothing.
    pub fn read() -> Self {
        Self::default()
    }

    /// `None`: no path is known to be on a local file system.
    pub fn of_path(&self, _: impl AsRef<Path>) -> Option<u64> {
        None
    }
}
