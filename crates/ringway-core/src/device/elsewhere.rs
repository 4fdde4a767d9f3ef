//! Facts about a file and its device on systems other than Linux, which do not report them: a page
//! is assumed as the alignment of direct I/O.

#[path = "alignment.rs"]
mod alignment;
#[path = "atomic_write.rs"]
mod atomic_write;

use crate::sys::BorrowedFd;
#[cfg(unix)]
use crate::sys::{Number, libc};
use alignment::ASSUMED_ALIGNMENT;
pub use alignment::{AlignmentSource, DirectIo};
pub use atomic_write::AtomicWriteUnit;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The requirements of direct I/O on `fd`: assumed. Windows has no direct I/O here.
pub fn direct_alignment(fd: BorrowedFd<'_>) -> DirectIo {
    FileFacts::of(fd).direct(fd)
}

/// Bytes of the largest request that the device takes: unknown.
pub fn largest_request(_: BorrowedFd<'_>) -> Option<u32> {
    None
}

/// The sizes of untorn writes: there are none.
pub(crate) fn atomic_write_unit(_: BorrowedFd<'_>) -> Option<AtomicWriteUnit> {
    None
}

/// The facts that a queue needs about a file.
#[derive(Debug)]
pub(crate) struct FileFacts {
    direct: DirectIo,
    /// Linux alone has untorn writes.
    pub atomic_write: Option<AtomicWriteUnit>,
    /// Nothing that can be read is left.
    pub is_complete: bool,
}

impl FileFacts {
    /// Of no use, since they are complete.
    pub const PAUSE: u64 = 0;

    pub fn of(_: BorrowedFd<'_>) -> Self {
        let direct = DirectIo { supported: cfg!(unix), ..ASSUMED_ALIGNMENT };
        Self { direct, atomic_write: None, is_complete: true }
    }

    /// The alignment that direct I/O needs.
    pub fn direct(&self, _: BorrowedFd<'_>) -> DirectIo {
        self.direct
    }

    /// That of offsets and lengths.
    pub fn offset_align(&self) -> u32 {
        self.direct.offset_align
    }

    /// Whether the alignment is only assumed.
    pub fn is_align_assumed(&self) -> bool {
        self.direct.source == AlignmentSource::Assumed
    }

    /// None is known that does.
    pub fn takes_whole_pages(&self, _: BorrowedFd<'_>) -> bool {
        false
    }

    /// No device is known.
    pub fn device(&self) -> Option<&Device> {
        None
    }
}

/// Of no use: nothing is looked up twice.
pub(crate) fn now() -> u64 {
    0
}

/// Who makes the transfers of a file: threads, which are all that there is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement(());

impl Placement {
    pub const ANY: Self = Self(());
    pub const RING: Self = Self(());
    pub const LINUX_AIO: Self = Self(());
    pub const ALIGNED: Self = Self(());
    pub const LOCAL: Self = Self(());

    pub const fn bits(self) -> u8 {
        0
    }

    pub const fn from_bits(_: u8) -> Self {
        Self(())
    }

    pub const fn has(self, _: Self) -> bool {
        false
    }

    pub fn of(_: BorrowedFd<'_>, _: bool) -> io::Result<(Self, Option<Arc<Mount>>)> {
        Ok((Self::default(), None))
    }
}

/// The type bits and permissions of an open file. Errors: those of `fstat(2)`.
#[cfg(unix)]
pub(crate) fn mode(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: `struct stat` is plain numbers, for which all zeroes are valid.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writes during the call, and the borrow keeps `fd` open.
    match unsafe { libc::fstat64(fd.number(), &raw mut stat) } {
        0 => Ok(stat.st_mode.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The size of an open file: not asked for, since direct I/O needs no alignment here.
pub(crate) fn size(_: BorrowedFd<'_>) -> Option<u64> {
    None
}

/// A mount; none is known.
#[derive(Debug)]
pub(crate) enum Mount {}

/// A device; none is known.
#[derive(Debug)]
pub(crate) enum Device {}

impl Device {
    pub(crate) fn largest_request(&self) -> Option<u32> {
        match *self {}
    }
}

/// The request queue of a file's device; none is known.
#[derive(Debug)]
pub(crate) enum RequestQueue {}

impl RequestQueue {
    pub(crate) fn of(_: crate::sys::RawFd) -> Option<Self> {
        None
    }

    pub(crate) fn id(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn requests(&self) -> Option<u32> {
        match *self {}
    }
}

/// The mounts of this process, which only Linux reports: no path counts as local.
#[derive(Debug, Default)]
pub struct LocalMounts(());

impl LocalMounts {
    /// Reads nothing, and does not fail.
    ///
    /// # Errors
    ///
    /// None.
    pub fn read() -> io::Result<Self> {
        Ok(Self::default())
    }

    /// `None`: no path is known to be on a local file system.
    pub fn of_path(&self, _: impl AsRef<Path>) -> Option<u64> {
        None
    }
}
