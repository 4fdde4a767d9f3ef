//! A call that fails as if a filter had refused it: only a filter's refusal has other calls made in
//! its place, or such calls left out from then on.

#![cfg(ringway_linux)]

#[path = "common/inject.rs"]
mod inject;
#[path = "common/skip.rs"]
mod skip;

use inject::{Injector, Plan};
use ringway_core::device::LocalMounts;
use ringway_core::op::metadata_now;
use ringway_core::{BackendKind, FaultPlan, FaultStep, OpenOptions, Operation, Options, Queue, op};
use ringway_hostile::Hostile;
use skip::skip;
use std::fs;
use std::time::{Duration, Instant};

/// Longer than anything takes on a loaded machine.
const SOON: Duration = Duration::from_secs(20);

fn result(queue: &mut Queue) -> Result<u64, i32> {
    let done = queue.reap_until(1, Instant::now() + SOON).unwrap().next().expect("it hangs");
    done.result.map_err(|error| error.errno())
}

/// A file system may answer it to one path: a name that its encoding does not have.
#[test]
fn a_path_that_is_refused_is_still_looked_up_in_place_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("file");
    fs::write(&path, b"text").unwrap();
    let is_found = || {
        let mount = LocalMounts::read().unwrap().of_path(&path)?;
        metadata_now(&path, mount, true).ok()
    };
    if is_found().is_none() {
        return println!("skipped: no look-up in place here");
    }
    let mount = LocalMounts::read().unwrap().of_path(&path).unwrap();
    let Some(injector) = Injector::install(&[libc::SYS_openat2]) else { return };
    for errno in [libc::EINVAL, libc::EPERM] {
        injector.set(Some(Plan { after: 0, count: 1, errno }));
        assert!(metadata_now(&path, mount, true).is_err());
        assert!(is_found().is_some(), "after {errno}");
    }
    // All are refused: from now on none is made.
    injector.set(Some(Plan { after: 0, count: u64::MAX, errno: libc::EPERM }));
    assert!(is_found().is_none());
    let failed = injector.failed();
    assert!(is_found().is_none());
    assert_eq!(injector.failed(), failed);
}

/// It has created the file, and a second call would find it there.
#[test]
fn an_open_that_a_server_refuses_is_not_made_again() {
    let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
    for kind in [BackendKind::Threads, BackendKind::Uring, BackendKind::Kaio] {
        let Ok(mut queue) = Options::new().backend(kind).build() else {
            println!("skipped: no {kind}");
            continue;
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let path = hostile.path().join(format!("{kind}"));
        let asked = || hostile.count("create").unwrap().requests;
        let before = asked();
        hostile.set("* create fail 1 1").unwrap();
        queue.push(op::open(&path, &options)).unwrap();
        assert_eq!(result(&mut queue), Err(libc::EPERM), "{kind}");
        assert_eq!(asked() - before, 1, "{kind}");
        hostile.set("clear").unwrap();
    }
}

/// A ring may have filters, which deny operations that the system call may make. A server may deny
/// one, too, after it has made it.
#[test]
fn what_a_server_denies_is_not_made_again() {
    let Some(hostile) = Hostile::mount_or_skip(skip) else { return };
    let path = |name: &str| hostile.path().join(name);
    fs::create_dir(path("old")).unwrap();
    fs::write(path("file"), b"text").unwrap();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let file = fs::File::options().write(true).open(path("file")).unwrap().into();
    type Make<'a> = &'a dyn Fn() -> Operation;
    let operations: [(&str, Make<'_>); 5] = [
        ("create", &|| op::open(path("new"), &options)),
        ("mkdir", &|| op::mkdir(path("new"), 0o700)),
        ("unlink", &|| op::unlink(path("file"))),
        ("rename", &|| op::rename(path("file"), path("new"))),
        ("fallocate", &|| op::fallocate(&file, 0, 0, 4096)),
    ];
    for kind in [BackendKind::Threads, BackendKind::Uring, BackendKind::Kaio] {
        let Ok(mut queue) = Options::new().backend(kind).build() else {
            println!("skipped: no {kind}");
            continue;
        };
        for (request, make) in operations {
            let asked = || hostile.count(request).unwrap().requests;
            let before = asked();
            hostile.set(&format!("* {request} fail {} 1", libc::EACCES)).unwrap();
            queue.push(make()).unwrap();
            assert_eq!(result(&mut queue), Err(libc::EACCES), "{kind}: {request}");
            assert_eq!(asked() - before, 1, "{kind}: {request}");
            hostile.set("clear").unwrap();
        }
    }
}

/// The second job asks the ring whether it denies such operations.
#[test]
fn what_a_ring_denies_is_made_by_a_thread() {
    let dir = tempfile::tempdir().unwrap();
    let run = |denied: u64, operation: Operation| {
        let opcode = operation.opcode();
        let plan = (0..denied).fold(FaultPlan::new(1), |plan, job| {
            plan.fail(FaultStep::Opcode(opcode, job), libc::EACCES)
        });
        let options = Options::new().backend(BackendKind::Uring).faults(plan);
        let mut queue = options.build().map_err(|why| println!("skipped: {why}")).ok()?;
        queue.push(operation).unwrap();
        Some((result(&mut queue), queue.stats().to_threads))
    };
    let new = dir.path().join("new");
    type Make<'a> = &'a dyn Fn() -> Operation;
    let sync = || op::fsync(&fs::File::open(dir.path()).unwrap().into());
    let operations: [Make<'_>; 2] = [&|| op::mkdir(&new, 0o700), &sync];
    for make in operations {
        let Some(refused) = run(1, make()) else { return };
        assert_eq!(refused, (Err(libc::EACCES), 0), "{}", make().opcode());
    }
    assert!(!new.exists());
    for make in operations {
        assert_eq!(run(2, make()), Some((Ok(0), 1)), "{}", make().opcode());
    }
    assert!(new.exists());
}
