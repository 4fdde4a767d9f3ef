//! Functions on paths use the engine that they are called on. The global engine cannot be built in
//! these tests, so any use of it fails.

// On Linux only: the helpers in `common` use its interfaces (direct I/O, `/proc`, fork, seccomp).
// `portable.rs` has the tests for every system.
#![cfg(target_os = "linux")]

mod common;

use common::process::{become_ordinary, in_child, is_root, refuse};
use common::{BACKENDS, build_or_skip, in_fork, pipe, poll_once, skip, wait_until_idle};
use futures::executor::block_on;
use ringway::fs::{DirBuilder, File, OpenOptions, Resolve};
use ringway::{BackendKind, Engine, Position, SqPoll};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Runs a test on each backend in a process that has no global engine.
fn each(test: &str, body: impl AsyncFn(&Engine, &Path) -> io::Result<()>) {
    each_after(test, || {}, body);
}

/// Like `each`, after `before` has changed the process.
fn each_after(
    test: &str,
    before: impl FnOnce(),
    body: impl AsyncFn(&Engine, &Path) -> io::Result<()>,
) {
    let prepare =
        |command: &mut std::process::Command| _ = command.env("RINGWAY_BACKEND", "invalid");
    in_child(test, prepare, || {
        before();
        assert_eq!(Engine::global().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        for kind in BACKENDS {
            if let Some(engine) = build_or_skip(kind, Engine::builder().shards(1)) {
                let dir = tempfile::tempdir().unwrap();
                block_on(body(&engine, dir.path())).unwrap();
            }
        }
    });
}

#[test]
fn every_function_uses_its_engine() {
    each("every_function_uses_its_engine", async |engine, dir| {
        let fs = engine.fs();
        let at = |name: &str| dir.join(name);
        fs.create_dir(at("one")).await?;
        fs.create_dir_all(at("two/and/deep")).await?;
        fs.create_dir_all(at("two/and/deep")).await?;
        DirBuilder::new().mode(0o700).engine(engine).create(at("three")).await?;
        fs.write(at("file"), b"text".to_vec()).await?;
        assert_eq!(fs.read(at("file")).await?, b"text");
        assert_eq!(fs.read_to_string(at("file")).await?, "text");
        fs.write_atomic(at("atomic"), b"new".to_vec()).await?;
        let mut file = fs.create_atomic(at("atomic")).await?;
        file.write_all(b"newer").await?;
        file.commit().await?;
        assert_eq!(fs.copy(at("atomic"), at("copy")).await?, 5);
        fs.rename(at("copy"), at("moved")).await?;
        fs.hard_link(at("moved"), at("hard")).await?;
        fs.symlink("hard", at("soft")).await?;
        assert_eq!(fs.metadata(at("soft")).await?.len(), 5);
        assert!(fs.symlink_metadata(at("soft")).await?.is_symlink());
        assert_eq!(fs.read_link(at("soft")).await?.as_os_str(), "hard");
        assert_eq!(fs.canonicalize(at("soft")).await?, std::fs::canonicalize(at("hard"))?);
        fs.set_permissions(at("hard"), PermissionsExt::from_mode(0o604)).await?;
        assert_eq!(fs.metadata(at("moved")).await?.mode() & 0o777, 0o604);
        fs.sync_dir(dir).await?;
        assert_eq!(fs.sync_dir(at("file")).await.unwrap_err().kind(), io::ErrorKind::NotADirectory);
        fs.remove_file(at("soft")).await?;
        assert!(!fs.exists(at("soft")).await? && fs.try_exists(at("hard")).await?);
        let mut entries = fs.read_dir(at("two")).await?;
        let entry = entries.next_entry().await?.unwrap();
        assert!(entry.file_name() == "and" && entry.metadata().await?.is_dir());
        fs.remove_dir(at("one")).await?;
        fs.remove_dir_all(at("two")).await?;
        assert!(!at("one").exists() && !at("two").exists());
        Ok(())
    });
}

/// Which paths each flag allows, and with which error it refuses the others.
#[test]
fn resolve_flags_restrict_paths() {
    each("resolve_flags_restrict_paths", async |engine, dir| {
        std::fs::create_dir(dir.join("root"))?;
        std::fs::write(dir.join("root/file"), b"inside")?;
        std::fs::write(dir.join("file"), b"outside")?;
        std::os::unix::fs::symlink("file", dir.join("root/link"))?;
        std::os::unix::fs::symlink("/file", dir.join("root/absolute"))?;
        std::os::unix::fs::symlink("../file", dir.join("root/out"))?;
        let root = engine.open(dir.join("root")).await?;
        let open = async |path: &str, resolve| match OpenOptions::new()
            .read(true)
            .in_dir(&root)
            .resolve(resolve)
            .open(path)
            .await
        {
            Ok(file) => Ok(file.read(0..9).await?.to_vec()),
            Err(error) => Err(error),
        };
        let inside = b"inside".to_vec();
        for resolve in [
            Resolve::BENEATH,
            Resolve::IN_ROOT,
            Resolve::NO_SYMLINKS,
            Resolve::NO_XDEV,
            Resolve::default(),
        ] {
            assert_eq!(open("file", resolve).await?, inside, "{resolve:?}");
        }
        let errno = |result: io::Result<Vec<u8>>| result.unwrap_err().raw_os_error().unwrap();
        for path in ["../file", "out", "absolute", "/etc/passwd"] {
            assert_eq!(errno(open(path, Resolve::BENEATH).await), libc::EXDEV, "{path}");
        }
        assert_eq!(open("link", Resolve::BENEATH).await?, inside);
        for path in ["../file", "out", "absolute", "/file", "/../../file"] {
            assert_eq!(open(path, Resolve::IN_ROOT).await?, inside, "{path}");
        }
        assert_eq!(errno(open("link", Resolve::NO_SYMLINKS).await), libc::ELOOP);
        let mut both = Resolve::BENEATH;
        both |= Resolve::NO_SYMLINKS;
        assert_eq!(both, Resolve::NO_SYMLINKS | Resolve::BENEATH);
        assert_eq!(errno(open("link", both).await), libc::ELOOP);
        assert_eq!(errno(open("../file", both).await), libc::EXDEV);
        let magic_link = format!("/proc/self/fd/{}", root.as_raw_fd());
        assert_eq!(errno(open(&magic_link, Resolve::NO_MAGICLINKS).await), libc::ELOOP);
        assert_eq!(open("link", Resolve::NO_MAGICLINKS).await?, inside);
        assert_eq!(errno(open("/proc/self/status", Resolve::NO_XDEV).await), libc::EXDEV);
        assert_eq!(errno(open("file", Resolve::BENEATH | Resolve::IN_ROOT).await), libc::EINVAL);
        // This name is in the kernel's lookup cache, since it was opened above. Others may be
        // missing.
        assert_eq!(open("file", Resolve::CACHED).await?, inside);
        let mut making = OpenOptions::new();
        making.write(true).create(true).in_dir(&root).resolve(Resolve::CACHED);
        assert_eq!(making.open("file").await.unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        Ok(())
    });
}

/// Without `openat2` (a kernel before 5.6, or a filter) an open with resolve flags fails with a
/// message, and never opens a file that the flags exclude. Other opens do not need `openat2`.
fn without_openat2(test: &str, errno: i32) {
    each_after(
        test,
        || refuse(&[libc::SYS_openat2], errno),
        async |engine, dir| {
            std::fs::write(dir.join("file"), b"text")?;
            let root = engine.open(dir).await?;
            let mut options = OpenOptions::new();
            options.read(true).in_dir(&root);
            assert_eq!(options.open("file").await?.read(0..9).await?, b"text");
            options.resolve(Resolve::BENEATH);
            match options.open("file").await {
                // A ring bypasses the filter.
                Ok(_) => assert_eq!(engine.backend(), BackendKind::Uring),
                Err(error) => {
                    assert_ne!(engine.backend(), BackendKind::Uring);
                    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                    assert!(error.to_string().contains("openat2"), "{error}");
                }
            }
            // On a ring, an error of the path itself is reported unchanged.
            let missing = options.open("missing").await.unwrap_err();
            let expected = match engine.backend() {
                BackendKind::Uring => io::ErrorKind::NotFound,
                _ => io::ErrorKind::Unsupported,
            };
            assert_eq!(missing.kind(), expected);
            Ok(())
        },
    );
}

#[test]
fn resolve_flags_on_a_kernel_without_openat2() {
    without_openat2("resolve_flags_on_a_kernel_without_openat2", libc::ENOSYS);
}

#[test]
fn resolve_flags_under_a_filter_without_openat2() {
    without_openat2("resolve_flags_under_a_filter_without_openat2", libc::EPERM);
}

/// `into_std` waits until no operation of a dropped future holds the file.
#[test]
fn a_file_converts_to_a_std_file() {
    each("a_file_converts_to_a_std_file", async |engine, dir| {
        let path = dir.join("file");
        std::fs::write(&path, b"0123456789")?;
        let file = engine.open(&path).await?;
        file.read_at(vec![0; 3], Position::Current).await.0?;
        // Clones and streams hold the file.
        let clone = file.clone();
        assert_eq!(clone.into_std().await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let reader = file.reader();
        let file = file.try_into_std().expect_err("the reader holds the file");
        drop(reader);
        let fd = file.as_raw_fd();
        let std: std::fs::File = file.try_into().expect("nothing else holds the file");
        assert_eq!(std.as_raw_fd(), fd, "another descriptor");
        assert_eq!(io::Seek::stream_position(&mut &std)?, 3);
        // The standard library's file becomes a ringway file again.
        let file = File::from_fd(std.into(), engine);
        assert_eq!(file.read(0..4).await?, b"0123");

        // A pending read holds the file after its future was dropped, until it is cancelled.
        let (reader, mut writer) = pipe(engine);
        let mut read = Box::pin(reader.read_at(vec![0; 10], Position::Current));
        assert!(poll_once(read.as_mut()).is_pending());
        drop(read);
        let mut std = reader.into_std().await?;
        assert_eq!(engine.stats().counts.in_flight, 0);
        // No cancelled read takes these bytes.
        io::Write::write_all(&mut writer, b"all of it")?;
        drop(writer);
        assert_eq!(io::read_to_string(&mut std)?, "all of it");

        // When `into_std` itself is dropped while it waits, the file is closed.
        let (reader, writer) = pipe(engine);
        let mut read = Box::pin(reader.read_at(vec![0; 10], Position::Current));
        assert!(poll_once(read.as_mut()).is_pending());
        drop(read);
        if let Poll::Ready(std) = poll_once(pin!(reader.into_std())) {
            drop(std?);
        }
        let mut hangup = [PollFd::new(&writer, PollFlags::ERR)];
        assert_eq!(poll(&mut hangup, Some(&Timespec { tv_sec: 20, tv_nsec: 0 }))?, 1);
        Ok(())
    });
}

/// Permissions count at the time of the call, not at the time when the engine was built: the
/// kernel's polling thread would keep those.
#[test]
fn given_up_privileges_stay_given_up() {
    // (The child could not remove it.)
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    in_child(
        "given_up_privileges_stay_given_up",
        |command| _ = command.current_dir(dir.path()),
        || {
            if !is_root() {
                return skip("only root has privileges to give up");
            }
            let secret = "secret";
            std::fs::write(secret, b"secret").unwrap();
            std::fs::set_permissions(secret, PermissionsExt::from_mode(0o600)).unwrap();
            let polled = || Engine::builder().shards(1).sqpoll(SqPoll::new(Duration::from_secs(1)));
            let builders = [Engine::builder().shards(1), polled()];
            let engines = builders.map(|builder| builder.build().unwrap());
            // Some threads and workers exist before.
            for engine in &engines {
                assert!(block_on(engine.fs().exists(secret)).unwrap());
                block_on(engine.open(secret)).unwrap();
            }
            become_ordinary();
            for (number, engine) in engines.iter().enumerate() {
                let error = block_on(engine.open(secret)).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{number}");
                let own = number.to_string();
                block_on(engine.fs().write(&own, b"mine".to_vec())).unwrap();
                assert_ne!(std::fs::metadata(own).unwrap().uid(), 0, "{number}");
                let made = format!("dir {number}");
                block_on(engine.fs().create_dir(&made)).unwrap();
                assert_ne!(std::fs::metadata(made).unwrap().uid(), 0, "{number}");
            }
        },
    );
}

#[test]
fn a_range_of_a_pipe_is_what_has_arrived() {
    each("a_range_of_a_pipe_is_what_has_arrived", async |engine, _| {
        let (reader, mut writer) = pipe(engine);
        io::Write::write_all(&mut writer, b"hello")?;
        assert_eq!(reader.read(0..64).await?, b"hello");
        io::Write::write_all(&mut writer, b"12345")?;
        let mut all = pin!(reader.read_exact(0..8));
        assert!(poll_once(all.as_mut()).is_pending());
        io::Write::write_all(&mut writer, b"678")?;
        assert_eq!(all.await?, b"12345678");
        Ok(())
    });
}

/// A server, an automounter or a filter may refuse before they look whether it exists.
#[test]
fn a_directory_exists_whatever_mkdir_answers() {
    in_child(
        "a_directory_exists_whatever_mkdir_answers",
        |_| {},
        || {
            let dir = tempfile::tempdir().unwrap();
            refuse(&[libc::SYS_mkdir, libc::SYS_mkdirat], libc::EPERM);
            for kind in BACKENDS {
                let Some(engine) = build_or_skip(kind, Engine::builder().shards(1)) else {
                    continue;
                };
                block_on(engine.fs().create_dir_all(dir.path())).unwrap();
                // The filter is not for the ring.
                if kind != BackendKind::Uring {
                    let made = block_on(engine.fs().create_dir_all(dir.path().join("new")));
                    assert_eq!(made.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
                }
            }
        },
    );
}

/// However far a copy has come when it is dropped.
#[test]
fn nobody_may_read_what_a_copy_replaces() {
    each("nobody_may_read_what_a_copy_replaces", async |engine, dir| {
        let (source, target) = (dir.join("source"), dir.join("target"));
        std::fs::write(&source, b"public")?;
        std::fs::set_permissions(&source, PermissionsExt::from_mode(0o644))?;
        for polls in 1.. {
            std::fs::write(&target, b"secret")?;
            std::fs::set_permissions(&target, PermissionsExt::from_mode(0o600))?;
            let mut copy = Box::pin(engine.fs().copy(&source, &target));
            let mut done = None;
            for _ in 0..polls {
                if let Poll::Ready(copied) = poll_once(copy.as_mut()) {
                    done = Some(copied?);
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(copy);
            wait_until_idle(engine);
            let mode = std::fs::metadata(&target)?.permissions().mode();
            let content = std::fs::read(&target)?;
            assert!(content != b"secret" || mode & 0o077 == 0, "{polls} polls: {mode:o}");
            if done.is_some() {
                assert_eq!((&*content, mode & 0o777), (&b"public"[..], 0o644));
                assert!(polls > 2, "{polls} polls are no steps");
                break;
            }
        }
        Ok(())
    });
}

/// Where the file system does not support unnamed files, or `/proc` is missing, the new file has a
/// temporary name. Dropping the writer removes that file, but a forked child leaves its parent's
/// alone.
#[test]
fn temporary_names_belong_to_their_writer() {
    each_after(
        "temporary_names_belong_to_their_writer",
        || refuse(&[libc::SYS_faccessat, libc::SYS_faccessat2], libc::ENOSYS),
        async |engine, dir| {
            let path = dir.join("file");
            let entries = || -> Vec<_> {
                let entries = std::fs::read_dir(dir).unwrap();
                let mut names: Vec<_> = entries
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .collect();
                names.sort();
                names
            };
            for old in [None, Some("old")] {
                let before = entries();
                let mut file = engine.fs().create_atomic(&path).await?.chunk(1);
                let with_another = entries();
                assert_eq!(with_another.len(), before.len() + 1);
                assert!(
                    with_another[0].starts_with(".file.") && with_another[0].ends_with(".tmp"),
                    "{with_another:?}"
                );
                file.write_all(b"lost").await?;
                drop(file);
                assert_eq!(entries(), before);
                assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), old);

                let mut file = engine.fs().create_atomic(&path).await?;
                file.write_all(b"old").await?;
                file.flush().await?;
                let with_another = entries();
                let mut file = Some(file);
                assert_eq!(in_fork(|| drop(file.take())), 0);
                assert_eq!(entries(), with_another, "the child removed its parent's file");
                file.take().unwrap().commit().await?;
                assert_eq!(entries(), ["file"]);
                assert_eq!(std::fs::read(&path)?, b"old");
            }
            // A failed commit removes the temporary file.
            let mut file = engine.fs().create_atomic(&path).await?;
            file.write_all(b"new").await?;
            std::fs::remove_file(&path)?;
            std::fs::create_dir(&path)?;
            assert_eq!(file.commit().await.unwrap_err().kind(), io::ErrorKind::IsADirectory);
            assert_eq!(entries(), ["file"]);
            Ok(())
        },
    );
}
