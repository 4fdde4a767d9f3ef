//! A queue in its process: threads, forks, limits and environment.

use super::common::{become_ordinary, is_root, limit_kaio_requests, refuse};
use super::waiting::{SIGNALS, handle_signals, with_signals};
use super::world::{
    Checked, MS, World, buffer_for, bytes, pattern, pipe, skip, wait_for, write_all,
};
use ringway_core::op::{self, Position, Readiness};
use ringway_core::refusal::Feature;
use ringway_core::{
    Arena, BackendKind, BuildError, Error, File, ForcedBy, OpenOptions, Options, Reason,
};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The pushing thread has ended, and the kernel cancels or completes what it submitted. The owner
/// still gets the right results.
pub fn the_pushing_thread_has_ended(world: &World) {
    let files = world.files("ended", &pattern(0, 65536));
    for round in 0..10 {
        let (reader, writer) = pipe();
        // A read would take the data that a poll of the same pipe waits for.
        let (polled, other) = pipe();
        let (there, options, given) = ([reader, polled], world.options(), files.clone());
        let queue = std::thread::spawn(move || {
            let [reader, polled] = &there;
            let mut queue = options.build().unwrap();
            queue.push(op::read(reader, vec![0; 4], Position::Current).user_data(1)).unwrap();
            queue.push(op::poll(polled, Readiness::READABLE).user_data(2)).unwrap();
            queue.push(op::timeout(5 * MS).user_data(3)).unwrap();
            queue
                .push(op::poll(polled, Readiness::READABLE).timeout(10 * MS).user_data(4))
                .unwrap();
            queue
                .push_chain([
                    op::poll(polled, Readiness::READABLE).user_data(5),
                    op::nop().user_data(6),
                ])
                .unwrap();
            for (number, file) in (10u64..).zip(given.iter().cycle().take(40)) {
                queue
                    .push(
                        op::read(file, buffer_for(file, 16384), number % 4 * 16384)
                            .user_data(number),
                    )
                    .unwrap();
            }
            queue.submit().unwrap();
            queue
        })
        .join()
        .unwrap();
        let mut queue = Checked::new(queue);
        if round % 2 == 0 {
            std::thread::sleep(15 * MS);
        }
        let mut seen = std::collections::BTreeMap::new();
        while seen.len() < 42 {
            for done in queue.reap(1).unwrap() {
                let number = done.user_data;
                let errno = done.result.as_ref().err().map(|error| error.errno());
                match number {
                    3 => assert_eq!(done.result, Ok(0)),
                    4 => assert_eq!(errno, Some(libc::ETIMEDOUT)),
                    10.. => assert_eq!(bytes(done), pattern(number % 4 * 16384, 16384)),
                    other => panic!("{other}: {:?}", done.result),
                }
                assert_eq!(seen.insert(number, ()), None);
            }
        }
        write_all(&writer, b"text");
        write_all(&other, b"x");
        let rest = queue.rest();
        assert_eq!(rest.keys().copied().collect::<Vec<_>>(), [1, 2, 5, 6]);
        assert_eq!((rest[&1], rest[&6]), (Ok(4), Ok(0)));
    }
}

/// Task work is deferred to the submitting thread only if that thread is the one that waits.
pub fn single_issuer(world: &World) {
    let defers = |queue: &Checked| {
        let available = queue.explain().available;
        [Feature::CoopTaskrun, Feature::DeferTaskrun]
            .iter()
            .any(|feature| available.contains(feature))
    };
    assert!(!defers(&world.queue()));
    assert!(!defers(&world.build(&world.options().eventfd(true))));
    // From kernel 5.19 on, and 6.1 on.
    let builder = io_uring::IoUring::<io_uring::squeue::Entry>::builder;
    let can_defer = builder().setup_coop_taskrun().build(2).is_ok();
    let can_own = builder().setup_single_issuer().setup_defer_taskrun().build(2).is_ok();
    assert_eq!(
        defers(&world.build(&world.options().single_issuer(true))),
        world.kind == BackendKind::Uring && can_defer
    );
    let file = world.file(&pattern(0, 4096));
    let mut queue = world.build(&world.options().single_issuer(true)).into_queue();
    for number in 0..5 {
        queue.push(op::read(&file, vec![0; 64], number * 64).user_data(number)).unwrap();
    }
    let owned = queue.explain().available.contains(&Feature::SingleIssuer);
    assert_eq!(owned, world.kind == BackendKind::Uring && can_own);
    let elsewhere = file.clone();
    let queue = std::thread::spawn(move || {
        queue.push(op::read(&elsewhere, vec![0; 64], 5 * 64).user_data(5)).unwrap();
        let answer = queue.submit().err().and_then(|error| error.raw_os_error());
        assert_eq!(answer, owned.then_some(libc::EEXIST));
        let answer = queue.reap(1).err().and_then(|error| error.raw_os_error());
        assert_eq!(answer, owned.then_some(libc::EEXIST));
        queue
    })
    .join()
    .unwrap();
    // Nothing is lost: the owning thread continues.
    let mut queue = Checked::new(queue);
    let done = queue.completions();
    assert!(done.len() == 6 || !owned);
    for (number, done) in done {
        assert_eq!(bytes(done), pattern(number * 64, 64));
    }
}

/// Runs `body` in a forked child and returns its exit status, which is 0 unless it panicked.
fn forked(body: impl FnOnce()) -> i32 {
    // SAFETY: the child runs `body` on this thread alone, and ends without returning.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the call takes a number. The child has no watchdog thread, so an alarm ends it if
        // it hangs.
        unsafe { libc::alarm(20) };
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
        // SAFETY: the call takes a number and does not return. It runs no exit handler of the
        // parent.
        unsafe { libc::_exit(i32::from(!right)) }
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes for the length of the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

pub fn fork(world: &World) {
    let files = world.files("fork", &pattern(0, 65536));
    let (reader, writer) = pipe();
    let mut queue = world.queue();
    queue.push(op::poll(&reader, Readiness::READABLE).user_data(1)).unwrap();
    let id = queue.push(op::read(&reader, vec![0; 4], Position::Current).user_data(2)).unwrap();
    queue.submit().unwrap();
    for (number, file) in (10u64..).zip(&files) {
        queue.push(op::read(file, buffer_for(file, 65536), 0).user_data(number)).unwrap();
    }
    // Registrations belong to the ring, which the child inherits.
    let others = world.file(&[0; 4096]);
    let registers = queue.register_file(&files[0]).is_ok();
    let arena = Arena::new(4096, 2);
    let before = queue.stats().counts;
    // A queue whose descriptor is polled, with a completion that is not taken: its descriptor must
    // not be signalled by the child, nor its ring be touched.
    let mut polled = world.queue();
    polled.poll_fd().unwrap();
    let timeout = polled.push(op::timeout(60_000 * MS)).unwrap();
    polled.push(op::nop()).unwrap();
    while polled.submit().unwrap() == 0 {
        std::thread::sleep(MS);
    }
    let status = forked(|| {
        let child = Some(libc::ECHILD);
        assert!(polled.cancel_all() == 0 && !polled.cancel(timeout) && !polled.abandon(timeout));
        assert!(polled.submit().unwrap_err().raw_os_error() == child);
        assert!(polled.reap(1).unwrap_err().raw_os_error() == child);
        let untaken = polled.reap_matching(1, |_| true, |_| ());
        assert!(untaken.unwrap_err().raw_os_error() == child);
        assert!(polled.poll_fd().unwrap_err().raw_os_error() == child);
        assert!(polled.close(MS).unwrap_err().raw_os_error() == child);
        let error = std::io::Error::from_raw_os_error(libc::EIO);
        assert!(polled.fail(&error, MS).unwrap_err().raw_os_error() == child);
        assert!(queue.register_file(&others).unwrap_err().errno == libc::ECHILD);
        assert!(queue.register_file(&files[0]).unwrap_err().errno == libc::ECHILD);
        assert!(queue.register_arena(&arena).unwrap_err().errno == libc::ECHILD);
        assert!(!queue.unregister_file(&files[0]));
        let error = queue.push(op::nop()).unwrap_err();
        assert!(error.reason() == Reason::Forked && error.reason().errno() == libc::ECHILD);
        assert!(error.into_operations().len() == 1);
        assert!(queue.push_chain([op::nop()]).unwrap_err().reason() == Reason::Forked);
        assert!(queue.submit().unwrap_err().raw_os_error() == child);
        assert!(queue.reap(0).unwrap_err().raw_os_error() == child);
        assert!(queue.reap(1).unwrap_err().raw_os_error() == child);
        assert!(queue.poll_fd().unwrap_err().raw_os_error() == child);
        assert!(queue.close(MS).unwrap_err().raw_os_error() == child);
        assert!(!queue.cancel(id) && !queue.abandon(id) && queue.cancel_all() == 0);
        assert!(queue.stats().counts == before);
        // A queue that the child makes works.
        let mut own = world.queue();
        assert!(own.result(op::nop()) == Ok(0));
        assert!(own.result(op::read(&files[0], vec![0; 8], 0)) == Ok(8));
    });
    assert_eq!(status, 0, "the child found something wrong");
    assert_eq!(polled.reap(1).unwrap().count(), 1);
    // (More than the read takes, which else might end before the poll looks.)
    write_all(&writer, b"text, more");
    let done = queue.completions();
    assert_eq!(done.len(), 2 + files.len());
    for (number, done) in done {
        match number {
            1 => assert_eq!(done.result, Ok(1)),
            2 => assert_eq!(done.result, Ok(4)),
            _ => assert_eq!(bytes(done), pattern(0, 65536)),
        }
    }
    assert_eq!(queue.unregister_file(&files[0]), registers);
}

/// The first process of a PID namespace forks the first one of another: both have PID 1.
pub fn fork_of_the_same_number(world: &World) {
    if !is_root() {
        return skip("only root may make a PID namespace");
    }
    // SAFETY: the call takes a number; it decides about children to come.
    let unshare = || assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
    unshare();
    let status = forked(|| {
        assert_eq!(std::process::id(), 1);
        let mut queue = world.queue();
        assert_eq!(queue.result(op::nop()), Ok(0));
        unshare();
        let status = forked(|| {
            assert_eq!(std::process::id(), 1);
            assert_eq!(queue.push(op::nop()).unwrap_err().reason(), Reason::Forked);
            assert_eq!(queue.reap(1).unwrap_err().raw_os_error(), Some(libc::ECHILD));
            assert_eq!(world.queue().result(op::nop()), Ok(0));
            let status = forked(|| assert_eq!(world.queue().result(op::nop()), Ok(0)));
            assert_eq!(status, 0);
        });
        assert_eq!(status, 0);
        // (No thread can be started here any more; the existing ones continue.)
        assert!(queue.push(op::nop()).is_ok());
    });
    assert_eq!(status, 0);
}

/// A child that was forked while other threads start and end can use a queue of its own: it waits
/// for no lock that one of these threads held.
pub fn fork_while_threads_start_and_end(world: &World) {
    let path = world.disk.join("of-the-parent");
    std::fs::write(&path, [7; 4096]).unwrap();
    let open = || OpenOptions::new().read(true).direct(true).open(&path).unwrap();
    /// Ends the threads, also after a panic.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&ended);
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    std::thread::spawn(|| ()).join().unwrap();
                    // Facts about its device are looked up, and kept until it is closed.
                    open().largest_request();
                }
            });
        }
        let status = (0..100)
            .map(|_| {
                forked(|| {
                    let mut queue = world.queue();
                    let (done, result) = std::sync::mpsc::channel();
                    let call = op::blocking(move || done.send(7).unwrap());
                    assert_eq!(queue.result(call), Ok(0));
                    assert_eq!(result.recv(), Ok(7));
                    let file = open();
                    file.largest_request();
                    let buffer = buffer_for(&file, 4096);
                    assert_eq!(queue.result(op::read(&file, buffer, 0)), Ok(4096));
                })
            })
            .find(|status| *status != 0);
        assert_eq!(status, None);
    });
}

/// Without openat2(2), as on old kernels and under some filters.
pub fn without_openat2(world: &World) {
    refuse(&[libc::SYS_openat2], libc::ENOSYS);
    let dir = world.dir("openat2");
    std::fs::write(dir.join("file"), b"x").unwrap();
    let mut queue = world.queue();
    let read = OpenOptions::new().read(true).clone();
    assert!(queue.one(op::open(dir.join("file"), &read)).into_file().is_ok());
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
    assert!(queue.one(op::open(dir.join("made"), &made)).into_file().is_ok());
    assert_eq!(std::fs::metadata(dir.join("made")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(queue.result(op::open(dir.join("none"), &read)), Err(libc::ENOENT));
    let beneath = read.clone().resolve(libc::RESOLVE_BENEATH).clone();
    let expected =
        if world.kind == BackendKind::Uring { Err(libc::EXDEV) } else { Err(libc::ENOSYS) };
    assert_eq!(queue.result(op::open("/etc/passwd", &beneath)), expected);
}

pub fn forked_child_drops(world: &World) {
    let files = world.files("fork", &pattern(0, 65536));
    let (reader, writer) = pipe();
    for eventfd in [false, true] {
        // A child that waited for what is in flight would be ended before.
        let close_wait = Duration::from_secs(60);
        let mut queue = world.build(&world.options().eventfd(eventfd).close_wait(close_wait));
        queue.poll_fd().unwrap();
        queue.push(op::read(&reader, vec![0; 1], Position::Current).user_data(1)).unwrap();
        queue.push(op::poll(&reader, Readiness::READABLE).user_data(2)).unwrap();
        for (number, file) in (10u64..).zip(&files) {
            queue.push(op::read(file, buffer_for(file, 65536), 0).user_data(number)).unwrap();
            queue.push(op::fdatasync(file).user_data(100 + number)).unwrap();
        }
        queue.submit().unwrap();
        // SAFETY: the child drops its copy of the queue, and the parent its own.
        let copy = unsafe { std::ptr::read(&raw const queue) };
        let mut copy = std::mem::ManuallyDrop::new(copy);
        let status = forked(|| {
            // SAFETY: only the child drops this copy, and does not use the queue afterwards.
            unsafe { std::mem::ManuallyDrop::drop(&mut copy) };
        });
        assert_eq!(status, 0);
        write_all(&writer, b"x");
        let mut seen = 0;
        while queue.in_flight() > 1 {
            seen += queue.reap(1).unwrap().map(|done| assert!(done.result.is_ok())).count();
        }
        write_all(&writer, b"x");
        seen += queue.rest().len();
        assert_eq!(seen, 2 + 2 * files.len());
        // SAFETY: one byte, on this stack.
        let _ = unsafe {
            libc::read(std::os::fd::AsRawFd::as_raw_fd(&reader), [0u8].as_mut_ptr().cast(), 1)
        };
    }
}

/// The numbers of the open descriptors.
fn open_descriptors() -> BTreeSet<i32> {
    // SAFETY: the call takes numbers only, and fails for a descriptor that is not open.
    (0..1024).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).collect()
}

/// A forked child, which waits until it is dropped.
struct WaitingChild(i32);

impl WaitingChild {
    fn new() -> Self {
        // SAFETY: the child makes two system calls.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: neither call takes memory. The alarm ends a child whose parent has ended.
            unsafe { libc::alarm(60) };
            loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            }
        }
        Self(child)
    }
}

impl Drop for WaitingChild {
    fn drop(&mut self) {
        // SAFETY: the child was not waited for yet, so the number is its own.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: a status is not asked for.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

/// A fork while direct reads are in flight, and the parent then writes to the pages of their
/// buffers. Registered buffers have the bytes on every kernel; others from 6.5 on, since older
/// kernels do not pin them.
pub fn fork_during_direct_reads(world: &World) {
    const READS: usize = 64;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers = release.split(|c: char| !c.is_ascii_digit());
    let version: Vec<u32> = numbers.take(2).map(|part| part.parse().unwrap()).collect();
    let pins = version >= vec![6, 5];
    let path = world.disk.join("fork-during-reads");
    std::fs::write(&path, pattern(0, READS * 4096)).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let file = OpenOptions::new().read(true).direct(true).open(&path).unwrap();
    let block = file.direct_io().offset_align.max(file.direct_io().memory_align) as usize;
    for registers in [true, false] {
        let mut lost = 0;
        for round in 0..8 {
            let (arena, mut queue) = (Arena::new(block, 2 * READS), world.queue());
            if registers && world.register(|| queue.register_arena(&arena)).is_err() {
                break;
            }
            // Every second block is written to, next to one that is read into.
            let mut others = Vec::new();
            for number in 0..READS {
                let (mut read, other) = (arena.take().unwrap(), arena.take().unwrap());
                read.fill(0xee);
                others.push(other);
                let read = op::read(&file, read, (number * 4096) as u64);
                queue.push(read.user_data(number as u64)).unwrap();
            }
            queue.submit().unwrap();
            let _child = WaitingChild::new();
            for other in &mut others {
                other.fill(round);
            }
            for (number, done) in queue.completions() {
                assert_eq!(done.result, Ok(block as u64));
                let buffer = done.into_buffer().unwrap();
                let right = buffer.as_slice() == pattern(number * 4096, block);
                lost += usize::from(!right);
            }
        }
        println!("registered: {registers}, {lost} of {} reads lost", 8 * READS);
        assert!(lost == 0 || !registers && !pins, "{lost} reads lost, registered: {registers}");
    }
}

/// A server that forks generation after generation: each drops its parent's queue, whose operations
/// go on. A file that only an operation holds is closed with the queue.
pub fn forked_children_keep_no_descriptors(world: &World) {
    let dir = world.dir("generations");
    let path = dir.join("file");
    std::fs::write(&path, pattern(0, 65536)).unwrap();
    for eventfd in [false, true] {
        // In a child, which has no other thread that opens and closes files.
        assert_eq!(forked(|| generation(world, &path, eventfd, 2)), 0);
    }
}

/// True if all threads of this process but this one sleep.
fn other_threads_sleep() -> bool {
    // SAFETY: the call has no arguments.
    let own = unsafe { libc::gettid() }.to_string();
    std::fs::read_dir("/proc/self/task").unwrap().all(|task| {
        let task = task.unwrap();
        // A thread that has ended has no such file.
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        task.file_name() == own.as_str() || stat.is_empty() || stat.contains(") S ")
    })
}

fn generation(world: &World, path: &Path, eventfd: bool, left: u32) {
    let before = open_descriptors();
    let (pipes, (polled, other)) = (pipe(), pipe());
    let open = || File::from(std::fs::File::open(path).unwrap());
    let file = open();
    let mut queue = world.build(&world.options().eventfd(eventfd));
    queue.poll_fd().unwrap();
    let poll = || op::poll(&polled, Readiness::READABLE);
    queue.push(op::read(&pipes.0, vec![0; 1], Position::Current).user_data(1)).unwrap();
    queue.push(poll().user_data(2)).unwrap();
    queue.push(poll().timeout(60_000 * MS).user_data(3)).unwrap();
    let (go, gone) = std::sync::mpsc::channel();
    queue.push(op::blocking(move || gone.recv().unwrap()).user_data(4)).unwrap();
    let endless = queue.push(op::poll(&pipes.1, Readiness::READABLE).user_data(5)).unwrap();
    // Only its operation holds the first file from now on.
    queue.push(op::fdatasync(&open()).drain().user_data(6)).unwrap();
    queue.push(op::read(&file, buffer_for(&file, 65536), 0).user_data(7)).unwrap();
    queue.submit().unwrap();
    assert_eq!(queue.in_flight(), 7);
    // A starting thread holds a lock of the standard library, without which a child could start
    // none.
    assert!(wait_for(5000 * MS, other_threads_sleep));
    // SAFETY: the child drops its copy of the queue, and the parent its own.
    let mut copy = ManuallyDrop::new(unsafe { std::ptr::read(&raw const queue) });
    let status = forked(|| {
        // SAFETY: only the child drops this copy, and does not use the queue afterwards.
        unsafe { ManuallyDrop::drop(&mut copy) };
        let mut inherited = open_descriptors();
        for kept in [&pipes.0, &pipes.1, &polled, &other, &file] {
            assert!(inherited.remove(&kept.as_raw_fd()), "it is the program's");
        }
        assert_eq!(inherited, before);
        if left > 0 {
            generation(world, path, eventfd, left - 1);
        }
    });
    assert_eq!(status, 0);
    assert_eq!(queue.in_flight(), 7, "none has been cancelled");
    go.send(()).unwrap();
    write_all(&pipes.1, b"x");
    write_all(&other, b"x");
    let mut results = BTreeMap::new();
    while results.len() < 4 {
        results.extend(queue.reap(1).unwrap().map(|done| (done.user_data, done.result)));
    }
    assert!(queue.cancel(endless));
    let mut rest = queue.completions();
    assert_eq!(bytes(rest.remove(&7).unwrap()), pattern(0, 65536));
    results.extend(rest.into_iter().map(|(number, done)| (number, done.result)));
    let errno = |result: Result<u64, Error>| result.map_err(|error| error.errno());
    assert_eq!(
        results.into_values().map(errno).collect::<Vec<_>>(),
        [Ok(1), Ok(1), Ok(1), Ok(0), Err(libc::ECANCELED), Ok(0)]
    );
}

/// Without free descriptors, what needs one is refused with the reason.
pub fn few_descriptors(world: &World) {
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: the limit is a live value that is only read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let file = world.file(&pattern(0, 4096));
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    for free in 0..6 {
        match world.options().build() {
            Ok(queue) => {
                // It has done its test read with these descriptors, and continues to work.
                let mut queue = Checked::new(queue);
                assert_eq!(bytes(queue.one(op::read(&file, vec![0; 64], 64))), pattern(64, 64));
                assert_eq!(queue.result(op::nop()), Ok(0));
                let (wait, done) = (op::timeout(5 * MS), op::statx("."));
                queue.push(wait.user_data(1)).unwrap();
                queue.push(done.user_data(2)).unwrap();
                assert!(queue.rest().into_values().all(|result| result == Ok(0)));
            }
            Err(BuildError::Refused(refusal)) => {
                assert_eq!(refusal.errno, libc::EMFILE, "{free} free: {refusal}");
                assert!(refusal.meaning.contains("RLIMIT_NOFILE is 64"), "{refusal}");
            }
            Err(error) => panic!("{error}"),
        }
        // By default there is always a backend: threads need no descriptor before the first poll.
        let mut queue = Checked::new(
            Options::new().build().unwrap_or_else(|error| panic!("{free} free: {error}")),
        );
        for refusal in &queue.explain().refusals {
            assert!(!refusal.meaning.is_empty(), "{refusal}");
        }
        assert_eq!(bytes(queue.one(op::read(&file, vec![0; 64], 0))), pattern(0, 64));
        drop(queue);
        taken.pop();
    }
    drop(taken);
    assert_eq!(world.queue().result(op::nop()), Ok(0));
}

/// Tests `RINGWAY_BACKEND` in a child process, which runs this same case.
pub fn the_environment_selects_the_backend(world: &World) {
    const SEEN: &str = "RINGWAY_TEST_SEEN";
    if let Ok(expected) = std::env::var(SEEN) {
        let again = |error: &BuildError| match error {
            BuildError::Refused(refusal) => refusal.errno == libc::ENOMEM,
            _ => false,
        };
        let mut built = Options::new().build();
        while world.little_memory && built.as_ref().is_err_and(again) {
            std::thread::sleep(MS); // The memory of a closed ring is returned late.
            built = Options::new().build();
        }
        match built {
            Ok(queue) => {
                assert_eq!(queue.backend().name(), expected);
                let explanation = queue.explain();
                let text = explanation.to_string();
                if std::env::var("RINGWAY_BACKEND").is_ok_and(|name| name == expected) {
                    assert_eq!(explanation.forced_by, Some(ForcedBy::Environment));
                    let start = format!("backend {expected} (forced by RINGWAY_BACKEND)");
                    assert!(text.starts_with(&start), "{text}");
                } else {
                    assert_eq!(explanation.forced_by, None);
                    assert!(!text.contains("forced"), "{text}");
                }
            }
            Err(BuildError::Invalid(text)) => {
                assert_eq!(expected, "invalid");
                assert!(
                    text.contains("RINGWAY_BACKEND") && text.contains("uring, kaio, threads"),
                    "{text}"
                );
            }
            Err(error) => panic!("{error}"),
        }
        // An explicit choice of the program has priority.
        let queue = world.queue();
        assert_eq!(queue.backend(), world.kind);
        let text = queue.explain().to_string();
        let start = format!("backend {} (forced by the option backend)", world.kind);
        assert!(text.starts_with(&start), "{text}");
        return;
    }
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let by_default = Options::new().build().unwrap().backend().name();
    let mine = world.kind.name();
    for (value, expected) in [
        (mine, mine),
        ("null", "invalid"),
        ("faulty", "invalid"),
        ("", by_default),
        ("io_uring", "invalid"),
        ("URING", "invalid"),
        (" uring", "invalid"),
    ] {
        if value.is_empty() && world.little_memory {
            // Whether memory suffices for a ring depends on when closed rings return theirs.
            continue;
        }
        let mut command = Command::new("/proc/self/exe");
        let output = command
            .args(&arguments)
            .env("RINGWAY_BACKEND", value)
            .env(SEEN, expected)
            .output()
            .unwrap();
        assert!(output.status.success(), "{value:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// No thread can be started, for a while or permanently, while the existing ones are blocked.
/// Pending operations are still done.
pub fn no_more_threads(world: &World) {
    if is_root() {
        become_ordinary(); // Root has no such limit.
    }
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one limit into the live value.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut before) }, 0);
    let limit = |most| {
        let limit = libc::rlimit { rlim_cur: most, ..before };
        // SAFETY: the limit is a live value that is only read.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) }, 0);
    };
    for for_good in [false, true] {
        let mut queue = world.queue();
        let (go, gone) = std::sync::mpsc::channel();
        let (begin, begun) = std::sync::mpsc::channel();
        // The first closure ends when the second has run.
        let first = move || {
            begin.send(()).unwrap();
            gone.recv().unwrap();
        };
        queue.push(op::blocking(first).user_data(1)).unwrap();
        assert_eq!(queue.reap(0).unwrap().len(), 0);
        begun.recv().unwrap();
        limit(1);
        queue.push(op::blocking(move || go.send(()).unwrap()).user_data(2)).unwrap();
        if !for_good {
            assert_eq!(queue.reap_until(1, Instant::now() + 50 * MS).unwrap().len(), 0);
            limit(before.rlim_cur);
        }
        let mut seen = 0;
        let until = Instant::now() + 20_000 * MS;
        while seen < 2 {
            assert!(Instant::now() < until, "for good: {for_good}: {seen} came");
            seen += queue
                .reap_until(1, until)
                .unwrap()
                .map(|done| assert_eq!(done.result, Ok(0)))
                .count();
        }
        assert!(queue.explain().refusals.iter().any(|refusal| refusal.feature == Feature::Threads));
        limit(before.rlim_cur);
    }
}

/// Without a thread that watches, the thread that waits does so itself, and a signal ends that.
pub fn signals_without_threads(world: &World) {
    if is_root() {
        become_ordinary(); // Root has no such limit.
    }
    handle_signals(libc::SA_RESTART);
    let mut queue = world.build(&world.options().interruptible(true));
    let (reader, writer) = pipe();
    with_signals(false, || {
        let most = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
        // SAFETY: the limit is a live value that is only read.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &most) }, 0);
        queue.push(op::read(&reader, vec![0; 1], Position::Current)).unwrap();
        assert_eq!(queue.reap(1).unwrap().count(), 0);
        assert_eq!(queue.reap(1).unwrap().count(), 0);
        let refused = |feature| queue.explain().refusals.iter().any(|it| it.feature == feature);
        assert!(world.kind == BackendKind::Uring || refused(Feature::Threads));
        write_all(&writer, b"x");
        // Each wait looks at the pipe, however short the signals make it.
        let before = SIGNALS.load(Ordering::Relaxed);
        while queue.in_flight() > 0 {
            for done in queue.reap(1).unwrap() {
                assert_eq!(done.result, Ok(1));
            }
            assert!(SIGNALS.load(Ordering::Relaxed) < before + 500);
        }
    });
}

/// `fs.aio-max-nr` is used up: Linux AIO asks for fewer requests, and is refused with the reason
/// when none are left. Filters stand in for the programs that use it up: others need it meanwhile.
pub fn no_kaio_requests_left(world: &World) {
    if world.kind != BackendKind::Kaio {
        return println!("left out: the other backends need no requests of Linux AIO");
    }
    let file = world.direct(&pattern(0, 65536));
    let read = |number: u64| {
        op::read(&file, buffer_for(&file, 4096), number % 16 * 4096).user_data(number)
    };
    limit_kaio_requests(100);
    let mut queue = world.queue();
    limit_kaio_requests(0);
    let refusal = match world.options().build() {
        Err(BuildError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!((refusal.feature, refusal.errno), (Feature::Kaio, libc::EAGAIN));
    assert!(refusal.fix.contains("fs.aio-max-nr"), "{refusal}");
    // With few requests, any number of operations still completes.
    // On ext4 a thread makes the first transfer of a file, and reads until one is later than the
    // write by a tick of the kernel's clock: they change the access time.
    let reaches_kaio = (0..1000).any(|_| {
        let before = queue.stats().to_threads;
        assert_eq!(queue.result(read(0)), Ok(4096));
        let is_by_kaio = queue.stats().to_threads == before;
        if !is_by_kaio {
            thread::sleep(Duration::from_millis(1));
        }
        is_by_kaio
    });
    assert!(reaches_kaio, "all reads went to threads");
    let before = queue.stats().to_threads;
    for number in 0..1000 {
        _ = queue.push(read(number)).unwrap();
    }
    for (number, done) in queue.completions() {
        assert_eq!(bytes(done), pattern(number % 16 * 4096, 4096));
    }
    // Other operations fall back to threads, and each is counted.
    let buffered = File::open("/proc/self/exe").unwrap();
    assert_eq!(queue.stats().to_threads, before);
    assert_eq!(queue.result(op::read(&buffered, vec![0; 4], 0)), Ok(4));
    assert_eq!(queue.result(op::nop()), Ok(0));
    assert_eq!(queue.stats().to_threads, before + 2);
}
