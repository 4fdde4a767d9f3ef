//! Waiting: no wakeup is lost with poll(2) on the descriptor of the queue, and signals end a wait
//! only in an interruptible queue.

use super::world::{
    Checked, MS, World, buffer_for, descriptors, pattern, pipe, readable, write_all,
};
use ringway_core::op::{self, Position, Readiness};
use ringway_core::{BackendKind, Completion, File, Operation, Options};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything here takes: after this a wakeup is lost.
const LOST: Duration = Duration::from_secs(10);

/// Reaps as an event loop does: when the descriptor is readable, until nothing is ready.
pub fn by_descriptor(queue: &mut Checked, mut take: impl FnMut(Completion)) {
    let fd = queue.poll_fd().unwrap().as_raw_fd();
    queue.submit().unwrap();
    while queue.in_flight() > 0 {
        assert!(readable(fd, LOST), "a wakeup is lost: {queue:?}", queue = &**queue);
        loop {
            let some: Vec<_> = queue.reap(0).unwrap().collect();
            queue.check();
            if some.is_empty() {
                break;
            }
            some.into_iter().for_each(&mut take);
        }
    }
}

/// Operations of all kinds, some of which fall back to threads.
fn mixture(number: u64, files: &[File], reader: &File) -> Operation {
    let file = &files[number as usize / 16 % files.len()];
    let operation = match number % 16 {
        0 => op::fadvise(file, 0, 1 << 33, op::Advice::Normal),
        1 if cfg!(ringway_linux) => op::sync_range(file, 0, 1 << 33, 0),
        2 => op::fdatasync(file),
        3 => op::timeout(MS),
        4 => op::statx("."),
        5 => op::poll(reader, Readiness::READABLE),
        6 => op::nop(),
        7 => op::write(file, buffer_for(file, 4096), 0),
        8 => op::timeout(3 * MS).timeout(Duration::from_secs(60)),
        _ => op::read(file, buffer_for(file, 4096), 4096),
    };
    operation.user_data(number)
}

fn polled(world: &World, options: &Options) {
    let files = world.files("polled", &pattern(0, 8192));
    let (reader, writer) = pipe();
    write_all(&writer, b"x");
    let mut queue = world.build(options);
    let mut number = 0;
    for round in 0..40u64 {
        let count = [1, 2, 5, 30, 100][round as usize % 5];
        for _ in 0..count {
            queue.push(mixture(number, &files, &reader)).unwrap();
            number += 1;
        }
        if round % 4 == 0 {
            queue
                .push_chain(
                    [op::nop(), op::fsync(&files[0]), op::nop().drain()]
                        .map(|one| one.user_data(u64::MAX)),
                )
                .unwrap();
        }
        let mut seen = 0;
        by_descriptor(&mut queue, |done| {
            assert!(done.result.is_ok(), "{:?}", done.result);
            seen += 1;
        });
        assert_eq!(seen, count + if round % 4 == 0 { 3 } else { 0 });
    }
    // One at a time, because each is a wakeup that could be lost.
    for number in 0..200 {
        queue.push(mixture(number, &files, &reader)).unwrap();
        let mut seen = 0;
        by_descriptor(&mut queue, |done| {
            assert!(done.result.is_ok());
            seen += 1;
        });
        assert_eq!(seen, 1);
    }
}

pub fn no_lost_wakeup(world: &World) {
    polled(world, &world.options());
    polled(world, &world.options().entries(4));
    polled(world, &world.options().single_issuer(true));
    polls_of_an_eventfd(world);
}

/// The wakeup of the ring occurs within a write to an eventfd, repeatedly.
fn polls_of_an_eventfd(world: &World) {
    let mut queue = world.build(&world.options().single_issuer(true));
    // SAFETY: the call takes numbers only.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is new and has no other owner.
    let eventfd = File::from(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) });
    for _ in 0..5 {
        queue.push(op::poll(&eventfd, Readiness::READABLE)).unwrap();
        let mut seen = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(5 * MS);
                write_all(&eventfd, &1u64.to_ne_bytes());
            });
            by_descriptor(&mut queue, |done| {
                assert_eq!(done.result, Ok(1));
                seen += 1;
            });
        });
        assert_eq!(seen, 1);
        assert_eq!(queue.result(op::read(&eventfd, vec![0; 8], Position::Current)), Ok(8));
    }
}

pub fn an_eventfd_to_poll(world: &World) {
    polled(world, &world.options().eventfd(true));
}

/// The descriptor stays readable for completions that were not delivered, even if it was first
/// requested when all had completed.
pub fn readable_for_undelivered_completions(world: &World) {
    for eventfd in [false, true] {
        let mut queue = world.build(&world.options().eventfd(eventfd));
        for _ in 0..5 {
            _ = queue.push(op::nop()).unwrap();
        }
        while queue.submit().unwrap() < 5 {
            std::thread::sleep(MS);
        }
        let fd = queue.poll_fd().unwrap().as_raw_fd();
        assert!(readable(fd, LOST));
        assert_eq!(queue.reap(0).unwrap().take(2).count(), 2);
        assert!(readable(fd, LOST));
        assert_eq!(queue.submit().unwrap(), 3);
        assert!(readable(fd, LOST));
        assert_eq!(queue.reap(0).unwrap().count(), 3);
        // Spurious wakeups are possible, but they end.
        let quiet = (0..10).any(|_| {
            assert_eq!(queue.reap(0).unwrap().count(), 0);
            !readable(fd, MS)
        });
        assert!(quiet);
        let flags = {
            // SAFETY: the call takes numbers only.
            unsafe { libc::fcntl(fd, libc::F_GETFD) }
        };
        assert_eq!(flags, libc::FD_CLOEXEC);
    }
}

pub fn readable_for_cancels(world: &World) {
    let mut queue = world.queue();
    let (reader, _writer) = pipe();
    let fd = queue.poll_fd().unwrap().as_raw_fd();
    for submit in [false, true] {
        let wait = [
            op::poll(&reader, Readiness::READABLE),
            op::read(&reader, vec![0; 1], Position::Current),
        ];
        let ids = wait.map(|operation| queue.push(operation).unwrap());
        if submit {
            queue.submit().unwrap();
        }
        for id in ids {
            assert!(queue.cancel(id));
        }
        queue.submit().unwrap();
        let mut seen = 0;
        while seen < 2 {
            assert!(readable(fd, LOST), "submitted: {submit}");
            seen += queue.reap(0).unwrap().count();
        }
    }
    // A timeout that expires while nothing reaps.
    queue.push(op::poll(&reader, Readiness::READABLE).timeout(5 * MS)).unwrap();
    queue.push(op::read(&reader, vec![0; 1], Position::Current).timeout(10 * MS)).unwrap();
    let mut seen = 0;
    by_descriptor(&mut queue, |done| {
        assert_eq!(done.result.unwrap_err().errno(), libc::ETIMEDOUT);
        seen += 1;
    });
    assert_eq!(seen, 2);
}

pub static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Counts `SIGUSR1`, with or without `SA_RESTART`.
pub fn handle_signals(flags: libc::c_int) {
    // SAFETY: the handler only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Stops the signals however a case ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `body` while another thread sends signals: to the thread of `body`, or to itself.
pub fn with_signals(to_itself: bool, body: impl FnOnce()) {
    // SAFETY: the call takes nothing and cannot fail.
    let waiting = unsafe { libc::pthread_self() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            // SAFETY: the call takes nothing and cannot fail.
            let target = if to_itself { unsafe { libc::pthread_self() } } else { waiting };
            while !over.load(Ordering::Relaxed) {
                // SAFETY: the target thread joins this one or is this one, so it exists.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                std::thread::sleep(MS / 5);
            }
        });
        body();
    });
}

/// Runs `body` on this thread, and sends it one signal when it sleeps. On a busy machine it may
/// sleep before its wait, where a signal ends nothing: if it sleeps on for long, it gets another.
fn with_one_signal(body: impl FnOnce()) {
    // SAFETY: the calls take nothing and cannot fail.
    let (waiting, number) = unsafe { (libc::pthread_self(), libc::gettid()) };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            let is_asleep = || {
                let stat = std::fs::read_to_string(format!("/proc/self/task/{number}/stat"));
                stat.unwrap().contains(") S ")
            };
            let (mut asleep, mut enough) = (0, 10);
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(MS);
                asleep = if is_asleep() { asleep + 1 } else { 0 };
                if asleep == enough {
                    // SAFETY: the target thread joins this one, so it exists.
                    unsafe { libc::pthread_kill(waiting, libc::SIGUSR1) };
                    (asleep, enough) = (0, 1000);
                }
            }
        });
        body();
    });
}

/// A signal interrupts every blocking system call.
pub fn signals_do_not_end_a_wait(world: &World) {
    handle_signals(0);
    let files = world.files("signals", &pattern(0, 8192));
    with_signals(false, || {
        for eventfd in [false, true] {
            let mut queue = world.build(&world.options().eventfd(eventfd));
            let (reader, writer) = pipe();
            // The other thread is running.
            let first = SIGNALS.load(Ordering::Relaxed);
            while SIGNALS.load(Ordering::Relaxed) == first {
                std::thread::sleep(MS);
            }
            let before = SIGNALS.load(Ordering::Relaxed);
            // On a slow machine, signals may be longer in coming.
            while SIGNALS.load(Ordering::Relaxed) <= before + 2 {
                let begin = Instant::now();
                queue.push(op::timeout(50 * MS)).unwrap();
                assert_eq!(queue.reap(1).unwrap().count(), 1);
                assert!(begin.elapsed() >= 50 * MS);
            }
            // With operations for the fallback pool, and a deadline.
            queue.push(op::read(&reader, vec![0; 1], Position::Current)).unwrap();
            queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
            let begin = Instant::now();
            assert_eq!(queue.reap_until(1, begin + 30 * MS).unwrap().count(), 0);
            assert!(begin.elapsed() >= 30 * MS);
            write_all(&writer, b"xy");
            assert_eq!(queue.reap(2).unwrap().count(), 2);
            for number in 0..300 {
                queue.push(mixture(number, &files, &reader)).unwrap();
            }
            let rest = queue.rest();
            assert_eq!(rest.len(), 300);
            assert!(rest.values().all(|result| result.is_ok()), "{rest:?}");
        }
    });
}

/// A signal handler that runs on the thread that waits ends the wait, also with `SA_RESTART`; one
/// that runs on another thread does not.
pub fn signals_end_an_interruptible_wait(world: &World) {
    for (flags, single_issuer, polled) in [
        (0, false, false),
        (0, true, true),
        (libc::SA_RESTART, true, false),
        (libc::SA_RESTART, false, true),
    ] {
        handle_signals(flags);
        let options = world.options().interruptible(true).single_issuer(single_issuer);
        let mut queue = world.build(&options);
        if polled {
            queue.poll_fd().unwrap();
        }
        let (reader, writer) = pipe();
        // Submitted by the call that waits, which hides the signal from the caller of the system
        // call, and before it; without a deadline and with one.
        let hour = Duration::from_secs(3600);
        with_one_signal(|| {
            queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
            assert_eq!(queue.reap(1).unwrap().count(), 0);
        });
        with_one_signal(|| assert_eq!(queue.reap(1).unwrap().count(), 0));
        with_one_signal(|| {
            queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
            assert_eq!(queue.reap_until(1, Instant::now() + hour).unwrap().count(), 0);
        });
        // A completion hides the signal, too. (Without a ring a thread makes it, perhaps later.)
        with_one_signal(|| {
            queue.push(op::nop()).unwrap();
            if queue.reap(3).unwrap().count() == 0 {
                assert_ne!(world.kind, BackendKind::Uring);
                assert_eq!(queue.reap(1).unwrap().count(), 1);
            }
        });
        // On kaio, the fallback pool reads pipes.
        with_one_signal(|| {
            queue.push(op::read(&reader, vec![0; 1], Position::Current)).unwrap();
            assert_eq!(queue.reap(1).unwrap().count(), 0);
        });
        with_signals(false, || {
            // Other calls wait on.
            queue.push(op::timeout(5 * MS).user_data(7)).unwrap();
            let mut taken = 0;
            queue.reap_matching(1, |user_data| user_data == 7, |_| taken += 1).unwrap();
            assert_eq!(taken, 1);
            // Nothing is lost.
            write_all(&writer, b"xy");
            let mut seen = 0;
            while queue.in_flight() > 0 {
                for done in queue.reap(3).unwrap() {
                    assert!(done.result.unwrap() > 0);
                    seen += 1;
                }
            }
            assert_eq!(seen, 3);
        });
        let before = SIGNALS.load(Ordering::Relaxed);
        with_signals(true, || {
            while SIGNALS.load(Ordering::Relaxed) < before + 10 {
                queue.push(op::timeout(5 * MS)).unwrap();
                assert_eq!(queue.reap(1).unwrap().count(), 1);
            }
        });
    }
}

/// Each poll completes for its own events, whatever else is polled of the descriptor.
pub fn polls_of_one_descriptor(world: &World) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    while (&ours).write(&[0; 4096]).is_ok() {}
    let ours = File::from(OwnedFd::from(ours));
    let mut queue = world.queue();
    let both = Readiness(Readiness::READABLE.0 | Readiness::WRITABLE.0);
    for (number, events) in (0..).zip([Readiness::READABLE, Readiness::WRITABLE, both]) {
        queue.push(op::poll(&ours, events).user_data(number)).unwrap();
    }
    assert_eq!(queue.reap(0).unwrap().count(), 0);
    let mut completed = |count: usize| {
        let mut done = Vec::new();
        while done.len() < count {
            let until = Instant::now() + LOST;
            done.extend(queue.reap_until(1, until).unwrap().map(|one| (one.user_data, one.result)));
            assert!(Instant::now() < until, "{done:?}");
        }
        done.sort_by_key(|one| one.0);
        done
    };
    (&theirs).write_all(b"x").unwrap();
    let readable = Ok(Readiness::READABLE.0.into());
    assert_eq!(completed(2), [(0, readable), (2, readable)]);
    theirs.set_nonblocking(true).unwrap();
    while (&theirs).read(&mut [0; 4096]).is_ok() {}
    assert_eq!(completed(1), [(1, Ok(Readiness::WRITABLE.0.into()))]);
}

/// `poll(2)` takes no more entries than a process may have descriptors.
pub fn more_polls_than_descriptors(world: &World) {
    const COUNT: usize = 40;
    let pipes: Vec<_> = (0..COUNT).map(|_| pipe()).collect();
    let mut queue = world.queue();
    queue.poll_fd().unwrap();
    // What the process has open, and a little more.
    let limit = descriptors() as libc::rlim_t + 8;
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the value lives during the call, which changes a limit of this process only.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    for (number, (reader, _)) in (0..).zip(&pipes) {
        for events in [0, libc::POLLPRI, libc::POLLRDNORM, libc::POLLRDBAND] {
            let events = Readiness(Readiness::READABLE.0 | events as u16);
            queue.push(op::poll(reader, events).user_data(number)).unwrap();
        }
    }
    assert_eq!(queue.reap(0).unwrap().count(), 0);
    write_all(&pipes[7].1, b"x");
    for _ in 0..4 {
        let until = Instant::now() + LOST;
        let done = queue.reap_until(1, until).unwrap().next().expect("the poll completes");
        assert_eq!(done.user_data, 7);
        assert!(done.result.unwrap() & u64::from(Readiness::READABLE.0) != 0);
    }
}

/// Every backend leaves closures to threads, and some leave other operations.
pub fn for_what_depends_on_a_closure(world: &World) {
    let mut queue = world.queue();
    for polled in [false, true] {
        let (reader, writer) = pipe();
        if polled {
            queue.poll_fd().unwrap();
        }
        queue.push(op::poll(&reader, Readiness::READABLE)).unwrap();
        let writer_of_closure = writer.clone();
        queue.push(op::blocking(move || write_all(&writer_of_closure, b"x"))).unwrap();
        let done = queue.reap_until(2, Instant::now() + LOST).unwrap().count();
        assert_eq!(done, 2, "the closure has not begun");
    }
}

/// No signal comes, so that a wait that a signal may end is as long as any other.
pub fn for_more_than_the_completion_queue_holds(world: &World) {
    const PIPES: usize = 4;
    const POLLS: usize = 4;
    for interruptible in [false, true] {
        let options = world.options().entries(2).completion_entries(POLLS as u32);
        let mut queue = world.build(&options.interruptible(interruptible));
        let pipes: [_; PIPES] = std::array::from_fn(|_| pipe());
        for (reader, _) in pipes.iter().flat_map(|pipe| std::iter::repeat_n(pipe, POLLS)) {
            queue.push(op::poll(reader, Readiness::READABLE)).unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (_, writer) in &pipes {
                    std::thread::sleep(10 * MS);
                    write_all(writer, b"x");
                }
            });
            assert_eq!(queue.reap(PIPES * POLLS).unwrap().count(), PIPES * POLLS);
        });
    }
}
