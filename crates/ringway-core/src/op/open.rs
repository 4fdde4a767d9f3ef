//! Opens a file: `openat2(2)`.

use super::{InvalidOperation, Operation, Resources, SubmissionForms, syscall_result};
use crate::File;
use crate::file::opening_time;
use crate::op::Metadata;
use crate::sys::{self, Number, OwnedFd, RawFd, libc};
use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;

/// Why [`OpenOptions::open_now`] has not opened a file, or [`metadata_now`] has no metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotOpened {
    /// The path leads to another mount than expected.
    OtherMount,
    /// Anything else.
    Other,
}

/// The metadata of what an absolute path leads to on this mount, if the kernel has the whole path
/// in its name cache: `openat2(2)` with `O_PATH` and `RESOLVE_CACHED` (5.12), and `statx(2)`. On a
/// local file system ([`LocalMounts`](crate::device::LocalMounts)) neither waits. With `follow`,
/// that of a symbolic link at the end of the path is not returned.
///
/// [`NotOpened`] says nothing about the path: push [`op::statx`](crate::op::statx()) as usual. It
/// is the result for every error, and for a path with a symbolic link before its end.
///
/// ```
/// # use ringway_core::device::LocalMounts;
/// # use ringway_core::op::metadata_now;
/// let path = "/etc/passwd";
/// if let Some(mount) = LocalMounts::read()?.of_path(path)
///     && let Ok(metadata) = metadata_now(path, mount, true)
/// {
///     println!("{} bytes", metadata.len());
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn metadata_now(
    path: impl AsRef<Path>,
    mount: u64,
    follow: bool,
) -> Result<Metadata, NotOpened> {
    #[cfg(ringway_linux)]
    return linux::metadata_now(path.as_ref(), mount, follow);
    #[cfg(not(ringway_linux))]
    {
        let _ = (path, mount, follow);
        Err(NotOpened::Other)
    }
}

/// Options for opening a file: those of [`std::fs::OpenOptions`], and more.
///
/// ```
/// use ringway_core::OpenOptions;
/// # fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("table");
/// let file = OpenOptions::new().read(true).write(true).create(true).open(path)?;
/// # drop(file);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: Option<u32>,
    flags: i32,
    custom_flags: i32,
    resolve: u64,
}

impl OpenOptions {
    /// No access is allowed and no option is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows reading.
    pub fn read(&mut self, yes: bool) -> &mut Self {
        self.read = yes;
        self
    }

    /// Allows writing.
    pub fn write(&mut self, yes: bool) -> &mut Self {
        self.write = yes;
        self
    }

    /// Appends each write to the end of the file.
    pub fn append(&mut self, yes: bool) -> &mut Self {
        self.append = yes;
        self
    }

    /// Truncates an existing file.
    pub fn truncate(&mut self, yes: bool) -> &mut Self {
        self.truncate = yes;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(&mut self, yes: bool) -> &mut Self {
        self.create = yes;
        self
    }

    /// Creates the file; fails with EEXIST if it exists.
    pub fn create_new(&mut self, yes: bool) -> &mut Self {
        self.create_new = yes;
        self
    }

    /// The permissions of a created file, before the umask; default 0o666.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = Some(mode);
        self
    }

    /// Opens for direct I/O (`O_DIRECT`), which bypasses the page cache. Addresses, offsets and
    /// lengths must then be multiples of the file's alignment ([`File::direct_io`]).
    pub fn direct(&mut self, yes: bool) -> &mut Self {
        self.flag(libc::O_DIRECT, yes)
    }

    /// Whether files are opened for direct I/O.
    pub fn is_direct(&self) -> bool {
        (self.flags | self.custom_flags) & libc::O_DIRECT != 0
    }

    /// Fails with ELOOP if the path ends in a symbolic link.
    pub fn nofollow(&mut self, yes: bool) -> &mut Self {
        self.flag(libc::O_NOFOLLOW, yes)
    }

    /// Fails with ENOTDIR if the path does not lead to a directory.
    pub fn directory(&mut self, yes: bool) -> &mut Self {
        self.flag(libc::O_DIRECTORY, yes)
    }

    /// Further `O_*` flags of `open(2)`, instead of those of an earlier call. The access mode in
    /// them (`O_WRONLY`, `O_RDWR`) is ignored.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.custom_flags = flags;
        self
    }

    /// `RESOLVE_*` flags of `openat2(2)`, such as `RESOLVE_BENEATH`. [`OpenOptions::open`] does not
    /// support them and fails with EINVAL.
    pub fn resolve(&mut self, flags: u64) -> &mut Self {
        self.resolve = flags;
        self
    }

    /// Opens the file with a blocking call.
    ///
    /// Errors: those of `open(2)`; EINVAL for contradictory options and for
    /// [`resolve`](Self::resolve) flags.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        if self.resolve != 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (flags, mode) = self.bits().map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let path = CString::new(path.as_ref().as_os_str().as_encoded_bytes())
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let open = Open { dir: libc::AT_FDCWD, path: path.as_ptr(), flags, mode, resolve: 0 };
        let time = opening_time();
        loop {
            match open.openat() {
                opened @ 0.. => {
                    let file = Open::opened(opened).map(|file| file.opened_after(time));
                    return file.ok_or_else(|| io::Error::from_raw_os_error(libc::EIO));
                }
                error if error == -i64::from(libc::EINTR) => {}
                error => return Err(io::Error::from_raw_os_error(-error as i32)),
            }
        }
    }

    /// Opens an existing regular file on this mount for reading, if the kernel has the whole path
    /// in its name cache: `openat2(2)` with `RESOLVE_CACHED` (5.12). On a local file system
    /// ([`LocalMounts`](crate::device::LocalMounts)) this waits neither for path lookup nor for the
    /// end of a lease. Returns the file and its metadata.
    ///
    /// Nothing else is opened: the type and the mount of what the path leads to are checked first,
    /// with a descriptor for its place in the tree (`O_PATH`). To open a FIFO, a device or a file
    /// of a FUSE program even for a moment has effects.
    ///
    /// [`NotOpened`] says nothing about the file: push [`op::open`](crate::op::open()) as usual. It
    /// is also the result for options other than [`read`](Self::read), [`direct`](Self::direct),
    /// [`nofollow`](Self::nofollow) and the flags `O_NOATIME` and `O_NONBLOCK`, for a path with a
    /// symbolic link, and for every error.
    ///
    /// ```
    /// # use ringway_core::OpenOptions;
    /// # use ringway_core::device::LocalMounts;
    /// let path = "/etc/passwd";
    /// if let Some(mount) = LocalMounts::read()?.of_path(path)
    ///     && let Ok((file, metadata)) = OpenOptions::new().read(true).open_now(path, mount)
    /// {
    ///     println!("{} bytes", metadata.len());
    /// # drop(file);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open_now(
        &self,
        path: impl AsRef<Path>,
        mount: u64,
    ) -> Result<(File, Metadata), NotOpened> {
        #[cfg(ringway_linux)]
        return linux::open_now(self, path.as_ref(), mount);
        #[cfg(not(ringway_linux))]
        {
            let _ = (path, mount);
            Err(NotOpened::Other)
        }
    }

    fn flag(&mut self, flag: i32, yes: bool) -> &mut Self {
        if yes {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
        self
    }

    /// The flags and mode for `openat2`, or why the options are invalid.
    fn bits(&self) -> Result<(u64, u64), InvalidOperation> {
        let custom = self.flags | self.custom_flags;
        let access = match (self.read, self.write || self.append) {
            (true, false) => libc::O_RDONLY,
            (false, true) => libc::O_WRONLY,
            (true, true) => libc::O_RDWR,
            (false, false) if custom & libc::O_PATH != 0 => 0,
            (false, false) => return Err(InvalidOperation::NoAccess),
        };
        let writes = self.write || self.append;
        if (self.truncate || self.create || self.create_new) && !writes {
            return Err(InvalidOperation::CreateWithoutWrite);
        }
        if self.truncate && self.append && !self.create_new {
            return Err(InvalidOperation::TruncateAndAppend);
        }
        let mut flags = access | custom & !libc::O_ACCMODE | libc::O_CLOEXEC;
        if self.append {
            flags |= libc::O_APPEND;
        }
        if self.truncate {
            flags |= libc::O_TRUNC;
        }
        if self.create || self.create_new {
            flags |= libc::O_CREAT;
        }
        if self.create_new {
            flags |= libc::O_EXCL;
        }
        // openat2 refuses a mode if nothing can be created, and type bits in it, which open
        // ignores.
        let creates = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let mode = if creates { u64::from(self.mode.unwrap_or(0o666) & 0o7777) } else { 0 };
        Ok((flags as u32 as u64, mode))
    }
}

impl File {
    /// Opens `path` for reading, with a blocking call. See [`OpenOptions`] for other modes. To open
    /// without blocking, push [`op::open`](crate::op::open()).
    ///
    /// Errors: those of `open(2)`.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path)
    }
}

/// Opens `path`, relative to the working directory.
///
/// The completion returns the file ([`Completion::into_file`](crate::Completion::into_file)).
/// Dropping the completion, or abandoning the operation, closes it. Errors: those of `openat2(2)`;
/// EAGAIN if 1024 opens of the queue already wait for the other end of a FIFO; EINVAL, before
/// anything is submitted, for a path with a NUL byte or contradictory options. An open that waits
/// for the other end of a FIFO can be cancelled, and a time limit ends it.
///
/// ```
/// # use ringway_core::{op, Options, OpenOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut queue = Options::new().build()?;
/// queue.push(op::open("/etc/passwd", OpenOptions::new().read(true)))?;
/// let file = queue.reap(1)?.next().unwrap().into_file()?;
/// # drop(file);
/// # Ok(()) }
/// ```
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Operation {
    make(None, path.as_ref(), options)
}

/// As [`open`], relative to the directory `dir`.
pub fn open_at(dir: &File, path: impl AsRef<Path>, options: &OpenOptions) -> Operation {
    make(Some(dir), path.as_ref(), options)
}

fn make(dir: Option<&File>, path: &Path, options: &OpenOptions) -> Operation {
    let (bits, invalid) = match options.bits() {
        Ok(bits) => (bits, None),
        Err(invalid) => ((0, 0), Some(invalid)),
    };
    let opening_time = opening_time();
    let mut operation = Operation::with_path((dir, path), |dir, path| Open {
        dir,
        path,
        flags: bits.0,
        mode: bits.1,
        resolve: options.resolve,
    });
    operation.resources = match operation.resources {
        Resources::Paths(paths) => Resources::Open { _paths: paths, opening_time },
        other => other,
    };
    match invalid {
        Some(invalid) => operation.mark_invalid(invalid),
        None => operation,
    }
}

/// `openat2(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// The directory, or `AT_FDCWD`.
    pub dir: RawFd,
    /// The path.
    pub path: *const libc::c_char,
    /// `O_*` flags; `O_CLOEXEC` is not added.
    pub flags: u64,
    /// Permissions of a created file; must be 0 if none can be created.
    pub mode: u64,
    /// `RESOLVE_*`.
    pub resolve: u64,
}

impl Open {
    /// The file for a result of this operation; takes ownership of the descriptor.
    pub(crate) fn opened(result: i64) -> Option<File> {
        let fd = RawFd::try_from(result).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the kernel has just made this descriptor for this operation, and a result is
        // converted once: it has no other owner.
        let file = File::from(unsafe { sys::owned(fd) });
        file.allow_no_access_times();
        Some(file)
    }

    /// True if the blocking call may wait forever: for the other end of a FIFO, or for a device (a
    /// terminal waits for its carrier). Only the type of the file shows that.
    pub(crate) fn may_wait(&self) -> bool {
        self.waits_where_it_may() && self.is_fifo_or_device()
    }

    /// The same open, which fails where it would wait: the path may have come to lead to a FIFO
    /// since [`may_wait`](Self::may_wait) was asked, and somebody may have a lease on the file.
    /// Pass its result to [`opened_without_waiting`](Self::opened_without_waiting).
    pub(crate) fn without_waiting(&self) -> Self {
        let flag = if self.waits_where_it_may() { libc::O_NONBLOCK } else { 0 };
        Self { flags: self.flags | flag as u64, ..*self }
    }

    /// The result of this open, from that of [`without_waiting`](Self::without_waiting). `None` if
    /// it has to be made again, by a thread that may wait.
    ///
    /// A FIFO that was opened for reading is kept, as io_uring does: a writer may have opened it
    /// meanwhile, whose pipe would break.
    pub(crate) fn opened_without_waiting(&self, result: i64) -> Option<i64> {
        const ENXIO: i64 = -(libc::ENXIO as i64);
        const EAGAIN: i64 = -(libc::EAGAIN as i64);
        /// Only Linux has it.
        const RESOLVE_CACHED: u64 = 0x20;
        if !self.waits_where_it_may() {
            return Some(result);
        }
        match result {
            // Who opens only what is in the kernel's name cache wants no thread to wait.
            EAGAIN if self.resolve & RESOLVE_CACHED != 0 => Some(result),
            ENXIO | EAGAIN => None,
            // `read(2)` of a FIFO heeds the flag.
            0.. => Self::clear_nonblocking(result),
            _ => Some(result),
        }
    }

    /// False if the caller has asked for no wait, or if what is opened is none to wait for.
    fn waits_where_it_may(&self) -> bool {
        let new = libc::O_CREAT | libc::O_EXCL;
        let never = libc::O_NONBLOCK | libc::O_PATH | libc::O_DIRECTORY;
        let flags = self.flags as i32;
        cfg!(unix) && flags & never == 0 && flags & new != new
    }

    /// Gives what was opened the flags that it would have without `O_NONBLOCK`; closes it, and
    /// returns `None`, if its file system does not let them be changed.
    #[cfg(unix)]
    fn clear_nonblocking(opened: i64) -> Option<i64> {
        let fd = opened as RawFd;
        // SAFETY: both requests take numbers only, and the descriptor is this operation's.
        let is_cleared = unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) >= 0
        };
        if !is_cleared {
            drop(Self::opened(opened));
        }
        is_cleared.then_some(opened)
    }

    #[cfg(not(unix))]
    fn clear_nonblocking(opened: i64) -> Option<i64> {
        Some(opened)
    }

    fn is_fifo_or_device(&self) -> bool {
        match self.file_type() {
            Some(libc::S_IFIFO) => self.flags as i32 & libc::O_ACCMODE != libc::O_RDWR,
            Some(libc::S_IFCHR) => true,
            _ => false,
        }
    }

    /// Whether the path leads to a FIFO, a device or a socket now.
    pub(super) fn leads_to_other_than_files(&self) -> bool {
        self.file_type().is_some_and(|kind| ![libc::S_IFREG, libc::S_IFDIR].contains(&kind))
    }

    #[cfg(windows)]
    fn file_type(&self) -> Option<u32> {
        None
    }

    /// `S_IF*` of what the path leads to.
    #[cfg(unix)]
    fn file_type(&self) -> Option<u32> {
        let mut stat_flags = libc::AT_NO_AUTOMOUNT;
        if self.flags as i32 & libc::O_NOFOLLOW != 0 {
            stat_flags |= libc::AT_SYMLINK_NOFOLLOW;
        }
        // SAFETY: `stat` is plain numbers, for which all zeroes are valid.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the operation, or the caller of `from_raw`, keeps `path` a valid C string until
        // the completion; `stat` lives on this stack during the call.
        let found = unsafe { libc::fstatat(self.dir, self.path, &raw mut stat, stat_flags) } == 0;
        found.then_some(stat.st_mode as u32 & libc::S_IFMT)
    }

    /// The same open with copies of its directory and path, so that it may outlive its operation.
    ///
    /// Errors: EMFILE and so on, from duplicating the directory's descriptor.
    pub(crate) fn detach(&self) -> io::Result<DetachedOpen> {
        // SAFETY: the operation, or the caller of `from_raw`, keeps the directory open until the
        // completion.
        let dir = (self.dir != libc::AT_FDCWD).then(|| unsafe { sys::borrowed(self.dir) });
        Ok(DetachedOpen {
            dir: dir.map(|dir| dir.try_clone_to_owned()).transpose()?,
            // SAFETY: likewise; `path` is a valid C string.
            path: unsafe { CStr::from_ptr(self.path) }.to_owned(),
            flags: self.flags,
            mode: self.mode,
            resolve: self.resolve,
        })
    }
}

/// An open that does not depend on its operation.
#[derive(Debug)]
pub(crate) struct DetachedOpen {
    dir: Option<OwnedFd>,
    path: CString,
    flags: u64,
    mode: u64,
    resolve: u64,
}

impl DetachedOpen {
    /// The blocking call: the descriptor, or minus errno.
    pub(crate) fn call(&self) -> i64 {
        let Self { flags, mode, resolve, .. } = *self;
        let dir = self.dir.as_ref().map_or(libc::AT_FDCWD, Number::number);
        Open { dir, path: self.path.as_ptr(), flags, mode, resolve }.call()
    }
}

impl SubmissionForms for Open {
    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_on_path(&self) -> bool {
        true
    }

    fn call(&self) -> i64 {
        // SAFETY: `open_how` is plain numbers, for which all zeroes are valid.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = self.flags;
        how.mode = self.mode;
        how.resolve = self.resolve;
        // SAFETY: the operation, or the caller of `from_raw`, keeps `path` a valid C string until
        // the completion; `how` lives on this stack during the call.
        #[cfg(not(ringway_linux))]
        return syscall_result(unsafe { libc::openat2(self.dir, self.path, &how) } as i64);
        #[cfg(ringway_linux)]
        self.openat2(&how)
    }
}

#[cfg(not(ringway_linux))]
impl Open {
    fn openat(&self) -> i64 {
        self.call()
    }
}

#[cfg(ringway_linux)]
impl Open {
    /// As [`call`](SubmissionForms::call), without `RESOLVE_*`.
    fn openat(&self) -> i64 {
        // SAFETY: the operation, or the caller of `from_raw`, keeps `path` a valid C string until
        // the completion.
        syscall_result(i64::from(unsafe {
            libc::openat(self.dir, self.path, self.flags as i32, self.mode as u32)
        }))
    }

    fn openat2(&self, how: &libc::open_how) -> i64 {
        // SAFETY: as in `call`.
        let opened = syscall_result(unsafe {
            libc::syscall(
                libc::SYS_openat2,
                self.dir,
                self.path,
                std::ptr::from_ref(how),
                size_of_val(how),
            )
        });
        // Kernels before 5.6 do not have openat2, and some filters refuse it. Without RESOLVE_*
        // flags, openat does the same. A file system may answer the same errno after it has created
        // the file, which a second call would find there.
        if self.resolve == 0
            && [-i64::from(libc::ENOSYS), -i64::from(libc::EPERM)].contains(&opened)
            && !may_openat2()
        {
            return self.openat();
        }
        opened
    }
}

/// Whether the kernel has `openat2(2)` and no filter refuses it to this thread.
#[cfg(ringway_linux)]
fn may_openat2() -> bool {
    let (path, how) = (std::ptr::null::<libc::c_char>(), std::ptr::null::<libc::open_how>());
    // SAFETY: the kernel checks the size first, which is too small, and looks at nothing else.
    let result = unsafe { libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path, how, 0_usize) };
    syscall_result(result) == -i64::from(libc::EINVAL)
}

/// The submission forms of Linux's queues.
#[cfg(ringway_linux)]
mod linux {
    use super::*;
    use crate::file::{FileKind, Traits};
    use crate::op::Metadata;
    use crate::op::{LinuxForms, NO_FD, NO_PATH, Raw, SqeContext};
    use io_uring::{opcode, squeue, types};
    use std::os::unix::ffi::OsStrExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The kernel or a filter refuses `openat2(2)` with `RESOLVE_CACHED`.
    static NO_OPEN_NOW: AtomicBool = AtomicBool::new(false);

    /// As [`metadata_now`](super::metadata_now).
    pub(super) fn metadata_now(
        path: &Path,
        mount: u64,
        follow: bool,
    ) -> Result<Metadata, NotOpened> {
        if NO_OPEN_NOW.load(Ordering::Relaxed) || !path.is_absolute() {
            return Err(NotOpened::Other);
        }
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| NotOpened::Other)?;
        place(&path, if follow { 0 } else { libc::O_NOFOLLOW }, mount)
    }

    fn open(path: &CStr, flags: i32) -> i64 {
        let flags = u64::from(flags as u32);
        let resolve = libc::RESOLVE_CACHED | libc::RESOLVE_NO_SYMLINKS;
        Open { dir: libc::AT_FDCWD, path: path.as_ptr(), flags, mode: 0, resolve }.call()
    }

    /// The metadata of a place in the tree, which is opened with `O_PATH` only.
    fn place(path: &CStr, flags: i32, mount: u64) -> Result<Metadata, NotOpened> {
        let place = open(path, libc::O_PATH | libc::O_CLOEXEC | flags);
        // A file system may answer these to a name that it does not allow.
        if is_refusal(place) && is_refused_everywhere() {
            NO_OPEN_NOW.store(true, Ordering::Relaxed);
        }
        metadata_on(&Open::opened(place).ok_or(NotOpened::Other)?, mount)
    }

    fn is_refusal(opened: i64) -> bool {
        [libc::ENOSYS, libc::EPERM, libc::EINVAL].contains(&(-opened as i32))
    }

    fn is_refused_everywhere() -> bool {
        let root = open(c"/", libc::O_PATH | libc::O_CLOEXEC);
        drop(Open::opened(root));
        is_refusal(root)
    }

    fn metadata_on(file: &File, mount: u64) -> Result<Metadata, NotOpened> {
        let metadata = Metadata::of_file_now(file).map_err(|_| NotOpened::Other)?;
        if metadata.mount_id() == Some(mount) { Ok(metadata) } else { Err(NotOpened::OtherMount) }
    }

    /// As [`OpenOptions::open_now`].
    pub(super) fn open_now(
        options: &OpenOptions,
        path: &Path,
        mount: u64,
    ) -> Result<(File, Metadata), NotOpened> {
        const KEPT: i32 = libc::O_DIRECT | libc::O_NOATIME | libc::O_NONBLOCK;
        let flags = options.bits().map_err(|_| NotOpened::Other)?.0 as i32;
        let is_plain = flags & !(KEPT | libc::O_NOFOLLOW | libc::O_CLOEXEC) == libc::O_RDONLY;
        if !is_plain || options.resolve != 0 || NO_OPEN_NOW.load(Ordering::Relaxed) {
            return Err(NotOpened::Other);
        }
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| NotOpened::Other)?;
        let check = |metadata: &Metadata| {
            if metadata.is_file() { Ok(()) } else { Err(NotOpened::Other) }
        };
        check(&place(&path, 0, mount)?)?;

        let time = opening_time();
        // An open with O_NONBLOCK does not wait for a lease.
        let file = Open::opened(open(&path, flags | libc::O_NONBLOCK)).ok_or(NotOpened::Other)?;
        let file = file.opened_after(time);
        // Something else may have taken its place.
        let metadata = metadata_on(&file, mount)?;
        check(&metadata)?;
        if flags & libc::O_NONBLOCK == 0 {
            // On a regular file it has no meaning for `read(2)`, but some file systems and kernels
            // let io_uring fail with EAGAIN.
            // SAFETY: `fcntl` with F_SETFL takes numbers only, and `file` is open.
            let set = unsafe { libc::fcntl(file.fd(), libc::F_SETFL, flags & KEPT) };
            if set < 0 {
                return Err(NotOpened::Other);
            }
        }
        let is_direct = flags & libc::O_DIRECT != 0;
        file.set_traits(Traits { kind: FileKind::Storage, direct: is_direct });
        Ok((file, metadata))
    }

    impl LinuxForms for Open {
        fn sqe(&self, context: &SqeContext) -> Option<squeue::Entry> {
            let how = types::OpenHow::new().flags(self.flags).mode(self.mode).resolve(self.resolve);
            // SAFETY: `context.data` belongs to this operation's slot and lives as long; the ring's
            // backend guarantees both. No other reference to it exists while the SQE is made.
            let how = unsafe { (*context.data).open_how.insert(how) };
            Some(opcode::OpenAt2::new(types::Fd(self.dir), self.path, how).build())
        }

        fn on_nothing(&self) -> Option<Raw> {
            Some(Self { dir: NO_FD, path: NO_PATH.as_ptr(), ..*self }.into())
        }
    }
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    fn flags(file: &File) -> i32 {
        // SAFETY: `fcntl` with F_GETFL takes numbers only.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }
    }

    fn mount_of(path: &Path) -> u64 {
        let mount = Metadata::of_file_now(&File::open(path).unwrap()).unwrap().mount_id();
        // Without it, every open is refused.
        mount.unwrap_or(0)
    }

    fn make_fifo(path: &Path) {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a C string.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }

    #[test]
    fn only_a_plain_open_of_a_regular_file_is_made_in_place() {
        let dir = tempfile::tempdir().unwrap();
        // No symbolic link may be in the path.
        let dir = dir.path().canonicalize().unwrap();
        let path = dir.join("file");
        fs::write(&path, b"content").unwrap();
        let mount = mount_of(&path);
        let mut read = OpenOptions::new();
        read.read(true);
        let Ok((file, metadata)) = read.open_now(&path, mount) else {
            println!("skipped: no openat2 with RESOLVE_CACHED");
            return;
        };
        assert_eq!((metadata.len(), metadata.is_file(), file.is_direct()), (7, true, false));
        assert_eq!(metadata.mount_id(), Some(mount));
        assert_eq!(flags(&file) & (libc::O_NONBLOCK | libc::O_ACCMODE), libc::O_RDONLY);
        let mut nonblocking = read.clone();
        let (file, _) = nonblocking.custom_flags(libc::O_NONBLOCK).open_now(&path, mount).unwrap();
        assert_ne!(flags(&file) & libc::O_NONBLOCK, 0, "the caller asked for it");
        assert_eq!(read.open_now(&path, mount + 1).unwrap_err(), NotOpened::OtherMount);

        std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
        make_fifo(&dir.join("fifo"));
        for other in ["link", "fifo", "missing", "", "file\0"] {
            let refused = read.open_now(dir.join(other), mount).unwrap_err();
            assert_eq!(refused, NotOpened::Other, "{other:?}");
        }
        let unusual = [
            OpenOptions::new(),
            read.clone().write(true).clone(),
            read.clone().custom_flags(libc::O_PATH).clone(),
            read.clone().custom_flags(libc::O_SYNC).clone(),
            read.clone().resolve(libc::RESOLVE_BENEATH).clone(),
        ];
        for options in unusual {
            assert!(options.open_now(&path, mount).is_err(), "{options:?}");
        }
        assert!(read.open_now(&path, mount).is_ok(), "no refusal was taken for the kernel's");
    }

    /// As those of `std::os::unix::fs::OpenOptionsExt`.
    #[test]
    fn custom_flags_replace_earlier_ones() {
        let mut options = OpenOptions::new();
        options.read(true).direct(true).custom_flags(libc::O_SYNC | libc::O_WRONLY);
        assert_eq!(options.bits().unwrap().0 as i32 & libc::O_SYNC, libc::O_SYNC);
        options.custom_flags(0);
        let flags = options.bits().unwrap().0 as i32;
        assert_eq!(flags, libc::O_RDONLY | libc::O_DIRECT | libc::O_CLOEXEC);
    }

    #[test]
    fn metadata_in_place_is_that_of_the_system_call() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        fs::write(dir.join("file"), b"content").unwrap();
        fs::create_dir(dir.join("dir")).unwrap();
        make_fifo(&dir.join("fifo"));
        std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
        std::os::unix::fs::symlink("dir", dir.join("dirs")).unwrap();
        let mount = mount_of(&dir.join("file"));
        if metadata_now(dir.join("file"), mount, true).is_err() {
            println!("skipped: no openat2 with RESOLVE_CACHED");
            return;
        }
        let facts = |one: &dyn MetadataExt| {
            let times = [one.atime_nsec(), one.mtime_nsec(), one.ctime_nsec()];
            (one.ino(), one.mode(), one.size(), one.nlink(), one.blocks(), times)
        };
        for (name, follow) in [("file", true), ("dir", true), ("fifo", true), ("link", false)] {
            let found = metadata_now(dir.join(name), mount, follow).unwrap();
            let std = fs::symlink_metadata(dir.join(name)).unwrap();
            assert_eq!(facts(&found), facts(&std), "{name}");
        }
        for name in ["link", "missing", "file/x", "dirs/../file", "file\0"] {
            let found = metadata_now(dir.join(name), mount, true).unwrap_err();
            assert_eq!(found, NotOpened::Other, "{name:?}");
        }
        let elsewhere = metadata_now(dir.join("file"), mount + 1, true);
        assert_eq!(elsewhere.unwrap_err(), NotOpened::OtherMount);
        assert_eq!(metadata_now("file", mount, true).unwrap_err(), NotOpened::Other);
    }

    /// A writer that waits for a reader would begin to write, and get EPIPE, if a FIFO were opened
    /// for a moment.
    #[test]
    fn a_fifo_is_not_opened_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("fifo");
        make_fifo(&path);
        let mount = mount_of(dir.path());
        let (sender, receiver) = std::sync::mpsc::channel();
        let writer = std::thread::spawn({
            let path = path.clone();
            move || {
                // SAFETY: `gettid` has no arguments.
                sender.send(unsafe { libc::gettid() }).unwrap();
                fs::write(path, b"text")
            }
        });
        let call = format!("/proc/self/task/{}/syscall", receiver.recv().unwrap());
        // Its number is the first word while the thread is blocked in it.
        let waits = || {
            let text = fs::read_to_string(&call).unwrap();
            text.split(' ').next() == Some(&libc::SYS_openat.to_string())
        };
        while !waits() {
            std::thread::yield_now();
        }
        assert!(OpenOptions::new().read(true).open_now(&path, mount).is_err());
        assert!(waits(), "the writer found a reader");
        assert_eq!(fs::read(&path).unwrap(), b"text");
        writer.join().unwrap().unwrap();
    }
}
