//! A file that becomes an object when it gets the object's name. All functions block.

use crate::disk::Disk;
use crate::in_background::InBackground;
use crate::metadata::write_user;
use bytes::Buf;
use opendal_core::Buffer;
use ringway::fs::File;
use ringway_core::{OwnerProcess, run_in_background};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, open, renameat_with};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The most bytes of an object's name in a temporary name: names have at most 255 bytes.
const MAX_PREFIX: usize = 200;
/// The most names to try. One is enough unless someone guesses 64 random bits.
const MAX_TRIES: usize = 16;
/// The most symbolic links in a row, as in the kernel.
const MAX_LINKS: usize = 40;
const SUFFIX: &str = ".tmp";
/// Digits of the random part.
const DIGITS: usize = 16;

/// Who may open a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Whoever the process lets (`umask(2)`).
    Usual,
    /// Its owner, until the caller gives it other permissions: who has opened it before can read
    /// what is written later.
    Private,
}

impl Access {
    fn mode(self) -> u32 {
        match self {
            Self::Usual => 0o666,
            Self::Private => 0o600,
        }
    }
}

/// A file without the name of its object. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct StagedFile {
    pub(crate) file: InBackground<File>,
    pub(crate) name: StagedName,
}

/// The name of a staged file, if it has one, and that of its object. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct StagedName {
    path: Option<PathBuf>,
    /// The directory of temporary names.
    dir: PathBuf,
    object: PathBuf,
    /// A forked child's copy removes nothing.
    owner: OwnerProcess,
}

impl StagedFile {
    pub(crate) fn new(file: File, name: StagedName) -> Self {
        Self { file: InBackground::new(file), name }
    }

    /// Creates a file that is to become the object at this path, with the user's metadata and the
    /// beginning of its content. `exclusive`: only if nothing will have that name. Otherwise it
    /// will replace what is there, if necessary behind symbolic links, and gets its permissions,
    /// unless it is to be private.
    pub(crate) fn create(
        disk: &Disk,
        target: &Path,
        exclusive: bool,
        user: &[(String, String)],
        content: Buffer,
        access: Access,
    ) -> io::Result<Self> {
        let object = if exclusive { target.to_owned() } else { resolve(target)? };
        let parent = object.parent().unwrap_or(&disk.root);
        // What a link leads to may be on another file system than the root.
        let dir = disk.staging.as_deref().filter(|_| object == target).unwrap_or(parent);
        let old = if exclusive { None } else { object.symlink_metadata().ok() };
        if old.as_ref().is_some_and(Metadata::is_dir) {
            return Err(ErrorKind::IsADirectory.into());
        }
        // It gets the permissions of the old one, or those that the caller gives it.
        let old = old.filter(Metadata::is_file);
        let begins = if old.is_some() { Access::Private } else { access };
        let staged = match Self::empty(disk, dir, &object, begins) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                disk.dirs.create(dir)?;
                Self::empty(disk, dir, &object, begins)?
            }
            staged => staged?,
        };
        let (file, name) = staged;
        match fill(&file, old, access, user, content) {
            Ok(()) => Ok(Self::new(File::from_fd(file.into(), &disk.engine), name)),
            Err(error) => {
                name.remove();
                Err(error)
            }
        }
    }

    fn empty(
        disk: &Disk,
        dir: &Path,
        object: &Path,
        access: Access,
    ) -> io::Result<(fs::File, StagedName)> {
        let mode = access.mode();
        let (file, path) = match unnamed(disk, dir, mode)? {
            Some(file) => (file, None),
            None => {
                let (path, file) = with_random_name(dir, object, |path| {
                    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
                })?;
                (file, Some(path))
            }
        };
        let (dir, object) = (dir.to_owned(), object.to_owned());
        Ok((file, StagedName { path, dir, object, owner: OwnerProcess::current() }))
    }

    /// Gives the file the name of its object. `exclusive`: only if nothing has that name
    /// (AlreadyExists). After an error it may be repeated.
    pub(crate) fn publish(&mut self, disk: &Disk, exclusive: bool) -> io::Result<()> {
        match self.take_name(exclusive) {
            // The directory is missing, or was removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let Some(parent) = self.name.object.parent() else { return Err(error) };
                disk.dirs.create(parent)?;
                self.take_name(exclusive)
            }
            taken => taken,
        }
    }

    /// Removes it.
    pub(crate) fn remove(self) {
        self.name.remove();
        drop(self.file.into_inner());
    }

    fn take_name(&mut self, exclusive: bool) -> io::Result<()> {
        let StagedName { path, dir, object, .. } = &mut self.name;
        if path.is_none() {
            let file = self.file.as_fd();
            match link(file, object) {
                // A link cannot replace a name, so it gets a temporary one, which is renamed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && !exclusive => {
                    let link = |path: &Path| link(file, path);
                    *path = Some(with_random_name(dir, object, link)?.0);
                }
                linked => return linked,
            }
        }
        if let Some(path) = path {
            rename(path, object, exclusive)?;
        }
        *path = None;
        Ok(())
    }
}

/// Gives a new file the owner and, unless it is private, the permissions of the one that it
/// replaces, the user's metadata, and the beginning of its content.
fn fill(
    file: &fs::File,
    old: Option<Metadata>,
    access: Access,
    user: &[(String, String)],
    content: Buffer,
) -> io::Result<()> {
    // First: the permissions may be such that nobody may write it.
    write_user(file, user)?;
    if let Some(old) = old {
        let new = file.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            // Who may not give files away is the owner of what they write.
            let _ = fchown(file, Some(old.uid()), Some(old.gid()));
        }
        if access == Access::Usual {
            // A write clears the other bits (`S_ISUID`).
            file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        }
    }
    write_all(file, content)
}

impl StagedName {
    /// The directory of the object.
    pub(crate) fn object_dir(&self) -> &Path {
        self.object.parent().unwrap_or(&self.object)
    }

    /// Removes the file.
    pub(crate) fn remove(mut self) {
        if let Some(path) = self.path.take() {
            // It is removed because of an error, which is the one to report, or on behalf of a
            // writer that wants to hear of none.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Removes the file on another thread, and drops there what holds it open. Does not block.
    pub(crate) async fn discard<T: Send + 'static>(
        self,
        file: InBackground<T>,
        disk: &Disk,
    ) -> Result<(), opendal_core::Error> {
        let remove = move || {
            self.remove();
            drop(file.into_inner());
            Ok(())
        };
        disk.call("remove the file", remove).await
    }
}

impl Drop for StagedName {
    fn drop(&mut self) {
        if let Some(path) = self.path.take().filter(|_| self.owner.is_current()) {
            // A child that is forked meanwhile inherits the call.
            let owner = OwnerProcess::current();
            run_in_background(move || {
                if owner.is_current() {
                    // Nobody waits for the removal, so there is nobody to report an error to.
                    let _ = std::fs::remove_file(path);
                }
            });
        }
    }
}

/// Whether this may be the temporary name of a staged file.
pub(crate) fn is_temporary(name: &str) -> bool {
    let random = || name.strip_prefix('.')?.strip_suffix(SUFFIX)?.rsplit_once('.');
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    random().is_some_and(|(_, random)| random.len() == DIGITS && random.bytes().all(is_digit))
}

/// Renames a file. `exclusive`: only if nothing has the new name (AlreadyExists).
pub(crate) fn rename(from: &Path, to: &Path, exclusive: bool) -> io::Result<()> {
    if !exclusive {
        return std::fs::rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not on this file system. A link does not replace a name either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

/// Where a write through symbolic links writes to, which may be missing.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        // What is no link, or not accessible, is the next step's to judge.
        let Ok(target) = std::fs::read_link(&path) else { return Ok(path) };
        path.pop();
        path.push(target);
    }
    Err(Errno::LOOP.into())
}

/// Creates a file without a name, if that is possible here.
fn unnamed(disk: &Disk, dir: &Path, mode: u32) -> io::Result<Option<fs::File>> {
    if !disk.has_proc {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match open(dir, flags, Mode::from_raw_mode(mode)) {
        // What file systems and kernels without such files answer.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        file => Ok(Some(file?.into())),
    }
}

/// Gives a file without a name this one. Errors: AlreadyExists.
fn link(file: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, from, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// Makes something under an unused name.
fn with_random_name<T>(
    dir: &Path,
    target: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    let name = target.file_name().unwrap_or(OsStr::new("")).to_string_lossy();
    let end = (0..=name.len().min(MAX_PREFIX)).rfind(|at| name.is_char_boundary(*at)).unwrap_or(0);
    let mut tries = 0..MAX_TRIES;
    loop {
        // Its keys come from the system's random numbers.
        let random = RandomState::new().build_hasher().finish();
        let path = dir.join(format!(".{}.{random:0DIGITS$x}{SUFFIX}", &name[..end]));
        match make(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && tries.next().is_some() => {}
            made => return Ok((path, made?)),
        }
    }
}

fn write_all(mut file: &fs::File, mut content: Buffer) -> io::Result<()> {
    while !content.is_empty() {
        match file.write_vectored(&content.to_io_slice()) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => content.advance(written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_background::Probe;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// As on a file system without files that have no name.
    #[test]
    fn files_with_temporary_names_become_objects() {
        let root = tempfile::tempdir().unwrap();
        let engine = ringway::Engine::global().unwrap().clone();
        let durability = crate::Durability::None;
        let mut disk = Disk::new(engine, root.path().to_owned(), None, durability);
        disk.has_proc = false;
        let target = root.path().join("dir").join("n".repeat(250));
        let create = |content| {
            StagedFile::create(&disk, &target, false, &[], Buffer::from(content), Access::Usual)
        };
        let found = || std::fs::read_to_string(&target).unwrap();

        let (mut first, mut second) = (create("first").unwrap(), create("second").unwrap());
        let staged = names(target.parent().unwrap());
        assert!(staged.len() == 2 && staged.iter().all(|name| is_temporary(name)), "{staged:?}");
        first.publish(&disk, true).unwrap();
        let refused = second.publish(&disk, true).unwrap_err();
        assert_eq!((refused.kind(), found()), (ErrorKind::AlreadyExists, "first".to_owned()));
        create("third").unwrap().publish(&disk, false).unwrap();
        assert_eq!(found(), "third");

        // The directory is removed while a file is written elsewhere.
        disk.staging = Some(root.path().join("staging"));
        let create = |content| {
            StagedFile::create(&disk, &target, false, &[], Buffer::from(content), Access::Usual)
        };
        let mut staged = create("fourth").unwrap();
        std::fs::remove_dir_all(target.parent().unwrap()).unwrap();
        staged.publish(&disk, false).unwrap();
        assert_eq!(found(), "fourth");
        drop(create("fifth").unwrap());
        // Another thread removes what was dropped.
        let begun = std::time::Instant::now();
        while !names(&root.path().join("staging")).is_empty() {
            assert!(begun.elapsed().as_secs() < 60, "it is not removed");
            std::thread::yield_now();
        }
        assert_eq!(names(target.parent().unwrap()), ["n".repeat(250)]);
    }

    /// A file with a temporary name can be opened by others before it has its permissions.
    #[test]
    fn nobody_opens_a_file_that_becomes_private() {
        let root = tempfile::tempdir().unwrap();
        let engine = ringway::Engine::global().unwrap().clone();
        let mut disk = Disk::new(engine, root.path().to_owned(), None, crate::Durability::None);
        disk.has_proc = false;
        let [new, old] = ["new", "old"].map(|name| root.path().join(name));
        std::fs::write(&old, "old").unwrap();
        std::fs::set_permissions(&old, Permissions::from_mode(0o640)).unwrap();
        let mode = |target: &Path, access| {
            let staged = StagedFile::create(&disk, target, false, &[], Buffer::new(), access);
            let path = staged.as_ref().unwrap().name.path.clone().unwrap();
            path.metadata().unwrap().mode() & 0o777
        };
        assert_eq!(mode(&new, Access::Private), 0o600);
        assert_eq!(mode(&old, Access::Private), 0o600);
        assert_eq!(mode(&old, Access::Usual), 0o640);
        let usual = fs::File::create(root.path().join("usual")).unwrap();
        assert_eq!(mode(&new, Access::Usual), usual.metadata().unwrap().mode() & 0o777);
    }

    /// The last close of a file without a name frees all that was written.
    #[test]
    fn a_removal_that_never_begins_drops_nothing_here() {
        let root = tempfile::tempdir().unwrap();
        let engine = ringway::Engine::global().unwrap().clone();
        let disk = Disk::new(engine, root.path().to_owned(), None, crate::Durability::None);
        let object = root.path().join("object");
        let (_, name) = StagedFile::empty(&disk, root.path(), &object, Access::Usual).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        drop(name.discard(InBackground::new(Probe(sender)), &disk));
        let dropped = receiver.recv_timeout(std::time::Duration::from_secs(20));
        assert_ne!(dropped.unwrap(), std::thread::current().id());
    }

    /// Nobody may write to the file then, not even the user's metadata, but by its descriptor.
    #[test]
    fn a_file_that_may_only_be_read_is_replaced() {
        // (Threads that are started meanwhile are the user's, too.)
        let name = "staged::tests::a_file_that_may_only_be_read_is_replaced";
        crate::test::alone(name, async { replace_a_file_that_may_only_be_read() });
    }

    fn replace_a_file_that_may_only_be_read() {
        let root = tempfile::tempdir().unwrap();
        let old = root.path().join("old");
        fs::write(&old, "old").unwrap();
        fs::set_permissions(&old, Permissions::from_mode(0o444)).unwrap();
        if rustix::process::geteuid().is_root() {
            let user = rustix::process::Uid::from_raw(1000);
            for path in [root.path(), old.as_path()] {
                std::os::unix::fs::chown(path, Some(1000), None).unwrap();
            }
            rustix::thread::set_thread_uid(user).unwrap();
        }
        let engine = ringway::Engine::global().unwrap().clone();
        let disk = Disk::new(engine, root.path().to_owned(), None, crate::Durability::None);
        let user = [("key".to_owned(), "value".to_owned())];
        let content = Buffer::from("new");
        let staged = StagedFile::create(&disk, &old, false, &user, content, Access::Usual);
        staged.unwrap().publish(&disk, false).unwrap();
        assert_eq!(fs::read(&old).unwrap(), b"new");
        assert_eq!(old.metadata().unwrap().mode() & 0o777, 0o444);
    }

    #[test]
    fn temporary_names_are_told_from_others() {
        for name in [".object.0123456789abcdef.tmp", ".a.b.0123456789abcdef.tmp"] {
            assert!(is_temporary(name), "{name}");
        }
        for name in [
            "object.0123456789abcdef.tmp",
            ".object.0123456789abcde.tmp",
            ".object.0123456789ABCDEF.tmp",
            ".object.0123456789abcdef",
            ".tmp",
            "",
        ] {
            assert!(!is_temporary(name), "{name}");
        }
    }
}
