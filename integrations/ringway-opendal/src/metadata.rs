//! Metadata of objects, and the user's part of it, which is in extended attributes (`user.*`), as
//! `services-fs` stores it. All functions block, except [`builder`].

use opendal_core::raw::Timestamp;
use opendal_core::{Metadata, MetadataBuilder};
use rustix::fs::{
    XattrFlags, fgetxattr, fgetxattr_query, flistxattr, flistxattr_query, fsetxattr, getxattr,
    getxattr_query, listxattr, listxattr_query,
};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::SystemTime;

const PREFIX: &str = "user.";
/// The most bytes of a user's metadata that are returned. OpenDAL's metadata has at most 64 KiB,
/// and the attributes of a file may be longer.
const MOST: usize = 48 << 10;
/// Bytes that each value needs besides its own.
const INDEX: usize = 16;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Dir,
    Other,
}

/// Metadata of an object without the user's.
pub(crate) fn builder(kind: Kind, len: u64, modified: io::Result<SystemTime>) -> MetadataBuilder {
    let mut builder = match kind {
        Kind::File => MetadataBuilder::file(len),
        Kind::Dir => MetadataBuilder::dir(),
        Kind::Other => MetadataBuilder::unknown(),
    };
    if let Some(modified) = modified.ok().and_then(|time| Timestamp::try_from(time).ok()) {
        builder.last_modified(modified);
    }
    builder
}

/// Metadata of an open file without the user's.
pub(crate) fn of_file(found: &std::fs::Metadata) -> Metadata {
    builder(kind(found), found.len(), found.modified()).build()
}

/// Whether there is nothing of this name.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn kind(found: &std::fs::Metadata) -> Kind {
    match found {
        found if found.is_file() => Kind::File,
        found if found.is_dir() => Kind::Dir,
        _ => Kind::Other,
    }
}

/// Looks an object up. A symbolic link to what cannot be reached is of an unknown kind, as in
/// listings.
pub(crate) fn look_up(path: &Path) -> io::Result<Metadata> {
    let found = match std::fs::metadata(path) {
        Err(error) if !is_gone(&error) => {
            let link = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_symlink);
            return link.map(|link| of_file(&link)).ok_or(error);
        }
        found => found?,
    };
    let mut builder = builder(kind(&found), found.len(), found.modified());
    let user = read_user(path)?;
    if !user.is_empty() {
        builder.user_metadata(user);
    }
    Ok(builder.build())
}

/// The user's metadata; what is no text, or does not fit, is left out.
pub(crate) fn read_user(path: &Path) -> io::Result<Vec<(String, String)>> {
    read_user_of(path, MOST)
}

fn read_user_of(path: &Path, mut room: usize) -> io::Result<Vec<(String, String)>> {
    let names = match read_value(|| listxattr_query(path), |buffer| listxattr(path, buffer)) {
        Ok(names) => names,
        // Other kinds of files have none, nor do those of some file systems.
        Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut user = Vec::new();
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        let Some(key) = name.to_str().ok().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        // It may have been removed, or may not be read.
        let value =
            read_value(|| getxattr_query(path, name), |buffer| getxattr(path, name, buffer));
        let Ok(value) = value else { continue };
        let Ok(value) = String::from_utf8(value) else { continue };
        if let Some(rest) = room.checked_sub(key.len() + value.len() + INDEX) {
            room = rest;
            user.push((key.to_owned(), value));
        }
    }
    Ok(user)
}

/// Reads into a buffer that has room for the whole value.
fn read_value(
    query: impl Fn() -> Result<usize, Errno>,
    read: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    loop {
        let mut buffer = vec![0; query()?];
        match read(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            // It has grown.
            Err(Errno::RANGE) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Copies the user's metadata: all of it, also what is no text.
pub(crate) fn copy_user(from: &File, to: &File) -> io::Result<()> {
    let names = match read_value(|| flistxattr_query(from), |buffer| flistxattr(from, buffer)) {
        // Not on this file system.
        Err(Errno::NOTSUP) => return Ok(()),
        names => names?,
    };
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if !name.to_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let query = || fgetxattr_query(from, name);
        match read_value(query, |buffer| fgetxattr(from, name, buffer)) {
            // It was removed meanwhile.
            Err(Errno::NODATA) => {}
            value => fsetxattr(to, name, &value?, XattrFlags::empty())?,
        }
    }
    Ok(())
}

/// Sets the user's metadata.
pub(crate) fn write_user(file: impl AsFd, user: &[(String, String)]) -> io::Result<()> {
    for (key, value) in user {
        fsetxattr(&file, format!("{PREFIX}{key}"), value.as_bytes(), XattrFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_fits_is_left_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for number in 0..3 {
            let name = format!("user.n{number}");
            if fsetxattr(file.as_file(), name, &[b'x'; 40], XattrFlags::empty()).is_err() {
                return println!("skipped: the temporary folder has no such attributes");
            }
        }
        let found = |room| read_user_of(file.path(), room).unwrap().len();
        let each = "n0".len() + 40 + INDEX;
        assert_eq!([0, each - 1, each, 2 * each, 100 * each].map(found), [0, 0, 1, 2, 3]);
    }
}
