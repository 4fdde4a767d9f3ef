//! Ask for a file's metadata: `statx(2)`.

use super::{Form, Held, Operation, Place, answer};
use crate::File;
use crate::backend::kaio_sys::Iocb;
use io_uring::{opcode, squeue, types};
use std::fmt;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

/// Metadata of `path`, relative to the working directory; symbolic links are followed.
///
/// The completion carries it ([`Completion::into_metadata`](crate::Completion::into_metadata)).
/// Errors: those of `statx(2)`; EINVAL before anything is submitted for a path with a NUL byte.
///
/// ```
/// # use ringway_core::{op, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut queue = Options::new().build()?;
/// queue.push(op::statx("/etc/passwd"))?;
/// println!("{} bytes", queue.reap(1)?.next().unwrap().into_metadata()?.len());
/// # Ok(()) }
/// ```
pub fn statx(path: impl AsRef<Path>) -> Operation {
    make(None, path.as_ref(), 0)
}

/// Metadata of `path` relative to the directory `dir`, or of `dir` itself (any open file) when `path` is empty.
///
/// `flags` are `AT_*` as in `statx(2)`: `AT_SYMLINK_NOFOLLOW`, `AT_STATX_DONT_SYNC` ...
pub fn statx_at(dir: &File, path: impl AsRef<Path>, flags: i32) -> Operation {
    let empty = if path.as_ref().as_os_str().is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    make(Some(dir), path.as_ref(), flags | empty)
}

fn make(dir: Option<&File>, path: &Path, flags: i32) -> Operation {
    let mut buffer = Box::new(Metadata::empty());
    let statx = &raw mut buffer.0;
    let dir_fd = dir.map_or(libc::AT_FDCWD, |dir| dir.as_raw_fd());
    let mut operation = Operation::with_path(path, dir, |path| Statx {
        dir: dir_fd,
        path,
        flags,
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        buffer: statx,
    });
    operation.held = match operation.held {
        Held::Paths(paths) => Held::Statx { _paths: paths, metadata: buffer },
        other => other,
    };
    operation
}

/// `statx(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Statx {
    /// The directory, or `AT_FDCWD`.
    pub dir: RawFd,
    /// The path.
    pub path: *const libc::c_char,
    /// `AT_*`.
    pub flags: i32,
    /// `STATX_*`.
    pub mask: u32,
    /// Where the answer goes.
    pub buffer: *mut libc::statx,
}

impl Form for Statx {
    fn sqe(&self, _: &Place) -> Option<squeue::Entry> {
        let buffer = self.buffer.cast::<types::statx>();
        Some(opcode::Statx::new(types::Fd(self.dir), self.path, buffer).flags(self.flags).mask(self.mask).build())
    }

    fn iocb(&self) -> Option<Iocb> {
        None
    }

    fn call(&self) -> i64 {
        // SAFETY: whoever pushed the operation keeps `path` a valid C string and `buffer` valid for writes
        // until its completion.
        answer(i64::from(unsafe { libc::statx(self.dir, self.path, self.flags, self.mask, self.buffer) }))
    }
}

/// What `statx(2)` tells of a file.
#[derive(Clone, Copy)]
pub struct Metadata(pub(crate) libc::statx);

impl Metadata {
    fn empty() -> Self {
        // SAFETY: `struct statx` is plain numbers, and all zeroes are valid.
        Self(unsafe { std::mem::zeroed() })
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.0.stx_size
    }

    /// True when the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Type and permissions, as in `stat(2)`.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.stx_mode)
    }

    /// A regular file.
    pub fn is_file(&self) -> bool {
        self.mode() & libc::S_IFMT == libc::S_IFREG
    }

    /// A directory.
    pub fn is_dir(&self) -> bool {
        self.mode() & libc::S_IFMT == libc::S_IFDIR
    }

    /// Everything `statx(2)` said.
    pub fn as_raw(&self) -> &libc::statx {
        &self.0
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata").field("len", &self.len()).field("mode", &format_args!("{:o}", self.mode())).finish()
    }
}
