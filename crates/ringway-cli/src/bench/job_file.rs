//! fio job files for `ringway bench`: a measurement that is described for fio runs here too.
//!
//! [`parse`] turns the text of a job file into [`Workload`]s. It is pure: it opens no file, gets
//! the text of included files from its caller, and rejects environment variables. It reads the keys
//! of fio that a [`Workload`] can express, with their meaning and defaults in fio 3.33. Any other
//! key is an error: a measurement without it would measure something else. (Crates for INI files
//! lose line numbers, repeated sections and keys without a value, which job files have.)
//!
//! Some keys differ from fio. [`JobFile::differences`] lists the differences that a file meets:
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

use super::workload::{
    Access, Advice, Backend, MAX_FILE, MAX_REQUEST, Pause, Rate, Sizes, Start, Stop, Sync, Target,
    Workload,
};
use clap::ValueEnum;
use ringway_measure::units::{parse_duration, parse_size};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The contents of a job file.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// One workload for each section except `[global]`, in the order of the file. Never empty.
    pub jobs: Vec<Workload>,
    /// Keys that do not mean the same as in fio.
    pub differences: Vec<String>,
    /// Other remarks, such as keys without effect.
    pub notes: Vec<String>,
}

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

/// All supported keys, for the help and for error messages.
#[rustfmt::skip]
pub const KEYS: &[&str] = &[
    "blocksize", "blocksize_range", "bs", "bsrange", "bssplit", "buffered", "continue_on_error",
    "description", "direct", "directory", "fadvise_hint", "fallocate", "fdatasync", "filename",
    "filesize", "fixedbufs", "fsync", "group_reporting", "hipri", "io_size", "iodepth",
    "iodepth_batch", "iodepth_batch_complete", "iodepth_batch_complete_min",
    "iodepth_batch_submit", "ioengine", "name", "norandommap", "nrfiles", "numjobs", "offset",
    "overwrite", "ramp_time", "randrepeat", "randseed", "rate", "rate_iops", "readwrite",
    "registerfiles", "runtime", "rw", "rwmixread", "rwmixwrite", "size", "sqthread_poll",
    "stonewall", "thinktime", "thinktime_blocks", "thread", "threads", "time_based", "timeout",
    "wait_for_previous",
];

const ENGINES: &[(&str, Backend)] = &[
    ("io_uring", Backend::Uring),
    ("libaio", Backend::Kaio),
    ("sync", Backend::Psync),
    ("psync", Backend::Psync),
    ("pvsync", Backend::Psync),
    ("pvsync2", Backend::Psync),
    ("null", Backend::Null),
];

const ADVICE: &[(&str, Advice)] = &[
    ("0", Advice::None),
    ("none", Advice::None),
    ("1", Advice::Own),
    ("random", Advice::Random),
    ("sequential", Advice::Sequential),
];

/// Whether a job continues after a failed request.
const ON_ERROR: &[(&str, bool)] =
    &[("0", false), ("none", false), ("1", true), ("io", true), ("all", true)];

/// Whether space is allocated before the run.
const ALLOCATION: &[(&str, bool)] =
    &[("0", false), ("none", false), ("1", true), ("native", true), ("posix", true)];

/// fio's own limit for `numjobs`.
const MAX_JOBS: u64 = 4096;

/// A process cannot open more files than this for a job.
const MAX_FILES: u64 = 65_536;

/// The depth to which included files may include others.
const MAX_INCLUDES: u32 = 16;

/// fio's default for `randseed`.
const DEFAULT_SEED: u64 = 0x89;

/// Returns the name and the text of an included file, or what is wrong with it. The arguments are
/// the name of the file that includes it (empty for the job file) and the name in that file.
pub type Include<'a> = &'a mut dyn FnMut(&str, &str) -> Result<(String, String), String>;

/// Reads a fio job file.
///
/// # Errors
///
/// The first line with an error, or else the first section whose settings contradict each other.
pub fn parse(text: &str, include: Include<'_>) -> Result<JobFile, JobFileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut notes = Notes::default();
    let mut globals = Settings::default();
    let mut sections: Vec<Section> = Vec::new();
    // Whether keys belong to `[global]`; `None` before the first header.
    let mut in_globals: Option<bool> = None;
    let mut last_line = 1;
    let error = |line, message: &str| JobFileError { line, key: None, message: message.to_owned() };

    for (line, text) in (1..).zip(text.lines()) {
        last_line = line;
        let content = content(text, line, &mut notes)?;
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
                return Err(Entry::new(content, line, &mut notes).error(message.to_owned()));
            }
        };
        match included(content) {
            Some(name) => settings.include("", name, line, include, &mut notes, MAX_INCLUDES)?,
            None => settings.set(&mut Entry::new(content, line, &mut notes))?,
        }
    }

    if sections.is_empty() {
        let message = "there is no job in this file; begin one with a section such as `[randread]`";
        return Err(error(last_line, message));
    }
    if sections.iter().skip(1).any(|section| !section.settings.stonewall) {
        let difference = "the sections run one after another; fio runs sections without \
                          `stonewall` at the same time";
        notes.differences.push(difference.to_owned());
    }
    let jobs = sections.iter().map(|section| section.workload(&mut notes));
    let jobs = jobs.collect::<Result<_, _>>()?;
    Ok(JobFile { jobs, differences: notes.differences, notes: notes.notes })
}

/// Remarks for the user.
#[derive(Default)]
struct Notes {
    differences: Vec<String>,
    notes: Vec<String>,
}

/// The line without its comment and the white space around it.
///
/// As in fio, a comment begins at the first `;` or `#`, even in a word; there it leaves a note.
fn content<'a>(text: &'a str, line: usize, notes: &mut Notes) -> Result<&'a str, JobFileError> {
    let before = &text[..text.find([';', '#']).unwrap_or(text.len())];
    let content = before.trim();
    if before.len() < text.len() && before.ends_with(|c: char| !c.is_whitespace()) {
        let note = format!("line {line}: after `{content}` a comment begins, as in fio");
        notes.notes.push(note);
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

/// One `key=value` line, or a key alone.
struct Entry<'a, 'n> {
    line: usize,
    key: &'a str,
    value: Option<&'a str>,
    notes: &'n mut Notes,
}

impl<'a, 'n> Entry<'a, 'n> {
    fn new(content: &'a str, line: usize, notes: &'n mut Notes) -> Self {
        let (key, value) = match content.split_once('=') {
            Some((key, value)) => (key.trim_end(), Some(value.trim_start())),
            None => (content, None),
        };
        Self { line, key, value, notes }
    }

    fn error(&self, message: String) -> JobFileError {
        JobFileError { line: self.line, key: Some(self.key.to_owned()), message }
    }

    fn refuse(&self, value: &str, accepted: &str) -> JobFileError {
        self.error(format!("`{value}` is not accepted; {accepted}"))
    }

    fn differs(&mut self, how: &str) {
        self.notes.differences.push(format!("line {}: `{}`: {how}", self.line, self.key));
    }

    fn text(&self) -> Result<&'a str, JobFileError> {
        match self.value {
            None => Err(self.error("`=` and a value are missing".to_owned())),
            Some("") => Err(self.error("there is no value after `=`".to_owned())),
            Some(value) if value.contains("${") => {
                Err(self.refuse(value, "environment variables are not substituted"))
            }
            Some(value) => Ok(value),
        }
    }

    fn number(&mut self, min: u64, max: u64) -> Result<u64, JobFileError> {
        let text = self.text()?;
        self.number_in(text, min, max)
    }

    /// The number in a part of the value.
    fn number_in(&mut self, text: &str, min: u64, max: u64) -> Result<u64, JobFileError> {
        let Some(number) = parse_size(text).filter(|number| (min..=max).contains(number)) else {
            let hint = if text.ends_with('%') {
                "a percentage is not supported here; "
            } else if text.contains([',', ':']) || text.trim_start_matches('-').contains('-') {
                "ranges and separate values for reads and writes are not supported; "
            } else {
                ""
            };
            let accepted = format!(
                "{hint}give a whole number from {min} to {max}, such as 4096, 4k or 0x1000 \
                 (k, m, g, t and p are powers of 1024)"
            );
            return Err(self.refuse(text, &accepted));
        };
        if text.to_ascii_lowercase().ends_with("ib") {
            self.differs(&format!("`{text}` is {number}; in fio this unit is a power of 1000"));
        }
        Ok(number)
    }

    fn number_u32(&mut self, min: u32) -> Result<u32, JobFileError> {
        // The range ends at `u32::MAX`, so nothing is lost.
        Ok(self.number(min.into(), u32::MAX.into())? as u32)
    }

    fn percent(&mut self) -> Result<u8, JobFileError> {
        // The range ends at 100, so nothing is lost.
        Ok(self.number(0, 100)? as u8)
    }

    /// Bytes (`Ok`) or a percentage (`Err`).
    fn bytes_or_percent(&mut self, min: u64) -> Result<Result<u64, u8>, JobFileError> {
        let text = self.text()?;
        let Some(percent) = text.strip_suffix('%') else {
            return self.number(min, MAX_FILE).map(Ok);
        };
        match percent.parse::<u8>() {
            Ok(percent) if (min..=100).contains(&percent.into()) => Ok(Err(percent)),
            _ => Err(self.refuse(text, "give a whole number of percent, at most 100, or bytes")),
        }
    }

    /// `4k-16k`: the sizes from the first to the last, which is a multiple of it.
    fn range(&mut self) -> Result<(u64, u64), JobFileError> {
        let text = self.text()?;
        let Some((least, largest)) = text.split_once('-') else {
            return Err(self.refuse(text, "give the smallest and the largest size, such as 4k-16k"));
        };
        let least = self.number_in(least, 1, MAX_REQUEST)?;
        let largest = self.number_in(largest, least, MAX_REQUEST)?;
        if !largest.is_multiple_of(least) {
            return Err(self.refuse(text, "the largest size must be a multiple of the smallest"));
        }
        Ok((least, largest))
    }

    /// `4k/60:64k/40`: sizes and their shares in percent. Sizes without a share divide the rest.
    fn split(&mut self) -> Result<Vec<(u64, u8)>, JobFileError> {
        let text = self.text()?;
        let mut sizes = Vec::new();
        for part in text.split(':') {
            let (size, share) = part.split_once('/').unwrap_or((part, ""));
            let size = self.number_in(size, 1, MAX_REQUEST)?;
            let share = (!share.is_empty()).then(|| self.number_in(share, 0, 100)).transpose()?;
            sizes.push((size, share));
        }
        let given: u64 = sizes.iter().filter_map(|(_, share)| *share).sum();
        let open = sizes.iter().filter(|(_, share)| share.is_none()).count() as u64;
        if given > 100 || (open == 0 && given < 100) {
            return Err(self.refuse(text, "the percentages must add up to 100"));
        }
        let least = sizes.iter().map(|(size, _)| *size).min().unwrap_or(1);
        if sizes.iter().any(|(size, _)| !size.is_multiple_of(least)) {
            return Err(self.refuse(text, "all sizes must be multiples of the smallest"));
        }
        let (each, mut rest) = ((100 - given) / open.max(1), (100 - given) % open.max(1));
        let share = |(size, share): (u64, Option<u64>)| {
            let extra = u64::from(share.is_none() && rest > 0);
            rest -= extra;
            // A share is at most 100, so nothing is lost.
            (size, share.unwrap_or(each + extra) as u8)
        };
        Ok(sizes.into_iter().map(share).collect())
    }

    /// A whole number of a unit, which is `default` (called `name`) if none is given.
    fn time(&self, default: &str, name: &str) -> Result<Duration, JobFileError> {
        let text = self.text()?;
        parse_duration(text, default).filter(|_| !text.contains('.')).ok_or_else(|| {
            let accepted = format!(
                "give a whole number of {name} or one with a unit: us, ms, s, m (minutes), h or d"
            );
            self.refuse(text, &accepted)
        })
    }

    /// A key with the value 0 or 1.
    fn boolean(&self) -> Result<bool, JobFileError> {
        self.choice(&[("0", false), ("1", true)])
    }

    /// A key that means 1 without a value.
    fn flag(&self) -> Result<bool, JobFileError> {
        if self.value.is_none() { Ok(true) } else { self.boolean() }
    }

    fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, JobFileError> {
        let text = self.text()?;
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
            return Ok(*choice);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Err(self.refuse(text, &one_of(text, &names)))
    }

    fn access(&self) -> Result<Access, JobFileError> {
        let text = self.text()?;
        Access::from_str(text, false).map_err(|_| {
            let names: Vec<&str> = Access::value_variants().iter().map(|of| of.name()).collect();
            self.refuse(text, &one_of(text, &names))
        })
    }

    /// Names separated by colons; `\:` is a colon in a name. Empty names are skipped, as in fio.
    fn names(&self) -> Result<Vec<String>, JobFileError> {
        let text = self.text()?;
        let mut names = vec![String::new()];
        for character in text.chars() {
            let name = names.last_mut().expect("there is always a name");
            match character {
                ':' if name.ends_with('\\') => {
                    name.pop();
                    name.push(':');
                }
                ':' => names.push(String::new()),
                character => name.push(character),
            }
        }
        names.retain(|name| !name.is_empty());
        if names.is_empty() {
            return Err(self.refuse(text, "give a path, or several separated by `:`"));
        }
        Ok(names)
    }
}

/// What is accepted instead of a value.
fn one_of(value: &str, accepted: &[&str]) -> String {
    let list = match accepted {
        [first, second] => format!("give {first} or {second}"),
        _ => format!("give one of {}", accepted.join(", ")),
    };
    match similar(value, accepted.iter().copied()) {
        Some(name) => format!("did you mean `{name}`? {list}"),
        None => list,
    }
}

/// The name that a misspelt one probably stands for.
fn similar<'a>(misspelt: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // `include` has no `=`.
    let word = misspelt.split_whitespace().next()?;
    let misspelt = word.to_lowercase().replace('-', "_");
    let distance = |name: &str| strsim::osa_distance(&misspelt, name);
    let nearest = names.min_by_key(|name| distance(name))?;
    // A third of the letters may be wrong.
    (distance(nearest) * 3 <= nearest.len()).then_some(nearest)
}

/// The values of all keys so far. Most are in `workload`; the others need more than one key.
#[derive(Clone)]
struct Settings {
    /// The line of each key that was given, under its main name.
    lines: BTreeMap<&'static str, usize>,
    workload: Workload,
    name: Option<String>,
    description: Option<String>,
    size: Option<u64>,
    file_size: Option<u64>,
    io_size: Option<u64>,
    files: u32,
    filenames: Vec<String>,
    directory: Option<String>,
    batch: u32,
    runtime: Duration,
    time_based: bool,
    pause: Pause,
    fsync: u32,
    fdatasync: u32,
    rate: u64,
    rate_iops: u64,
    stonewall: bool,
}

impl Default for Settings {
    /// The defaults of fio.
    fn default() -> Self {
        let workload = Workload {
            backend: Backend::Psync,
            access: Access::Read,
            direct: false,
            seed: DEFAULT_SEED,
            stop_on_error: true,
            lay_out: false,
            group_reporting: false,
            ..Workload::default()
        };
        Self {
            lines: BTreeMap::new(),
            workload,
            name: None,
            description: None,
            size: None,
            file_size: None,
            io_size: None,
            files: 1,
            filenames: Vec::new(),
            directory: None,
            batch: 1,
            runtime: Duration::ZERO,
            time_based: false,
            pause: Pause { time: Duration::ZERO, after: 1 },
            fsync: 0,
            fdatasync: 0,
            rate: 0,
            rate_iops: 0,
            stonewall: false,
        }
    }
}

impl Settings {
    /// Reads the lines of an included file. Errors have the line that includes it.
    fn include(
        &mut self,
        from: &str,
        name: &str,
        line: usize,
        include: Include<'_>,
        notes: &mut Notes,
        depth: u32,
    ) -> Result<(), JobFileError> {
        let refuse =
            |message: String| JobFileError { line, key: Some("include".to_owned()), message };
        if depth == 0 {
            return Err(refuse(format!("`{name}` is included by a file that it includes")));
        }
        let (name, text) = include(from, name).map_err(refuse)?;
        for (number, text) in (1..).zip(text.lines()) {
            let inside = |error: JobFileError| JobFileError {
                line,
                message: format!("in {name}, line {number}: {}", error.message),
                ..error
            };
            let content = content(text, line, notes).map_err(inside)?;
            if content.starts_with('[') {
                return Err(inside(refuse("an included file has no sections".to_owned())));
            }
            if let Some(inner) = included(content) {
                self.include(&name, inner, line, include, notes, depth - 1)?;
            } else if !content.is_empty() {
                self.set(&mut Entry::new(content, line, notes)).map_err(inside)?;
            }
        }
        Ok(())
    }

    /// Sets one key. The last line of a repeated key counts, as in fio.
    fn set(&mut self, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
        let Some(key) = main_name(entry.key) else {
            let known = KEYS.iter().copied().chain(["include"]);
            return Err(entry.error(match similar(entry.key, known) {
                Some(key) => format!("this key is not supported; did you mean `{key}`?"),
                None => format!(
                    "this key is not supported; fio's supported keys are: {}, include",
                    KEYS.join(", ")
                ),
            }));
        };
        let workload = &mut self.workload;
        match key {
            "ioengine" => {
                workload.backend = entry.choice(ENGINES)?;
                if matches!(entry.value, Some("sync" | "pvsync" | "pvsync2")) {
                    entry.differs("uses pread and pwrite, like psync");
                }
            }
            "rw" => workload.access = entry.access()?,
            "rwmixread" => workload.read_percent = entry.percent()?,
            "rwmixwrite" => workload.read_percent = 100 - entry.percent()?,
            "bs" => {
                workload.block_size = entry.number(1, MAX_REQUEST)?;
                workload.sizes = Sizes::One;
            }
            "bsrange" => {
                let (least, largest) = entry.range()?;
                (workload.block_size, workload.sizes) = (least, Sizes::UpTo(largest));
            }
            "bssplit" => {
                let sizes = entry.split()?;
                let least = sizes.iter().map(|(size, _)| *size).min();
                workload.block_size = least.unwrap_or(workload.block_size);
                workload.sizes = Sizes::Split(sizes);
            }
            "size" => {
                (self.size, workload.percent) = match entry.bytes_or_percent(1)? {
                    Ok(size) => (Some(size), 100),
                    Err(percent) => (None, percent),
                };
            }
            "io_size" => self.io_size = Some(entry.number(1, MAX_FILE)?),
            "offset" => {
                workload.start = match entry.bytes_or_percent(0)? {
                    Ok(byte) => Start::Byte(byte),
                    Err(percent) => Start::Percent(percent),
                };
            }
            // The range ends at `MAX_FILES`, so nothing is lost.
            "nrfiles" => self.files = entry.number(1, MAX_FILES)? as u32,
            "overwrite" => workload.lay_out = entry.flag()?,
            "fallocate" => workload.preallocate = entry.choice(ALLOCATION)?,
            "fadvise_hint" => workload.advice = entry.choice(ADVICE)?,
            "continue_on_error" => workload.stop_on_error = !entry.choice(ON_ERROR)?,
            "thinktime" => self.pause.time = entry.time("us", "microseconds")?,
            "thinktime_blocks" => self.pause.after = entry.number(1, u64::MAX)?,
            "rate" => self.rate = entry.number(0, u64::MAX)?,
            "rate_iops" => self.rate_iops = entry.number(0, u64::MAX)?,
            "filesize" => self.file_size = Some(entry.number(1, MAX_FILE)?),
            "filename" => {
                let names = entry.names()?;
                if names.iter().any(|name| name == "-") {
                    return Err(entry.refuse("-", "give files or block devices, not a pipe"));
                }
                self.filenames = names;
            }
            "directory" => {
                let mut names = entry.names()?;
                if names.len() > 1 {
                    let message = "give one folder; write `\\:` for a colon in its name";
                    return Err(entry.error(message.to_owned()));
                }
                self.directory = names.pop();
            }
            "direct" => workload.direct = entry.boolean()?,
            "buffered" => workload.direct = !entry.boolean()?,
            "iodepth" => workload.depth = entry.number_u32(1)?,
            "iodepth_batch" => self.batch = entry.number_u32(0)?,
            "iodepth_batch_complete_min" => workload.complete_min = entry.number_u32(0)?,
            // The range ends at `MAX_JOBS`, so nothing is lost.
            "numjobs" => workload.jobs = entry.number(1, MAX_JOBS)? as u32,
            "runtime" => self.runtime = entry.time("s", "seconds")?,
            "time_based" => self.time_based = entry.flag()?,
            "ramp_time" => workload.ramp = entry.time("s", "seconds")?,
            "group_reporting" => workload.group_reporting = entry.flag()?,
            "randrepeat" => workload.rand_repeat = entry.boolean()?,
            "randseed" => workload.seed = entry.number(0, u64::MAX)?,
            "thread" => {
                if !entry.flag()? {
                    entry.differs("jobs are always threads, never processes");
                }
            }
            "threads" => {
                entry.number(0, MAX_JOBS)?;
                entry.differs("has no effect: jobs are always threads; `numjobs` is their number");
            }
            "sqthread_poll" => workload.sqpoll = entry.flag()?,
            "hipri" => workload.iopoll = entry.flag()?,
            "fixedbufs" => workload.fixed_buffers = entry.flag()?,
            "registerfiles" => workload.fixed_files = entry.flag()?,
            "fsync" => self.fsync = entry.number_u32(0)?,
            "fdatasync" => self.fdatasync = entry.number_u32(0)?,
            "norandommap" => workload.no_random_map = entry.flag()?,
            "stonewall" => self.stonewall = entry.flag()?,
            "name" => self.name = Some(entry.text()?.to_owned()),
            "description" => self.description = Some(entry.text()?.to_owned()),
            _ => unreachable!("a key of the list has an arm"),
        }
        self.lines.insert(key, entry.line);
        Ok(())
    }
}

/// The main name of a key, which may have two; `None` for an unsupported key.
fn main_name(key: &str) -> Option<&'static str> {
    match key {
        "readwrite" => Some("rw"),
        "blocksize" => Some("bs"),
        "blocksize_range" => Some("bsrange"),
        "iodepth_batch_submit" => Some("iodepth_batch"),
        "iodepth_batch_complete" => Some("iodepth_batch_complete_min"),
        "timeout" => Some("runtime"),
        "wait_for_previous" => Some("stonewall"),
        other => KEYS.iter().find(|key| **key == other).copied(),
    }
}

/// A section that is a job.
struct Section {
    line: usize,
    name: String,
    settings: Settings,
}

impl Section {
    /// The job's name: the key `name`, or the section's.
    fn name(&self) -> &str {
        self.settings.name.as_deref().unwrap_or(&self.name)
    }

    /// An error about a key, at its line or, if it is not given, at the section's header.
    fn error(&self, key: &str, message: &str) -> JobFileError {
        JobFileError {
            line: self.settings.lines.get(key).copied().unwrap_or(self.line),
            key: Some(key.to_owned()),
            message: format!("in [{}]: {message}", self.name),
        }
    }

    fn note(&self, notes: &mut Notes, message: &str) {
        notes.notes.push(format!("[{}]: {message}", self.name));
    }

    fn workload(&self, notes: &mut Notes) -> Result<Workload, JobFileError> {
        let settings = &self.settings;
        let given = |key| settings.lines.contains_key(key);
        let mut workload = settings.workload.clone();
        workload.name = self.name().to_owned();
        if let Some(description) = &settings.description {
            self.note(notes, description);
        }
        if workload.backend == Backend::Psync && workload.depth > 1 {
            let message = format!(
                "`iodepth={}` has no effect with blocking calls: each job has one request in \
                 flight; use `numjobs` for more",
                workload.depth
            );
            self.note(notes, &message);
            workload.depth = 1;
        }
        self.uring_only(&mut workload, notes)?;
        (workload.target, workload.stop) = self.target_and_stop()?;
        workload.rate = self.rate(notes)?;
        // In fio `bssplit` overrides the other keys, wherever it is.
        if given("bssplit") && (given("bs") || given("bsrange")) {
            return Err(self.error("bssplit", "cannot be combined with `bs` or `bsrange`"));
        }
        let depth = workload.depth;
        workload.batch = Some(match settings.batch {
            // In fio 0 means `iodepth`.
            0 => depth,
            batch => self.at_most_depth("iodepth_batch_submit", batch, depth, notes),
        });
        let key = "iodepth_batch_complete_min";
        workload.complete_min = self.at_most_depth(key, workload.complete_min, depth, notes);
        workload.pause = (!settings.pause.time.is_zero()).then_some(settings.pause);
        workload.sync = match (settings.fsync, settings.fdatasync) {
            (0, 0) => None,
            (every, 0) => Some(Sync::Fsync(every)),
            (0, every) => Some(Sync::Fdatasync(every)),
            _ => {
                let message =
                    "cannot be combined with `fsync`; give one of them, or 0 for the other";
                return Err(self.error("fdatasync", message));
            }
        };
        // A given seed asks for repetition, whatever `randrepeat` is.
        workload.rand_repeat |= given("randseed");
        Ok(workload)
    }

    fn rate(&self, notes: &mut Notes) -> Result<Option<Rate>, JobFileError> {
        let rate = match (self.settings.rate, self.settings.rate_iops) {
            (0, 0) => return Ok(None),
            (0, requests) => Rate::Requests(requests),
            (bytes, 0) => Rate::Bytes(bytes),
            _ => {
                let message = "cannot be combined with `rate_iops`; give one of them";
                return Err(self.error("rate", message));
            }
        };
        if self.settings.workload.access.is_mixed() {
            notes.differences.push(format!(
                "[{}]: the rate limits reads and writes together; in fio it limits each",
                self.name
            ));
        }
        Ok(Some(rate))
    }

    fn at_most_depth(&self, key: &str, value: u32, depth: u32, notes: &mut Notes) -> u32 {
        if value > depth {
            self.note(notes, &format!("`{key}={value}` is reduced to {depth}, the `iodepth`"));
        }
        value.min(depth)
    }

    /// Removes io_uring's keys from other engines. In the job's own section they are an error;
    /// inherited from `[global]` they are left out, as in fio.
    fn uring_only(&self, workload: &mut Workload, notes: &mut Notes) -> Result<(), JobFileError> {
        if workload.backend == Backend::Uring {
            // fio registers the files for SQPOLL, because the first kernels with SQPOLL required
            // it.
            workload.fixed_files |= workload.sqpoll;
            return Ok(());
        }
        for (key, on) in [
            ("sqthread_poll", &mut workload.sqpoll),
            ("hipri", &mut workload.iopoll),
            ("fixedbufs", &mut workload.fixed_buffers),
            ("registerfiles", &mut workload.fixed_files),
        ] {
            if !std::mem::take(on) {
                continue;
            }
            if self.settings.lines.get(key).is_some_and(|&line| line > self.line) {
                return Err(self.error(key, "needs `ioengine=io_uring`"));
            }
            self.note(notes, &format!("`{key}` is left out: it needs `ioengine=io_uring`"));
        }
        Ok(())
    }

    /// The job's files, and when it ends.
    fn target_and_stop(&self) -> Result<(Target, Stop), JobFileError> {
        let settings = &self.settings;
        let workload = &settings.workload;
        let files = match settings.filenames.len() as u64 {
            0 => u64::from(settings.files),
            files => files,
        };
        let offset = match (workload.start, settings.file_size) {
            (Start::Percent(_), Some(_)) => {
                return Err(self.error("offset", "cannot be a percentage with `filesize`"));
            }
            (Start::Byte(byte), _) => byte,
            (Start::Percent(_), None) => 0,
        };
        // In fio `size` is the size of all files together, unless `filesize` is the size of each;
        // then `size` is only the amount to move. `filesize` includes the bytes before `offset`.
        let after_offset = settings.file_size.map(|each| each.saturating_sub(offset));
        let (file_size, amount) = match (after_offset, settings.size) {
            (None, None) => (None, None),
            // The amount is the size of the files.
            (None, Some(size)) => (Some(size / files), None),
            (Some(each), Some(size)) => (Some(each), Some(size)),
            (Some(each), None) => {
                let too_large = "is too large for so many files; give `size` too";
                let amount = each.checked_mul(files);
                (Some(each), Some(amount.ok_or_else(|| self.error("filesize", too_large))?))
            }
        };
        let short = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes < workload.block_size);
        if short(file_size) || short(settings.size) {
            let key = if short(after_offset) { "filesize" } else { "size" };
            let message = format!(
                "is less than one block after the offset; give at least {} bytes for each file, \
                 or a smaller `bs`",
                workload.block_size
            );
            return Err(self.error(key, &message));
        }

        // A percentage is an amount only once the file's size is known.
        let amount = settings.io_size.or(amount.filter(|_| workload.percent == 100));
        let runtime = (!settings.runtime.is_zero()).then_some(settings.runtime);
        let stop = match (settings.time_based, runtime, amount) {
            (true, Some(runtime), _) => Stop::After(runtime),
            (true, None, _) => {
                let message = "needs a `runtime`, such as `runtime=15s`";
                return Err(self.error("time_based", message));
            }
            (false, runtime, Some(amount)) => Stop::Bytes(amount, runtime),
            (false, runtime, None) => Stop::Whole(runtime),
        };
        Ok((self.target(file_size)?, stop))
    }

    fn target(&self, file_size: Option<u64>) -> Result<Target, JobFileError> {
        let settings = &self.settings;
        if settings.filenames.is_empty() {
            let Some(size) = file_size else {
                let message = "is missing; give the size of the file, such as `size=1g`, or an \
                               existing file with `filename`";
                return Err(self.error("size", message));
            };
            // The file has the name of the job and must be in the folder.
            if self.name().contains('/') {
                let message = "is missing, and the `/` in the job's name cannot be in a file name";
                return Err(self.error("filename", message));
            }
            let path = PathBuf::from(settings.directory.as_deref().unwrap_or("."));
            return Ok(Target::Directory { path, size, files: settings.files });
        }
        // Not `Path::join`: in fio even an absolute name is below the folder.
        let path = |name: &String| match &settings.directory {
            Some(directory) => PathBuf::from(format!("{directory}/{name}")),
            None => PathBuf::from(name),
        };
        let paths = settings.filenames.iter().map(path).collect();
        Ok(match file_size {
            Some(size) => Target::SizedFiles { paths, size },
            None => Target::Files(paths),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The job file of a published comparison of Linux AIO with io_uring.
    const ARTICLE_AIO: &str = "\
[global]
ioengine=libaio
direct=0
randrepeat=1
threads=8
runtime=15
time_based
size=1G
directory=../test-data
group_reporting
[read256B-rand]
bs=4096
rw=randread
numjobs=1
iodepth=128
";

    /// The second one of the same comparison, with its comment.
    const ARTICLE_URING: &str = "\
[global]
ioengine=io_uring
sqthread_poll=1 #开启io_uring sq_poll模式
direct=1
randrepeat=1
threads=8
runtime=15
time_based
size=1G
directory=../test-data
group_reporting
[read256B-rand]
bs=4096
rw=randread
numjobs=1
iodepth=128
";

    fn article() -> Workload {
        Workload {
            name: "read256B-rand".to_owned(),
            backend: Backend::Kaio,
            access: Access::RandRead,
            depth: 128,
            stop: Stop::After(Duration::from_secs(15)),
            group_reporting: true,
            target: Target::Directory {
                path: PathBuf::from("../test-data"),
                size: 1 << 30,
                files: 1,
            },
            ..plain()
        }
    }

    /// The meaning of `[job]` with `size=1m`: fio's defaults.
    fn plain() -> Workload {
        Workload {
            name: "job".to_owned(),
            backend: Backend::Psync,
            access: Access::Read,
            direct: false,
            batch: Some(1),
            stop: Stop::Whole(None),
            seed: 0x89,
            stop_on_error: true,
            target: Target::Directory { path: PathBuf::from("."), size: 1 << 20, files: 1 },
            lay_out: false,
            group_reporting: false,
            ..Workload::default()
        }
    }

    /// Parses a file that includes no other.
    fn parse(text: &str) -> Result<JobFile, JobFileError> {
        super::parse(text, &mut |_, name| Err(format!("{name} is not there")))
    }

    /// The workload of `[job]` with `size=1m`, io_uring and these lines, and all remarks.
    fn uring(lines: &str) -> (Workload, Vec<String>) {
        one(&format!("[job]\nsize=1m\nioengine=io_uring\n{lines}\n"))
    }

    fn one(text: &str) -> (Workload, Vec<String>) {
        let mut file = parse(text).unwrap_or_else(|error| panic!("{error} in {text:?}"));
        assert_eq!(file.jobs.len(), 1, "{text:?}");
        (file.jobs.remove(0), [file.differences, file.notes].concat())
    }

    #[track_caller]
    fn fails(text: &str, line: usize, key: Option<&str>, part: &str) {
        let error = parse(text).expect_err(text);
        assert_eq!((error.line, error.key.as_deref()), (line, key), "{error} in {text:?}");
        let shown = error.to_string();
        assert!(shown.contains(&format!("line {line}")), "{shown}");
        assert!(shown.contains(key.unwrap_or("")), "{shown}");
        assert!(shown.contains(part), "{shown}");
    }

    #[test]
    fn the_article_s_job_file_for_aio() {
        let (job, notes) = one(ARTICLE_AIO);
        assert_eq!(job, article());
        assert_eq!(
            notes,
            ["line 5: `threads`: has no effect: jobs are always threads; `numjobs` is their \
                 number"]
        );
    }

    #[test]
    fn the_article_s_job_file_for_io_uring() {
        let (job, notes) = one(ARTICLE_URING);
        let expected = Workload {
            backend: Backend::Uring,
            direct: true,
            sqpoll: true,
            fixed_files: true,
            ..article()
        };
        assert_eq!(job, expected);
        assert_eq!(notes.len(), 1, "{notes:?}");
    }

    #[test]
    fn the_defaults_are_those_of_fio() {
        assert_eq!(one("[job]\nsize=1m\n"), (plain(), Vec::new()));
    }

    /// Each key, with those that it needs, changes its setting and nothing else.
    #[test]
    fn every_key() {
        type Change = fn(&mut Workload);
        let cases: &[(&str, Change)] = &[
            ("rw=write", |w| w.access = Access::Write),
            ("readwrite=rw", |w| w.access = Access::ReadWrite),
            ("rwmixread=70", |w| w.read_percent = 70),
            ("rwmixread=10\nrwmixwrite=20", |w| w.read_percent = 80),
            ("bs=8k", |w| w.block_size = 8192),
            ("blocksize=512", |w| w.block_size = 512),
            ("direct=1", |w| w.direct = true),
            ("direct=1\nbuffered=1", |_| ()),
            ("buffered=0", |w| w.direct = true),
            ("iodepth=32", |w| w.depth = 32),
            ("iodepth=32\niodepth_batch_submit=8", |w| {
                (w.depth, w.batch) = (32, Some(8));
            }),
            ("iodepth_batch=8\niodepth=32", |w| {
                (w.depth, w.batch) = (32, Some(8));
            }),
            ("iodepth=32\niodepth_batch=0", |w| {
                (w.depth, w.batch) = (32, Some(32));
            }),
            ("iodepth=32\niodepth_batch_complete_min=4", |w| {
                (w.depth, w.complete_min) = (32, 4);
            }),
            ("iodepth=32\niodepth_batch_complete=0", |w| {
                (w.depth, w.complete_min) = (32, 0);
            }),
            ("numjobs=4", |w| w.jobs = 4),
            ("runtime=2m", |w| {
                w.stop = Stop::Whole(Some(Duration::from_secs(120)));
            }),
            ("timeout=500ms\ntime_based=1", |w| {
                w.stop = Stop::After(Duration::from_millis(500));
            }),
            ("runtime=0\ntime_based=0", |_| ()),
            ("ramp_time=3", |w| w.ramp = Duration::from_secs(3)),
            ("group_reporting", |w| w.group_reporting = true),
            ("randrepeat=0", |w| w.rand_repeat = false),
            ("randseed=7\nrandrepeat=0", |w| w.seed = 7),
            ("thread", |_| ()),
            ("sqthread_poll", |w| (w.sqpoll, w.fixed_files) = (true, true)),
            ("hipri", |w| w.iopoll = true),
            ("fixedbufs=1", |w| w.fixed_buffers = true),
            ("registerfiles", |w| w.fixed_files = true),
            ("fsync=16", |w| w.sync = Some(Sync::Fsync(16))),
            ("fsync=16\nfsync=0\nfdatasync=1", |w| {
                w.sync = Some(Sync::Fdatasync(1));
            }),
            ("rate_iops=10k", |w| w.rate = Some(Rate::Requests(10_240))),
            ("rate_iops=0\nrate=0", |_| ()),
            ("rate=1m", |w| w.rate = Some(Rate::Bytes(1 << 20))),
            ("bsrange=4k-16k", |w| w.sizes = Sizes::UpTo(16_384)),
            ("bs=8k\nblocksize_range=1k-2k", |w| {
                (w.block_size, w.sizes) = (1024, Sizes::UpTo(2048))
            }),
            ("bsrange=4k-16k\nbs=1k", |w| w.block_size = 1024),
            ("bssplit=64k/10:8k/:16k", |w| {
                (w.block_size, w.sizes) =
                    (8192, Sizes::Split(vec![(65_536, 10), (8192, 45), (16_384, 45)]));
            }),
            ("bssplit=4k/:8k/:12k", |w| {
                w.sizes = Sizes::Split(vec![(4096, 34), (8192, 33), (12_288, 33)])
            }),
            ("offset=8k", |w| w.start = Start::Byte(8192)),
            ("offset=25%", |w| w.start = Start::Percent(25)),
            ("io_size=3m", |w| w.stop = Stop::Bytes(3 << 20, None)),
            ("nrfiles=4", |w| {
                w.target = Target::Directory { path: PathBuf::from("."), size: 1 << 18, files: 4 }
            }),
            ("overwrite=1", |w| w.lay_out = true),
            ("fallocate=none", |w| w.preallocate = false),
            ("fadvise_hint=0", |w| w.advice = Advice::None),
            ("fadvise_hint=random", |w| w.advice = Advice::Random),
            ("continue_on_error=all", |w| w.stop_on_error = false),
            ("thinktime=50", |w| {
                w.pause = Some(Pause { time: Duration::from_micros(50), after: 1 })
            }),
            ("thinktime=2ms\nthinktime_blocks=8", |w| {
                w.pause = Some(Pause { time: Duration::from_millis(2), after: 8 });
            }),
            ("thinktime=0\nthinktime_blocks=8", |_| ()),
            ("norandommap", |w| w.no_random_map = true),
            ("stonewall", |_| ()),
            ("wait_for_previous=0", |_| ()),
            ("name=other", |w| w.name = "other".to_owned()),
        ];
        for (lines, change) in cases {
            let mut expected = plain();
            expected.backend = Backend::Uring;
            change(&mut expected);
            assert_eq!(uring(lines), (expected, Vec::new()), "{lines}");
        }
        // The other keys have separate tests: `ioengine`, `threads`, and those of files.
        let (_, notes) = uring("description=what it is for");
        assert_eq!(notes, ["[job]: what it is for"]);
    }

    /// The message about an unsupported key must list supported keys only.
    #[test]
    fn every_listed_key_is_supported() {
        for key in KEYS {
            if let Err(error) = parse(&format!("[job]\nsize=1m\n{key}=1\n")) {
                assert!(!error.message.contains("not supported; fio"), "{error}");
            }
        }
    }

    #[test]
    fn engines() {
        for (name, backend) in [
            ("io_uring", Backend::Uring),
            ("libaio", Backend::Kaio),
            ("sync", Backend::Psync),
            ("psync", Backend::Psync),
            ("pvsync", Backend::Psync),
            ("pvsync2", Backend::Psync),
            ("null", Backend::Null),
        ] {
            let file = parse(&format!("[job]\nsize=1m\nioengine={name}\niodepth=8\n")).unwrap();
            let (job, notes) = (&file.jobs[0], &file.notes);
            let differs = backend == Backend::Psync && name != "psync";
            assert_eq!(file.differences.len(), usize::from(differs), "{:?}", file.differences);
            assert_eq!(job.backend, backend);
            if backend == Backend::Psync {
                assert_eq!(job.depth, 1);
                assert!(notes[0].contains("iodepth=8"), "{notes:?}");
            } else {
                assert_eq!(job.depth, 8);
                assert!(notes.is_empty(), "{notes:?}");
            }
        }
    }

    #[test]
    fn accesses() {
        for (name, access) in [
            ("read", Access::Read),
            ("write", Access::Write),
            ("rw", Access::ReadWrite),
            ("readwrite", Access::ReadWrite),
            ("randread", Access::RandRead),
            ("randwrite", Access::RandWrite),
            ("randrw", Access::RandRw),
        ] {
            assert_eq!(uring(&format!("rw={name}")).0.access, access);
        }
    }

    #[test]
    fn a_unit_with_another_meaning_in_fio_is_a_difference() {
        let (job, notes) = uring("bs=4KiB");
        assert_eq!(job.block_size, 4096);
        assert!(notes[0].contains("line 4"), "{notes:?}");
        assert!(notes[0].contains("`4KiB` is 4096"), "{notes:?}");
    }

    #[test]
    fn files() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let (job, _) = one("[job]\nfilename=/dev/a:/dev/b@3,0\\:c:\n");
        assert_eq!(job.target, Target::Files(paths(&["/dev/a", "/dev/b@3,0:c"])));
        assert_eq!(job.stop, Stop::Whole(None));

        let (job, _) = one("[job]\nfilename=a\nruntime=3\n");
        assert_eq!(job.stop, Stop::Whole(Some(Duration::from_secs(3))));

        let (job, _) = one("[job]\nfilename=a\nruntime=3\ntime_based\n");
        assert_eq!(job.stop, Stop::After(Duration::from_secs(3)));

        // An absolute name is below the folder too.
        let (job, _) = one("[job]\ndirectory=/d e\\:f\nfilename=a:/b\nsize=10001\nbs=1k\n");
        assert_eq!(
            job.target,
            Target::SizedFiles { paths: paths(&["/d e:f/a", "/d e:f//b"]), size: 5000 }
        );
        assert_eq!(job.stop, Stop::Whole(None));

        let (job, _) = one("[job]\nfilename=a:b\nfilesize=1m\n");
        assert_eq!(job.target, Target::SizedFiles { paths: paths(&["a", "b"]), size: 1 << 20 });
        assert_eq!(job.stop, Stop::Bytes(2 << 20, None));

        let (job, _) = one("[job]\nfilesize=1m\nsize=3m\n");
        assert_eq!(
            job.target,
            Target::Directory { path: PathBuf::from("."), size: 1 << 20, files: 1 }
        );
        assert_eq!(job.stop, Stop::Bytes(3 << 20, None));

        // A percentage is an amount only once the file's size is known.
        let (job, _) = one("[job]\nfilename=a\nsize=50%\n");
        assert_eq!(
            (job.target, job.percent, job.stop),
            (Target::Files(paths(&["a"])), 50, Stop::Whole(None))
        );
        let (job, _) = one("[job]\nfilesize=1m\nsize=50%\nio_size=7k\n");
        assert_eq!((job.percent, job.stop), (50, Stop::Bytes(7168, None)));
        assert_eq!(one("[job]\nsize=1%\nsize=1m\n").0.percent, 100);

        // The bytes before the offset are a part of the file's size, but not of the amount to move.
        let (job, _) = one("[job]\nfilename=a\nfilesize=1m\noffset=512k\n");
        assert_eq!(job.target, Target::SizedFiles { paths: paths(&["a"]), size: 1 << 19 });
        assert_eq!(job.stop, Stop::Bytes(1 << 19, None));

        // A section may be named after a device if the file is not named after the section.
        assert_eq!(one("[/dev/sdx]\nfilename=/dev/sdx\n").0.name, "/dev/sdx");
    }

    #[test]
    fn globals_apply_to_later_sections() {
        let file = parse(
            "[global]\nsize=4m\niodepth=3\nioengine=libaio\n[a]\nbs=1k\n\
             [global]\niodepth=7\n[b]\nbs=2k\n[b]\nstonewall\niodepth=9\n",
        )
        .unwrap();
        let got: Vec<_> =
            file.jobs.iter().map(|job| (job.name.as_str(), job.depth, job.block_size)).collect();
        assert_eq!(got, [("a", 3, 1024), ("b", 7, 2048), ("b", 9, 4096)]);
        assert_eq!(file.differences.len(), 1);
        assert!(file.differences[0].contains("stonewall"));
    }

    #[test]
    fn included_files_belong_to_their_section() {
        let mut include = |from: &str, name: &str| match (from, name) {
            ("", "a.fio") => {
                Ok(("dir/a.fio".to_owned(), "bs=8k\n\ninclude b.fio ; too\n".to_owned()))
            }
            ("dir/a.fio", "b.fio") => Ok(("dir/b.fio".to_owned(), "iodepth=3\n".to_owned())),
            ("", "section") => Ok(("section".to_owned(), "bs=1k\n[x]\n".to_owned())),
            ("", "wrong") => Ok(("wrong".to_owned(), "# fine\nbs=x\n".to_owned())),
            (_, "self") => Ok(("self".to_owned(), "include self\n".to_owned())),
            _ => Err("is not there".to_owned()),
        };
        let text = "[global]\nsize=1m\nioengine=libaio\n[a]\ninclude a.fio\n[b]\nstonewall\n";
        let file = super::parse(text, &mut include).unwrap();
        let got: Vec<_> = file.jobs.iter().map(|job| (job.block_size, job.depth)).collect();
        assert_eq!(got, [(8192, 3), (4096, 1)]);
        for (name, part) in [
            ("section", "in section, line 2: an included file has no sections"),
            ("wrong", "in wrong, line 2: `x` is not accepted"),
            ("self", "included by a file that it includes"),
            ("missing", "not there"),
        ] {
            let error =
                super::parse(&format!("[a]\nsize=1m\ninclude {name}\n"), &mut include).unwrap_err();
            assert_eq!(error.line, 3, "{error}");
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn sections_with_stonewall_are_as_in_fio() {
        let file = parse("[a]\nsize=1m\n[b]\nsize=1m\nstonewall\n").unwrap();
        assert_eq!(file.differences, Vec::<String>::new());
    }

    #[test]
    fn white_space_comments_and_line_ends() {
        let text = "\u{feff}; a comment\r\n\r\n  # 注释 \u{7}\r\n [job] ; end\r\n\
                    \tsize = 1m\t# 大小\r\n bs=4096;x\r\n";
        let (job, notes) = one(text);
        assert_eq!(job, plain());
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("line 6"), "{notes:?}");
        assert!(notes[0].contains("`bs=4096`"), "{notes:?}");
    }

    #[test]
    fn reduced_values_are_noted() {
        let (job, notes) = uring("iodepth=4\niodepth_batch=8\niodepth_batch_complete=5");
        assert_eq!((job.batch, job.complete_min), (Some(4), 4));
        assert!(notes[0].contains("iodepth_batch_submit=8"), "{notes:?}");
        assert!(notes[1].contains("iodepth_batch_complete_min=5"), "{notes:?}");
    }

    #[test]
    fn other_remarks() {
        assert!(uring("thread=0").1[0].contains("always threads"));
        assert!(uring("rw=randrw\nrate_iops=5").1[0].contains("limits each"));
        assert!(uring("rw=rw\nrate=5").1[0].contains("limits each"));
        // An inherited io_uring key is left out, as in fio.
        let file = parse(
            "[global]\nioengine=io_uring\nsize=1m\nsqthread_poll\n[a]\n\
             [b]\nstonewall\nioengine=libaio\n",
        )
        .unwrap();
        assert!(file.jobs[0].sqpoll);
        assert!(!file.jobs[1].sqpoll && !file.jobs[1].fixed_files);
        assert_eq!(file.notes, ["[b]: `sqthread_poll` is left out: it needs `ioengine=io_uring`"]);
    }

    #[test]
    fn errors_of_structure() {
        fails("", 1, None, "no job");
        fails("# only this\n\n", 2, None, "no job");
        fails("[global]\nsize=1m\n", 2, None, "no job");
        fails("size=1m\n[job]\n", 1, Some("size"), "before any section");
        fails("[]\n", 1, None, "needs a name");
        fails("[  ]\n", 1, None, "needs a name");
        fails("[job\n", 1, None, "`]`");
        fails("[job]x\n", 1, None, "`]`");
        fails("[job]\nsize=1m\u{1b}[2J\n", 2, None, "control character");
        fails("[job]\nsize\n", 2, Some("size"), "`=`");
        fails("[job]\nsize=\n", 2, Some("size"), "no value");
        fails("[job]\nsize= # none\n", 2, Some("size"), "no value");
        fails("[job]\ndirect\n", 2, Some("direct"), "`=`");
        fails("[job]\ntime_based=\n", 2, Some("time_based"), "no value");
    }

    #[test]
    fn errors_of_keys() {
        fails("[job]\nsize=1m\nverify=crc32c\n", 3, Some("verify"), "iodepth");
        fails("[job]\nSIZE=1m\n", 2, Some("SIZE"), "did you mean `size`?");
        fails("[job]\niodpeth=32\n", 2, Some("iodpeth"), "did you mean `iodepth`?");
        fails("[job]\ngroup-reporting\n", 2, Some("group-reporting"), "`group_reporting`?");
        fails("[job]\nfilname=x\n", 2, Some("filname"), "did you mean `filename`?");
        fails("[job]\nincldue x.fio\n", 2, Some("incldue x.fio"), "`include`?");
        fails("[job]\n\nzonesize=2\n", 3, Some("zonesize"), "supported keys");
        fails("[job]\ninclude x.fio\n", 2, Some("include"), "not there");
        fails("[job]\n=5\n", 2, Some(""), "supported keys");
        // A `[global]` that no section follows is checked too.
        fails("[job]\nsize=1m\n[global]\nnope=1\n", 4, Some("nope"), "supported keys");
    }

    #[test]
    fn errors_of_values() {
        let line = |key: &str, value: &str, part: &str| {
            fails(&format!("[job]\n{key}={value}\n"), 2, Some(key), part);
        };
        line("ioengine", "posixaio", "io_uring");
        line("ioengine", "io_urign", "did you mean `io_uring`? give one of");
        line("rw", "trim", "randread");
        line("rw", "randraed", "did you mean `randread`? give one of");
        line("rw", "randread:8", "randread");
        line("rwmixread", "101", "from 0 to 100");
        line("rwmixwrite", "-1", "from 0 to 100");
        line("bs", "0", "from 1");
        line("bs", "2g", "2147479552");
        line("bs", "4k,8k", "ranges");
        line("bs", "4k-8k", "ranges");
        line("bs", "1.5k", "whole number");
        line("size", "0%", "percent");
        line("size", "101%", "percent");
        line("size", "5.5%", "percent");
        line("offset", "101%", "percent");
        line("offset", "-1", "from 0");
        line("bs", "50%", "percentage");
        line("bsrange", "4k", "4k-16k");
        line("bsrange", "8k-4k", "from 8192");
        line("bsrange", "0-4k", "from 1");
        line("bsrange", "4k-6k", "multiple");
        line("bsrange", "1k-4k,2k-8k", "whole number");
        line("bssplit", "4k/60:8k/60", "100");
        line("bssplit", "4k/30:8k/30", "100");
        line("bssplit", "4k/:6k/", "multiples");
        line("bssplit", "4k/50,8k/50", "whole number");
        line("bssplit", ":", "whole number");
        line("io_size", "50%", "percentage");
        line("nrfiles", "0", "from 1");
        line("overwrite", "x", "0 or 1");
        line("fallocate", "x", "native");
        line("runtime", "1.5s", "whole number");
        line("runtime", "5min", "whole number");
        line("fadvise_hint", "x", "sequential");
        line("continue_on_error", "verify", "none");
        line("thinktime", "-1", "microseconds");
        line("thinktime_blocks", "0", "from 1");
        line("rate", "1m,2m", "ranges");
        line("size", "0", "from 1");
        line("size", "-4k", "from 1");
        line("size", "16384p", "from 1");
        line("size", "8192p", "9223372036854775807");
        line("size", "${SIZE}", "environment");
        line("filesize", "1k-2k", "ranges");
        line("filename", "${FILE}", "environment");
        line("filename", ":", "path");
        line("filename", "-", "pipe");
        line("directory", "a:b", "one folder");
        line("direct", "yes", "0 or 1");
        line("buffered", "2", "0 or 1");
        line("iodepth", "0", "from 1");
        line("iodepth", "4294967296", "4294967295");
        line("iodepth_batch_submit", "x", "whole number");
        line("iodepth_batch", "x", "whole number");
        line("iodepth_batch_complete_min", "x", "whole number");
        line("iodepth_batch_complete", "x", "whole number");
        line("numjobs", "0", "from 1");
        line("numjobs", "4097", "4096");
        line("runtime", "-1", "seconds");
        line("timeout", "1x", "seconds");
        line("ramp_time", "18446744073709551615h", "seconds");
        line("time_based", "2", "0 or 1");
        line("group_reporting", "x", "0 or 1");
        line("randrepeat", "x", "0 or 1");
        line("randseed", "x", "whole number");
        line("thread", "8", "0 or 1");
        line("threads", "x", "whole number");
        line("sqthread_poll", "x", "0 or 1");
        line("hipri", "x", "0 or 1");
        line("fixedbufs", "x", "0 or 1");
        line("registerfiles", "x", "0 or 1");
        line("fsync", "x", "whole number");
        line("fdatasync", "-1", "whole number");
        line("rate_iops", "1000,500", "ranges");
        line("norandommap", "x", "0 or 1");
        line("stonewall", "x", "0 or 1");
    }

    #[test]
    fn errors_of_sections() {
        fails("[job]\nbs=4k\n", 1, Some("size"), "missing");
        fails("[job]\nsize=4k\nbs=8k\n", 2, Some("size"), "8192 bytes");
        fails("[job]\nfilename=a:b\nsize=4k\n", 3, Some("size"), "each file");
        fails("[job]\nfilesize=1k\nsize=1m\n", 2, Some("filesize"), "block");
        fails("[job]\nfilesize=1m\nsize=1k\n", 3, Some("size"), "block");
        fails("[job]\nfilename=a\nfilesize=1m\noffset=2m\n", 3, Some("filesize"), "block");
        fails("[job]\nfilename=a\nfilesize=1m\noffset=2%\n", 4, Some("offset"), "percentage");
        fails("[job]\nsize=50%\n", 2, Some("size"), "missing");
        fails("[job]\nsize=1m\nrate=1\nrate_iops=1\n", 3, Some("rate"), "combined");
        fails("[job]\nsize=1m\nbs=4k\nbssplit=4k/\n", 4, Some("bssplit"), "combined");
        fails("[job]\nfilename=a:b:c\nfilesize=8191p\n", 3, Some("filesize"), "too large");
        fails("[job]\nsize=1m\ntime_based\n", 3, Some("time_based"), "runtime");
        fails("[job]\nsize=1m\ntime_based\nruntime=0\n", 3, Some("time_based"), "runtime");
        fails("[job]\nsize=1m\nfsync=1\nfdatasync=1\n", 4, Some("fdatasync"), "one of them");
        fails("[/dev/sdx]\nsize=1m\n", 1, Some("filename"), "missing");
        for key in ["sqthread_poll", "hipri", "fixedbufs", "registerfiles"] {
            fails(&format!("[job]\nsize=1m\nioengine=libaio\n{key}\n"), 4, Some(key), "io_uring");
        }
        // The message names the section.
        fails("[global]\nsize=4k\n[a]\n[b]\nbs=8k\n", 2, Some("size"), "[b]");
    }

    /// A valid or invalid line.
    fn line() -> impl Strategy<Value = String> {
        let value = prop_oneof![
            "[0-9]{1,20}[kmgtpKbi%]{0,3}",
            "0x[0-9a-f]{0,17}",
            "-?[0-9]{1,3}(ms|us|s|m|h|d)?",
            Just("io_uring".to_owned()),
            Just("libaio".to_owned()),
            Just("randrw".to_owned()),
            Just("a:b\\:c".to_owned()),
            ".*",
        ];
        prop_oneof![
            8 => (prop::sample::select(KEYS), value)
                .prop_map(|(key, value)| format!("{key}={value}")),
            2 => prop::sample::select(KEYS).prop_map(str::to_owned),
            1 => Just("[global]".to_owned()),
            2 => "\\[[a-z/]{0,3}\\]?",
            1 => ".*",
        ]
    }

    /// A job file and its workload.
    fn setting() -> impl Strategy<Value = (String, Workload)> {
        let bools = (any::<[bool; 8]>(), any::<bool>());
        let numbers = (
            0u8..=100,
            0u32..=3,
            1u32..=512,
            1u32..=32,
            1u32..=4096,
            0u64..1_000_000,
            any::<u64>(),
        );
        let times = (1u64..1_000_000, 0u64..1_000);
        let choices = (
            prop::sample::select(Access::value_variants()),
            prop::sample::select(&["io_uring", "libaio", "null"][..]),
            prop::option::of(1u32..100),
        );
        (bools, numbers, times, choices).prop_map(
            |(
                ([direct, poll, hipri, fixed, files, map, group, repeat], timed),
                (percent, shift, depth, batch, jobs, rate, seed),
                (runtime, ramp),
                (access, engine, fsync),
            )| {
                let uring = engine == "io_uring";
                let flag = |on: bool| u8::from(on);
                let mut text = format!(
                    "[j-1]\nioengine={engine}\nrw={}\nrwmixread={percent}\nbs={}k\n\
                     size=8m\niodepth={depth}\niodepth_batch={batch}\nnumjobs={jobs}\n\
                     rate_iops={rate}\nruntime={runtime}ms\nramp_time={ramp}\ndirect={}\n\
                     norandommap={}\ngroup_reporting={}\nrandrepeat={}\ntime_based={}\n",
                    access.name(),
                    1 << shift,
                    flag(direct),
                    flag(map),
                    flag(group),
                    flag(repeat),
                    flag(timed),
                );
                if uring {
                    text += &format!(
                        "sqthread_poll={}\nhipri={}\nfixedbufs={}\nregisterfiles={}\n",
                        flag(poll),
                        flag(hipri),
                        flag(fixed),
                        flag(files),
                    );
                }
                if repeat {
                    text += &format!("randseed={seed:#x}\n");
                }
                if let Some(every) = fsync {
                    text += &format!("fsync={every}\n");
                }
                let runtime = Duration::from_millis(runtime);
                let workload = Workload {
                    name: "j-1".to_owned(),
                    backend: match engine {
                        "io_uring" => Backend::Uring,
                        "libaio" => Backend::Kaio,
                        _ => Backend::Null,
                    },
                    access,
                    read_percent: percent,
                    block_size: 1024 << shift,
                    depth,
                    jobs,
                    direct,
                    sqpoll: uring && poll,
                    iopoll: uring && hipri,
                    fixed_buffers: uring && fixed,
                    fixed_files: uring && (files || poll),
                    batch: Some(batch.min(depth)),
                    stop: if timed { Stop::After(runtime) } else { Stop::Whole(Some(runtime)) },
                    ramp: Duration::from_secs(ramp),
                    rate: (rate > 0).then_some(Rate::Requests(rate)),
                    sync: fsync.map(Sync::Fsync),
                    seed: if repeat { seed } else { DEFAULT_SEED },
                    rand_repeat: repeat,
                    no_random_map: map,
                    target: Target::Directory { path: PathBuf::from("."), size: 8 << 20, files: 1 },
                    group_reporting: group,
                    ..plain()
                };
                (text, workload)
            },
        )
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            let _ = parse(&text);
        }

        #[test]
        fn arbitrary_lines_never_panic(lines in prop::collection::vec(line(), 0..12)) {
            match parse(&lines.join("\n")) {
                Ok(file) => prop_assert!(!file.jobs.is_empty()),
                Err(error) => prop_assert!(error.line >= 1),
            }
        }

        #[test]
        fn a_written_workload_is_read_back((text, workload) in setting()) {
            let file = parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(file.jobs, vec![workload]);
        }
    }
}
