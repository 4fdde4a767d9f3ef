//! Scratch files, and the page cache of the files that are measured.
//!
//! A scratch file never has a name (`O_TMPFILE`, or unlinked at once), so nothing is left behind,
//! even after SIGKILL. Programs open it through `/proc`. Its bytes are written: the kernel does not
//! read the holes of a sparse file from the device.

use crate::pattern;
use anyhow::{Context, bail};
use ringway_core::device::PathFacts;
use ringway_core::refusal::bytes_text;
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// Bytes written or read at a time.
const PIECE: usize = MIB as usize;
/// Larger than a device's own cache, and small enough to be written in a few seconds.
const DEFAULT: u64 = 1 << 30;
/// On tmpfs the file takes memory that others need.
const DEFAULT_IN_MEMORY: u64 = 256 * MIB;
/// A smaller file says nothing about a device.
const LEAST: u64 = 16 * MIB;

/// The size to use when the user gives none: 1 GiB (256 MiB in memory), but at most a tenth of the
/// free space.
///
/// # Errors
///
/// A tenth of the free space is too little to measure on.
pub fn default_size(folder: &Path) -> anyhow::Result<u64> {
    let facts = PathFacts::of_path(folder).with_context(|| folder.display().to_string())?;
    let free = free_space(folder)?;
    sensible_size(free, &facts.file_system).with_context(|| {
        format!(
            "{} has {} free, and a scratch file takes at most a tenth of it; give another folder \
             with --scratch, or a size with --size",
            folder.display(),
            bytes_text(free / MIB * MIB)
        )
    })
}

fn sensible_size(free: u64, file_system: &str) -> Option<u64> {
    let default =
        if matches!(file_system, "tmpfs" | "ramfs") { DEFAULT_IN_MEMORY } else { DEFAULT };
    let size = default.min(free / 10 / MIB * MIB);
    (size >= LEAST).then_some(size)
}

/// Bytes that an unprivileged user may still write to the file system of `path`.
///
/// # Errors
///
/// Those of `statvfs(2)`.
pub fn free_space(path: &Path) -> anyhow::Result<u64> {
    let stat = rustix::fs::statvfs(path).with_context(|| path.display().to_string())?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Creates a file without a name in `folder`, with `size` bytes of the pattern of `seed`.
/// `progress` receives the number of bytes after each write.
///
/// # Errors
///
/// Too little space, before anything is written; those of creating and writing a file.
pub fn create(
    folder: &Path,
    size: u64,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<File> {
    let what =
        || format!("scratch file in {} (give another folder with --scratch)", folder.display());
    let free = free_space(folder)?;
    if size > free {
        let (size, free) = (bytes_text(size), bytes_text(free / MIB * MIB));
        bail!("{}: needs {size}, and {free} are free; nothing was written", what());
    }
    let file = tempfile::tempfile_in(folder).with_context(what)?;
    fill(&file, 0, size, seed, progress).with_context(what)?;
    Ok(file)
}

/// The path by which other processes open the file while this process holds it open.
pub fn path(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// Writes the pattern from `start` to `end` and syncs the file.
///
/// # Errors
///
/// ENOSPC, before anything is written if the file system can reserve space; those of `pwrite(2)`
/// and `fsync(2)`.
pub fn fill(
    file: &File,
    start: u64,
    end: u64,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    reserve(file, FallocateFlags::KEEP_SIZE, end)?;
    let mut piece = vec![0; PIECE];
    let mut at = start;
    while at < end {
        let len = piece.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        pattern::fill(seed, at, &mut piece[..len]);
        file.write_all_at(&piece[..len], at)?;
        at += len as u64;
        progress(len as u64);
    }
    file.sync_all()
}

/// Allocates the space of the first `size` bytes with these flags of `fallocate(2)`. Devices and
/// some file systems cannot do this; there, writing shows whether the space suffices.
///
/// # Errors
///
/// ENOSPC, EDQUOT and EFBIG of `fallocate(2)`.
pub fn reserve(file: &File, flags: FallocateFlags, size: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, flags, 0, size) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        _ if i64::try_from(size).is_err() => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}

/// Drops the file from the page cache, as far as the kernel follows the advice.
///
/// # Errors
///
/// Those of `fdatasync(2)`: dirty pages are written back first, since they are not dropped.
pub fn drop_page_cache(file: &File) -> io::Result<()> {
    file.sync_data()?;
    // It is advice: whether the kernel follows it cannot be seen from the result.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
    Ok(())
}

/// Reads the first `size` bytes, or all of a shorter file, into the page cache.
///
/// # Errors
///
/// Those of `pread(2)`.
pub fn load_page_cache(file: &File, size: u64) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        match file.read_at(&mut piece, at)? {
            0 => break,
            read => at += read as u64,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_size_is_at_most_a_tenth_of_the_free_space() {
        assert_eq!(sensible_size(1 << 40, "ext4"), Some(1 << 30));
        assert_eq!(sensible_size(1 << 40, "tmpfs"), Some(256 << 20));
        assert_eq!(sensible_size(1 << 30, "ext4"), Some(102 << 20));
        assert_eq!(sensible_size(100 << 20, "ext4"), None);
        assert_eq!(sensible_size(0, "ext4"), None);
    }

    #[test]
    fn a_scratch_file_is_written_and_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut written = 0;
        let size = PIECE as u64 + 5000;
        let file = create(folder.path(), size, 3, &mut |bytes| written += bytes).unwrap();
        assert_eq!((written, file.metadata().unwrap().len()), (size, size));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        drop_page_cache(&file).unwrap();
        load_page_cache(&file, u64::MAX).unwrap();
        let content = std::fs::read(path(&file)).unwrap();
        assert_eq!(pattern::check(3, 0, &content).1, 0);
    }

    #[test]
    fn too_little_space_is_reported_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut written = 0;
        let error = create(folder.path(), 1 << 62, 3, &mut |bytes| written += bytes).unwrap_err();
        assert!(error.to_string().contains("nothing was written"), "{error}");
        assert_eq!(written, 0);
    }
}
