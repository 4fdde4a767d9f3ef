//! Files without a name (`O_TMPFILE`), on Linux.

use super::unix::{Directory, FLAGS, bits};
use crate::fs::interrupted::uninterrupted;
use ringway_core::File as CoreFile;
use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat, linkat, openat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;

/// Creates a file without a name, if the file system supports it.
pub(super) fn create(dir: &Directory, mode: Option<u32>) -> Option<CoreFile> {
    let create = || openat(dir, c".", FLAGS | OFlags::TMPFILE, bits(mode));
    let file = uninterrupted(create).map(CoreFile::from).ok()?;
    // Without /proc the file could not be given a name.
    accessat(CWD, path_of(&file), Access::EXISTS, AtFlags::empty()).is_ok().then_some(file)
}

/// Gives it a name. Errors: AlreadyExists.
pub(super) fn link(file: &CoreFile, dir: &Directory, name: &OsStr) -> io::Result<()> {
    Ok(linkat(CWD, path_of(file), dir, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// A path to a file without a name.
fn path_of(file: &CoreFile) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
