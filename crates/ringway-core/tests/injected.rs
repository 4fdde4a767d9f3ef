//! Errors of every system call that a queue makes: the first one, some in between, and all of them
//! fail, in one test for each call. Operations have the results that the same system calls have
//! without ringway, or fail with the injected error where they could not have been made; none of
//! them hangs.

#![cfg(ringway_linux)]

#[path = "common/inject.rs"]
mod inject;

use inject::{Injector, Plan};
use ringway_core::op::Position;
use ringway_core::{AlignedBuffer, BackendKind, BuildError, Completion, File, Options, Queue, op};
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// So long nothing may take, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(40);

const FOR_EVER: u64 = u64::MAX;

/// How the program waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// In `reap`.
    Reap,
    /// In `poll(2)`, and it calls the queue only when the descriptor is readable.
    Poll,
}

/// What one run does.
#[derive(Clone, Copy, Debug)]
struct Case {
    backend: BackendKind,
    waiting: Waiting,
    call: libc::c_long,
    plan: Plan,
    /// The plan begins when the queue is built, not before.
    built: bool,
}

/// Runs on a thread of its own; returns what went wrong.
fn run(case: Case, dir: &Path) -> Result<u64, String> {
    let (sender, receiver) = mpsc::channel();
    let path = dir.join("file");
    std::thread::spawn(move || {
        let Some(injector) = Injector::install(&[case.call]) else {
            return sender.send(Ok(0));
        };
        let result = work(case, &path, &injector);
        injector.set(None);
        sender.send(result.map(|()| injector.failed()))
    });
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| Err("it hangs".to_owned()))
}

fn work(case: Case, path: &Path, injector: &Injector) -> Result<(), String> {
    if !case.built {
        injector.set(Some(case.plan));
    }
    let mut queue = match Options::new().backend(case.backend).build() {
        Ok(queue) => queue,
        // A backend that cannot be set up is refused with the errno.
        Err(BuildError::Refused(_)) if !case.built => return Ok(()),
        Err(error) => return Err(format!("build: {error}")),
    };
    for round in 0..3 {
        batch(case, injector, &mut queue, path)
            .map_err(|error| format!("round {round}: {error}"))?;
    }
    Ok(())
}

const CONTENT: &[u8] = &[7; 100_000];

/// Operations of all kinds at once.
fn batch(case: Case, injector: &Injector, queue: &mut Queue, path: &Path) -> Result<(), String> {
    // What the test needs itself is not what fails.
    injector.set(None);
    let (reader, mut writer) = std::io::pipe().map_err(|error| error.to_string())?;
    let file = File::from(
        std::fs::File::options().read(true).write(true).open(path).map_err(|e| e.to_string())?,
    );
    let direct = {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut options = std::fs::File::options();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        File::from(options.open(path).map_err(|error| error.to_string())?)
    };
    let pipe = File::from(std::os::fd::OwnedFd::from(reader));
    let aligned = || AlignedBuffer::new(4096, 4096);
    let operations = [
        op::read(&file, vec![0; 1000], 0),
        op::read(&file, vec![0; 70_000], 0),
        op::read(&direct, aligned(), 4096),
        op::write(&file, vec![7; 1000], 5000),
        op::write_dsync(&file, vec![7; 1000], 5000),
        op::fdatasync(&file),
        op::statx(path),
        op::open(path, ringway_core::OpenOptions::new().read(true)),
        op::read(&pipe, vec![0; 5], Position::Current),
        op::timeout(Duration::from_millis(1)),
        op::nop(),
        op::blocking(|| ()),
    ];
    let count = operations.len();
    for (number, operation) in (0..).zip(operations) {
        queue.push(operation.user_data(number)).map_err(|error| error.to_string())?;
    }
    injector.set(Some(case.plan));
    let mut done = Vec::new();
    match case.waiting {
        Waiting::Reap => {
            writer.write_all(b"hello").map_err(|error| error.to_string())?;
            while done.len() < count {
                let reaped = queue.reap(1).map_err(|error| format!("reap: {error}"))?;
                done.extend(reaped);
            }
        }
        Waiting::Poll => {
            submit(case, queue)?;
            writer.write_all(b"hello").map_err(|error| error.to_string())?;
            while done.len() < count {
                let fd = match queue.poll_fd() {
                    Ok(fd) => fd.as_raw_fd(),
                    Err(error) if error.raw_os_error() == Some(case.plan.errno) => continue,
                    Err(error) => return Err(format!("poll_fd: {error}")),
                };
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one live entry.
                let ready = unsafe { libc::poll(&raw mut poll, 1, 20_000) };
                if ready == 0 {
                    let left = (0..count as u64).filter(|number| {
                        done.iter().all(|one: &Completion| one.user_data != *number)
                    });
                    return Err(format!("no wakeup, left: {:?}", left.collect::<Vec<_>>()));
                }
                match queue.reap(0) {
                    Ok(reaped) => done.extend(reaped),
                    // It says so, and can be called again.
                    Err(error) if error.raw_os_error() == Some(case.plan.errno) => {}
                    Err(error) => return Err(format!("reap: {error}")),
                }
            }
        }
    }
    done.into_iter().try_for_each(check)
}

/// Submits, again if it says that it could not.
fn submit(case: Case, queue: &mut Queue) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match queue.submit() {
            Ok(_) => return Ok(()),
            Err(error)
                if error.raw_os_error() == Some(case.plan.errno) && begun.elapsed() < PATIENCE => {}
            Err(error) => return Err(format!("submit: {error}")),
        }
    }
}

fn check(done: Completion) -> Result<(), String> {
    let number = done.user_data;
    let wanted = match number {
        0 | 3 | 4 => 1000,
        1 => 70_000,
        2 => 4096,
        8 => 5,
        _ => 0,
    };
    match done.result {
        Ok(count) if count == wanted => {}
        ref other => return Err(format!("operation {number}: {other:?}")),
    }
    match number {
        0 | 1 => {
            let content = done.into_buffer().ok_or("no buffer")?;
            (*content.as_slice() == CONTENT[..wanted as usize])
                .then_some(())
                .ok_or("wrong bytes".to_owned())
        }
        6 => {
            let metadata = done.into_metadata().map_err(|error| error.to_string())?;
            let len = metadata.len();
            (len == CONTENT.len() as u64).then_some(()).ok_or(format!("length {len}"))
        }
        7 => done.into_file().map(drop).map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

/// Runs all cases of a call; prints how many there were, and how often it failed.
fn matrix(name: &str, call: libc::c_long, errnos: &[i32], plans: &[(u64, u64, bool)]) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(dir.path().join("file"), CONTENT).unwrap();
    let (mut cases, mut failures, mut wrong) = (0, 0, Vec::new());
    for backend in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        if Options::new().backend(backend).build().is_err() {
            println!("skipped: no {backend}");
            continue;
        }
        for waiting in [Waiting::Reap, Waiting::Poll] {
            for &errno in errnos {
                for &(after, count, built) in plans {
                    let plan = Plan { after, count, errno };
                    let case = Case { backend, waiting, call, plan, built };
                    cases += 1;
                    match run(case, dir.path()) {
                        Ok(failed) => failures += failed,
                        Err(error) => wrong.push(format!(
                            "{backend} {waiting:?} {errno} after {after}, {count} times, \
                             built {built}: {error}"
                        )),
                    }
                }
            }
        }
    }
    println!("{name}: {cases} cases, {failures} errors injected, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

/// The first, some later ones; with the queue's making and without.
const SOME: &[(u64, u64, bool)] =
    &[(0, 1, false), (0, 1, true), (0, 5, true), (1, 1, true), (2, 20, true), (3, 1, false)];
/// And all.
const ALL: &[(u64, u64, bool)] =
    &[(0, 1, true), (0, 5, true), (1, 1, true), (0, FOR_EVER, false), (0, FOR_EVER, true)];

const TRANSIENT: &[i32] = &[libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EINTR];
const REFUSED: &[i32] = &[libc::EPERM, libc::ENOSYS];

macro_rules! calls {
    ($($name:ident: $call:ident, $errnos:expr, $plans:expr;)*) => {$(
        #[test]
        fn $name() {
            matrix(stringify!($name), libc::$call, $errnos, $plans);
        }
    )*};
}

calls! {
    io_uring_enter: SYS_io_uring_enter, TRANSIENT, SOME;
    io_uring_enter_refused: SYS_io_uring_enter, &[libc::EPERM, libc::ENOSYS, libc::EACCES],
        &[(0, FOR_EVER, false)];
    io_uring_setup: SYS_io_uring_setup, &[libc::EAGAIN, libc::ENOMEM, libc::EPERM], SOME;
    io_uring_register: SYS_io_uring_register,
        &[libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EPERM, libc::EINVAL], ALL;
    io_setup: SYS_io_setup, &[libc::EAGAIN, libc::ENOMEM, libc::EPERM], SOME;
    io_submit: SYS_io_submit, &[libc::EAGAIN, libc::ENOMEM, libc::EPERM, libc::EINTR], ALL;
    io_getevents: SYS_io_getevents, TRANSIENT, SOME;
    io_cancel: SYS_io_cancel, &[libc::EAGAIN, libc::EPERM], ALL;
    eventfd: SYS_eventfd2, &[libc::EMFILE, libc::ENOMEM, libc::EPERM], SOME;
    timers: SYS_timerfd_create, &[libc::EMFILE, libc::EPERM, libc::ENOSYS], ALL;
    pipes: SYS_pipe2, &[libc::EMFILE], &[(0, 1, false), (0, 2, false)];
    preadv2_refused: SYS_preadv2, REFUSED, ALL;
    preadv2: SYS_preadv2, &[libc::EAGAIN, libc::EINTR], SOME;
    pwritev2_refused: SYS_pwritev2, REFUSED, &[(0, FOR_EVER, false), (0, FOR_EVER, true)];
    pwritev2: SYS_pwritev2, &[libc::EAGAIN, libc::EINTR], SOME;
    pread: SYS_pread64, &[libc::EINTR], SOME;
    pwrite: SYS_pwrite64, &[libc::EINTR], SOME;
    statx: SYS_statx, REFUSED, ALL;
    openat2: SYS_openat2, REFUSED, &[(0, FOR_EVER, false), (0, FOR_EVER, true)];
    openat2_interrupted: SYS_openat2, &[libc::EINTR], SOME;
    threads: SYS_clone3, &[libc::EAGAIN, libc::ENOMEM], SOME;
    membarriers: SYS_membarrier, REFUSED, ALL;
    fcntls: SYS_fcntl, &[libc::EPERM], &[(0, 1, true), (2, 3, true)];
    polls: SYS_ppoll, &[libc::EINTR], SOME;
    memory_advice: SYS_madvise, REFUSED, ALL;
}
