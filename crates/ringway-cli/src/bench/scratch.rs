//! The scratch file: made for one bench, and gone with it, whatever ends it.
//!
//! It never has a name (`O_TMPFILE`, or unlinked at once), so nothing is left behind even by
//! SIGKILL; runs open it anew, with the flags they need, through `/proc/self/fd`. It is really
//! written, for a file of holes is not read from the device.

use super::pattern;
use anyhow::{Context, bail};
use ringway_core::device::PathFacts;
use ringway_core::refusal::bytes_text;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// What is written at a time.
const PIECE: usize = MIB as usize;
/// Large enough that a device's own cache is not all there is to it, small enough to be written in
/// a few seconds.
const USUAL: u64 = 1 << 30;
/// On tmpfs it takes memory from everybody.
const USUAL_IN_MEMORY: u64 = 256 * MIB;
/// Less than this says nothing about a device.
const LEAST: u64 = 16 * MIB;

/// The size where none is asked for: the usual one, but at most a tenth of the free space.
///
/// # Errors
///
/// When a tenth of the free space is too little to measure on.
pub fn default_size(folder: &Path) -> anyhow::Result<u64> {
    let file_system =
        PathFacts::of_path(folder).with_context(|| folder.display().to_string())?.file_system;
    let free = free_space(folder)?;
    sensible_size(free, &file_system).with_context(|| {
        let folder = folder.display();
        let free = bytes_text(free / MIB * MIB);
        format!(
            "{folder} has {free} free: too little for a scratch file, which takes at most a tenth of it; choose \
             another folder with --scratch, or a size with --size"
        )
    })
}

fn sensible_size(free: u64, file_system: &str) -> Option<u64> {
    let usual = if matches!(file_system, "tmpfs" | "ramfs") { USUAL_IN_MEMORY } else { USUAL };
    let size = usual.min(free / 10 / MIB * MIB);
    (size >= LEAST).then_some(size)
}

/// Bytes that an ordinary user may still write to the file system of `path`.
///
/// # Errors
///
/// Those of `statvfs(2)`.
pub fn free_space(path: &Path) -> anyhow::Result<u64> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the name is a C string, and the call writes one `statvfs` into the live value.
    let failed = unsafe { libc::statvfs(name.as_ptr(), stat.as_mut_ptr()) } != 0;
    if failed {
        return Err(io::Error::last_os_error()).with_context(|| path.display().to_string());
    }
    // SAFETY: the call succeeded, so it filled the value.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_bavail * stat.f_frsize)
}

/// A file without a name in `folder`, with `size` bytes of the pattern. `progress` is told of the
/// bytes written.
///
/// # Errors
///
/// Too little space, before anything is written; those of making and writing a file.
pub fn make(
    folder: &Path,
    size: u64,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<File> {
    let at =
        || format!("a scratch file in {} (choose another folder with --scratch)", folder.display());
    let free = free_space(folder)?;
    if size > free {
        let (size, free) = (bytes_text(size), bytes_text(free / MIB * MIB));
        bail!("{}: {size} are asked for and {free} are free; nothing was written", at());
    }
    let file = tempfile::tempfile_in(folder).with_context(at)?;
    lay(&file, 0, size, seed, progress).with_context(at)?;
    Ok(file)
}

/// Fills a file with the pattern from `from` up to `size`, and waits until it is on the device.
///
/// # Errors
///
/// ENOSPC before anything is written where the file system can tell; those of `pwrite(2)` and
/// `fsync(2)`.
pub fn lay(
    file: &File,
    from: u64,
    size: u64,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    reserve(file, libc::FALLOC_FL_KEEP_SIZE, size)?;
    let mut piece = vec![0; PIECE];
    let mut at = from;
    while at < size {
        let len = piece.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
        pattern::fill(seed, at, &mut piece[..len]);
        file.write_all_at(&piece[..len], at)?;
        at += len as u64;
        progress(len as u64);
    }
    file.sync_all()
}

/// Allocates the space beforehand, in one piece if possible, with these flags of `fallocate(2)`.
/// Where that cannot be done (devices, some file systems) writing will show whether there is
/// enough.
///
/// # Errors
///
/// ENOSPC, EDQUOT and EFBIG of `fallocate(2)`.
pub fn reserve(file: &File, flags: libc::c_int, size: u64) -> io::Result<()> {
    let len = i64::try_from(size).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: the call takes numbers; the descriptor is open for as long as `file` is borrowed.
    if unsafe { libc::fallocate64(file.as_raw_fd(), flags, 0, len) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error
            if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_never_is_more_than_a_tenth_of_what_is_free() {
        assert_eq!(sensible_size(1 << 40, "ext4"), Some(1 << 30));
        assert_eq!(sensible_size(1 << 40, "tmpfs"), Some(256 << 20));
        assert_eq!(sensible_size(1 << 30, "ext4"), Some(102 << 20));
        assert_eq!(sensible_size(100 << 20, "ext4"), None);
        assert_eq!(sensible_size(0, "ext4"), None);
    }

    #[test]
    fn it_is_written_and_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut told = 0;
        let size = PIECE as u64 + 5000;
        let file = make(folder.path(), size, 3, &mut |bytes| told += bytes).unwrap();
        assert_eq!((told, file.metadata().unwrap().len()), (size, size));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut content = vec![0; size as usize];
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(pattern::check(3, 0, &content).1, 0);
    }

    #[test]
    fn too_little_space_is_told_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut told = 0;
        let error = make(folder.path(), 1 << 62, 3, &mut |bytes| told += bytes).unwrap_err();
        assert!(error.to_string().contains("nothing was written"), "{error}");
        assert_eq!(told, 0);
    }
}
