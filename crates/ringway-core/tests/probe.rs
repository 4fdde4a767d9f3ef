//! The probe, run for real where things are refused: as an ordinary user, under seccomp filters,
//! with little lockable memory and with few descriptors.
//!
//! Limits and filters cannot be taken back, so each test runs its body in a process of its own: the
//! test binary again, with this test alone.

mod common;

use common::{KAIO, URING, become_ordinary, is_root, limit_memlock, refuse};
use ringway_core::probe::{self, Machine, UringSupport};
use ringway_core::refusal::{Feature, Refusal};
use ringway_core::{BackendKind, Options};
use std::env;
use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};

/// Runs `body` in a process of its own.
fn in_child(test: &str, body: impl FnOnce()) {
    common::in_child(test, |_| {}, body);
}

/// The probe, which must neither hang nor leave a descriptor open.
fn machine() -> Machine {
    let open = || fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
    let before = open();
    let start = Instant::now();
    let machine = probe::machine();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(open(), before, "the probe leaked a descriptor");
    machine
}

/// What io_uring grants here, or `None` and the reason why the test is skipped.
fn uring_of(machine: &Machine) -> Option<&UringSupport> {
    match &machine.uring {
        Ok(uring) => Some(uring),
        Err(refusal) => {
            println!("skipped: {refusal}");
            None
        }
    }
}

/// Whether a sysctl refuses io_uring before any filter or limit can.
fn sysctl_refuses() -> bool {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let refuses = !["", "0"].contains(&disabled.trim());
    if refuses {
        println!("skipped: kernel.io_uring_disabled is {disabled}");
    }
    refuses
}

fn answer(list: &[(Feature, Result<(), Refusal>)], feature: Feature) -> &Result<(), Refusal> {
    &list.iter().find(|(name, _)| *name == feature).unwrap().1
}

#[test]
fn unrestricted() {
    in_child("unrestricted", || {
        let machine = machine();
        assert_eq!(machine.threads, Ok(()));
        if let Err(refusal) = &machine.kaio {
            println!("KAIO not looked at: {refusal}");
        }
        let Some(uring) = uring_of(&machine) else {
            return;
        };
        for (feature, answer) in uring.flags.iter().chain(&uring.options) {
            match answer {
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
        become_ordinary();
        limit_memlock(1 << 20);
        let machine = machine();
        assert_ne!(machine.uid, 0);
        assert_eq!(machine.threads, Ok(()));
        assert_eq!(machine.ring_memory[0].rings, Some(128));
        let Some(uring) = uring_of(&machine) else {
            return;
        };
        // Registered buffers have been charged by every kernel, and no ring fits beside this one.
        let (size, answer) = &uring.fixed_buffers[2];
        let refusal = answer.as_ref().unwrap_err();
        assert_eq!((*size, refusal.errno), (8 << 20, libc::ENOMEM));
        assert!(refusal.meaning.contains("RLIMIT_MEMLOCK, which is 1 MiB"), "{refusal}");
        assert!(refusal.fix.contains("ulimit -l"), "{refusal}");
    });
}

/// The count of rings is worked out from their size, so here it is checked by making them.
#[test]
fn as_many_rings_as_promised() {
    in_child("as_many_rings_as_promised", || {
        become_ordinary();
        limit_memlock(1 << 20);
        let machine = machine();
        if uring_of(&machine).is_none() {
            return;
        }
        let promised = machine.ring_memory[1];
        let expected = promised.rings.unwrap();
        assert_eq!(expected, 36);
        // The probe's own rings give their memory back only after a while.
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let mut rings = Vec::new();
            let refused = loop {
                match io_uring::IoUring::new(promised.entries) {
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
            assert!(Instant::now() < deadline, "{made} rings, {expected} promised");
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
        assert_eq!(machine.ring_memory[1].rings, Some(2));
        let Some(uring) = uring_of(&machine) else {
            return;
        };
        // Rings closed a moment ago still count, which must not look like a missing flag.
        for (feature, answer) in uring.flags.iter().chain(&uring.options) {
            if let Err(refusal) = answer {
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
                "io_uring refused: ENOMEM (Cannot allocate memory): ring memory counts against RLIMIT_MEMLOCK, which is \
                 0 bytes for all processes of this user together; fix: create fewer or smaller rings, or raise the limit \
                 (ulimit -l; LimitMEMLOCK= in systemd; docker run --ulimit memlock=-1)"
            ),
        }
    });
}

#[test]
fn a_filter_that_forbids() {
    in_child("a_filter_that_forbids", || {
        if sysctl_refuses() {
            return;
        }
        refuse(&URING, libc::EPERM);
        let machine = machine();
        assert_eq!(machine.limits.seccomp, Some(2));
        assert_eq!(machine.limits.no_new_privs, Some(true));
        assert_eq!(
            machine.uring.unwrap_err().to_string(),
            "io_uring refused: EPERM (Operation not permitted): a seccomp filter of the container or service refuses it; \
             fix: allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile (docker run \
             --security-opt seccomp=PROFILE; SystemCallFilter=@aio in systemd)"
        );
        assert_eq!(machine.threads, Ok(()));
    });
}

#[test]
fn a_filter_that_hides() {
    in_child("a_filter_that_hides", || {
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

/// The budget is the whole machine's, so a filter stands in for programs that spent it.
#[test]
fn a_spent_budget_of_kaio_requests() {
    in_child("a_spent_budget_of_kaio_requests", || {
        refuse(&[libc::SYS_io_setup], libc::EAGAIN);
        let refusal = machine().kaio.unwrap_err();
        let max = fs::read_to_string("/proc/sys/fs/aio-max-nr").unwrap();
        assert!(refusal.meaning.contains(&format!("fs.aio-max-nr is {}", max.trim())), "{refusal}");
        assert!(refusal.fix.starts_with("sysctl -w fs.aio-max-nr="), "{refusal}");
    });
}

/// Some sandboxes make a ring and then carry nothing on it: a probe that only made one would be
/// taken in.
#[test]
fn a_ring_that_carries_nothing() {
    in_child("a_ring_that_carries_nothing", || {
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

/// Without system calls to ask with, what was granted before stays granted.
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
            let refusal = answer(&uring.options, feature).as_ref().unwrap_err();
            assert_eq!(refusal.errno, libc::EPERM, "{refusal}");
        }
        let facts = probe::path(env::temp_dir()).unwrap().facts;
        assert!(facts.direct.offset_align.is_power_of_two());
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
                let refusal = answer(list, feature).as_ref().unwrap_err();
                assert_eq!(refusal.errno, libc::EMFILE, "{refusal}");
            }
        }
        // Both are free again.
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

const KINDS: [BackendKind; 3] = [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads];

/// Lowers the soft limit, or takes it back.
fn limit_file_size(bytes: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is a live value that is only read.
    let returned = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
    assert_eq!(returned, 0, "{}", io::Error::last_os_error());
}

fn granted() -> [bool; 3] {
    KINDS.map(|kind| Options::new().backend(kind).build().is_ok())
}

/// Under `RLIMIT_FSIZE` a write beyond the limit raises SIGXFSZ, which kills the program. Making a
/// queue and probing the machine write nothing that could, and find the same backends as without
/// the limit.
fn same_backends_under_every_limit() {
    let unlimited = granted();
    let unasked = Options::new().build().unwrap().explain().refusals;
    let machine = probe::machine();
    for disposition in [libc::SIG_DFL, libc::SIG_IGN] {
        for bytes in [0, 1, 4095] {
            limit_file_size(bytes);
            // SAFETY: neither disposition runs code of this program.
            unsafe { libc::signal(libc::SIGXFSZ, disposition) };
            assert_eq!(granted(), unlimited, "{bytes} bytes");
            assert_eq!(
                Options::new().build().unwrap().explain().refusals,
                unasked,
                "{bytes} bytes"
            );
            let limited = probe::machine();
            assert_eq!(limited.uring, machine.uring, "{bytes} bytes");
            assert_eq!(limited.kaio, machine.kaio, "{bytes} bytes");
            assert_eq!(limited.threads, machine.threads, "{bytes} bytes");
            // A file of its own in a directory is the only thing that cannot be read without being
            // written.
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
        return println!("left out: the test above ran as an ordinary user");
    }
    in_child("a_limit_of_file_sizes_of_an_ordinary_user", || {
        become_ordinary();
        same_backends_under_every_limit();
    });
}

/// The first operation for the threads beside a backend comes when no descriptor is left: whoever
/// polls the queue is told of its end all the same.
#[test]
fn threads_are_heard_when_descriptors_have_run_out() {
    in_child("threads_are_heard_when_descriptors_have_run_out", || {
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
                    "{kind}: nobody tells of its end"
                );
            }
            drop(taken);
        }
    });
}
