//! The cells of a row, each observed by itself.

use crate::Row;
use crate::failure;
use crate::ring::{Request, Served, serve, serve_second};
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, StatxFlags, copy_file_range,
    fadvise, fallocate, fdatasync, fsync, ioctl_ficlone, linkat, open, openat, renameat_with,
    statx,
};
use rustix::io::{Errno, IoSlice, IoSliceMut, ReadWriteFlags, pread, preadv2, pwrite, pwritev2};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Where to observe.
#[derive(Clone, Debug)]
pub struct Place {
    /// The name of the row.
    pub name: String,
    /// The type in /proc/self/mountinfo.
    pub file_system: String,
    /// A directory to write to; or, of a file system that is only read, one that contains
    /// [`Place::FILE`], of [`Place::content`].
    pub dir: PathBuf,
    /// Whether it can be written to.
    pub writable: bool,
    /// The file shares its blocks with a copy (reflink).
    pub shared: bool,
    /// The block device whose flushes are counted, as in "loop0".
    pub device: Option<String>,
    /// The linear device of the device mapper that it is on: blocks of it are made to fail.
    pub mapped: Option<String>,
    /// The directory whose files the transfers are made of, and whose pages are cached, if the file
    /// system forgets none of them (FUSE passthrough).
    pub behind: Option<PathBuf>,
}

impl Place {
    /// The name of the file that is read.
    pub const FILE: &'static str = "file";

    /// Its content: a quarter of it is random, and it is not a whole number of blocks.
    pub fn content() -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut bytes = vec![b'x'; LEN + TAIL];
        for line in bytes.chunks_exact_mut(32) {
            line[..8].copy_from_slice(&next().to_ne_bytes());
        }
        bytes
    }
}

const LEN: usize = 1 << 20;
/// The bytes of the file's last block.
const TAIL: usize = 904;
pub(crate) const PAGE: usize = 4096;
/// How often who serves a request is observed, and the most times that count as chance.
const TIMES: u64 = 15;
const RARE: u64 = 5;
/// Between answers that are both frequent.
pub(crate) const OR: &str = " or ";
/// RWF_ATOMIC (6.11) and RWF_DONTCACHE (6.14), of include/uapi/linux/fs.h.
const ATOMIC: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x40);
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
/// STATX_WRITE_ATOMIC (6.11), of include/uapi/linux/stat.h.
const STATX_WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x10000);

/// Observes the cells that apply.
///
/// # Errors
///
/// Those of preparing the file. What the file system refuses is in the cells.
pub fn observe(place: &Place) -> io::Result<Row> {
    let path = place.dir.join(Place::FILE);
    if place.writable {
        fs::write(&path, Place::content())?;
    }
    if place.shared {
        ioctl_ficlone(fs::File::create(place.dir.join("shares"))?, fs::File::open(&path)?)?;
    }
    let mut row =
        Row { name: place.name.clone(), file_system: place.file_system.clone(), ..Row::default() };
    let mut set = |cell: &str, text: String| _ = row.cells.insert(cell.to_owned(), text);
    let mode = if place.writable { OFlags::RDWR } else { OFlags::RDONLY };
    let buffered = open(&path, mode, Mode::empty())?;
    fsync(&buffered).or_else(|error| if place.writable { Err(error) } else { Ok(()) })?;
    // A file that was written this very moment has an access time that is due.
    thread::sleep(Duration::from_millis(20));
    let direct = open(&path, mode | OFlags::DIRECT, Mode::empty());
    set("direct open", text(&direct));
    set("alignment", alignment(&path)?);
    if let Ok(direct) = &direct {
        set("least block", least_block(direct));
        set("direct read", who(|at| request(direct, Request::Read { at: at * 8192, len: PAGE })));
        set("direct end", end(direct));
    }
    let below = match &place.behind {
        Some(dir) => Some(open(dir.join(Place::FILE), OFlags::RDONLY, Mode::empty())?),
        None => place.device.as_deref().and_then(backing_file),
    };
    observe_cache(&path, &buffered, below.as_ref(), &mut set)?;
    if place.writable {
        if let Some(answer) = buffered_write(&buffered)? {
            set("buffered write", answer);
        }
        if let Ok(direct) = &direct {
            observe_direct_writes(direct, place.device.as_deref(), &mut set)?;
        }
        observe_names(&place.dir, &buffered, &mut set)?;
        if let Some(mapped) = &place.mapped {
            failure::observe(&place.dir, mapped, &mut set)?;
        }
    }
    Ok(row)
}

/// "yes", or the name of the error.
pub(crate) fn text<T>(result: &Result<T, Errno>) -> String {
    match result {
        Ok(_) => "yes".to_owned(),
        Err(error) => errno_name(*error),
    }
}

pub(crate) fn errno_name(errno: Errno) -> String {
    match errno {
        Errno::OPNOTSUPP => "EOPNOTSUPP".to_owned(),
        Errno::INVAL => "EINVAL".to_owned(),
        Errno::AGAIN => "EAGAIN".to_owned(),
        Errno::NOTTY => "ENOTTY".to_owned(),
        Errno::XDEV => "EXDEV".to_owned(),
        Errno::ROFS => "EROFS".to_owned(),
        Errno::NOSYS => "ENOSYS".to_owned(),
        Errno::IO => "EIO".to_owned(),
        Errno::PERM => "EPERM".to_owned(),
        other => other.to_string(),
    }
}

/// The answers of several requests, without those that are rare: a processor may be late.
fn who(mut request: impl FnMut(u64) -> String) -> String {
    who_if_known(|number| Some(request(number))).expect("each request has an answer")
}

/// The same of requests some of which show nothing; nothing if that are most of them.
fn who_if_known(request: impl FnMut(u64) -> Option<String>) -> Option<String> {
    frequent(count(request))
}

/// The same of requests to a device, which may be faster than the submitter looks: then they seem
/// to be served in place, as if it had waited. It does not where one of them is asynchronous.
fn who_waits(mut request: impl FnMut(u64) -> String) -> String {
    let mut seen = count(|number| Some(request(number)));
    if seen.contains_key("asynchronous")
        && let Some(fast) = seen.remove("in place")
    {
        *seen.entry("asynchronous".to_owned()).or_default() += fast;
    }
    frequent(seen).expect("each request has an answer")
}

fn count(request: impl FnMut(u64) -> Option<String>) -> BTreeMap<String, u64> {
    let mut seen = BTreeMap::new();
    for answer in (0..TIMES).filter_map(request) {
        *seen.entry(answer).or_default() += 1;
    }
    seen
}

fn frequent(mut seen: BTreeMap<String, u64>) -> Option<String> {
    seen.retain(|_, count| *count > RARE);
    let answers: Vec<String> = seen.into_keys().collect();
    (!answers.is_empty()).then(|| answers.join(OR))
}

fn request(fd: &OwnedFd, request: Request) -> String {
    answer(serve(fd.as_fd(), request))
}

fn answer(served: io::Result<Served>) -> String {
    match served {
        Ok(Served::InPlace) => "in place".to_owned(),
        Ok(Served::Asynchronously) => "asynchronous".to_owned(),
        Ok(Served::ByWorker) => "worker".to_owned(),
        Err(error) => match Errno::from_io_error(&error) {
            Some(errno) => errno_name(errno),
            None => error.to_string(),
        },
    }
}

fn alignment(path: &Path) -> io::Result<String> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::DIOALIGN)?;
    let reported = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN);
    Ok(match (reported, found.stx_dio_mem_align) {
        (false, _) => "not reported".to_owned(),
        (true, 0) => "none".to_owned(),
        (true, memory) => format!("{memory}, {}", found.stx_dio_offset_align),
    })
}

/// Memory aligned for every device.
#[repr(align(4096))]
#[derive(Clone)]
pub(crate) struct Page(pub(crate) [u8; PAGE]);

/// Memory that shows what is written to it.
pub(crate) fn page() -> Vec<Page> {
    vec![Page([0xaa; PAGE])]
}

fn least_block(direct: &OwnedFd) -> String {
    let mut memory = page();
    let works = |block: &usize| pread(direct, &mut memory[0].0[..*block], *block as u64).is_ok();
    let blocks = [1, 512, 1024, 2048, PAGE];
    blocks.into_iter().find(works).map_or("none".to_owned(), |block| block.to_string())
}

/// What becomes of the bytes behind the count.
fn end(direct: &OwnedFd) -> String {
    let mut memory = page();
    match pread(direct, &mut memory[0].0[..], LEN as u64) {
        Ok(count) if count == TAIL => {
            let rest = &memory[0].0[TAIL..];
            let all = |byte: u8| rest.iter().all(|one| *one == byte);
            let of_them = match () {
                () if all(0xaa) => "untouched",
                () if all(0) => "zero",
                () if rest[..512 - TAIL % 512].iter().all(|one| *one == 0) => "zero up to a sector",
                () => "changed",
            };
            of_them.to_owned()
        }
        Ok(count) => format!("the count is {count}"),
        Err(error) => errno_name(error),
    }
}

/// The file below a loop device. Pages of it that are cached would serve a cold read sooner than
/// the submitter looks.
fn backing_file(device: &str) -> Option<OwnedFd> {
    let path = fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).ok()?;
    open(path.trim_end(), OFlags::RDONLY, Mode::empty()).ok()
}

fn observe_cache(
    path: &Path,
    buffered: &OwnedFd,
    below: Option<&OwnedFd>,
    set: &mut impl FnMut(&str, String),
) -> io::Result<()> {
    let nonblocking = open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
    let read_flags = |flags| {
        let mut memory = page();
        let slice = &mut [IoSliceMut::new(&mut memory[0].0)];
        preadv2(buffered, slice, 0, flags)
    };
    let read_all = || {
        let mut all = vec![0; LEN + TAIL];
        pread(buffered, &mut all[..], 0).map(drop)
    };
    let cold = |fd: &OwnedFd, number: u64| {
        // Reading ahead would warm the next ones.
        fadvise(fd, 0, None, Advice::Random)?;
        fsync(buffered).ok();
        fadvise(buffered, 0, None, Advice::DontNeed)?;
        if let Some(below) = below {
            fadvise(below, 0, None, Advice::DontNeed)?;
        }
        Ok::<_, Errno>(request(fd, Request::Read { at: number * 65536, len: PAGE }))
    };
    for (cell, fd) in [("cold read", buffered), ("cold, O_NONBLOCK", &nonblocking)] {
        set(cell, who_waits(|number| cold(fd, number).unwrap_or_else(errno_name)));
    }
    read_all()?;
    set("cached, RWF_NOWAIT", text(&read_flags(ReadWriteFlags::NOWAIT)));
    for (cell, fd) in [("cached read", buffered), ("cached, O_NONBLOCK", &nonblocking)] {
        set(cell, who(|number| request(fd, Request::Read { at: number * 65536, len: PAGE })));
    }
    set("RWF_DONTCACHE read", text(&read_flags(DONTCACHE)));
    Ok(())
}

/// Who serves a write right after another one; nothing if the clock ticks between any two.
fn second_write(fd: &OwnedFd, at: u64) -> Option<String> {
    Some(answer(serve_second(fd.as_fd(), at).transpose()?))
}

fn buffered_write(buffered: &OwnedFd) -> io::Result<Option<String>> {
    let answer = who_if_known(|number| second_write(buffered, number * 65536));
    fsync(buffered)?;
    Ok(answer)
}

fn observe_direct_writes(
    direct: &OwnedFd,
    device: Option<&str>,
    set: &mut impl FnMut(&str, String),
) -> io::Result<()> {
    let memory = page();
    let write = |at: u64| pwrite(direct, &memory[0].0, at);
    let write_flags = |flags| pwritev2(direct, &[IoSlice::new(&memory[0].0)], 0, flags);
    let overwrite = |number: u64| request(direct, Request::Write { at: number * 8192, len: PAGE });
    if let Some(answer) = who_if_known(|number| second_write(direct, number * 8192)) {
        set("direct overwrite", answer);
    }
    set(
        "overwrite after 20 ms",
        who(|number| {
            thread::sleep(Duration::from_millis(20));
            overwrite(number)
        }),
    );
    let behind = |number: u64| (LEN + (1 << 20)) as u64 + number * 8192;
    set(
        "direct append",
        who(|number| request(direct, Request::Write { at: behind(number), len: PAGE })),
    );
    if let Some(device) = device {
        let dsync = flushes(device, || write_flags(ReadWriteFlags::DSYNC).map(drop))?;
        set("flushes, RWF_DSYNC", dsync);
        let after = flushes(device, || write(0).and_then(|_| fdatasync(direct)))?;
        set("flushes, fdatasync", after);
    }
    set("RWF_DONTCACHE write", {
        // Of a direct descriptor the flag means nothing.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(direct));
        let buffered = open(path, OFlags::RDWR, Mode::empty())?;
        text(&pwritev2(&buffered, &[IoSlice::new(&memory[0].0)], 0, DONTCACHE))
    });
    let found = statx(direct, c"", AtFlags::EMPTY_PATH, STATX_WRITE_ATOMIC)?;
    let reported = StatxFlags::from_bits_retain(found.stx_mask).contains(STATX_WRITE_ATOMIC)
        && found.stx_atomic_write_unit_max > 0;
    let units = if reported {
        format!("{} to {}", found.stx_atomic_write_unit_min, found.stx_atomic_write_unit_max)
    } else {
        "not reported".to_owned()
    };
    set("atomic write", format!("{units}; {}", text(&write_flags(ATOMIC))));
    Ok(())
}

/// The flushes that the device counts for one of several calls, rounded.
fn flushes(device: &str, mut call: impl FnMut() -> Result<(), Errno>) -> io::Result<String> {
    const CALLS: u64 = 20;
    // Completed flushes are the 16th number (Documentation/block/stat.rst, since 5.5).
    let count = || -> io::Result<u64> {
        let text = fs::read_to_string(format!("/sys/block/{device}/stat"))?;
        let field = text.split_whitespace().nth(15).and_then(|number| number.parse().ok());
        field.ok_or_else(|| io::Error::other("the kernel counts no flushes"))
    };
    // The first one may find other changes to sync.
    if let Err(error) = call() {
        return Ok(errno_name(error));
    }
    let before = count()?;
    for _ in 0..CALLS {
        // Each call makes a change of its own.
        thread::sleep(Duration::from_millis(5));
        call()?;
    }
    Ok(((count()? - before + CALLS / 2) / CALLS).to_string())
}

fn observe_names(
    dir: &Path,
    buffered: &OwnedFd,
    set: &mut impl FnMut(&str, String),
) -> io::Result<()> {
    let create = |name: &str| {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        open(dir.join(name), flags, Mode::from_raw_mode(0o600))
    };
    let copy = create("copy")?;
    let copied = copy_file_range(buffered, Some(&mut 0), &copy, Some(&mut 0), LEN);
    set("copy_file_range", text(&copied));
    set("reflink", text(&ioctl_ficlone(create("clone")?, buffered)));
    set("O_TMPFILE", {
        let at = open(dir, OFlags::DIRECTORY, Mode::empty())?;
        let named = openat(&at, c".", OFlags::RDWR | OFlags::TMPFILE, Mode::from_raw_mode(0o600))
            .and_then(|file| {
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
                linkat(CWD, path, &at, "named", AtFlags::SYMLINK_FOLLOW)
            });
        text(&named)
    });
    set("RENAME_NOREPLACE", {
        let flags = RenameFlags::NOREPLACE;
        text(&renameat_with(CWD, dir.join("copy"), CWD, dir.join("renamed"), flags))
    });
    // They are there only if that has succeeded. A second observation needs their names.
    for name in ["named", "renamed"] {
        let _ = fs::remove_file(dir.join(name));
    }
    set("fallocate", {
        let file = create("allocated")?;
        rustix::fs::ftruncate(&file, 1 << 20)?;
        let keep = FallocateFlags::KEEP_SIZE;
        let modes = [
            ("allocate", FallocateFlags::empty()),
            ("keep size", keep),
            ("punch", FallocateFlags::PUNCH_HOLE | keep),
            ("zero", FallocateFlags::ZERO_RANGE),
            ("collapse", FallocateFlags::COLLAPSE_RANGE),
            ("insert", FallocateFlags::INSERT_RANGE),
        ];
        let works = |(_, mode): &(_, FallocateFlags)| fallocate(&file, *mode, 0, 65536).is_ok();
        let names: Vec<&str> = modes.into_iter().filter(works).map(|(name, _)| name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    });
    Ok(())
}
