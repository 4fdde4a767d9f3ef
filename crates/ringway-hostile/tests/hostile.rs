//! What each rule does, seen by the standard library.
#![cfg(target_os = "linux")]

use ringway_hostile::{Hostile, HostileDisk};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const EPERM: i32 = 1;
const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const ELOOP: i32 = 40;

fn mount(options: &[&str]) -> Option<Hostile> {
    Hostile::mount(options).inspect_err(|error| skip(&error.to_string())).ok()
}

fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(std::env::var_os("CI").is_none(), "unexpected skip in CI: {why}");
}

#[test]
fn without_rules_it_is_an_ordinary_file_system() {
    let Some(hostile) = mount(&[]) else { return };
    let dir = hostile.path().join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), b"content").unwrap();
    fs::rename(&dir, hostile.path().join("other")).unwrap();
    let file = hostile.path().join("other/file");
    assert_eq!(fs::read(&file).unwrap(), b"content");
    File::options().append(true).open(&file).unwrap().write_all(b" more").unwrap();
    File::options().write(true).open(&file).unwrap().set_len(9).unwrap();
    assert_eq!(fs::read(hostile.backing().join("other/file")).unwrap(), b"content m");
    fs::hard_link(&file, hostile.path().join("link")).unwrap();
    std::os::unix::fs::symlink("link", hostile.path().join("symlink")).unwrap();
    assert_eq!(fs::read(hostile.path().join("symlink")).unwrap(), b"content m");
    let mut names: Vec<_> =
        fs::read_dir(hostile.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["link", "other", "symlink"]);
    fs::remove_file(hostile.path().join("link")).unwrap();
    fs::remove_dir_all(hostile.path().join("other")).unwrap();
    // A file without a name.
    let path = hostile.path().join("unnamed");
    let mut file = File::create_new(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b"12345").unwrap();
    file.set_len(3).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3);
}

#[test]
fn sizes_are_untrue() {
    let Some(hostile) = mount(&[]) else { return };
    let path = hostile.path().join("file");
    fs::write(&path, [7; 10_000]).unwrap();
    hostile.set("* direct on\nfile size 0").unwrap();
    let file = File::open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    let mut bytes = Vec::new();
    (&file).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [7; 10_000]);
    hostile.set("file size real\nfile grow 5").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10_005);
    assert_eq!(file.metadata().unwrap().len(), 10_010);
}

#[test]
fn transfers_are_short() {
    let Some(hostile) = mount(&[]) else { return };
    let path = hostile.path().join("file");
    fs::write(&path, [7; 10_000]).unwrap();
    hostile.set("* direct on\n* read short 1000\n* write short 500").unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    assert_eq!(file.read_at(&mut [0; 10_000], 0).unwrap(), 1000);
    assert_eq!(file.write_at(&[8; 10_000], 0).unwrap(), 500);
}

#[test]
fn the_kernel_makes_transfers_that_are_passed_through() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root may pass files through");
    }
    // (Before Linux 6.9 there is none; and a stacked file system or a user namespace has none.)
    let hostile = match Hostile::mount_in("/dev/shm".as_ref(), &["passthrough"]) {
        Ok(hostile) => hostile,
        Err(error) => return println!("skipped: {error}"),
    };
    let path = hostile.path().join("file");
    let mut created = match File::create(&path) {
        Ok(created) => created,
        Err(error) if [Some(EPERM), Some(ELOOP)].contains(&error.raw_os_error()) => {
            return println!("skipped: no passthrough: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    created.write_all(b"content").unwrap();
    // Others that are open at the same time, and what replaces the name.
    let opened = File::options().read(true).write(true).open(&path).unwrap();
    opened.write_all_at(b"t", 0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"tontent");
    fs::write(hostile.path().join("other"), b"other").unwrap();
    fs::rename(hostile.path().join("other"), &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"other");
    created.write_all(b"!").unwrap();
    let mut content = [0; 8];
    opened.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"tontent!");
    for operation in ["read", "write"] {
        assert_eq!(hostile.count(operation).unwrap().requests, 0, "{operation}");
    }
}

#[test]
fn requests_fail_for_ever_or_some_times() {
    let Some(hostile) = mount(&[]) else { return };
    let path = hostile.path().join("file");
    let file = File::create(&path).unwrap();
    hostile.set("file fsync fail 5").unwrap();
    for _ in 0..2 {
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(EIO));
    }
    hostile.set("clear\nfile fsync fail 11 1").unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(EAGAIN));
    file.sync_all().unwrap();
    assert_eq!(hostile.count("fsync").unwrap().requests, 4);
    assert_eq!(hostile.set("no rule").unwrap_err().raw_os_error(), Some(22));
}

#[test]
fn frozen_requests_hold_up_no_others() {
    let Some(hostile) = mount(&[]) else { return };
    fs::write(hostile.path().join("frozen"), b"a").unwrap();
    fs::write(hostile.path().join("other"), b"b").unwrap();
    hostile.set("* direct on\nfrozen read freeze\nother read delay 50").unwrap();
    let (sender, receiver) = channel();
    let path = hostile.path().join("frozen");
    let reader = thread::spawn(move || sender.send(fs::read(path).unwrap()).unwrap());
    while hostile.count("read").unwrap().inside == 0 {
        thread::yield_now();
    }
    let began = Instant::now();
    assert_eq!(fs::read(hostile.path().join("other")).unwrap(), b"b");
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert!(receiver.try_recv().is_err());
    hostile.set("frozen read thaw").unwrap();
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)).unwrap(), b"a");
    reader.join().unwrap();
}

#[test]
fn dropping_it_ends_frozen_requests() {
    let Some(hostile) = mount(&["no-async-dio", "max-background=4", "ttl=1000"]) else { return };
    let path = hostile.path().join("file");
    fs::write(&path, b"a").unwrap();
    hostile.set("* direct on\n* read freeze").unwrap();
    let reader = thread::spawn(move || fs::read(path));
    while hostile.count("read").unwrap().inside == 0 {
        thread::yield_now();
    }
    drop(hostile);
    // It was answered, or the connection ended first.
    let _ = reader.join().unwrap();
}

#[test]
fn other_users_have_their_own_files() {
    let Some(hostile) = mount(&[]) else { return };
    let path = hostile.path().join("file");
    let file = File::options().write(true).create_new(true).mode(0o640).open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
}

/// The device of what is mounted in `dir`, as this thread sees it.
fn device_of(dir: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(1).map(Path::new) == Some(dir))?;
    line.split(' ').next().map(str::to_owned)
}

/// Nothing remains of the disk of a test that is killed: no other process saw it, and its device
/// has ended.
#[test]
fn a_disk_ends_with_its_process() {
    const MAKE: &str = "RINGWAY_HOSTILE_DISK";
    if std::env::var_os(MAKE).is_some() {
        match HostileDisk::new(64 << 20, false) {
            Ok(disk) => {
                fs::write(disk.path().join("file"), b"content").unwrap();
                let path = disk.path().display();
                println!("\ndisk {path} {}", device_of(disk.path()).unwrap());
                thread::sleep(Duration::from_secs(600));
            }
            Err(why) => println!("\nnone {why}"),
        }
        return;
    }
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_disk_ends_with_its_process", "--nocapture"])
        .env(MAKE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(test.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said = said.find(|line| line.starts_with("disk ") || line.starts_with("none ")).unwrap();
    let device = said.strip_prefix("disk ").and_then(|said| said.split_once(' '));
    let seen = device.map(|(path, device)| {
        let name = device.strip_prefix("/dev/").unwrap();
        let image = Path::new("/sys/block").join(name).join("loop/backing_file");
        (device_of(path.as_ref()), fs::read_to_string(&image), image)
    });
    test.kill().unwrap();
    test.wait().unwrap();
    let Some((others_see, used, image)) = seen else { return skip(&said) };
    assert_eq!(others_see, None);
    let used = used.unwrap();
    assert!(used.contains("/mount/image"), "{used}");
    // Another program's image may follow on the same device.
    let until = Instant::now() + Duration::from_secs(20);
    while fs::read_to_string(&image).is_ok_and(|image| image == used) {
        assert!(Instant::now() < until, "{said} is still there");
        thread::sleep(Duration::from_millis(20));
    }
}
