//! Paths that lead elsewhere when they are opened than when they were looked at.

#![cfg(ringway_linux)]

#[path = "common/inject.rs"]
#[allow(dead_code, reason = "other tests let calls fail")]
mod inject;

use inject::Injector;
use ringway_core::{BackendKind, OpenOptions, Options, op};
use std::fs;
use std::os::fd::AsRawFd as _;
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

/// An open that waits for the other end of a FIFO can be cancelled, and holds no thread that others
/// need.
#[test]
fn an_open_of_a_path_that_becomes_a_fifo_can_be_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let Some(injector) = Injector::install(&[libc::SYS_openat2]) else { return };
    let mut queue = Options::new().backend(BackendKind::Threads).build().unwrap();
    let become_fifo = {
        let path = path.clone();
        move || {
            fs::remove_file(&path).unwrap();
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        }
    };
    let [mut read, mut write] = [OpenOptions::new(), OpenOptions::new()];
    read.read(true);
    write.write(true);

    // That the flag is not left is seen by a file, too.
    fs::write(&path, b"text").unwrap();
    queue.push(op::open(&path, &read)).unwrap();
    let file = queue.reap(1).unwrap().next().unwrap().into_file().unwrap();
    assert_eq!(flags(&file) & libc::O_NONBLOCK, 0);

    injector.on_next(become_fifo.clone());
    queue.push(op::open(&path, &read)).unwrap();
    let reaped = queue.reap_until(1, Instant::now() + SOON).unwrap().next();
    let file = reaped.expect("it waits for a writer").into_file().unwrap();
    assert_eq!(flags(&file) & libc::O_NONBLOCK, 0);
    drop(file);

    fs::remove_file(&path).unwrap();
    fs::write(&path, b"text").unwrap();
    injector.on_next(become_fifo);
    let id = queue.push(op::open(&path, &write)).unwrap();
    queue.submit().unwrap();
    // The call has begun when the file is none any more.
    let until = Instant::now() + SOON;
    while fs::metadata(&path).is_ok_and(|found| found.is_file()) {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(queue.cancel(id));
    let reaped = queue.reap_until(1, Instant::now() + SOON).unwrap().next();
    // With a reader, an open that still waits ends.
    let reader = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
    let result = reaped.expect("it waits for a reader").result.map_err(|error| error.errno());
    assert_eq!(result, Err(libc::ECANCELED));
    drop(reader);
}

fn flags(file: &ringway_core::File) -> i32 {
    // SAFETY: the call takes numbers only.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }
}
