//! Files on file systems of which the kernel's queues are not known to be right: the results are
//! those of the standard library, on every backend, and nothing waits for a server in a poll.

#![cfg(target_os = "linux")]

mod common;

use common::mounted::Mounted;
use common::{block_on_timed, build_or_skip, on_each_backend, poll_once, skip};
use futures::executor::block_on;
use futures::future::join_all;
use ringway::fs::{File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Engine, Position};
use ringway_hostile::Hostile;
use std::fs;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const PAGE: usize = 4096;
const LEN: usize = 10_000;

fn content() -> Vec<u8> {
    (0..LEN).map(|at| (at / 7) as u8).collect()
}

/// A hostile file system with a file `file`.
fn mounted(options: &[&str]) -> Option<Hostile> {
    let hostile = Hostile::mount(options).inspect_err(|error| skip(&error.to_string())).ok()?;
    fs::write(hostile.backing().join("file"), content()).unwrap();
    Some(hostile)
}

/// Runs a test on each backend, each with a file system of its own.
fn on_each(name: &str, options: &[&str], test: impl Fn(&Engine, &Hostile)) {
    on_each_backend(name, |kind| on(kind, options, &test));
}

fn on(kind: BackendKind, options: &[&str], test: impl Fn(&Engine, &Hostile)) {
    let Some(hostile) = mounted(options) else { return };
    let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
    test(&engine, &hostile);
}

async fn open(engine: &Engine, hostile: &Hostile, direct: bool) -> File {
    let path = hostile.path().join("file");
    let mut options = OpenOptions::new();
    options.read(true).write(true).direct(direct).engine(engine).open(path).await.unwrap()
}

fn page(byte: u8) -> AlignedBuffer {
    let mut page = AlignedBuffer::new(PAGE, PAGE);
    page.fill(byte);
    page
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// With `RWF_DSYNC` the kernel would write asynchronously, and never sync.
#[test]
fn a_durable_write_is_synced() {
    on_each("durable", &[], |engine, hostile| {
        block_on(async {
            for direct in [true, false] {
                let file = open(engine, hostile, direct).await;
                hostile.set("clear").unwrap();
                let synced = hostile.count("fsync").unwrap().requests;
                file.write_durable_at(page(1), 0).await.0.unwrap();
                assert_eq!(hostile.count("fsync").unwrap().requests, synced + 1);
                hostile.set("file fsync fail 5").unwrap();
                let (failed, _) = file.write_durable_at(page(2), 0).await;
                assert_eq!(errno(failed), Some(libc::EIO), "direct: {direct}");
            }
        });
    });
}

/// The kernel would limit an asynchronous read to the size that the server states.
#[test]
fn a_size_that_is_not_true_limits_nothing() {
    on_each("size", &[], |engine, hostile| {
        for size in [0, 100, 4096, 1_000_000] {
            hostile.set(&format!("clear\nfile direct on\nfile size {size}")).unwrap();
            block_on(async {
                let path = hostile.path().join("file");
                assert!(fs::read(&path).unwrap() == content(), "the standard library");
                let read = engine.fs().read(&path).await.unwrap();
                assert_eq!(read.len(), LEN, "st_size {size}");
                assert!(read == content());
                let file = open(engine, hostile, false).await;
                file.write_all_at(content(), 0).await.0.unwrap();
                let (read, bytes) = file.read_exact_at(vec![0; LEN], 0).await;
                read.unwrap();
                assert!(bytes == content());
            });
        }
    });
}

/// A server may take only writes that follow each other.
#[test]
fn a_writer_has_one_write_in_flight() {
    on_each("writer", &[], |engine, hostile| {
        let file = block_on(open(engine, hostile, false));
        let opens = hostile.count("open").unwrap().requests;
        let mut writer = file.writer().chunk(4096).write_behind(8);
        hostile.set("clear\nfile write freeze").unwrap();
        let content = vec![9; LEN];
        {
            let mut writes = pin!(writer.write_all(&content));
            assert!(poll_once(writes.as_mut()).is_pending());
            assert_eq!(engine.stats().counts.in_flight, 1);
            // A poll that learns what the file is opens nothing, which would wait for the server.
            assert_eq!(hostile.count("open").unwrap().requests, opens);
            hostile.set("file write thaw").unwrap();
            block_on(writes).unwrap();
        }
        block_on(writer.flush()).unwrap();
        assert!(fs::read(hostile.backing().join("file")).unwrap() == content);
    });
}

/// A server may answer with less than it was asked for, anywhere in a file.
#[test]
fn a_short_read_is_not_the_end_of_a_file() {
    on_each("short reads", &[], |engine, hostile| {
        // (Where the kernel caches the file, a short read is its end, for everybody: it reads the
        // rest of a direct read through the page cache, which has zeroes there.)
        hostile.set("file direct on\nfile read short 1000").unwrap();
        for direct in [true, false] {
            block_on(async {
                let file = open(engine, hostile, direct).await;
                let (read, bytes) = file.read_exact_at(vec![0; LEN], 0).await;
                read.unwrap();
                assert!(bytes == content(), "direct: {direct}");
                let mut read = Vec::new();
                let mut reader = file.reader();
                while let Some(block) = reader.next_block().await.unwrap() {
                    read.extend_from_slice(&block);
                }
                assert!(read == content(), "direct: {direct}: {} bytes", read.len());
                let path = hostile.path().join("file");
                assert!(engine.fs().read(&path).await.unwrap() == content());
            });
        }
    });
}

/// The descriptor is closed, whatever the server answers to the flush. Closed again, its number
/// would be another file's.
#[test]
fn a_close_is_made_once() {
    on_each("close", &[], |engine, hostile| {
        let errors =
            [libc::EAGAIN, libc::ETIMEDOUT, libc::EIO, libc::EACCES, libc::EFAULT, libc::ECANCELED];
        for errno in errors {
            hostile.set(&format!("clear\nfile flush fail {errno}")).unwrap();
            // A process that another test starts closes what it has inherited, which the server
            // sees as well: so not every time has to be right.
            let is_made_once = || {
                let file = block_on(open(engine, hostile, false));
                let before = hostile.count("flush").unwrap().requests;
                let closed = block_on(file.close());
                assert_eq!(closed.unwrap_err().raw_os_error(), Some(errno));
                let requests = hostile.count("flush").unwrap().requests - before;
                // A thread that closed it again would close this one.
                let other = fs::File::open("/dev/null").unwrap();
                std::thread::sleep(Duration::from_millis(20));
                other.metadata().unwrap();
                requests == 1
            };
            assert!((0..20).any(|_| is_made_once()), "{errno}");
        }
    });
}

/// A server may say only when a file is closed that it could not write: functions that write a
/// whole file say so, too.
#[test]
fn an_error_of_a_close_is_that_of_the_write() {
    on_each("errors of a close", &[], |engine, hostile| {
        let (source, target) = (hostile.path().join("source"), hostile.path().join("file"));
        fs::write(&source, content()).unwrap();
        for error in [libc::ENOSPC, libc::EDQUOT, libc::EIO] {
            hostile.set(&format!("clear\nfile flush fail {error}")).unwrap();
            let fs = engine.fs();
            block_on(async {
                assert_eq!(errno(fs.write(&target, content()).await), Some(error));
                assert_eq!(errno(fs.write(&target, vec![7; 2 << 20]).await), Some(error));
                assert_eq!(errno(fs.copy(&source, &target).await), Some(error));
                assert_eq!(errno(fs.copy_dont_cache(&source, &target).await), Some(error));
            });
            hostile.set("clear").unwrap();
            block_on(fs.write(&target, content())).unwrap();
            assert_eq!(block_on(fs.copy(&source, &target)).unwrap(), LEN as u64);
        }
    });
}

/// Errors of a close that elsewhere mean "again" write no file a second time: a reader would see
/// it empty, and another writer's content would be lost.
#[test]
fn no_error_of_a_close_repeats_the_write() {
    on_each("other errors of a close", &[], |engine, hostile| {
        let target = hostile.path().join("file");
        for error in [libc::EINTR, libc::EAGAIN, libc::ECANCELED, libc::EFAULT, libc::ESPIPE] {
            for len in [5, 2 << 20] {
                hostile.set(&format!("clear\nfile flush fail {error}")).unwrap();
                let truncated = hostile.count("setattr").unwrap().requests;
                let written = block_on(engine.fs().write(&target, vec![7; len]));
                let expected = (error != libc::EINTR).then_some(libc::EIO);
                let found = written.err().and_then(|error| error.raw_os_error());
                assert_eq!(found, expected, "{error}, {len} bytes");
                // What the server had to do for one write.
                let again = hostile.count("setattr").unwrap().requests - truncated;
                assert!(again <= 1, "{error}, {len} bytes: truncated {again} times");
            }
        }
    });
}

/// Nothing of the old content stays behind a copy, whatever length the server states.
#[test]
fn a_copy_replaces_content_that_a_server_does_not_state() {
    on_each("lengths of a target", &[], |engine, hostile| {
        fs::write(hostile.backing().join("source"), b"short").unwrap();
        hostile.set("file direct on\nfile size 0").unwrap();
        let copied = engine.fs().copy(hostile.path().join("source"), hostile.path().join("file"));
        assert_eq!(block_on(copied).unwrap(), 5);
        assert_eq!(fs::read(hostile.backing().join("file")).unwrap(), b"short");
    });
}

/// What a blocking call answers is the answer: EAGAIN too, and ECANCELED.
#[test]
fn eagain_and_ecanceled_are_answers() {
    for errno in [libc::EAGAIN, libc::ECANCELED] {
        is_an_answer(errno);
    }
}

fn is_an_answer(answer: i32) {
    on_each("an answer", &[], |engine, hostile| {
        block_on(async {
            for direct in [true, false] {
                hostile.set("clear\nfile direct on").unwrap();
                let file = open(engine, hostile, direct).await;
                for times in ["", "1"] {
                    let rule = |operation| format!("file {operation} fail {answer} {times}");
                    hostile.set(&rule("read")).unwrap();
                    assert_eq!(errno(file.read_at(page(0), 0).await.0), Some(answer));
                    hostile.set(&rule("write")).unwrap();
                    assert_eq!(errno(file.write_at(page(0), 0).await.0), Some(answer));
                    hostile.set(&rule("write")).unwrap();
                    assert_eq!(errno(file.write_all_at(page(0), 0).await.0), Some(answer));
                    hostile.set(&rule("fsync")).unwrap();
                    assert_eq!(errno(file.sync_data().await), Some(answer));
                    hostile.set("clear\nfile direct on").unwrap();
                    file.read_at(page(0), 0).await.0.unwrap();
                }
            }
        });
    });
}

/// What a sync answers is told once: a second one would succeed, and the data be lost.
#[test]
fn a_sync_is_made_once() {
    on_each("sync", &[], |engine, hostile| {
        block_on(async {
            for answer in [libc::EACCES, libc::EPERM, libc::EROFS, libc::EAGAIN] {
                hostile.set("clear").unwrap();
                let file = open(engine, hostile, false).await;
                let before = hostile.count("fsync").unwrap().requests;
                hostile.set(&format!("file fsync fail {answer} 1")).unwrap();
                assert_eq!(errno(file.sync_data().await), Some(answer));
                assert_eq!(hostile.count("fsync").unwrap().requests, before + 1, "{answer}");
                file.sync_data().await.unwrap();
            }
        });
    });
}

/// More reads than the server is given at one time, each of which takes long: none keeps the task
/// in a poll, and neither does an attribute that the server does not tell.
#[test]
fn no_poll_waits_for_a_server() {
    on_each("polls", &["max-background=4"], |engine, hostile| {
        for direct in [true, false] {
            hostile.set("clear").unwrap();
            let file = block_on(open(engine, hostile, direct));
            hostile.set("file read delay 500\nfile getattr delay 3000").unwrap();
            // A server that caches nothing is asked for each of them.
            let reads = (0..16).map(|_| file.read_at(page(0), 0));
            let (results, longest) = block_on_timed(join_all(reads));
            for (read, _) in results {
                assert_eq!(read.unwrap(), PAGE);
            }
            assert!(longest < Duration::from_millis(400), "one poll took {longest:?}");
        }
    });
}

/// Two handles append, and the server answers only the first: neither the position of the
/// descriptor, which that one asks for then, nor that of a handle which begins to write waits for
/// the other write.
#[cfg(feature = "tokio")]
#[test]
fn no_poll_waits_for_the_position_of_a_write_that_hangs() {
    use tokio::io::AsyncWriteExt;
    on_each("positions", &[], |engine, hostile| {
        fs::write(hostile.backing().join("file"), b"").unwrap();
        let control = hostile.path().join(ringway_hostile::CONTROL);
        let (ended, has_ended) = channel();
        // If the runtime's only thread is blocked, this releases it.
        let watchdog = std::thread::spawn(move || {
            let mut is_blocked = false;
            while has_ended.recv_timeout(Duration::from_secs(20)) == Err(RecvTimeoutError::Timeout)
            {
                is_blocked = true;
                fs::write(&control, "clear").unwrap();
            }
            fs::write(&control, "clear").unwrap();
            is_blocked
        });
        let writes = || hostile.count("write").unwrap().requests;
        let wait_for = async |requests| {
            while writes() < requests {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let (freezes, is_frozen) = channel();
        let freeze = move || {
            while writes() < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            hostile.set("file write freeze").unwrap();
            freezes.send(()).unwrap();
        };
        let work = async {
            let path = hostile.path().join("file");
            let mut append = OpenOptions::new();
            let mut first = append.append(true).engine(engine).open(&path).await.unwrap();
            let mut second = first.clone();
            hostile.set("file write delay 500").unwrap();
            first.write_all(b"first").await.unwrap();
            wait_for(1).await;
            second.write_all(b"second").await.unwrap();
            first.flush().await.unwrap();
            is_frozen.recv().unwrap();
            hostile.set("clear").unwrap();
            second.flush().await.unwrap();

            hostile.set("file write freeze").unwrap();
            let mut write = OpenOptions::new();
            let at = write.write(true).engine(engine).open(&path).await.unwrap();
            let mut cursor = at.clone();
            let hung = tokio::spawn(async move { at.write_at(page(1), Position::Current).await.0 });
            wait_for(3).await;
            cursor.write_all(b"third").await.unwrap();
            let _ = ended.send(());
            hung.await.unwrap().unwrap();
            cursor.flush().await.unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(freeze);
            common::current_thread().block_on(work);
        });
        assert!(!watchdog.join().unwrap(), "the runtime is blocked");
        assert_eq!(fs::read(hostile.backing().join("file")).unwrap().len(), PAGE);
    });
}

/// A loop device, which is detached when it is dropped.
struct Loop(String);

impl Loop {
    /// `None` where it cannot be made.
    fn new(image: &Path) -> Option<Self> {
        fs::File::create(image).unwrap().set_len(1 << 20).unwrap();
        let made = Command::new("losetup").args(["-f", "--show"]).arg(image).output();
        let made = made.inspect_err(|error| skip(&format!("losetup: {error}"))).ok()?;
        let device = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        if !made.status.success() {
            skip(&String::from_utf8_lossy(&made.stderr));
        }
        made.status.success().then_some(Self(device))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).output();
    }
}

/// The file system of a server may be on a block device (NTFS-3G): it looks like that of a disk,
/// but whoever asks for its type asks the server.
#[test]
fn no_poll_asks_a_server_for_the_type_of_its_file_system() {
    let dir = common::scratch();
    let test = |engine: &Engine, hostile: &Hostile| {
        let asked = hostile.count("statfs").unwrap().requests;
        hostile.set("* statfs delay 3000").unwrap();
        let file = block_on(open(engine, hostile, false));
        let (result, longest) = block_on_timed(async {
            file.write_at(vec![1; PAGE], 0).await.0.unwrap();
            file.read_at(vec![0; PAGE], 0).await.0
        });
        assert_eq!(result.unwrap(), PAGE);
        assert!(longest < Duration::from_millis(1500), "one poll took {longest:?}");
        assert_eq!(hostile.count("statfs").unwrap().requests, asked);
    };
    // A device for each: a file that is still open keeps the file system of the one before mounted.
    on_each_backend("fuseblk", |kind| {
        let Some(device) = Loop::new(&dir.path().join(kind.to_string())) else { return };
        on(kind, &[&format!("fuseblk={}", device.0)], test);
    });
}

/// Writes at an offset, from memory with any alignment.
async fn write(file: &File, len: usize) -> io::Result<()> {
    let mut buffer = AlignedBuffer::new(len, PAGE);
    buffer.fill(7);
    file.write_all_at(buffer, 0).await.0
}

/// On XFS the kernel needs a larger alignment once blocks are shared, and puts a direct write
/// without it into the page cache.
#[test]
fn a_write_without_an_alignment_that_has_grown_is_refused() {
    let Some(xfs) = Mounted::new(&["mkfs.xfs", "-q", "-m", "reflink=1"]) else { return };
    on_each_backend("reflink", |kind| {
        let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
        let path = xfs.path().join(format!("{kind}"));
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        block_on(async {
            let mut options = OpenOptions::new();
            options.read(true).write(true).direct(true).engine(&engine);
            let file = options.open(&path).await.unwrap();
            if file.alignment().offset_align != 512 {
                return skip("the alignment of this device is not 512 bytes");
            }
            write(&file, 512).await.unwrap();
            let copied = Command::new("cp")
                .arg("--reflink=always")
                .args([&path, &path.with_extension("copy")])
                .status();
            assert!(copied.unwrap().success());
            let refused = write(&file, 512).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
            assert!(refused.to_string().contains("4096"), "{refused}");
            write(&file, 4096).await.unwrap();
            assert_eq!(file.alignment().offset_align, 4096);
        });
    });
}

/// btrfs gives each subvolume a device number that is not the mount's.
#[test]
fn the_device_of_a_file_on_btrfs_is_found() {
    let Some(btrfs) = Mounted::new(&["mkfs.btrfs", "-q"]) else { return };
    let path = btrfs.path().join("file");
    fs::write(&path, b"content").unwrap();
    let facts = ringway_core::device::PathFacts::of_path(&path).unwrap();
    assert_eq!(facts.file_system, "btrfs");
    assert!(facts.device.is_some(), "{facts:?}");
    let file = ringway_core::File::open(&path).unwrap();
    assert!(file.largest_request().is_some());
}

/// An overlay of directories of a disk, unmounted when it is dropped.
struct Overlay(Mounted);

impl Overlay {
    fn mount(disk: Mounted) -> Option<Self> {
        let at = |name: &str| disk.path().join(name);
        for name in ["lower", "upper", "work", "overlay"] {
            fs::create_dir(at(name)).unwrap();
        }
        let [lower, upper, work] =
            ["lower", "upper", "work"].map(|name| at(name).display().to_string());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "-o", &options, "overlay"]).arg(at("overlay"));
        let output = mount.output().unwrap();
        if !output.status.success() {
            skip(&String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(Self(disk))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path().join("overlay")).output();
    }
}

/// On each backend, after the first read. What is not tried is no miss: the first reads do not make
/// later tries rarer.
#[test]
fn cached_reads_of_an_overlay_are_made_in_place() {
    let Some(disk) = Mounted::new(&["mkfs.ext4", "-q"]) else { return };
    let Some(overlay) = Overlay::mount(disk) else { return };
    let path = overlay.0.path().join("overlay/file");
    fs::write(&path, vec![7; 3 * PAGE]).unwrap();
    std::thread::sleep(Duration::from_millis(25));
    on_each_backend("cached_reads_of_an_overlay_are_made_in_place", |kind| {
        let Some(engine) = build_or_skip(kind, Engine::builder()) else { return };
        let file = block_on(engine.open(&path)).unwrap();
        let core = ringway_core::File::open(&path).unwrap();
        if core.may_read_now() {
            return println!("skipped: an older kernel");
        }
        let read = || assert_eq!(block_on(file.read(0..PAGE as u64)).unwrap().len(), PAGE);
        let reads = (0..20).map(|_| file.read(0..PAGE as u64)).collect::<Vec<_>>();
        assert!(block_on(join_all(reads)).iter().all(Result::is_ok), "{kind}");
        let before = engine.stats().cached;
        for _ in 0..20 {
            read();
        }
        assert_eq!(engine.stats().cached - before, 20, "{kind}");
    });
}
