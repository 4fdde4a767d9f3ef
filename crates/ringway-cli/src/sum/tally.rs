//! What came of the lines of one file of hashes: said line by line and summed up, in the words of
//! sha256sum.

use super::hash::Hashed;
use super::line::{Entry, escape};
use super::list::NotUnderstood;
use super::options::SumArgs;
use super::progress::Progress;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What came of a line.
pub(super) enum Outcome {
    /// It names this file, and this is what was read.
    Read(Entry, io::Result<Hashed>),
    /// It is not understood.
    NotUnderstood(NotUnderstood),
    /// It cannot be read, nor anything after it.
    Broken(io::Error),
}

/// The account of a file of hashes.
pub(super) struct Tally<'a> {
    list: &'a Path,
    args: &'a SumArgs,
    progress: &'a Progress,
    understood: u64,
    not_understood: u64,
    matching: u64,
    mismatching: u64,
    /// Mismatching, but their digest was a guess.
    guessed: u64,
    unreadable: u64,
    is_broken: bool,
}

impl<'a> Tally<'a> {
    pub(super) fn new(list: &'a Path, args: &'a SumArgs, progress: &'a Progress) -> Self {
        Self {
            list,
            args,
            progress,
            understood: 0,
            not_understood: 0,
            matching: 0,
            mismatching: 0,
            guessed: 0,
            unreadable: 0,
            is_broken: false,
        }
    }

    /// Tells what came of the next line.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub(super) fn add(&mut self, outcome: Outcome) -> anyhow::Result<()> {
        match outcome {
            Outcome::Read(entry, result) => self.read(&entry, result)?,
            Outcome::NotUnderstood(NotUnderstood(number)) => {
                self.not_understood += 1;
                if self.args.warn {
                    self.progress.say_of(
                        self.list,
                        &format!("{number}: improperly formatted checksum line"),
                    );
                }
            }
            Outcome::Broken(error) => {
                self.is_broken = true;
                self.progress.failed(self.list, &error);
            }
        }
        Ok(())
    }

    fn read(&mut self, entry: &Entry, result: io::Result<Hashed>) -> io::Result<()> {
        self.understood += 1;
        match result {
            Err(error) if self.args.ignore_missing && error.kind() == io::ErrorKind::NotFound => {
                Ok(())
            }
            Err(error) => {
                self.unreadable += 1;
                self.progress.failed(&entry.path, &error);
                self.print(&entry.path, "FAILED open or read")
            }
            Ok(hashed) => {
                self.progress
                    .not_direct(&entry.path, hashed.not_direct.filter(|_| self.args.verbose));
                if hashed.hash == entry.hash {
                    self.matching += 1;
                    if self.args.quiet { Ok(()) } else { self.print(&entry.path, "OK") }
                } else {
                    self.mismatching += 1;
                    self.guessed += u64::from(entry.guessed);
                    self.print(&entry.path, "FAILED")
                }
            }
        }
    }

    fn print(&self, path: &Path, verdict: &str) -> io::Result<()> {
        if self.args.status {
            return Ok(());
        }
        let name = path.as_os_str().as_bytes();
        let escaped = escape(name);
        let mark: &[u8] = if escaped == name { b"" } else { b"\\" };
        self.progress.print(&[mark, &escaped, b": ", verdict.as_bytes(), b"\n"].concat())
    }

    /// Tells what there is to tell of all lines; whether everything is as the file says.
    pub(super) fn sum_up(&self) -> bool {
        if self.understood == 0 && !self.is_broken {
            self.progress.say_of(self.list, "no properly formatted checksum lines found");
        } else if !self.args.status {
            self.warn(
                self.not_understood,
                "line is improperly formatted",
                "lines are improperly formatted",
            );
            self.warn(
                self.unreadable,
                "listed file could not be read",
                "listed files could not be read",
            );
            self.warn(
                self.mismatching,
                "computed checksum did NOT match",
                "computed checksums did NOT match",
            );
            if self.guessed > 0 && self.matching == 0 {
                self.progress.say("hashes of 64 digits were taken for BLAKE3; --algo sha256 takes them for SHA-256");
            }
            if self.args.ignore_missing && self.matching == 0 && !self.is_broken {
                self.progress.say_of(self.list, "no file was verified");
            }
        }
        let all_understood = self.not_understood == 0 || !self.args.strict;
        self.matching > 0
            && self.mismatching == 0
            && self.unreadable == 0
            && all_understood
            && !self.is_broken
    }

    fn warn(&self, count: u64, one: &str, many: &str) {
        if count > 0 {
            self.progress.say(&format!("WARNING: {count} {}", if count == 1 { one } else { many }));
        }
    }
}
