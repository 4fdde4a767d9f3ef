//! The functions of `ringway.os` and `ringway.path`, on Linux. Elsewhere these modules have the
//! functions of `os`, in threads: an engine would use threads for them as well.

use crate::answer::Answer;
use crate::engine::Engine;
use crate::errors::os_error;
use crate::paths::{call, checked};
use crate::system::{duplicate, reference};
use pyo3::prelude::*;
use ringway::fs::{File, FileType, OpenOptions};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// The directory that a path starts from: a duplicate of a descriptor that the program gave, or
/// `None` for the working directory.
struct Directory(Option<OwnedFd>);

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // To open "." would need the right to search it, which an absolute path does not.
        self.0.as_ref().map_or(rustix::fs::CWD, |fd| fd.as_fd())
    }
}

/// The directory of `dir_fd`, which an absolute path ignores, as the kernel does. For the caller's
/// thread: a call that is cancelled may begin when the program has closed the descriptor, and its
/// number is that of another directory. Errors: EBADF, EMFILE.
fn directory(fd: Option<RawFd>, path: &Path) -> io::Result<Directory> {
    fd.filter(|_| path.is_relative()).map(duplicate).transpose().map(Directory)
}

/// `stat(2)`, `lstat(2)`, or `fstatat(2)` in a directory.
#[pyfunction]
#[pyo3(signature = (engine, path, follow, dir_fd, name))]
pub fn stat(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    follow: bool,
    dir_fd: Option<RawFd>,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    let (path, inner) = (checked(path)?, engine.shared.engine.clone());
    let dir_fd = dir_fd.filter(|_| path.is_relative());
    engine.shared.start(py, Some(&name), async move {
        let metadata = match (dir_fd, follow) {
            (None, true) => inner.fs().metadata(path).await?,
            (None, false) => inner.fs().symlink_metadata(path).await?,
            (Some(fd), _) => {
                let dir = File::from_fd(duplicate(fd)?, &inner);
                let nofollow = if follow { 0 } else { libc::O_NOFOLLOW };
                let mut options = OpenOptions::new();
                options.read(true).in_dir(&dir).custom_flags(libc::O_PATH | nofollow);
                options.open(path).await?.metadata().await?
            }
        };
        Ok(Answer::Metadata(metadata))
    })
}

/// `rename(2)`.
#[pyfunction]
#[pyo3(signature = (engine, from, to, from_dir, to_dir, names))]
pub fn rename(
    py: Python<'_>,
    engine: &Engine,
    from: PathBuf,
    to: PathBuf,
    from_dir: Option<RawFd>,
    to_dir: Option<RawFd>,
    names: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    let (from, to) = (checked(from)?, checked(to)?);
    if from_dir.is_some() || to_dir.is_some() {
        let (from_dir, to_dir) = (directory(from_dir, &from), directory(to_dir, &to));
        return call(py, engine, names, move || {
            rustix::fs::renameat(from_dir?, from, to_dir?, to)?;
            Ok(Answer::Nothing)
        });
    }
    let inner = engine.shared.engine.clone();
    engine.shared.start(py, Some(&names), async move {
        inner.fs().rename(from, to).await?;
        Ok(Answer::Nothing)
    })
}

/// `unlink(2)`, or `rmdir(2)` of a directory.
#[pyfunction]
#[pyo3(signature = (engine, path, is_dir, dir_fd, name))]
pub fn remove(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    is_dir: bool,
    dir_fd: Option<RawFd>,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    use rustix::fs::AtFlags;
    let path = checked(path)?;
    if dir_fd.is_some() {
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let dir = directory(dir_fd, &path);
        return call(py, engine, name, move || {
            rustix::fs::unlinkat(dir?, path, flags)?;
            Ok(Answer::Nothing)
        });
    }
    let inner = engine.shared.engine.clone();
    engine.shared.start(py, Some(&name), async move {
        if is_dir {
            inner.fs().remove_dir(path).await?;
        } else {
            inner.fs().remove_file(path).await?;
        }
        Ok(Answer::Nothing)
    })
}

/// `mkdir(2)`.
#[pyfunction]
#[pyo3(signature = (engine, path, mode, dir_fd, name))]
pub fn mkdir(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    mode: c_int,
    dir_fd: Option<RawFd>,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    // As os does, which also accepts -1.
    let (path, mode) = (checked(path)?, mode.cast_unsigned());
    if dir_fd.is_some() {
        let dir = directory(dir_fd, &path);
        return call(py, engine, name, move || {
            rustix::fs::mkdirat(dir?, path, mode.into())?;
            Ok(Answer::Nothing)
        });
    }
    let inner = engine.shared.engine.clone();
    engine.shared.start(py, Some(&name), async move {
        ringway::fs::DirBuilder::new().mode(mode).engine(&inner).create(path).await?;
        Ok(Answer::Nothing)
    })
}

/// `symlink(2)`.
#[pyfunction]
#[pyo3(signature = (engine, target, path, dir_fd, names))]
pub fn symlink(
    py: Python<'_>,
    engine: &Engine,
    target: PathBuf,
    path: PathBuf,
    dir_fd: Option<RawFd>,
    names: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    let (target, path) = (checked(target)?, checked(path)?);
    if dir_fd.is_some() {
        let dir = directory(dir_fd, &path);
        return call(py, engine, names, move || {
            rustix::fs::symlinkat(target, dir?, path)?;
            Ok(Answer::Nothing)
        });
    }
    let inner = engine.shared.engine.clone();
    engine.shared.start(py, Some(&names), async move {
        inner.fs().symlink(target, path).await?;
        Ok(Answer::Nothing)
    })
}

/// `linkat(2)`.
#[pyfunction]
#[pyo3(signature = (engine, from, to, from_dir, to_dir, follow, names))]
#[expect(clippy::too_many_arguments, reason = "those of os.link")]
pub fn link(
    py: Python<'_>,
    engine: &Engine,
    from: PathBuf,
    to: PathBuf,
    from_dir: Option<RawFd>,
    to_dir: Option<RawFd>,
    follow: bool,
    names: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    use rustix::fs::AtFlags;
    let (from, to) = (checked(from)?, checked(to)?);
    if from_dir.is_some() || to_dir.is_some() || follow {
        let flags = if follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
        let (from_dir, to_dir) = (directory(from_dir, &from), directory(to_dir, &to));
        return call(py, engine, names, move || {
            rustix::fs::linkat(from_dir?, from, to_dir?, to, flags)?;
            Ok(Answer::Nothing)
        });
    }
    let inner = engine.shared.engine.clone();
    engine.shared.start(py, Some(&names), async move {
        inner.fs().hard_link(from, to).await?;
        Ok(Answer::Nothing)
    })
}

/// `readlink(2)`.
#[pyfunction]
#[pyo3(signature = (engine, path, dir_fd, name))]
pub fn readlink(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    dir_fd: Option<RawFd>,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    use std::os::unix::ffi::OsStringExt;
    let path = checked(path)?;
    let dir = directory(dir_fd, &path);
    call(py, engine, name, move || {
        let target = rustix::fs::readlinkat(dir?, path, Vec::new())?;
        Ok(Answer::of(std::ffi::OsString::from_vec(target.into_bytes())))
    })
}

/// `faccessat(2)`: whether it is allowed. Like `os.access`, it is not if the call fails.
#[pyfunction]
#[pyo3(signature = (engine, path, mode, dir_fd, flags, name))]
pub fn access(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    mode: c_int,
    dir_fd: Option<RawFd>,
    flags: u32,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    use rustix::fs::{Access, AtFlags};
    let path = checked(path)?;
    let mode = Access::from_bits_retain(mode.cast_unsigned());
    let flags = AtFlags::from_bits_retain(flags);
    let dir = directory(dir_fd, &path);
    call(py, engine, name, move || {
        let allowed = dir.and_then(|dir| Ok(rustix::fs::accessat(dir, path, mode, flags)?));
        Ok(Answer::of(allowed.is_ok()))
    })
}

/// The character of a type of file in a listing.
fn type_of(kind: FileType) -> char {
    match () {
        () if kind.is_dir() => 'd',
        () if kind.is_file() => 'f',
        () if kind.is_symlink() => 'l',
        () => 'o',
    }
}

/// The names in a directory, with type and inode number.
#[pyfunction]
pub fn entries(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    let (path, inner) = (checked(path)?, engine.shared.engine.clone());
    engine.shared.start(py, Some(&name), async move {
        let mut found = Vec::new();
        let mut listing = inner.fs().read_dir(path).await?;
        while let Some(entry) = listing.next_entry().await? {
            // A file that is gone by now has no type.
            let kind = entry.file_type().await.ok().map(type_of);
            found.push((entry.file_name(), kind, entry.ino()));
        }
        Ok(Answer::of(found))
    })
}

/// `statvfs(2)`, or `fstatvfs(2)`: the numbers of an `os.statvfs_result`.
#[pyfunction]
#[pyo3(signature = (engine, path, fd, name))]
pub fn statvfs(
    py: Python<'_>,
    engine: &Engine,
    path: PathBuf,
    fd: Option<RawFd>,
    name: Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    let (path, fd) = (checked(path)?, fd.map(reference));
    call(py, engine, name, move || {
        let stat = match fd {
            Some(fd) => rustix::fs::fstatvfs(fd?)?,
            None => rustix::fs::statvfs(path)?,
        };
        let numbers = vec![
            stat.f_bsize,
            stat.f_frsize,
            stat.f_blocks,
            stat.f_bfree,
            stat.f_bavail,
            stat.f_files,
            stat.f_ffree,
            stat.f_favail,
            // Without ST_VALID, which is between the kernel and the C library.
            stat.f_flag.bits() & !0x20,
            stat.f_namemax,
            stat.f_fsid,
        ];
        Ok(Answer::of(numbers))
    })
}

/// `sendfile(2)`: one call.
#[pyfunction]
#[pyo3(signature = (engine, out_fd, in_fd, offset, count))]
pub fn sendfile(
    py: Python<'_>,
    engine: &Engine,
    out_fd: RawFd,
    in_fd: RawFd,
    offset: Option<u64>,
    count: usize,
) -> PyResult<Py<PyAny>> {
    // Descriptors that are closed meanwhile must not become others.
    let fds = duplicate(out_fd).and_then(|out| Ok((out, duplicate(in_fd)?)));
    let (out, input) = fds.map_err(|error| os_error(py, &error, None))?;
    let inner = engine.shared.engine.clone();
    engine.shared.start(py, None, async move {
        let send = move || {
            let mut at = offset;
            Ok(rustix::fs::sendfile(out, input, at.as_mut(), count)? as u64)
        };
        Ok(Answer::Count(inner.call(send).await?))
    })
}
