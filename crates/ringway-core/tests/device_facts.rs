//! Device facts are queried once for all files open on a device, and again if they could not be
//! read or may have changed.

// Other systems report no such facts.
#![cfg(ringway_linux)]

#[allow(dead_code, reason = "other tests need more of it")]
mod common;
#[path = "common/inject.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod inject;
#[path = "common/skip.rs"]
mod skip;

use common::leave_mounts;
use inject::{Injector, Plan};
use ringway_core::device::{AlignmentSource, PathFacts};
use ringway_core::{AlignedBuffer, File, OpenOptions, Options, op};
use skip::skip;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longer than anything takes on a loaded machine.
const SOON: Duration = Duration::from_secs(20);

/// The tests share what is known of the device, so they run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls of read(2) and its variants by this thread, including those of sysfs files.
fn reads() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscr:"))?.trim().parse().ok()
}

#[test]
fn many_files_of_a_device_query_it_once() {
    let _alone = alone();
    const LEN: usize = 128 << 10;
    let dir = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![1; LEN]).unwrap();
    let open = || OpenOptions::new().read(true).direct(true).open(&path);
    let files: Vec<File> = match (0..500).map(|_| open()).collect() {
        Ok(files) => files,
        Err(error) => {
            return skip(&format!("no direct I/O in {}: {error}", dir.path().display()));
        }
    };
    if files[0].largest_request().is_none() {
        return skip(&format!("no device below {}", dir.path().display()));
    }
    let mut queue = Options::new().in_flight(500).build().unwrap();
    let Some(before) = reads() else {
        return skip("this kernel counts no reads in /proc/thread-self/io");
    };
    for file in &files {
        queue.push(op::read(file, AlignedBuffer::for_direct(file.direct_io(), LEN), 0)).unwrap();
    }
    let made = reads().unwrap() - before;
    // Those of the counter itself, and of the mounts.
    assert!(made < files.len() as u64 / 2, "{made} reads");
    let mut left = files.len();
    while left > 0 {
        for done in queue.reap(1).unwrap() {
            assert_eq!(done.result, Ok(LEN as u64));
            left -= 1;
        }
    }
}

/// Waits until this returns true.
fn becomes(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A file may stay open for days after the moment in which there was none.
#[test]
fn what_is_not_read_for_want_of_a_descriptor_is_read_later() {
    let _alone = alone();
    let dir = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let path = dir.path().join("file");
    fs::write(&path, b"text").unwrap();
    let (file, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
    let Some(injector) = Injector::install(&[libc::SYS_openat]) else { return };
    injector.set(Some(Plan { after: 0, count: u64::MAX, errno: libc::EMFILE }));
    assert!(PathFacts::of_path(&path).is_err());
    // Each device and file is asked for what it has to remember.
    let facts = |file: &File| (file.direct_io(), file.largest_request());
    let refused = facts(&file);
    let failed = injector.failed();
    for _ in 0..1000 {
        facts(&file);
    }
    // (A loaded machine may take longer for these than the pause.)
    assert!(injector.failed() - failed < 1000, "each call tries again");
    injector.set(None);
    let expected = PathFacts::of_path(&path).unwrap();
    let largest = expected.device.and_then(|device| device.max_sectors_kb).map(|kib| kib << 10);
    let expected = (expected.direct, largest);
    if refused == expected {
        skip("nothing is read of this device");
    }
    becomes("what is unknown stays unknown", || facts(&file) == expected);
    becomes("a file on the same device has the facts", || facts(&other) == expected);
}

/// They would be those of another device.
#[test]
fn no_facts_are_returned_of_which_some_could_not_be_read() {
    let _alone = alone();
    let dir = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let file = fs::File::open(dir.path()).unwrap();
    let facts = || PathFacts::of_fd(file.as_fd());
    let Some(injector) = Injector::install(&[libc::SYS_openat]) else { return };
    let expected = facts().unwrap();
    for after in 0.. {
        let failed = injector.failed();
        injector.set(Some(Plan { after, count: 1, errno: libc::EMFILE }));
        let found = facts();
        injector.set(None);
        match found {
            Ok(facts) => assert_eq!(facts, expected, "call {after}"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMFILE)),
        }
        if injector.failed() == failed {
            break;
        }
    }
}

/// As a binding does for a program that has bare descriptors.
#[test]
fn a_file_that_is_made_for_each_operation_does_not_query_its_device_for_each() {
    let _alone = alone();
    const LEN: usize = 128 << 10;
    const COUNT: u64 = 200;
    let dir = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![1; LEN]).unwrap();
    let Ok(owner) = OpenOptions::new().read(true).direct(true).open(&path) else {
        return skip(&format!("no direct I/O in {}", dir.path().display()));
    };
    // SAFETY: `owner` lives longer than each of the files.
    let file = || unsafe { File::borrow_raw(owner.as_raw_fd()) }.unwrap();
    if file().largest_request().is_none() {
        return skip(&format!("no device below {}", dir.path().display()));
    }
    if !has_unique_mounts(&owner) {
        return println!("skipped: a kernel before 6.8 has no numbers of mounts to know them by");
    }
    let mut queue = Options::new().build().unwrap();
    let Some((first, second)) = reads().zip(reads()) else {
        return skip("this kernel counts no reads in /proc/thread-self/io");
    };
    let (of_counter, mut made) = (second - first, 0);
    for _ in 0..COUNT {
        let file = file();
        let buffer = AlignedBuffer::for_direct(file.direct_io(), LEN);
        let before = reads().unwrap();
        queue.push(op::read(&file, buffer, 0)).unwrap();
        made += reads().unwrap() - before - of_counter;
        drop(file);
        assert_eq!(queue.reap(1).unwrap().next().unwrap().result, Ok(LEN as u64));
    }
    assert!(made < COUNT / 2, "{made} reads");
}

/// Whether the kernel gives mounts numbers that are never used again.
fn has_unique_mounts(file: &impl AsRawFd) -> bool {
    const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
    // SAFETY: the structure is plain numbers, and the kernel writes one into the live value.
    let found = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let path = c"".as_ptr();
        let flags = libc::AT_EMPTY_PATH;
        libc::statx(file.as_raw_fd(), path, flags, STATX_MNT_ID_UNIQUE, &raw mut found);
        found
    };
    found.stx_mask & STATX_MNT_ID_UNIQUE != 0
}

/// What is undone when the test ends, the last first.
struct CleanUp(Vec<Vec<String>>);

impl CleanUp {
    fn by(&mut self, words: &[&str]) {
        self.0.push(words.iter().map(|word| (*word).to_owned()).collect());
    }
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        for words in self.0.drain(..).rev() {
            if let Err(error) = run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
                println!("{error}");
            }
        }
    }
}

/// The output of a command.
fn run(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("{words:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A file system whose only device is replaced by one in memory. This thread alone, and what it
/// starts, sees what is mounted. Errors: what it needs is missing.
fn replaced_device(
    dir: &Path,
    clean_up: &mut CleanUp,
    test: impl Fn(&Path, &dyn Fn()),
) -> Result<(), String> {
    let (image, mount) = (dir.join("image"), dir.join("mount"));
    let (image, mount) = (image.to_str().unwrap(), mount.to_str().unwrap());
    fs::create_dir(mount).unwrap();
    fs::File::create(image).unwrap().set_len(256 << 20).unwrap();
    let device = run(&["losetup", "--find", "--show", image])?;
    clean_up.by(&["losetup", "--detach", &device]);
    run(&["mkfs.btrfs", "--quiet", "--metadata=single", "--data=single", &device])?;
    let number = fs::read_to_string("/sys/class/zram-control/hot_add");
    let number = number.map_err(|error| format!("zram: {error}"))?;
    let zram = format!("zram{}", number.trim());
    let remove = format!("echo {} > /sys/class/zram-control/hot_remove", number.trim());
    clean_up.by(&["sh", "-c", &remove]);
    fs::write(format!("/sys/block/{zram}/disksize"), "256M").map_err(|error| error.to_string())?;
    leave_mounts().map_err(|error| format!("a namespace of mounts: {error}"))?;
    run(&["mount", &device, mount])?;
    clean_up.by(&["umount", mount]);
    test(Path::new(mount), &|| {
        run(&["btrfs", "device", "add", "--force", &format!("/dev/{zram}"), mount]).unwrap();
        run(&["btrfs", "device", "remove", &device, mount]).unwrap();
    });
    Ok(())
}

/// The mount stays, but what it is on takes whole pages only, and writes beyond smaller memory.
#[test]
fn the_device_of_a_mount_may_be_replaced() {
    let _alone = alone();
    let dir = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let mut clean_up = CleanUp(Vec::new());
    let done = replaced_device(dir.path(), &mut clean_up, |mount, replace| {
        let path = mount.join("file");
        fs::write(&path, vec![1; 8192]).unwrap();
        let source = || {
            let file = OpenOptions::new().read(true).direct(true).open(&path).unwrap();
            file.direct_io().source
        };
        assert_ne!(source(), AlignmentSource::Driver);
        let open = File::open(&path).unwrap();
        assert_ne!(open.direct_io().source, AlignmentSource::Driver);
        replace();
        becomes("the device has not changed", || source() == AlignmentSource::Driver);
    });
    match done {
        Err(error) if !common::is_root() => println!("skipped: only root may mount: {error}"),
        Err(error) => skip(&error),
        Ok(()) => {}
    }
}
