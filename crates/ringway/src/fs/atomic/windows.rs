//! Names in a directory, on Windows: by absolute paths.

use crate::fs::{File, Metadata};
use ringway_core::{File as CoreFile, OpenOptions};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The directory of a new file. The working directory may change meanwhile.
pub(super) type Directory = PathBuf;

/// Windows has no such permissions.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct Access;

impl Access {
    pub(in crate::fs) fn of(_: &Metadata) -> Self {
        Self
    }

    pub(super) fn give_to(self, _: &CoreFile) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn directory(_: &File, path: &Path) -> io::Result<Directory> {
    std::path::absolute(path)
}

/// Creates a file. Errors: AlreadyExists.
pub(super) fn create(dir: &Directory, name: &OsStr, _: Option<Access>) -> io::Result<CoreFile> {
    OpenOptions::new().write(true).create_new(true).open(dir.join(name))
}

pub(super) fn rename(dir: &Directory, from: &OsStr, to: &OsStr) -> io::Result<()> {
    std::fs::rename(dir.join(from), dir.join(to))
}

pub(super) fn remove(dir: &Directory, name: &OsStr) -> io::Result<()> {
    std::fs::remove_file(dir.join(name))
}
