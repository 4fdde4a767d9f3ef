//! An operation with everything that it owns: what the safe push takes and a completion hands back.

use super::blocking::Work;
use super::{Metadata, Raw, SubmissionForms, WriteDsync, is_for_worker};
use crate::file::FileKind;
use crate::{Buffer, File, SpareCapacity};
use std::any::Any;
use std::ffi::CString;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One thing asked of the kernel, with the buffer and the file that it needs.
///
/// Made by the functions of this module ([`read`](super::read()), [`write`](super::write()) ...),
/// changed by the methods here, and given to [`Queue::push`](crate::Queue::push). Nothing happens
/// before that.
#[derive(Debug)]
#[must_use = "an operation does nothing until it is pushed"]
pub struct Operation {
    pub(crate) raw: Raw,
    pub(crate) resources: Resources,
    pub(crate) file: Option<File>,
    pub(crate) user_data: u64,
    /// Nanoseconds.
    pub(crate) timeout: Option<NonZeroU64>,
    pub(crate) exact: bool,
    pub(crate) drain: bool,
    pub(crate) continue_on_error: bool,
    /// What is wrong with it, found when it was made and told when it is pushed.
    pub(crate) invalid: Option<InvalidOperation>,
}

// SAFETY: the addresses in `raw` are not used but by the queue that the operation was pushed to,
// and they point into what the operation owns (`resources`, `file`), which is `Send`; whoever made one
// with `from_raw` has promised that any thread may use them.
unsafe impl Send for Operation {}

/// What can be wrong with an operation before anybody has been asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidOperation {
    NulInPath,
    ReadOnlyBuffer,
    NoAccess,
    CreateWithoutWrite,
    TruncateAndAppend,
}

impl InvalidOperation {
    pub fn text(self) -> &'static str {
        match self {
            Self::NulInPath => "a path holds a NUL byte",
            Self::ReadOnlyBuffer => "a read needs a buffer that can be written to",
            Self::NoAccess => "open needs read, write or append",
            Self::CreateWithoutWrite => "create and truncate need write or append",
            Self::TruncateAndAppend => "truncate and append exclude each other",
        }
    }
}

/// What an operation owns besides its file, for as long as the kernel may touch it.
#[derive(Debug)]
pub(crate) enum Resources {
    None,
    Buffer(Buffer),
    Vectored(Vectored),
    Spare(SpareCapacity),
    Paths(Box<Paths>),
    Statx {
        _paths: Box<Paths>,
        metadata: Box<Metadata>,
    },
    /// What a thread calls.
    Work {
        _work: Arc<Work>,
    },
    /// What a borrowed operation's addresses point at, as far as nobody else keeps it.
    Memory {
        _memory: Box<dyn Any + Send + Sync>,
    },
}

impl Resources {
    #[inline]
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Buffer(buffer) => Some(buffer),
            _ => None,
        }
    }

    pub(crate) fn into_spare(self) -> Option<SpareCapacity> {
        match self {
            Self::Spare(spare) => Some(spare),
            _ => None,
        }
    }

    pub(crate) fn into_vectored(self) -> Option<Vectored> {
        match self {
            Self::Vectored(buffers) => Some(buffers),
            _ => None,
        }
    }
}

/// Paths and the directories that they are relative to.
#[derive(Debug)]
pub(crate) struct Paths {
    _strings: [CString; 2],
    _second_dir: Option<File>,
}

impl Operation {
    /// Which operation it is.
    pub fn opcode(&self) -> super::Opcode {
        self.raw.opcode()
    }

    /// The buffer of a read or a write that was not taken.
    pub fn into_buffer(self) -> Option<Buffer> {
        self.resources.into_buffer()
    }

    /// The buffer of a read into spare capacity that was not taken.
    pub fn into_spare(self) -> Option<SpareCapacity> {
        self.resources.into_spare()
    }

    /// The buffers of a vectored read or write that was not taken.
    pub fn into_vectored(self) -> Option<Vectored> {
        self.resources.into_vectored()
    }

    /// Bytes of a transfer through the page cache that the thread which submits it to io_uring
    /// copies, or asks the device for page by page, before it comes back. 0 where a kernel worker
    /// does that, as for long ones; `None` for everything else, direct I/O included.
    pub fn submitter_copies(&self) -> Option<u64> {
        let traits = self.file.as_ref().map(File::traits)?;
        let buffered = traits.kind == FileKind::Storage && !traits.direct && self.raw.is_transfer();
        buffered.then(|| if is_for_worker(&self.raw) { 0 } else { self.raw.bytes() })
    }

    #[inline]
    pub(crate) fn make(
        raw: Raw,
        resources: Resources,
        file: Option<File>,
        invalid: Option<InvalidOperation>,
    ) -> Self {
        Self {
            raw,
            resources,
            file,
            user_data: 0,
            timeout: None,
            exact: false,
            drain: false,
            continue_on_error: false,
            invalid,
        }
    }

    pub(crate) fn new<F: SubmissionForms + Into<Raw>>(raw: F) -> Self {
        Self::make(raw.into(), Resources::None, None, None)
    }

    pub(crate) fn on<F: SubmissionForms + Into<Raw>>(raw: F, file: &File) -> Self {
        Self::make(raw.into(), Resources::None, Some(file.clone()), None)
    }

    /// An operation by its numbers and addresses: for interfaces to other languages. It holds
    /// `file`, which should be the one that `raw` names, since what is known of it decides how the
    /// operation is carried, and it keeps `memory` until its completion is dropped. A read or write
    /// whose bytes lie in memory that is registered uses it as a fixed buffer.
    ///
    /// An open's completion carries a file like any other.
    ///
    /// # Safety
    ///
    /// From its push until its completion has been handed out, or for ever if the queue is dropped
    /// or closed before: everything that `raw` points at must be valid for what the operation does
    /// with it, from any thread, and its descriptors must stay what they are.
    #[inline]
    pub unsafe fn from_raw(
        raw: Raw,
        file: Option<File>,
        memory: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        let resources =
            memory.map_or(Resources::None, |memory| Resources::Memory { _memory: memory });
        Self::make(raw, resources, file, None)
    }

    pub(crate) fn with_path<F: SubmissionForms + Into<Raw>>(
        path: &Path,
        dir: Option<&File>,
        make_raw: impl FnOnce(*const libc::c_char) -> F,
    ) -> Self {
        Self::with_paths((dir, path), (None, Path::new("")), |path, _| make_raw(path))
    }

    pub(crate) fn with_paths<F: SubmissionForms + Into<Raw>>(
        first: (Option<&File>, &Path),
        second: (Option<&File>, &Path),
        make_raw: impl FnOnce(*const libc::c_char, *const libc::c_char) -> F,
    ) -> Self {
        let c_string = |path: &Path| CString::new(path.as_os_str().as_bytes());
        let (strings, invalid) = match (c_string(first.1), c_string(second.1)) {
            (Ok(first), Ok(second)) => ([first, second], None),
            _ => (Default::default(), Some(InvalidOperation::NulInPath)),
        };
        // The strings' bytes stay where they are when the strings move into the slot.
        let raw = make_raw(strings[0].as_ptr(), strings[1].as_ptr());
        let paths = Paths { _strings: strings, _second_dir: second.0.cloned() };
        Self::make(raw.into(), Resources::Paths(Box::new(paths)), first.0.cloned(), invalid)
    }

    pub(crate) fn mark_invalid(mut self, invalid: InvalidOperation) -> Self {
        self.invalid = Some(invalid);
        self
    }

    /// A number of the caller's own that the completion carries.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Self {
        self.user_data = user_data;
        self
    }

    /// A short transfer is continued until everything is transferred or an error comes, which is
    /// then the result; a read also ends with the file. A write that comes to nothing answers
    /// ENOSPC.
    #[inline]
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// The operation is cancelled when it has not completed after `limit`, counted from its
    /// submission, and then answers ETIMEDOUT. What cannot be cancelled (a transfer that the device
    /// has begun, a blocking call that a thread has begun) completes as it would have. A limit of
    /// zero counts as one nanosecond.
    pub fn timeout(mut self, limit: Duration) -> Self {
        let nanoseconds = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.timeout = NonZeroU64::new(nanoseconds);
        self
    }

    /// A barrier: it begins when everything pushed before it has completed, and what is pushed
    /// after it begins when it has completed. [`Queue::reap`](crate::Queue::reap) moves it along.
    #[inline]
    pub fn drain(mut self) -> Self {
        self.drain = true;
        self
    }

    /// In a chain: what follows begins when this has completed, whatever the result. Without it, an
    /// error or a short transfer ends the chain, and the rest answers ECANCELED.
    #[inline]
    pub fn continue_on_error(mut self) -> Self {
        self.continue_on_error = true;
        self
    }
}

/// Fills in the addresses of what the operation owns, once it is in its slot and does not move any
/// more.
#[inline]
pub(crate) fn set_addresses(operation: &mut Operation) {
    if let Resources::Buffer(buffer) = &mut operation.resources {
        match &mut operation.raw {
            Raw::Read(read) => read.buf = buffer.as_mut_ptr().unwrap_or(std::ptr::null_mut()),
            Raw::Write(write) | Raw::WriteDsync(WriteDsync(write)) => write.buf = buffer.as_ptr(),
            _ => {}
        }
    }
    if let (Resources::Spare(spare), Raw::Read(read)) =
        (&mut operation.resources, &mut operation.raw)
    {
        read.buf = spare.uninit().as_mut_ptr().cast();
    }
}

/// The result of an operation is known: what was read into spare capacity becomes a part of its
/// buffer.
#[inline]
pub(crate) fn commit_spare(operation: &mut Operation, result: i64) {
    if let (Resources::Spare(spare), Ok(bytes @ 1..)) =
        (&mut operation.resources, usize::try_from(result))
    {
        // SAFETY: the result of a read is how many bytes the kernel has written from the first on;
        // of several pieces, those that follow one another without a gap. `read_spare` gave it the
        // length, and `set_addresses` the address.
        unsafe { spare.commit(bytes) }
    }
}

/// Several buffers for one vectored operation, with the iovec array that the kernel reads. It comes
/// back with the completion and can be used again without a new allocation.
#[derive(Debug)]
pub struct Vectored {
    buffers: Vec<Buffer>,
    iov: Vec<Iovec>,
}

/// An iovec that may go to another thread with the buffers that it points into.
#[repr(transparent)]
#[derive(Debug)]
struct Iovec(libc::iovec);

// SAFETY: an `Iovec` is an address and a length; it is read only together with the buffers beside
// it in `Vectored`, which are `Send` themselves.
unsafe impl Send for Iovec {}
// SAFETY: as above: shared references to it give out numbers only.
unsafe impl Sync for Iovec {}

impl Vectored {
    /// From any number of buffers.
    pub fn new<B: Into<Buffer>>(buffers: impl IntoIterator<Item = B>) -> Self {
        let mut buffers: Vec<Buffer> = buffers.into_iter().map(Into::into).collect();
        let iov = buffers
            .iter_mut()
            .map(|buffer| {
                let len = buffer.len();
                let base = buffer.as_mut_ptr().unwrap_or_else(|| buffer.as_ptr().cast_mut());
                Iovec(libc::iovec { iov_base: base.cast(), iov_len: len })
            })
            .collect();
        Self { buffers, iov }
    }

    /// The buffers, to look into.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The buffers, handed back.
    pub fn into_buffers(self) -> Vec<Buffer> {
        self.buffers
    }

    /// Bytes over all buffers.
    pub fn len(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.len() as u64).sum()
    }

    /// True when there is no byte in any buffer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn writable(&mut self) -> bool {
        self.buffers.iter_mut().all(|buffer| buffer.as_mut_ptr().is_some())
    }

    pub(super) fn iov(&self) -> &[libc::iovec] {
        // SAFETY: `Iovec` is a transparent wrapper of `libc::iovec`, so the two slices have one
        // layout.
        unsafe { std::slice::from_raw_parts(self.iov.as_ptr().cast(), self.iov.len()) }
    }
}

/// The iovec array of a vectored operation.
fn iovecs<'a>(iov: *const libc::iovec, count: usize) -> &'a [libc::iovec] {
    if count == 0 {
        return &[];
    }
    // SAFETY: whoever made the operation keeps `count` entries at `iov` valid until its completion,
    // and this is called only while it is being pushed or is in flight.
    unsafe { std::slice::from_raw_parts(iov, count) }
}

/// Bytes over all buffers of a vectored operation.
pub(super) fn total(iov: *const libc::iovec, count: usize) -> u64 {
    iovecs(iov, count).iter().map(|one| one.iov_len as u64).fold(0, u64::saturating_add)
}

/// The most buffers that one system call takes (`IOV_MAX`).
const IOV_MAX: usize = 1024;

/// What one system call takes of these buffers: no more than it may have, and none that are empty
/// at the front, since a transfer of nothing would be taken for the end of the file.
pub(super) fn clamp_iovecs(iov: *const libc::iovec, count: usize) -> (*const libc::iovec, usize) {
    let empty = iovecs(iov, count).iter().take_while(|one| one.iov_len == 0).count();
    let skip = if empty < count { empty } else { 0 };
    (iov.wrapping_add(skip), (count - skip).min(IOV_MAX))
}

/// What is left of a vectored operation.
pub(super) enum Remaining {
    /// So many whole buffers.
    Buffers(*const libc::iovec, usize),
    /// The rest of one buffer.
    Partial(*mut u8, usize),
}

/// What is left, `start` bytes in: the rest of the buffer that this byte falls into, or all from
/// there on where it is a buffer's first.
pub(super) fn remaining(iov: *const libc::iovec, count: usize, start: u64) -> Remaining {
    let mut before = 0;
    for (index, one) in iovecs(iov, count).iter().enumerate() {
        let len = one.iov_len as u64;
        if start == before && len > 0 {
            return Remaining::Buffers(iov.wrapping_add(index), count - index);
        }
        if start < before + len {
            let skip = (start - before) as usize;
            return Remaining::Partial(
                one.iov_base.cast::<u8>().wrapping_add(skip),
                one.iov_len - skip,
            );
        }
        before += len;
    }
    Remaining::Buffers(iov, 0)
}
