//! Names of staged files and new directories. Staged files have the names that `LocalFileSystem`
//! gives them, `PATH#N`, so that both hide each other's from listings. All functions block.

use super::write_error::{Action, Result, WriteError};
use ringway_core::{OwnerProcess, run_in_background};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// How often missing parents are created. Another program may remove them again, but in `/proc`,
/// for example, no file can be created although the directory exists.
const MAX_TRIES: usize = 100;

/// Who may open a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Whoever the process lets (`umask(2)`).
    Usual,
    /// Its owner, until it has other permissions: who has opened it before can read what is written
    /// later.
    Private,
}

/// A new file under a staged name.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) file: File,
    pub(crate) name: StagedName,
}

impl NewFile {
    /// Creates a file that is to become `dest`, and missing parents.
    pub(crate) fn create(dest: &Path, access: Access) -> Result<Self> {
        let options = options(access);
        let (mut number, mut tries) = (1u64, 0);
        loop {
            let path = staged_path(dest, number);
            match options.open(&path) {
                Ok(file) => {
                    let name = Name { path: Some(path), owner: OwnerProcess::current() };
                    return Ok(Self { file, name: StagedName(Some(name)) });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) if error.kind() == ErrorKind::NotFound && tries < MAX_TRIES => {
                    tries += 1;
                    create_parents(dest, error)?;
                }
                Err(error) => return Err(Action::Open.failed(&path)(error)),
            }
        }
    }
}

fn options(access: Access) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    if access == Access::Private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = access;
    options
}

fn staged_path(dest: &Path, number: u64) -> PathBuf {
    let mut path = dest.as_os_str().to_owned();
    path.push(format!("#{number}"));
    path.into()
}

/// Creates the missing parents of a file that could not be created because of `error`.
fn create_parents(path: &Path, error: io::Error) -> Result<()> {
    let Some(parent) = path.parent() else { return Err(Action::CreateFile.failed(path)(error)) };
    std::fs::create_dir_all(parent).map_err(Action::CreateDir.failed(parent))
}

/// The name of a staged file. Dropping it removes the file on another thread, so it does not block:
/// on one of the tokio runtime, which removes it before it ends, or on one in the background. In a
/// runtime that is shutting down it removes the file in place, and blocks.
#[derive(Debug)]
pub(crate) struct StagedName(Option<Name>);

/// Dropping it removes the file and blocks meanwhile.
#[derive(Debug)]
struct Name {
    /// `None` once the name is another's.
    path: Option<PathBuf>,
    /// A forked child's copy removes nothing, and neither does a removal that it takes over from
    /// its parent's background: the name may be another write's by then.
    owner: OwnerProcess,
}

impl StagedName {
    pub(crate) fn path(&self) -> &Path {
        self.0.as_ref().and_then(|name| name.path.as_deref()).unwrap_or(Path::new(""))
    }

    /// Removes the file. Blocks.
    pub(crate) fn remove(mut self) -> Result<()> {
        match self.forget() {
            Some(path) => std::fs::remove_file(&path).map_err(Action::Delete.failed(&path)),
            None => Err(WriteError::Aborted),
        }
    }

    /// After an error, removes the file before the error is returned. Blocks.
    pub(crate) fn keep_if<T>(mut self, result: Result<T>) -> Result<(Self, T)> {
        match result {
            Ok(value) => Ok((self, value)),
            Err(error) => {
                drop(self.0.take());
                Err(error)
            }
        }
    }

    /// Makes the file `dest`, replacing what has that name. Blocks.
    pub(crate) fn rename(self, dest: &Path) -> Result<()> {
        let renamed = std::fs::rename(self.path(), dest).map_err(Action::Rename.failed(dest));
        let (mut name, ()) = self.keep_if(renamed)?;
        // The name is free for another write now.
        name.forget();
        Ok(())
    }

    /// Makes the file `dest`, unless something has that name. Blocks.
    pub(crate) fn link(mut self, dest: &Path) -> Result<()> {
        let linked = std::fs::hard_link(self.path(), dest);
        drop(self.0.take());
        linked.map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => WriteError::AlreadyExists { path: dest.to_owned(), source },
            _ => Action::Rename.failed(dest)(source),
        })
    }

    /// Takes the name, so that dropping this removes nothing.
    fn forget(&mut self) -> Option<PathBuf> {
        self.0.take()?.path.take()
    }
}

impl Drop for StagedName {
    fn drop(&mut self) {
        // A forked child starts no thread that would remove nothing.
        let Some(name) = self.0.take().filter(|name| name.owner.is_current()) else { return };
        match tokio::runtime::Handle::try_current() {
            // A runtime that shuts down drops the closure, and so the name.
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(name))),
            Err(_) => run_in_background(move || drop(name)),
        }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if let Some(path) = self.path.take().filter(|_| self.owner.is_current()) {
            // Nobody waits for the removal, so there is nobody to report an error to.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_names_are_numbered_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dest = dir.path().join("new/object");
        let first = NewFile::create(&dest, Access::Usual).unwrap();
        let second = NewFile::create(&dest, Access::Usual).unwrap();
        let names = [&first, &second].map(|new| new.name.path().file_name().unwrap().to_owned());
        assert_eq!(names, ["object#1", "object#2"]);
        first.name.remove().unwrap();
        second.name.rename(&dest).unwrap();
        let left: Vec<_> = std::fs::read_dir(dest.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_private_file_begins_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mode = |access| {
            let new = NewFile::create(&dir.path().join("object"), access).unwrap();
            new.file.metadata().unwrap().permissions().mode() & 0o777
        };
        let usual = File::create(dir.path().join("usual")).unwrap();
        assert_eq!(mode(Access::Private), 0o600);
        assert_eq!(mode(Access::Usual), usual.metadata().unwrap().permissions().mode() & 0o777);
    }

    /// A name that was published belongs to the next write, whose file must not be removed.
    #[test]
    fn a_published_name_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dest = dir.path().join("object");
        let first = NewFile::create(&dest, Access::Usual).unwrap();
        first.name.rename(&dest).unwrap();
        let second = NewFile::create(&dest, Access::Usual).unwrap();
        assert!(second.name.path().ends_with("object#1"));
        let error = NewFile::create(&dest, Access::Usual).unwrap().name.link(&dest).unwrap_err();
        assert!(matches!(error, WriteError::AlreadyExists { .. }));
        assert!(second.name.path().exists());
        assert!(!dir.path().join("object#2").exists());
    }

    /// It has another thread remove nothing either, nor does it run a removal that it inherits.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_forked_child_removes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let new = |name| NewFile::create(&dir.path().join(name), Access::Usual).unwrap().name;
        let (dropped, mut inherited) = (new("dropped"), new("inherited"));
        let paths = [dropped.path().to_owned(), inherited.path().to_owned()];
        // SAFETY: the child drops two values and ends without running anything of the parent.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            drop(dropped);
            drop(inherited.0.take());
            let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(threads != 1)) };
        }
        let mut status = 0;
        // SAFETY: the kernel writes an int into `status`.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "it has started a thread");
        assert!(paths.iter().all(|path| path.exists()));
    }

    #[test]
    fn a_runtime_that_ends_removes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let new = NewFile::create(&dir.path().join("object"), Access::Usual).unwrap();
        let path = new.name.path().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.spawn(async move {
            std::future::pending::<()>().await;
            drop(new);
        });
        drop(runtime);
        assert!(!path.exists());
    }
}
