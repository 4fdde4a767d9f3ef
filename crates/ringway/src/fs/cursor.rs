//! The cursor of an open file: where the next read or write without an offset goes. What is read
//! and written there is in `sequential.rs`.

use ringway_core::File as CoreFile;
use std::io::Seek;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The cursor of an open file. All clones have it, and so do duplicates of the descriptor.
///
/// It is not the descriptor's own position, which a system call moves only when it ends: with the
/// ring, two of them that overlap could move it by one of their lengths, or by none.
#[derive(Debug)]
pub(super) struct Cursor {
    kind: CursorKind,
    position: Mutex<u64>,
}

/// How a file uses its cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CursorKind {
    /// It reads and writes there.
    Offset,
    /// It reads there. Writes go to the end of the file, and move it behind them.
    Append,
    /// It has no offsets: a pipe, a terminal, a character device.
    Stream,
}

impl Cursor {
    /// The cursor of a file, at the position of its descriptor.
    pub(super) fn of(file: &CoreFile) -> Self {
        let kind = match (file.is_storage(), file.appends()) {
            (false, _) => CursorKind::Stream,
            (true, Ok(true)) => CursorKind::Append,
            (true, _) => CursorKind::Offset,
        };
        let position = match kind {
            CursorKind::Stream => 0,
            _ => descriptor_position(file),
        };
        Self { kind, position: Mutex::new(position) }
    }

    pub(super) fn kind(&self) -> CursorKind {
        self.kind
    }

    pub(super) fn position(&self) -> u64 {
        *self.lock()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves it by `bytes`. Returns whether it was still at `from`: if not, somebody else has moved
    /// it, and what was read there is not what comes next.
    pub(super) fn advance(&self, from: u64, bytes: usize) -> bool {
        let mut position = self.lock();
        let is_there = *position == from || self.kind == CursorKind::Stream;
        if is_there {
            *position = position.saturating_add(bytes as u64);
        }
        is_there
    }

    pub(super) fn set(&self, position: u64) {
        *self.lock() = position;
    }

    /// Moves it to where an append has moved the descriptor's position, and returns that.
    pub(super) fn follow(&self, file: &CoreFile) -> u64 {
        let position = descriptor_position(file);
        self.set(position);
        position
    }

    /// Gives the descriptor this position, for whoever uses it next.
    ///
    /// Errors: EINVAL if the file system has no file of this length.
    pub(super) fn release(&self, file: &CoreFile) -> std::io::Result<()> {
        file.with_std(|file| self.seek(file))
    }

    /// As [`release`](Self::release).
    pub(super) fn seek(&self, mut file: &std::fs::File) -> std::io::Result<()> {
        if self.kind == CursorKind::Stream {
            return Ok(());
        }
        file.seek(std::io::SeekFrom::Start(self.position())).map(drop)
    }
}

/// The position of a descriptor: 0 if it has none.
///
/// `lseek(2)` waits for a `read(2)` or `write(2)` of the same open file, which another thread may
/// be making while its server hangs. So of a file that is not local, `/proc` is asked first.
fn descriptor_position(file: &CoreFile) -> u64 {
    let shown = if file.is_local() { None } else { shown_position(file) };
    let of_file = || file.with_std(|mut file| file.stream_position()).unwrap_or(0);
    shown.unwrap_or_else(of_file)
}

/// The position of a descriptor as `/proc` shows it, without the kernel's lock.
#[cfg(all(target_os = "linux", not(ringway_portable)))]
fn shown_position(file: &CoreFile) -> Option<u64> {
    let number = std::os::fd::AsRawFd::as_raw_fd(file);
    let shown = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{number}")).ok()?;
    shown.lines().find_map(|line| line.strip_prefix("pos:"))?.trim().parse().ok()
}

#[cfg(any(not(target_os = "linux"), ringway_portable))]
fn shown_position(_: &CoreFile) -> Option<u64> {
    None
}
