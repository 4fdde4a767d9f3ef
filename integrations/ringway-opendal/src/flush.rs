//! Errors that only a close reports.

use ringway::fs::File;
use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd;

/// Has a server store what was written to this file, and returns the file's metadata: NFS and some
/// FUSE file systems do it at each close, and report there what is lost (`close(2)`). Where there
/// is no server, that costs two short system calls. Blocks.
///
/// # Errors
///
/// The outer ones say nothing of the data, and it may be repeated. The inner one is that of the
/// close: the data is lost, whatever the next close answers.
pub(crate) fn flush(file: &File) -> io::Result<io::Result<Metadata>> {
    // The file itself stays open, since one without a name is given one while it is.
    let duplicate = std::fs::File::from(file.as_fd().try_clone_to_owned()?);
    let metadata = duplicate.metadata();
    // Whatever the metadata's error: that of the close is reported once.
    Ok(match ringway_core::close(duplicate.into()) {
        Ok(()) => Ok(metadata?),
        Err(lost) => Err(lost),
    })
}
