//! The results of one list of checksums: prints each line and the totals, in the words of
//! sha256sum.

use super::hash::Hashed;
use super::line::{Entry, escape};
use super::list::Malformed;
use super::options::SumArgs;
use super::progress::Progress;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The result of a line.
pub(super) enum Checked {
    /// It names this file, which has this hash.
    Read(Entry, io::Result<Hashed>),
    /// It is malformed.
    Malformed(Malformed),
    /// It cannot be read, nor the lines after it.
    Unreadable(io::Error),
}

/// The results of one list.
pub(super) struct Tally<'a> {
    list: &'a Path,
    args: &'a SumArgs,
    progress: &'a Progress,
    counts: Counts,
    is_unreadable: bool,
}

/// Lines.
#[derive(Default)]
struct Counts {
    well_formed: u64,
    malformed: u64,
    matching: u64,
    mismatching: u64,
    /// Mismatching lines whose digest was a guess.
    guessed: u64,
    unreadable: u64,
}

impl<'a> Tally<'a> {
    pub(super) fn new(list: &'a Path, args: &'a SumArgs, progress: &'a Progress) -> Self {
        Self { list, args, progress, counts: Counts::default(), is_unreadable: false }
    }

    /// Counts and prints the result of the next line.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub(super) fn add(&mut self, checked: Checked) -> anyhow::Result<()> {
        match checked {
            Checked::Read(entry, result) => self.read(&entry, result)?,
            Checked::Malformed(Malformed(number)) => {
                self.counts.malformed += 1;
                if self.args.warn {
                    self.progress.say_of(
                        self.list,
                        &format!("{number}: improperly formatted checksum line"),
                    );
                }
            }
            Checked::Unreadable(error) => {
                self.is_unreadable = true;
                self.progress.failed(self.list, &error);
            }
        }
        Ok(())
    }

    fn read(&mut self, entry: &Entry, result: io::Result<Hashed>) -> io::Result<()> {
        self.counts.well_formed += 1;
        match result {
            Err(error) if self.args.ignore_missing && error.kind() == io::ErrorKind::NotFound => {
                Ok(())
            }
            Err(error) => {
                self.counts.unreadable += 1;
                self.progress.failed(&entry.path, &error);
                self.print(&entry.path, "FAILED open or read")
            }
            Ok(hashed) => {
                if self.args.verbose {
                    self.progress.not_direct(&entry.path, hashed.not_direct);
                    self.progress.keeps_pages(&entry.path, &hashed.caching);
                }
                if hashed.hash == entry.hash {
                    self.counts.matching += 1;
                    if self.args.quiet { Ok(()) } else { self.print(&entry.path, "OK") }
                } else {
                    self.counts.mismatching += 1;
                    self.counts.guessed += u64::from(entry.guessed);
                    self.print(&entry.path, "FAILED")
                }
            }
        }
    }

    fn print(&self, path: &Path, result: &str) -> io::Result<()> {
        if self.args.status {
            return Ok(());
        }
        let name = path.as_os_str().as_bytes();
        let escaped = escape(name);
        let mark: &[u8] = if escaped == name { b"" } else { b"\\" };
        self.progress.print(&[mark, &escaped, b": ", result.as_bytes(), b"\n"].concat())
    }

    /// Prints the totals; returns whether all lines match.
    pub(super) fn finish(&self) -> bool {
        if self.counts.well_formed == 0 && !self.is_unreadable {
            self.progress.say_of(self.list, "no properly formatted checksum lines found");
        } else if !self.args.status {
            self.warn(
                self.counts.malformed,
                "line is improperly formatted",
                "lines are improperly formatted",
            );
            self.warn(
                self.counts.unreadable,
                "listed file could not be read",
                "listed files could not be read",
            );
            self.warn(
                self.counts.mismatching,
                "computed checksum did NOT match",
                "computed checksums did NOT match",
            );
            if self.counts.guessed > 0 && self.counts.matching == 0 {
                self.progress
                    .say("hashes of 64 digits were read as BLAKE3; use --algo sha256 for SHA-256");
            }
            if self.args.ignore_missing && self.counts.matching == 0 && !self.is_unreadable {
                self.progress.say_of(self.list, "no file was verified");
            }
        }
        let all_well_formed = self.counts.malformed == 0 || !self.args.strict;
        self.counts.matching > 0
            && self.counts.mismatching == 0
            && self.counts.unreadable == 0
            && all_well_formed
            && !self.is_unreadable
    }

    fn warn(&self, count: u64, one: &str, many: &str) {
        if count > 0 {
            self.progress.say(&format!("WARNING: {count} {}", if count == 1 { one } else { many }));
        }
    }
}
