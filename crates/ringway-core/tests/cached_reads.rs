//! Reads of what is in memory, where `preadv2(2)` refuses `RWF_NOWAIT`.

// Other systems have no such call.
#![cfg(ringway_linux)]

#[path = "common/places.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod places;
#[path = "common/skip.rs"]
mod skip;

use ringway_core::{File, OpenOptions, Options, op};
use ringway_hostile::Hostile;
use skip::skip;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, panic, thread};

/// Pages of tmpfs are in memory, unless there is swap space: they are read in place, whoever has
/// opened the file.
#[test]
fn files_in_memory_are_read_in_place() {
    const LEN: usize = 100_000;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    if !mounts.lines().any(|line| line.contains(" /dev/shm tmpfs ")) {
        assert!(std::env::var_os("CI").is_none(), "/dev/shm is no tmpfs, with CI set");
        return println!("skipped: /dev/shm is no tmpfs");
    }
    // (`/proc/swaps` may be made up in a container.)
    let mut info = std::mem::MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the call writes a whole `sysinfo`, of which every bit pattern is valid.
    let has_swap = unsafe {
        assert_eq!(libc::sysinfo(info.as_mut_ptr()), 0);
        info.assume_init().totalswap != 0
    };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("file");
    let content: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    fs::write(&path, &content).unwrap();
    for file in [File::open(&path).unwrap(), File::from(fs::File::open(&path).unwrap())] {
        let reads = [(LEN, 0), (2 * LEN, 0), (5, 7), (10, LEN - 3), (1, LEN), (1, 2 * LEN)];
        for (len, offset) in reads {
            let mut bytes = vec![0; len];
            let read = file.read_now(&mut bytes, offset as u64);
            let wanted = &content[offset.min(LEN)..(offset + len).min(LEN)];
            assert_eq!(read, (!has_swap).then_some(wanted.len()), "{len} at {offset}");
            assert!(has_swap || bytes[..wanted.len()] == *wanted);
        }
    }
    // A hole, and a file without read permission.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(3 * LEN as u64).unwrap();
    let mut hole = vec![7; LEN];
    let read = File::open(&path).unwrap().read_now(&mut hole, 2 * LEN as u64);
    assert_eq!(read, (!has_swap).then_some(LEN));
    assert!(has_swap || hole.iter().all(|byte| *byte == 0));
    assert_eq!(File::from(file).read_now(&mut hole, 0), None);
}

/// A try would read from the device.
#[test]
fn a_file_that_is_open_for_direct_io_is_not_read_in_place() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![7; 2 * PAGE]).unwrap();
    let mut direct = OpenOptions::new();
    let file = match direct.read(true).direct(true).open(&path) {
        Ok(file) => file,
        Err(error) => return skip(&format!("no direct I/O: {error}")),
    };
    let mut buffer = ringway_core::AlignedBuffer::new(PAGE, PAGE);
    assert_eq!(file.read_now(&mut buffer, 0), None);
    assert_eq!(file.read_some_now(&mut buffer, 0), None);
    assert_eq!(file.read_some_now(&mut [], 0), Some(0), "nothing needs no device");
}

const PAGE: usize = 4096;
const LEN: usize = 40 * PAGE + 100;

/// More than a tick of the kernel's clock.
const TICKS: Duration = Duration::from_millis(25);

/// When the present tick of the kernel's clock has begun.
fn tick() -> (i64, i64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one live value.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
    assert_eq!(result, 0);
    (time.tv_sec, time.tv_nsec)
}

/// When the file was changed last.
fn changed(path: &Path) -> (i64, i64) {
    let found = fs::metadata(path).unwrap();
    (found.ctime(), found.ctime_nsec())
}

/// Each page is another one.
fn content() -> Vec<u8> {
    (0..LEN).map(|at| (at / PAGE + at % 251) as u8).collect()
}

/// A file that is older than its opens.
fn make(dir: &Path) -> PathBuf {
    let path = dir.join("file");
    fs::write(&path, content()).unwrap();
    thread::sleep(TICKS);
    path
}

/// Reads with an operation, as a program does after a try that found nothing.
fn read(file: &File, at: usize, len: usize) -> Vec<u8> {
    let mut queue = Options::new().build().unwrap();
    queue.push(op::read(file, vec![0; len], at as u64).exact()).unwrap();
    let done = queue.reap(1).unwrap().next().unwrap();
    let count = done.result.unwrap() as usize;
    let mut bytes = Vec::try_from(done.into_buffer().unwrap()).unwrap();
    bytes.truncate(count);
    bytes
}

fn read_now(file: &File, at: usize, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = file.read_now(&mut bytes, at as u64)?;
    bytes.truncate(read);
    Some(bytes)
}

fn drop_pages(file: &File) {
    file.with_std(|file| {
        // (Pages that are written are kept.)
        file.sync_all().unwrap();
        let fd = file.as_raw_fd();
        // SAFETY: the call takes numbers only.
        let dropped = unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(dropped, 0);
    });
}

fn flags(file: &File) -> i32 {
    // SAFETY: `fcntl` with F_GETFL takes numbers only.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }
}

/// Whether reads of the file are made in place after the first.
fn becomes_in_place(file: &File) -> bool {
    assert_eq!(read_now(file, 0, PAGE), None, "before the first read");
    assert_eq!(read(file, 0, PAGE), content()[..PAGE]);
    read_now(file, 0, PAGE).inspect(|bytes| assert_eq!(*bytes, content()[..PAGE])).is_some()
}

/// An overlay of directories on ext4, above `lower` if there is one, with these options.
fn on_overlay(lower: Option<&Path>, options: &str, test: impl Fn(&Path)) {
    places::on(&["ext4"], skip, |_, dir| match places::Overlay::mount(lower, dir, options) {
        Ok(overlay) => test(&overlay.path()),
        Err(error) => skip(&error.to_string()),
    });
}

/// A directory for a lower layer, with a file.
fn lower() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = make(dir.path());
    (dir, path)
}

#[test]
fn cached_reads_of_overlays_are_made_in_place() {
    on_overlay(None, "", |dir| {
        let (path, all) = (make(dir), content());
        let file = File::open(&path).unwrap();
        let is_undecided = !file.may_read_now();
        if !becomes_in_place(&file) {
            return println!("skipped: an older kernel");
        }
        assert!(is_undecided && file.may_read_now());
        for (at, len) in [
            (0, PAGE),
            (5, PAGE),
            (3, LEN - 3),
            (LEN - 100, PAGE),
            (LEN - 1, 1),
            (LEN, 10),
            (LEN + PAGE, PAGE),
            (1 << 40, PAGE),
            (0, 2 * LEN),
        ] {
            let wanted = &all[at.min(LEN)..(at + len).min(LEN)];
            assert_eq!(read_now(&file, at, len).as_deref(), Some(wanted), "{len} at {at}");
        }
        assert_eq!(file.read_now(&mut [0; 10], u64::MAX - 5), None);
        assert_eq!(flags(&file) & libc::O_NONBLOCK, 0);
        // A part is missing.
        drop_pages(&file);
        assert_eq!(read_now(&file, 0, LEN), None);
        assert_eq!(read(&file, 5 * PAGE, PAGE), all[5 * PAGE..6 * PAGE]);
        assert_eq!(read_now(&file, 5 * PAGE, PAGE).as_deref(), Some(&all[5 * PAGE..6 * PAGE]));
    });
}

/// In a lower layer, also after it was copied to the upper one, of which the mapping of the
/// descriptor knows nothing.
#[test]
fn a_file_that_others_change_is_read_as_before() {
    let (lower, _) = lower();
    on_overlay(Some(lower.path()), "", |dir| {
        let path = dir.join("file");
        let file = File::open(&path).unwrap();
        let is_in_place = becomes_in_place(&file);
        let writer = fs::File::options().write(true).open(&path).unwrap();
        writer.write_all_at(b"changed", 10).unwrap();
        thread::sleep(TICKS);
        assert_eq!(read_now(&file, 10, 7), None);
        assert_eq!(read(&file, 10, 7), b"changed");
        assert_eq!(read_now(&file, 10, 7), None, "for ever");
        // Opened after the change it is as before.
        let file = File::open(&path).unwrap();
        read(&file, 0, 1);
        assert_eq!(read_now(&file, 10, 7).is_some(), is_in_place);
        // What is opened in the tick of a change may be another file already.
        let opened = (5..1000).find_map(|more| {
            writer.set_len(LEN as u64 + more).unwrap();
            let file = File::open(&path).unwrap();
            // On a busy machine the tick may have ended before.
            (tick() <= changed(&path)).then_some(file)
        });
        let file = opened.expect("one of many opens is in the tick of a change");
        read(&file, 0, 1);
        assert_eq!(read_now(&file, 10, 7), None);
    });
}

/// The open may have found the file as it was before.
#[test]
fn a_file_that_is_changed_while_it_is_opened_is_left_alone() {
    on_overlay(None, "", |dir| {
        let path = make(dir);
        let mut queue = Options::new().build().unwrap();
        queue.push(op::open(&path, OpenOptions::new().read(true))).unwrap();
        thread::sleep(TICKS);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        thread::sleep(TICKS);
        let file = queue.reap(1).unwrap().next().unwrap().into_file().unwrap();
        assert!(!becomes_in_place(&file));
    });
}

/// The first read changes it, no later one does, and so none waits for the journal.
#[test]
fn the_first_read_changes_the_access_time() {
    on_overlay(None, "", |dir| {
        let path = make(dir);
        let accessed = || fs::metadata(&path).unwrap().accessed().unwrap();
        let age = || {
            let times = fs::FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH);
            fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
            thread::sleep(TICKS);
        };
        age();
        let file = File::open(&path).unwrap();
        let is_in_place = becomes_in_place(&file);
        assert_ne!(accessed(), SystemTime::UNIX_EPOCH);
        assert_eq!(flags(&file) & libc::O_NOATIME != 0, is_in_place);
        let first = accessed();
        thread::sleep(TICKS);
        read_now(&file, PAGE, PAGE);
        assert_eq!(accessed(), first);
    });
}

/// Even one that each read changes, because the file was modified later.
#[test]
fn the_first_try_leaves_the_access_time() {
    on_overlay(None, "", |dir| {
        let path = make(dir);
        let times =
            fs::FileTimes::new().set_modified(SystemTime::now() + Duration::from_secs(3600));
        fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        thread::sleep(TICKS);
        let file = File::open(&path).unwrap();
        read(&file, 0, PAGE);
        let accessed = || fs::metadata(&path).unwrap().accessed().unwrap();
        let first = accessed();
        thread::sleep(TICKS);
        read_now(&file, 0, PAGE);
        assert_eq!(accessed(), first);
    });
}

/// Of these a try would wait, or nothing is known.
#[test]
fn other_files_are_left_alone() {
    on_overlay(None, "", |dir| {
        let path = make(dir);
        let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for file in [both, File::from(fs::File::open(&path).unwrap())] {
            let before = flags(&file);
            assert!(!becomes_in_place(&file));
            assert_eq!(flags(&file), before);
        }
    });
    // Metadata in one layer, data in another.
    on_overlay(None, "metacopy=on,", |dir| {
        assert!(!becomes_in_place(&File::open(make(dir)).unwrap()));
    });
    // XFS takes a lock; pages on tmpfs may be in swap space.
    places::on(&["overlay on XFS", "overlay on tmpfs"], skip, |name, dir| {
        assert!(!becomes_in_place(&File::open(make(dir)).unwrap()), "{name}");
    });
}

/// Its server would be asked. A file above it is in the upper layer.
#[test]
fn a_file_whose_layer_has_a_server_is_left_alone() {
    let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
    make(&hostile.path());
    on_overlay(Some(&hostile.path()), "", |dir| {
        let file = File::open(dir.join("file")).unwrap();
        let before = flags(&file);
        assert!(!becomes_in_place(&file));
        assert_eq!(flags(&file), before);
        fs::write(dir.join("above"), content()).unwrap();
        thread::sleep(TICKS);
        becomes_in_place(&File::open(dir.join("above")).unwrap());
    });
}

/// To others, `mincore(2)` shows every page.
#[test]
fn only_the_owner_knows_the_pages() {
    on_overlay(None, "", |dir| {
        let path = make(dir);
        let owned = File::open(&path).unwrap();
        let is_in_place = becomes_in_place(&owned);
        // Changes this thread alone, and takes CAP_FOWNER from it.
        let not_owner = || {
            // SAFETY: the call takes a number only.
            unsafe { libc::syscall(libc::SYS_setfsuid, 65534) };
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                not_owner();
                thread::sleep(TICKS);
                assert_eq!(read_now(&owned, 0, PAGE), None);
                let file = File::open(&path).unwrap();
                let before = flags(&file);
                assert!(!becomes_in_place(&file));
                assert_eq!(flags(&file), before);
            });
        });
        thread::sleep(TICKS);
        assert_eq!(read_now(&owned, 0, PAGE).is_some(), is_in_place);
    });
}

/// Each page has a number of its own, whoever reads and whatever the length is. A read that meets a
/// truncation may also show zeroes: the kernel looks at the length first, and then it copies what
/// the truncation is clearing.
#[test]
fn what_is_read_in_place_is_in_the_file() {
    on_overlay(None, "", |dir| {
        let path = make(dir);
        let until = Instant::now() + Duration::from_millis(500);
        thread::scope(|scope| {
            scope.spawn(|| {
                let writer = fs::File::options().write(true).open(&path).unwrap();
                while Instant::now() < until {
                    writer.set_len(PAGE as u64 + 7).unwrap();
                    thread::sleep(TICKS);
                    writer.write_all_at(&content()[PAGE..], PAGE as u64).unwrap();
                    thread::sleep(TICKS);
                }
            });
            for _ in 0..3 {
                scope.spawn(|| {
                    let all = content();
                    while Instant::now() < until {
                        let file = File::open(&path).unwrap();
                        read(&file, 0, 1);
                        for at in (0..LEN).step_by(PAGE) {
                            let Some(bytes) = read_now(&file, at, 2 * PAGE) else { break };
                            let mut pairs = bytes.iter().zip(&all[at..]);
                            assert!(pairs.all(|(is, was)| is == was || *is == 0), "at {at}");
                        }
                    }
                });
            }
        });
    });
}

/// Runs `test` in a forked child.
fn in_child(test: impl FnOnce() -> bool) {
    // SAFETY: the child runs `test` and ends without running anything of the parent.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let is_right = panic::catch_unwind(panic::AssertUnwindSafe(test)).unwrap_or(false);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes an int into `status`.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// A forked child has the mapping too, and frees its own.
#[test]
fn a_forked_child_reads_in_place_and_frees_its_own_mapping() {
    on_overlay(None, "", |dir| {
        let file = File::open(make(dir)).unwrap();
        let is_in_place = becomes_in_place(&file);
        let copy = file.clone();
        in_child(|| {
            let is_same = file.read_now(&mut [0; 16], 0).is_some() == is_in_place;
            drop((file, copy));
            is_same
        });
    });
}

#[test]
fn limited_addresses_are_left_to_the_program() {
    on_overlay(None, "", |dir| {
        let file = File::open(make(dir)).unwrap();
        read(&file, 0, 1);
        in_child(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 40, rlim_max: 1 << 40 };
            // SAFETY: the kernel reads the limit.
            let limited = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) } == 0;
            let before = flags(&file);
            limited && file.read_now(&mut [0; 16], 0).is_none() && flags(&file) == before
        });
    });
}

/// The mapping is in no core dump, and takes no locked memory of a program that locks all.
#[test]
fn mappings_are_neither_dumped_nor_locked() {
    on_overlay(None, "", |dir| {
        let path = make(dir);
        let file = File::open(&path).unwrap();
        read(&file, 0, 1);
        in_child(|| {
            // SAFETY: the call takes a number only.
            assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE) }, 0);
            let is_in_place = file.read_now(&mut [0; 16], 0).is_some();
            let maps = fs::read_to_string("/proc/self/smaps").unwrap();
            let mut lines = maps.lines();
            let mapping = lines.find(|line| line.ends_with(path.to_str().unwrap()));
            assert_eq!(mapping.is_some(), is_in_place);
            let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap_or_default();
            let has = |flag| flags.split_whitespace().any(|each| each == flag);
            !is_in_place || has("dd") && !has("lo")
        });
    });
}

/// A try that gets less than it wants would lose it.
#[test]
fn tries_take_nothing_from_a_stream() {
    use std::io::Write;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
    writer.write_all(b"12345").unwrap();
    there.write_all(b"12345").unwrap();
    for fd in [std::os::fd::OwnedFd::from(reader), here.into()] {
        let file = File::from(fd);
        for offset in [0, 1] {
            assert_eq!(file.read_now(&mut [0; 16], offset), None);
            assert_eq!(file.read_now(&mut [0; 5], offset), None);
            assert_eq!(file.read_now_partly(&mut [0; 3], offset), 0);
        }
        let mut queue = Options::new().build().unwrap();
        queue.push(op::read(&file, vec![0; 16], op::Position::Current)).unwrap();
        let done = queue.reap(1).unwrap().next().unwrap();
        assert_eq!(done.result, Ok(5));
        assert_eq!(&done.into_buffer().unwrap().as_slice()[..5], b"12345");
    }
}

/// Kernels 5.9 and 5.10 report the end of the file in its middle, at a page that is not cached.
#[test]
fn a_file_that_is_cached_in_part_is_read_to_its_end() {
    const BLOCK: usize = 64 << 10;
    const LEN: usize = 10_000_000;
    places::on(&["ext4", "xfs", "btrfs"], skip, |name, dir| {
        let path = dir.join("file");
        let content: Vec<u8> = (0..LEN).map(|at| (at / PAGE + at % 251) as u8).collect();
        fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        let (mut all, mut some) = (Vec::new(), Vec::new());
        let read_to_end = |to: &mut Vec<u8>, try_now: &dyn Fn(&mut [u8], u64) -> Option<usize>| {
            drop_pages(&file);
            let mut block = vec![0; BLOCK];
            loop {
                let at = to.len();
                let read = match try_now(&mut block, at as u64) {
                    Some(read) => read,
                    None => file.with_std(|file| file.read_at(&mut block, at as u64)).unwrap(),
                };
                to.extend_from_slice(&block[..read]);
                if read == 0 {
                    break;
                }
            }
        };
        read_to_end(&mut all, &|block, at| file.read_now(block, at));
        assert!(all == content, "{name}: {} bytes with read_now", all.len());
        read_to_end(&mut some, &|block, at| file.read_some_now(block, at));
        assert!(some == content, "{name}: {} bytes with read_some_now", some.len());
    });
}
