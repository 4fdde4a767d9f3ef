//! Paths that lead elsewhere when they are opened than when they were looked at.

#![cfg(ringway_linux)]

#[path = "common/inject.rs"]
#[allow(dead_code, reason = "other tests let calls fail")]
mod inject;

use inject::Injector;
use ringway_core::{BackendKind, Options, op};
use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longer than anything takes on a loaded machine.
const SOON: Duration = Duration::from_secs(20);

/// A write to it could keep a thread waiting for ever.
#[test]
fn a_path_that_becomes_a_fifo_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, b"text").unwrap();
    let Some(injector) = Injector::install(&[libc::SYS_openat2]) else { return };
    let (sender, receiver) = mpsc::channel();
    injector.on_next({
        let path = path.clone();
        move || {
            fs::remove_file(&path).unwrap();
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            let mut options = fs::File::options();
            let reader = options.read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
            sender.send(reader).unwrap();
        }
    });
    let mut queue = Options::new().backend(BackendKind::Threads).build().unwrap();
    queue.push(op::write_file(&path, vec![7; 1 << 20])).unwrap();
    let reaped = queue.reap_until(1, Instant::now() + SOON).unwrap().next();
    // Without a reader, a write that still waits ends.
    drop(receiver.recv_timeout(std::time::Duration::from_secs(20)).unwrap());
    let result = reaped.expect("it hangs").result.map_err(|error| error.errno());
    assert_eq!(result, Err(libc::ESPIPE));
}
