//! The model of a file that operations take turns on, so that its length and its position are known
//! at every moment.

use ringway_core::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

pub(crate) struct AloneFile {
    pub file: File,
    pub path: PathBuf,
    pub direct: bool,
    /// Operations in flight.
    pub users: usize,
    pub bytes: Vec<u8>,
    pub cursor: u64,
    doubt: Doubt,
}

/// What is not known since an operation failed, was cut short or given up.
enum Doubt {
    None,
    /// The content may be this, in part or whole.
    Perhaps(Vec<u8>),
    /// More happened upon that.
    Anything,
}

/// An operation on it.
#[derive(Debug)]
pub(crate) enum Use {
    /// At a place or, without one, the file's own position.
    Read(Option<u64>),
    Write(Option<u64>, Vec<u8>),
    Truncate(u64),
    Extend(u64),
    Other,
}

impl AloneFile {
    pub fn new(file: File, path: PathBuf, direct: bool) -> Self {
        Self { file, path, direct, users: 0, bytes: Vec::new(), cursor: 0, doubt: Doubt::None }
    }

    /// The bytes that a read of `len` there comes to.
    pub fn readable(&self, at: Option<u64>, len: usize) -> &[u8] {
        let start = (at.unwrap_or(self.cursor) as usize).min(self.bytes.len());
        &self.bytes[start..(start + len).min(self.bytes.len())]
    }

    pub fn is_certain(&self) -> bool {
        matches!(self.doubt, Doubt::None)
    }

    /// It succeeded; `done` bytes were transferred.
    pub fn succeeded(&mut self, usage: &Use, done: u64) {
        if !self.is_certain() {
            self.doubt = Doubt::Anything;
            return;
        }
        let changed = self.after(usage, done as usize);
        let at_cursor = matches!(usage, Use::Read(None) | Use::Write(None, _));
        self.cursor += if at_cursor { done } else { 0 };
        match usage {
            // What a short write leaves behind its end depends on how it was cut.
            Use::Write(_, data) if done < data.len() as u64 => {
                self.doubt = Doubt::Perhaps(self.after(usage, data.len()));
            }
            _ => {}
        }
        self.bytes = changed;
    }

    /// It began, perhaps, and what came of it nobody knows.
    pub fn failed(&mut self, usage: &Use) {
        let len = if let Use::Write(_, data) = usage { data.len() } else { 0 };
        self.doubt = match &self.doubt {
            Doubt::None => Doubt::Perhaps(self.after(usage, len)),
            _ => Doubt::Anything,
        };
    }

    /// The content after the operation has transferred so much.
    fn after(&self, usage: &Use, done: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        match usage {
            Use::Write(at, data) if done > 0 => {
                let start = at.unwrap_or(self.cursor) as usize;
                bytes.resize(bytes.len().max(start + done), 0);
                bytes[start..start + done].copy_from_slice(&data[..done]);
            }
            Use::Truncate(len) => bytes.resize(*len as usize, 0),
            Use::Extend(end) => bytes.resize(bytes.len().max(*end as usize), 0),
            Use::Write(..) | Use::Read(_) | Use::Other => {}
        }
        bytes
    }

    /// With nobody using it: looks at the real file, and whether that is possible; from then on it
    /// is what is there.
    pub fn look(&mut self) -> Result<(), String> {
        let found = std::fs::read(&self.path).map_err(|error| error.to_string())?;
        // SAFETY: the call takes numbers only.
        let cursor = unsafe { libc::lseek(self.file.as_raw_fd(), 0, libc::SEEK_CUR) };
        let fits = match &self.doubt {
            Doubt::None if found == self.bytes && cursor as u64 == self.cursor => Ok(()),
            Doubt::None => Err(format!(
                "{} bytes, position {cursor}: not as the model says ({} bytes, {}; first difference at {:?})",
                found.len(),
                self.bytes.len(),
                self.cursor,
                found.iter().zip(&self.bytes).position(|(one, other)| one != other),
            )),
            Doubt::Perhaps(other) => self.is_between(&found, other),
            Doubt::Anything => Ok(()),
        };
        self.doubt = Doubt::None;
        self.bytes = found;
        self.cursor = cursor as u64;
        fits
    }

    fn is_between(&self, found: &[u8], other: &[u8]) -> Result<(), String> {
        let (shorter, longer) =
            (self.bytes.len().min(other.len()), self.bytes.len().max(other.len()));
        if !(shorter..=longer).contains(&found.len()) {
            return Err(format!("{} bytes: not from {shorter} to {longer}", found.len()));
        }
        // Where a write that extends the file was cut, there may be zeroes before its end.
        let possible = |at: usize| {
            [self.bytes.get(at).copied().unwrap_or(0), other.get(at).copied().unwrap_or(0)]
        };
        match (0..found.len()).find(|at| !possible(*at).contains(&found[*at])) {
            Some(at) => Err(format!("byte {at} is neither as before nor as after")),
            None => Ok(()),
        }
    }
}
