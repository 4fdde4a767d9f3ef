//! An open file that operations share and keep open. Reading and writing it is in `op`.

use crate::background::run_in_background;
#[cfg(ringway_linux)]
use crate::device::Namespace;
use crate::device::{self, AtomicWriteUnit, DirectIo, FileFacts, Mount, Placement, RequestQueue};
use crate::lookup::{Lookup, RepeatedLookup};
use crate::refusal::{Feature, Refusal};
#[cfg(ringway_linux)]
use crate::resident_pages::{self, ResidentPages};
use crate::rw_flags::RwFlags;
use crate::submit_waits::{Access, SubmitWaits};
use crate::sys::{self, BorrowedFd, OwnedFd, RawFd, libc};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// An open file. Clones share the descriptor, and each operation in flight holds a clone, so the
/// descriptor cannot be reused for another file meanwhile. The last clone closes it.
///
/// Facts about the file (whether it is open for direct I/O, what its device supports) are read once
/// and kept. Do not change `O_DIRECT` with `fcntl` on a file that is in use here.
#[derive(Clone, Debug)]
pub struct File {
    inner: Arc<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    /// Never negative.
    fd: RawFd,
    /// True if the last clone closes it.
    owned: bool,
    traits: KnownTraits,
    facts: RepeatedLookup<FileFacts>,
    /// Held while the descriptor is open, where its number may become another mount's after that.
    mount: Lookup<Arc<Mount>>,
    /// An alignment of direct I/O that replaces a smaller one of `facts`; 0 at first.
    grown_align: AtomicU32,
    /// Closing it must not hold up the thread that drops the last clone.
    closes_in_background: AtomicBool,
    /// Closing it frees its content.
    is_discarded: AtomicBool,
    submit_waits: SubmitWaits,
    #[cfg(ringway_linux)]
    pages: Pages,
    request_queue: Lookup<Option<RequestQueue>>,
    /// The errno with which `RWF_DONTCACHE` was refused for this file; 0 until one transfer with it
    /// has succeeded, then [`DONT_CACHE_ACCEPTED`].
    dont_cache_errno: AtomicI32,
    /// False for a pipe or a console.
    #[cfg(windows)]
    storage: Lookup<bool>,
}

const DONT_CACHE_ACCEPTED: i32 = -1;

/// What is known of the pages of a file on an overlay.
#[cfg(ringway_linux)]
#[derive(Debug, Default)]
struct Pages {
    /// The [`opening_time`] of ringway's open; 0 if somebody else has opened the file.
    opened: AtomicU64,
    /// A read of the file has completed.
    was_read: AtomicBool,
    /// `None` if they cannot be known.
    resident: Lookup<Option<ResidentPages>>,
}

/// The time, taken before a file is opened, for [`File::opened_after`]; 0 if nobody asks.
pub(crate) fn opening_time() -> u64 {
    #[cfg(ringway_linux)]
    return resident_pages::opening_time();
    #[cfg(not(ringway_linux))]
    0
}

/// How pages of a file that are in the page cache are read without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedReadCall {
    /// `preadv2(2)` with `RWF_NOWAIT`, which fails if the file system does not support it.
    Nowait,
    /// Any read, since all pages are in memory.
    #[cfg_attr(not(ringway_linux), expect(dead_code, reason = "nothing is known there"))]
    Plain,
    /// Any read of pages that [`File::resident_len`] finds in memory.
    #[cfg(ringway_linux)]
    Resident,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let in_background = self.owned && self.close_may_wait();
        self.mount = Lookup::new();
        #[cfg(ringway_linux)]
        {
            // (A mapping keeps the file open.)
            self.pages.resident = Lookup::new();
        }
        if self.owned {
            // SAFETY: `From<OwnedFd>` took the descriptor out of its only owner, and `Drop` runs
            // once.
            let fd = unsafe { sys::owned(self.fd) };
            close_descriptor(fd, in_background);
        }
    }
}

impl OpenFile {
    /// Whether closing the descriptor may wait for a server, or frees the content, and the thread
    /// that drops the last clone must not do it.
    fn close_may_wait(&self) -> bool {
        self.closes_in_background.load(Ordering::Relaxed)
            && (self.is_discarded.load(Ordering::Relaxed) || !self.is_local())
    }

    /// Waits for no server. (On other systems nothing is known, and every file counts as local.)
    fn is_local(&self) -> bool {
        if !cfg!(ringway_linux) {
            return true;
        }
        let traits = self.traits.get().unwrap_or_else(|| Traits::of(self.fd));
        match traits.kind {
            FileKind::Stream | FileKind::Namespace { .. } => true,
            FileKind::Device | FileKind::Unknown => false,
            FileKind::Storage => {
                let placement = self.traits.placement();
                // (The mount is dropped here: the descriptor is about to be closed.)
                placement.unwrap_or_else(|| placement_of(self.fd, traits)).has(Placement::LOCAL)
            }
        }
    }
}

fn close_descriptor(fd: OwnedFd, in_background: bool) {
    if in_background { run_in_background(move || drop(fd)) } else { drop(fd) }
}

/// A reference to a [`File`] that does not keep it open. From [`File::downgrade`].
#[derive(Clone, Debug)]
pub struct WeakFile(Weak<OpenFile>);

impl WeakFile {
    /// The file, if a clone of it still exists.
    #[inline]
    pub fn upgrade(&self) -> Option<File> {
        self.0.upgrade().map(|inner| File { inner })
    }
}

/// What a descriptor refers to, as far as it decides how to wait for its transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A regular file, a directory or a block device: transfers end by themselves.
    Storage,
    /// A pipe, a socket and so on: a transfer may wait forever, but can be polled for.
    Stream,
    /// A character device such as a terminal: like a stream, but a write may block even where it
    /// was told not to and part of it would fit.
    Device,
    /// An NVMe generic device: the identifier of its namespace, and the binary logarithm of its
    /// block size.
    Namespace { id: u32, block_shift: u8 },
    /// Not checked yet.
    Unknown,
}

impl FileKind {
    /// Whether transfers end by themselves.
    pub(crate) fn is_storage(self) -> bool {
        matches!(self, Self::Storage | Self::Namespace { .. })
    }
}

/// Closes a descriptor and reports the error of `close(2)`, which dropping the descriptor ignores.
/// A network file system may report a failed write there. This blocks;
/// [`op::close`](crate::op::close) does not.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let file = std::fs::File::open("/etc/passwd")?;
/// ringway_core::close(file.into())?;
/// # Ok(()) }
/// ```
///
/// Errors: those of `close(2)`, after which the descriptor is closed nevertheless.
pub fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor was owned, and nothing uses it after this.
    match unsafe { libc::close(sys::into_number(fd)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Facts about a descriptor that two cheap system calls give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    pub kind: FileKind,
    pub direct: bool,
}

/// The traits of a file once they are known, in one word, so that nobody waits for a thread that
/// sets them: a forked child may not have it.
#[derive(Debug, Default)]
struct KnownTraits(AtomicU64);

impl KnownTraits {
    /// Set in each word but the first, 0, which means that nothing is known.
    const KNOWN: u64 = 1;
    const DIRECT: u64 = 1 << 1;
    /// The placement is known too.
    const PLACED: u64 = 1 << 2;
    /// The kind: 0 for [`FileKind::Storage`].
    const KIND: u64 = 0xff << 8;
    /// The bit at which the placement begins.
    const PLACEMENT: u32 = 24;

    #[inline]
    fn get(&self) -> Option<Traits> {
        Self::unpack(self.0.load(Ordering::Relaxed))
    }

    /// Whether the file is known to be [`FileKind::Storage`].
    #[inline]
    fn is_storage(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (Self::KNOWN | Self::KIND) == Self::KNOWN
    }

    /// Sets the traits unless they are known. Returns those that are known then.
    fn set_first(&self, traits: Traits) -> Traits {
        let word = Self::pack(traits);
        let other = self.0.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed);
        other.err().and_then(Self::unpack).unwrap_or(traits)
    }

    #[inline]
    fn placement(&self) -> Option<Placement> {
        let word = self.0.load(Ordering::Relaxed);
        let placement = Placement::from_bits((word >> Self::PLACEMENT) as u8);
        (word & Self::PLACED != 0).then_some(placement)
    }

    /// Sets the placement, which is the same whoever looks it up. The traits are known.
    fn set_placement(&self, placement: Placement) {
        let word = u64::from(placement.bits()) << Self::PLACEMENT | Self::PLACED;
        self.0.fetch_or(word, Ordering::Relaxed);
    }

    fn pack(traits: Traits) -> u64 {
        let (kind, block_shift, id) = match traits.kind {
            FileKind::Storage => (0, 0, 0),
            FileKind::Stream => (1, 0, 0),
            FileKind::Device => (2, 0, 0),
            FileKind::Namespace { id, block_shift } => (3, block_shift, id),
            FileKind::Unknown => (4, 0, 0),
        };
        let direct = if traits.direct { Self::DIRECT } else { 0 };
        Self::KNOWN | direct | kind << 8 | u64::from(block_shift) << 16 | u64::from(id) << 32
    }

    #[inline]
    fn unpack(word: u64) -> Option<Traits> {
        let [flags, kind, block_shift, _, id @ ..] = word.to_le_bytes();
        let kind = match kind {
            _ if u64::from(flags) & Self::KNOWN == 0 => return None,
            0 => FileKind::Storage,
            1 => FileKind::Stream,
            2 => FileKind::Device,
            3 => FileKind::Namespace { id: u32::from_le_bytes(id), block_shift },
            _ => FileKind::Unknown,
        };
        Some(Traits { kind, direct: u64::from(flags) & Self::DIRECT != 0 })
    }
}

impl Traits {
    /// A handle cannot be polled, so that its transfers are made like those of storage.
    #[cfg(windows)]
    pub fn of(_: RawFd) -> Self {
        Self { kind: FileKind::Storage, direct: false }
    }

    /// Waits for no server, except where `statx(2)` is refused.
    #[cfg(unix)]
    pub fn of(fd: RawFd) -> Self {
        // SAFETY: `fcntl` with F_GETFL takes numbers only; for a descriptor that is not open it
        // returns EBADF.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        let direct = flags >= 0 && flags & libc::O_DIRECT != 0;
        let kind = match mode(fd) {
            Some(mode) => match mode & libc::S_IFMT {
                libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR => FileKind::Storage,
                libc::S_IFCHR => FileKind::Device,
                _ => FileKind::Stream,
            },
            // The operation itself will fail with the right errno.
            None => FileKind::Storage,
        };
        Self { kind, direct }
    }
}

/// The type bits of a descriptor; `None` if it is not open.
#[cfg(unix)]
fn mode(fd: RawFd) -> Option<u32> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the borrow ends with this function, and the call fails for a descriptor that is not
    // open.
    device::mode(unsafe { sys::borrowed(fd) }).ok()
}

/// Whether transfers of this descriptor at an offset are made there: not of a pipe, a socket or a
/// terminal, nor of a file that is opened as a stream (FUSE, some below `/proc`).
pub(crate) fn has_offsets(fd: RawFd) -> bool {
    #[cfg(unix)]
    return Traits::of(fd).kind == FileKind::Storage && has_positions(fd);
    #[cfg(windows)]
    {
        let _ = fd;
        false
    }
}

/// Whether the descriptor of storage, which is open, has positions. Asks no server. Unlike
/// `lseek(2)`, it does not wait for whoever reads or writes at the current position: a read of
/// nothing at an offset ends before, with EBADF if the descriptor is open for writing only.
#[cfg(ringway_linux)]
fn has_positions(fd: RawFd) -> bool {
    // SAFETY: there are no buffers.
    let result = unsafe { libc::preadv64(fd, std::ptr::null(), 0, 0) };
    result >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESPIPE)
}

#[cfg(all(unix, not(ringway_linux)))]
fn has_positions(fd: RawFd) -> bool {
    // SAFETY: the call takes numbers, and changes nothing.
    unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) >= 0 }
}

/// The placement of a bare descriptor that has these traits.
pub(crate) fn placement_of(fd: RawFd, traits: Traits) -> Placement {
    if traits.kind != FileKind::Storage || fd < 0 {
        return Placement::ANY;
    }
    // SAFETY: as in `mode`.
    let found = Placement::of(unsafe { sys::borrowed(fd) }, traits.direct);
    found.map_or(Placement::default(), |(placement, _)| placement)
}

/// Whether a descriptor is open, and for writing, or for reading.
#[cfg(unix)]
pub(crate) fn is_open_for(fd: RawFd, writing: bool) -> bool {
    // SAFETY: `fcntl` with F_GETFL takes numbers only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    match flags & libc::O_ACCMODE {
        _ if flags < 0 => false,
        libc::O_RDONLY => !writing,
        libc::O_WRONLY => writing,
        _ => true,
    }
}

/// Not checked: the call does not wait if the handle does not permit it.
#[cfg(windows)]
pub(crate) fn is_open_for(_: RawFd, _writing: bool) -> bool {
    true
}

impl File {
    /// A file over a descriptor that the caller owns and closes, for bindings to other languages.
    /// `None` for a negative descriptor.
    ///
    /// # Safety
    ///
    /// Until the file and all its clones are dropped, including those in operations in flight, the
    /// descriptor must stay what it is: the same open file, or closed.
    pub unsafe fn borrow_raw(fd: RawFd) -> Option<Self> {
        (fd >= 0).then(|| Self::make(fd, false))
    }

    /// True if the last clone closes the descriptor.
    pub(crate) fn is_owned(&self) -> bool {
        self.inner.owned
    }

    fn make(fd: RawFd, owned: bool) -> Self {
        Self {
            inner: Arc::new(OpenFile {
                fd,
                owned,
                traits: KnownTraits::default(),
                facts: RepeatedLookup::new(),
                mount: Lookup::new(),
                grown_align: AtomicU32::new(0),
                closes_in_background: AtomicBool::new(false),
                is_discarded: AtomicBool::new(false),
                submit_waits: SubmitWaits::default(),
                #[cfg(ringway_linux)]
                pages: Pages::default(),
                request_queue: Lookup::new(),
                dont_cache_errno: AtomicI32::new(0),
                #[cfg(windows)]
                storage: Lookup::new(),
            }),
        }
    }

    /// A reference that does not keep the file open.
    pub fn downgrade(&self) -> WeakFile {
        WeakFile(Arc::downgrade(&self.inner))
    }

    /// Takes the descriptor out, so that the caller closes it. Returns the file if other clones
    /// exist or if its descriptor is borrowed.
    pub fn into_fd(self) -> Result<OwnedFd, Self> {
        if !self.inner.owned {
            return Err(self);
        }
        let mut inner = Arc::try_unwrap(self.inner).map_err(|inner| Self { inner })?;
        inner.owned = false;
        // SAFETY: the file owned the descriptor, this was its last clone, and `inner` no longer
        // closes it.
        Ok(unsafe { sys::owned(inner.fd) })
    }

    /// Whether clones of the file or operations on it exist besides this one. They may end at any
    /// time; without any, none can come.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let file = ringway_core::File::open("/etc/passwd")?;
    /// assert!(!file.is_shared());
    /// let clone = file.clone();
    /// assert!(file.is_shared() && clone.is_shared());
    /// # Ok(()) }
    /// ```
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// From now on the last clone of the file closes it on a thread of its own if closing may wait
    /// for a server (FUSE, NFS) or a device, so that no thread that drops a clone waits for that.
    /// Files on local file systems are closed at once, as before.
    pub fn close_in_background(&self) {
        self.inner.closes_in_background.store(true, Ordering::Relaxed);
    }

    /// The file has no name, or loses it now, so that its last close frees its content. That takes
    /// long for a large file on a local file system, too: 1.5 s for 1.5 GB on ext4, Linux 6.18. So
    /// a file that is [closed in the background](Self::close_in_background) is closed there then,
    /// wherever it is.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("draft");
    /// let file = ringway_core::OpenOptions::new().write(true).create_new(true).open(&path)?;
    /// file.close_in_background();
    /// file.discard();
    /// drop(file);
    /// std::fs::remove_file(&path)?;
    /// # Ok(()) }
    /// ```
    pub fn discard(&self) {
        self.inner.is_discarded.store(true, Ordering::Relaxed);
    }

    /// Whether the file is known to need no other program and no other machine. (Pipes and sockets
    /// need none.)
    pub fn is_local(&self) -> bool {
        if cfg!(ringway_linux) && self.traits().kind == FileKind::Storage {
            return self.placement().has(Placement::LOCAL);
        }
        self.inner.is_local()
    }

    /// Drops this clone. Returns the descriptor if this was the last one: closing it may take long,
    /// so the caller chooses when. (Not if it is to be [closed in the
    /// background](Self::close_in_background).)
    pub(crate) fn into_last_fd(self) -> Option<OwnedFd> {
        let mut inner = Arc::into_inner(self.inner)?;
        if inner.close_may_wait() {
            return None;
        }
        // SAFETY: as in `into_fd`.
        std::mem::take(&mut inner.owned).then(|| unsafe { sys::owned(inner.fd) })
    }

    /// The alignment that direct I/O on this file needs: from `statx(2)` where the kernel reports
    /// it (6.1), else the device's block size. Read once: the first call blocks for a system call,
    /// and for reading a sysfs file if no other file of the device has read it. What cannot be read
    /// for want of a descriptor is read again a moment later. So is what a stacked device is on,
    /// which an administrator may replace: zram needs a larger alignment of memory.
    pub fn direct_io(&self) -> DirectIo {
        let known = self.facts().direct(self.borrow());
        let grown = self.inner.grown_align.load(Ordering::Relaxed);
        DirectIo { offset_align: known.offset_align.max(grown), ..known }
    }

    /// The alignment that direct I/O on this file needs of offsets and lengths, as
    /// [`direct_io`](Self::direct_io) has it. Unlike that, it is not looked up again: nothing but a
    /// copy of the file ([`direct_io_of`](Self::direct_io_of)) changes it.
    pub fn offset_align(&self) -> u32 {
        self.facts().offset_align().max(self.inner.grown_align.load(Ordering::Relaxed))
    }

    /// Whether the alignment is only assumed, since neither the file system nor a device tells it.
    pub(crate) fn is_align_assumed(&self) -> bool {
        self.facts().is_align_assumed()
    }

    /// As [`direct_io`](Self::direct_io), for a transfer of this range now: asks the kernel again
    /// where the alignment may have grown and the range does not consist of whole blocks of the
    /// file system. On XFS, and on an overlay above it, it grows when blocks of the file are shared
    /// with a copy (reflink); a direct write without the new alignment then goes through the page
    /// cache.
    pub fn direct_io_of(&self, offset: u64, len: u64) -> DirectIo {
        #[cfg(not(ringway_linux))]
        let _ = (offset, len);
        #[cfg(ringway_linux)]
        if self.placement().has(Placement::GROWS)
            && !(offset | len).is_multiple_of(u64::from(self.facts().block.max(1)))
        {
            let current = device::direct_alignment(self.borrow()).offset_align;
            self.inner.grown_align.fetch_max(current, Ordering::Relaxed);
        }
        self.direct_io()
    }

    /// The sizes of untorn writes of this file ([`Operation::untorn`](crate::Operation::untorn)),
    /// or `None` if it has none: what `statx(2)` reports (`STATX_WRITE_ATOMIC`, kernel 6.11). Each
    /// call blocks for a system call, and waits for no server: a remount may change the sizes. They
    /// do not depend on how the file is open.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let file = ringway_core::File::open("/etc/passwd")?;
    /// match file.atomic_write_unit() {
    ///     Some(unit) => println!("untorn writes of {unit}"),
    ///     None => println!("no untorn writes"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn atomic_write_unit(&self) -> Option<AtomicWriteUnit> {
        device::atomic_write_unit(self.borrow())
    }

    /// What [`atomic_write_unit`](Self::atomic_write_unit) was when the facts were read.
    pub(crate) fn known_atomic_write_unit(&self) -> Option<AtomicWriteUnit> {
        self.facts().atomic_write
    }

    /// Whether the device's driver takes memory in whole pages only, and does not refuse others.
    pub(crate) fn takes_whole_pages(&self) -> bool {
        self.facts().takes_whole_pages(self.borrow())
    }

    /// Whether it is a block device. Each call blocks for a short system call, and waits for no
    /// server.
    pub fn is_block_device(&self) -> bool {
        #[cfg(unix)]
        return mode(self.fd()).is_some_and(|mode| mode & libc::S_IFMT == libc::S_IFBLK);
        #[cfg(windows)]
        false
    }

    /// Bytes of the largest request that the device takes without splitting it; `None` if unknown.
    /// Read once for all files of a device: the first call blocks for a system call and for reading
    /// a sysfs file.
    pub fn largest_request(&self) -> Option<u32> {
        #[cfg(ringway_linux)]
        if let Some(Ok(namespace)) = self.namespace() {
            return Some(namespace.largest);
        }
        self.facts().device()?.largest_request()
    }

    /// The namespace of an NVMe generic device, or why it cannot be used; `None` for other files.
    #[cfg(ringway_linux)]
    pub(crate) fn namespace(&self) -> Option<&Result<Namespace, Refusal>> {
        self.facts().namespace.as_ref()
    }

    /// Whether the device of a direct file polls for completions; `None` if unknown.
    #[cfg(ringway_linux)]
    pub(crate) fn device_polls(&self) -> Option<bool> {
        match self.namespace() {
            Some(Ok(namespace)) => Some(namespace.polls),
            _ => self.facts().device()?.polls(),
        }
    }

    fn facts(&self) -> &FileFacts {
        self.inner.facts.get_or_look_up((device::now, FileFacts::PAUSE), || {
            let facts = FileFacts::of(self.borrow());
            let is_complete = facts.is_complete;
            (facts, is_complete)
        })
    }

    /// True if the file was opened with `O_DIRECT`, or is an NVMe generic device.
    pub fn is_direct(&self) -> bool {
        self.traits().direct
    }

    /// True for files on storage: regular files, directories, block devices and NVMe generic
    /// devices. Their transfers end by themselves; a transfer on a pipe, a socket or a terminal may
    /// wait forever.
    #[inline]
    pub fn is_storage(&self) -> bool {
        // (Windows makes the transfers of a pipe like those of storage.)
        #[cfg(windows)]
        if !*self.inner.storage.get_or_look_up(|| libc::is_storage(self.fd())) {
            return false;
        }
        self.inner.traits.is_storage() || self.traits().kind.is_storage()
    }

    pub(crate) fn traits(&self) -> Traits {
        self.known_traits().unwrap_or_else(|| self.look_up_traits())
    }

    #[cold]
    fn look_up_traits(&self) -> Traits {
        let traits = Traits::of(self.fd());
        #[cfg(ringway_linux)]
        if traits.kind == FileKind::Device {
            let found = self.traits_of_namespace();
            // What is not known now may be known later.
            if found.is_none() && !self.facts().is_complete {
                return traits;
            }
            return self.inner.traits.set_first(found.unwrap_or(traits));
        }
        self.inner.traits.set_first(traits)
    }

    /// Those of an NVMe generic device that can be used.
    #[cfg(ringway_linux)]
    fn traits_of_namespace(&self) -> Option<Traits> {
        let Namespace { id, block_shift, .. } = self.namespace()?.as_ref().ok()?;
        let kind = FileKind::Namespace { id: *id, block_shift: *block_shift };
        Some(Traits { kind, direct: true })
    }

    /// Who makes its transfers, and what is known of them. Waits for no server.
    #[inline]
    pub(crate) fn placement(&self) -> Placement {
        self.inner.traits.placement().unwrap_or_else(|| self.look_up_placement())
    }

    #[cold]
    fn look_up_placement(&self) -> Placement {
        let traits = self.traits();
        let placement = match traits.kind {
            FileKind::Storage => {
                // What is not known now may be known later.
                let Ok((placement, mount)) = Placement::of(self.borrow(), traits.direct) else {
                    return Placement::default();
                };
                // (Whoever has the descriptor may close it before this, and the number of its mount
                // may then become another's.)
                if let Some(mount) = mount.filter(|_| self.inner.owned) {
                    self.inner.mount.get_or_look_up(|| mount);
                }
                placement
            }
            _ => Placement::ANY,
        };
        if self.known_traits().is_some() {
            self.inner.traits.set_placement(placement);
        }
        placement
    }

    /// Whether a direct write with `RWF_DSYNC` ([`op::write_dsync`](crate::op::write_dsync())) is
    /// known to be durable, and to cost no more than a write and an `fdatasync(2)`: on ext4, XFS
    /// and block devices, and on an overlay of these. Elsewhere (on FUSE, for example) the kernel
    /// may never sync. False for a file that is not open for direct I/O.
    pub fn has_dsync(&self) -> bool {
        #[cfg(ringway_linux)]
        return self.placement().has(Placement::DSYNC);
        #[cfg(not(ringway_linux))]
        false
    }

    /// The size of the file, as far as the kernel knows it without asking a server.
    pub(crate) fn size(&self) -> Option<u64> {
        device::size(self.borrow())
    }

    /// The traits, if they were looked up or set before.
    #[inline]
    pub(crate) fn known_traits(&self) -> Option<Traits> {
        self.inner.traits.get()
    }

    /// Sets what is known about the file, if it was not looked up yet.
    pub(crate) fn set_traits(&self, traits: Traits) {
        self.inner.traits.set_first(traits);
    }

    /// Whether the kernel may keep the thread that submits this transfer waiting.
    #[inline]
    pub(crate) fn submission_may_wait(&self, access: Access) -> bool {
        self.is_for_ring() && self.inner.submit_waits.may_wait(self.fd(), access)
    }

    /// Whether a thread is to have the kernel read the list of the file's extents before this
    /// transfer, whose submission may wait.
    #[inline]
    pub(crate) fn has_extents_to_read(&self) -> bool {
        self.inner.submit_waits.has_list_to_read()
    }

    /// Makes the caller the one who has the list of extents read.
    pub(crate) fn begin_reading_extents(&self) -> bool {
        self.inner.submit_waits.begin_list()
    }

    /// The caller of [`Self::begin_reading_extents`] has had the list read, or has given up.
    pub(crate) fn end_reading_extents(&self, are_read: bool) {
        self.inner.submit_waits.end_list(are_read);
    }

    /// Leaves reading the list of the file's extents to its transfers. For a value that is made for
    /// one operation on a descriptor: each would have the whole list read again.
    pub fn leave_extents(&self) {
        self.inner.submit_waits.leave_list();
    }

    /// Whether the file is on a file system that io_uring is known to be right for. Others may ask
    /// a server for what decides whether a transfer waits.
    #[inline]
    fn is_for_ring(&self) -> bool {
        self.placement().has(Placement::RING)
    }

    /// How cached pages are read without waiting; `None` if that may wait now. Does not wait.
    #[inline]
    pub(crate) fn cached_reads(&self) -> Option<CachedReadCall> {
        #[cfg(ringway_linux)]
        if self.placement().has(Placement::IN_MEMORY) && !device::has_swap() {
            return Some(CachedReadCall::Plain);
        } else if self.placement().has(Placement::IN_LAYER) {
            return self.resident_pages().map(|_| CachedReadCall::Resident);
        }
        let may_wait =
            self.is_for_ring() && self.inner.submit_waits.cached_read_may_wait(self.fd());
        (!may_wait).then_some(CachedReadCall::Nowait)
    }

    /// The pages of a file of an overlay, if it is known which are in memory. Does not wait.
    #[cfg(ringway_linux)]
    #[inline]
    fn resident_pages(&self) -> Option<&ResidentPages> {
        let Pages { opened, was_read, resident } = &self.inner.pages;
        // The first read changes the access time, and has the kernel read the list of extents.
        if !was_read.load(Ordering::Relaxed) {
            return None;
        }
        let look_up = || match opened.load(Ordering::Relaxed) {
            0 => None,
            opened => ResidentPages::of(self.borrow(), opened),
        };
        let pages = resident.get_or_look_up(look_up).as_ref()?;
        pages.are_known(self.fd()).then_some(pages)
    }

    /// How many of `len` bytes at `offset` there are, which is fewer at the end of the file, if all
    /// of these are in memory, for a caller who has just got [`CachedReadCall::Resident`]. Does not
    /// wait.
    #[cfg(ringway_linux)]
    #[inline]
    pub(crate) fn resident_len(&self, offset: u64, len: usize) -> Option<usize> {
        self.inner.pages.resident.get()?.as_ref()?.count(self.fd(), offset, len)
    }

    /// Whether [`read_now`](Self::read_now) may find bytes, as far as is known without a try. False
    /// for a file of an overlay, such as the root of a container, until a read of it has completed,
    /// and for one of whose pages nothing can be known. Waits for no server.
    ///
    /// ```
    /// # use ringway_core::{CacheHint, File};
    /// # fn main() -> std::io::Result<()> {
    /// let (file, hint) = (File::open("/etc/passwd")?, CacheHint::default());
    /// let mut bytes = [0; 16];
    /// // What is not tried is no miss.
    /// if file.may_read_now() && hint.should_try() {
    ///     match file.read_now(&mut bytes, 0) {
    ///         Some(_) => hint.hit(),
    ///         None => hint.miss(),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn may_read_now(&self) -> bool {
        #[cfg(ringway_linux)]
        if self.placement().has(Placement::IN_LAYER) {
            let Pages { was_read, resident, .. } = &self.inner.pages;
            return was_read.load(Ordering::Relaxed) && !matches!(resident.get(), Some(None));
        }
        true
    }

    /// Whether [`read_now_partly`](Self::read_now_partly) may keep the thread waiting, also where
    /// it misses: the kernel has to read the list of the file's extents first, or to change its
    /// access time. After a read with a queue, this is false until somebody writes.
    pub fn read_now_may_wait(&self) -> bool {
        self.is_for_ring() && self.inner.submit_waits.try_may_wait(self.fd())
    }

    /// Bytes of the file were written with something else than this value. The next read of the
    /// file may have to change its access time, and [`read_now`](Self::read_now) then leaves it to
    /// a queue. Without the call, a write may go unnoticed for a tick of the kernel's clock.
    pub fn note_written(&self) {
        self.note_completed(true);
    }

    /// The request queue of the file's device. Does not wait.
    #[inline]
    pub(crate) fn request_queue(&self) -> Option<&RequestQueue> {
        self.inner.request_queue.get_or_look_up(|| RequestQueue::of(self.fd())).as_ref()
    }

    /// ringway has opened the file itself, so that it may set `O_NOATIME`.
    pub(crate) fn allow_no_access_times(&self) {
        self.inner.submit_waits.allow_no_access_times();
    }

    /// ringway has opened the file itself, after this [`opening_time`].
    pub(crate) fn opened_after(self, time: u64) -> Self {
        #[cfg(ringway_linux)]
        self.inner.pages.opened.store(time, Ordering::Relaxed);
        #[cfg(not(ringway_linux))]
        let _ = time;
        self
    }

    /// A transfer of the file has completed.
    #[inline]
    pub(crate) fn note_completed(&self, is_write: bool) {
        self.inner.submit_waits.note_completed(is_write);
        // Written once, since all threads share the cache line.
        #[cfg(ringway_linux)]
        if !is_write && !self.inner.pages.was_read.load(Ordering::Relaxed) {
            self.inner.pages.was_read.store(true, Ordering::Relaxed);
        }
    }

    /// Why transfers of this file are made without `RWF_DONTCACHE`, although they have it
    /// ([`Operation::dont_cache`](crate::Operation::dont_cache)): the kernel has refused it for one
    /// of them, which then succeeded without. `None` if that has not happened, so also before the
    /// first such transfer. All clones share it; another open of the same file finds out by itself.
    ///
    /// Reads a few files below `/proc` for the explanation.
    pub fn dont_cache_refusal(&self) -> Option<Refusal> {
        match self.inner.dont_cache_errno.load(Ordering::Relaxed) {
            0 | DONT_CACHE_ACCEPTED => None,
            errno => Some(Refusal::new(Feature::DontCache, errno)),
        }
    }

    /// Whether transfers of this file are made without `RWF_DONTCACHE` from now on:
    /// [`dont_cache_refusal`](Self::dont_cache_refusal) has the reason. Makes no system call.
    #[inline]
    pub fn refuses_dont_cache(&self) -> bool {
        self.inner.dont_cache_errno.load(Ordering::Relaxed) > 0
    }

    /// Whether a transfer of this file with `RWF_DONTCACHE` has succeeded: no error is due to the
    /// flag.
    #[inline]
    pub(crate) fn accepts_dont_cache(&self) -> bool {
        self.inner.dont_cache_errno.load(Ordering::Relaxed) == DONT_CACHE_ACCEPTED
    }

    /// A transfer of this file with `RWF_DONTCACHE` has succeeded.
    #[inline]
    pub(crate) fn note_dont_cache_accepted(&self) {
        // Written once, since all threads share the cache line.
        if !self.accepts_dont_cache() {
            self.inner.dont_cache_errno.store(DONT_CACHE_ACCEPTED, Ordering::Relaxed);
        }
    }

    /// The kernel has refused `RWF_DONTCACHE`, and nothing else, for a transfer of this file.
    pub(crate) fn note_dont_cache_refused(&self, errno: i32) {
        self.inner.dont_cache_errno.store(errno, Ordering::Relaxed);
    }

    /// Clears the flags that are known to be refused.
    #[inline]
    pub(crate) fn without_refused(&self, flags: &mut RwFlags) {
        if flags.has(RwFlags::DONT_CACHE) && self.refuses_dont_cache() {
            flags.clear(RwFlags::DONT_CACHE);
        }
    }

    /// Calls `call` with the standard library's file for the same descriptor.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let file = ringway_core::File::open("/etc/passwd")?;
    /// let len = file.with_std(|file| file.metadata())?.len();
    /// # assert!(len > 0);
    /// # Ok(()) }
    /// ```
    pub fn with_std<R>(&self, call: impl FnOnce(&std::fs::File) -> R) -> R {
        // SAFETY: the descriptor stays open while this value is borrowed, and `ManuallyDrop` keeps
        // the second owner from closing it.
        let file = ManuallyDrop::new(std::fs::File::from(unsafe { sys::owned(self.fd()) }));
        call(&file)
    }

    /// Whether writes go to the end of the file, whatever their offset (`O_APPEND`). Takes one
    /// system call. Errors: EBADF.
    pub fn appends(&self) -> io::Result<bool> {
        #[cfg(unix)]
        {
            // SAFETY: `fcntl` with F_GETFL takes numbers only.
            match unsafe { libc::fcntl(self.fd(), libc::F_GETFL) } {
                ..0 => Err(io::Error::last_os_error()),
                flags => Ok(flags & libc::O_APPEND != 0),
            }
        }
        #[cfg(windows)]
        libc::appends(self.fd())
    }

    /// Takes an exclusive lock for this open file, if no other open file has it locked: `flock(2)`.
    /// The lock ends with the last descriptor of the open file, or with [`unlock`](Self::unlock).
    /// It is advisory, except on Windows, where other open files then cannot read or write the file
    /// (`LockFileEx`).
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("LOCK");
    /// # std::fs::write(&path, b"")?;
    /// use ringway_core::File;
    /// let (file, other) = (File::open(&path)?, File::open(&path)?);
    /// file.try_lock()?;
    /// assert_eq!(other.try_lock().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    /// file.unlock()?;
    /// other.try_lock_shared()
    /// # }
    /// ```
    ///
    /// Errors: WouldBlock if another open file has it locked; those of `flock(2)`.
    pub fn try_lock(&self) -> io::Result<()> {
        self.flock(libc::LOCK_EX | libc::LOCK_NB)
    }

    /// As [`try_lock`](Self::try_lock), but takes a shared lock, which any number of open files can
    /// have.
    pub fn try_lock_shared(&self) -> io::Result<()> {
        self.flock(libc::LOCK_SH | libc::LOCK_NB)
    }

    /// Releases this open file's lock; does nothing without one. Errors: those of `flock(2)`.
    pub fn unlock(&self) -> io::Result<()> {
        self.flock(libc::LOCK_UN)
    }

    fn flock(&self, operation: i32) -> io::Result<()> {
        // SAFETY: the call takes numbers only.
        match unsafe { libc::flock(self.fd(), operation) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The number of the descriptor.
    #[inline]
    pub(crate) fn fd(&self) -> RawFd {
        self.inner.fd
    }

    fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: an owned descriptor stays open while its owner is borrowed; for a borrowed one,
        // the caller of `borrow_raw` promised that it stays what it is. It is not negative.
        unsafe { sys::borrowed(self.inner.fd) }
    }

    /// A number that no other open file has.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> Self {
        Self::make(sys::into_number(fd), true)
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        OwnedFd::from(file).into()
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.borrow()
    }
}

#[cfg(unix)]
impl std::os::fd::AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

#[cfg(windows)]
impl std::os::windows::io::AsHandle for File {
    fn as_handle(&self) -> BorrowedFd<'_> {
        self.borrow()
    }
}

#[cfg(windows)]
impl std::os::windows::io::AsRawHandle for File {
    fn as_raw_handle(&self) -> std::os::windows::io::RawHandle {
        self.fd() as _
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discarded_file_is_closed_in_the_background_wherever_it_is() {
        // (The temporary directory may be a server's.)
        let file = || {
            let file = File::from(OwnedFd::from(std::io::pipe().unwrap().0));
            file.close_in_background();
            file
        };
        assert!(file().is_local());
        assert!(file().into_last_fd().is_some());
        let discarded = file();
        discarded.discard();
        assert!(discarded.into_last_fd().is_none());
    }

    #[cfg(ringway_linux)]
    #[test]
    fn what_has_positions() {
        use std::os::fd::AsRawFd;
        let path = tempfile::NamedTempFile::new().unwrap();
        let (read, written) = (std::fs::File::open(&path).unwrap(), path.as_file());
        let only_written = std::fs::File::options().write(true).open(&path).unwrap();
        let dir = std::fs::File::open("/").unwrap();
        for file in [&read, written, &only_written, &dir] {
            assert!(has_positions(file.as_raw_fd()) && has_offsets(file.as_raw_fd()));
        }
        let (end, other) = std::io::pipe().unwrap();
        for fd in [end.as_raw_fd(), other.as_raw_fd()] {
            assert!(!has_positions(fd) && !has_offsets(fd));
        }
    }

    #[test]
    fn traits_fit_in_a_word() {
        for kind in [
            FileKind::Storage,
            FileKind::Stream,
            FileKind::Device,
            FileKind::Namespace { id: 1, block_shift: 9 },
            FileKind::Namespace { id: u32::MAX, block_shift: u8::MAX },
            FileKind::Unknown,
        ] {
            for direct in [false, true] {
                let (known, traits) = (KnownTraits::default(), Traits { kind, direct });
                assert_eq!((known.get(), known.is_storage()), (None, false));
                assert_eq!(known.set_first(traits), traits);
                assert_eq!(known.is_storage(), kind == FileKind::Storage);
                // The first ones stay.
                let other = Traits { kind: FileKind::Stream, direct: !direct };
                assert_eq!((known.set_first(other), known.get()), (traits, Some(traits)));
                assert_eq!(known.placement(), None);
                known.set_placement(Placement::ANY);
                assert_eq!(known.is_storage(), kind == FileKind::Storage);
                assert_eq!((known.placement(), known.get()), (Some(Placement::ANY), Some(traits)));
            }
        }
    }
}
