//! The process around an engine: forks, limits, filters. Each test runs in a process of its own.

use crate::common::{KAIO, URING, become_ordinary, in_child, limit_memlock, refuse};
use crate::guarded::PAGE;
use crate::watchdog::Watchdog;
use crate::world::{
    MS, counts, descriptors_and_threads, direct, granted, is_cloexec, pattern, put, scratch,
    settled,
};
use futures::executor::block_on;
use futures::future::poll_immediate;
use ringway::fs::{self, File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, Engine, Position};
use ringway_core::refusal::Feature;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// Runs `body` in a forked child and returns its wait status: 0 unless it panicked or hung.
pub fn forked(body: impl FnOnce()) -> i32 {
    // SAFETY: the child runs `body` on this thread only and exits without returning from this
    // function.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: `alarm` takes a number. It ends a child that hangs, because the watchdog's thread
        // exists only in the parent.
        unsafe { libc::alarm(20) };
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
        // SAFETY: `_exit` takes a number and does not return; it runs no code of the parent.
        unsafe { libc::_exit(i32::from(!right)) }
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

fn errno<T>(result: io::Result<T>) -> i32 {
    result.map(drop).expect_err("an error").raw_os_error().unwrap_or(0)
}

/// The result of a future that must be ready at its first poll.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a forked child waits for its parent's engine"),
    }
}

#[test]
fn a_forked_child_is_told() {
    in_child(
        "process::a_forked_child_is_told",
        |_| {},
        || {
            for kind in granted() {
                let _watch = Watchdog::new(&format!("{kind} a_forked_child_is_told"));
                let dir = scratch();
                let engine = Engine::builder().backend(kind).build().unwrap();
                let file = direct(&engine, dir.path(), 16);
                Engine::global().unwrap();
                let (reader, writer) = std::io::pipe().unwrap();
                let reader = File::from_fd(OwnedFd::from(reader), &engine);
                let mut begun: futures::future::BoxFuture<'_, _> =
                    Box::pin(reader.read_at(vec![0; 4], Position::Current));
                assert!(block_on(poll_immediate(&mut begun)).is_none());
                let mut dropped = Box::pin(reader.read_at(vec![0; 4], Position::Current));
                assert!(block_on(poll_immediate(&mut dropped)).is_none());
                let before = counts(&engine);
                let mut begun = Some(begun);
                let mut dropped = Some(dropped);
                let mut copies = Some((engine.clone(), file.clone()));
                let status = forked(|| {
                    assert!(
                        Engine::global()
                            .is_err_and(|error| error.raw_os_error() == Some(libc::ECHILD))
                    );
                    assert_eq!(errno(at_once(File::open("/etc/passwd"))), libc::ECHILD);
                    assert_eq!(errno(at_once(fs::read("/etc/passwd"))), libc::ECHILD);
                    assert_eq!(errno(at_once(engine.open("/etc/passwd"))), libc::ECHILD);
                    assert_eq!(errno(at_once(file.read(0..9))), libc::ECHILD);
                    assert_eq!(
                        errno(at_once(file.read_at(ringway::AlignedBuffer::new(PAGE, PAGE), 0)).0),
                        libc::ECHILD
                    );
                    assert_eq!(
                        errno(at_once(file.read_vectored_at(vec![vec![0; 1]], 0)).0),
                        libc::ECHILD
                    );
                    assert_eq!(
                        errno(at_once(file.read_ranges(&[0..9, 50_000..50_009]))),
                        libc::ECHILD
                    );
                    assert_eq!(errno(at_once(file.sync_all())), libc::ECHILD);
                    assert_eq!(errno(at_once(begun.take().unwrap()).0), libc::ECHILD);
                    drop(dropped.take());
                    assert_eq!(engine.reap(), 0);
                    assert_eq!(engine.backend(), kind);
                    assert!(!format!("{engine:?} {}", engine.explain()).is_empty());
                    engine.stats();
                    drop(copies.take());
                    // An engine that the child builds works.
                    let own = Engine::builder().backend(kind).build().unwrap();
                    assert_eq!(
                        block_on(direct(&own, dir.path(), 16).read(3..8)).unwrap()[..],
                        pattern(3, 5)
                    );
                });
                assert_eq!(status, 0, "the child found something wrong, or hung");
                assert_eq!(counts(&engine), before);
                // The parent continues.
                put(&writer, b"texttext");
                let (read, buffer) = block_on(begun.take().unwrap());
                assert_eq!((read.unwrap(), &buffer[..]), (4, &b"text"[..]));
                assert_eq!(block_on(dropped.take().unwrap()).0.unwrap(), 4);
                assert_eq!(block_on(file.read(3..8)).unwrap()[..], pattern(3, 5));
                settled(&engine);
            }
        },
    );
}

/// At the moment of the fork other threads hold locks of the engine, which nobody releases in the
/// child.
#[test]
fn a_child_forked_in_the_middle_of_things() {
    in_child(
        "process::a_child_forked_in_the_middle_of_things",
        |_| {},
        || {
            for kind in granted() {
                let _watch =
                    Watchdog::new(&format!("{kind} a_child_forked_in_the_middle_of_things"));
                let dir = scratch();
                let engine = Engine::builder().backend(kind).shards(1).build().unwrap();
                let file = direct(&engine, dir.path(), 16);
                let over = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| {
                            while !over.load(Ordering::Relaxed) {
                                let ranges: Vec<_> =
                                    (0..16).map(|page| page * 4096..page * 4096 + 5).collect();
                                block_on(
                                    file.read_ranges_each(&ranges, ringway::Coalesce::never()),
                                )
                                .unwrap();
                                engine.stats();
                            }
                        });
                    }
                    let kept = block_on(file.read(0..9)).unwrap();
                    let failed = (0..60).find(|_| {
                        forked(|| {
                            engine.stats();
                            assert_eq!(engine.backend(), kind);
                            engine.explain();
                            assert_eq!(errno(at_once(engine.open("/etc/passwd"))), libc::ECHILD);
                            assert_eq!(errno(at_once(file.read(0..9))), libc::ECHILD);
                            assert_eq!(
                                errno(at_once(file.read_at(vec![0; 100], 7)).0),
                                libc::ECHILD
                            );
                            drop(kept.clone());
                            engine.reap();
                        }) != 0
                    });
                    over.store(true, Ordering::Relaxed);
                    assert_eq!(failed, None, "a child found something wrong, or hung");
                });
                settled(&engine);
            }
        },
    );
}

/// Every descriptor of an engine, and of files that it opens, is closed on exec.
#[test]
fn a_program_that_is_run_gets_none_of_the_descriptors() {
    let open = || -> Vec<i32> {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap();
        entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect()
    };
    in_child(
        "process::a_program_that_is_run_gets_none_of_the_descriptors",
        |_| {},
        || {
            for kind in granted() {
                let before = open();
                let engine = Engine::builder().backend(kind).build().unwrap();
                let by_hand = Engine::builder()
                    .backend(kind)
                    .reaping(ringway::Reaping::Manual)
                    .build()
                    .unwrap();
                let file = block_on(engine.open("/etc/passwd")).unwrap();
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let (reader, writer) = std::io::pipe().unwrap();
                let reader = File::from_fd(OwnedFd::from(reader), &engine);
                // The runtime has a driver.
                runtime.block_on(async {
                    assert!(
                        poll_immediate(Box::pin(reader.read_at(vec![0; 1], Position::Current)))
                            .await
                            .is_none()
                    )
                });
                let mut looked_at = 0;
                for number in open().into_iter().filter(|number| !before.contains(number)) {
                    // SAFETY: the descriptor is used for this call only, which fails if it is
                    // closed.
                    let fd = unsafe { BorrowedFd::borrow_raw(number) };
                    // The descriptor of the listing itself is closed by now.
                    if rustix::io::fcntl_getfd(fd).is_ok() {
                        assert!(
                            is_cloexec(fd),
                            "{:?}",
                            std::fs::read_link(format!("/proc/self/fd/{number}"))
                        );
                        looked_at += 1;
                    }
                }
                assert!(looked_at > 3);
                drop((file, by_hand, writer));
            }
        },
    );
}

/// A signal for the program that a thread of the engine received would not interrupt the program,
/// and would run its handler on that thread.
#[test]
fn threads_take_no_signals() {
    in_child(
        "process::threads_take_no_signals",
        |_| {},
        || {
            for kind in granted() {
                let engine = Engine::builder().backend(kind).build().unwrap();
                works(&engine);
                let mut seen = Vec::new();
                for task in std::fs::read_dir("/proc/self/task").unwrap() {
                    let task = task.unwrap().path();
                    // A thread may end meanwhile.
                    let Ok(name) = std::fs::read_to_string(task.join("comm")) else { continue };
                    let Ok(status) = std::fs::read_to_string(task.join("status")) else { continue };
                    if !name.starts_with("ringway") {
                        continue;
                    }
                    let blocked = status
                        .lines()
                        .find_map(|line| line.strip_prefix("SigBlk:"))
                        .unwrap()
                        .trim();
                    let blocked = u64::from_str_radix(blocked, 16).unwrap();
                    for signal in
                        [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGPROF, libc::SIGXFSZ]
                    {
                        assert!(
                            blocked & 1 << (signal - 1) != 0,
                            "{kind}: {name} takes signal {signal}"
                        );
                    }
                    seen.push(name.trim().to_owned());
                }
                assert!(seen.contains(&"ringway".to_owned()), "{kind}: {seen:?}");
            }
        },
    );
}

/// What every engine must be able to do, on any backend.
fn works(engine: &Engine) {
    let dir = scratch_here();
    let path = dir.path().join("file");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let work = async {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).engine(engine);
        let file = options.open(&path).await.unwrap();
        file.write_all_at(pattern(0, 3 * PAGE), 0).await.0.unwrap();
        file.sync_data().await.unwrap();
        assert_eq!(file.read(100..200).await.unwrap()[..], pattern(100, 100));
        let direct = options.clone().direct(true).open(&path).await.unwrap();
        assert_eq!(
            direct.read(100..2 * PAGE as u64).await.unwrap()[..],
            pattern(100, 2 * PAGE - 100)
        );
    };
    runtime.block_on(work);
    settled(engine);
}

/// In the working directory, because an ordinary user may not be able to access the target
/// directory.
fn scratch_here() -> tempfile::TempDir {
    tempfile::tempdir_in(".").unwrap()
}

/// Runs a test in a process without `RINGWAY_BACKEND`, in a directory that every user can write to.
fn leg(name: &str, body: impl FnOnce()) {
    let mut dir = None;
    let prepare = |command: &mut Command| {
        use std::os::unix::fs::PermissionsExt;
        let dir = dir.insert(scratch());
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        command.current_dir(dir.path()).env_remove("RINGWAY_BACKEND");
    };
    in_child(&format!("process::{name}"), prepare, || {
        let _watch = Watchdog::new(name);
        body();
    });
}

/// Checks the backend that is chosen by default, and how the engine explains each refused backend.
fn refused(expected: BackendKind, gone: &[(BackendKind, i32)]) {
    let engine = Engine::builder().build().unwrap();
    assert_eq!(engine.backend(), expected);
    let explanation = engine.explain();
    for (kind, errno) in gone {
        let refusal = explanation
            .refusals
            .iter()
            .find(|refusal| (refusal.feature, refusal.errno) == (feature(*kind), *errno));
        let refusal = refusal.unwrap_or_else(|| panic!("{kind} is missing: {explanation}"));
        assert!(!refusal.meaning.is_empty() && !refusal.fix.is_empty(), "{refusal}");
        assert!(explanation.to_string().contains(&refusal.fix), "{explanation}");
        let error = Engine::builder().backend(*kind).build().map(drop).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(*errno), "{error}");
    }
    assert!(engine.stats().refusals >= gone.len());
    works(&engine);
}

fn feature(kind: BackendKind) -> Feature {
    match kind {
        BackendKind::Uring => Feature::Uring,
        BackendKind::Kaio => Feature::Kaio,
        _ => Feature::Threads,
    }
}

#[test]
fn a_filter_that_forbids_io_uring() {
    leg("a_filter_that_forbids_io_uring", || {
        refuse(&URING, libc::EPERM);
        refused(BackendKind::Kaio, &[(BackendKind::Uring, libc::EPERM)]);
    });
}

#[test]
fn a_filter_that_leaves_threads_only() {
    leg("a_filter_that_leaves_threads_only", || {
        refuse(&[URING.as_slice(), &KAIO].concat(), libc::ENOSYS);
        refused(
            BackendKind::Threads,
            &[(BackendKind::Uring, libc::ENOSYS), (BackendKind::Kaio, libc::ENOSYS)],
        );
    });
}

/// A filter may be installed while the engine works. It applies to the thread that enters, which
/// then finds that the backend fails.
#[test]
fn a_filter_that_comes_later() {
    in_child(
        "process::a_filter_that_comes_later",
        |_| {},
        || {
            let granted = granted();
            let world = |kind: &BackendKind| {
                let engine = Engine::builder().backend(*kind).shards(1).build().unwrap();
                let dir = scratch();
                let file = direct(&engine, dir.path(), 16);
                let (reader, writer) = std::io::pipe().unwrap();
                let pipe = File::from_fd(OwnedFd::from(reader), &engine);
                (engine, dir, file, pipe, writer)
            };
            let worlds: Vec<_> = granted.iter().map(world).collect();
            for (_, _, file, ..) in &worlds {
                let (read, buffer) = block_on(file.read_at(AlignedBuffer::new(PAGE, PAGE), 0));
                assert!(read.unwrap() == PAGE && *buffer == *pattern(0, PAGE));
            }
            let mut waiting: Vec<_> = worlds
                .iter()
                .map(|(_, _, _, pipe, _)| Box::pin(pipe.read_at(vec![0u8; 64], Position::Current)))
                .collect();
            waiting.iter_mut().for_each(|read| assert!(block_on(poll_immediate(read)).is_none()));
            refuse(
                &[libc::SYS_io_uring_enter, libc::SYS_io_submit, libc::SYS_io_getevents],
                libc::EPERM,
            );
            for ((kind, (engine, _, file, ..)), waiting) in granted.iter().zip(&worlds).zip(waiting)
            {
                let _watch = Watchdog::new(&format!("{kind} a_filter_that_comes_later"));
                for number in 0..20 {
                    let room = AlignedBuffer::new(PAGE, PAGE);
                    let (read, buffer) = block_on(file.read_at(room, number % 16 * PAGE as u64));
                    let errno = read.err().map(|error| error.raw_os_error().unwrap());
                    assert_eq!(buffer.len(), PAGE, "{kind}: the buffer comes back");
                    // The other backends read without those system calls.
                    let allowed = *kind == BackendKind::Uring;
                    let answers = matches!(errno, Some(libc::ECANCELED | libc::ESHUTDOWN));
                    assert!(if allowed { answers } else { errno.is_none() }, "{kind}: {errno:?}");
                }
                if *kind == BackendKind::Uring {
                    let (read, buffer) = block_on(waiting);
                    assert_eq!((errno(read), buffer.len()), (libc::ECANCELED, 64));
                    let text = engine.explain().to_string();
                    assert!(text.contains("EPERM") && text.contains("failed during use"), "{text}");
                } else {
                    drop(waiting);
                }
                settled(engine);
            }
        },
    );
}

/// 64 KiB is what containers and older systems allow an ordinary user: too little for several
/// rings.
#[test]
fn an_ordinary_user_with_little_lockable_memory() {
    leg("an_ordinary_user_with_little_lockable_memory", || {
        become_ordinary();
        limit_memlock(64 << 10);
        works(&Engine::builder().shards(1).build().unwrap());
        // Some shards have a ring; the others fall back and explain why.
        let engine = Engine::builder().shards(16).entries(1024).build().unwrap();
        works(&engine);
        let text = engine.explain().to_string();
        assert!(text.contains("ulimit -l"), "{text}");
        match Engine::builder().shards(16).entries(1024).backend(BackendKind::Uring).build() {
            Ok(_) => panic!("sixteen rings of 1024 entries in 64 KiB"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{error}"),
        }
    });
}

/// With ever fewer free descriptors, an engine is built and works, or names the error, and leaks
/// nothing.
#[test]
fn no_descriptors_left() {
    leg("no_descriptors_left", || {
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: `limit` is a live value that the call only reads.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let read = |engine: &Engine| {
            let file = File::from_fd(rustix::io::fcntl_dupfd_cloexec(&file, 0)?, engine);
            block_on(file.read_at(vec![0; 4], 0)).0
        };
        let idle = descriptors_and_threads().0;
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        let (mut made, mut without) = (0, 0);
        for free in 0..24 {
            for kind in [
                None,
                Some(BackendKind::Uring),
                Some(BackendKind::Kaio),
                Some(BackendKind::Threads),
            ] {
                let builder = Engine::builder().shards(2).try_cached(false);
                let builder = kind.into_iter().fold(builder, |builder, kind| builder.backend(kind));
                match builder.build() {
                    Ok(engine) => {
                        made += 1;
                        match read(&engine) {
                            Ok(bytes) => assert_eq!(bytes, 4),
                            Err(error) => assert_eq!(
                                error.raw_os_error(),
                                Some(libc::EMFILE),
                                "{free} free: {error}"
                            ),
                        }
                        settled(&engine);
                    }
                    Err(error) => {
                        without += 1;
                        assert_eq!(
                            error.raw_os_error(),
                            Some(libc::EMFILE),
                            "{free} free, {kind:?}: {error}"
                        );
                    }
                }
            }
            taken.pop();
        }
        assert!(made > 0 && without > 0, "{made} {without}");
        drop(taken);
        crate::world::wait_for("descriptors", || descriptors_and_threads().0 <= idle);
    });
}

/// The engine and a runtime exist before descriptors run out: the engine's own thread reaps for
/// tasks of the runtime.
#[test]
fn no_descriptor_left_for_a_task() {
    leg("no_descriptor_left_for_a_task", || {
        for kind in granted() {
            let engine =
                Engine::builder().backend(kind).shards(1).try_cached(false).build().unwrap();
            let file =
                File::from_fd(std::fs::File::open("/proc/self/exe").unwrap().into(), &engine);
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            // The backend has opened what it opens on first use.
            block_on(file.read_at(vec![0; 4], 0)).0.unwrap();
            block_on(file.sync_all()).unwrap();
            let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
            let none = libc::rlimit {
                rlim_cur: 3,
                rlim_max: before.maximum.unwrap_or(libc::RLIM_INFINITY),
            };
            // SAFETY: `none` is a live value that the call only reads.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
            assert!(std::fs::File::open("/dev/null").is_err());
            runtime.block_on(async {
                for at in 0..50 {
                    assert_eq!(file.read_at(vec![0; 4], at * 4096).await.0.unwrap(), 4);
                }
            });
            let back =
                libc::rlimit { rlim_cur: before.current.unwrap_or(libc::RLIM_INFINITY), ..none };
            // SAFETY: `back` is a live value that the call only reads.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &back) }, 0);
            std::thread::sleep(MS);
            settled(&engine);
        }
    });
}
