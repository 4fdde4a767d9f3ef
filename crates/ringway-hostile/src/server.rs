//! Serves the backing directory as the rules say. A request that has to wait does so on a thread of
//! its own, so that it holds up no other.

use crate::nodes::{CONTROL, Nodes};
use crate::rules::Rules;
use fuser::{
    BackingId, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, Session, SessionACL, TimeOrNow, WriteFlags,
};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CONTROL_NAME: &str = ".hostile";

/// Mounts, prints `mounted`, and serves until the end of standard input.
pub fn serve(backing: &Path, mountpoint: &Path, options: &[String]) -> io::Result<()> {
    let options = Options::parse(options)?;
    let shared = Arc::new(Shared {
        backing: backing.canonicalize()?,
        ttl: options.ttl,
        rules: Mutex::new(Control::default()),
        changed: Condvar::new(),
        nodes: Mutex::new(Nodes::new()),
        files: Mutex::default(),
        last_handle: AtomicU64::new(0),
    });
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.mount_options = vec![MountOption::FSName("hostile".into()), MountOption::RW];
    let device = options.device.clone();
    let server = Server { shared: shared.clone(), options };
    let session = match device {
        Some(device) => {
            let connection = mount_device(&device, mountpoint)?;
            Session::from_fd(server, connection, SessionACL::All, config)?
        }
        None => Session::new(server, mountpoint, &config)?,
    };
    let session = session.spawn()?;
    println!("mounted");
    io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink())?;
    // Everything that waits is answered; who still uses a file gets ENOTCONN when this process
    // ends.
    let mut control = lock(&shared.rules);
    control.rules.set("clear");
    control.is_closing = true;
    drop(control);
    shared.changed.notify_all();
    unmount(mountpoint, UnmountFlags::DETACH)?;
    std::mem::forget(session);
    Ok(())
}

/// Mounts a connection as `fuseblk`, on a block device.
fn mount_device(device: &str, mountpoint: &Path) -> io::Result<OwnedFd> {
    let connection = File::options().read(true).write(true).open("/dev/fuse")?;
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,blksize=512\0",
        connection.as_raw_fd()
    );
    let data = CStr::from_bytes_with_nul(data.as_bytes()).map_err(io::Error::other)?;
    mount(device, mountpoint, "fuseblk", MountFlags::empty(), data)?;
    Ok(connection.into())
}

/// Options of the connection.
#[derive(Clone, Debug)]
struct Options {
    refused: InitFlags,
    wanted: InitFlags,
    max_background: Option<u16>,
    ttl: Duration,
    /// The block device of a `fuseblk`.
    device: Option<String>,
}

impl Options {
    fn parse(options: &[String]) -> io::Result<Self> {
        let mut parsed = Self {
            refused: InitFlags::empty(),
            wanted: InitFlags::empty(),
            max_background: None,
            ttl: Duration::ZERO,
            device: None,
        };
        for option in options {
            let number = |value: &str| {
                let number = value.parse::<u16>();
                number.map_err(|_| io::Error::other(format!("{option}: not a number")))
            };
            match option.split_once('=').unwrap_or((option.as_str(), "")) {
                ("no-async-read", "") => parsed.refused |= InitFlags::FUSE_ASYNC_READ,
                ("no-async-dio", "") => parsed.refused |= InitFlags::FUSE_ASYNC_DIO,
                ("writeback-cache", "") => parsed.wanted |= InitFlags::FUSE_WRITEBACK_CACHE,
                ("passthrough", "") => parsed.wanted |= InitFlags::FUSE_PASSTHROUGH,
                ("max-background", value) => parsed.max_background = Some(number(value)?),
                ("fuseblk", device) => parsed.device = Some(device.to_owned()),
                ("ttl", value) => parsed.ttl = Duration::from_millis(number(value)?.into()),
                _ => return Err(io::Error::other(format!("no such option: {option}"))),
            }
        }
        Ok(parsed)
    }

    /// The kernel makes the transfers.
    fn passes(&self) -> bool {
        self.wanted.contains(InitFlags::FUSE_PASSTHROUGH)
    }
}

#[derive(Debug, Default)]
struct Control {
    rules: Rules,
    /// The server ends: nothing waits any more.
    is_closing: bool,
}

#[derive(Debug)]
struct Open {
    number: INodeNo,
    file: Arc<File>,
    /// The file as the kernel knows it, if the kernel makes the transfers.
    passed: Option<Arc<BackingId>>,
}

#[derive(Debug)]
struct Shared {
    backing: PathBuf,
    ttl: Duration,
    rules: Mutex<Control>,
    /// Signalled when rules change.
    changed: Condvar,
    nodes: Mutex<Nodes>,
    /// Open files by handle.
    files: Mutex<HashMap<u64, Open>>,
    last_handle: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Waits as long as the rule for the request says. Returns the errno of a request that fails.
    fn obey(&self, name: &str, operation: &'static str) -> Option<i32> {
        let began = Instant::now();
        let mut control = lock(&self.rules);
        loop {
            let rule = control.rules.of(name, operation).copied().unwrap_or_default();
            let left = rule.delay.saturating_sub(began.elapsed());
            if control.is_closing || !rule.frozen && left.is_zero() {
                return control.rules.failure(name, operation);
            }
            let wait = if rule.frozen { Duration::from_secs(3600) } else { left };
            let waited = self.changed.wait_timeout(control, wait);
            control = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The path of a number, relative to the backing directory.
    fn relative(&self, number: INodeNo) -> io::Result<PathBuf> {
        let nodes = lock(&self.nodes);
        nodes.path(number).map(Path::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn path(&self, number: INodeNo) -> io::Result<PathBuf> {
        Ok(self.full(&self.relative(number)?))
    }

    fn full(&self, relative: &Path) -> PathBuf {
        // (Joining nothing would add a slash, which follows symbolic links.)
        if relative == Path::new("") { self.backing.clone() } else { self.backing.join(relative) }
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        let files = lock(&self.files);
        files
            .get(&handle.0)
            .map(|open| open.file.clone())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn keep(&self, number: INodeNo, file: File) -> FileHandle {
        let handle = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.files).insert(handle, Open { number, file: Arc::new(file), passed: None });
        FileHandle(handle)
    }

    /// An open file of this number: it may have no name any more.
    fn any_file(&self, number: INodeNo) -> Option<Arc<File>> {
        let files = lock(&self.files);
        files.values().find(|open| open.number == number).map(|open| open.file.clone())
    }

    /// Has the kernel make the transfers of an open file. The kernel wants the same of all that are
    /// open with one number, so `register` is called for the first of them only.
    fn pass(
        &self,
        handle: FileHandle,
        register: impl FnOnce(&File) -> io::Result<BackingId>,
    ) -> io::Result<Arc<BackingId>> {
        let mut files = lock(&self.files);
        let number = files.get(&handle.0).map(|open| open.number);
        let mut same = files.values().filter(|open| Some(open.number) == number);
        let known = same.find_map(|open| open.passed.clone());
        let open = files.get_mut(&handle.0).ok_or(io::ErrorKind::NotFound)?;
        let passed = known.map_or_else(|| register(&open.file).map(Arc::new), Ok)?;
        open.passed = Some(passed.clone());
        Ok(passed)
    }

    /// The attributes of a path, as far as they are not to be untrue.
    fn attributes(&self, number: INodeNo, path: &Path) -> io::Result<FileAttr> {
        Ok(self.attributes_of(number, &name_of(path), &fs::symlink_metadata(path)?))
    }

    fn attributes_of(&self, ino: INodeNo, name: &str, found: &Metadata) -> FileAttr {
        let rule = lock(&self.rules).rules.file(name);
        let kind = found.file_type();
        let size = if kind.is_file() { rule.size } else { None }.unwrap_or(found.len());
        let time = |seconds: i64, nanoseconds: i64| {
            let time = Duration::new(seconds.unsigned_abs(), nanoseconds as u32);
            if seconds < 0 { UNIX_EPOCH - time } else { UNIX_EPOCH + time }
        };
        FileAttr {
            ino,
            size,
            blocks: found.blocks(),
            atime: time(found.atime(), found.atime_nsec()),
            mtime: time(found.mtime(), found.mtime_nsec()),
            ctime: time(found.ctime(), found.ctime_nsec()),
            crtime: UNIX_EPOCH,
            kind: match kind {
                kind if kind.is_dir() => FileType::Directory,
                kind if kind.is_symlink() => FileType::Symlink,
                kind if kind.is_fifo() => FileType::NamedPipe,
                kind if kind.is_socket() => FileType::Socket,
                _ => FileType::RegularFile,
            },
            perm: (found.mode() & 0o7777) as u16,
            nlink: found.nlink() as u32,
            uid: found.uid(),
            gid: found.gid(),
            rdev: found.rdev() as u32,
            blksize: 4096,
            flags: 0,
        }
    }

    fn entry(&self, relative: &Path) -> io::Result<FileAttr> {
        let path = self.full(relative);
        fs::symlink_metadata(&path)?;
        let number = lock(&self.nodes).number(relative);
        self.attributes(number, &path)
    }

    /// Makes a file as long as its rule for `getattr` says.
    fn grow(&self, path: &Path) -> io::Result<()> {
        let rule = lock(&self.rules).rules.file(&name_of(path));
        if rule.grow != 0 && path.is_file() {
            let file = File::options().write(true).open(path)?;
            file.set_len(file.metadata()?.len().saturating_add_signed(rule.grow))?;
        }
        Ok(())
    }

    fn open_flags(&self, path: &Path) -> FopenFlags {
        if lock(&self.rules).rules.file(&name_of(path)).direct {
            FopenFlags::FOPEN_DIRECT_IO
        } else {
            FopenFlags::empty()
        }
    }

    fn short(&self, name: &str, operation: &str) -> usize {
        let mut control = lock(&self.rules);
        let short = control.rules.of(name, operation).and_then(|rule| rule.short);
        short.map_or(usize::MAX, |short| short as usize)
    }

    /// The attributes of the file that takes rules.
    fn control(&self) -> FileAttr {
        FileAttr {
            ino: CONTROL,
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::RegularFile,
            perm: 0o666,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn set_rules(&self, lines: &[u8]) -> io::Result<()> {
        let lines = std::str::from_utf8(lines).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut control = lock(&self.rules);
        let set = lines.lines().try_for_each(|line| control.rules.set(line));
        drop(control);
        self.changed.notify_all();
        set.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

/// The name by which rules know a file.
fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn errno(error: &io::Error) -> Errno {
    let by_kind = match error.kind() {
        io::ErrorKind::InvalidInput => Errno::EINVAL,
        io::ErrorKind::NotFound => Errno::ENOENT,
        _ => Errno::EIO,
    };
    error.raw_os_error().map_or(by_kind, Errno::from_i32)
}

/// A request's answer.
trait Reply: Send + 'static {
    fn refuse(self, errno: Errno);
}

macro_rules! replies {
    ($($reply:ident)*) => {
        $(impl Reply for $reply {
            fn refuse(self, errno: Errno) {
                self.error(errno);
            }
        })*
    };
}

replies!(ReplyAttr ReplyCreate ReplyData ReplyDirectory ReplyEmpty ReplyEntry ReplyOpen ReplyStatfs
    ReplyWrite);

#[derive(Debug)]
struct Server {
    shared: Arc<Shared>,
    options: Options,
}

impl Server {
    /// Answers a request on the file of this name as the rules say: does the work and delivers its
    /// result.
    fn answer<R: Reply, T>(
        &self,
        operation: &'static str,
        name: String,
        reply: R,
        work: impl FnOnce(&Shared) -> io::Result<T> + Send + 'static,
        deliver: impl FnOnce(R, T) + Send + 'static,
    ) {
        let shared = self.shared.clone();
        let mut control = lock(&shared.rules);
        control.rules.begin(operation);
        let rule = control.rules.of(&name, operation).copied().unwrap_or_default();
        drop(control);
        let may_wait = rule.frozen || !rule.delay.is_zero();
        let answer = move || {
            let done = match shared.obey(&name, operation) {
                Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                None => work(&shared),
            };
            // Before the answer, so that its receiver sees the counters of a finished request.
            lock(&shared.rules).rules.end(operation);
            match done {
                Ok(result) => deliver(reply, result),
                Err(error) => reply.refuse(errno(&error)),
            }
        };
        if may_wait {
            thread::spawn(answer);
        } else {
            answer();
        }
    }

    fn name(&self, number: INodeNo) -> String {
        self.shared.relative(number).map(|path| name_of(&path)).unwrap_or_default()
    }

    /// As `answer`, for work on a name in a directory: the work is given its relative path.
    fn answer_at<R: Reply, T>(
        &self,
        operation: &'static str,
        (parent, name): (INodeNo, &OsStr),
        reply: R,
        work: impl FnOnce(&Shared, PathBuf) -> io::Result<T> + Send + 'static,
        deliver: impl FnOnce(R, T) + Send + 'static,
    ) {
        let at = name.to_owned();
        let work = move |shared: &Shared| work(shared, shared.relative(parent)?.join(at));
        self.answer(operation, name.to_string_lossy().into_owned(), reply, work, deliver);
    }

    fn entry(&self) -> impl FnOnce(ReplyEntry, FileAttr) + Send + 'static {
        let ttl = self.shared.ttl;
        move |reply, attributes| reply.entry(&ttl, &attributes, Generation(0))
    }
}

/// What `setattr` changes.
struct Change {
    mode: Option<u32>,
    owner: (Option<u32>, Option<u32>),
    size: Option<u64>,
    times: (Option<TimeOrNow>, Option<TimeOrNow>),
}

impl Change {
    /// `flags` are those of calls that change the owner and the times.
    fn apply(self, path: &Path, flags: AtFlags) -> io::Result<()> {
        if let Some(size) = self.size {
            File::options().write(true).open(path)?.set_len(size)?;
        }
        if let Some(mode) = self.mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))?;
        }
        if self.owner != (None, None) {
            let (uid, gid) = (self.owner.0.map(Uid::from_raw), self.owner.1.map(Gid::from_raw));
            rustix::fs::chownat(CWD, path, uid, gid, flags)?;
        }
        if self.times.0.is_some() || self.times.1.is_some() {
            let times = Timestamps {
                last_access: timespec(self.times.0),
                last_modification: timespec(self.times.1),
            };
            rustix::fs::utimensat(CWD, path, &times, flags)?;
        }
        Ok(())
    }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let since = |time: SystemTime| match time.duration_since(UNIX_EPOCH) {
        Ok(since) => {
            Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
        }
        Err(before) => Timespec { tv_sec: -(before.duration().as_secs() as i64), tv_nsec: 0 },
    };
    match time {
        None => special(UTIME_OMIT),
        Some(TimeOrNow::Now) => special(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => since(time),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let all = config.capabilities();
        let asynchronous = InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_ASYNC_DIO;
        let wanted = (asynchronous | self.options.wanted) - self.options.refused;
        let refused = config.add_capabilities(wanted & all).err().unwrap_or(InitFlags::empty());
        let missing = refused | (self.options.wanted - all);
        if !missing.is_empty() {
            return Err(io::Error::other(format!("the kernel lacks {missing:?}")));
        }
        if self.options.passes() {
            // The files are in no file system that is stacked itself.
            let _ = config.set_max_stack_depth(1);
        }
        if let Some(most) = self.options.max_background {
            let _ = config.set_max_background(most);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == CONTROL_NAME {
            return reply.entry(&self.shared.ttl, &self.shared.control(), Generation(0));
        }
        let find = |shared: &Shared, path: PathBuf| shared.entry(&path);
        self.answer_at("lookup", (parent, name), reply, find, self.entry());
    }

    fn getattr(&self, _: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let ttl = self.shared.ttl;
        if ino == CONTROL {
            return reply.attr(&ttl, &self.shared.control());
        }
        let name = self.name(ino);
        let get = move |shared: &Shared| {
            let path = shared.path(ino)?;
            shared.grow(&path)?;
            match fh.map_or_else(|| shared.any_file(ino), |fh| shared.file(fh).ok()) {
                Some(file) => Ok(shared.attributes_of(ino, &name_of(&path), &file.metadata()?)),
                None => shared.attributes(ino, &path),
            }
        };
        self.answer("getattr", name, reply, get, move |reply, found| reply.attr(&ttl, &found));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let ttl = self.shared.ttl;
        if ino == CONTROL {
            return reply.attr(&ttl, &self.shared.control());
        }
        let change = Change { mode, owner: (uid, gid), size, times: (atime, mtime) };
        let set = move |shared: &Shared| {
            let path = shared.path(ino)?;
            let file = fh.map_or_else(|| shared.any_file(ino), |fh| shared.file(fh).ok());
            let Some(file) = file else {
                change.apply(&path, AtFlags::SYMLINK_NOFOLLOW)?;
                return shared.attributes(ino, &path);
            };
            let number = std::os::fd::AsRawFd::as_raw_fd(&*file);
            change.apply(Path::new(&format!("/proc/self/fd/{number}")), AtFlags::empty())?;
            Ok(shared.attributes_of(ino, &name_of(&path), &file.metadata()?))
        };
        let deliver = move |reply: ReplyAttr, found: FileAttr| reply.attr(&ttl, &found);
        self.answer("setattr", self.name(ino), reply, set, deliver);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let read = move |shared: &Shared| fs::read_link(shared.path(ino)?);
        self.answer("lookup", self.name(ino), reply, read, |reply, target| {
            reply.data(target.as_os_str().as_encoded_bytes());
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let owner = (request.uid(), request.gid());
        let make = move |shared: &Shared, path: PathBuf| {
            fs::create_dir(shared.full(&path))?;
            give(&shared.full(&path), mode & !umask, owner)?;
            shared.entry(&path)
        };
        self.answer_at("mkdir", (parent, name), reply, make, self.entry());
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |shared: &Shared, path: PathBuf| {
            fs::remove_file(shared.full(&path))?;
            lock(&shared.nodes).remove(&path);
            Ok(())
        };
        self.answer_at("unlink", (parent, name), reply, remove, |reply, ()| reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |shared: &Shared, path: PathBuf| {
            fs::remove_dir(shared.full(&path))?;
            lock(&shared.nodes).remove(&path);
            Ok(())
        };
        self.answer_at("unlink", (parent, name), reply, remove, |reply, ()| reply.ok());
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.to_owned();
        let link = move |shared: &Shared, path: PathBuf| {
            std::os::unix::fs::symlink(target, shared.full(&path))?;
            shared.entry(&path)
        };
        self.answer_at("create", (parent, name), reply, link, self.entry());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let new_name = new_name.to_owned();
        let rename = move |shared: &Shared, from: PathBuf| {
            let to = shared.relative(new_parent)?.join(new_name);
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            rustix::fs::renameat_with(CWD, shared.full(&from), CWD, shared.full(&to), flags)?;
            let mut nodes = lock(&shared.nodes);
            if flags.contains(rustix::fs::RenameFlags::EXCHANGE) {
                nodes.exchange(&from, &to);
            } else {
                nodes.rename(&from, &to);
            }
            Ok(())
        };
        self.answer_at("rename", (parent, name), reply, rename, |reply, ()| reply.ok());
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let link = move |shared: &Shared, path: PathBuf| {
            fs::hard_link(shared.path(ino)?, shared.full(&path))?;
            shared.entry(&path)
        };
        self.answer_at("create", (new_parent, new_name), reply, link, self.entry());
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino == CONTROL {
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        }
        let writes = flags.0 & rustix::fs::OFlags::ACCMODE.bits() as i32 != 0;
        let open = move |shared: &Shared| {
            let path = shared.path(ino)?;
            // (With a write-back cache the kernel reads files that are open for writing only.)
            let file = File::options().read(true).write(writes).open(&path)?;
            Ok((shared.keep(ino, file), shared.open_flags(&path)))
        };
        let (shared, passes) = (self.shared.clone(), self.options.passes());
        let deliver = move |reply: ReplyOpen, (handle, flags)| {
            if !passes {
                return reply.opened(handle, flags);
            }
            match shared.pass(handle, |file| reply.open_backing(file)) {
                Ok(passed) => reply.opened_passthrough(handle, flags, &passed),
                Err(error) => {
                    lock(&shared.files).remove(&handle.0);
                    reply.refuse(errno(&error));
                }
            }
        };
        self.answer("open", self.name(ino), reply, open, deliver);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let ttl = self.shared.ttl;
        let owner = (request.uid(), request.gid());
        let create = move |shared: &Shared, path: PathBuf| {
            let full = shared.full(&path);
            let is_new = flags & rustix::fs::OFlags::EXCL.bits() as i32 != 0;
            let mut options = File::options();
            options.read(true).write(true).create(true).create_new(is_new).mode(0o600);
            let existed = full.exists();
            let file = options.open(&full)?;
            if !existed {
                give(&full, mode & !umask, owner)?;
            }
            let attributes = shared.entry(&path)?;
            Ok((attributes, shared.keep(attributes.ino, file), shared.open_flags(&full)))
        };
        let (shared, passes) = (self.shared.clone(), self.options.passes());
        let deliver = move |reply: ReplyCreate, (attributes, handle, flags)| {
            let generation = Generation(0);
            if !passes {
                return reply.created(&ttl, &attributes, generation, handle, flags);
            }
            match shared.pass(handle, |file| reply.open_backing(file)) {
                Ok(passed) => {
                    reply.created_passthrough(
                        &ttl,
                        &attributes,
                        generation,
                        handle,
                        flags,
                        &passed,
                    );
                }
                Err(error) => {
                    lock(&shared.files).remove(&handle.0);
                    reply.refuse(errno(&error));
                }
            }
        };
        self.answer_at("create", (parent, name), reply, create, deliver);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino == CONTROL {
            let counts = lock(&self.shared.rules).rules.counts();
            let from = counts.as_bytes().get(offset as usize..).unwrap_or_default();
            return reply.data(&from[..from.len().min(size as usize)]);
        }
        let name = self.name(ino);
        let short = self.shared.short(&name, "read");
        let read = move |shared: &Shared| {
            let file = shared.file(fh)?;
            let mut bytes = vec![0; short.min(size as usize)];
            let mut read = 0;
            while read < bytes.len() {
                match file.read_at(&mut bytes[read..], offset + read as u64)? {
                    0 => break,
                    more => read += more,
                }
            }
            bytes.truncate(read);
            Ok(bytes)
        };
        self.answer("read", name, reply, read, |reply, bytes| reply.data(&bytes));
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if ino == CONTROL {
            return match self.shared.set_rules(data) {
                Ok(()) => reply.written(data.len() as u32),
                Err(error) => reply.error(errno(&error)),
            };
        }
        let name = self.name(ino);
        let data = data[..data.len().min(self.shared.short(&name, "write"))].to_vec();
        let write = move |shared: &Shared| {
            shared.file(fh)?.write_all_at(&data, offset)?;
            Ok(data.len() as u32)
        };
        self.answer("write", name, reply, write, |reply, written| reply.written(written));
    }

    fn flush(&self, _: &Request, ino: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        if ino == CONTROL {
            return reply.ok();
        }
        self.answer("flush", self.name(ino), reply, |_| Ok(()), |reply, ()| reply.ok());
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if ino == CONTROL {
            return reply.ok();
        }
        let release = move |shared: &Shared| {
            lock(&shared.files).remove(&fh.0);
            Ok(())
        };
        self.answer("release", self.name(ino), reply, release, |reply, ()| reply.ok());
    }

    fn fsync(&self, _: &Request, ino: INodeNo, fh: FileHandle, data: bool, reply: ReplyEmpty) {
        if ino == CONTROL {
            return reply.ok();
        }
        let sync = move |shared: &Shared| {
            let file = shared.file(fh)?;
            if data { file.sync_data() } else { file.sync_all() }
        };
        self.answer("fsync", self.name(ino), reply, sync, |reply, ()| reply.ok());
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let sync = move |shared: &Shared| File::open(shared.path(ino)?)?.sync_all();
        self.answer("fsync", self.name(ino), reply, sync, |reply, ()| reply.ok());
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let list = move |shared: &Shared| {
            let mut found = vec![(ino, FileType::Directory, ".".into())];
            found.push((ino, FileType::Directory, "..".into()));
            let relative = shared.relative(ino)?;
            for entry in fs::read_dir(shared.full(&relative))? {
                let entry = entry?;
                let kind = FileType::from_std(entry.file_type()?).unwrap_or(FileType::RegularFile);
                let number = lock(&shared.nodes).number(&relative.join(entry.file_name()));
                found.push((number, kind, entry.file_name()));
            }
            Ok(found)
        };
        let deliver = move |mut reply: ReplyDirectory, found: Vec<_>| {
            for (at, (number, kind, name)) in found.into_iter().enumerate().skip(offset as usize) {
                if reply.add(number, at as u64 + 1, kind, name) {
                    break;
                }
            }
            reply.ok();
        };
        self.answer("readdir", self.name(ino), reply, list, deliver);
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let stat = |shared: &Shared| Ok(rustix::fs::statvfs(&shared.backing)?);
        let deliver = |reply: ReplyStatfs, found: rustix::fs::StatVfs| {
            let sizes = (found.f_bsize as u32, found.f_namemax as u32, found.f_frsize as u32);
            let blocks = (found.f_blocks, found.f_bfree, found.f_bavail);
            reply.statfs(
                blocks.0,
                blocks.1,
                blocks.2,
                found.f_files,
                found.f_ffree,
                sizes.0,
                sizes.1,
                sizes.2,
            );
        };
        self.answer("statfs", self.name(ino), reply, stat, deliver);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocate = move |shared: &Shared| {
            let mode = FallocateFlags::from_bits_retain(mode as u32);
            Ok(rustix::fs::fallocate(&*shared.file(fh)?, mode, offset, length)?)
        };
        self.answer("fallocate", self.name(ino), reply, allocate, |reply, ()| reply.ok());
    }
}

/// Sets mode and owner of what was created for somebody.
fn give(path: &Path, mode: u32, (uid, gid): (u32, u32)) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))?;
    let me = rustix::process::geteuid().as_raw();
    if uid != me {
        std::os::unix::fs::chown(path, Some(uid), Some(gid))?;
    }
    Ok(())
}
