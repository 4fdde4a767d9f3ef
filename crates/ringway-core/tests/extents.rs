//! ext4 reads each block of a file's list of extents when a transfer first needs it, in the thread
//! that submits the transfer. After the first transfer of a file, the whole list is in memory.

#![cfg(ringway_linux)]

use ringway_core::{AlignedBuffer, BackendKind, File, OpenOptions, Options, op};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
/// In three blocks of the list, and a half.
const EXTENTS: usize = 1200;
const SOON: Duration = Duration::from_secs(20);

/// `EXT4_IOC_CLEAR_ES_CACHE`: the kernel forgets what it knows of the file's extents.
const FORGET: libc::Ioctl = 0x6628;
/// `EXT4_IOC_GET_ES_CACHE`: what it knows, in the form of `FS_IOC_FIEMAP`.
const KNOWN: libc::Ioctl = 0xc020_662a_u32 as libc::Ioctl;

/// `struct fiemap`, without room for extents: they are counted only.
#[repr(C)]
#[derive(Default)]
struct Fiemap {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// How many extents the kernel knows.
fn known(file: &fs::File) -> io::Result<u32> {
    let mut fiemap = Fiemap { len: u64::MAX, ..Fiemap::default() };
    // SAFETY: `fiemap` has room for `count` extents, and is valid during the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), KNOWN, &raw mut fiemap) } {
        0 => Ok(fiemap.mapped),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A file with many extents of which the kernel knows none, or `None` where that cannot be had.
fn fragmented(direct: bool) -> Option<(fs::File, File)> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("extents-{}-{direct}", std::process::id()));
    let file = fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    for number in 0..EXTENTS {
        file.write_all_at(&[7; BLOCK], (2 * number * BLOCK) as u64).unwrap();
    }
    file.sync_all().unwrap();
    let opened = OpenOptions::new().read(true).write(true).direct(direct).open(&path);
    fs::remove_file(&path).unwrap();
    // SAFETY: the call takes no argument.
    if unsafe { libc::ioctl(file.as_raw_fd(), FORGET) } != 0 {
        let error = io::Error::last_os_error();
        println!("skipped: {} is not on ext4 of Linux 5.4: {error}", path.display());
        return None;
    }
    assert_eq!(known(&file).unwrap(), 0);
    Some((file, opened.unwrap()))
}

#[test]
fn the_first_transfer_has_the_whole_list_read() {
    for backend in [BackendKind::Uring, BackendKind::Kaio] {
        let mut queue = match Options::new().backend(backend).build() {
            Ok(queue) => queue,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "{error}");
                println!("skipped: {error}");
                continue;
            }
        };
        for (direct, write) in [(true, false), (true, true), (false, false)] {
            let Some((file, opened)) = fragmented(direct) else { return };
            let buffer = AlignedBuffer::new(BLOCK, BLOCK);
            let operation =
                if write { op::write(&opened, buffer, 0) } else { op::read(&opened, buffer, 0) };
            queue.push(operation).unwrap();
            let mut done = queue.reap_until(1, Instant::now() + SOON).unwrap();
            assert_eq!(done.next().unwrap().result, Ok(BLOCK as u64));
            let known = known(&file).unwrap();
            assert!(known as usize >= EXTENTS, "{backend}, direct {direct}: {known} extents known");
        }
    }
}
