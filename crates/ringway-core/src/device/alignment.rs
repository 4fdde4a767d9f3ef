//! The requirements of direct I/O on a file. How they are found is in the module above.

use std::fmt;

/// Where an alignment comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlignmentSource {
    /// The kernel reports it for this file: `STATX_DIOALIGN`, kernel 6.1 with a file system that
    /// supports it.
    Statx,
    /// The block size of the device.
    BlockDevice,
    /// The device's driver, which takes whole pages only and does not refuse others (zram, Linux
    /// 6.18): of a buffer that begins within a page it transfers the memory around it. ringway
    /// refuses such a transfer itself.
    Driver,
    /// Unknown: a page is assumed, which is right everywhere.
    Assumed,
}

impl fmt::Display for AlignmentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Statx => "statx",
            Self::BlockDevice => "block device",
            Self::Driver => "driver",
            Self::Assumed => "assumed",
        })
    }
}

/// The requirements of direct I/O (`O_DIRECT`) on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct DirectIo {
    /// Whether the file supports direct I/O. For a directory: whether files in it are likely to.
    pub supported: bool,
    /// The alignment of buffer addresses, in bytes.
    pub memory_align: u32,
    /// The alignment of offsets and lengths, in bytes.
    pub offset_align: u32,
    /// Where the alignment comes from.
    pub source: AlignmentSource,
}

impl DirectIo {
    /// Supported direct I/O with these alignments, each a power of two.
    pub const fn new(memory_align: u32, offset_align: u32) -> Self {
        Self { supported: true, memory_align, offset_align, source: AlignmentSource::Assumed }
    }
}

/// A multiple of every block size in use.
pub(super) const ASSUMED_ALIGNMENT: DirectIo = DirectIo::new(4096, 4096);
