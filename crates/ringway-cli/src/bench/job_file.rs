//! fio job files for `ringway bench`: a user who already describes a measurement for fio should not
//! have to describe it a second time.
//!
//! [`parse`] turns the text of a job file into [`Workload`]s. It is pure: it touches no file, what
//! is included it asks its caller for, and an environment variable is an error. It reads a subset
//! of fio's keys, those that a [`Workload`] can express, with the meaning and the defaults that
//! they have in fio 3.33. A key that it does not understand is an error too, because a measurement
//! that leaves a setting out is a measurement of something else.
//!
//! Where it differs from fio on purpose:
//!
//! * `kib`, `mib`, ... are powers of 1024; fio reads them as powers of 1000 (and `ki`, `mi` as
//!   powers of 1024). A note says so.
//! * Sections run one after another, as if each had `stonewall`. A note says so.
//! * `rate` and `rate_iops` of a mixed workload are for reads and writes together; fio allows each
//!   that much. A note says so.
//! * What fio lets pass and then ignores or misreads is an error: `time_based` without `runtime`,
//!   `numjobs=0`, `size=0`, negative numbers, numbers that overflow, an unknown suffix, an empty
//!   section name, a section header without `]`, shares of `bssplit` that do not add up to 100, a
//!   section in an included file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::workload::{
    Access, Advice, Backend, Pause, Rate, Sizes, Start, Stop, Sync, Target, Workload,
};

/// What a job file asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// One workload for each section but `[global]`, in the order of the file. Never empty.
    pub jobs: Vec<Workload>,
    /// What the user should know: where a setting has less effect than its line suggests, or
    /// another one than in fio.
    pub notes: Vec<String>,
}

/// The first thing in a job file that cannot be run as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFileError {
    /// The line, counted from 1.
    pub line: usize,
    /// The key as it is written, where the error is about one.
    pub key: Option<String>,
    /// What is wrong, and what would be accepted.
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

/// Every key that is understood, for the help and for the message about one that is not.
pub const KEYS: &[&str] = &[
    "blocksize",
    "blocksize_range",
    "bs",
    "bsrange",
    "bssplit",
    "buffered",
    "continue_on_error",
    "description",
    "direct",
    "directory",
    "fadvise_hint",
    "fallocate",
    "fdatasync",
    "filename",
    "filesize",
    "fixedbufs",
    "fsync",
    "group_reporting",
    "hipri",
    "io_size",
    "iodepth",
    "iodepth_batch",
    "iodepth_batch_complete",
    "iodepth_batch_complete_min",
    "iodepth_batch_submit",
    "ioengine",
    "name",
    "norandommap",
    "nrfiles",
    "numjobs",
    "offset",
    "overwrite",
    "ramp_time",
    "randrepeat",
    "randseed",
    "rate",
    "rate_iops",
    "readwrite",
    "registerfiles",
    "runtime",
    "rw",
    "rwmixread",
    "rwmixwrite",
    "size",
    "sqthread_poll",
    "stonewall",
    "thinktime",
    "thinktime_blocks",
    "thread",
    "threads",
    "time_based",
    "timeout",
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

const ACCESSES: &[(&str, Access)] = &[
    ("read", Access::Read),
    ("write", Access::Write),
    ("rw", Access::ReadWrite),
    ("readwrite", Access::ReadWrite),
    ("randread", Access::RandRead),
    ("randwrite", Access::RandWrite),
    ("randrw", Access::RandRw),
];

/// `1` leaves it to the order of the job's own requests.
const ADVICE: &[(&str, Advice)] = &[
    ("0", Advice::None),
    ("none", Advice::None),
    ("1", Advice::Own),
    ("random", Advice::Random),
    ("sequential", Advice::Sequential),
];

/// Whether a failed request leaves the job going.
const ON_ERROR: &[(&str, bool)] =
    &[("0", false), ("none", false), ("1", true), ("io", true), ("all", true)];

/// Whether space is allocated beforehand.
const ALLOCATION: &[(&str, bool)] =
    &[("0", false), ("none", false), ("1", true), ("native", true), ("posix", true)];

/// Linux moves no more than this in one read or write.
const LARGEST_REQUEST: u64 = 0x7fff_f000;

/// No file is larger: the kernel's offsets are signed.
const LARGEST_FILE: u64 = i64::MAX as u64;

/// fio's own limit for `numjobs`.
const MOST_JOBS: u64 = 4096;

/// More files than this a job has no descriptors for.
const MOST_FILES: u64 = 65_536;

/// Included files may include others, this deep.
const MOST_INCLUDES: u32 = 16;

/// fio's default for `randseed`.
const DEFAULT_SEED: u64 = 0x89;

/// Gets an included file: from the name of the file that includes it (empty for the job file
/// itself) and the name that stands there, its own name and its text, or what is wrong with it.
pub type Include<'a> = &'a mut dyn FnMut(&str, &str) -> Result<(String, String), String>;

/// Reads a fio job file.
///
/// # Errors
///
/// The first line that is not understood, or the first section whose settings contradict each
/// other. Lines are looked at before sections.
pub fn parse(text: &str, include: Include<'_>) -> Result<JobFile, JobFileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut notes = Vec::new();
    let mut globals = Settings::default();
    let mut sections: Vec<Section> = Vec::new();
    // Where a key belongs: `None` before the first header.
    let mut in_globals: Option<bool> = None;
    let mut last_line = 1;

    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        last_line = number;
        let content = content(line, number, &mut notes)?;
        if content.is_empty() {
            continue;
        }
        if let Some(header) = content.strip_prefix('[') {
            let name = section_name(header).map_err(|message| JobFileError {
                line: number,
                key: None,
                message,
            })?;
            in_globals = Some(name == "global");
            if name != "global" {
                // A section inherits what stands in the `[global]`s above it, not below it.
                sections.push(Section { line: number, name, settings: globals.clone() });
            }
            continue;
        }
        let settings = match (in_globals, sections.last_mut()) {
            (Some(true), _) => &mut globals,
            (Some(false), Some(section)) => &mut section.settings,
            _ => {
                let message =
                    "stands before any section; begin one with `[global]` or `[name]`".to_owned();
                return Err(Entry::new(content, number, &mut notes).error(message));
            }
        };
        match included(content) {
            Some(name) => settings.include("", name, number, include, &mut notes, MOST_INCLUDES)?,
            None => settings.set(&mut Entry::new(content, number, &mut notes))?,
        }
    }

    if sections.is_empty() {
        return Err(JobFileError {
            line: last_line,
            key: None,
            message: "there is no job in this file; begin one with a section such as `[randread]`"
                .to_owned(),
        });
    }
    if sections.iter().skip(1).any(|s| !s.settings.stonewall) {
        notes
            .push("the sections run one after another; fio runs those without `stonewall` at the same time".to_owned());
    }
    let jobs =
        sections.iter().map(|section| section.workload(&mut notes)).collect::<Result<_, _>>()?;
    Ok(JobFile { jobs, notes })
}

/// What a line has to say: without its comment and the white space around it.
fn content<'a>(
    line: &'a str,
    number: usize,
    notes: &mut Vec<String>,
) -> Result<&'a str, JobFileError> {
    let content = without_comment(line, number, notes);
    // Names, keys and values reach the terminal in messages and reports.
    if content.contains(|c: char| c.is_control() && c != '\t') {
        return Err(JobFileError {
            line: number,
            key: None,
            message: "there is a control character in this line; only comments may have some"
                .to_owned(),
        });
    }
    Ok(content)
}

/// The name of the file that a line includes, if it does.
fn included(content: &str) -> Option<&str> {
    content.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t'])).map(str::trim)
}

/// The line without its comment and the white space around it.
///
/// fio ends a line at the first `;` or `#`, wherever it stands. In the middle of a word that is
/// easily overlooked, so it leaves a note.
fn without_comment<'a>(line: &'a str, number: usize, notes: &mut Vec<String>) -> &'a str {
    let Some(start) = line.find([';', '#']) else {
        return line.trim();
    };
    let before = &line[..start];
    if before.ends_with(|c: char| !c.is_whitespace()) {
        notes.push(format!(
            "line {number}: what follows `{}` is a comment, as it is for fio",
            before.trim()
        ));
    }
    before.trim()
}

/// The name in a section's header, of which the `[` is already gone.
fn section_name(header: &str) -> Result<String, String> {
    let Some(name) = header.strip_suffix(']') else {
        return Err("a section's header ends with `]`, as in `[randread]`".to_owned());
    };
    let name = name.trim();
    if name.is_empty() {
        return Err("a section needs a name, as in `[randread]`".to_owned());
    }
    Ok(name.to_owned())
}

/// One `key=value` line, or a key alone.
struct Entry<'a, 'n> {
    line: usize,
    key: &'a str,
    value: Option<&'a str>,
    notes: &'n mut Vec<String>,
}

impl<'a, 'n> Entry<'a, 'n> {
    fn new(content: &'a str, line: usize, notes: &'n mut Vec<String>) -> Self {
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

    fn note(&mut self, message: &str) {
        self.notes.push(format!("line {}: `{}`: {message}", self.line, self.key));
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
        let Some(number) = number(text).filter(|number| (min..=max).contains(number)) else {
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
            self.note(&format!("`{text}` is {number} here, a power of 1024; fio takes this unit for a power of 1000"));
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
    fn bytes_or_percent(&mut self, min: u64, max: u64) -> Result<Result<u64, u8>, JobFileError> {
        let text = self.text()?;
        match text.strip_suffix('%') {
            None => self.number(min, max).map(Ok),
            Some(percent) => match percent.parse::<u8>() {
                Ok(percent) if (min.min(1)..=100).contains(&percent.into()) => Ok(Err(percent)),
                _ => {
                    Err(self.refuse(text, "give a whole number of percent, at most 100, or bytes"))
                }
            },
        }
    }

    /// `4k-16k`: the sizes from the first up to the last, which is a multiple of it.
    fn range(&mut self) -> Result<(u64, u64), JobFileError> {
        let text = self.text()?;
        let Some((least, largest)) = text.split_once('-') else {
            return Err(self.refuse(text, "give the least and the largest size, such as 4k-16k"));
        };
        let least = self.number_in(least, 1, LARGEST_REQUEST)?;
        let largest = self.number_in(largest, least, LARGEST_REQUEST)?;
        if !largest.is_multiple_of(least) {
            return Err(self.refuse(text, "the largest size must be a multiple of the least"));
        }
        Ok((least, largest))
    }

    /// `4k/60:64k/40`: sizes and their percentages; those without one share what is left.
    fn split(&mut self) -> Result<Vec<(u64, u8)>, JobFileError> {
        let text = self.text()?;
        let mut sizes = Vec::new();
        for part in text.split(':') {
            let (size, share) = part.split_once('/').unwrap_or((part, ""));
            let size = self.number_in(size, 1, LARGEST_REQUEST)?;
            // The range ends at 100, so nothing is lost.
            let share =
                if share.is_empty() { None } else { Some(self.number_in(share, 0, 100)? as u32) };
            sizes.push((size, share));
        }
        let given: u32 = sizes.iter().filter_map(|(_, share)| *share).sum();
        let open = sizes.iter().filter(|(_, share)| share.is_none()).count() as u32;
        if given > 100 || (open == 0 && given < 100) {
            return Err(self.refuse(text, "the percentages must add up to 100"));
        }
        let least = sizes.iter().map(|(size, _)| *size).min().unwrap_or(1);
        if sizes.iter().any(|(size, _)| !size.is_multiple_of(least)) {
            return Err(self.refuse(text, "all sizes must be multiples of the least"));
        }
        let (each, mut rest) = match open {
            0 => (0, 0),
            open => ((100 - given) / open, (100 - given) % open),
        };
        let share = |share: Option<u32>| {
            let extra = u32::from(share.is_none() && rest > 0);
            rest -= extra;
            // Not over 100, so nothing is lost.
            share.unwrap_or(each + extra) as u8
        };
        let (sizes, shares): (Vec<_>, Vec<_>) = sizes.into_iter().unzip();
        Ok(sizes.into_iter().zip(shares.into_iter().map(share)).collect())
    }

    fn time(&self) -> Result<Duration, JobFileError> {
        self.time_in("s", "seconds")
    }

    /// A time, in this unit when none is given.
    fn time_in(&self, unit: &str, name: &str) -> Result<Duration, JobFileError> {
        let text = self.text()?;
        let with_unit = if text.ends_with(|c: char| c.is_ascii_digit()) {
            format!("{text}{unit}")
        } else {
            text.into()
        };
        time(&with_unit).ok_or_else(|| {
            let accepted = format!(
                "give a whole number of {name} or one with a unit: us, ms, s, m (minutes), h or d"
            );
            self.refuse(text, &accepted)
        })
    }

    /// A key that must have a value, 0 or 1.
    fn boolean(&self) -> Result<bool, JobFileError> {
        match self.text()? {
            "0" => Ok(false),
            "1" => Ok(true),
            other => Err(self.refuse(other, "give 0 or 1")),
        }
    }

    /// A key that means 1 when it stands alone.
    fn flag(&self) -> Result<bool, JobFileError> {
        if self.value.is_none() {
            return Ok(true);
        }
        self.boolean()
    }

    fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, JobFileError> {
        let text = self.text()?;
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
            return Ok(*choice);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Err(self.refuse(text, &format!("give one of {}", names.join(", "))))
    }

    /// Names separated by colons; `\:` is a colon in a name. Empty ones are passed over, as in fio.
    fn names(&self) -> Result<Vec<String>, JobFileError> {
        let text = self.text()?;
        let mut names = Vec::new();
        let mut name = String::new();
        for character in text.chars() {
            if character != ':' {
                name.push(character);
            } else if name.ends_with('\\') {
                name.pop();
                name.push(':');
            } else {
                names.push(std::mem::take(&mut name));
            }
        }
        names.push(name);
        names.retain(|name| !name.is_empty());
        if names.is_empty() {
            return Err(self.refuse(text, "give a path, or several separated by `:`"));
        }
        Ok(names)
    }
}

/// A whole number, in hex or with one of fio's suffixes.
fn number(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    if let Some(digits) = text.strip_prefix("0x") {
        // `from_str_radix` alone would let a sign pass.
        if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
            return None;
        }
        return u64::from_str_radix(digits, 16).ok();
    }
    let (digits, unit) = split_unit(&text);
    let factor: u64 = match unit {
        "" | "b" => 1,
        "k" | "kb" | "ki" | "kib" => 1 << 10,
        "m" | "mb" | "mi" | "mib" => 1 << 20,
        "g" | "gb" | "gi" | "gib" => 1 << 30,
        "t" | "tb" | "ti" | "tib" => 1 << 40,
        "p" | "pb" | "pi" | "pib" => 1 << 50,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// A time with its unit.
fn time(text: &str) -> Option<Duration> {
    let text = text.to_ascii_lowercase();
    let (digits, unit) = split_unit(&text);
    let micros: u64 = match unit {
        "us" | "usec" => 1,
        "ms" | "msec" => 1_000,
        "s" | "sec" => 1_000_000,
        "m" => 60 * 1_000_000,
        "h" => 3_600 * 1_000_000,
        "d" => 86_400 * 1_000_000,
        _ => return None,
    };
    let total = digits.parse::<u64>().ok()?.checked_mul(micros)?;
    Some(Duration::from_micros(total))
}

/// The digits at the beginning, and what follows them.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// What the keys above a point in the file add up to. The defaults are fio's.
#[derive(Clone)]
struct Settings {
    /// The line of each key that was given, under its main name.
    lines: BTreeMap<&'static str, usize>,
    name: Option<String>,
    description: Option<String>,
    backend: Backend,
    access: Access,
    read_percent: u8,
    block_size: u64,
    sizes: Sizes,
    size: Option<u64>,
    percent: u8,
    file_size: Option<u64>,
    io_size: Option<u64>,
    start: Start,
    files: u32,
    filenames: Vec<String>,
    directory: Option<String>,
    direct: bool,
    depth: u32,
    batch: u32,
    complete_min: u32,
    jobs: u32,
    runtime: Duration,
    time_based: bool,
    ramp: Duration,
    group_reporting: bool,
    rand_repeat: bool,
    seed: u64,
    sqpoll: bool,
    iopoll: bool,
    fixed_buffers: bool,
    fixed_files: bool,
    fsync: u32,
    fdatasync: u32,
    rate: u64,
    rate_iops: u64,
    think: Duration,
    think_blocks: u64,
    no_random_map: bool,
    stonewall: bool,
    overwrite: bool,
    allocate: bool,
    advice: Advice,
    continue_on_error: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            lines: BTreeMap::new(),
            name: None,
            description: None,
            backend: Backend::Psync,
            access: Access::Read,
            read_percent: 50,
            block_size: 4096,
            sizes: Sizes::One,
            size: None,
            percent: 100,
            file_size: None,
            io_size: None,
            start: Start::Byte(0),
            files: 1,
            filenames: Vec::new(),
            directory: None,
            direct: false,
            depth: 1,
            batch: 1,
            complete_min: 1,
            jobs: 1,
            runtime: Duration::ZERO,
            time_based: false,
            ramp: Duration::ZERO,
            group_reporting: false,
            rand_repeat: true,
            seed: DEFAULT_SEED,
            sqpoll: false,
            iopoll: false,
            fixed_buffers: false,
            fixed_files: false,
            fsync: 0,
            fdatasync: 0,
            rate: 0,
            rate_iops: 0,
            think: Duration::ZERO,
            think_blocks: 1,
            no_random_map: false,
            stonewall: false,
            overwrite: false,
            allocate: true,
            advice: Advice::Own,
            continue_on_error: false,
        }
    }
}

impl Settings {
    /// Takes the lines of an included file over. Errors are at the line that includes it.
    fn include(
        &mut self,
        from: &str,
        name: &str,
        line: usize,
        include: Include<'_>,
        notes: &mut Vec<String>,
        depth: u32,
    ) -> Result<(), JobFileError> {
        let refuse =
            |message: String| JobFileError { line, key: Some("include".to_owned()), message };
        if depth == 0 {
            return Err(refuse(format!("`{name}` is included by a file that it includes")));
        }
        let (name, text) = include(from, name).map_err(refuse)?;
        for (index, text) in text.lines().enumerate() {
            let inside = |error: JobFileError| JobFileError {
                line,
                message: format!("in {name}, line {}: {}", index + 1, error.message),
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

    /// Takes one line over. Of a key that is given twice the last line counts, as in fio.
    fn set(&mut self, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
        let Some(key) = main_name(entry.key) else {
            return Err(entry.error(format!(
                "this key is not understood; of fio's keys these are: {}, include",
                KEYS.join(", ")
            )));
        };
        match key {
            "ioengine" => self.backend = entry.choice(ENGINES)?,
            "rw" => self.access = entry.choice(ACCESSES)?,
            "rwmixread" => self.read_percent = entry.percent()?,
            "rwmixwrite" => self.read_percent = 100 - entry.percent()?,
            "bs" => (self.block_size, self.sizes) = (entry.number(1, LARGEST_REQUEST)?, Sizes::One),
            "bsrange" => {
                let (least, largest) = entry.range()?;
                (self.block_size, self.sizes) = (least, Sizes::UpTo(largest));
            }
            "bssplit" => {
                let sizes = entry.split()?;
                self.block_size =
                    sizes.iter().map(|(size, _)| *size).min().unwrap_or(self.block_size);
                self.sizes = Sizes::Split(sizes);
            }
            "size" => {
                (self.size, self.percent) = match entry.bytes_or_percent(1, LARGEST_FILE)? {
                    Ok(size) => (Some(size), 100),
                    Err(percent) => (None, percent),
                };
            }
            "io_size" => self.io_size = Some(entry.number(1, LARGEST_FILE)?),
            "offset" => {
                self.start = match entry.bytes_or_percent(0, LARGEST_FILE)? {
                    Ok(byte) => Start::Byte(byte),
                    Err(percent) => Start::Percent(percent),
                };
            }
            // The range ends at `MOST_FILES`, so nothing is lost.
            "nrfiles" => self.files = entry.number(1, MOST_FILES)? as u32,
            "overwrite" => self.overwrite = entry.flag()?,
            "fallocate" => self.allocate = entry.choice(ALLOCATION)?,
            "fadvise_hint" => self.advice = entry.choice(ADVICE)?,
            "continue_on_error" => self.continue_on_error = entry.choice(ON_ERROR)?,
            "thinktime" => self.think = entry.time_in("us", "microseconds")?,
            "thinktime_blocks" => self.think_blocks = entry.number(1, u64::MAX)?,
            "rate" => self.rate = entry.number(0, u64::MAX)?,
            "filesize" => self.file_size = Some(entry.number(1, LARGEST_FILE)?),
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
                    return Err(entry
                        .error("give one folder; write `\\:` for a colon in its name".to_owned()));
                }
                self.directory = names.pop();
            }
            "direct" => self.direct = entry.boolean()?,
            "buffered" => self.direct = !entry.boolean()?,
            "iodepth" => self.depth = entry.number_u32(1)?,
            "iodepth_batch" => self.batch = entry.number_u32(0)?,
            "iodepth_batch_complete_min" => self.complete_min = entry.number_u32(0)?,
            // The range ends at `MOST_JOBS`, so nothing is lost.
            "numjobs" => self.jobs = entry.number(1, MOST_JOBS)? as u32,
            "runtime" => self.runtime = entry.time()?,
            "time_based" => self.time_based = entry.flag()?,
            "ramp_time" => self.ramp = entry.time()?,
            "group_reporting" => self.group_reporting = entry.flag()?,
            "randrepeat" => self.rand_repeat = entry.boolean()?,
            "randseed" => self.seed = entry.number(0, u64::MAX)?,
            "thread" => {
                if !entry.flag()? {
                    entry.note("jobs are always threads, never processes");
                }
            }
            "threads" => {
                entry.number(0, MOST_JOBS)?;
                entry.note("has no effect: jobs are always threads, and `numjobs` says how many");
            }
            "sqthread_poll" => self.sqpoll = entry.flag()?,
            "hipri" => self.iopoll = entry.flag()?,
            "fixedbufs" => self.fixed_buffers = entry.flag()?,
            "registerfiles" => self.fixed_files = entry.flag()?,
            "fsync" => self.fsync = entry.number_u32(0)?,
            "fdatasync" => self.fdatasync = entry.number_u32(0)?,
            "rate_iops" => self.rate_iops = entry.number(0, u64::MAX)?,
            "norandommap" => self.no_random_map = entry.flag()?,
            "stonewall" => self.stonewall = entry.flag()?,
            "name" => self.name = Some(entry.text()?.to_owned()),
            "description" => self.description = Some(entry.text()?.to_owned()),
            _ => unreachable!("a key that is listed has an arm"),
        }
        self.lines.insert(key, entry.line);
        Ok(())
    }
}

/// The name under which fio lists a key that has two; `None` for one that is not understood.
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

/// A section of the file that is a job.
struct Section {
    line: usize,
    name: String,
    settings: Settings,
}

impl Section {
    /// The job's name, which `name` may change.
    fn name(&self) -> &str {
        self.settings.name.as_deref().unwrap_or(&self.name)
    }

    /// An error about a key, at its line or, when it is not given, at the section's header.
    fn error(&self, key: &str, message: String) -> JobFileError {
        JobFileError {
            line: self.settings.lines.get(key).copied().unwrap_or(self.line),
            key: Some(key.to_owned()),
            message: format!("in [{}]: {message}", self.name),
        }
    }

    fn note(&self, notes: &mut Vec<String>, message: &str) {
        notes.push(format!("[{}]: {message}", self.name));
    }

    fn workload(&self, notes: &mut Vec<String>) -> Result<Workload, JobFileError> {
        let settings = &self.settings;
        if let Some(description) = &settings.description {
            self.note(notes, description);
        }
        let depth = self.depth(notes);
        let uring = self.uring_only(notes)?;
        let (target, stop) = self.target_and_stop()?;
        let rate = self.rate(notes)?;
        self.sizes()?;
        Ok(Workload {
            name: self.name().to_owned(),
            backend: settings.backend,
            access: settings.access,
            read_percent: settings.read_percent,
            block_size: settings.block_size,
            sizes: settings.sizes.clone(),
            depth,
            jobs: settings.jobs,
            direct: settings.direct,
            sqpoll: uring && settings.sqpoll,
            iopoll: uring && settings.iopoll,
            fixed_buffers: uring && settings.fixed_buffers,
            // fio registers the files whenever a kernel thread submits: the kernels that first had
            // such a thread required it.
            fixed_files: uring && (settings.fixed_files || settings.sqpoll),
            batch: Some(self.batch(depth, notes)),
            complete_min: self.at_most_depth(
                "iodepth_batch_complete_min",
                settings.complete_min,
                depth,
                notes,
            ),
            stop,
            ramp: settings.ramp,
            rate,
            pause: (!settings.think.is_zero())
                .then_some(Pause { time: settings.think, after: settings.think_blocks }),
            sync: self.sync()?,
            seed: settings.seed,
            // A seed that is given is a wish for repetition, whatever `randrepeat` says.
            rand_repeat: settings.rand_repeat || settings.lines.contains_key("randseed"),
            no_random_map: settings.no_random_map,
            verify: false,
            stop_on_error: !settings.continue_on_error,
            target,
            start: settings.start,
            percent: settings.percent,
            lay_out: settings.overwrite,
            preallocate: settings.allocate,
            advice: settings.advice,
            group_reporting: settings.group_reporting,
        })
    }

    fn rate(&self, notes: &mut Vec<String>) -> Result<Option<Rate>, JobFileError> {
        let rate = match (self.settings.rate, self.settings.rate_iops) {
            (0, 0) => return Ok(None),
            (0, requests) => Rate::Requests(requests),
            (bytes, 0) => Rate::Bytes(bytes),
            _ => {
                return Err(self.error(
                    "rate",
                    "cannot be combined with `rate_iops`; give one of them".to_owned(),
                ));
            }
        };
        if matches!(self.settings.access, Access::ReadWrite | Access::RandRw) {
            self.note(
                notes,
                "the rate is for reads and writes together; fio allows this rate for each",
            );
        }
        Ok(Some(rate))
    }

    /// In fio `bssplit` holds whatever else is said, wherever that stands.
    fn sizes(&self) -> Result<(), JobFileError> {
        let given = |key| self.settings.lines.contains_key(key);
        match given("bssplit") && (given("bs") || given("bsrange")) {
            true => {
                Err(self.error("bssplit", "cannot be combined with `bs` or `bsrange`".to_owned()))
            }
            false => Ok(()),
        }
    }

    /// A blocking call has nothing in flight beside itself: fio ignores `iodepth` there.
    fn depth(&self, notes: &mut Vec<String>) -> u32 {
        let depth = self.settings.depth;
        if self.settings.backend != Backend::Psync {
            return depth;
        }
        if depth > 1 {
            self.note(
                notes,
                &format!(
                    "`iodepth={depth}` has no effect with an engine of blocking calls: each job \
                     has one request in flight, and `numjobs` makes more"
                ),
            );
        }
        1
    }

    /// Requests gathered before they are submitted. 0 is fio's word for as many as `iodepth`.
    fn batch(&self, depth: u32, notes: &mut Vec<String>) -> u32 {
        match self.settings.batch {
            0 => depth,
            batch => self.at_most_depth("iodepth_batch_submit", batch, depth, notes),
        }
    }

    fn at_most_depth(&self, key: &str, value: u32, depth: u32, notes: &mut Vec<String>) -> u32 {
        if value > depth {
            self.note(
                notes,
                &format!("`{key}={value}` is lowered to the {depth} that can be in flight"),
            );
        }
        value.min(depth)
    }

    /// Whether the job uses io_uring. If it does not, io_uring's own keys must not stand in its
    /// section; inherited from `[global]` they are left out, as fio leaves them out.
    fn uring_only(&self, notes: &mut Vec<String>) -> Result<bool, JobFileError> {
        let settings = &self.settings;
        if settings.backend == Backend::Uring {
            return Ok(true);
        }
        for (key, on) in [
            ("sqthread_poll", settings.sqpoll),
            ("hipri", settings.iopoll),
            ("fixedbufs", settings.fixed_buffers),
            ("registerfiles", settings.fixed_files),
        ] {
            if !on {
                continue;
            }
            if settings.lines.get(key).is_some_and(|&line| line > self.line) {
                return Err(self.error(key, "needs `ioengine=io_uring`".to_owned()));
            }
            self.note(notes, &format!("`{key}` is left out: it needs `ioengine=io_uring`"));
        }
        Ok(false)
    }

    fn sync(&self) -> Result<Option<Sync>, JobFileError> {
        match (self.settings.fsync, self.settings.fdatasync) {
            (0, 0) => Ok(None),
            (every, 0) => Ok(Some(Sync::Fsync(every))),
            (0, every) => Ok(Some(Sync::Fdatasync(every))),
            _ => Err(self.error(
                "fdatasync",
                "cannot be combined with `fsync`; give one of them, or 0 for the other".to_owned(),
            )),
        }
    }

    /// Where the job works and when it ends.
    fn target_and_stop(&self) -> Result<(Target, Stop), JobFileError> {
        let settings = &self.settings;
        let files = match settings.filenames.len() as u64 {
            0 => u64::from(settings.files),
            files => files,
        };
        let offset = match (settings.start, settings.file_size) {
            (Start::Percent(_), Some(_)) => {
                return Err(self.error(
                    "offset",
                    "cannot be a percentage where `filesize` is given".to_owned(),
                ));
            }
            (Start::Byte(byte), _) => byte,
            (Start::Percent(_), None) => 0,
        };
        // fio: `size` is for all files together unless `filesize` gives the size of each; then
        // `size` is merely what there is to move. `filesize` has the bytes before `offset` in it.
        let behind_offset = settings.file_size.map(|each| each.saturating_sub(offset));
        let (file_size, amount) = match (behind_offset, settings.size) {
            (None, None) => (None, None),
            // As much as the files have.
            (None, Some(size)) => (Some(size / files), None),
            (Some(each), Some(size)) => (Some(each), Some(size)),
            (Some(each), None) => {
                let Some(amount) = each.checked_mul(files) else {
                    return Err(self.error(
                        "filesize",
                        "is too large for so many files; give `size` too".to_owned(),
                    ));
                };
                (Some(each), Some(amount))
            }
        };
        let short = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes < settings.block_size);
        if short(file_size) || short(settings.size) {
            let key = if short(behind_offset) { "filesize" } else { "size" };
            return Err(self.error(
                key,
                format!(
                    "is less than one block behind the offset; give at least {} bytes for each file, or a smaller \
                     `bs`",
                    settings.block_size
                ),
            ));
        }

        // Of a percentage, only the file's size tells how much it is.
        let amount = settings.io_size.or(amount.filter(|_| settings.percent == 100));
        let runtime = (!settings.runtime.is_zero()).then_some(settings.runtime);
        let stop = match (settings.time_based, runtime, amount) {
            (true, Some(runtime), _) => Stop::After(runtime),
            (true, None, _) => {
                return Err(
                    self.error("time_based", "needs a `runtime`, such as `runtime=15s`".to_owned())
                );
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
                return Err(self.error(
                    "size",
                    "is missing; give the size of the file, such as `size=1g`, or an existing \
                     file with `filename`"
                        .to_owned(),
                ));
            };
            // The file is named after the job, and belongs in the folder, not beside it.
            if self.name().contains('/') {
                return Err(self.error(
                    "filename",
                    "is missing, and a file cannot be named after the job because of the `/`"
                        .to_owned(),
                ));
            }
            let path = PathBuf::from(settings.directory.as_deref().unwrap_or("."));
            return Ok(Target::Directory { path, size, files: settings.files });
        }
        let paths = settings
            .filenames
            .iter()
            .map(|name| match &settings.directory {
                // Not `Path::join`: fio puts even an absolute name below the folder.
                Some(directory) => PathBuf::from(format!("{directory}/{name}")),
                None => PathBuf::from(name),
            })
            .collect();
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

    /// What `[job]` with `size=1m` means: fio's defaults.
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

    /// Without files to include.
    fn parse(text: &str) -> Result<JobFile, JobFileError> {
        super::parse(text, &mut |_, name| Err(format!("{name} is not there")))
    }

    /// The workload of `[job]` with `size=1m`, io_uring and these lines, and the notes.
    fn uring(lines: &str) -> (Workload, Vec<String>) {
        one(&format!("[job]\nsize=1m\nioengine=io_uring\n{lines}\n"))
    }

    fn one(text: &str) -> (Workload, Vec<String>) {
        let mut file = parse(text).unwrap_or_else(|error| panic!("{error} in {text:?}"));
        assert_eq!(file.jobs.len(), 1, "{text:?}");
        (file.jobs.remove(0), file.notes)
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
            [
                "line 5: `threads`: has no effect: jobs are always threads, and `numjobs` says how many"
            ]
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

    /// Each key, alone or with what it needs, changes what it should and nothing else.
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
        // The keys left over have tests of their own: `ioengine`, `threads`, and those of files.
        let (_, notes) = uring("description=what it is for");
        assert_eq!(notes, ["[job]: what it is for"]);
    }

    /// The message about an unknown key must not name one that is unknown as well.
    #[test]
    fn every_key_that_is_called_known_is_known() {
        for key in KEYS {
            if let Err(error) = parse(&format!("[job]\nsize=1m\n{key}=1\n")) {
                assert!(!error.message.contains("understood"), "{error}");
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
            let (job, notes) = one(&format!("[job]\nsize=1m\nioengine={name}\niodepth=8\n"));
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
    fn units() {
        for (text, expected) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("4096", Some(4096)),
            ("4096b", Some(4096)),
            ("4096B", Some(4096)),
            ("4k", Some(4096)),
            ("4K", Some(4096)),
            ("4kb", Some(4096)),
            ("4kB", Some(4096)),
            ("4ki", Some(4096)),
            ("4KiB", Some(4096)),
            ("3m", Some(3 << 20)),
            ("3MB", Some(3 << 20)),
            ("3mi", Some(3 << 20)),
            ("3mib", Some(3 << 20)),
            ("1g", Some(1 << 30)),
            ("1gb", Some(1 << 30)),
            ("1Gi", Some(1 << 30)),
            ("1GiB", Some(1 << 30)),
            ("2t", Some(2 << 40)),
            ("2tb", Some(2 << 40)),
            ("2ti", Some(2 << 40)),
            ("2tib", Some(2 << 40)),
            ("1p", Some(1 << 50)),
            ("1pb", Some(1 << 50)),
            ("1pi", Some(1 << 50)),
            ("1pib", Some(1 << 50)),
            ("0x1000", Some(4096)),
            ("0X1F", Some(31)),
            ("0xb", Some(11)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16383p", Some(16383 << 50)),
            ("16384p", None),
            ("0x10000000000000000", None),
            ("", None),
            ("k", None),
            ("0x", None),
            ("0x+1", None),
            ("0x10k", None),
            ("-1", None),
            ("+1", None),
            ("1.5k", None),
            ("1 k", None),
            ("1kk", None),
            ("1ib", None),
            ("1e", None),
            ("50%", None),
            ("４k", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
        for (text, expected) in [
            ("15s", Some(Duration::from_secs(15))),
            ("15SEC", Some(Duration::from_secs(15))),
            ("500ms", Some(Duration::from_millis(500))),
            ("500msec", Some(Duration::from_millis(500))),
            ("10us", Some(Duration::from_micros(10))),
            ("10usec", Some(Duration::from_micros(10))),
            ("2m", Some(Duration::from_secs(120))),
            ("2M", Some(Duration::from_secs(120))),
            ("1h", Some(Duration::from_secs(3600))),
            ("1d", Some(Duration::from_secs(86_400))),
            ("0s", Some(Duration::ZERO)),
            ("15", None),
            ("-5s", None),
            ("1.5s", None),
            ("5min", None),
            ("s", None),
            ("", None),
            ("18446744073709551615s", None),
        ] {
            assert_eq!(time(text), expected, "{text}");
        }
    }

    #[test]
    fn a_unit_that_fio_takes_for_another_is_noted() {
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

        // An absolute name goes below the folder too.
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

        // Of a percentage, the file's size tells how much it is.
        let (job, _) = one("[job]\nfilename=a\nsize=50%\n");
        assert_eq!(
            (job.target, job.percent, job.stop),
            (Target::Files(paths(&["a"])), 50, Stop::Whole(None))
        );
        let (job, _) = one("[job]\nfilesize=1m\nsize=50%\nio_size=7k\n");
        assert_eq!((job.percent, job.stop), (50, Stop::Bytes(7168, None)));
        assert_eq!(one("[job]\nsize=1%\nsize=1m\n").0.percent, 100);

        // The bytes before the offset are a part of the file's size, and no part of what is to be
        // moved.
        let (job, _) = one("[job]\nfilename=a\nfilesize=1m\noffset=512k\n");
        assert_eq!(job.target, Target::SizedFiles { paths: paths(&["a"]), size: 1 << 19 });
        assert_eq!(job.stop, Stop::Bytes(1 << 19, None));

        // A device's own name is a fine name when the file is not named after it.
        assert_eq!(one("[/dev/sdx]\nfilename=/dev/sdx\n").0.name, "/dev/sdx");
    }

    #[test]
    fn globals_apply_to_what_follows() {
        let file = parse(
            "[global]\nsize=4m\niodepth=3\nioengine=libaio\n[a]\nbs=1k\n\
             [global]\niodepth=7\n[b]\nbs=2k\n[b]\nstonewall\niodepth=9\n",
        )
        .unwrap();
        let got: Vec<_> =
            file.jobs.iter().map(|job| (job.name.as_str(), job.depth, job.block_size)).collect();
        assert_eq!(got, [("a", 3, 1024), ("b", 7, 2048), ("b", 9, 4096)]);
        assert_eq!(file.notes.len(), 1);
        assert!(file.notes[0].contains("stonewall"));
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
    fn no_note_when_every_later_section_waits() {
        let file = parse("[a]\nsize=1m\n[b]\nsize=1m\nstonewall\n").unwrap();
        assert_eq!(file.notes, Vec::<String>::new());
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
    fn what_is_lowered_is_noted() {
        let (job, notes) = uring("iodepth=4\niodepth_batch=8\niodepth_batch_complete=5");
        assert_eq!((job.batch, job.complete_min), (Some(4), 4));
        assert!(notes[0].contains("iodepth_batch_submit=8"), "{notes:?}");
        assert!(notes[1].contains("iodepth_batch_complete_min=5"), "{notes:?}");
    }

    #[test]
    fn other_notes() {
        assert!(uring("thread=0").1[0].contains("always threads"));
        assert!(uring("rw=randrw\nrate_iops=5").1[0].contains("for each"));
        assert!(uring("rw=rw\nrate=5").1[0].contains("for each"));
        // Inherited, an io_uring key is left out; fio does the same.
        let file = parse("[global]\nioengine=io_uring\nsize=1m\nsqthread_poll\n[a]\n[b]\nstonewall\nioengine=libaio\n")
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
        fails("[job]\nSIZE=1m\n", 2, Some("SIZE"), "of fio's keys");
        fails("[job]\n\nzonesize=2\n", 3, Some("zonesize"), "of fio's keys");
        fails("[job]\ninclude x.fio\n", 2, Some("include"), "not there");
        fails("[job]\n=5\n", 2, Some(""), "of fio's keys");
        // A `[global]` that no section follows is looked at too.
        fails("[job]\nsize=1m\n[global]\nnope=1\n", 4, Some("nope"), "of fio's keys");
    }

    #[test]
    fn errors_of_values() {
        let line = |key: &str, value: &str, part: &str| {
            fails(&format!("[job]\n{key}={value}\n"), 2, Some(key), part);
        };
        line("ioengine", "posixaio", "io_uring");
        line("rw", "trim", "randread");
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
        // Of several sections, the one that is meant is named.
        fails("[global]\nsize=4k\n[a]\n[b]\nbs=8k\n", 2, Some("size"), "[b]");
    }

    /// A line as somebody might write it, right or wrong.
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
            8 => (prop::sample::select(KEYS), value).prop_map(|(key, value)| format!("{key}={value}")),
            2 => prop::sample::select(KEYS).prop_map(str::to_owned),
            1 => Just("[global]".to_owned()),
            2 => "\\[[a-z/]{0,3}\\]?",
            1 => ".*",
        ]
    }

    /// A line or two that set one thing, and what they do to a workload.
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
            prop::sample::select(ACCESSES),
            prop::sample::select(&["io_uring", "libaio", "null"][..]),
            prop::option::of(1u32..100),
        );
        (bools, numbers, times, choices).prop_map(
            |(
                ([direct, poll, hipri, fixed, files, map, group, repeat], timed),
                (percent, shift, depth, batch, jobs, rate, seed),
                (runtime, ramp),
                ((access_name, access), engine, fsync),
            )| {
                let uring = engine == "io_uring";
                let flag = |on: bool| u8::from(on);
                let mut text = format!(
                    "[j-1]\nioengine={engine}\nrw={access_name}\nrwmixread={percent}\nbs={}k\n\
                     size=8m\niodepth={depth}\niodepth_batch={batch}\nnumjobs={jobs}\n\
                     rate_iops={rate}\nruntime={runtime}ms\nramp_time={ramp}\ndirect={}\n\
                     norandommap={}\ngroup_reporting={}\nrandrepeat={}\ntime_based={}\n",
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
        fn what_is_written_is_what_is_read((text, workload) in setting()) {
            let file = parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(file.jobs, vec![workload]);
        }
    }
}
