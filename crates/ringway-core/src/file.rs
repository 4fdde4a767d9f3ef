//! An open file that operations can share and keep.

use crate::device::{DirectIo, FileFacts};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock, Weak};

/// An open file. Clones share the descriptor, and every operation in flight holds one, so that the
/// number cannot become another file's under it; the descriptor is closed when the last is gone.
///
/// What is learnt about the file (is it open for direct I/O, what does the device take) is kept
/// from the first time it is needed: do not change `O_DIRECT` with `fcntl` on a file that is in use
/// here.
#[derive(Clone, Debug)]
pub struct File {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// At least 0.
    fd: RawFd,
    /// Closed with the last holder.
    owned: bool,
    traits: OnceLock<Traits>,
    facts: OnceLock<FileFacts>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: an owned descriptor was taken out of its `OwnedFd`, and this is the end of
            // its only owner.
            drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
        }
    }
}

/// Knows a [`File`] without holding it. From [`File::downgrade`].
#[derive(Clone, Debug)]
pub struct WeakFile(Weak<Inner>);

impl WeakFile {
    /// The file, while somebody holds it.
    #[inline]
    pub fn upgrade(&self) -> Option<File> {
        self.0.upgrade().map(|inner| File { inner })
    }
}

/// What a descriptor stands for, as far as it decides who may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A regular file or a block device: a transfer ends by itself.
    Storage,
    /// A pipe, a socket ...: a transfer may wait for ever, but can be polled for.
    Stream,
    /// A character device, a terminal for example: as a stream; and a write may wait although it is
    /// not to, and although there is room for a part of it.
    Device,
    /// Nobody has looked.
    Unknown,
}

/// What two cheap system calls tell of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub kind: FileKind,
    pub direct: bool,
}

impl Traits {
    pub fn of(fd: RawFd) -> Self {
        // SAFETY: the call takes numbers only; a descriptor that is not open is answered with
        // EBADF.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        let direct = flags >= 0 && flags & libc::O_DIRECT != 0;
        // SAFETY: `struct stat` is plain numbers, and all zeroes are valid.
        let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` is valid for writes for the length of the call.
        let kind = match unsafe { libc::fstat64(fd, &raw mut stat) } {
            0 => match stat.st_mode & libc::S_IFMT {
                libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR => FileKind::Storage,
                libc::S_IFCHR => FileKind::Device,
                _ => FileKind::Stream,
            },
            // The operation itself will be answered with the right errno.
            _ => FileKind::Storage,
        };
        Self { kind, direct }
    }
}

impl File {
    /// A file over a descriptor that somebody else owns and closes: for interfaces to other
    /// languages. `None` for a negative number.
    ///
    /// # Safety
    ///
    /// For as long as the file or a clone lives, those in operations in flight included, the number
    /// must stay what it is: the same open file, or no open file.
    pub unsafe fn borrow_raw(fd: RawFd) -> Option<Self> {
        (fd >= 0).then(|| Self::make(fd, false))
    }

    fn make(fd: RawFd, owned: bool) -> Self {
        Self {
            inner: Arc::new(Inner { fd, owned, traits: OnceLock::new(), facts: OnceLock::new() }),
        }
    }

    /// A way back to this file for as long as somebody holds it.
    pub fn downgrade(&self) -> WeakFile {
        WeakFile(Arc::downgrade(&self.inner))
    }

    /// The descriptor, to be closed by the caller; the file itself if somebody else holds it too,
    /// or if it was borrowed.
    pub fn into_fd(self) -> Result<OwnedFd, Self> {
        if !self.inner.owned {
            return Err(self);
        }
        let mut inner = Arc::try_unwrap(self.inner).map_err(|inner| Self { inner })?;
        inner.owned = false;
        // SAFETY: it was owned, nobody else has it, and it will not be closed by `inner` any more.
        Ok(unsafe { OwnedFd::from_raw_fd(inner.fd) })
    }

    /// Ends this holder. The descriptor that is to be closed with that, if any: to close it may
    /// take long.
    pub(crate) fn let_go(self) -> Option<OwnedFd> {
        let mut inner = Arc::into_inner(self.inner)?;
        // SAFETY: as in `into_fd`.
        std::mem::take(&mut inner.owned).then(|| unsafe { OwnedFd::from_raw_fd(inner.fd) })
    }

    /// What direct I/O on this file must be aligned to: `statx(2)` where the kernel tells (6.1),
    /// else the device's block size. Asked once; the first call blocks for a system call, or for a
    /// file of sysfs too if no other file on the device has asked.
    pub fn direct_io(&self) -> DirectIo {
        self.facts().direct
    }

    /// Bytes of the largest request that the device below takes undivided; `None` where there is
    /// none. Asked once for all files that are open on the device: the first call blocks for a
    /// system call and a file of sysfs.
    pub fn largest_request(&self) -> Option<u32> {
        self.facts().device.as_ref()?.largest_request()
    }

    fn facts(&self) -> &FileFacts {
        self.inner.facts.get_or_init(|| FileFacts::of(self.as_fd()))
    }

    /// True when the file was opened with `O_DIRECT`.
    pub fn is_direct(&self) -> bool {
        self.traits().direct
    }

    /// True for what is on storage: a regular file, a directory, a block device. Its transfers end
    /// by themselves; those of a pipe, a socket or a terminal may wait for somebody else for ever.
    pub fn is_storage(&self) -> bool {
        self.traits().kind == FileKind::Storage
    }

    pub(crate) fn traits(&self) -> Traits {
        *self.inner.traits.get_or_init(|| Traits::of(self.as_raw_fd()))
    }

    /// A number that is this file's own among all open ones.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> Self {
        Self::make(fd.into_raw_fd(), true)
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        OwnedFd::from(file).into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: an owned descriptor is open for as long as this borrow of its owner; of a
        // borrowed one, whoever made the file promised that the number stays what it is. It is not
        // negative.
        unsafe { BorrowedFd::borrow_raw(self.inner.fd) }
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.fd
    }
}
