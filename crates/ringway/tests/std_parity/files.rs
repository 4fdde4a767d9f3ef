//! Copies of special files, atomic writes, and operations on open files, compared with `std::fs`.

use crate::common::fifo;
use crate::common::process::is_root;
use crate::wait;
use ringway::fs::{self, File, FileTimes};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}

/// When a copy cannot be made, the target is unchanged.
#[test]
fn a_failed_copy_leaves_its_target() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("target"), b"precious")?;
    std::fs::create_dir(at("dir"))?;
    fifo(&at("fifo"));
    symlink("target", at("link"))?;
    std::fs::hard_link(at("target"), at("other name"))?;
    for source in
        [at("dir"), at("fifo"), "/dev/zero".into(), at("target"), at("link"), at("other name")]
    {
        let copied = wait(fs::copy(&source, at("target")));
        assert_eq!(kind(copied), Some(io::ErrorKind::InvalidInput), "{source:?}");
        assert_eq!(std::fs::read(at("target"))?, b"precious", "{source:?}");
    }
    assert_eq!(kind(wait(fs::copy(at("target"), at("link")))), Some(io::ErrorKind::InvalidInput));
    assert_eq!(kind(wait(fs::copy(at("missing"), at("target")))), Some(io::ErrorKind::NotFound));
    assert_eq!(std::fs::read(at("target"))?, b"precious");
    Ok(())
}

#[test]
fn a_copy_to_a_special_file_keeps_its_permissions() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let (source, pipe) = (dir.path().join("source"), dir.path().join("pipe"));
    std::fs::write(&source, b"content")?;
    std::fs::set_permissions(&source, PermissionsExt::from_mode(0o640))?;
    fifo(&pipe);
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe)
    });
    assert_eq!(wait(fs::copy(&source, &pipe))?, 7);
    assert_eq!(reader.join().unwrap()?, b"content");
    assert_eq!(std::fs::metadata(&pipe)?.mode() & 0o777, 0o600);
    let null = std::fs::metadata("/dev/null")?.mode();
    assert_eq!(wait(fs::copy(&source, "/dev/null"))?, 7);
    assert_eq!(std::fs::metadata("/dev/null")?.mode(), null);
    assert_eq!(kind(wait(fs::copy(&source, "/dev/full"))), Some(io::ErrorKind::StorageFull));
    if is_root() {
        // A device node of the test's own, whose permissions root could change.
        let own = dir.path().join("null");
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &own,
            rustix::fs::FileType::CharacterDevice,
            mode,
            rustix::fs::makedev(1, 3),
        );
        match made {
            Ok(()) => {
                let before = std::fs::metadata(&own)?;
                match wait(fs::copy(&source, &own)) {
                    Ok(bytes) => assert_eq!(bytes, 7),
                    // The file system may be mounted with `nodev`.
                    Err(error) => println!("skipped: {error}"),
                }
                let after = std::fs::metadata(&own)?;
                assert!(after.file_type().is_char_device());
                assert_eq!(after.mode(), before.mode());
            }
            Err(error) => println!("skipped: mknod: {error}"),
        }
    }
    Ok(())
}

/// Copies of files that report no length, between file systems, with holes, and longer than one
/// call copies.
#[test]
fn copies_are_complete() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    let environment = "/proc/self/environ"; // Whatever the process does, it stays the same.
    assert!(wait(fs::copy(environment, &target))? > 0);
    assert_eq!(std::fs::read(&target)?, std::fs::read(environment)?);
    // The target has the permissions of its source and may be read-only.
    std::fs::remove_file(&target)?;
    let content: Vec<u8> = (0..20_000_001u32).map(|byte| (byte ^ byte >> 9) as u8).collect();
    std::fs::write(&source, &content)?;
    std::fs::File::options().write(true).open(&source)?.set_len(30_000_000)?;
    assert_eq!(wait(fs::copy(&source, &target))?, 30_000_000);
    assert!(std::fs::read(&target)? == std::fs::read(&source)?);
    match tempfile::tempdir_in("/dev/shm") {
        Ok(other) => {
            let other = other.path().join("other");
            assert_eq!(wait(fs::copy(&source, &other))?, 30_000_000);
            assert_eq!(wait(fs::copy(&other, &target))?, 30_000_000);
            assert!(std::fs::read(&target)? == std::fs::read(&source)?);
        }
        Err(error) => println!("skipped: /dev/shm: {error}"),
    }
    // A shorter file replaces all of a longer one, and so does an empty one.
    std::fs::write(&source, b"short")?;
    assert_eq!(wait(fs::copy(&source, &target))?, 5);
    assert_eq!(std::fs::read(&target)?, b"short");
    std::fs::write(&source, b"")?;
    assert_eq!(wait(fs::copy(&source, &target))?, 0);
    assert_eq!(std::fs::read(&target)?, b"");
    Ok(())
}

/// The source grows and shrinks during the copy: the copy holds a prefix of it, without an error.
#[test]
fn a_copy_of_a_changing_file_ends() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    let content = vec![7; 4 << 20];
    let done = std::sync::atomic::AtomicBool::new(false);
    std::fs::write(&source, &content)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = std::fs::File::options().append(true).open(&source).unwrap();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                file.write_all(&content).unwrap();
                file.set_len(1 << 20).unwrap();
            }
        });
        for _ in 0..20 {
            let copied = wait(fs::copy(&source, &target));
            let there = std::fs::read(&target).unwrap();
            assert_eq!(copied.unwrap(), there.len() as u64);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    Ok(())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Dropped at any point, it leaves either the old content or the new.
#[tokio::test]
async fn an_atomic_write_replaces_all_or_nothing() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("settings");
    fs::write_atomic(&path, b"first".to_vec()).await?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o604))?;
    let inode = std::fs::metadata(&path)?.ino();
    fs::write_atomic(&path, b"second".to_vec()).await?;
    assert_eq!(std::fs::read(&path)?, b"second");
    let after = std::fs::metadata(&path)?;
    assert_ne!(after.ino(), inode, "the file was not replaced");
    assert_eq!(after.mode() & 0o777, 0o604);
    assert_eq!(names(dir.path()), ["settings"], "a temporary file is left");
    // A directory cannot be replaced: the call fails and removes its temporary file.
    std::fs::create_dir(dir.path().join("dir"))?;
    std::fs::write(dir.path().join("dir/entry"), b"")?;
    assert!(fs::write_atomic(dir.path().join("dir"), b"x".to_vec()).await.is_err());
    assert_eq!(names(dir.path()), ["dir", "settings"]);
    assert_eq!(
        fs::write_atomic("/", b"x".to_vec()).await.unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
    // Dropped at any point, the call leaves either the old content or the new.
    let mut whole = vec![b"second".to_vec()];
    for polls in 0..40 {
        let content = format!("content {polls}").into_bytes();
        whole.push(content.clone());
        let mut write = Box::pin(fs::write_atomic(&path, content.clone()));
        for _ in 0..polls {
            if futures::poll!(&mut write).is_ready() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_micros(200)).await;
        }
        drop(write);
        // Its rename may have been submitted already, or that of an earlier call.
        let now = std::fs::read(&path)?;
        assert!(whole.contains(&now), "{polls} polls: {now:?}");
    }
    Ok(())
}

#[test]
fn an_atomic_write_replaces_files_only() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let at = |name: &str| dir.path().join(name);
    fifo(&at("fifo"));
    std::fs::create_dir(at("dir"))?;
    let text = |name: &str| kind(wait(fs::write_atomic(dir.path().join(name), b"new".to_vec())));
    assert_eq!(text("fifo"), Some(io::ErrorKind::InvalidInput));
    assert_eq!(text("dir"), Some(io::ErrorKind::IsADirectory));
    for name in ["dir/", "dir/.", "new/", "new/.", "..", "."] {
        assert_eq!(text(name), Some(io::ErrorKind::InvalidInput), "{name}");
    }
    assert_eq!(text("a\0b"), Some(io::ErrorKind::InvalidInput));
    assert_eq!(text("dir/missing/file"), Some(io::ErrorKind::NotFound));
    assert_eq!(text(&"n".repeat(256)), Some(io::ErrorKind::InvalidFilename));
    assert_eq!(text(&"n".repeat(255)), None);
    // A link itself is replaced, wherever it leads.
    std::fs::write(at("file"), b"old")?;
    symlink("file", at("link"))?;
    symlink("nowhere", at("dangling"))?;
    for link in ["link", "dangling"] {
        assert_eq!(text(link), None);
        assert!(std::fs::symlink_metadata(at(link))?.is_file());
        assert_eq!(std::fs::read(at(link))?, b"new");
    }
    assert_eq!(std::fs::read(at("file"))?, b"old");
    assert!(!at("nowhere").exists());
    assert!(std::fs::metadata(at("fifo"))?.file_type().is_fifo());
    // A new file gets the permissions of any new file.
    std::fs::write(at("usual"), b"")?;
    assert_eq!(text("usual too"), None);
    assert_eq!(std::fs::metadata(at("usual too"))?.mode(), std::fs::metadata(at("usual"))?.mode());
    for usual in ["usual", "usual too"] {
        std::fs::remove_file(at(usual))?;
    }
    let names = std::fs::read_dir(dir.path())?.count();
    assert_eq!(names, 6, "a temporary file is left");
    Ok(())
}

#[test]
fn times_and_permissions() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    wait(async {
        let file = File::create_new(&path).await?;
        let epoch = SystemTime::UNIX_EPOCH;
        let before = epoch - Duration::new(1_000_000, 999_999_999);
        for time in
            [epoch, before, epoch + Duration::new(1_700_000_000, 1), epoch - Duration::from_secs(5)]
        {
            file.set_modified(time).await?;
            let found = file.metadata().await?;
            assert_eq!(found.modified()?, time);
            assert_eq!(found.modified()?, std::fs::metadata(&path)?.modified()?);
        }
        file.set_times(FileTimes::new().set_accessed(epoch)).await?;
        let (found, std) = (file.metadata().await?, std::fs::metadata(&path)?);
        assert_eq!(found.accessed()?, epoch);
        assert_eq!(
            found.modified()?,
            epoch - Duration::from_secs(5),
            "a time that is not set changed"
        );
        assert_eq!(found.created().ok(), std.created().ok());
        file.set_permissions(PermissionsExt::from_mode(0o604)).await?;
        let (found, std) = (file.metadata().await?, std::fs::metadata(&path)?);
        assert_eq!(found.permissions(), std.permissions());
        macro_rules! same {
            ($($number:ident),*) => {
                $(assert_eq!(MetadataExt::$number(&found), std.$number(), stringify!($number));)*
            };
        }
        same!(dev, ino, mode, nlink, uid, gid, rdev, size, blksize, blocks);
        same!(atime, atime_nsec, mtime, mtime_nsec, ctime, ctime_nsec);
        let device = fs::metadata("/dev/null").await?;
        assert_eq!(device.rdev(), std::fs::metadata("/dev/null")?.rdev());
        assert!(device.file_type().is_char_device());
        Ok(())
    })
}

#[test]
fn cloned_descriptors_share_the_position() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    std::fs::write(&path, b"abcdef")?;
    wait(async {
        let file = File::open(&path).await?;
        let mut other = std::fs::File::from(
            std::os::fd::AsFd::as_fd(&file.try_clone().await?).try_clone_to_owned()?,
        );
        let (read, bytes) = file.read_at(vec![0; 3], ringway::Position::Current).await;
        assert_eq!((read?, &bytes[..]), (3, &b"abc"[..]));
        let mut rest = String::new();
        other.read_to_string(&mut rest)?;
        assert_eq!(rest, "def");
        Ok(())
    })
}
