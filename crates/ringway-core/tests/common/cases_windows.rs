//! What the runner of the cases does differently on Windows.

use super::{Step, checked, fail, number};
use ringway_core::c as libc;
use ringway_core::{File, OwnedFd};
use std::env;
use std::fs;
use std::io;
use std::os::windows::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub type RawFd = ringway_core::RawFd;

/// Nothing to do.
pub fn prepare_process() {}

/// The working directory, restored when dropped.
pub struct Process {
    before: PathBuf,
}

impl Process {
    pub fn new(scratch: &Path) -> Self {
        let before = env::current_dir().unwrap();
        env::set_current_dir(scratch).unwrap();
        Self { before }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        env::set_current_dir(&self.before).unwrap();
    }
}

pub fn raw_fd(file: &File) -> RawFd {
    file.as_raw_handle() as RawFd
}

fn absent<T>(what: &str) -> Step<T> {
    fail(format!("Windows has no {what}"))
}

pub fn become_ordinary() -> Step {
    absent("users by number")
}

pub fn limit(_: u64) -> Step {
    absent("limit of a file's length")
}

pub fn set_mode(_: &str, _: u32) -> Step {
    absent("modes")
}

/// It is.
pub fn make_readable(_: &fs::File) -> io::Result<()> {
    Ok(())
}

/// It is.
pub fn open_to_all(_: &Path) {}

pub fn sockets() -> Step<(OwnedFd, OwnedFd)> {
    absent("sockets that are files")
}

/// At the current position, since there is no read that leaves it alone.
pub fn read_exact_at(file: &fs::File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.seek_read(&mut bytes[done..], at + done as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => done += more,
        }
    }
    Ok(())
}

/// Handles are not inherited unless a program says so.
pub fn is_closed_by_exec(_: &File) -> bool {
    true
}

/// There is no poll: the read waits.
pub fn is_readable(_: &fs::File, _: Duration) -> bool {
    true
}

/// `O_APPEND`; the library's own flags mean nothing to the standard library.
pub fn set_flags(options: &mut fs::OpenOptions, flags: i32) {
    // Without it, no directory is opened.
    const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
    options.append(flags & libc::O_APPEND != 0).custom_flags(FILE_FLAG_BACKUP_SEMANTICS);
}

pub fn symlink(target: &str, path: &str) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, path)
}

pub fn make_fifo(_: String) -> Step {
    absent("FIFOs")
}

pub fn check_stat(stat: Option<libc::statx>, field: &str, value: &str) -> Step {
    let Some(found) = stat else { return fail("the statx has no result") };
    let right = match field {
        "size" => found.stx_size == number(value)?,
        "type" => match u32::from(found.stx_mode) & libc::S_IFMT {
            libc::S_IFDIR => value == "dir",
            libc::S_IFLNK => value == "symlink",
            _ => value == "file",
        },
        "same" => found.stx_size == checked(fs::symlink_metadata(value))?.file_size(),
        _ => return fail(format!("no field: {field}")),
    };
    if right { Ok(()) } else { fail(format!("{field} is not {value}")) }
}

pub fn check_path(what: &str, path: &str, value: &str) -> Step {
    let found = checked(fs::symlink_metadata(path))?;
    let right = match what {
        "size" => found.file_size() == number(value)?,
        "type" if found.is_symlink() => value == "symlink",
        "type" if found.is_dir() => value == "dir",
        "type" => value == "file",
        "target" => checked(fs::read_link(path))? == Path::new(value),
        // Links share their content.
        "same" => checked(fs::read(path))? == checked(fs::read(value))?,
        _ => return fail(format!("no field: {what}")),
    };
    if right { Ok(()) } else { fail(format!("{what} of {path} is not {value}: {found:?}")) }
}
