//! Reads a file's metadata: `statx(2)`.

use super::{Operation, Resources, SubmissionForms, syscall_result};
use crate::File;
use crate::device::AtomicWriteUnit;
use crate::sys::{RawFd, libc};
use std::fmt;
#[cfg(unix)]
use std::fs::Permissions;
use std::io;
#[cfg(unix)]
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Metadata of `path`, relative to the working directory; symbolic links are followed.
///
/// The completion returns it ([`Completion::into_metadata`](crate::Completion::into_metadata)).
/// Errors: those of `statx(2)`; EINVAL, before anything is submitted, for a path with a NUL byte.
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut queue = Options::new().build()?;
/// queue.push(op::statx("/etc/passwd"))?;
/// println!("{} bytes", queue.reap(1)?.next().unwrap().into_metadata()?.len());
/// # Ok(()) }
/// ```
pub fn statx(path: impl AsRef<Path>) -> Operation {
    make(None, path.as_ref(), 0)
}

/// As [`statx`], but of a symbolic link itself if `path` names one: `lstat(2)`.
pub fn lstat(path: impl AsRef<Path>) -> Operation {
    make(None, path.as_ref(), libc::AT_SYMLINK_NOFOLLOW)
}

/// Metadata of `path` relative to the directory `dir`, or of `dir` itself (any open file) if `path`
/// is empty.
///
/// `flags` are the `AT_*` flags of `statx(2)`: `AT_SYMLINK_NOFOLLOW`, `AT_STATX_DONT_SYNC` and so
/// on.
pub fn statx_at(dir: &File, path: impl AsRef<Path>, flags: i32) -> Operation {
    let empty = if path.as_ref().as_os_str().is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    make(Some(dir), path.as_ref(), flags | empty)
}

/// As [`statx_at`], but of a symbolic link itself if `path` names one.
pub fn lstat_at(dir: &File, path: impl AsRef<Path>) -> Operation {
    statx_at(dir, path, libc::AT_SYMLINK_NOFOLLOW)
}

/// What is asked for in addition if the file is open.
#[cfg(ringway_linux)]
const OPEN_FILE: u32 = libc::STATX_WRITE_ATOMIC;
#[cfg(not(ringway_linux))]
const OPEN_FILE: u32 = 0;

fn make(dir: Option<&File>, path: &Path, flags: i32) -> Operation {
    let mut buffer = Box::new(Metadata::empty());
    let statx = &raw mut buffer.0;
    let more = if flags & libc::AT_EMPTY_PATH != 0 { OPEN_FILE } else { 0 };
    let mut operation = Operation::with_path((dir, path), |dir, path| Statx {
        dir,
        path,
        flags,
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME | more,
        buffer: statx,
    });
    operation.resources = match operation.resources {
        Resources::Paths(paths) => Resources::Statx { _paths: paths, metadata: buffer },
        other => other,
    };
    operation
}

/// `statx(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Statx {
    /// The directory, or `AT_FDCWD`.
    pub dir: RawFd,
    /// The path.
    pub path: *const libc::c_char,
    /// `AT_*`.
    pub flags: i32,
    /// `STATX_*`.
    pub mask: u32,
    /// The address for the result.
    pub buffer: *mut libc::statx,
}

impl SubmissionForms for Statx {
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_on_path(&self) -> bool {
        true
    }

    fn call(&self) -> i64 {
        // SAFETY: the operation, or the caller of `from_raw`, keeps `path` a valid C string and
        // `buffer` valid for writes until the completion.
        let result = syscall_result(i64::from(unsafe {
            libc::statx(self.dir, self.path, self.flags, self.mask, self.buffer)
        }));
        #[cfg(ringway_linux)]
        if [libc::ENOSYS, libc::EPERM].map(|errno| -i64::from(errno)).contains(&result) {
            return self.fstatat();
        }
        result
    }
}

#[cfg(ringway_linux)]
impl Statx {
    /// As `statx(2)`, where a filter refuses that (old profiles of containers do): without a
    /// creation time.
    fn fstatat(&self) -> i64 {
        const KEPT: i32 = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH;
        // SAFETY: `struct stat` is plain numbers, for which all zeroes are valid.
        let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
        // SAFETY: as in `call`; `stat` is live during the call.
        let result = syscall_result(i64::from(unsafe {
            libc::fstatat64(self.dir, self.path, &raw mut stat, self.flags & KEPT)
        }));
        if result == 0 {
            // SAFETY: as in `call`.
            unsafe { self.buffer.write(statx_of(&stat)) };
        }
        result
    }
}

/// What `statx(2)` would return, as far as `stat` has it.
#[cfg(ringway_linux)]
fn statx_of(stat: &libc::stat64) -> libc::statx {
    // SAFETY: `struct statx` is plain numbers, for which all zeroes are valid.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    let set = |time: &mut libc::statx_timestamp, seconds: i64, nanoseconds: i64| {
        time.tv_sec = seconds;
        time.tv_nsec = nanoseconds as u32;
    };
    set(&mut statx.stx_atime, stat.st_atime as _, stat.st_atime_nsec as _);
    set(&mut statx.stx_mtime, stat.st_mtime as _, stat.st_mtime_nsec as _);
    set(&mut statx.stx_ctime, stat.st_ctime as _, stat.st_ctime_nsec as _);
    statx.stx_mask = libc::STATX_BASIC_STATS;
    statx.stx_blksize = stat.st_blksize as _;
    statx.stx_nlink = stat.st_nlink as _;
    (statx.stx_uid, statx.stx_gid) = (stat.st_uid, stat.st_gid);
    statx.stx_mode = stat.st_mode as _;
    statx.stx_ino = stat.st_ino as _;
    statx.stx_size = stat.st_size as _;
    statx.stx_blocks = stat.st_blocks as _;
    (statx.stx_dev_major, statx.stx_dev_minor) =
        (libc::major(stat.st_dev), libc::minor(stat.st_dev));
    (statx.stx_rdev_major, statx.stx_rdev_minor) =
        (libc::major(stat.st_rdev), libc::minor(stat.st_rdev));
    statx
}

/// Metadata of a file, as `statx(2)` reports it. The numbers ([`ino`](MetadataExt::ino),
/// [`uid`](MetadataExt::uid) and so on) come with [`std::os::unix::fs::MetadataExt`], where the
/// system has it.
#[derive(Clone, Copy)]
pub struct Metadata(pub(crate) libc::statx);

impl Metadata {
    fn empty() -> Self {
        // SAFETY: `struct statx` is plain numbers, for which all zeroes are valid.
        Self(unsafe { std::mem::zeroed() })
    }

    #[cfg(ringway_linux)]
    /// The metadata of an open file as far as this machine knows it, with its mount: no server is
    /// asked. Errors: those of `statx(2)`.
    pub(crate) fn of_file_now(file: &File) -> io::Result<Self> {
        let mut metadata = Self::empty();
        let statx = Statx {
            dir: file.fd(),
            path: c"".as_ptr(),
            flags: libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC,
            mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID,
            buffer: &raw mut metadata.0,
        };
        // (Not `call`: what replaces a refused statx knows no mount.)
        // SAFETY: the path is a C string, and the metadata is live during the call.
        let found =
            unsafe { libc::statx(statx.dir, statx.path, statx.flags, statx.mask, statx.buffer) };
        match found {
            0 => Ok(metadata),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The id of the file's mount (`/proc/self/mountinfo`), if this metadata is that of
    /// [`OpenOptions::open_now`](crate::OpenOptions::open_now) or
    /// [`metadata_now`](crate::op::metadata_now).
    pub fn mount_id(&self) -> Option<u64> {
        (self.0.stx_mask & libc::STATX_MNT_ID != 0).then_some(self.0.stx_mnt_id)
    }

    /// The sizes of untorn writes of the file ([`Operation::untorn`]), if this metadata is that of
    /// an open file ([`statx_at`] with an empty path) and it has such writes.
    pub fn atomic_write_unit(&self) -> Option<AtomicWriteUnit> {
        #[cfg(ringway_linux)]
        return AtomicWriteUnit::of_statx(&self.0);
        #[cfg(not(ringway_linux))]
        None
    }

    /// Whether this is the same file, whatever its name: the same number on the same device. On
    /// Windows only the metadata of open files ([`statx_at`] with an empty path) has a number; for
    /// others this is false.
    ///
    /// ```
    /// # use ringway_core::{File, op, Options};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut queue = Options::new().build()?;
    /// for _ in 0..2 {
    ///     queue.push(op::statx_at(&File::open("/etc/passwd")?, "", 0))?;
    /// }
    /// let mut found = queue.reap(2)?.map(|done| done.into_metadata());
    /// let (one, two) = (found.next().unwrap()?, found.next().unwrap()?);
    /// assert!(one.is_same_file(&two));
    /// # Ok(()) }
    /// ```
    pub fn is_same_file(&self, other: &Self) -> bool {
        #[cfg(unix)]
        return (self.dev(), self.ino()) == (other.dev(), other.ino());
        #[cfg(windows)]
        return self.0.stx_id != libc::NO_ID && self.0.stx_id == other.0.stx_id;
    }

    /// The length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.0.stx_size
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Type and permissions, as in `stat(2)`.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.stx_mode)
    }

    /// The type of the file.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode())
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// True for a symbolic link, which only [`lstat`] and `AT_SYMLINK_NOFOLLOW` report.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// The permissions.
    #[cfg(unix)]
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode())
    }

    /// The last modification time. Errors: `InvalidData` for a time outside the range of
    /// [`SystemTime`].
    pub fn modified(&self) -> io::Result<SystemTime> {
        time(&self.0.stx_mtime)
    }

    /// The last access time, as far as the file system records it (`noatime`, `relatime`). Errors:
    /// as for [`modified`](Self::modified).
    pub fn accessed(&self) -> io::Result<SystemTime> {
        time(&self.0.stx_atime)
    }

    /// The creation time. Errors: `Unsupported` if the file system does not record it; otherwise as
    /// for [`modified`](Self::modified).
    pub fn created(&self) -> io::Result<SystemTime> {
        match self.0.stx_mask & libc::STATX_BTIME {
            0 => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the file system does not record creation times",
            )),
            _ => time(&self.0.stx_btime),
        }
    }

    /// The complete result of `statx(2)`.
    #[cfg(any(ringway_linux, feature = "testing"))]
    pub fn as_raw_statx(&self) -> &libc::statx {
        &self.0
    }
}

/// Converts a timestamp of the kernel: before 1970 the seconds are negative, the nanoseconds are
/// not.
fn time(timestamp: &libc::statx_timestamp) -> io::Result<SystemTime> {
    let seconds = Duration::from_secs(timestamp.tv_sec.unsigned_abs());
    let whole = match timestamp.tv_sec {
        0.. => SystemTime::UNIX_EPOCH.checked_add(seconds),
        _ => SystemTime::UNIX_EPOCH.checked_sub(seconds),
    };
    whole
        .and_then(|whole| whole.checked_add(Duration::from_nanos(u64::from(timestamp.tv_nsec))))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(unix)]
impl MetadataExt for Metadata {
    fn dev(&self) -> u64 {
        libc::makedev(self.0.stx_dev_major, self.0.stx_dev_minor)
    }

    fn ino(&self) -> u64 {
        self.0.stx_ino
    }

    fn mode(&self) -> u32 {
        self.mode()
    }

    fn nlink(&self) -> u64 {
        u64::from(self.0.stx_nlink)
    }

    fn uid(&self) -> u32 {
        self.0.stx_uid
    }

    fn gid(&self) -> u32 {
        self.0.stx_gid
    }

    fn rdev(&self) -> u64 {
        libc::makedev(self.0.stx_rdev_major, self.0.stx_rdev_minor)
    }

    fn size(&self) -> u64 {
        self.len()
    }

    fn atime(&self) -> i64 {
        self.0.stx_atime.tv_sec
    }

    fn atime_nsec(&self) -> i64 {
        i64::from(self.0.stx_atime.tv_nsec)
    }

    fn mtime(&self) -> i64 {
        self.0.stx_mtime.tv_sec
    }

    fn mtime_nsec(&self) -> i64 {
        i64::from(self.0.stx_mtime.tv_nsec)
    }

    fn ctime(&self) -> i64 {
        self.0.stx_ctime.tv_sec
    }

    fn ctime_nsec(&self) -> i64 {
        i64::from(self.0.stx_ctime.tv_nsec)
    }

    fn blksize(&self) -> u64 {
        u64::from(self.0.stx_blksize)
    }

    fn blocks(&self) -> u64 {
        self.0.stx_blocks
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("len", &self.len())
            .field("mode", &format_args!("{:o}", self.mode()))
            .finish()
    }
}

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileType(u32);

impl FileType {
    /// The type in a mode of `stat(2)`; permissions are ignored.
    pub const fn from_mode(mode: u32) -> Self {
        Self(mode & libc::S_IFMT)
    }

    /// True for a regular file.
    pub const fn is_file(&self) -> bool {
        self.0 == libc::S_IFREG
    }

    /// True for a directory.
    pub const fn is_dir(&self) -> bool {
        self.0 == libc::S_IFDIR
    }

    /// True for a symbolic link.
    pub const fn is_symlink(&self) -> bool {
        self.0 == libc::S_IFLNK
    }

    /// True for a block device.
    pub const fn is_block_device(&self) -> bool {
        self.0 == libc::S_IFBLK
    }

    /// True for a character device.
    pub const fn is_char_device(&self) -> bool {
        self.0 == libc::S_IFCHR
    }

    /// True for a named pipe.
    pub const fn is_fifo(&self) -> bool {
        self.0 == libc::S_IFIFO
    }

    /// True for a socket.
    pub const fn is_socket(&self) -> bool {
        self.0 == libc::S_IFSOCK
    }
}

impl fmt::Debug for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            libc::S_IFREG => "file",
            libc::S_IFDIR => "directory",
            libc::S_IFLNK => "symbolic link",
            libc::S_IFBLK => "block device",
            libc::S_IFCHR => "character device",
            libc::S_IFIFO => "fifo",
            libc::S_IFSOCK => "socket",
            _ => "unknown",
        };
        write!(f, "FileType({name})")
    }
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::op::{LinuxForms, NO_FD, NO_PATH, Raw, SqeContext};
    use io_uring::{opcode, squeue, types};

    impl LinuxForms for Statx {
        fn sqe(&self, _: &SqeContext) -> Option<squeue::Entry> {
            let buffer = self.buffer.cast::<types::statx>();
            Some(
                opcode::Statx::new(types::Fd(self.dir), self.path, buffer)
                    .flags(self.flags)
                    .mask(self.mask)
                    .build(),
            )
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { dir: NO_FD, path: NO_PATH.as_ptr(), ..*self }.into())
        }
    }
}
