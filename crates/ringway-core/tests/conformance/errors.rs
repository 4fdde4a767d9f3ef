//! Failures: every backend reports the errno of the system call. Cases that data can express are in
//! `conformance/errors.case`.

use super::common::{is_root, leave_mounts};
use super::world::{Checked, World, buffer_for, pattern, pipe, skip};
use ringway_core::op::{self, Position, Raw, Vectored};
use ringway_core::{OpenOptions, Operation, Reason};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

const BLOCK: usize = 4096;

/// Pushes an operation made from addresses, and returns its result.
fn raw(queue: &mut Checked, raw: impl Into<Raw>) -> Result<u64, i32> {
    // SAFETY: the caller keeps the memory alive until this function has reaped the completion.
    let operation = unsafe { Operation::from_raw(raw.into(), None, None) };
    queue.push(operation).unwrap();
    queue.rest()[&0]
}

pub fn addresses_outside_the_process(world: &World) {
    let mut queue = world.queue();
    let file = world.file(&pattern(0, 512));
    let fd = file.as_raw_fd();
    let buf = std::ptr::without_provenance_mut(8);
    assert_eq!(
        raw(&mut queue, op::Read { fd, buf, len: 512, offset: 0, flags: op::RwFlags::NONE }),
        Err(libc::EFAULT)
    );
    assert_eq!(
        raw(&mut queue, op::Write { fd, buf, len: 512, offset: 0, flags: op::RwFlags::NONE }),
        Err(libc::EFAULT)
    );
}

/// More buffers than one system call takes: a short transfer of the first 1024, and all of them
/// with `exact`.
pub fn too_many_buffers(world: &World) {
    for file in world.files("buffers", &pattern(0, BLOCK)) {
        let mut queue = world.queue();
        let parts = || Vectored::new((0..1025).map(|_| buffer_for(&file, BLOCK)));
        assert_eq!(queue.result(op::readv(&file, parts(), 0)), Ok(BLOCK as u64));
        assert_eq!(queue.result(op::writev(&file, parts(), 0)), Ok(1024 * BLOCK as u64));
        assert_eq!(queue.result(op::writev(&file, parts(), 0).exact()), Ok(1025 * BLOCK as u64));
        assert_eq!(queue.result(op::readv(&file, parts(), 0).exact()), Ok(1025 * BLOCK as u64));
    }
    let (mut queue, (reader, writer)) = (world.queue(), pipe());
    let parts = || Vectored::new((0..1025).map(|_| vec![1]));
    assert_eq!(queue.result(op::writev(&writer, parts(), Position::Current)), Ok(1024));
    assert_eq!(queue.result(op::readv(&reader, parts(), Position::Current)), Ok(1024));
}

pub fn invalid_operations(world: &World) {
    let file = world.file(b"text");
    let mut queue = world.queue();
    let options = OpenOptions::new().read(true).clone();
    let invalid = [
        op::open("a\0b", &options),
        op::open("name", &OpenOptions::new()),
        op::open("name", OpenOptions::new().read(true).create(true)),
        op::open("name", OpenOptions::new().append(true).truncate(true)),
        op::statx("a\0b"),
        op::rename("a", "b\0"),
        op::link("\0", "b"),
        op::symlink("a\0", "b"),
        op::mkdir("a\0", 0o755),
        op::unlink("a\0"),
        op::read(&file, bytes::Bytes::from_static(b"text"), 0),
        op::readv(&file, Vectored::new([bytes::Bytes::from_static(b"text")]), 0),
    ];
    for operation in invalid {
        let kind = operation.opcode();
        let error = queue.push(operation).unwrap_err();
        assert!(matches!(error.reason(), Reason::Invalid(_)), "{error}");
        assert!(error.to_string().starts_with(kind.name()), "{error}");
        assert_eq!(error.reason().errno(), libc::EINVAL);
        assert_eq!(error.into_operations()[0].opcode(), kind);
    }
    assert_eq!(queue.stats().counts.pushed, 0);
    // One invalid member refuses the whole chain.
    let chain = [op::nop(), op::mkdir("a\0", 0o755), op::nop()];
    assert_eq!(queue.push_chain(chain).unwrap_err().into_operations().len(), 3);
    assert_eq!(queue.push_chain([]).unwrap_err().reason().errno(), libc::EINVAL);
    assert_eq!(queue.result(op::nop()), Ok(0));
}

/// Mounts a small ext4 of `kib` KiB: see [`file_system`].
pub fn small_file_system(world: &World, kib: usize) -> Option<std::path::PathBuf> {
    file_system(world, kib, &["mkfs.ext4", "-q", "-m0", "-O^has_journal"])
}

/// Mounts a file system of `kib` KiB that this process alone sees, made by this command. Returns
/// `None` where that is impossible, after printing the reason.
pub fn file_system(world: &World, kib: usize, make: &[&str]) -> Option<std::path::PathBuf> {
    if !is_root() {
        skip("only root may mount");
        return None;
    }
    let dir = world.dir("mounted");
    let image = world.disk.join("image");
    std::fs::File::create(&image).unwrap().set_len(kib as u64 * 1024).unwrap();
    // The PATH of a service may lack the directories of system programs.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let run = |program: &str, arguments: &[&Path]| {
        let command = &mut Command::new(program);
        let output = command
            .args(arguments)
            .env("PATH", &path)
            .output()
            .map_err(|error| format!("{program}: {error}"))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)))
        }
    };
    let options: Vec<_> = make[1..].iter().map(Path::new).chain([&*image]).collect();
    let made = leave_mounts()
        .map_err(|error| format!("only root may mount: {error}"))
        .and_then(|()| run(make[0], &options))
        .and_then(|()| run("mount", &[Path::new("-oloop"), &image, &dir]));
    match made {
        // A queue's threads have the working directory of the process's first thread, from where
        // this thread's mounts are not seen.
        Ok(()) => Some(std::path::absolute(dir).unwrap()),
        Err(error) => {
            skip(&format!("no file system on a loop device: {error}"));
            None
        }
    }
}

pub fn no_space_left(world: &World) {
    let Some(dir) = small_file_system(world, 2048) else { return };
    let path = dir.join("file");
    for direct in [false, true] {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .direct(direct)
            .open(&path)
            .unwrap();
        let mut queue = world.queue();
        assert_eq!(queue.result(op::fallocate(&file, 0, 0, 16 << 20)), Err(libc::ENOSPC));
        assert_eq!(queue.result(op::ftruncate(&file, 0)), Ok(0));
        let big = 4 << 20;
        assert_eq!(
            queue.result(op::write(&file, buffer_for(&file, big), 0).exact()),
            Err(libc::ENOSPC)
        );
        // Truncate, then fill the file with shorter writes until one fails.
        assert_eq!(queue.result(op::ftruncate(&file, 0)), Ok(0));
        let mut written = 0;
        let full = loop {
            match queue.result(op::write(&file, buffer_for(&file, 16 * BLOCK), written)) {
                Ok(some) => written += some,
                Err(errno) => break errno,
            }
        };
        assert_eq!(full, libc::ENOSPC);
        assert!(written > 512 << 10 && written < big as u64, "{written} bytes, direct: {direct}");
        drop(file);
        assert_eq!(queue.result(op::unlink(&path)), Ok(0));
    }
}
