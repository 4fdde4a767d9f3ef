//! Names in a directory, on Windows: by absolute paths.

use crate::fs::File;
use ringway_core::{File as CoreFile, OpenOptions};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The directory of a new file. The working directory may change meanwhile.
pub(super) type Directory = PathBuf;

pub(super) fn directory(_: &File, path: &Path) -> io::Result<Directory> {
    std::path::absolute(path)
}

/// Creates a file. Errors: AlreadyExists.
pub(super) fn create(dir: &Directory, name: &OsStr, _: Option<u32>) -> io::Result<CoreFile> {
    OpenOptions::new().write(true).create_new(true).open(dir.join(name))
}

/// Windows has no such permissions.
pub(super) fn set_permissions(_: &CoreFile, _: Option<u32>) -> io::Result<()> {
    Ok(())
}

pub(super) fn rename(dir: &Directory, from: &OsStr, to: &OsStr) -> io::Result<()> {
    std::fs::rename(dir.join(from), dir.join(to))
}

pub(super) fn remove(dir: &Directory, name: &OsStr) -> io::Result<()> {
    std::fs::remove_file(dir.join(name))
}
