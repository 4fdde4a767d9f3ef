//! The probe on restricted systems: as an ordinary user, under seccomp filters, with little
//! lockable memory and with few descriptors.
//!
//! Limits and filters are irrevocable, so each test runs its body in a child process: the test
//! binary with this test alone.

// Other systems have nothing to probe.
#![cfg(ringway_linux)]

mod common;

use common::{
    KAIO, REGISTER_BUFFERS2, URING, become_ordinary, is_root, kill_at_unlisted, leave_mounts,
    limit_kaio_requests, limit_memlock, refuse, refuse_registration,
};
use ringway_core::device::LocalMounts;
use ringway_core::probe::{self, Machine, UringSupport};
use ringway_core::refusal::{Feature, Refusal};
use ringway_core::{AlignedBuffer, Arena, BackendKind, Buffer, OpenOptions, Options, op};
use std::env;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::time::{Duration, Instant};

/// Runs `body` in a child process.
fn in_child(test: &str, body: impl FnOnce()) {
    common::in_child(test, |_| {}, body);
}

/// Runs the probe, which must neither hang nor leak a descriptor.
fn machine() -> Machine {
    let open = || fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
    let before = open();
    let start = Instant::now();
    let machine = probe::machine();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(open(), before, "the probe leaked a descriptor");
    machine
}

/// The io_uring support, or `None` after printing why the test is skipped.
fn uring_of(machine: &Machine) -> Option<&UringSupport> {
    match &machine.uring {
        Ok(uring) => Some(uring),
        Err(refusal) => {
            println!("skipped: {refusal}");
            None
        }
    }
}

/// Whether a sysctl refuses io_uring, before any filter or limit does.
fn sysctl_refuses() -> bool {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let refuses = !["", "0"].contains(&disabled.trim());
    if refuses {
        println!("skipped: kernel.io_uring_disabled is {disabled}");
    }
    refuses
}

fn support(list: &[(Feature, Result<(), Refusal>)], feature: Feature) -> &Result<(), Refusal> {
    &list.iter().find(|(name, _)| *name == feature).unwrap().1
}

#[test]
fn unrestricted() {
    in_child("unrestricted", || {
        let machine = machine();
        assert_eq!(machine.threads, Ok(()));
        if let Err(refusal) = &machine.kaio {
            println!("Linux AIO not checked: {refusal}");
        }
        let Some(uring) = uring_of(&machine) else {
            return;
        };
        for (feature, support) in uring.flags.iter().chain(&uring.options) {
            match support {
                Ok(()) => {}
                Err(refusal) => assert_eq!(refusal.feature, *feature, "{refusal}"),
            }
        }
        let opcodes = uring.opcodes.as_ref().unwrap();
        assert!(opcodes.contains(&("READ", true)), "{opcodes:?}");
    });
}

#[test]
fn an_ordinary_user() {
    in_child("an_ordinary_user", || {
        limit_memlock(1 << 20);
        become_ordinary();
        let machine = machine();
        assert_ne!(machine.uid, 0);
        assert_eq!(machine.threads, Ok(()));
        assert_eq!(machine.ring_memory[0].rings, Some((1 << 20) / (12 << 10)));
        let Some(uring) = uring_of(&machine) else {
            return;
        };
        // Every kernel charges registered buffers, and no ring fits next to this one.
        let (size, support) = &uring.fixed_buffers[2];
        let refusal = support.as_ref().unwrap_err();
        assert_eq!((*size, refusal.errno), (8 << 20, libc::ENOMEM));
        assert!(refusal.meaning.contains("RLIMIT_MEMLOCK, which is 1 MiB"), "{refusal}");
        assert!(refusal.fix.contains("ulimit -l"), "{refusal}");
    });
}

/// The probe computes the number of rings from their size; this test makes them.
#[test]
fn as_many_rings_as_predicted() {
    in_child("as_many_rings_as_predicted", || {
        limit_memlock(1 << 20);
        become_ordinary();
        let machine = machine();
        if uring_of(&machine).is_none() {
            return;
        }
        let predicted = machine.ring_memory[2];
        let expected = predicted.rings.unwrap();
        assert_eq!(expected, 28);
        // The kernel releases the memory of the probe's rings late.
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let mut rings = Vec::<io_uring::IoUring>::new();
            let refused = loop {
                let mut ring = io_uring::IoUring::builder();
                ring.setup_cqsize(predicted.entries * 4);
                match ring.build(predicted.entries) {
                    Ok(ring) => rings.push(ring),
                    Err(error) => break Some(error),
                }
                if rings.len() as u64 > expected {
                    break None;
                }
            };
            let made = rings.len() as u64;
            drop(rings);
            match refused {
                None => return println!("skipped: this kernel does not charge rings"),
                Some(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOMEM)),
            }
            if made == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{made} rings, {expected} predicted");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

#[test]
fn little_lockable_memory() {
    in_child("little_lockable_memory", || {
        become_ordinary();
        limit_memlock(64 << 10);
        let machine = machine();
        assert_eq!(
            machine.ring_memory.iter().map(|ring| ring.rings).collect::<Vec<_>>(),
            [Some(5), Some(3), Some(1)]
        );
        let Some(uring) = uring_of(&machine) else {
            return;
        };
        // Rings that were just closed are still charged, which must not look like a missing flag.
        for (feature, support) in uring.flags.iter().chain(&uring.options) {
            if let Err(refusal) = support {
                assert_ne!(refusal.errno, libc::ENOMEM, "{feature}: {refusal}");
            }
        }
        let refusal = uring.fixed_buffers[1].1.as_ref().unwrap_err();
        assert!(refusal.meaning.contains("which is 64 KiB"), "{refusal}");
    });
}

#[test]
fn no_lockable_memory() {
    in_child("no_lockable_memory", || {
        become_ordinary();
        limit_memlock(0);
        let machine = machine();
        assert_eq!(machine.threads, Ok(()));
        match machine.uring {
            Ok(_) => println!("skipped: this kernel does not charge rings"),
            Err(refusal) if refusal.errno != libc::ENOMEM => println!("skipped: {refusal}"),
            Err(refusal) => assert_eq!(
                refusal.to_string(),
                "io_uring refused: ENOMEM (Cannot allocate memory): ring memory counts against \
                 RLIMIT_MEMLOCK, which is 0 bytes for all processes of this user together; fix: \
                 create fewer or smaller rings, or raise the limit (ulimit -l; LimitMEMLOCK= in \
                 systemd; docker run --ulimit memlock=-1)"
            ),
        }
    });
}

#[test]
fn a_filter_that_forbids_io_uring() {
    in_child("a_filter_that_forbids_io_uring", || {
        if sysctl_refuses() {
            return;
        }
        refuse(&URING, libc::EPERM);
        let machine = machine();
        assert_eq!(machine.limits.seccomp, Some(2));
        assert_eq!(machine.limits.no_new_privs, Some(true));
        assert_eq!(
            machine.uring.unwrap_err().to_string(),
            "io_uring refused: EPERM (Operation not permitted): a seccomp filter of the container \
             or service refuses it; fix: allow io_uring_setup, io_uring_enter and \
             io_uring_register in the seccomp profile (docker run --security-opt seccomp=PROFILE; \
             SystemCallFilter=@aio in systemd)"
        );
        assert_eq!(machine.threads, Ok(()));
    });
}

#[test]
fn a_filter_that_ends_the_process() {
    in_child("a_filter_that_ends_the_process", || {
        kill_at_unlisted();
        assert_eq!(machine().threads, Ok(()));
        let path = std::env::current_exe().unwrap();
        ringway_core::device::PathFacts::of_path(&path).unwrap();
    });
}

#[test]
fn a_filter_that_hides_io_uring_and_kaio() {
    in_child("a_filter_that_hides_io_uring_and_kaio", || {
        refuse(&[URING.as_slice(), &KAIO].concat(), libc::ENOSYS);
        let machine = machine();
        for (refusal, call) in [
            (machine.uring.unwrap_err(), "allow io_uring_setup"),
            (machine.kaio.unwrap_err(), "allow io_setup"),
        ] {
            assert_eq!(refusal.errno, libc::ENOSYS);
            assert!(refusal.meaning.contains("a seccomp filter hides it"), "{refusal}");
            assert!(refusal.fix.contains(call), "{refusal}");
        }
        assert_eq!(machine.threads, Ok(()));
    });
}

/// The limit is of the whole machine, so a filter stands in for other programs that use it up.
#[test]
fn no_kaio_requests_left() {
    in_child("no_kaio_requests_left", || {
        limit_kaio_requests(0);
        let refusal = machine().kaio.unwrap_err();
        let max = fs::read_to_string("/proc/sys/fs/aio-max-nr").unwrap();
        assert!(refusal.meaning.contains(&format!("fs.aio-max-nr is {}", max.trim())), "{refusal}");
        assert!(refusal.fix.starts_with("sysctl -w fs.aio-max-nr="), "{refusal}");
    });
}

/// Some sandboxes make a ring but refuse to use it, so the probe has to do a read.
#[test]
fn a_ring_that_cannot_be_used() {
    in_child("a_ring_that_cannot_be_used", || {
        refuse(&[libc::SYS_io_uring_enter, libc::SYS_io_submit], libc::EINVAL);
        let machine = machine();
        let refusal = machine.uring.unwrap_err();
        if refusal.errno == libc::EINVAL {
            assert!(refusal.meaning.contains("or a read"), "{refusal}");
        } else {
            println!("skipped: {refusal}");
        }
        assert!(machine.kaio.is_err());
        assert_eq!(machine.threads, Ok(()));
    });
}

/// Without the system calls to query them, features stay available.
#[test]
fn a_filter_against_registering() {
    in_child("a_filter_against_registering", || {
        refuse(&[libc::SYS_io_uring_register, libc::SYS_statx], libc::EPERM);
        let machine = machine();
        let Some(uring) = uring_of(&machine) else {
            return;
        };
        assert_eq!(uring.opcodes.as_ref().unwrap_err().feature, Feature::OpcodeTable);
        for feature in [Feature::FixedFiles, Feature::EventFd, Feature::RingFd] {
            let refusal = support(&uring.options, feature).as_ref().unwrap_err();
            assert_eq!(refusal.errno, libc::EPERM, "{refusal}");
        }
        let facts = probe::path(env::temp_dir()).unwrap().facts;
        assert!(facts.direct.offset_align.is_power_of_two());
    });
}

/// A kernel before 5.19 registers the buffers that the probe says it does.
#[test]
fn fixed_buffers_without_sparse_tables() {
    in_child("fixed_buffers_without_sparse_tables", || {
        refuse_registration(REGISTER_BUFFERS2);
        let machine = machine();
        let Some(uring) = uring_of(&machine) else {
            return;
        };
        let (size, support) = &uring.fixed_buffers[0];
        let mut queue = Options::new().backend(BackendKind::Uring).build().unwrap();
        let registered = queue.register_arena(&Arena::new(usize::try_from(*size).unwrap(), 1));
        assert_eq!(registered.as_ref().err(), support.as_ref().err());
        assert_eq!(registered.is_ok(), queue.explain().available.contains(&Feature::FixedBuffers));
    });
}

#[test]
fn few_descriptors() {
    in_child("few_descriptors", || {
        let unlimited = machine();
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: the limit is a live value that is only read.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        let mut taken = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            taken.push(file);
        }

        let none = probe::machine();
        for refusal in [none.uring.unwrap_err(), none.kaio.unwrap_err()] {
            assert_eq!(refusal.errno, libc::EMFILE, "{refusal}");
            assert!(refusal.meaning.contains("RLIMIT_NOFILE is 64"), "{refusal}");
            assert!(refusal.fix.contains("ulimit -n"), "{refusal}");
        }
        assert_eq!(none.threads, Ok(()));

        taken.pop();
        let one = probe::machine();
        assert_eq!(one.uring.unwrap_err().errno, libc::EMFILE);
        match unlimited.kaio {
            Err(refusal) => println!("skipped: {refusal}"),
            Ok(_) => {
                let kaio = one.kaio.unwrap();
                assert_eq!(kaio.res_fd.unwrap_err().errno, libc::EMFILE);
            }
        }

        taken.pop();
        if unlimited.uring.is_ok() {
            let two = probe::machine().uring.unwrap();
            for (list, feature) in
                [(&two.options, Feature::EventFd), (&two.flags, Feature::AttachWq)]
            {
                let refusal = support(list, feature).as_ref().unwrap_err();
                assert_eq!(refusal.errno, libc::EMFILE, "{refusal}");
            }
        }
        // The probe has released both.
        let again = [File::open("/dev/null"), File::open("/dev/null")];
        assert!(again.iter().all(Result::is_ok));
        assert!(File::open("/dev/null").is_err());
    });
}

#[test]
fn paths() {
    in_child("paths", || {
        let directory = tempfile::tempdir().unwrap();
        let probed = probe::path(directory.path()).unwrap();
        assert_eq!(probed.facts.kind.to_string(), "directory");
        if let Some(Err(refusal)) = &probed.io_poll {
            assert_eq!(refusal.feature, Feature::IoPoll);
            assert!(!refusal.meaning.is_empty());
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);

        let file = directory.path().join("file");
        fs::write(&file, vec![7; 100_000]).unwrap();
        let probed = probe::path(&file).unwrap();
        match probed.direct_read {
            Some(Ok(())) => assert!(probed.facts.direct.supported),
            other => println!("no direct read here: {other:?}"),
        }

        let empty = directory.path().join("empty");
        fs::write(&empty, "").unwrap();
        assert_eq!(probe::path(&empty).unwrap().io_poll, None);

        let error = probe::path(directory.path().join("none")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    });
}

/// Mounts a ramfs there that this thread alone sees.
fn mount_ramfs(directory: &CStr) -> io::Result<()> {
    leave_mounts()?;
    // SAFETY: the call takes C strings, a number and a null pointer where it may be null.
    let is_mounted = unsafe {
        libc::mount(c"ramfs".as_ptr(), directory.as_ptr(), c"ramfs".as_ptr(), 0, ptr::null()) == 0
    };
    if is_mounted { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn a_directory_whose_files_have_no_direct_io() {
    in_child("a_directory_whose_files_have_no_direct_io", || {
        let directory = tempfile::tempdir().unwrap();
        let name = CString::new(directory.path().as_os_str().as_bytes()).unwrap();
        if let Err(error) = mount_ramfs(&name) {
            return println!("skipped: no ramfs: {error}");
        }
        let probed = probe::path(directory.path());
        // SAFETY: the call takes a C string and a number.
        assert_eq!(unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH) }, 0);
        let probed = probed.unwrap();
        let refusal = probed.direct_read.unwrap().unwrap_err();
        assert_eq!((refusal.feature, refusal.errno), (Feature::DirectIo, libc::EINVAL));
        assert!(!probed.facts.direct.supported);
    });
}

const KINDS: [BackendKind; 3] = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];

/// Sets the soft limit of file sizes.
fn limit_file_size(bytes: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is a live value that is only read.
    let returned = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
    assert_eq!(returned, 0, "{}", io::Error::last_os_error());
}

fn available() -> [bool; 3] {
    KINDS.map(|kind| Options::new().backend(kind).build().is_ok())
}

/// Under `RLIMIT_FSIZE` a write beyond the limit raises SIGXFSZ, which kills the program. Making a
/// queue and probing the machine write nothing, and find the same backends as without the limit.
fn same_backends_under_every_limit() {
    let unlimited = available();
    let refusals = Options::new().build().unwrap().explain().refusals;
    let machine = probe::machine();
    for disposition in [libc::SIG_DFL, libc::SIG_IGN] {
        for bytes in [0, 1, 4095] {
            limit_file_size(bytes);
            // SAFETY: neither disposition runs code of this program.
            unsafe { libc::signal(libc::SIGXFSZ, disposition) };
            assert_eq!(available(), unlimited, "{bytes} bytes");
            assert_eq!(
                Options::new().build().unwrap().explain().refusals,
                refusals,
                "{bytes} bytes"
            );
            let limited = probe::machine();
            assert_eq!(limited.uring, machine.uring, "{bytes} bytes");
            assert_eq!(limited.kaio, machine.kaio, "{bytes} bytes");
            assert_eq!(limited.threads, machine.threads, "{bytes} bytes");
            // Only the direct read in a directory needs a file that has to be written first.
            assert_eq!(probe::path(std::env::temp_dir()).unwrap().direct_read, None);
            limit_file_size(libc::RLIM_INFINITY);
        }
    }
}

#[test]
fn a_limit_of_file_sizes() {
    in_child("a_limit_of_file_sizes", same_backends_under_every_limit);
}

#[test]
fn a_limit_of_file_sizes_of_an_ordinary_user() {
    if !is_root() {
        return println!("left out: the test above already ran as an ordinary user");
    }
    in_child("a_limit_of_file_sizes_of_an_ordinary_user", || {
        // The kernel returns the memory of one probe's buffers late: with a limit that one of them
        // fits into, the next one might be refused.
        limit_memlock(0);
        become_ordinary();
        same_backends_under_every_limit();
    });
}

/// The first operation for the fallback pool is pushed when no descriptor is left. A poll of the
/// queue still reports its completion.
#[test]
fn the_fallback_pool_is_polled_without_free_descriptors() {
    in_child("the_fallback_pool_is_polled_without_free_descriptors", || {
        let few = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: the limit is a live value that is only read.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
        for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
            let mut queue = match Options::default().backend(kind).build() {
                Ok(queue) => queue,
                Err(error) => {
                    println!("skipped: {kind}: {error}");
                    continue;
                }
            };
            let fd = std::os::fd::AsRawFd::as_raw_fd(&queue.poll_fd().unwrap());
            while queue.reap(0).unwrap().count() > 0 {}
            let taken: Vec<_> =
                std::iter::repeat_with(|| File::open("/dev/null")).map_while(Result::ok).collect();
            let work = ringway_core::op::blocking(|| std::thread::sleep(Duration::from_millis(20)));
            queue.push(work).unwrap();
            let begun = Instant::now();
            while queue.reap(0).unwrap().count() == 0 {
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: `poll` is valid for reads and writes for the length of the call.
                let ready = unsafe { libc::poll(&raw mut poll, 1, 10_000) };
                assert!(
                    ready == 1 && begun.elapsed() < Duration::from_secs(10),
                    "{kind}: the completion is not reported"
                );
            }
            drop(taken);
        }
    });
}

/// A read of a hole does not reach the device, so it succeeds on a ring that polls for completions,
/// whatever the device can.
#[test]
fn a_file_that_begins_with_a_hole_does_not_show_polling() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("hole");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let probe = probe::path(&path).unwrap();
    let polls = probe.facts.device.as_ref().and_then(|device| device.io_poll);
    let (Some(Ok(())), Some(false)) = (&probe.direct_read, polls) else {
        return println!(
            "skipped: needs direct I/O and a device without polling: {:?}, {polls:?}",
            probe.direct_read
        );
    };
    let refusal = probe.io_poll.unwrap().unwrap_err();
    if refusal.errno != libc::EOPNOTSUPP {
        return println!("skipped: no ring polls here: {refusal}");
    }
    assert_eq!(refusal.feature, Feature::IoPoll);
    assert!(refusal.fix.contains("queue/io_poll"), "{refusal}");
}

/// What a process without descriptors cannot look up is not concluded for ever.
#[test]
fn facts_that_cannot_be_read_now_are_read_later() {
    in_child("facts_that_cannot_be_read_now_are_read_later", || {
        let mut queue = match Options::new().backend(BackendKind::Uring).build() {
            Ok(queue) => queue,
            Err(error) => return println!("skipped: {error}"),
        };
        let path = env::current_exe().unwrap();
        let open = || ringway_core::File::open(&path).unwrap();
        let mut on_threads = |file: &ringway_core::File| {
            let before = queue.stats().to_threads;
            queue.push(op::read(file, vec![0; 100], 0)).unwrap();
            assert_eq!(queue.reap(1).unwrap().next().unwrap().result, Ok(100));
            queue.stats().to_threads - before
        };
        let file = open();
        set_descriptors(Some(0));
        assert_eq!(LocalMounts::read().unwrap_err().raw_os_error(), Some(libc::EMFILE));
        on_threads(&file);
        set_descriptors(None);
        LocalMounts::read().unwrap();
        assert_eq!(on_threads(&file), on_threads(&open()));
    });
}

/// The same of what a device's driver needs: a disk is not taken for zram.
#[test]
fn a_driver_that_cannot_be_looked_up_now_is_looked_up_later() {
    in_child("a_driver_that_cannot_be_looked_up_now_is_looked_up_later", || {
        let mut queue = Options::new().backend(BackendKind::Threads).build().unwrap();
        let path = env::current_exe().unwrap();
        let open = |file: &mut OpenOptions| file.read(true).direct(true).open(&path);
        let file = match open(&mut OpenOptions::new()) {
            Ok(file) => file,
            Err(error) => return println!("skipped: no direct I/O here: {error}"),
        };
        let mut read = |file: &ringway_core::File| {
            let memory = AlignedBuffer::new(2 * 4096, 4096);
            let push = queue.push(op::read(file, Buffer::from(memory).slice(512..1024), 0));
            push.map(|_| queue.reap(1).unwrap().next().unwrap().result)
        };
        set_descriptors(Some(0));
        let _refused_or_not = read(&file);
        set_descriptors(None);
        // What is not known is looked up again, a moment later.
        let until = Instant::now() + Duration::from_secs(60);
        let result = loop {
            match read(&file) {
                Ok(result) => break result,
                Err(error) => assert!(Instant::now() < until, "{error:?}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(read(&open(&mut OpenOptions::new()).unwrap()).unwrap(), result);
    });
}

/// Sets how many descriptors the process may have; all that it could have if `None`.
fn set_descriptors(most: Option<u64>) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls take one live value.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = most.unwrap_or(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}
