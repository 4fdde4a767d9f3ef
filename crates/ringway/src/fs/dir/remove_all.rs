//! Removes a directory with its content, on Unix: relative to open directories, so that no link is
//! followed. On Windows the standard library does this.

use crate::fs::interrupted::uninterrupted;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A directory that is being emptied.
struct Level {
    entries: Dir,
    name: CString,
}

impl Level {
    fn open(parent: BorrowedFd<'_>, name: &CStr) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = uninterrupted(|| openat(parent, name, flags, Mode::empty()))?;
        let entries = Dir::new(dir)?;
        Ok(Self { entries, name: name.to_owned() })
    }
}

/// Iterative, because a thread's stack is small and a tree may be deep.
pub(super) fn remove_all(path: &Path) -> io::Result<()> {
    let top = CString::new(path.as_os_str().as_bytes())?;
    if std::fs::symlink_metadata(path)?.is_symlink() {
        return Ok(unlinkat(CWD, &*top, AtFlags::empty())?);
    }
    let mut levels = vec![Level::open(CWD, &top)?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.entries.next().transpose()? else {
            let Some(done) = levels.pop() else { break };
            let parent = levels.last().map_or(Ok(CWD), |level| level.entries.fd())?;
            gone_is_fine(unlinkat(parent, &*done.name, AtFlags::REMOVEDIR))?;
            continue;
        };
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let dir = level.entries.fd()?;
        let below = match entry.file_type() {
            // Some file systems do not report the type, and unlinking a directory may orphan its
            // content.
            FileType::Directory | FileType::Unknown => Level::open(dir.as_fd(), name),
            _ => Err(Errno::NOTDIR),
        };
        match below {
            Ok(below) => levels.push(below),
            // For a symbolic link, older kernels return ELOOP, and FreeBSD returns EMLINK.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => {
                gone_is_fine(unlinkat(dir, name, AtFlags::empty()))?
            }
            Err(error) => gone_is_fine(Err(error))?,
        }
    }
    Ok(())
}

/// If another program has already removed it, that is not an error.
fn gone_is_fine(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
