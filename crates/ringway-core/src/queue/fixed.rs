//! Registered buffers and files: which ones the ring knows, and under which index.

use crate::buffer::{Arena, MIN_PAGE};
use crate::file::File;
use crate::op::{Raw, RwFlags};

/// The registered memory and files.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    pub(super) memory: Vec<Registered>,
    /// Holds the files, so that a registration never outlives its file.
    pub(super) files: Vec<(File, u32)>,
}

/// Memory that is registered under consecutive indices.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) first_index: u16,
    /// Bytes under each index; for an arena, a whole number of blocks.
    pub(super) span: usize,
    /// Keeps the memory alive, unless the caller does.
    pub(super) _arena: Option<Arena>,
}

impl Registered {
    /// The index of these bytes, if they are all under one index.
    #[inline]
    fn index(&self, buf: usize, len: usize) -> Option<u16> {
        let from = buf
            .checked_sub(self.start)
            .filter(|from| *from < self.len && len <= self.len - from)?;
        let number = from / self.span;
        (len > 0 && (from + len - 1) / self.span == number)
            .then_some(self.first_index + number as u16)
    }
}

impl Fixed {
    /// The indices of an operation's file and buffer.
    #[inline]
    pub(super) fn find(&self, file: Option<&File>, raw: &Raw) -> (Option<u32>, Option<u16>) {
        if self.files.is_empty() && self.memory.is_empty() {
            return (None, None);
        }
        (self.file(file), self.buffer(file, raw))
    }

    /// The index of a file, if it is registered.
    #[inline]
    pub(super) fn file(&self, file: Option<&File>) -> Option<u32> {
        let identity = file?.identity();
        self.files.iter().find(|(file, _)| file.identity() == identity).map(|(_, index)| *index)
    }

    /// The index of the registered memory that holds a transfer's bytes.
    ///
    /// None for a direct transfer that begins within a block: the kernel keeps registered memory as
    /// pages, and Linux 6.1 fails with EINVAL unless the part in each page is a multiple of the
    /// block size. Ordinary memory needs only the alignment of the device, which may be 4 bytes.
    /// None for an untorn write: the kernel takes no pages for it.
    #[inline]
    fn buffer(&self, file: Option<&File>, raw: &Raw) -> Option<u16> {
        let (buf, len) = match raw {
            Raw::Read(read) => (read.buf.addr(), read.len),
            Raw::Write(write) if !write.flags.has(RwFlags::ATOMIC) => (write.buf.addr(), write.len),
            _ => return None,
        };
        let index = self.memory.iter().find_map(|registered| registered.index(buf, len))?;
        let usable = buf.is_multiple_of(MIN_PAGE)
            || file.is_some_and(|file| {
                !file.is_direct() || buf.is_multiple_of(file.offset_align().max(1) as usize)
            });
        usable.then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op;

    #[test]
    fn a_transfer_that_may_begin_within_a_block_does_not_use_registered_memory() {
        let start = 16 * MIN_PAGE;
        let memory =
            Registered { start, len: MIN_PAGE, first_index: 3, span: MIN_PAGE, _arena: None };
        let fixed = Fixed { memory: vec![memory], files: Vec::new() };
        let buffered = File::from(std::fs::File::open("/proc/self/exe").unwrap());
        let index = |offset: usize, file| {
            let buf = std::ptr::without_provenance_mut(start + offset);
            let read = op::Read { fd: 0, buf, len: 512, offset: 0, flags: op::RwFlags::NONE };
            fixed.find(file, &read.into()).1
        };
        assert_eq!((index(0, None), index(0, Some(&buffered))), (Some(3), Some(3)));
        // A descriptor may be open for direct I/O.
        assert_eq!((index(64, None), index(64, Some(&buffered))), (None, Some(3)));
        assert_eq!((index(MIN_PAGE, None), index(MIN_PAGE, Some(&buffered))), (None, None));
    }
}
