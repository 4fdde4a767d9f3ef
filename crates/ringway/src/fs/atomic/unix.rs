//! Names in an open directory, on Unix: a directory that is moved meanwhile stays the same one.

use crate::fs::{File, Metadata};
use ringway_core::File as CoreFile;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, openat, renameat, unlinkat};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

/// The directory of a new file.
pub(super) type Directory = CoreFile;

pub(super) const FLAGS: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC);

pub(super) fn directory(dir: &File, _: &Path) -> io::Result<Directory> {
    Ok(dir.core().clone())
}

/// Who may do what with a file: its permissions, owner and group.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct Access {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Access {
    pub(in crate::fs) fn of(file: &Metadata) -> Self {
        Self { mode: file.mode() & 0o777, uid: file.uid(), gid: file.gid() }
    }

    /// Gives it to a new file, as far as the process may. Errors: those of `fchmod(2)`.
    pub(super) fn give_to(self, file: &CoreFile) -> io::Result<()> {
        let Self { mode, uid, gid } = self;
        let now = file.with_std(std::fs::File::metadata)?;
        // The group first: its permissions must not meet another one. The owner last, since a
        // process may be allowed to give a file away and not to change it afterwards.
        let keeps_group = now.gid() == gid || fchown(file, None, Some(gid)).is_ok();
        fchmod(file, raw(if keeps_group { mode } else { without_group(mode) }))?;
        if now.uid() != uid {
            let _ = fchown(file, Some(uid), None);
        }
        Ok(())
    }
}

/// The permissions of a file whose group is another one: what only the old group had is lost.
fn without_group(mode: u32) -> u32 {
    mode & (0o707 | (mode & 0o007) << 3)
}

/// Creates a file. Errors: AlreadyExists.
pub(super) fn create(
    dir: &Directory,
    name: &OsStr,
    access: Option<Access>,
) -> io::Result<CoreFile> {
    Ok(openat(dir, name, FLAGS | OFlags::CREATE | OFlags::EXCL, bits(access))?.into())
}

pub(super) fn rename(dir: &Directory, from: &OsStr, to: &OsStr) -> io::Result<()> {
    Ok(renameat(dir, from, dir, to)?)
}

pub(super) fn remove(dir: &Directory, name: &OsStr) -> io::Result<()> {
    Ok(unlinkat(dir, name, AtFlags::empty())?)
}

/// The permissions to create a file with. Until it has its group, they are the owner's alone.
pub(super) fn bits(access: Option<Access>) -> Mode {
    raw(access.map_or(0o666, |access| access.mode & 0o700))
}

fn raw(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as _)
}
