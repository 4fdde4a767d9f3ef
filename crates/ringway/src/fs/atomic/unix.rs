//! Names in an open directory, on Unix: a directory that is moved meanwhile stays the same one.

use crate::fs::File;
use crate::fs::interrupted::uninterrupted;
use ringway_core::File as CoreFile;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, openat, renameat, unlinkat};
use std::ffi::OsStr;
use std::io;
use std::path::Path;

/// The directory of a new file.
pub(super) type Directory = CoreFile;

pub(super) const FLAGS: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC);

pub(super) fn directory(dir: &File, _: &Path) -> io::Result<Directory> {
    Ok(dir.core().clone())
}

/// Creates a file. Errors: AlreadyExists.
pub(super) fn create(dir: &Directory, name: &OsStr, mode: Option<u32>) -> io::Result<CoreFile> {
    let flags = FLAGS | OFlags::CREATE | OFlags::EXCL;
    Ok(uninterrupted(|| openat(dir, name, flags, bits(mode)))?.into())
}

pub(super) fn set_permissions(file: &CoreFile, mode: Option<u32>) -> io::Result<()> {
    Ok(uninterrupted(|| fchmod(file, bits(mode)))?)
}

pub(super) fn rename(dir: &Directory, from: &OsStr, to: &OsStr) -> io::Result<()> {
    Ok(renameat(dir, from, dir, to)?)
}

pub(super) fn remove(dir: &Directory, name: &OsStr) -> io::Result<()> {
    Ok(unlinkat(dir, name, AtFlags::empty())?)
}

pub(super) fn bits(mode: Option<u32>) -> Mode {
    Mode::from_raw_mode(mode.unwrap_or(0o666) as _)
}
