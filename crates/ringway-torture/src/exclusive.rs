//! The model of a file that one operation (or chain) uses at a time, so that its length and current
//! position are known at every moment. `shared.rs` has files with concurrent operations.

use ringway_core::File;
use std::io::Seek;
use std::path::PathBuf;

pub(crate) struct ExclusiveFile {
    pub file: File,
    pub path: PathBuf,
    pub direct: bool,
    /// Operations in flight.
    pub users: usize,
    pub bytes: Vec<u8>,
    pub position: u64,
    uncertainty: Uncertainty,
}

/// What is unknown after an operation failed, was short or was abandoned.
enum Uncertainty {
    None,
    /// The file may have this content, in part or whole.
    Perhaps(Vec<u8>),
    /// Another operation ran on uncertain content.
    Anything,
}

/// An operation on the file.
#[derive(Debug)]
pub(crate) enum Use {
    /// At an offset or, with `None`, at the current position.
    Read(Option<u64>),
    Write(Option<u64>, Vec<u8>),
    Truncate(u64),
    Extend(u64),
    Other,
}

impl ExclusiveFile {
    pub fn new(file: File, path: PathBuf, direct: bool) -> Self {
        Self {
            file,
            path,
            direct,
            users: 0,
            bytes: Vec::new(),
            position: 0,
            uncertainty: Uncertainty::None,
        }
    }

    /// The bytes that a read of `len` bytes returns.
    pub fn readable(&self, at: Option<u64>, len: usize) -> &[u8] {
        let start = (at.unwrap_or(self.position) as usize).min(self.bytes.len());
        &self.bytes[start..(start + len).min(self.bytes.len())]
    }

    pub fn is_certain(&self) -> bool {
        matches!(self.uncertainty, Uncertainty::None)
    }

    /// The operation succeeded and transferred `done` bytes.
    pub fn succeeded(&mut self, usage: &Use, done: u64) {
        if !self.is_certain() {
            self.uncertainty = Uncertainty::Anything;
            return;
        }
        let changed = self.after(usage, done as usize);
        let at_position = matches!(usage, Use::Read(None) | Use::Write(None, _));
        self.position += if at_position { done } else { 0 };
        match usage {
            // What a short write leaves beyond its count depends on how it was split.
            Use::Write(_, data) if done < data.len() as u64 => {
                self.uncertainty = Uncertainty::Perhaps(self.after(usage, data.len()));
            }
            _ => {}
        }
        self.bytes = changed;
    }

    /// The operation failed and may have had an effect.
    pub fn failed(&mut self, usage: &Use) {
        let len = if let Use::Write(_, data) = usage { data.len() } else { 0 };
        self.uncertainty = match &self.uncertainty {
            Uncertainty::None => Uncertainty::Perhaps(self.after(usage, len)),
            _ => Uncertainty::Anything,
        };
    }

    /// The content after the operation has transferred `done` bytes.
    fn after(&self, usage: &Use, done: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        match usage {
            Use::Write(at, data) if done > 0 => {
                let start = at.unwrap_or(self.position) as usize;
                bytes.resize(bytes.len().max(start + done), 0);
                bytes[start..start + done].copy_from_slice(&data[..done]);
            }
            Use::Truncate(len) => bytes.resize(*len as usize, 0),
            Use::Extend(end) => bytes.resize(bytes.len().max(*end as usize), 0),
            Use::Write(..) | Use::Read(_) | Use::Other => {}
        }
        bytes
    }

    /// Compares the model with the real file, which is not in use, and continues with what the file
    /// has.
    pub fn look(&mut self) -> Result<(), String> {
        let found = std::fs::read(&self.path).map_err(|error| error.to_string())?;
        let position = self.file.with_std(|mut file| file.stream_position());
        let position = position.map_err(|error| error.to_string())?;
        let fits = match &self.uncertainty {
            Uncertainty::None if found == self.bytes && position == self.position => Ok(()),
            Uncertainty::None => Err(format!(
                "{} bytes, position {position}: the model has {} bytes, position {}; first \
                 difference at {:?}",
                found.len(),
                self.bytes.len(),
                self.position,
                found.iter().zip(&self.bytes).position(|(one, other)| one != other),
            )),
            Uncertainty::Perhaps(other) => self.is_between(&found, other),
            Uncertainty::Anything => Ok(()),
        };
        self.uncertainty = Uncertainty::None;
        self.bytes = found;
        self.position = position;
        fits
    }

    fn is_between(&self, found: &[u8], other: &[u8]) -> Result<(), String> {
        let (shorter, longer) =
            (self.bytes.len().min(other.len()), self.bytes.len().max(other.len()));
        if !(shorter..=longer).contains(&found.len()) {
            return Err(format!("{} bytes, not {shorter} to {longer}", found.len()));
        }
        // A write that extends the file may leave zeroes where it was cut short.
        let possible = |at: usize| {
            [self.bytes.get(at).copied().unwrap_or(0), other.get(at).copied().unwrap_or(0)]
        };
        match (0..found.len()).find(|at| !possible(*at).contains(&found[*at])) {
            Some(at) => {
                Err(format!("byte {at} is neither that before nor that after the operation"))
            }
            None => Ok(()),
        }
    }
}
