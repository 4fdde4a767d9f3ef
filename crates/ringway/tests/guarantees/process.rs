//! The process around an engine: forks, limits, filters. Each test runs in a process of its own.

use crate::common::process::{KAIO, URING, become_ordinary, in_child, limit_memlock, refuse};
use crate::common::watchdog::Watchdog;
use crate::common::{
    MS, PAGE, available, counts, current_thread, descriptors_and_threads, direct, errno, in_fork,
    is_cloexec, is_older_than, multi_thread, on_each_backend, pattern, pipe, poll_once, put,
    reap_until_idle, scratch, skip, wait_for,
};
use futures::executor::block_on;
use futures::future::poll_immediate;
use ringway::fs::{self, File, OpenOptions};
use ringway::{AlignedBuffer, BackendKind, BuildError, Engine, ForcedBy, Position, Reaping};
use ringway_core::refusal::Feature;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// The result of a future that must be ready at its first poll.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match poll_once(Box::pin(future).as_mut()) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the child waits for its parent's engine"),
    }
}

#[test]
fn a_forked_child_gets_errors() {
    in_child(
        "process::a_forked_child_gets_errors",
        |_| {},
        || {
            on_each_backend("a_forked_child_gets_errors", |kind| {
                let dir = scratch();
                let engine = Engine::builder().backend(kind).build().unwrap();
                let file = direct(&engine, dir.path(), 16);
                Engine::global().unwrap();
                let (reader, writer) = pipe(&engine);
                let mut begun: futures::future::BoxFuture<'_, _> =
                    Box::pin(reader.read_at(vec![0; 4], Position::Current));
                assert!(block_on(poll_immediate(&mut begun)).is_none());
                let mut dropped = Box::pin(reader.read_at(vec![0; 4], Position::Current));
                assert!(block_on(poll_immediate(&mut dropped)).is_none());
                let mut blocks = [3..8, 0..9000].map(|range| block_on(file.read(range)).ok());
                let (before, pool) = (counts(&engine), engine.stats().pool);
                assert!(pool.in_use > 9000);
                let mut begun = Some(begun);
                let mut dropped = Some(dropped);
                let mut copies = Some((engine.clone(), file.clone()));
                let status = in_fork(|| {
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
                    assert_eq!(engine.stats().pool, ringway::PoolStats::default());
                    // The child's copies of the parent's blocks.
                    assert_eq!(blocks[1].take().unwrap()[..], pattern(0, 9000));
                    drop(blocks[0].take());
                    drop(copies.take());
                    // An engine that the child builds works.
                    let own = Engine::builder().backend(kind).build().unwrap();
                    assert_eq!(
                        block_on(direct(&own, dir.path(), 16).read(3..8)).unwrap()[..],
                        pattern(3, 5)
                    );
                });
                assert_eq!(status, 0, "the child panicked or hung");
                assert_eq!((counts(&engine), engine.stats().pool), (before, pool));
                // The parent continues.
                put(&writer, b"texttext");
                let (read, buffer) = block_on(begun.take().unwrap());
                assert_eq!((read.unwrap(), &buffer[..]), (4, &b"text"[..]));
                assert_eq!(block_on(dropped.take().unwrap()).0.unwrap(), 4);
                assert_eq!(block_on(file.read(3..8)).unwrap()[..], pattern(3, 5));
                reap_until_idle(&engine);
            });
        },
    );
}

/// A child that was forked inside a runtime shares that runtime's epoll instance with its parent.
/// Its engine registers nothing there, which would end the parent.
#[test]
fn a_child_forked_in_a_runtime_spares_it() {
    in_child(
        "process::a_child_forked_in_a_runtime_spares_it",
        |_| {},
        || {
            on_each_backend("a_child_forked_in_a_runtime_spares_it", |kind| {
                for reaping in [Reaping::Automatic, Reaping::Runtime] {
                    multi_thread(2).block_on(async {
                        for _ in 0..10 {
                            let status = in_fork(|| {
                                let engine =
                                    Engine::builder().backend(kind).reaping(reaping).build();
                                let engine = engine.unwrap();
                                for _ in 0..3 {
                                    block_on(engine.fs().canonicalize("/tmp")).unwrap();
                                    block_on(engine.sleep(MS)).unwrap();
                                }
                                drop(engine);
                            });
                            assert_eq!(status, 0, "the child");
                            tokio::time::sleep(5 * MS).await;
                        }
                    });
                }
            });
        },
    );
}

/// A thread with a working directory, a umask and a file-system user of its own is the first to use
/// an engine. The engine's threads work for others all the same.
#[test]
fn the_first_callers_directory_is_its_own() {
    in_child(
        "process::the_first_callers_directory_is_its_own",
        |_| {},
        || {
            on_each_backend("the_first_callers_directory_is_its_own", |kind| {
                let (dir, elsewhere) = (scratch(), scratch());
                std::env::set_current_dir(dir.path()).unwrap();
                let engine = Engine::builder().backend(kind).shards(1).build().unwrap();
                // What a thread of the engine has: directory, mode of a new file, and its user.
                let look = |name: &'static str| {
                    block_on(engine.call(move || {
                        let made = std::fs::File::create(name)?.metadata()?;
                        Ok((std::env::current_dir()?, made.mode() & 0o777, made.uid()))
                    }))
                };
                let own = std::fs::File::create("own").unwrap().metadata().unwrap();
                let expected = (std::env::current_dir().unwrap(), own.mode() & 0o777, own.uid());
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        // SAFETY: these calls take numbers, and concern this thread only.
                        unsafe {
                            assert_eq!(libc::unshare(libc::CLONE_FS), 0);
                            libc::umask(0o077);
                        }
                        std::env::set_current_dir(elsewhere.path()).unwrap();
                        // SAFETY: as above. (It fails without privileges, and changes nothing.)
                        unsafe { libc::setfsuid(65534) };
                        assert_eq!(look("first").unwrap(), expected);
                    });
                });
                assert_eq!(look("second").unwrap(), expected);
                assert_eq!(std::env::current_dir().unwrap(), expected.0);
            });
        },
    );
}

/// At the moment of the fork other threads hold locks of the engine, which nobody releases in the
/// child.
#[test]
fn a_child_forked_while_locks_are_held() {
    in_child(
        "process::a_child_forked_while_locks_are_held",
        |_| {},
        || {
            on_each_backend("a_child_forked_while_locks_are_held", |kind| {
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
                        in_fork(|| {
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
                    assert_eq!(failed, None, "a child panicked or hung");
                });
                reap_until_idle(&engine);
            });
        },
    );
}

/// Every descriptor of an engine, and of files that it opens, is closed on exec.
#[test]
fn descriptors_are_closed_on_exec() {
    let open = || -> Vec<i32> {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap();
        entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect()
    };
    in_child(
        "process::descriptors_are_closed_on_exec",
        |_| {},
        || {
            // Not of each turn: descriptors of the last engine may still be closing.
            let before = open();
            for kind in available() {
                let engine = Engine::builder().backend(kind).build().unwrap();
                let manual = Engine::builder()
                    .backend(kind)
                    .reaping(ringway::Reaping::Manual)
                    .build()
                    .unwrap();
                let file = block_on(engine.open("/etc/passwd")).unwrap();
                let runtime = current_thread();
                let (reader, writer) = pipe(&engine);
                // The runtime has a driver.
                runtime.block_on(async {
                    assert!(
                        poll_immediate(Box::pin(reader.read_at(vec![0; 1], Position::Current)))
                            .await
                            .is_none()
                    )
                });
                let mut checked = 0;
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
                        checked += 1;
                    }
                }
                assert!(checked > 3);
                drop((file, manual, writer));
            }
        },
    );
}

/// A signal for the program that a thread of the engine received would not interrupt the program,
/// and would run its handler on that thread.
#[test]
fn engine_threads_block_signals() {
    in_child(
        "process::engine_threads_block_signals",
        |_| {},
        || {
            for kind in available() {
                let engine = Engine::builder().backend(kind).build().unwrap();
                assert_works(&engine);
                // A thread gives itself its name when it first runs.
                wait_for("the engine's thread", || {
                    check_blocked(kind).contains(&"ringway".to_owned())
                });
            }
        },
    );
}

/// Checks that the engine's threads block the program's signals. Returns their names.
fn check_blocked(kind: BackendKind) -> Vec<String> {
    let mut seen = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        // A thread may end meanwhile.
        let Ok(name) = std::fs::read_to_string(task.join("comm")) else { continue };
        let Ok(status) = std::fs::read_to_string(task.join("status")) else { continue };
        if !name.starts_with("ringway") {
            continue;
        }
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
        let blocked = u64::from_str_radix(blocked, 16).unwrap();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGPROF, libc::SIGXFSZ] {
            assert!(blocked & 1 << (signal - 1) != 0, "{kind}: {name} takes signal {signal}");
        }
        seen.push(name.trim().to_owned());
    }
    seen
}

/// What every engine must be able to do, on any backend.
fn assert_works(engine: &Engine) {
    let dir = working_dir_scratch();
    let path = dir.path().join("file");
    let runtime = current_thread();
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
    reap_until_idle(engine);
}

/// In the working directory, because an ordinary user may not be able to access the target
/// directory.
fn working_dir_scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(".").unwrap()
}

/// Runs a test in a process without `RINGWAY_BACKEND`, in a directory that every user can write to.
fn in_default_child(name: &str, body: impl FnOnce()) {
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
fn assert_fallback(expected: BackendKind, gone: &[(BackendKind, i32)]) {
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
        assert_eq!(errno_of_build(&error), Some(*errno), "{error}");
        let refusal = explanation.refusals.iter().find(|refusal| refusal.feature == feature(*kind));
        assert!(refusal.is_some_and(|refusal| error.to_string().contains(&refusal.fix)), "{error}");
    }
    assert!(engine.stats().refusals >= gone.len());
    assert_works(&engine);
}

/// The errno of an engine that was not built.
fn errno_of_build(error: &std::io::Error) -> Option<i32> {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<BuildError>());
    refused.map(BuildError::errno).or(error.raw_os_error())
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
    in_default_child("a_filter_that_forbids_io_uring", || {
        refuse(&URING, libc::EPERM);
        assert_fallback(BackendKind::Kaio, &[(BackendKind::Uring, libc::EPERM)]);
    });
}

#[test]
fn a_filter_that_leaves_threads_only() {
    in_default_child("a_filter_that_leaves_threads_only", || {
        refuse(&[URING.as_slice(), &KAIO].concat(), libc::ENOSYS);
        assert_fallback(
            BackendKind::Threads,
            &[(BackendKind::Uring, libc::ENOSYS), (BackendKind::Kaio, libc::ENOSYS)],
        );
    });
}

/// A filter may be installed while the engine works. It applies to the thread that enters, which
/// then finds that the backend fails.
#[test]
fn a_filter_installed_later() {
    in_child(
        "process::a_filter_installed_later",
        |_| {},
        || {
            let kinds = available();
            let engine_on = |kind: &BackendKind| {
                let engine = Engine::builder().backend(*kind).shards(1).build().unwrap();
                let dir = scratch();
                let file = direct(&engine, dir.path(), 16);
                let (reader, writer) = std::io::pipe().unwrap();
                let pipe = File::from_fd(OwnedFd::from(reader), &engine);
                (engine, dir, file, pipe, writer)
            };
            let setups: Vec<_> = kinds.iter().map(engine_on).collect();
            for (_, _, file, ..) in &setups {
                let (read, buffer) = block_on(file.read_at(AlignedBuffer::new(PAGE, PAGE), 0));
                assert!(read.unwrap() == PAGE && *buffer == *pattern(0, PAGE));
            }
            let mut waiting: Vec<_> = setups
                .iter()
                .map(|(_, _, _, pipe, _)| Box::pin(pipe.read_at(vec![0u8; 64], Position::Current)))
                .collect();
            for read in &mut waiting {
                assert!(block_on(poll_immediate(read)).is_none());
            }
            refuse(
                &[libc::SYS_io_uring_enter, libc::SYS_io_submit, libc::SYS_io_getevents],
                libc::EPERM,
            );
            for ((kind, (engine, _, file, ..)), waiting) in kinds.iter().zip(&setups).zip(waiting) {
                let _watch = Watchdog::new(&format!("{kind} a_filter_installed_later"));
                // Before Linux 6.0 nothing cancels the reads of a ring that is refused, and the one
                // of the pipe does not end by itself.
                let leaks = *kind == BackendKind::Uring && is_older_than(6, 0);
                for number in 0..20 {
                    let buffer = AlignedBuffer::new(PAGE, PAGE);
                    let (read, buffer) = block_on(file.read_at(buffer, number % 16 * PAGE as u64));
                    let errno = read.err().map(|error| error.raw_os_error().unwrap());
                    if leaks && errno == Some(libc::EIO) {
                        assert!(number == 0 && buffer.is_empty());
                        continue;
                    }
                    assert_eq!(
                        buffer.len(),
                        PAGE,
                        "{kind}: the buffer of read {number} was not returned: {errno:?}"
                    );
                    // The other backends read without those system calls.
                    let enters = *kind == BackendKind::Uring;
                    let is_stopped = matches!(errno, Some(libc::ECANCELED | libc::ESHUTDOWN));
                    assert!(if enters { is_stopped } else { errno.is_none() }, "{kind}: {errno:?}");
                }
                if *kind == BackendKind::Uring {
                    let (read, buffer) = block_on(waiting);
                    let expected = if leaks { (libc::EIO, 0) } else { (libc::ECANCELED, 64) };
                    assert_eq!((errno(read), buffer.len()), expected);
                    let text = engine.explain().to_string();
                    assert!(text.contains("EPERM") && text.contains("failed during use"), "{text}");
                } else {
                    drop(waiting);
                }
                reap_until_idle(engine);
            }
        },
    );
}

/// 64 KiB is what containers and older systems allow an ordinary user: too little for several
/// rings.
#[test]
fn an_ordinary_user_with_little_lockable_memory() {
    in_default_child("an_ordinary_user_with_little_lockable_memory", || {
        become_ordinary();
        limit_memlock(64 << 10);
        assert_works(&Engine::builder().shards(1).build().unwrap());
        // Some shards have a ring; the others fall back and explain why.
        let engine = Engine::builder().shards(16).entries(1024).build().unwrap();
        assert_works(&engine);
        let rings = Engine::builder().shards(16).entries(1024).backend(BackendKind::Uring).build();
        if rings.is_ok() {
            return skip("this kernel does not charge rings to RLIMIT_MEMLOCK");
        }
        let text = engine.explain().to_string();
        assert!(text.contains("ulimit -l"), "{text}");
        match rings {
            Ok(_) => panic!("sixteen rings of 1024 entries in 64 KiB"),
            Err(error) => assert_eq!(errno_of_build(&error), Some(libc::ENOMEM), "{error}"),
        }
    });
}

/// With ever fewer free descriptors, an engine is built and works, or names the error, and leaks
/// nothing.
#[test]
fn no_descriptors_left() {
    in_default_child("no_descriptors_left", || {
        let best = Engine::builder().build().unwrap().backend();
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
        let (mut built, mut failed) = (0, 0);
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
                        built += 1;
                        let explanation = engine.explain();
                        // Threads that replace the best backend are nobody's choice.
                        let forced_by = kind.map(|_| ForcedBy::Option);
                        assert_eq!(explanation.forced_by, forced_by, "{explanation}");
                        let refused = explanation.refusals;
                        assert!(
                            kind.is_some()
                                || engine.backend() == best
                                || refused.iter().any(|refusal| refusal.errno == libc::EMFILE),
                            "{free} free: {refused:?}"
                        );
                        match read(&engine) {
                            Ok(bytes) => assert_eq!(bytes, 4),
                            Err(error) => assert_eq!(
                                error.raw_os_error(),
                                Some(libc::EMFILE),
                                "{free} free: {error}"
                            ),
                        }
                        reap_until_idle(&engine);
                    }
                    Err(error) => {
                        failed += 1;
                        assert_eq!(
                            errno_of_build(&error),
                            Some(libc::EMFILE),
                            "{free} free, {kind:?}: {error}"
                        );
                    }
                }
            }
            taken.pop();
        }
        assert!(built > 0 && failed > 0, "{built} {failed}");
        drop(taken);
        wait_for("descriptors", || descriptors_and_threads().0 <= idle);
    });
}

/// The engine and a runtime exist before descriptors run out: the engine's own thread reaps for
/// tasks of the runtime.
#[test]
fn no_descriptors_left_for_a_task() {
    in_default_child("no_descriptors_left_for_a_task", || {
        for kind in available() {
            let engine =
                Engine::builder().backend(kind).shards(1).try_cached(false).build().unwrap();
            let file =
                File::from_fd(std::fs::File::open("/proc/self/exe").unwrap().into(), &engine);
            let runtime = current_thread();
            // The backend has opened what it opens on first use.
            block_on(file.read_at(vec![0; 4], 0)).0.unwrap();
            block_on(file.sync_all()).unwrap();
            let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
            let maximum = before.maximum.unwrap_or(libc::RLIM_INFINITY);
            // With a limit of none at all, `poll(2)` refuses those that are open as well.
            for most in [3, 0] {
                let limit = libc::rlimit { rlim_cur: most, rlim_max: maximum };
                // SAFETY: `limit` is a live value that the call only reads.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
                assert!(std::fs::File::open("/dev/null").is_err());
                let read_all = async || {
                    for at in 0..50 {
                        assert_eq!(file.read_at(vec![0; 4], at * 4096).await.0.unwrap(), 4);
                    }
                };
                if most > 0 {
                    runtime.block_on(read_all());
                } else {
                    block_on(read_all());
                }
            }
            let back = libc::rlimit {
                rlim_cur: before.current.unwrap_or(libc::RLIM_INFINITY),
                rlim_max: maximum,
            };
            // SAFETY: `back` is a live value that the call only reads.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &back) }, 0);
            std::thread::sleep(MS);
            reap_until_idle(&engine);
        }
    });
}
