//! Reads into one buffer: `pread(2)`, `read(2)`.

use super::operation::refusal_to_read;
use super::{
    Operation, Position, Raw, Resources, RwFlags, SubmissionForms, Transfer, advanced, call_at,
    call_with_flags,
};
use crate::file::CachedReadCall;
#[cfg(ringway_linux)]
use crate::lookup::Lookup;
use crate::page_scan::RUN;
use crate::sys::{RawFd, libc};
use crate::{Buffer, File, SpareCapacity};
use std::cell::UnsafeCell;

/// Reads from `file` at `position` into the whole of `buffer` (its length, not its capacity).
///
/// The result is the number of bytes read. It is less than the length at the end of the file, and
/// for pipes and the like whenever less is available; with [`Operation::exact`] only at the end of
/// the file. A read longer than the device's largest request is split into pieces that run
/// concurrently. The first long direct read of a file looks that size up here, with a few short
/// system calls.
///
/// Errors: those of `pread(2)`; EINVAL, before anything is submitted, for an offset above
/// `i64::MAX`, for a read-only buffer, and for an empty one with capacity, such as
/// `Vec::with_capacity(n)` (see [`read_spare`]). After a cancel the completion returns the buffer
/// with unspecified contents.
///
/// ```
/// # use ringway_core::{op, File, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = File::open("/etc/hostname")?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::read(&file, vec![0; 4096], 0))?;
/// for done in queue.reap(1)? {
///     let bytes = done.result? as usize;
///     let buffer = done.into_buffer().expect("a read returns its buffer");
///     println!("{}", String::from_utf8_lossy(&buffer.as_slice()[..bytes]));
/// }
/// # Ok(()) }
/// ```
#[inline]
pub fn read(file: &File, buffer: impl Into<Buffer>, position: impl Into<Position>) -> Operation {
    let mut buffer = buffer.into();
    let invalid = refusal_to_read(&mut buffer);
    let raw = Read {
        fd: file.fd(),
        buf: std::ptr::null_mut(),
        len: buffer.len(),
        offset: position.into().raw(),
        flags: RwFlags::NONE,
    };
    Operation::on_file(raw.into(), Resources::Buffer(buffer), file, invalid)
}

/// As [`read`](read()), into the spare capacity of a buffer, which grows by the bytes read
/// ([`Completion::into_spare`](crate::Completion::into_spare)). The memory need not be initialised.
///
/// Errors: as for [`read`](read()); after an error or a cancel the length of the buffer is
/// unchanged.
///
/// ```
/// # use ringway_core::{op, File, Options, SpareCapacity};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = File::open("/etc/passwd")?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::read_spare(&file, Vec::with_capacity(4), 0).exact())?;
/// let done = queue.reap(1)?.next().unwrap();
/// let text = Vec::try_from(done.into_spare().unwrap()).unwrap();
/// assert!(text.starts_with(b"root"));
/// # Ok(()) }
/// ```
pub fn read_spare(
    file: &File,
    spare: impl Into<SpareCapacity>,
    position: impl Into<Position>,
) -> Operation {
    let spare = spare.into();
    let raw = Read {
        fd: file.fd(),
        buf: std::ptr::null_mut(),
        len: spare.len(),
        offset: position.into().raw(),
        flags: RwFlags::NONE,
    };
    Operation::on_file(raw.into(), Resources::Spare(spare), file, None)
}

/// The most bytes that one [`read_discard`] reads.
pub const MAX_DISCARD: usize = RUN as usize;

/// Where reads go whose bytes nobody wants. Any number of them may write here at once.
struct Discarded(UnsafeCell<[u8; MAX_DISCARD]>);

// SAFETY: only the kernel accesses the bytes, in system calls: no reference to them is ever made.
unsafe impl Sync for Discarded {}

/// It is never freed, so a read may write to it however late it ends.
static DISCARDED: Discarded = Discarded(UnsafeCell::new([0; MAX_DISCARD]));

/// Reads `len` bytes of `file` from `offset` on, at most [`MAX_DISCARD`], and discards them: the
/// pages are in the page cache then. All such reads share one buffer, so they need no memory.
///
/// The result is the number of bytes read. A longer read is cut. Errors: those of `pread(2)`;
/// EINVAL for direct I/O that is not aligned.
///
/// ```
/// # use ringway_core::{op, File, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = File::open("/etc/passwd")?;
/// let mut queue = Options::new().build()?;
/// queue.push(op::read_discard(&file, 0, 4))?;
/// assert_eq!(queue.reap(1)?.next().unwrap().result?, 4);
/// # Ok(()) }
/// ```
pub fn read_discard(file: &File, offset: u64, len: usize) -> Operation {
    let raw = Read {
        fd: file.fd(),
        buf: DISCARDED.0.get().cast(),
        len: len.min(MAX_DISCARD),
        offset: Position::Offset(offset).raw(),
        flags: RwFlags::NONE,
    };
    Operation::on_file(raw.into(), Resources::None, file, None)
}

impl File {
    /// Reads from the page cache only, as [`read_now`](Self::read_now) does, and up to the first
    /// byte that is not cached: returns the number of bytes before that. The kernel may start to
    /// read the page of that byte.
    ///
    /// 0 also means that the file cannot be read this way (on tmpfs, for example), or at all.
    ///
    /// ```
    /// # use ringway_core::File;
    /// # fn main() -> std::io::Result<()> {
    /// let file = File::open("/etc/passwd")?;
    /// let cached = file.read_now_partly(&mut [0; 16], 0);
    /// assert!(cached <= 16);
    /// # Ok(()) }
    /// ```
    pub fn read_now_partly(&self, bytes: &mut [u8], offset: u64) -> usize {
        if offset > i64::MAX as u64 || !self.is_storage() {
            return 0;
        }
        // The read ends before this call returns, and until then nothing else uses the memory.
        let (buf, len) = (bytes.as_mut_ptr(), bytes.len());
        let raw = Read { fd: self.fd(), buf, len, offset, flags: RwFlags::NONE };
        raw.try_call().and_then(|read| usize::try_from(read).ok()).unwrap_or(0)
    }

    /// Reads from the page cache only, without waiting for the device: `preadv2(2)` with
    /// `RWF_NOWAIT` (4.14). Where that is refused, `pread(2)`: on tmpfs while there is no swap
    /// space, and of a file of an overlay that ringway has opened for reading only, whose layer is
    /// on ext4, if `mincore(2)` shows that the pages are in memory
    /// ([`may_read_now`](Self::may_read_now)). Returns the number of bytes: all, or those up to the
    /// end of the file.
    ///
    /// `None` means that not all bytes are cached, or that the file cannot be read this way or at
    /// all; the contents of `bytes` are then unspecified. Push the read as usual. A read that gets
    /// to the end of the file is `None` too on kernels 5.9 and 5.10, which report the end also
    /// where bytes are not cached. Copying blocks the caller, at about 10 GB/s.
    ///
    /// ```
    /// # use ringway_core::File;
    /// # fn main() -> std::io::Result<()> {
    /// let file = File::open("/etc/passwd")?;
    /// let mut bytes = [0; 16];
    /// if let Some(read) = file.read_now(&mut bytes, 0) {
    ///     println!("cached: {:?}", &bytes[..read]);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn read_now(&self, bytes: &mut [u8], offset: u64) -> Option<usize> {
        self.read_now_with(bytes, offset, RwFlags::NONE)
    }

    /// As [`read_now`](Self::read_now), with flags. A try that finds bytes missing may have the
    /// kernel read ahead: with [`RwFlags::DONT_CACHE`], the pages do not stay.
    pub fn read_now_with(&self, bytes: &mut [u8], offset: u64, flags: RwFlags) -> Option<usize> {
        self.read_raw_now(bytes.as_mut_ptr(), bytes.len(), offset, flags)
    }

    /// As [`read_now_with`](Self::read_now_with), for the first `most` bytes of spare capacity,
    /// which grows by the bytes read; for `None` it is unchanged.
    pub fn read_spare_now(
        &self,
        spare: &mut SpareCapacity,
        most: usize,
        offset: u64,
        flags: RwFlags,
    ) -> Option<usize> {
        let memory = spare.uninit();
        let len = memory.len().min(most);
        let read = self.read_raw_now(memory.as_mut_ptr().cast(), len, offset, flags)?;
        // SAFETY: `read` bytes, at most `len`, were read into the memory from its start.
        unsafe { spare.commit(read) };
        Some(read)
    }

    /// As [`read_now`](Self::read_now), for as many bytes as one call reads, also at the current
    /// position, which advances by them. Only `Some(0)` means the end of the file, or that `bytes`
    /// is empty.
    ///
    /// At the current position it waits while another thread or process that has the same open file
    /// reads or writes there: try it only if nobody else has it.
    ///
    /// ```
    /// # use ringway_core::File;
    /// # fn main() -> std::io::Result<()> {
    /// let file = File::open("/etc/passwd")?;
    /// let cached = file.read_some_now(&mut [0; 16], 0);
    /// assert!(cached.is_none_or(|read| read <= 16));
    /// # Ok(()) }
    /// ```
    pub fn read_some_now(&self, bytes: &mut [u8], position: impl Into<Position>) -> Option<usize> {
        let (buf, len, offset) = (bytes.as_mut_ptr(), bytes.len(), position.into().raw());
        if len == 0 {
            return Some(0);
        }
        let call = self.call_for_now(RwFlags::NONE)?;
        // The read ends before this call returns, and until then nothing else uses the memory.
        let raw = Read { fd: self.fd(), buf, len, offset, flags: RwFlags::NONE };
        loop {
            match self.result_now(call, raw)? {
                INTERRUPTED => {}
                read => return Some(usize::try_from(read).ok()?.min(len)),
            }
        }
    }

    /// The call that reads with these flags without waiting.
    fn call_for_now(&self, flags: RwFlags) -> Option<CachedReadCall> {
        // (A try on a stream could take bytes, and they would be lost. One on a file that is open
        // for direct I/O would read from the device.)
        let call = self.cached_reads().filter(|_| self.is_storage() && !self.is_direct())?;
        // With flags, the file system is asked whether it supports them.
        Some(if flags == RwFlags::NONE { call } else { CachedReadCall::Nowait })
    }

    /// The result of a read of bytes that are cached: 0 only at the end of the file.
    fn result_now(&self, call: CachedReadCall, raw: Read) -> Option<i64> {
        match call {
            CachedReadCall::Nowait => raw.try_call().filter(|read| *read != 0 || zero_is_end()),
            CachedReadCall::Plain => Some(raw.call()),
            #[cfg(ringway_linux)]
            CachedReadCall::Resident if raw.offset > i64::MAX as u64 => None,
            #[cfg(ringway_linux)]
            CachedReadCall::Resident => match self.resident_len(raw.offset, raw.len)? {
                0 => Some(0),
                len => Some(Read { len, ..raw }.call()),
            },
        }
    }

    /// Reads into memory that only the caller uses.
    fn read_raw_now(
        &self,
        first: *mut u8,
        len: usize,
        offset: u64,
        mut flags: RwFlags,
    ) -> Option<usize> {
        self.without_refused(&mut flags);
        let call = self.call_for_now(flags)?;
        let mut read = 0;
        // A short result may mean the end of the file or of the cached part, and kernels before
        // 5.11 stop short without a reason. The next call decides: at the end of the file it
        // returns 0.
        while read < len {
            let at = offset.checked_add(read as u64).filter(|at| *at <= i64::MAX as u64)?;
            // The read ends before this call returns, and until then nothing else uses the memory.
            let raw = Read {
                fd: self.fd(),
                buf: first.wrapping_add(read),
                len: len - read,
                offset: at,
                flags,
            };
            match self.result_now(call, raw)? {
                0 => break,
                INTERRUPTED => {}
                // (A driver with a fault may count more bytes than there is room for.)
                more => read += usize::try_from(more).ok()?.min(len - read),
            }
        }
        Some(read)
    }
}

/// Whether a result of 0 of a read with `RWF_NOWAIT` means the end of the file.
#[cfg(ringway_linux)]
fn zero_is_end() -> bool {
    static IS_END: Lookup<bool> = Lookup::new();
    *IS_END.get_or_look_up(|| zero_is_end_on(&crate::sys::kernel_release()))
}

/// Kernels 5.9 and 5.10 also return 0 where the next page is not cached (preadv2(2), "BUGS").
#[cfg(ringway_linux)]
fn zero_is_end_on(release: &str) -> bool {
    use crate::sys::is_since;
    !is_since((5, 9), release) || is_since((5, 11), release)
}

#[cfg(not(ringway_linux))]
fn zero_is_end() -> bool {
    true
}

/// The call was interrupted by a signal.
const INTERRUPTED: i64 = -(libc::EINTR as i64);

/// A read of `len` bytes into `buf` at `offset`
/// ([`CURRENT_POSITION`](super::CURRENT_POSITION): the current position).
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The file.
    pub fd: RawFd,
    /// The address of the buffer.
    pub buf: *mut u8,
    /// The number of bytes.
    pub len: usize,
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// `RWF_*` flags.
    pub flags: RwFlags,
}

impl SubmissionForms for Read {
    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    #[inline]
    fn rw_flags(&self) -> RwFlags {
        self.flags
    }

    fn rw_flags_mut(&mut self) -> Option<&mut RwFlags> {
        Some(&mut self.flags)
    }

    fn offset(&self) -> Option<u64> {
        Some(self.offset)
    }

    #[inline]
    fn transfer(&self) -> Transfer {
        Transfer::at(self.offset, self.len)
    }

    #[inline]
    fn piece(&self, start: u64, len: u64) -> Raw {
        let offset = advanced(self.offset, start);
        let buf = self.buf.wrapping_add(start as usize);
        Self { fd: self.fd, buf, len: len as usize, offset, flags: self.flags }.into()
    }

    fn call(&self) -> i64 {
        let Self { fd, buf, len, offset, flags } = *self;
        if flags != RwFlags::NONE {
            return self.call_with(flags.bits());
        }
        // SAFETY: the operation, or the caller of `from_raw`, keeps `buf` valid for writes of `len`
        // bytes until the completion.
        let at_offset = |at| unsafe { libc::pread64(fd, buf.cast(), len, at) as i64 };
        // SAFETY: as above.
        let at_position = || unsafe { libc::read(fd, buf.cast(), len) as i64 };
        call_at(self.fd, offset, at_offset, at_position)
    }

    fn try_call(&self) -> Option<i64> {
        Some(self.call_with(libc::RWF_NOWAIT | self.flags.bits()))
    }
}

impl Read {
    fn call_with(&self, flags: libc::c_int) -> i64 {
        let iov = libc::iovec { iov_base: self.buf.cast(), iov_len: self.len };
        call_with_flags(self.fd, self.offset, flags, |at| {
            // SAFETY: as in `call`; the iovec is on this stack.
            unsafe { libc::preadv2(self.fd, &raw const iov, 1, at, flags) as i64 }
        })
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, SqeContext, on_file, transfer_iocb};
    use crate::sys::kaio::{self, Iocb};
    use io_uring::{opcode, squeue};

    impl LinuxForms for Read {
        #[inline]
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            // A read of zero bytes fails on some files (EISDIR), which a ring does not report.
            let len = u32::try_from(self.len).ok().filter(|len| *len > 0)?;
            Some(on_file!(context, self.fd, |file| match context.fixed_buffer {
                _ if context.socket => opcode::Recv::new(file, self.buf, len).build(),
                Some(index) => opcode::ReadFixed::new(file, self.buf, len, index)
                    .offset(self.offset)
                    .rw_flags(self.flags.bits())
                    .build(),
                None => opcode::Read::new(file, self.buf, len)
                    .offset(self.offset)
                    .rw_flags(self.flags.bits())
                    .build(),
            }))
        }

        #[inline]
        fn iocb(&self) -> Option<Iocb> {
            let memory = (self.buf as u64, self.len);
            transfer_iocb(kaio::IOCB_CMD_PREAD, self.fd, memory, self.offset, self.flags)
        }
    }
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_on_which_0_is_not_the_end() {
        for (release, expected) in [
            ("5.8.18", true),
            ("5.9.0-5-amd64", false),
            ("5.10.0-46-cloud-amd64", false),
            ("5.11.0", true),
            ("4.18.0-553.el8_10.x86_64", true),
            ("6.12.118", true),
            ("", true),
        ] {
            assert_eq!(zero_is_end_on(release), expected, "{release}");
        }
    }
}
