//! An operation with the resources that it owns: the argument of a push. Its submission forms are
//! in the other files of this directory.

use super::blocking::Work;
use super::untorn::{self, UntornProblem};
use super::{
    CURRENT_POSITION, MIN_DEVICE_REQUEST, Metadata, Raw, Readv, RwFlags, SubmissionForms,
    WriteDsync, Writev, is_for_worker,
};
use crate::buffer::MIN_PAGE;
use crate::file::FileKind;
use crate::split::WINDOW;
use crate::sys::{RawFd, libc};
use crate::{Buffer, File, SpareCapacity};
use std::any::Any;
use std::ffi::CString;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A request to the kernel, with the buffer and the file that it needs.
///
/// The functions of this module ([`read`](super::read()), [`write`](super::write()) and so on) make
/// operations, the methods here modify them, and [`Queue::push`](crate::Queue::push) takes them.
/// Nothing is done before that.
#[derive(Debug)]
#[must_use = "an operation does nothing until it is pushed"]
pub struct Operation {
    pub(crate) raw: Raw,
    pub(crate) resources: Resources,
    pub(crate) file: Option<File>,
    pub(crate) user_data: u64,
    /// In nanoseconds.
    pub(crate) timeout: Option<NonZeroU64>,
    pub(crate) exact: bool,
    pub(crate) drain: bool,
    pub(crate) continue_on_error: bool,
    /// Another thread than the one that enters the kernel submits it.
    pub(crate) by_worker: bool,
    /// The file is said to be a socket, and no submission has shown otherwise.
    pub(crate) socket: bool,
    /// Why the operation is invalid. Detected when it is made, reported when it is pushed.
    pub(crate) invalid: Option<InvalidOperation>,
}

// SAFETY: only the queue that takes the operation uses the addresses in `raw`. They point into what
// the operation owns (`resources`, `file`), which is `Send`; the caller of `from_raw` promised that
// any thread may use them.
unsafe impl Send for Operation {}

/// Why an operation is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidOperation {
    NulInPath,
    ReadOnlyBuffer,
    OnlySpareCapacity,
    NoAccess,
    CreateWithoutWrite,
    TruncateAndAppend,
    NotASocketTransfer,
    NotATransfer,
    NotAnUntornWrite,
    Untorn(UntornProblem),
}

impl InvalidOperation {
    pub fn text(self) -> &'static str {
        match self {
            Self::NulInPath => "the path contains a NUL byte",
            Self::ReadOnlyBuffer => "a read needs a writable buffer",
            Self::OnlySpareCapacity => {
                "a read fills the length of its buffer, which is 0: pass vec![0; n] instead of \
                 Vec::with_capacity(n), or read into spare capacity (read_buf_at; in the core, \
                 read_spare)"
            }
            Self::NoAccess => "open needs read, write or append",
            Self::CreateWithoutWrite => "open with create or truncate needs write or append",
            Self::TruncateAndAppend => "open cannot both truncate and append",
            Self::NotASocketTransfer => {
                "only a read or write at the current position can be one of a socket"
            }
            Self::NotATransfer => "only a read or a write can leave no pages in the page cache",
            Self::NotAnUntornWrite => "only a write from one buffer at an offset can be untorn",
            Self::Untorn(_) => "the write cannot be untorn",
        }
    }
}

/// The resources that an operation owns besides its file, while the kernel may touch them.
#[derive(Debug)]
pub(crate) enum Resources {
    None,
    Buffer(Buffer),
    Vectored(Vectored),
    Spare(SpareCapacity),
    Paths(Box<Paths>),
    /// Those of an open, and the time when it was made.
    Open {
        _paths: Box<Paths>,
        opening_time: u64,
    },
    /// A path and the content of what it names.
    Named(Box<(CString, Buffer)>),
    Statx {
        _paths: Box<Paths>,
        metadata: Box<Metadata>,
    },
    /// The closure that a thread calls.
    Work {
        _work: Arc<Work>,
    },
    /// Memory that the addresses of a raw operation point into, unless its maker keeps it.
    Memory {
        _memory: Box<dyn Any + Send + Sync>,
    },
}

impl Resources {
    #[inline]
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Buffer(buffer) => Some(buffer),
            Self::Named(named) => Some(named.1),
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

/// Paths, and the second directory that they are relative to.
#[derive(Debug)]
pub(crate) struct Paths {
    _strings: [CString; 2],
    _second_dir: Option<File>,
}

/// The descriptor of a directory, and a path in it.
type RawPath = (RawFd, *const libc::c_char);

impl Operation {
    /// The opcode.
    pub fn opcode(&self) -> super::Opcode {
        self.raw.opcode()
    }

    /// The buffer of a read or a write.
    pub fn into_buffer(self) -> Option<Buffer> {
        self.resources.into_buffer()
    }

    /// The buffer of a read into spare capacity.
    pub fn into_spare(self) -> Option<SpareCapacity> {
        self.resources.into_spare()
    }

    /// The buffers of a vectored read or write.
    pub fn into_vectored(self) -> Option<Vectored> {
        self.resources.into_vectored()
    }

    /// Bytes of a buffered transfer that the submitting thread copies, or reads from the device
    /// page by page, before the submission to io_uring returns. 0 if an io-wq worker does that, as
    /// for long transfers; `None` for all other operations, including direct I/O.
    pub fn submitter_copies(&self) -> Option<u64> {
        let traits = self.file.as_ref().map(File::traits)?;
        let buffered = traits.kind == FileKind::Storage && !traits.direct && self.raw.is_transfer();
        buffered.then(|| if is_for_worker(&self.raw) { 0 } else { self.raw.bytes() })
    }

    /// The device of a transfer, as a number, and how many requests its queue holds before the
    /// thread that submits one more must wait (`nr_requests`). `None` for other operations, for a
    /// file without a device of its own, and where there is no such limit. Does not wait: a thread
    /// reads the size when a device is first used, and until then it is 32.
    pub fn request_queue(&self) -> Option<(u64, u32)> {
        let file = self.file.as_ref().filter(|_| self.raw.is_transfer())?;
        let queue = file.request_queue()?;
        Some((queue.id(), queue.requests()?))
    }

    /// How many requests of its [`request_queue`](Self::request_queue) a direct transfer has at a
    /// time, if it is longer than the device's largest: a read at most 8, since it is submitted in
    /// pieces; a write or a vectored transfer as many as it is long. 1 for other operations.
    ///
    /// ```
    /// use ringway_core::{File, op};
    /// # fn main() -> std::io::Result<()> {
    /// let file = File::open("/etc/passwd")?;
    /// assert_eq!(op::read(&file, vec![0; 4096], 0).device_requests(), 1);
    /// # Ok(()) }
    /// ```
    pub fn device_requests(&self) -> u32 {
        let Some(file) = self.file.as_ref().filter(|_| self.raw.is_transfer()) else { return 1 };
        let bytes = self.raw.bytes();
        if bytes <= MIN_DEVICE_REQUEST || !file.is_direct() {
            return 1;
        }
        let Some(largest) = file.largest_request().filter(|largest| *largest > 1) else { return 1 };
        let in_pieces = matches!(self.raw, Raw::Read(_));
        let most = if in_pieces { WINDOW.into() } else { u64::from(u16::MAX) };
        bytes.div_ceil(largest.into()).min(most) as u32
    }

    /// A transfer. What its push needs to know of the device is looked up here, so that the push
    /// makes no system call, whatever locks it is made under.
    #[inline]
    pub(super) fn on_file(
        raw: Raw,
        resources: Resources,
        file: &File,
        invalid: Option<InvalidOperation>,
    ) -> Self {
        if raw.bytes() > MIN_DEVICE_REQUEST && file.is_direct() {
            file.placement();
            file.largest_request();
        }
        Self::make(raw, resources, Some(file.clone()), invalid)
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
            by_worker: false,
            socket: false,
            invalid,
        }
    }

    pub(crate) fn new<F: SubmissionForms + Into<Raw>>(raw: F) -> Self {
        Self::make(raw.into(), Resources::None, None, None)
    }

    pub(crate) fn on<F: SubmissionForms + Into<Raw>>(raw: F, file: &File) -> Self {
        Self::make(raw.into(), Resources::None, Some(file.clone()), None)
    }

    /// Makes an operation from numbers and addresses, for bindings to other languages. It holds
    /// `file`, which should be the file that `raw` names, since facts about it decide how the
    /// operation is submitted. It keeps `memory` until its completion is dropped. A read or write
    /// whose bytes are in registered memory uses it as a fixed buffer.
    ///
    /// The completion of an open returns a file, as for any open.
    ///
    /// # Safety
    ///
    /// From the push until the completion is delivered, or forever if the queue is dropped or
    /// closed before that: everything that `raw` points at must be valid for what the operation
    /// does with it, from any thread, and its descriptors must refer to the same files.
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

    /// An operation on a path in a directory, the working directory if that is `None`. `make_raw`
    /// gets the directory's descriptor and the path.
    pub(crate) fn with_path<F: SubmissionForms + Into<Raw>>(
        (dir, path): (Option<&File>, &Path),
        make_raw: impl FnOnce(RawFd, *const libc::c_char) -> F,
    ) -> Self {
        let none = (None, Path::new(""));
        Self::with_paths((dir, path), none, |(dir, path), _| make_raw(dir, path))
    }

    pub(crate) fn with_paths<F: SubmissionForms + Into<Raw>>(
        first: (Option<&File>, &Path),
        second: (Option<&File>, &Path),
        make_raw: impl FnOnce(RawPath, RawPath) -> F,
    ) -> Self {
        let c_string = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes());
        let (strings, invalid) = match (c_string(first.1), c_string(second.1)) {
            (Ok(first), Ok(second)) => ([first, second], None),
            _ => (Default::default(), Some(InvalidOperation::NulInPath)),
        };
        let fd = |dir: Option<&File>| dir.map_or(libc::AT_FDCWD, File::fd);
        // The bytes of the strings do not move when the strings move into the slot.
        let raw = make_raw((fd(first.0), strings[0].as_ptr()), (fd(second.0), strings[1].as_ptr()));
        let paths = Paths { _strings: strings, _second_dir: second.0.cloned() };
        Self::make(raw.into(), Resources::Paths(Box::new(paths)), first.0.cloned(), invalid)
    }

    pub(crate) fn mark_invalid(mut self, invalid: InvalidOperation) -> Self {
        self.invalid = Some(invalid);
        self
    }

    /// Sets a number of the caller's own, which the completion returns.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Self {
        self.user_data = user_data;
        self
    }

    /// Continues a short transfer until all bytes are transferred or an error occurs, which is then
    /// the result. A read also ends at the end of the file. A write of zero bytes fails with
    /// ENOSPC.
    #[inline]
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Sets a time limit: if the operation has not completed within `limit` after its submission,
    /// it is cancelled and fails with ETIMEDOUT. An operation that cannot be cancelled (a transfer
    /// that the device has started, a blocking call that a thread has started) completes as usual.
    /// A limit of zero counts as one nanosecond.
    pub fn timeout(mut self, limit: Duration) -> Self {
        let nanoseconds = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.timeout = NonZeroU64::new(nanoseconds);
        self
    }

    /// Makes the operation a barrier: it starts after all operations pushed before it have
    /// completed, and those pushed after it start when it has completed.
    /// [`Queue::reap`](crate::Queue::reap) starts them.
    #[inline]
    pub fn drain(mut self) -> Self {
        self.drain = true;
        self
    }

    /// In a chain: starts the next operation when this one has completed, whatever its result.
    /// Without it, an error or a short transfer ends the chain, and the rest fails with ECANCELED.
    #[inline]
    pub fn continue_on_error(mut self) -> Self {
        self.continue_on_error = true;
        self
    }

    /// States that the file of this read or write is a socket. io_uring then receives or sends
    /// (`recv(2)`, `send(2)` without `SIGPIPE`), and looks up no facts about the file first, which
    /// takes two system calls. Other backends ignore it.
    ///
    /// Nothing goes wrong if the file is not a socket: the kernel refuses the first submission, and
    /// the operation is submitted again as it is without this.
    ///
    /// The push fails with EINVAL for an operation that is not a [`read`](super::read()) or
    /// [`write`](super::write()) at the current position.
    ///
    /// ```
    /// # use ringway_core::{op, File, Options, op::Position};
    /// # use std::os::{fd::OwnedFd, unix::net::UnixStream};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (here, there) = UnixStream::pair()?;
    /// let [here, there] = [here, there].map(|end| File::from(OwnedFd::from(end)));
    /// let mut queue = Options::new().build()?;
    /// queue.push(op::read(&there, vec![0; 100], Position::Current).socket())?;
    /// queue.push(op::write(&here, vec![7; 5], Position::Current).socket())?;
    /// while queue.in_flight() > 0 {
    ///     queue.reap(1)?.for_each(|done| assert_eq!(done.result, Ok(5)));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn socket(self) -> Self {
        let transfers = matches!(self.raw, Raw::Read(_) | Raw::Write(_));
        if transfers && self.raw.offset() == Some(CURRENT_POSITION) {
            Self { socket: true, ..self }
        } else {
            self.mark_invalid(InvalidOperation::NotASocketTransfer)
        }
    }

    /// Makes this read or write leave no pages of its own in the page cache: `RWF_DONTCACHE`
    /// (kernel 6.14; ext4 and XFS). What it brings into the page cache is dropped again: after a
    /// read at once, after a write when the device has it, which the kernel starts at once. Pages
    /// that were cached before stay. Pages that the kernel has read ahead of a read are dropped
    /// when they are read; those that nobody reads, and with ext4 (seen on 6.18) the pages of
    /// blocks that a write overwrites, stay until the memory is needed. A write is as durable as
    /// one without this.
    ///
    /// It does nothing to direct I/O. Where the kernel or the file system refuses the flag, the
    /// transfer is made without it, and so are the later ones of its file:
    /// [`File::dont_cache_refusal`](crate::File::dont_cache_refusal) has the reason.
    ///
    /// The push fails with EINVAL for an operation that is neither a read nor a write.
    ///
    /// ```
    /// # use ringway_core::{op, File, Options};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = File::open("/etc/passwd")?;
    /// let mut queue = Options::new().build()?;
    /// queue.push(op::read(&file, vec![0; 64], 0).dont_cache())?;
    /// assert!(queue.reap(1)?.next().unwrap().result? > 0);
    /// if let Some(refusal) = file.dont_cache_refusal() {
    ///     println!("{refusal}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn dont_cache(mut self) -> Self {
        match self.raw.rw_flags_mut() {
            Some(flags) => {
                flags.set(RwFlags::DONT_CACHE);
                self
            }
            None => self.mark_invalid(InvalidOperation::NotATransfer),
        }
    }

    /// Makes this write untorn, which Linux also calls atomic: after a crash or a power failure the
    /// file has all of its bytes or none of them, on its range. `RWF_ATOMIC`: kernel 6.11 for block
    /// devices, 6.13 for ext4 and XFS on devices with atomic writes, 6.16 for XFS on any device.
    /// Where there is none, the write is refused; it is never made as a plain one, in pieces or in
    /// part. (A file that is replaced as a whole, whatever its length, is written to another name
    /// and renamed: `write_atomic` of the crate `ringway`.)
    ///
    /// It changes nothing else. The write is as durable as a plain one: a crash may undo it until a
    /// sync, and [`write_dsync`](super::write_dsync()) can be untorn, too. A read that runs at the
    /// same time may see a part of it.
    ///
    /// The push fails, with the reason and the fix ([`Reason::Untorn`](crate::Reason::Untorn)), and
    /// nothing is submitted, unless
    ///
    /// - the file has such writes ([`File::atomic_write_unit`]), and is open for direct I/O and not
    ///   for appending;
    /// - the length is a power of two within that unit, and the offset a multiple of the length;
    /// - the buffer is aligned for direct I/O, and the write ends within `RLIMIT_FSIZE`, which does
    ///   not apply to block devices.
    ///
    /// All of this is checked here, not by the push: what changes in between (the limit, or the
    /// file's `O_APPEND`) is not seen.
    ///
    /// It fails with EINVAL for an operation that is not a [`write`](super::write()) or
    /// [`write_dsync`](super::write_dsync()) at an offset. To check this, the first untorn write of
    /// a file makes the system calls of [`File::direct_io`].
    ///
    /// Errors: those of a write; EOPNOTSUPP where the file system refuses what it reports, as an
    /// overlay does; EAGAIN if, after a few tries, pages of the range are still being dirtied
    /// through a mapping or by buffered writes; EIO if the kernel writes only a part after all,
    /// which is not continued ([`Error::is_torn`](crate::Error::is_torn)). A cancelled write was
    /// made in whole or not at all.
    ///
    /// On a block device nobody else may use its page cache: if a page of the range is cached and
    /// busy, the kernel makes a plain buffered write of it, and reports success.
    ///
    /// ```
    /// # use ringway_core::{op, AlignedBuffer, Options, OpenOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir_in(".")?;
    /// let mut options = OpenOptions::new();
    /// let file = options.write(true).create(true).direct(true).open(dir.path().join("pages"))?;
    /// let page = AlignedBuffer::for_direct(file.direct_io(), 16384);
    /// let mut queue = Options::new().build()?;
    /// match queue.push(op::write(&file, page, 0).untorn()) {
    ///     Ok(_) => assert_eq!(queue.reap(1)?.next().unwrap().result, Ok(16384)),
    ///     Err(refused) => println!("{refused}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn untorn(mut self) -> Self {
        if !untorn::is_candidate(&self) {
            return self.mark_invalid(InvalidOperation::NotAnUntornWrite);
        }
        if let Some(problem) = untorn::problem(&self) {
            return self.mark_invalid(InvalidOperation::Untorn(problem));
        }
        if let Some(flags) = self.raw.rw_flags_mut() {
            flags.set(RwFlags::ATOMIC);
        }
        self
    }
}

/// Sets the addresses of the operation's buffers, once it is in its slot and no longer moves.
#[inline]
pub(crate) fn set_addresses(operation: &mut Operation) {
    match (&mut operation.resources, &mut operation.raw) {
        (Resources::Buffer(buffer), Raw::Read(read)) => {
            read.buf = buffer.as_mut_ptr().unwrap_or(std::ptr::null_mut());
        }
        (Resources::Buffer(buffer), Raw::Write(write) | Raw::WriteDsync(WriteDsync(write))) => {
            write.buf = buffer.as_ptr();
        }
        (Resources::Named(named), Raw::WriteFile(write)) => write.buf = named.1.as_ptr(),
        (Resources::Spare(spare), Raw::Read(read)) => {
            read.buf = spare.uninit().as_mut_ptr().cast();
        }
        _ => {}
    }
}

/// Appends the bytes of a completed read to its buffer with spare capacity.
#[inline]
pub(crate) fn commit_spare(operation: &mut Operation, result: i64) {
    if let (Resources::Spare(spare), Ok(bytes @ 1..)) =
        (&mut operation.resources, usize::try_from(result))
    {
        let bytes = bytes.min(spare.len());
        // SAFETY: the result of a read is the number of bytes that the kernel has written from the
        // start; of several pieces, those without a gap between them. `read_spare` set the length,
        // and `set_addresses` the address.
        unsafe { spare.commit(bytes) }
    }
}

/// The buffers of a vectored operation, and the iovec array that the kernel reads. The completion
/// returns it; using it again needs no allocation.
#[derive(Debug)]
pub struct Vectored {
    buffers: Vec<Buffer>,
    iov: Vec<Iovec>,
}

/// An iovec that can be sent to another thread together with its buffers.
#[repr(transparent)]
#[derive(Debug)]
struct Iovec(libc::iovec);

// SAFETY: an `Iovec` is an address and a length; it is used only together with the buffers in the
// same `Vectored`, which are `Send`.
unsafe impl Send for Iovec {}
// SAFETY: as above; shared references only expose numbers.
unsafe impl Sync for Iovec {}

/// Why a read cannot use this buffer.
#[inline]
pub(super) fn refusal_to_read(buffer: &mut Buffer) -> Option<InvalidOperation> {
    if !buffer.is_writable() {
        return Some(InvalidOperation::ReadOnlyBuffer);
    }
    buffer.has_only_spare_capacity().then_some(InvalidOperation::OnlySpareCapacity)
}

impl Vectored {
    /// Makes the array for any number of buffers.
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

    /// The buffers.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Returns the buffers.
    pub fn into_buffers(self) -> Vec<Buffer> {
        self.buffers
    }

    /// The total length of the buffers in bytes.
    pub fn len(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.len() as u64).sum()
    }

    /// True if the total length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Why a read cannot use these buffers.
    pub(super) fn refusal_to_read(&mut self) -> Option<InvalidOperation> {
        self.buffers.iter_mut().find_map(refusal_to_read)
    }

    pub(super) fn iov(&self) -> &[libc::iovec] {
        // SAFETY: `Iovec` is a transparent wrapper of `libc::iovec`, so both slices have the same
        // layout.
        unsafe { std::slice::from_raw_parts(self.iov.as_ptr().cast(), self.iov.len()) }
    }
}

/// The iovec array of a vectored operation.
pub(super) fn iovecs<'a>(iov: *const libc::iovec, count: usize) -> &'a [libc::iovec] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the operation, or the caller of `from_raw`, keeps `count` entries at `iov` valid
    // until the completion, and this is called only before that.
    unsafe { std::slice::from_raw_parts(iov, count) }
}

impl Operation {
    /// The address of the buffer of a transfer that has one.
    pub(super) fn address(&self) -> Option<usize> {
        match (&self.resources, &self.raw) {
            (Resources::Buffer(buffer), _) => Some(buffer.as_ptr().addr()),
            (Resources::Spare(spare), _) => Some(spare.address()),
            (_, Raw::Read(read)) => Some(read.buf.addr()),
            (_, Raw::Write(write) | Raw::WriteDsync(WriteDsync(write))) => Some(write.buf.addr()),
            _ => None,
        }
    }

    /// Whether it is a direct transfer whose memory the device's driver would miss, instead of
    /// refusing it ([`AlignmentSource::Driver`](crate::device::AlignmentSource::Driver)).
    #[inline]
    pub(crate) fn misses_pages(&self) -> bool {
        self.file.as_ref().is_some_and(|file| {
            self.raw.is_transfer()
                && !self.socket
                && file.is_direct()
                && !self.is_in_whole_pages()
                && file.takes_whole_pages()
        })
    }

    /// Whether each buffer of a transfer begins at a page, and each of several ends at one. (One
    /// without bytes may be anywhere.)
    fn is_in_whole_pages(&self) -> bool {
        let is_page = |address: usize| address.is_multiple_of(MIN_PAGE);
        match &self.raw {
            Raw::Readv(Readv { iov, count, .. }) | Raw::Writev(Writev { iov, count, .. }) => {
                let is_whole = |one: &libc::iovec| {
                    one.iov_len == 0 || is_page(one.iov_base.addr()) && is_page(one.iov_len)
                };
                iovecs(*iov, *count).iter().all(is_whole)
            }
            raw => !raw.is_transfer() || self.address().is_none_or(is_page) || raw.bytes() == 0,
        }
    }
}

/// The total length of the buffers of a vectored operation.
pub(super) fn total(iov: *const libc::iovec, count: usize) -> u64 {
    iovecs(iov, count).iter().map(|one| one.iov_len as u64).fold(0, u64::saturating_add)
}

/// The most buffers that one system call takes (`IOV_MAX`).
const IOV_MAX: usize = 1024;

/// The buffers that one system call takes: at most `IOV_MAX`, without empty ones at the front,
/// since a result of 0 would look like the end of the file.
pub(super) fn clamp_iovecs(iov: *const libc::iovec, count: usize) -> (*const libc::iovec, usize) {
    let empty = iovecs(iov, count).iter().take_while(|one| one.iov_len == 0).count();
    let skip = if empty < count { empty } else { 0 };
    (iov.wrapping_add(skip), (count - skip).min(IOV_MAX))
}

/// The rest of a vectored operation.
pub(super) enum Remaining {
    /// Whole buffers: their address and number.
    Buffers(*const libc::iovec, usize),
    /// The rest of one buffer: its address and length.
    Partial(*mut u8, usize),
}

/// The rest from byte `start` on: the rest of the buffer that this byte is in, or all buffers from
/// there if it is the first byte of one.
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
