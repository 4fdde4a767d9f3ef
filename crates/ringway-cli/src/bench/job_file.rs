//! fio job files for `ringway bench`: a measurement that is described for fio runs here too.
//!
//! [`parse`] turns the text of a job file into a [`Plan`]. It is pure: it opens no file, gets the
//! text of included files from its caller, and rejects environment variables. It reads the keys of
//! fio that a [`Workload`](super::workload::Workload) can express, with their meaning and defaults
//! in fio 3.33. Any other key is an error: a measurement without it would measure something else.
//! (Crates for INI files lose line numbers, repeated sections and keys without a value, which job
//! files have.)
//!
//! Some keys differ from fio. [`Plan::differences`] lists the differences that a file meets:
//!
//! * `kib`, `mib`, ... are powers of 1024; fio reads them as powers of 1000, and `ki`, `mi` as
//!   powers of 1024.
//! * Sections run one after another, as if each had `stonewall`.
//! * `rate` and `rate_iops` of a mixed workload limit reads and writes together; in fio they limit
//!   each.
//! * Jobs are always threads, and `sync`, `pvsync` and `pvsync2` use `pread` and `pwrite`.
//! * Values that fio ignores or misreads are errors: `time_based` without `runtime`, `numjobs=0`,
//!   `size=0`, negative numbers, numbers that overflow, an unknown suffix, an empty section name, a
//!   section header without `]`, shares of `bssplit` that do not add up to 100, a section in an
//!   included file.

mod entry;
mod keys;
mod section;
mod settings;
#[cfg(test)]
mod tests;

pub use keys::keys;

use super::plan::Plan;
use entry::Entry;
use section::Section;
use settings::Settings;
use std::fmt;
use std::path::{Path, PathBuf};

/// The first error in a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFileError {
    /// The line, counted from 1.
    pub line: usize,
    /// The key as it is written, if the error is about one.
    pub key: Option<String>,
    /// What is wrong, and what is accepted.
    pub message: String,
}

impl fmt::Display for JobFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if let Some(key) = &self.key {
            write!(f, "`{key}`: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for JobFileError {}

/// The depth to which included files may include others.
const MAX_INCLUDES: u32 = 16;

/// Returns the path and the text of an included file, or what is wrong with it. The arguments are
/// the path of the file that includes it (`None` for the job file) and the name in that file.
pub type Include<'a> = &'a mut dyn FnMut(Option<&Path>, &str) -> Result<(PathBuf, String), String>;

/// Reads a fio job file: a workload for each section except `[global]`, in the order of the file.
///
/// # Errors
///
/// The first line with an error, or else the first section whose settings contradict each other.
pub fn parse(text: &str, include: Include<'_>) -> Result<Plan, JobFileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut plan = Plan::default();
    let mut globals = Settings::of_fio();
    let mut sections: Vec<Section> = Vec::new();
    // Whether keys belong to `[global]`; `None` before the first header.
    let mut in_globals: Option<bool> = None;
    let mut last_line = 1;
    let error = |line, message: &str| JobFileError { line, key: None, message: message.to_owned() };

    for (line, text) in (1..).zip(text.lines()) {
        last_line = line;
        let content = content(text, line, &mut plan)?;
        if content.is_empty() {
            continue;
        }
        if let Some(header) = content.strip_prefix('[') {
            let name = header.strip_suffix(']').map(str::trim);
            let name = name.ok_or_else(|| error(line, "a section header ends with `]`"))?;
            if name.is_empty() {
                return Err(error(line, "a section needs a name, such as `[randread]`"));
            }
            in_globals = Some(name == "global");
            if name != "global" {
                // A section inherits from the `[global]` sections above it, not from those below.
                sections.push(Section { line, name: name.to_owned(), settings: globals.clone() });
            }
            continue;
        }
        let settings = match (in_globals, sections.last_mut()) {
            (Some(true), _) => &mut globals,
            (Some(false), Some(section)) => &mut section.settings,
            _ => {
                let message = "is before any section; begin one with `[global]` or `[name]`";
                return Err(Entry::new(content, line, &mut plan).error(message.to_owned()));
            }
        };
        match included(content) {
            Some(name) => settings.include(None, name, line, include, &mut plan, MAX_INCLUDES)?,
            None => settings.set(&mut Entry::new(content, line, &mut plan))?,
        }
    }

    if sections.is_empty() {
        let message = "there is no job in this file; begin one with a section such as `[randread]`";
        return Err(error(last_line, message));
    }
    if sections.iter().skip(1).any(|section| !section.settings.stonewall) {
        let difference = "the sections run one after another; fio runs sections without \
                          `stonewall` at the same time";
        plan.differences.push(difference.to_owned());
    }
    let workloads = sections.iter().map(|section| section.workload(&mut plan));
    let workloads = workloads.collect::<Result<_, _>>()?;
    Ok(Plan { workloads, ..plan })
}

/// The line without its comment and the white space around it.
///
/// As in fio, a comment begins at the first `;` or `#`, even in a word; there it leaves a note.
fn content<'a>(text: &'a str, line: usize, plan: &mut Plan) -> Result<&'a str, JobFileError> {
    let before = &text[..text.find([';', '#']).unwrap_or(text.len())];
    let content = before.trim();
    if before.len() < text.len() && before.ends_with(|c: char| !c.is_whitespace()) {
        let note = format!("line {line}: after `{content}` a comment begins, as in fio");
        plan.notes.push(note);
    }
    // Names, keys and values reach the terminal in messages and reports.
    if content.contains(|c: char| c.is_control() && c != '\t') {
        let message = "control characters are allowed in comments only".to_owned();
        return Err(JobFileError { line, key: None, message });
    }
    Ok(content)
}

/// The name of the file that a line includes.
fn included(content: &str) -> Option<&str> {
    content.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t'])).map(str::trim)
}
