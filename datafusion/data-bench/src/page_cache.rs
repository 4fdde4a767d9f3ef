//! Dropping files from the page cache before a cold turn.

use anyhow::Context;
use ringway_measure::scratch;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Root writes `3` to it: the kernel drops clean pages, and cached directories and inodes.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Drops the files in these folders from the page cache. As root everything is dropped, also
/// directories and inodes. Otherwise, or where the system refuses that, it is advice for each
/// file; whether it was followed shows in the bytes that are then read from the device.
///
/// # Errors
///
/// Those of listing, opening and syncing the files.
pub fn drop(folders: &[PathBuf]) -> anyhow::Result<()> {
    // Dirty pages are not dropped.
    rustix::fs::sync();
    match fs::write(DROP_CACHES, "3") {
        Ok(()) => Ok(()),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            folders.iter().try_for_each(|folder| drop_files(folder))
        }
        Err(error) => Err(error).context(DROP_CACHES),
    }
}

fn drop_files(folder: &Path) -> anyhow::Result<()> {
    let about = || folder.display().to_string();
    for entry in fs::read_dir(folder).with_context(about)? {
        let path = entry.with_context(about)?.path();
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        scratch::drop_page_cache(&file).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
