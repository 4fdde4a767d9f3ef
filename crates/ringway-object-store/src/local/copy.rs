//! Copying a file's content into a new file. All functions block.

use super::open::open_std;
use super::turns::Ticket;
use super::write_error::{Result, WriteError};
use ringway::{Engine, fs};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Bytes that are copied before the next look at whether the copy is still wanted.
const STEP: u64 = 8 << 20;

/// The source of a copy. Dropping it blocks nobody.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: fs::File,
    /// Those that a copy gets.
    pub(crate) permissions: Permissions,
}

/// Opens the source of a copy, a regular file. (To open a FIFO waits for a writer.)
///
/// # Errors
///
/// NotFound if there is none; IsADirectory; InvalidInput if it is no regular file.
pub(crate) fn open(engine: &Engine, from: &Path, to: &Path) -> Result<Source> {
    let failed = |source| WriteError::Copy { from: from.to_owned(), to: to.to_owned(), source };
    let metadata = std::fs::metadata(from).map_err(|source| match source.kind() {
        ErrorKind::NotFound => WriteError::NotFound { path: from.to_owned(), source },
        _ => failed(source),
    })?;
    check(&metadata).map_err(failed)?;
    let file = open_std(from).map_err(failed)?;
    // Something else may have taken its place.
    let metadata = file.metadata().map_err(failed)?;
    check(&metadata).map_err(failed)?;
    let file = fs::File::from_fd(file.into(), engine);
    Ok(Source { file, permissions: of_copy(&metadata) })
}

fn check(metadata: &Metadata) -> io::Result<()> {
    match metadata {
        metadata if metadata.is_dir() => Err(ErrorKind::IsADirectory.into()),
        metadata if metadata.is_file() => Ok(()),
        _ => Err(io::Error::new(ErrorKind::InvalidInput, "only a regular file can be copied")),
    }
}

/// The permissions of a copy. It belongs to whoever makes it, and must not run with their rights
/// because the source runs with those of its owner (`S_ISUID`, `S_ISGID`).
fn of_copy(source: &Metadata) -> Permissions {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        Permissions::from_mode(source.permissions().mode() & 0o777)
    }
    #[cfg(not(unix))]
    source.permissions()
}

/// Copies content and permissions. Linux shares the data where the file system can, and copies it
/// in the kernel elsewhere (`copy_file_range(2)`).
///
/// # Errors
///
/// Those of reading and writing; Interrupted if nobody wants the copy any more.
pub(crate) fn copy(from: Source, mut to: &File, ticket: &Ticket) -> io::Result<()> {
    // First: nobody may read of the copy what they may not read of the source.
    to.set_permissions(from.permissions)?;
    let in_use = |_| io::Error::other("the source of a copy is in use");
    let mut source = File::try_from(from.file).map_err(in_use)?;
    while io::copy(&mut source.by_ref().take(STEP), &mut to)? > 0 {
        ticket.check().map_err(|_| ErrorKind::Interrupted)?;
    }
    Ok(())
}

/// What a rename leaves under the old name: it does nothing if both names are of one file
/// (`rename(2)`). Then the old name is removed.
pub(crate) fn finish_rename(from: &Path, to: &Path) -> io::Result<()> {
    match is_other_name(from, to) {
        Ok(true) => std::fs::remove_file(from),
        Ok(false) => Ok(()),
        // The new name may be that of a link to the directory of the old one.
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether there is nothing of this name.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Whether both are names of one file, and different ones: in two directories, or two entries of
/// one directory. Paths that differ need not be, where a directory ignores case, or is mounted
/// twice.
#[cfg(unix)]
fn is_other_name(from: &Path, to: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let (old, new) = (std::fs::symlink_metadata(from)?, std::fs::symlink_metadata(to)?);
    // A file with one name has been reached by two spellings of it.
    if identity(&old) != identity(&new) || old.nlink() < 2 || old.is_dir() {
        return Ok(false);
    }
    let parent = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_owned();
    let (old_dir, new_dir) = (parent(from), parent(to));
    if identity(&std::fs::metadata(&old_dir)?) != identity(&std::fs::metadata(new_dir)?) {
        return Ok(true);
    }
    let (old, new) = (from.file_name(), to.file_name());
    if old == new {
        return Ok(false);
    }
    let (mut has_old, mut has_new) = (false, false);
    for entry in std::fs::read_dir(old_dir)? {
        let name = entry?.file_name();
        has_old |= old == Some(&name);
        has_new |= new == Some(&name);
    }
    Ok(has_old && has_new)
}

#[cfg(windows)]
fn is_other_name(_: &Path, _: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(all(test, unix))]
mod tests {
    use super::super::turns::Turns;
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, to) = (dir.path().join("fifo"), dir.path().join("to"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let engine = Engine::global().unwrap();
        let refused = open(engine, &fifo, &to).unwrap_err();
        assert!(
            matches!(&refused, WriteError::Copy { source, .. }
                if source.kind() == ErrorKind::InvalidInput),
            "{refused:?}"
        );
        assert!(open(engine, dir.path(), &to).is_err());
        fs::write(&to, b"content").unwrap();
        let source = File::try_from(open(engine, &to, &to).unwrap().file).unwrap();
        assert_eq!(source.metadata().unwrap().len(), 7);
    }

    /// Nobody may read of a staged file what they may not read of its source.
    #[test]
    fn an_incomplete_copy_has_the_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        fs::write(&from, vec![7; STEP as usize + 1]).unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o600)).unwrap();
        let (interest, ticket) = Arc::new(Turns::default()).ticket();
        drop(interest);
        let target = File::create(&to).unwrap();
        let source = open(Engine::global().unwrap(), &from, &to).unwrap();
        let ended = copy(source, &target, &ticket).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::Interrupted);
        let found = target.metadata().unwrap();
        assert_eq!((found.len(), found.permissions().mode() & 0o7777), (STEP, 0o600));
    }

    #[test]
    fn only_another_name_of_the_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("d")).unwrap();
        std::os::unix::fs::symlink("d", at("link")).unwrap();
        fs::write(at("d/a"), b"a").unwrap();
        fs::write(at("c"), b"c").unwrap();
        fs::hard_link(at("d/a"), at("b")).unwrap();
        finish_rename(&at("d/a"), &at("link/a")).unwrap();
        finish_rename(&at("d/a"), &at("d/a")).unwrap();
        finish_rename(&at("d/a"), &at("c")).unwrap();
        finish_rename(&at("missing"), &at("c")).unwrap();
        finish_rename(&at("c/a"), &at("c")).unwrap();
        assert!(at("d/a").exists());
        finish_rename(&at("d/a"), &at("b")).unwrap();
        assert!(!at("d/a").exists() && at("b").exists() && at("c").exists());
    }

    /// One directory that is mounted twice has two paths for each entry, as has a directory that
    /// ignores case.
    #[cfg(target_os = "linux")]
    #[test]
    fn two_paths_of_one_entry_are_one_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("d")).unwrap();
        fs::create_dir(at("mounted")).unwrap();
        fs::write(at("d/a"), b"a").unwrap();
        fs::hard_link(at("d/a"), at("d/b")).unwrap();
        // The mount ends with the thread.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if let Err(error) = bind(&at("d"), &at("mounted")) {
                    return println!("skipped: no mounts: {error}");
                }
                finish_rename(&at("d/a"), &at("mounted/a")).unwrap();
                assert!(at("d/a").exists(), "the entry was removed");
                finish_rename(&at("d/a"), &at("mounted/b")).unwrap();
                assert!(!at("d/a").exists() && at("d/b").exists());
            });
        });
    }

    /// Mounts a directory once more. Only the calling thread sees that.
    #[cfg(target_os = "linux")]
    fn bind(dir: &Path, mounted: &Path) -> io::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let [dir, mounted] =
            [dir, mounted].map(|path| std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap());
        let (none, root, null) = (c"none".as_ptr(), c"/".as_ptr(), std::ptr::null());
        // SAFETY: the strings live through the calls, and the other pointers may be null.
        let is_mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(none, root, null, libc::MS_REC | libc::MS_PRIVATE, null.cast()) == 0
                && libc::mount(dir.as_ptr(), mounted.as_ptr(), null, libc::MS_BIND, null.cast())
                    == 0
        };
        if is_mounted { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
