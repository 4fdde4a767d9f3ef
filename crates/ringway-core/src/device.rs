//! Facts about a file and its device: the alignment that direct I/O needs, the sizes of untorn
//! writes, and the size and number of requests that the device takes. They are read, not assumed,
//! since a wrong assumption means EINVAL or a slow path.
//!
//! ```
//! use ringway_core::device::PathFacts;
//!
//! # fn main() -> std::io::Result<()> {
//! let facts = PathFacts::of_path("/etc")?;
//! println!("{}: offsets aligned to {}", facts.file_system, facts.direct.offset_align);
//! # Ok(()) }
//! ```

mod alignment;
mod answers;
mod atomic_write;
mod block;
mod file_systems;
mod local;
mod mincore;
mod mount;
mod mounts;
mod nvme;
mod shared;

use crate::refusal::Refusal;
use crate::submit_waits::system::ticks;
use alignment::ASSUMED_ALIGNMENT;
pub use alignment::{AlignmentSource, DirectIo};
use answers::{MOMENT, is_transient};
pub use atomic_write::AtomicWriteUnit;
pub use block::{DeviceFacts, block_device_in_use};
pub(crate) use file_systems::Placement;
use file_systems::{FileTraits, by_magic, by_name};
pub use local::LocalMounts;
pub(crate) use mount::Mount;
pub(crate) use mounts::Mounts;
pub(crate) use nvme::{FLUSH, Namespace, flush};
pub(crate) use shared::{Device, RequestQueue};
use shared::{DeviceNumber, Holder};
use std::ffi::CStr;
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The type of file that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// A character device.
    Character,
    /// A named or unnamed pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A directory.
    Directory,
    /// Anything else: an eventfd, an epoll descriptor and so on.
    Other,
}

impl StorageKind {
    fn of_mode(mode: libc::mode_t) -> Self {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Self::Regular,
            libc::S_IFBLK => Self::Block,
            libc::S_IFCHR => Self::Character,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFDIR => Self::Directory,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for StorageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regular => "regular file",
            Self::Block => "block device",
            Self::Character => "character device",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Directory => "directory",
            Self::Other => "other",
        })
    }
}

/// Facts about a path and its device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct PathFacts {
    /// `ext4`, `xfs`, `tmpfs`, `overlay`; `0x1234` for a magic number without a name.
    pub file_system: String,
    /// The type of file.
    pub kind: StorageKind,
    /// The requirements of direct I/O.
    pub direct: DirectIo,
    /// The sizes of untorn writes of a regular file or a block device; `None` if it has none. They
    /// are not reported for a directory.
    pub atomic_write: Option<AtomicWriteUnit>,
    /// The block device that holds the file, or that the file is; `None` if there is none (tmpfs)
    /// or it is not visible (overlay).
    pub device: Option<DeviceFacts>,
}

impl PathFacts {
    /// Facts about the file that `path` leads to; symbolic links are followed.
    ///
    /// # Errors
    ///
    /// Those of `open(2)` with `O_PATH`: ENOENT, EACCES on a directory of the path, EMFILE. Needs
    /// no permission on the file itself. Does not block on pipes and devices, but does on a network
    /// file system that does not answer.
    pub fn of_path(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
        Self::of_fd(file.as_fd())
    }

    /// Facts about an open descriptor.
    ///
    /// # Errors
    ///
    /// Those of `fstat(2)`; EMFILE, ENFILE or ENOMEM of reading the facts. What cannot be read for
    /// another reason is left out, or assumed and marked so.
    pub fn of_fd(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = fstat(fd)?;
        let magic = file_system_magic(fd);
        let statx = quick_statx(fd, StatxMask::FACTS);
        let mounts = Mounts::of_this_thread()?;
        let mount_id = statx
            .filter(|statx| statx.stx_mask & libc::STATX_MNT_ID != 0)
            .map(|statx| statx.stx_mnt_id);
        let mounted = mounts.of_file(mount_id, number(stat.st_dev));
        let inode = Inode::of(&stat);
        let device = match inode.block_device(fd)? {
            Some((major, minor)) => DeviceFacts::read(major, minor)?,
            None => None,
        };
        let block_size = device.as_ref().and_then(|device| device.logical_block_size);
        let direct = statx_alignment(statx.as_ref())
            .map_or_else(|| derived_alignment(fd, inode.kind, block_size), Ok)?;
        let takes_whole_pages = match &device {
            Some(device) => match block::takes_whole_pages(device.major, device.minor) {
                Ok(found) => found.required,
                Err(error) if is_transient(&error) => return Err(error),
                Err(error) => block::assumed_whole_pages(&error),
            },
            None => false,
        };
        Ok(Self {
            file_system: match mounted {
                Some(mount) => mount.file_system.clone(),
                None => file_system_name(magic),
            },
            kind: inode.kind,
            direct: if takes_whole_pages { in_whole_pages(direct) } else { direct },
            atomic_write: statx.as_ref().and_then(AtomicWriteUnit::of_statx),
            device,
        })
    }
}

/// The requirements of direct I/O on `fd`. Takes one system call where the kernel reports them (6.1
/// and newer, most file systems), otherwise a few more and a sysfs file. For a descriptor that
/// cannot be examined, a default with `supported: false`.
pub fn direct_alignment(fd: BorrowedFd<'_>) -> DirectIo {
    FileFacts::of(fd).direct(fd)
}

/// The sizes of untorn writes of an open file; `None` if it has none. Takes one system call.
pub(crate) fn atomic_write_unit(fd: BorrowedFd<'_>) -> Option<AtomicWriteUnit> {
    AtomicWriteUnit::of_statx(&quick_statx(fd, libc::STATX_WRITE_ATOMIC)?)
}

/// Bytes of the largest request that the device of a regular file or block device takes without
/// splitting it (`max_sectors_kb`). `None` if there is no such device: tmpfs, overlay, network file
/// systems, pipes. Opens one sysfs file.
pub fn largest_request(fd: BorrowedFd<'_>) -> Option<u32> {
    FileFacts::of(fd).device()?.largest_request()
}

/// Whether a path leads to an NVMe generic device (`/dev/ng0n1`), which is not opened.
pub(crate) fn is_nvme_generic(path: &Path) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path);
    let stat = opened.and_then(|file| fstat(file.as_fd()));
    stat.is_ok_and(|stat| nvme::name(&Inode::of(&stat)).is_some())
}

/// The facts that a queue needs about a file. Files of one device share its facts.
#[derive(Debug)]
pub(crate) struct FileFacts {
    /// The alignment, if the driver takes any memory.
    direct: DirectIo,
    pub atomic_write: Option<AtomicWriteUnit>,
    /// Bytes of the file system's block; 0 if unknown.
    pub block: u32,
    /// The device of a regular file or block device, or of what holds a directory.
    device: Option<Arc<Device>>,
    kind: StorageKind,
    /// The mount of the file, if the kernel has numbers of mounts that it never uses again (6.8).
    mount: Option<u64>,
    /// The namespace of an NVMe generic device, or why it cannot be used.
    pub namespace: Option<Result<Namespace, Refusal>>,
    /// Nothing could not be read, for want of a descriptor for example.
    pub is_complete: bool,
}

impl FileFacts {
    /// How long they are kept if they are not complete, in units of [`now`].
    pub const PAUSE: u64 = MOMENT;

    /// Takes one system call where the kernel reports the alignment, more for the first file of a
    /// file system on several devices, for a character device, and for an NVMe generic device also
    /// a command to its controller. Waits for no server, except to learn whether a file that is not
    /// open for direct I/O supports it.
    pub fn of(fd: BorrowedFd<'_>) -> Self {
        let statx = quick_statx(fd, StatxMask::FACTS | StatxMask::UNIQUE_MOUNT);
        let alignment = statx_alignment(statx.as_ref());
        let atomic_write = statx.as_ref().and_then(AtomicWriteUnit::of_statx);
        let block = statx.as_ref().map_or(0, |statx| statx.stx_blksize);
        let inode = statx
            .and_then(|statx| Inode::of_statx(&statx))
            .map_or_else(|| fstat(fd).map(|stat| Inode::of(&stat)), Ok);
        let Ok(inode) = inode else {
            return Self {
                direct: alignment.unwrap_or(DirectIo { supported: false, ..ASSUMED_ALIGNMENT }),
                atomic_write,
                block,
                device: None,
                kind: StorageKind::Other,
                mount: None,
                namespace: None,
                is_complete: true,
            };
        };
        let found = inode.block_device(fd);
        let number = found.as_ref().ok().copied().flatten();
        let device = inode.number().zip(number).map(|(files, number)| Device::of(files, number));
        let namespace = nvme::namespace(fd, &inode);
        // A character device reports no alignment.
        let alignment = alignment.filter(|_| inode.kind != StorageKind::Character);
        let derived = || {
            let size = match (&namespace, &device) {
                (Some(Ok(namespace)), _) => Some(Some(1 << namespace.block_shift)),
                (_, Some(device)) => device.block_size(),
                (_, None) => Some(None),
            };
            let derived = derived_alignment(fd, inode.kind, size.flatten());
            (derived, size.is_some())
        };
        let (direct, is_known) = match alignment {
            Some(reported) => (Ok(reported), true),
            None => derived(),
        };
        let is_complete = found.is_ok() && is_known && direct.is_ok() && is_final(&namespace);
        let unknown = |_| DirectIo { supported: device.is_some(), ..ASSUMED_ALIGNMENT };
        let mount = statx.filter(|statx| statx.stx_mask & StatxMask::UNIQUE_MOUNT != 0);
        Self {
            direct: direct.unwrap_or_else(unknown),
            atomic_write,
            block,
            device,
            kind: inode.kind,
            mount: mount.map(|statx| statx.stx_mnt_id),
            namespace,
            is_complete,
        }
    }

    /// The alignment that direct I/O needs of offsets and lengths. The driver does not change it.
    pub fn offset_align(&self) -> u32 {
        self.direct.offset_align
    }

    /// Whether the alignment is only assumed.
    pub fn is_align_assumed(&self) -> bool {
        self.direct.source == AlignmentSource::Assumed
    }

    /// The alignment that direct I/O on the file, which these are the facts of, needs.
    pub fn direct(&self, fd: BorrowedFd<'_>) -> DirectIo {
        if self.takes_whole_pages(fd) { in_whole_pages(self.direct) } else { self.direct }
    }

    /// Whether the driver of the device of the file takes memory in whole pages only, and does not
    /// refuse others. Takes system calls for the first file of a driver, for the first one on a
    /// stacked device, and there again after a moment.
    pub fn takes_whole_pages(&self, fd: BorrowedFd<'_>) -> bool {
        // (Before 5.15, what is asked for the number of a disk would reach its driver.)
        let holder = || match self.kind {
            StorageKind::Block => self.mount.and_then(|_| disk_sequence(fd)).map(Holder::Disk),
            _ => self.mount.map(Holder::Mount),
        };
        match &self.device {
            Some(device) => device.takes_whole_pages(holder),
            // It may be any.
            None => !self.is_complete,
        }
    }

    /// The device of a regular file or block device.
    pub fn device(&self) -> Option<&Device> {
        // (That of a directory only serves to derive the alignment.)
        self.device.as_deref().filter(|_| self.kind != StorageKind::Directory)
    }
}

/// Whether another look at a namespace would show the same.
fn is_final(namespace: &Option<Result<Namespace, Refusal>>) -> bool {
    let refusal = namespace.as_ref().and_then(|namespace| namespace.as_ref().err());
    refusal.is_none_or(|refusal| !is_transient(&io::Error::from_raw_os_error(refusal.errno)))
}

/// The time in nanoseconds. Reading it is no system call.
pub(crate) fn now() -> u64 {
    ticks()
}

/// The alignment that the kernel reports for this file.
fn statx_alignment(statx: Option<&libc::statx>) -> Option<DirectIo> {
    let statx = statx.filter(|statx| statx.stx_mask & libc::STATX_DIOALIGN != 0)?;
    // Both are zero for a file without direct I/O (encrypted, stored in the inode, and so on).
    let supported = statx.stx_dio_mem_align != 0 && statx.stx_dio_offset_align != 0;
    Some(if supported {
        DirectIo {
            supported,
            memory_align: statx.stx_dio_mem_align,
            offset_align: statx.stx_dio_offset_align,
            source: AlignmentSource::Statx,
        }
    } else {
        DirectIo { supported, source: AlignmentSource::Statx, ..ASSUMED_ALIGNMENT }
    })
}

/// The alignment where the kernel does not report it: the device's logical block size, which is
/// enough for offsets, lengths and addresses since Linux 2.6. `block` is `None` if there is no
/// device. Errors: those after which another try may succeed.
fn derived_alignment(
    fd: BorrowedFd<'_>,
    kind: StorageKind,
    block: Option<u32>,
) -> io::Result<DirectIo> {
    let aligned = match block {
        Some(block) => DirectIo {
            memory_align: block,
            offset_align: block,
            source: AlignmentSource::BlockDevice,
            ..ASSUMED_ALIGNMENT
        },
        None => ASSUMED_ALIGNMENT,
    };
    let supported = match kind {
        StorageKind::Regular => opens_direct(fd)?.unwrap_or(block.is_some()),
        StorageKind::Block => true,
        // (Of character devices, only namespaces have blocks.)
        StorageKind::Directory | StorageKind::Character => block.is_some(),
        StorageKind::Fifo | StorageKind::Socket | StorageKind::Other => false,
    };
    Ok(DirectIo { supported, ..aligned })
}

/// The requirements on a device whose driver takes memory in whole pages only. What was assumed
/// stays assumed.
fn in_whole_pages(direct: DirectIo) -> DirectIo {
    let source = match direct.source {
        AlignmentSource::Assumed => AlignmentSource::Assumed,
        _ => AlignmentSource::Driver,
    };
    let memory_align = direct.memory_align.max(ASSUMED_ALIGNMENT.memory_align);
    DirectIo { memory_align, source, ..direct }
}

/// Whether the regular file behind `fd` can be opened with `O_DIRECT`; `None` if trying does not
/// show it (no read permission, no `/proc`). Errors: those after which another try may succeed.
fn opens_direct(fd: BorrowedFd<'_>) -> io::Result<Option<bool>> {
    // SAFETY: F_GETFL reads flags of a descriptor that the borrow keeps open.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    if flags >= 0 && flags & libc::O_DIRECT != 0 {
        return Ok(Some(true));
    }
    let reopened = OpenOptions::new()
        .read(true)
        // With a lease on the file this fails with EWOULDBLOCK instead of waiting.
        .custom_flags(libc::O_DIRECT | libc::O_NONBLOCK)
        .open(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()));
    match reopened {
        Ok(_) => Ok(Some(true)),
        Err(error) if is_transient(&error) => Err(error),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINVAL | libc::EOPNOTSUPP) => Ok(Some(false)),
            _ => Ok(None),
        },
    }
}

/// The type and the device numbers of an inode.
#[derive(Clone, Copy, Debug)]
struct Inode {
    kind: StorageKind,
    /// The device that holds the file.
    device: DeviceNumber,
    /// The device that the file is.
    special: DeviceNumber,
}

impl Inode {
    fn of(stat: &libc::stat) -> Self {
        let (device, special) = (number(stat.st_dev), number(stat.st_rdev));
        Self { kind: StorageKind::of_mode(stat.st_mode), device, special }
    }

    /// `None` if the type was not reported.
    fn of_statx(statx: &libc::statx) -> Option<Self> {
        (statx.stx_mask & libc::STATX_TYPE != 0).then(|| Self {
            kind: StorageKind::of_mode(statx.stx_mode.into()),
            device: (statx.stx_dev_major, statx.stx_dev_minor),
            special: (statx.stx_rdev_major, statx.stx_rdev_minor),
        })
    }

    /// The number that all files of a device share; `None` for files without a device.
    fn number(&self) -> Option<DeviceNumber> {
        match self.kind {
            StorageKind::Block => Some(self.special),
            StorageKind::Regular | StorageKind::Directory => Some(self.device),
            StorageKind::Character
            | StorageKind::Fifo
            | StorageKind::Socket
            | StorageKind::Other => None,
        }
    }

    /// The block device that holds the file, or that the file is. Errors: those after which another
    /// try may succeed.
    fn block_device(&self, fd: BorrowedFd<'_>) -> io::Result<Option<DeviceNumber>> {
        let Some(number) = self.number() else { return Ok(None) };
        if number.0 != 0 {
            return Ok(Some(number));
        }
        // A file system that may be on several devices gives its files anonymous numbers (btrfs one
        // for each subvolume); the mount names one of the devices.
        let Some(mount) = Mount::of(fd)? else { return Ok(None) };
        let is_on_devices = |name| [Some("btrfs"), Some("bcachefs")].contains(&name);
        if is_on_devices(mount.file_system.map(|known| known.name)) {
            return mount.block_device(fd);
        }
        Ok(None)
    }
}

fn number(device: libc::dev_t) -> DeviceNumber {
    (libc::major(device), libc::minor(device))
}

/// The sequence number of the disk that a block device is or is part of, which no other disk ever
/// has; `None` before kernel 5.15.
fn disk_sequence(fd: BorrowedFd<'_>) -> Option<u64> {
    /// `_IOR(0x12, 128, __u64)`.
    const BLKGETDISKSEQ: libc::Ioctl = 0x8008_1280_u32 as libc::Ioctl;
    let mut number = 0u64;
    // SAFETY: on success the kernel writes one `u64` into `number`; the borrow keeps `fd` open.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), BLKGETDISKSEQ, &raw mut number) };
    (result == 0).then_some(number)
}

fn fstat(fd: BorrowedFd<'_>) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: on success fstat writes a whole `stat` into `stat`, and nothing else; the borrow
    // keeps `fd` open.
    if unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fstat succeeded, so the value is initialised.
    Ok(unsafe { stat.assume_init() })
}

/// What `statx(2)` is asked for.
struct StatxMask;

impl StatxMask {
    /// `STATX_MNT_ID_UNIQUE` (6.8).
    const UNIQUE_MOUNT: u32 = 0x4000;
    const FACTS: u32 =
        libc::STATX_TYPE | libc::STATX_DIOALIGN | libc::STATX_MNT_ID | libc::STATX_WRITE_ATOMIC;
}

/// `statx(2)` with what the kernel has in memory, so that it waits for no server (FUSE, NFS, CIFS
/// and Ceph; 9p asks its server nevertheless). `None` if the system call is missing or refused
/// (kernels before 4.11, seccomp).
fn quick_statx(fd: BorrowedFd<'_>, mask: u32) -> Option<libc::statx> {
    const EMPTY: &CStr = c"";
    let mut statx = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is a C string, and the kernel writes at most one `statx` into `statx`; the
    // borrow keeps `fd` open.
    let result = unsafe {
        libc::statx(
            fd.as_raw_fd(),
            EMPTY.as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC,
            mask,
            statx.as_mut_ptr(),
        )
    };
    // SAFETY: every bit pattern is a valid `statx`, and the value was zeroed.
    (result == 0).then(|| unsafe { statx.assume_init() })
}

/// The type bits and permissions of an open file. Waits for no server, except where `statx(2)` is
/// refused. Errors: those of `fstat(2)`.
pub(crate) fn mode(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let statx = quick_statx(fd, libc::STATX_TYPE);
    match statx.filter(|statx| statx.stx_mask & libc::STATX_TYPE != 0) {
        Some(statx) => Ok(statx.stx_mode.into()),
        None => fstat(fd).map(|stat| stat.st_mode),
    }
}

/// The size of an open file, as far as the kernel knows it without asking a server.
pub(crate) fn size(fd: BorrowedFd<'_>) -> Option<u64> {
    let statx = quick_statx(fd, libc::STATX_SIZE)?;
    (statx.stx_mask & libc::STATX_SIZE != 0).then_some(statx.stx_size)
}

impl Placement {
    /// The placement of an open regular file or block device. Waits for no server. While the mount
    /// is held, that of another file on it is found without reading the mounts; it must be dropped
    /// before the file is closed.
    ///
    /// Errors: those after which another try may succeed (EMFILE).
    pub fn of(fd: BorrowedFd<'_>, direct: bool) -> io::Result<(Self, Option<Arc<Mount>>)> {
        let statx = quick_statx(fd, StatxMask::FACTS);
        let reported = statx_alignment(statx.as_ref()).is_some_and(|found| found.supported);
        let kind = statx.and_then(|statx| Inode::of_statx(&statx)).map(|inode| inode.kind);
        let (file_system, mount) = match kind {
            // It is what the device does that counts, not what its name is stored on.
            Some(StorageKind::Block) => (by_name("bdev"), None),
            _ => {
                let mount = Mount::of(fd)?;
                (mount.as_ref().and_then(|mount| mount.file_system), mount)
            }
        };
        let has_whole_files = mount.as_ref().is_some_and(|mount| mount.has_whole_files);
        let in_layer = has_whole_files && reported && mincore::is_allowed();
        let mount = mount.filter(|mount| mount.is_reused());
        let Some(file_system) = file_system else { return Ok((Self::default(), mount)) };
        let nocow = file_system.asks_for_nocow() && is_nocow(fd);
        let placement = file_system.place(FileTraits { direct, reported, nocow });
        let is_buffered = kind == Some(StorageKind::Regular) && !direct;
        let placement = placement
            .with(Self::IN_MEMORY, is_buffered && file_system.name == "tmpfs")
            .with(Self::IN_LAYER, is_buffered && in_layer);
        Ok((placement, mount))
    }
}

/// Whether the machine has swap space, so that pages of files in memory may not be in memory.
/// Asked once in a tick of the kernel's clock.
pub(crate) fn has_swap() -> bool {
    /// The time, with its lowest bit for the answer.
    static KNOWN: AtomicU64 = AtomicU64::new(1);
    let now = ticks() & !1;
    let known = KNOWN.load(Ordering::Relaxed);
    if known & !1 == now {
        return known & 1 != 0;
    }
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: sysinfo writes at most a whole `sysinfo` into `info`.
    let result = unsafe { libc::sysinfo(info.as_mut_ptr()) };
    // SAFETY: every bit pattern is a valid `sysinfo`, and the value was zeroed.
    let found = result != 0 || unsafe { info.assume_init() }.totalswap != 0;
    KNOWN.store(now | u64::from(found), Ordering::Relaxed);
    found
}

/// Whether the file has no copy-on-write (`chattr +C`).
fn is_nocow(fd: BorrowedFd<'_>) -> bool {
    const FS_NOCOW_FL: libc::c_int = 0x0080_0000;
    inode_flags(fd) & FS_NOCOW_FL != 0
}

/// The attributes of an open file (`lsattr(1)`); 0 if it has none. A FUSE program would be asked.
pub(crate) fn inode_flags(fd: BorrowedFd<'_>) -> libc::c_int {
    let mut flags: libc::c_long = 0;
    // SAFETY: the kernel writes an int into `flags`, which is at least as long, and nothing else;
    // the borrow keeps `fd` open.
    let got = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) };
    let [a, b, c, d, ..] = flags.to_ne_bytes();
    if got == 0 { libc::c_int::from_ne_bytes([a, b, c, d]) } else { 0 }
}

/// The magic number of the file system; 0 if it cannot be read.
fn file_system_magic(fd: BorrowedFd<'_>) -> u32 {
    let mut statfs = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: on success fstatfs writes a whole `statfs` into `statfs`; the borrow keeps `fd` open.
    if unsafe { libc::fstatfs(fd.as_raw_fd(), statfs.as_mut_ptr()) } != 0 {
        return 0;
    }
    // SAFETY: fstatfs succeeded, so the value is initialised.
    let statfs = unsafe { statfs.assume_init() };
    // Magic numbers are 32 bits in a field whose type differs between architectures.
    statfs.f_type as u32
}

/// The name of the file system with this magic number (`statfs(2)`), for files on no mount of this
/// namespace.
fn file_system_name(magic: u32) -> String {
    match by_magic(magic) {
        Some(known) => known.name.to_owned(),
        None if magic == 0 => "unknown".to_owned(),
        None => format!("{magic:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Feature;
    use std::fs::File;

    #[test]
    fn a_regular_file_has_a_file_system_and_an_alignment() {
        let file = tempfile::tempfile().unwrap();
        let facts = PathFacts::of_fd(file.as_fd()).unwrap();
        assert_eq!(facts.kind, StorageKind::Regular);
        assert!(!facts.file_system.is_empty());
        assert!(facts.direct.memory_align.is_power_of_two());
        assert!(facts.direct.offset_align.is_power_of_two());
        assert_eq!(facts.direct, direct_alignment(file.as_fd()));
        assert_eq!(facts.direct.offset_align, FileFacts::of(file.as_fd()).offset_align());
        assert_eq!(
            largest_request(file.as_fd()),
            facts.device.and_then(|device| device.max_sectors_kb).map(|kb| kb * 1024)
        );
    }

    /// A file that stays open would else be none of a namespace for ever.
    #[test]
    fn a_namespace_that_could_not_be_read_is_read_again() {
        let refused = |errno| Some(Err(Refusal::new(Feature::Passthrough, errno)));
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EINTR] {
            assert!(!is_final(&refused(errno)), "errno {errno}");
        }
        for errno in [libc::EACCES, libc::ENOTTY, libc::EIO, libc::EOPNOTSUPP] {
            assert!(is_final(&refused(errno)), "errno {errno}");
        }
        assert!(is_final(&None));
    }

    #[test]
    fn pipes_and_character_devices_have_no_direct_io() {
        let null = PathFacts::of_path(Path::new("/dev/null")).unwrap();
        assert_eq!(null.kind, StorageKind::Character);
        assert!(!null.direct.supported);
        assert_eq!(null.device, None);

        let (reader, _writer) = io::pipe().unwrap();
        let pipe = PathFacts::of_fd(reader.as_fd()).unwrap();
        assert_eq!((pipe.kind, pipe.file_system.as_str()), (StorageKind::Fifo, "pipefs"));
        assert_eq!(largest_request(reader.as_fd()), None);
    }

    #[test]
    fn proc_has_no_device_and_no_direct_io() {
        let file = File::open("/proc/self/status").unwrap();
        let facts = PathFacts::of_fd(file.as_fd()).unwrap();
        assert_eq!(facts.file_system, "proc");
        assert!(!facts.direct.supported);
        assert_eq!(facts.device, None);
        assert_eq!(largest_request(file.as_fd()), None);
    }

    #[test]
    fn a_missing_path_is_an_error() {
        let error = PathFacts::of_path(Path::new("/no/such/path")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn an_alignment_of_zero_means_no_direct_io() {
        // SAFETY: every bit pattern is a valid `statx`.
        let mut statx: libc::statx = unsafe { MaybeUninit::zeroed().assume_init() };
        assert_eq!(statx_alignment(Some(&statx)), None);
        statx.stx_mask = libc::STATX_DIOALIGN;
        assert!(!statx_alignment(Some(&statx)).unwrap().supported);
        (statx.stx_dio_mem_align, statx.stx_dio_offset_align) = (4, 512);
        assert_eq!(
            statx_alignment(Some(&statx)),
            Some(DirectIo {
                supported: true,
                memory_align: 4,
                offset_align: 512,
                source: AlignmentSource::Statx
            })
        );
    }

    #[test]
    fn an_unknown_magic_number_is_printed() {
        assert_eq!(file_system_name(0x1234_5678), "0x12345678");
        assert_eq!(file_system_name(0x5846_5342), "xfs");
    }
}
