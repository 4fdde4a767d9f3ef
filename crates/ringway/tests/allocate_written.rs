//! Blocks that are allocated and written, on file systems of loop devices and on FUSE: what is
//! written, what is refused, and the errors.

#![cfg(target_os = "linux")]

mod common;

use common::mounted::Mounted;
use common::{build_or_skip, in_fork, on_each_backend, pattern, scratch, skip};
use futures::executor::block_on;
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, Engine};
use ringway_hostile::Hostile;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

const EXT4: &[&str] = &["mkfs.ext4", "-q"];
const MAKE: [&[&str]; 3] = [EXT4, &["mkfs.xfs", "-q"], &["mkfs.btrfs", "-q"]];
const PAGE: u64 = 4096;
/// Two writes of zeroes and a shorter one.
const LEN: u64 = (2 << 20) + 3 * PAGE;

async fn open(engine: &Engine, path: &Path, direct: bool) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).direct(direct).engine(engine);
    options.open(path).await.unwrap()
}

/// Whether blocks of the file are allocated, and not written.
fn has_unwritten(path: &Path) -> bool {
    let output = Command::new("filefrag").arg("-v").arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("extent"), "{output:?}");
    text.contains("unwritten")
}

fn is_zero(path: &Path, data: &[u8], len: u64) {
    let content = fs::read(path).unwrap();
    assert_eq!(content.len() as u64, data.len() as u64 + len);
    assert!(content.starts_with(data), "data was overwritten");
    assert!(content[data.len()..].iter().all(|byte| *byte == 0));
}

/// Runs a test on each backend, with each of these file systems, which is a new one: one that was
/// full has no room for a while.
fn on_each(make: &[&[&str]], test: impl Fn(&Engine, &Path)) {
    for make in make {
        on_each_backend(make[0], |kind| {
            let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
            let Some(mounted) = Mounted::new(make) else { return };
            test(&engine, &mounted.path());
        });
    }
}

#[test]
fn its_blocks_are_written() {
    on_each(&MAKE, |engine, dir| {
        for direct in [false, true] {
            block_on(async {
                let path = dir.join(format!("{direct}"));
                let file = open(engine, &path, direct).await;
                file.allocate(0, PAGE).await.unwrap();
                assert!(has_unwritten(&path), "of a file that is only allocated");
                file.set_len(0).await.unwrap();
                file.allocate_written(0, LEN).await.unwrap();
                assert!(!has_unwritten(&path));
                is_zero(&path, &[], LEN);
                // From then on it is a file like any other, and can be extended once more.
                let mut page = AlignedBuffer::new(PAGE as usize, PAGE as usize);
                page.copy_from_slice(&pattern(0, PAGE as usize));
                file.write_durable_at(page, LEN - PAGE).await.0.unwrap();
                let data = fs::read(&path).unwrap();
                file.allocate_written(LEN, PAGE).await.unwrap();
                is_zero(&path, &data, PAGE);
                assert!(!has_unwritten(&path));
            });
        }
    });
}

/// It begins at any byte of a file that is not open for direct I/O, and leaves what is before it.
#[test]
fn data_is_kept() {
    on_each(&[EXT4], |engine, dir| {
        block_on(async {
            let path = dir.join("data");
            let data = pattern(3, 5000);
            fs::write(&path, &data).unwrap();
            let file = open(engine, &path, false).await;
            file.allocate_written(5000, 10_001).await.unwrap();
            is_zero(&path, &data, 10_001);
        });
    });
}

fn invalid(result: io::Result<()>, text: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

/// Nothing is written, and nothing is longer, after a refusal.
#[test]
fn what_could_overwrite_data_is_refused() {
    let dir = scratch();
    let path = dir.path().join("data");
    on_each_backend("refused", |kind| {
        let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
        let data = pattern(0, 5000);
        fs::write(&path, &data).unwrap();
        block_on(async {
            let file = open(&engine, &path, false).await;
            for offset in [0, 1, 4096, 4999] {
                invalid(file.allocate_written(offset, PAGE).await, "begin at the end");
            }
            invalid(file.allocate_written(5000, u64::MAX).await, "i64::MAX");
            invalid(file.allocate_written(i64::MAX as u64, 1).await, "i64::MAX");
            assert!(file.allocate_written(5000, 0).await.is_err());
            let direct = open(&engine, &path, true).await;
            invalid(direct.allocate_written(8192, 5000).await, "File::alignment");
            invalid(direct.allocate_written(5001, PAGE).await, "File::alignment");
            let mut options = OpenOptions::new();
            let appends = options.append(true).engine(&engine).open(&path).await.unwrap();
            invalid(appends.allocate_written(5000, PAGE).await, "O_APPEND");
            let (_reader, writer) = io::pipe().unwrap();
            let pipe = File::from_fd(writer.into(), &engine);
            invalid(pipe.allocate_written(0, PAGE).await, "regular file");
        });
        is_zero(&path, &data, 0);
    });
}

/// A block device says that its length is 0, and has data.
#[test]
fn a_block_device_is_left_alone() {
    let dir = scratch();
    let image = dir.path().join("image");
    fs::write(&image, pattern(0, 1 << 20)).unwrap();
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
    let device = match attached {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        failed => return skip(&format!("losetup: {failed:?}")),
    };
    let device = device.trim();
    on_each_backend("block device", |kind| {
        let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
        block_on(async {
            let mut options = OpenOptions::new();
            let file = options.write(true).engine(&engine).open(device).await.unwrap();
            invalid(file.allocate_written(0, PAGE).await, "regular file");
        });
        assert!(fs::read(device).unwrap() == pattern(0, 1 << 20));
    });
    assert!(Command::new("losetup").args(["--detach", device]).status().unwrap().success());
}

/// What does not fit is refused before much is written.
#[test]
fn too_little_room() {
    on_each(&MAKE, |engine, dir| {
        block_on(async {
            let file = open(engine, &dir.join("large"), false).await;
            let error = file.allocate_written(0, 1 << 40).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
        });
    });
}

/// Zeroes are written where the file system reserves nothing; errors of writes and syncs are
/// returned.
#[test]
fn on_fuse() {
    on_each_backend("fuse", |kind| {
        let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
        let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
        let path = hostile.path().join("file");
        fs::write(&path, b"").unwrap();
        block_on(async {
            let file = open(&engine, &path, false).await;
            hostile.set(&format!("file fallocate fail {}", libc::EOPNOTSUPP)).unwrap();
            file.allocate_written(0, LEN).await.unwrap();
            is_zero(&path, &[], LEN);
            assert!(hostile.count("fsync").unwrap().requests > 0, "nothing was synced");
            for operation in ["write", "fsync"] {
                hostile.set(&format!("clear\nfile {operation} fail {}", libc::EIO)).unwrap();
                let end = fs::metadata(&path).unwrap().len();
                let failed = file.allocate_written(end, PAGE).await.unwrap_err();
                assert_eq!(failed.raw_os_error(), Some(libc::EIO), "{operation}: {failed}");
            }
        });
    });
}

/// The close of any descriptor of a file releases the locks of the process on it: none is opened.
#[test]
fn locks_of_the_process_are_kept() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    on_each_backend("locks", |kind| {
        let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
        let path = dir.path().join(kind.to_string());
        let file = block_on(open(&engine, &path, false));
        let lock = FlockOperation::NonBlockingLockExclusive;
        fcntl_lock(&file, lock).unwrap();
        block_on(file.allocate_written(0, PAGE)).unwrap();
        let status = in_fork(|| {
            let other = fs::File::options().write(true).open(&path).unwrap();
            assert_eq!(fcntl_lock(&other, lock), Err(Errno::AGAIN));
        });
        assert_eq!(status, 0, "another process has the lock");
    });
}
