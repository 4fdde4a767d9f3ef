//! What the runner of the cases does differently on systems of the Unix family.

use super::{Step, Stop, checked, fail, number};
use ringway_core::c as libc;
use ringway_core::{File, OwnedFd};
use std::env;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
pub use std::os::fd::RawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// Sets what the cases require of the process: the umask, and SIGXFSZ ignored. (Rust ignores
/// SIGPIPE.)
pub fn prepare_process() {
    // SAFETY: the calls take numbers only.
    unsafe {
        libc::umask(0o022);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// The process state that cases change, restored when dropped.
pub struct Process {
    before: fs::File,
}

impl Process {
    pub fn new(scratch: &Path) -> Self {
        let before = fs::File::open(".").unwrap();
        env::set_current_dir(scratch).unwrap();
        Self { before }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: the calls take numbers and a live value. Only root changes its effective user.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit);
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
            if libc::getuid() == 0 {
                libc::seteuid(0);
            }
        }
        // By descriptor, because an ordinary user may not be able to walk down the path.
        // SAFETY: the call takes a number only.
        assert_eq!(unsafe { libc::fchdir(self.before.as_raw_fd()) }, 0);
    }
}

pub fn raw_fd(file: &File) -> RawFd {
    file.as_raw_fd()
}

/// Gives up root's permissions, if the process has them.
pub fn become_ordinary() -> Step {
    // SAFETY: the calls take numbers only.
    unsafe {
        if libc::geteuid() == 0 && libc::seteuid(65534) != 0 {
            return fail("seteuid");
        }
    }
    Ok(())
}

/// Sets the length of the longest file.
pub fn limit(most: u64) -> Step {
    // SAFETY: the limit is a live value, written by the first call and read by the second.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit);
        limit.rlim_cur = most as _;
        if libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) != 0 {
            return fail("setrlimit");
        }
    }
    Ok(())
}

pub fn set_mode(path: &str, mode: u32) -> Step {
    checked(fs::set_permissions(path, fs::Permissions::from_mode(mode)))
}

/// Whatever the umask is.
pub fn make_readable(file: &fs::File) -> io::Result<()> {
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

pub fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
}

pub fn sockets() -> Step<(OwnedFd, OwnedFd)> {
    checked(std::os::unix::net::UnixStream::pair()).map(|(one, other)| (one.into(), other.into()))
}

pub fn read_exact_at(file: &fs::File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(bytes, at)
}

pub fn is_closed_by_exec(file: &File) -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) == libc::FD_CLOEXEC }
}

pub fn is_readable(file: &fs::File, within: Duration) -> bool {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, on this stack, for the length of the call.
    unsafe { libc::poll(&raw mut poll, 1, within.as_millis() as i32) > 0 }
}

pub fn set_flags(options: &mut fs::OpenOptions, flags: i32) {
    options.custom_flags(flags);
}

pub fn symlink(target: &str, path: &str) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

pub fn make_fifo(path: String) -> Step {
    let path = CString::new(path).map_err(|error| Stop::Failed(error.to_string()))?;
    // SAFETY: the path is a C string that lives through the call.
    match unsafe { libc::mkfifo(path.as_ptr(), 0o644) } {
        0 => Ok(()),
        _ => fail("mkfifo"),
    }
}

fn file_type(mode: u32) -> &'static str {
    match mode & libc::S_IFMT {
        libc::S_IFREG => "file",
        libc::S_IFDIR => "dir",
        libc::S_IFLNK => "symlink",
        _ => "fifo",
    }
}

pub fn check_stat(stat: Option<libc::statx>, field: &str, value: &str) -> Step {
    let Some(found) = stat else { return fail("the statx has no result") };
    let right = match field {
        "size" => found.stx_size == number(value)?,
        "mode" => u64::from(found.stx_mode & 0o7777) == number(value)?,
        "nlink" => u64::from(found.stx_nlink) == number(value)?,
        "type" => file_type(found.stx_mode.into()) == value,
        "same" => {
            let plain = checked(fs::symlink_metadata(value))?;
            (found.stx_ino, found.stx_size, found.stx_blocks)
                == (plain.ino(), plain.size(), plain.blocks())
                && (u32::from(found.stx_mode), found.stx_uid) == (plain.mode(), plain.uid())
                && (found.stx_mtime.tv_sec, i64::from(found.stx_mtime.tv_nsec))
                    == (plain.mtime(), plain.mtime_nsec())
        }
        _ => return fail(format!("no field: {field}")),
    };
    if right { Ok(()) } else { fail(format!("{field} is not {value}")) }
}

pub fn check_path(what: &str, path: &str, value: &str) -> Step {
    let found = checked(fs::symlink_metadata(path))?;
    let right = match what {
        "size" => found.size() == number(value)?,
        "mode" => u64::from(found.mode() & 0o7777) == number(value)?,
        "nlink" => found.nlink() == number(value)?,
        "type" => file_type(found.mode()) == value,
        "target" => checked(fs::read_link(path))? == Path::new(value),
        _ => found.ino() == checked(fs::symlink_metadata(value))?.ino(),
    };
    if right { Ok(()) } else { fail(format!("{what} of {path} is not {value}: {found:?}")) }
}
