//! A call that fails as if a filter had refused it: only a filter's refusal has other calls made in
//! its place, or such calls left out from then on.

#![cfg(ringway_linux)]

#[path = "common/inject.rs"]
mod inject;

use inject::{Injector, Plan};
use ringway_core::device::LocalMounts;
use ringway_core::op::metadata_now;
use ringway_core::{BackendKind, OpenOptions, Options, Queue, op};
use ringway_hostile::Hostile;
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
    let Some(hostile) = Hostile::mount_or_skip(|why| println!("skipped: {why}")) else { return };
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
