//! Runs the cases of `conformance/`, whose README has the grammar. After every step pushed =
//! delivered + orphaned + in flight.
//!
//! Operations are made by the safe functions of `op`. Those that the safe functions cannot express
//! (a number that is no descriptor, say) are made by `Operation::from_raw`, and counted. Which
//! backends and restrictions the cases run under is left to the tests that use this module.

use ringway_core::c as libc;
use ringway_core::op::{self, Position, Raw, Readiness, Vectored};
use ringway_core::{
    AlignedBuffer, BackendKind, Buffer, BuildError, FaultPlan, File, OpId, OpenOptions, Operation,
    Options, OwnedFd, Queue,
};
use std::any::Any;
use std::collections::HashMap;
use std::env;
use std::ffi::CString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use system::{Process, RawFd, raw_fd};

#[cfg(unix)]
#[path = "cases_unix.rs"]
mod system;
#[cfg(windows)]
#[path = "cases_windows.rs"]
mod system;

/// A number that no descriptor has.
const NONE: RawFd = 1_000_000;

/// Why a case ends early.
pub enum Stop {
    Failed(String),
    Skipped(String),
}

type Step<T = ()> = Result<T, Stop>;

fn fail<T>(text: impl Into<String>) -> Step<T> {
    Err(Stop::Failed(text.into()))
}

fn checked<T>(result: std::io::Result<T>) -> Step<T> {
    result.map_err(|error| Stop::Failed(format!("system call of the runner: {error}")))
}

// Words.

macro_rules! table {
    ($name:ident: $($constant:ident)*) => {
        const $name: &[(&str, u64)] = &[$((stringify!($constant), libc::$constant as u64),)*];
    };
}

table! { FLAGS:
    O_RDONLY O_WRONLY O_RDWR O_CREAT O_EXCL O_TRUNC O_APPEND O_DIRECT O_DIRECTORY O_NOFOLLOW
    O_TMPFILE O_PATH O_NONBLOCK AT_REMOVEDIR AT_SYMLINK_NOFOLLOW AT_EMPTY_PATH RENAME_NOREPLACE
    POSIX_FADV_NORMAL POSIX_FADV_RANDOM POSIX_FADV_SEQUENTIAL POSIX_FADV_WILLNEED
    POSIX_FADV_DONTNEED POSIX_FADV_NOREUSE POLLIN POLLOUT STATX_BASIC_STATS
}

#[cfg(unix)]
table! { UNIX_FLAGS: O_SYNC AT_SYMLINK_FOLLOW POLLERR POLLHUP POLLPRI }
#[cfg(windows)]
table! { UNIX_FLAGS: }

#[cfg(target_os = "linux")]
table! { LINUX_FLAGS:
    O_NOATIME AT_STATX_DONT_SYNC RENAME_EXCHANGE FALLOC_FL_KEEP_SIZE FALLOC_FL_PUNCH_HOLE
    FALLOC_FL_ZERO_RANGE FALLOC_FL_COLLAPSE_RANGE FALLOC_FL_INSERT_RANGE SYNC_FILE_RANGE_WAIT_BEFORE
    SYNC_FILE_RANGE_WRITE SYNC_FILE_RANGE_WAIT_AFTER RESOLVE_BENEATH RESOLVE_IN_ROOT
    RESOLVE_NO_SYMLINKS RESOLVE_NO_MAGICLINKS RESOLVE_NO_XDEV STATX_SIZE STATX__RESERVED
}
#[cfg(not(target_os = "linux"))]
table! { LINUX_FLAGS: }

table! { ERRNOS:
    EACCES EAGAIN EBADF EBUSY ECANCELED EEXIST EFBIG EINVAL EISDIR ELOOP EMLINK ENAMETOOLONG ENOENT
    ENOSPC ENOTDIR ENOTEMPTY ENXIO EOPNOTSUPP EPERM EPIPE ESPIPE ETIMEDOUT EXDEV EIO ENOSYS
}

#[cfg(unix)]
table! { UNIX_ERRNOS: ENODEV EOVERFLOW ETXTBSY }
#[cfg(windows)]
table! { UNIX_ERRNOS: }

fn errnos() -> impl Iterator<Item = &'static (&'static str, u64)> {
    ERRNOS.iter().chain(UNIX_ERRNOS)
}

fn errno_name(result: i64) -> &'static str {
    errnos().find(|(_, value)| *value as i64 == -result).map_or("", |(name, _)| name)
}

/// Terms joined by `+`, `-`, `*`, from left to right.
fn number(text: &str) -> Step<u64> {
    let mut value = 0u64;
    let mut sign = '+';
    let mut rest = text;
    loop {
        let end = rest.find(['+', '-', '*']).unwrap_or(rest.len());
        let term = term(&rest[..end]).ok_or_else(|| Stop::Failed(format!("no number: {text}")))?;
        value = match sign {
            '+' => value.wrapping_add(term),
            '-' => value.wrapping_sub(term),
            _ => value.wrapping_mul(term),
        };
        match rest[end..].chars().next() {
            Some(next) => (sign, rest) = (next, &rest[end + 1..]),
            None => return Ok(value),
        }
    }
}

fn term(text: &str) -> Option<u64> {
    if text == "max" {
        return Some(i64::MAX as u64);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    let shift = ["K", "M", "G", "T"]
        .iter()
        .position(|unit| text.ends_with(unit))
        .map_or(0, |unit| 10 * (unit + 1));
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    let radix = if digits.len() > 1 && digits.starts_with('0') { 8 } else { 10 };
    Some(u64::from_str_radix(digits, radix).ok()? << shift)
}

fn known_flags() -> impl Iterator<Item = &'static (&'static str, u64)> {
    FLAGS.iter().chain(UNIX_FLAGS).chain(LINUX_FLAGS)
}

/// Names of constants joined by `|`, or a number.
fn flags(text: &str) -> Step<u64> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return number(text);
    }
    text.split('|').try_fold(0, |all, name| match known_flags().find(|(known, _)| *known == name) {
        Some((_, value)) => Ok(all | value),
        None => fail(format!("no constant: {name}")),
    })
}

fn byte(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16 ^ at >> 24) as u8
}

fn content(text: &str) -> Step<Vec<u8>> {
    let mut bytes = Vec::new();
    if text == "none" {
        return Ok(bytes);
    }
    let wrong = || Stop::Failed(format!("no content: {text}"));
    let mut rest = text;
    while !rest.is_empty() {
        let (kind, tail) = rest.split_once('(').ok_or_else(wrong)?;
        let (inside, tail) = tail.split_once(')').ok_or_else(wrong)?;
        let pair = || -> Step<(u64, u64)> {
            let (first, second) = inside.split_once(',').ok_or_else(wrong)?;
            Ok((number(first)?, number(second)?))
        };
        match kind {
            "text" => bytes.extend_from_slice(inside.as_bytes()),
            "hex" => {
                for at in (0..inside.len()).step_by(2) {
                    let digits = inside.get(at..at + 2).ok_or_else(wrong)?;
                    bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
                }
            }
            "fill" => {
                let (value, len) = pair()?;
                bytes.resize(bytes.len() + len as usize, value as u8);
            }
            "pattern" => {
                let (at, len) = pair()?;
                bytes.extend((at..at + len).map(byte));
            }
            _ => return Err(wrong()),
        }
        rest = tail.strip_prefix('+').unwrap_or(tail);
    }
    Ok(bytes)
}

fn compare(found: &[u8], wanted: &[u8], what: &str) -> Step {
    if found == wanted {
        return Ok(());
    }
    let at = found.iter().zip(wanted).take_while(|(found, wanted)| found == wanted).count();
    fail(format!("{what}: byte {at} is {:?}, not {:?}", found.get(at), wanted.get(at)))
}

fn path(text: &str) -> Step<String> {
    match text.strip_prefix("long(").and_then(|rest| rest.strip_suffix(')')) {
        Some(len) => Ok("n".repeat(number(len)? as usize)),
        None if text == "\"\"" => Ok(String::new()),
        None => Ok(text.to_owned()),
    }
}

/// The words of a step.
#[derive(Clone, Copy)]
struct Words<'a>(&'a [&'a str]);

impl<'a> Words<'a> {
    fn at(self, place: usize) -> Step<&'a str> {
        self.0.get(place).copied().ok_or_else(|| Stop::Failed("a word is missing".into()))
    }

    fn get(self, key: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    fn need(self, key: &str) -> Step<&'a str> {
        self.get(key).ok_or_else(|| Stop::Failed(format!("{key}= is missing")))
    }

    fn number(self, key: &str) -> Step<u64> {
        number(self.need(key)?)
    }

    fn flags(self, key: &str) -> Step<u64> {
        self.get(key).map_or(Ok(0), flags)
    }

    fn has(self, word: &str) -> bool {
        self.0.contains(&word)
    }
}

// A case.

pub struct Case {
    file: PathBuf,
    pub name: String,
    line: usize,
    lines: Vec<(usize, String)>,
}

/// Reads all cases that Rust runs. The caller does so before it gives up any permission.
pub fn load() -> Vec<Case> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "case"));
    files.sort();
    let mut cases: Vec<Case> = Vec::new();
    for file in files {
        for (number, line) in (1..).zip(fs::read_to_string(&file).unwrap().lines()) {
            let line = line.trim();
            if let Some(name) = line.strip_prefix("case ") {
                cases.push(Case {
                    file: file.clone(),
                    name: name.to_owned(),
                    line: number,
                    lines: Vec::new(),
                });
            } else if !line.is_empty() && !line.starts_with('#') {
                let case = cases.last_mut().filter(|case| case.file == file);
                case.unwrap_or_else(|| panic!("{}:{number}: step before a case", file.display()))
                    .lines
                    .push((number, line.to_owned()));
            }
        }
    }
    assert!(cases.len() > 150, "{} cases", cases.len());
    for (name, why) in OTHER_RESULT {
        assert!(cases.iter().any(|case| case.name == name), "no case is called {name}");
        println!("not in Rust: {name}: {why}");
    }
    cases.retain(|case| OTHER_RESULT.iter().all(|(name, _)| case.name != *name));
    cases.retain(|case| match absent(case) {
        Some(word) => {
            println!("not on this system: {}: {word}", case.name);
            false
        }
        None => true,
    });
    cases
}

pub use system::{open_to_all, prepare_process};

/// An operation that was pushed, or will be.
struct Pushed {
    name: String,
    line: usize,
    expected: String,
    gives: Option<String>,
    plain: Option<i64>,
    id: Option<OpId>,
    /// The result, and the position among all completions.
    result: Option<(i64, usize)>,
    bytes: Vec<u8>,
    stat: Option<libc::statx>,
    /// Memory of operations made from addresses. It outlives the queue.
    raw_bytes: Option<AlignedBuffer>,
    raw_stat: Option<Box<libc::statx>>,
    _kept: Vec<Box<dyn Any>>,
}

/// A running case.
struct Run {
    queue: Option<Queue>,
    options: Options,
    kind: BackendKind,
    pushed: Vec<Pushed>,
    names: HashMap<String, File>,
    chain: Option<Vec<(usize, Operation)>>,
    delivered: usize,
    /// Operations made from addresses.
    raw: usize,
    line: usize,
}

/// Makes a queue. The kernel returns the locked memory of closed rings late, so ENOMEM is retried
/// for a while.
fn build(options: &Options) -> Step<Queue> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match options.build() {
            Ok(queue) => return Ok(queue),
            Err(BuildError::Refused(refusal))
                if refusal.errno == libc::ENOMEM && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return fail(error.to_string()),
        }
    }
}

impl Run {
    fn queue(&mut self) -> Step<&mut Queue> {
        if self.queue.is_none() {
            self.queue = Some(build(&self.options.clone().backend(self.kind))?);
        }
        Ok(self.queue.as_mut().expect("it has just been made"))
    }

    fn named(&self, name: &str) -> Step<&File> {
        self.names.get(name).ok_or_else(|| Stop::Failed(format!("no descriptor is called {name}")))
    }

    fn pushed(&self, name: &str) -> Step<usize> {
        let last = self.pushed.iter().rposition(|one| one.name == name);
        last.ok_or_else(|| Stop::Failed(format!("no operation is called {name}")))
    }

    fn insert(&mut self, name: &str, file: File) -> Step {
        match self.names.insert(name.to_owned(), file) {
            Some(_) => fail(format!("two descriptors are called {name}")),
            None => Ok(()),
        }
    }

    /// Reaps at least `least` completions, and checks each.
    fn reap(&mut self, least: usize) -> Step<usize> {
        let queue = self.queue()?;
        let done: Vec<_> = checked(queue.reap(least))?.collect();
        let count = done.len();
        self.check_counts()?;
        for done in done {
            self.delivered += 1;
            let order = self.delivered;
            let place = done.user_data as usize;
            let one = self
                .pushed
                .get_mut(place)
                .ok_or_else(|| Stop::Failed("a completion of no operation".into()))?;
            if one.result.is_some() || (one.id.is_some() && one.id != Some(done.id)) {
                return fail(format!("a second or wrong completion of {}", one.name));
            }
            let result = match &done.result {
                Ok(value) => *value as i64,
                Err(error) => -i64::from(error.errno()),
            };
            one.result = Some((result, order));
            let name = one.name.clone();
            match done.opcode {
                op::Opcode::Open if result >= 0 => {
                    let file = done.into_file().map_err(|error| Stop::Failed(error.to_string()))?;
                    self.insert(&name, file)?;
                }
                op::Opcode::Statx if one.raw_stat.is_some() => {
                    one.stat = one.raw_stat.as_deref().copied()
                }
                op::Opcode::Statx => {
                    one.stat = done.into_metadata().ok().map(|metadata| *metadata.as_raw_statx())
                }
                op::Opcode::Read | op::Opcode::Write if one.raw_bytes.is_none() => {
                    one.bytes = done
                        .into_buffer()
                        .map(|buffer| buffer.as_slice().to_vec())
                        .unwrap_or_default();
                }
                op::Opcode::Readv | op::Opcode::Writev if one.raw_bytes.is_none() => {
                    let buffers =
                        done.into_vectored().map(Vectored::into_buffers).unwrap_or_default();
                    one.bytes =
                        buffers.iter().flat_map(|buffer| buffer.as_slice().to_vec()).collect();
                }
                _ => {}
            }
            self.check(place)?;
        }
        Ok(count)
    }

    fn check(&mut self, place: usize) -> Step {
        let one = &self.pushed[place];
        let keep = std::mem::replace(&mut self.line, one.line);
        let Some((result, _)) = one.result else { return fail("no result") };
        if !expected(&one.expected, result, one.plain)? {
            return fail(format!(
                "{} is {result} {}, not {}",
                one.name,
                errno_name(result),
                one.expected
            ));
        }
        if let Some(gives) = &one.gives {
            let wanted = content(gives)?;
            compare(one.bytes.get(..wanted.len()).unwrap_or(&one.bytes), &wanted, "the buffer")?;
        }
        self.line = keep;
        Ok(())
    }

    fn check_counts(&self) -> Step {
        let Some(queue) = &self.queue else { return Ok(()) };
        let counts = queue.stats().counts;
        let right = counts.pushed == counts.delivered + counts.orphaned + counts.in_flight
            && counts.in_flight == queue.in_flight() as u64;
        if right { Ok(()) } else { fail(format!("{counts:?}, {} in flight", queue.in_flight())) }
    }

    fn rest(&mut self) -> Step {
        while self.queue.as_ref().is_some_and(|queue| queue.in_flight() > 0) {
            if self.reap(1)? == 0 {
                return fail("reap returned nothing with operations in flight");
            }
        }
        Ok(())
    }

    fn step(&mut self, words: &[&str]) -> Step {
        let (words, wanted) = match words {
            [words @ .., "=>", wanted] => (Words(words), *wanted),
            all => (Words(all), ""),
        };
        let what = words.at(0)?;
        match what {
            "queue" => self.change_options(words)?,
            "as" => system::become_ordinary()?,
            "limit" => system::limit(number(words.at(2)?)?)?,
            "make" => make(words)?,
            "chmod" => {
                system::set_mode(words.at(1)?, number(words.at(2)?)? as u32)?;
            }
            "open" => {
                let how = flags(words.at(3)?)? as i32;
                let file = open_plain(&path(words.at(2)?)?, how)?;
                self.insert(words.at(1)?, file)?;
            }
            "pipe" | "sockets" => {
                let ends: (OwnedFd, OwnedFd) = match what {
                    "pipe" => checked(std::io::pipe())
                        .map(|(reader, writer)| (reader.into(), writer.into()))?,
                    _ => system::sockets()?,
                };
                self.insert(words.at(1)?, ends.0.into())?;
                self.insert(words.at(2)?, ends.1.into())?;
            }
            "close" => {
                self.named(words.at(1)?)?;
                self.names.remove(words.at(1)?);
            }
            "put" => {
                let mut file = self.borrowed(words.at(1)?)?;
                checked(file.write_all(&content(words.at(2)?)?))?;
            }
            "take" => self.take(words.at(1)?, &content(words.at(2)?)?)?,
            "emptied" => {
                let file = self.borrowed(words.at(1)?)?;
                self.reap(0)?;
                while system::is_readable(&file, Duration::ZERO) {
                    std::thread::sleep(Duration::from_millis(1));
                    self.reap(0)?;
                }
            }
            "seek" => {
                let mut file = self.borrowed(words.at(1)?)?;
                checked(std::io::Seek::seek(
                    &mut file,
                    std::io::SeekFrom::Start(number(words.at(2)?)?),
                ))?;
            }
            "do" | "push" | "refuse" => self.operation(what, Words(&words.0[1..]), wanted)?,
            "chain" => {
                self.queue()?;
                self.chain = Some(Vec::new());
            }
            "end" => self.push_chain(wanted)?,
            "submit" => _ = checked(self.queue()?.submit())?,
            "look" => _ = self.reap(0)?,
            "ready" => {
                let count = number(words.at(1)?)? as usize;
                while checked(self.queue()?.submit())? < count {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            "wait" if words.at(1)? == "all" => self.rest()?,
            "wait" => {
                for name in &words.0[1..] {
                    let place = self.pushed(name)?;
                    while self.pushed[place].result.is_none() {
                        if self.reap(1)? == 0 {
                            return fail(format!("reap returned nothing before {name} completed"));
                        }
                    }
                }
            }
            "pending" => {
                self.reap(0)?;
                for name in &words.0[1..] {
                    if let Some((result, _)) = self.pushed[self.pushed(name)?].result {
                        return fail(format!("{name} has completed with {result}"));
                    }
                }
            }
            "cancel" => {
                let id = self.pushed[self.pushed(words.at(1)?)?].id;
                let id =
                    id.ok_or_else(|| Stop::Failed("only the first of a chain has an id".into()))?;
                let result = if self.queue()?.cancel(id) { 0 } else { -i64::from(libc::ENOENT) };
                self.want(wanted, result)?;
            }
            "cancel_all" => {
                let count = self.queue()?.cancel_all() as i64;
                self.want(wanted, count)?;
            }
            "order" => {
                let mut last = 0;
                for name in &words.0[1..] {
                    let order =
                        self.pushed[self.pushed(name)?].result.map_or(0, |(_, order)| order);
                    if order <= last {
                        return fail(format!("{name} completed too early or not at all"));
                    }
                    last = order;
                }
            }
            "in_flight" => {
                let found = self.queue()?.in_flight() as i64;
                self.want(words.at(1)?, found)?;
            }
            "free_slots" => {
                let found = self.queue()?.free_slots() as i64;
                self.want(words.at(1)?, found)?;
            }
            "bytes" => {
                let one = &self.pushed[self.pushed(words.at(1)?)?];
                let (at, wanted) = (number(words.at(2)?)? as usize, content(words.at(3)?)?);
                let bytes = one.bytes.get(at..).unwrap_or_default();
                compare(&bytes[..wanted.len().min(bytes.len())], &wanted, "the buffer")?;
            }
            "stat" => system::check_stat(
                self.pushed[self.pushed(words.at(1)?)?].stat,
                words.at(2)?,
                words.at(3)?,
            )?,
            "file" => {
                compare(&checked(fs::read(words.at(1)?))?, &content(words.at(2)?)?, words.at(1)?)?
            }
            "part" => {
                let wanted = content(words.at(3)?)?;
                let mut bytes = vec![0; wanted.len()];
                let file = checked(fs::File::open(words.at(1)?))?;
                checked(system::read_exact_at(&file, &mut bytes, number(words.at(2)?)?))?;
                compare(&bytes, &wanted, words.at(1)?)?;
            }
            "absent" => {
                if fs::symlink_metadata(words.at(1)?).is_ok() {
                    return fail("the path exists");
                }
            }
            "size" | "mode" | "nlink" | "type" | "target" | "same" => {
                system::check_path(what, words.at(1)?, words.at(2)?)?
            }
            "position" => {
                let mut file = self.borrowed(words.at(1)?)?;
                let position = checked(std::io::Seek::stream_position(&mut file))?;
                self.want(words.at(2)?, position as i64)?;
            }
            "cloexec" => {
                if !system::is_closed_by_exec(self.named(words.at(1)?)?) {
                    return fail("not close-on-exec");
                }
            }
            _ => return fail(format!("no step: {what}")),
        }
        self.check_counts()
    }

    fn want(&self, wanted: &str, found: i64) -> Step {
        if expected(wanted, found, None)? {
            Ok(())
        } else {
            fail(format!("it is {found} {}, not {wanted}", errno_name(found)))
        }
    }

    /// A copy of the descriptor, for blocking calls.
    fn borrowed(&self, name: &str) -> Step<fs::File> {
        checked(self.named(name)?.with_std(fs::File::try_clone))
    }

    fn change_options(&mut self, words: Words<'_>) -> Step {
        for word in &words.0[1..] {
            let (name, value) =
                word.split_once('=').ok_or_else(|| Stop::Failed(format!("no option: {word}")))?;
            let options = std::mem::take(&mut self.options);
            self.options = match name {
                "in_flight" => options.in_flight(number(value)? as u32),
                "entries" => options.entries(number(value)? as u32),
                "completion_entries" => options.completion_entries(number(value)? as u32),
                "threads" => options.threads(number(value)? as u32),
                "sync_threads" => options.sync_threads(number(value)? as u32),
                "faults" => {
                    let plan = value.replace(':', "=").replace(',', " ").parse::<FaultPlan>();
                    options.faults(plan.map_err(Stop::Failed)?)
                }
                _ => return fail(format!("no option: {name}")),
            };
        }
        Ok(())
    }

    fn take(&mut self, name: &str, wanted: &[u8]) -> Step {
        let mut file = self.borrowed(name)?;
        let mut bytes = vec![0; wanted.len()];
        let mut done = 0;
        while done < bytes.len() {
            if system::is_readable(&file, Duration::from_millis(1)) {
                match checked(file.read(&mut bytes[done..]))? {
                    0 => return fail(format!("end of file after {done} bytes")),
                    some => done += some,
                }
            }
            self.reap(0)?;
        }
        compare(&bytes, wanted, "the data read")
    }

    fn operation(&mut self, step: &str, words: Words<'_>, wanted: &str) -> Step {
        let (name, words) = match words.at(0)?.strip_suffix(':') {
            Some(name) => (name, Words(&words.0[1..])),
            None => (words.at(0)?, words),
        };
        self.queue()?;
        let mut one = Pushed {
            name: name.to_owned(),
            line: self.line,
            expected: wanted.to_owned(),
            gives: words.get("gives").map(str::to_owned),
            plain: None,
            id: None,
            result: None,
            bytes: Vec::new(),
            stat: None,
            raw_bytes: None,
            raw_stat: None,
            _kept: Vec::new(),
        };
        if wanted.contains("plain") {
            one.plain = Some(self.plain(words)?);
        }
        let mut operation = match self.safe(words)? {
            Some(operation) => operation,
            None => {
                self.raw += 1;
                self.raw_operation(words, &mut one)?
            }
        };
        if words.has("exact") {
            operation = operation.exact();
        }
        if words.has("drain") {
            operation = operation.drain();
        }
        if words.has("continue_on_error") {
            operation = operation.continue_on_error();
        }
        if words.get("timeout").is_some() {
            operation = operation.timeout(Duration::from_nanos(words.number("timeout")?));
        }
        let place = self.pushed.len();
        operation = operation.user_data(place as u64);
        if step == "refuse" {
            let free = self.queue()?.free_slots();
            let refused =
                self.queue()?.push(operation).map_err(|error| -i64::from(error.reason().errno()));
            let Err(errno) = refused else { return fail("the push succeeded") };
            self.want(wanted, errno)?;
            return if self.queue()?.free_slots() == free {
                Ok(())
            } else {
                fail("a refused push occupies a slot")
            };
        }
        self.pushed.push(one);
        if let Some(chain) = &mut self.chain {
            chain.push((place, operation));
            return Ok(());
        }
        let id = self.queue()?.push(operation).map_err(|error| Stop::Failed(error.to_string()))?;
        self.pushed[place].id = Some(id);
        while step == "do" && self.pushed[place].result.is_none() {
            if self.reap(1)? == 0 {
                return fail("reap returned nothing");
            }
        }
        Ok(())
    }

    fn push_chain(&mut self, wanted: &str) -> Step {
        let Some(chain) = self.chain.take() else { return fail("end without chain") };
        let first = chain.first().map(|(place, _)| *place);
        let count = chain.len();
        let result = self.queue()?.push_chain(chain.into_iter().map(|(_, operation)| operation));
        match (result, wanted) {
            (Ok(id), "") => {
                if let Some(first) = first {
                    self.pushed[first].id = Some(id);
                }
                Ok(())
            }
            (Err(error), wanted) if !wanted.is_empty() => {
                self.pushed.truncate(self.pushed.len() - count);
                self.want(wanted, -i64::from(error.reason().errno()))
            }
            (Ok(_), wanted) => fail(format!("the chain was pushed, expected {wanted}")),
            (Err(error), _) => fail(error.to_string()),
        }
    }

    // Operations.

    /// The offset. One over `i64::MAX` can be expressed, and the push refuses it.
    fn at(words: Words<'_>) -> Step<Position> {
        match words.get("offset") {
            Some("current") => Ok(Position::Current),
            Some(text) => Ok(Position::Offset(number(text)?)),
            None => Ok(Position::Offset(0)),
        }
    }

    /// Buffers for a transfer with the data to write. Each begins `skew` bytes into its memory.
    fn memory(words: Words<'_>) -> Step<(Vec<AlignedBuffer>, usize)> {
        let skew = words.get("skew").map_or(Ok(0), number)? as usize;
        let data = words.get("data").map(content).transpose()?;
        let mut data = data.as_deref();
        let mut buffers = Vec::new();
        for len in lengths(words)? {
            let mut memory = AlignedBuffer::new(len + skew, 4096);
            memory.fill(0xee);
            if let Some(bytes) = data {
                if bytes.len() < len {
                    return fail("data= and lens= are of different lengths");
                }
                memory[skew..].copy_from_slice(&bytes[..len]);
                data = Some(&bytes[len..]);
            }
            buffers.push(memory);
        }
        match data {
            Some(rest) if !rest.is_empty() => fail("data= and lens= are of different lengths"),
            _ => Ok((buffers, skew)),
        }
    }

    fn buffers(words: Words<'_>) -> Step<Vec<Buffer>> {
        let (memory, skew) = Self::memory(words)?;
        Ok(memory.into_iter().map(|memory| Buffer::from(memory).slice(skew..)).collect())
    }

    /// Makes the operation with the safe functions, or returns `None` if they cannot express it.
    fn safe(&mut self, words: Words<'_>) -> Step<Option<Operation>> {
        let kind = words.at(0)?;
        if [words.get("fd"), words.get("dir"), words.get("dir2")]
            .iter()
            .any(|fd| matches!(fd, Some("bad" | "negative")))
        {
            return Ok(None);
        }
        let dir = |key: &str| {
            words.get(key).filter(|name| *name != "cwd").map(|name| self.named(name)).transpose()
        };
        let len = || words.number("len");
        let offset = || words.get("offset").map_or(Ok(0), number);
        let bits = words.flags("flags")?;
        let made = match kind {
            "nop" => op::nop(),
            "timeout" => op::timeout(Duration::from_nanos(words.number("ns")?)),
            "open" => {
                let Some(options) =
                    open_options(bits as i32, words.flags("mode")? as u32, words.flags("resolve")?)
                else {
                    return Ok(None);
                };
                match dir("dir")? {
                    Some(dir) => op::open_at(dir, path(words.need("path")?)?, &options),
                    None => op::open(path(words.need("path")?)?, &options),
                }
            }
            "statx" => {
                let empty = words.need("path")? == "\"\"" && bits == libc::AT_EMPTY_PATH as u64;
                match dir("dir")? {
                    _ if words.get("mask").is_some() => return Ok(None),
                    Some(dir) if empty => op::statx_at(dir, "", 0),
                    Some(dir) => op::statx_at(dir, path(words.need("path")?)?, bits as i32),
                    None if bits == 0 => op::statx(path(words.need("path")?)?),
                    None => return Ok(None),
                }
            }
            "rename" | "link" => {
                let (from, to) = (path(words.need("path")?)?, path(words.need("path2")?)?);
                match (dir("dir")?, dir("dir2")?, kind) {
                    (Some(dir), Some(dir2), "rename") => {
                        op::rename_at(dir, from, dir2, to, bits as u32)
                    }
                    (Some(dir), Some(dir2), _) => op::link_at(dir, from, dir2, to, bits as i32),
                    (None, None, "rename") if bits == 0 => op::rename(from, to),
                    (None, None, _) if bits == 0 => op::link(from, to),
                    _ => return Ok(None),
                }
            }
            "unlink" => match dir("dir")? {
                Some(dir) => op::unlink_at(dir, path(words.need("path")?)?, bits as i32),
                None if bits == 0 => op::unlink(path(words.need("path")?)?),
                None if bits == libc::AT_REMOVEDIR as u64 => op::rmdir(path(words.need("path")?)?),
                None => return Ok(None),
            },
            "mkdir" => match dir("dir")? {
                Some(dir) => {
                    op::mkdir_at(dir, path(words.need("path")?)?, words.flags("mode")? as u32)
                }
                None => op::mkdir(path(words.need("path")?)?, words.flags("mode")? as u32),
            },
            "symlink" => match dir("dir")? {
                Some(dir) => {
                    op::symlink_at(path(words.need("target")?)?, dir, path(words.need("path")?)?)
                }
                None => op::symlink(path(words.need("target")?)?, path(words.need("path")?)?),
            },
            "close" => {
                let name = words.need("fd")?;
                self.named(name)?;
                op::close(self.names.remove(name).expect("it has just been looked up"))
            }
            _ => {
                let file = self.named(words.need("fd")?)?;
                match kind {
                    "read" => op::read(file, Self::buffers(words)?.remove(0), Self::at(words)?),
                    "write" => op::write(file, Self::buffers(words)?.remove(0), Self::at(words)?),
                    "readv" => {
                        op::readv(file, Vectored::new(Self::buffers(words)?), Self::at(words)?)
                    }
                    "writev" => {
                        op::writev(file, Vectored::new(Self::buffers(words)?), Self::at(words)?)
                    }
                    "fsync" => op::fsync(file),
                    "fdatasync" => op::fdatasync(file),
                    "sync_range" => op::sync_range(file, offset()?, len()?, bits as u32),
                    "fallocate" => {
                        op::fallocate(file, words.flags("mode")? as i32, offset()?, len()?)
                    }
                    "ftruncate" => op::ftruncate(file, len()?),
                    "fadvise" => {
                        let Some(advice) = advice(words.flags("advice")? as i32) else {
                            return Ok(None);
                        };
                        op::fadvise(file, offset()?, len()?, advice)
                    }
                    "poll" => op::poll(file, Readiness(words.flags("events")? as u16)),
                    _ => return fail(format!("no operation: {kind}")),
                }
            }
        };
        Ok(Some(made))
    }

    /// Makes the operation from numbers and addresses, which point into `one`.
    fn raw_operation(&mut self, words: Words<'_>, one: &mut Pushed) -> Step<Operation> {
        let fd = |key: &str| match words.get(key) {
            None | Some("cwd") => Ok(libc::AT_FDCWD),
            Some("bad") => Ok(NONE),
            Some("negative") => Ok(-1),
            Some(name) => self.named(name).map(raw_fd),
        };
        let mut string = |text: String| -> Step<*const libc::c_char> {
            let text = CString::new(text).map_err(|error| Stop::Failed(error.to_string()))?;
            let address = text.as_ptr();
            one._kept.push(Box::new(text));
            Ok(address)
        };
        let at = match Self::at(words)? {
            Position::Current => op::CURRENT_POSITION,
            Position::Offset(offset) => offset,
        };
        let file = words.get("fd").and_then(|name| self.names.get(name)).cloned();
        let (bits, dir) = (words.flags("flags")?, fd("dir")?);
        let kind = words.at(0)?;
        let raw: Raw = match kind {
            "read" | "write" | "readv" | "writev" => {
                let lens = lengths(words)?;
                let mut memory = AlignedBuffer::new(lens.iter().sum::<usize>().max(1), 4096);
                let buf = memory.as_mut_ptr();
                let mut parts = Vec::new();
                let mut begin = 0;
                for len in lens {
                    parts.push(libc::iovec {
                        iov_base: buf.wrapping_add(begin).cast(),
                        iov_len: len,
                    });
                    begin += len;
                }
                let (iov, count, len, fd) = (parts.as_ptr(), parts.len(), begin, fd("fd")?);
                one.raw_bytes = Some(memory);
                one._kept.push(Box::new(parts));
                match kind {
                    "read" => {
                        op::Read { fd, buf, len, offset: at, flags: op::RwFlags::NONE }.into()
                    }
                    "write" => {
                        op::Write { fd, buf, len, offset: at, flags: op::RwFlags::NONE }.into()
                    }
                    "readv" => {
                        op::Readv { fd, iov, count, offset: at, flags: op::RwFlags::NONE }.into()
                    }
                    _ => op::Writev { fd, iov, count, offset: at, flags: op::RwFlags::NONE }.into(),
                }
            }
            "fsync" | "fdatasync" => {
                op::Fsync { fd: fd("fd")?, data_only: kind == "fdatasync" }.into()
            }
            "close" => op::Close { fd: fd("fd")? }.into(),
            "poll" => op::Poll { fd: fd("fd")?, events: words.flags("events")? as u16 }.into(),
            "sync_range" => op::SyncRange {
                fd: fd("fd")?,
                offset: at,
                len: words.number("len")?,
                flags: bits as u32,
            }
            .into(),
            "fallocate" => {
                let (mode, len) = (words.flags("mode")? as i32, words.number("len")?);
                op::Fallocate { fd: fd("fd")?, mode, offset: at, len }.into()
            }
            "ftruncate" => op::Ftruncate { fd: fd("fd")?, len: words.number("len")? }.into(),
            "fadvise" => {
                let (advice, len) = (words.flags("advice")? as i32, words.number("len")?);
                op::Fadvise { fd: fd("fd")?, offset: at, len, advice }.into()
            }
            "open" => op::Open {
                dir,
                path: string(path(words.need("path")?)?)?,
                flags: bits | libc::O_CLOEXEC as u64,
                mode: words.flags("mode")?,
                resolve: words.flags("resolve")?,
            }
            .into(),
            "statx" => {
                let path = string(path(words.need("path")?)?)?;
                // SAFETY: `struct statx` is plain numbers, and all zeroes are valid.
                let buffer =
                    &raw mut **one.raw_stat.insert(Box::new(unsafe { std::mem::zeroed() }));
                let mask =
                    words.get("mask").map_or(Ok(u64::from(libc::STATX_BASIC_STATS)), flags)? as u32;
                op::Statx { dir, path, flags: bits as i32, mask, buffer }.into()
            }
            "rename" => op::Rename {
                from_dir: dir,
                from: string(path(words.need("path")?)?)?,
                to_dir: fd("dir2")?,
                to: string(path(words.need("path2")?)?)?,
                flags: bits as u32,
            }
            .into(),
            "link" => op::Link {
                old_dir: dir,
                old: string(path(words.need("path")?)?)?,
                new_dir: fd("dir2")?,
                new: string(path(words.need("path2")?)?)?,
                flags: bits as i32,
            }
            .into(),
            "unlink" => {
                op::Unlink { dir, path: string(path(words.need("path")?)?)?, flags: bits as i32 }
                    .into()
            }
            "mkdir" => op::Mkdir {
                dir,
                path: string(path(words.need("path")?)?)?,
                mode: words.flags("mode")? as u32,
            }
            .into(),
            "symlink" => {
                let target = string(path(words.need("target")?)?)?;
                op::Symlink { target, dir, path: string(path(words.need("path")?)?)? }.into()
            }
            _ => return fail(format!("no operation: {kind}")),
        };
        // SAFETY: `one` keeps the memory and outlives the queue. The descriptors stay open for as
        // long, or are invalid.
        Ok(unsafe { Operation::from_raw(raw, file, None) })
    }

    /// The result of the blocking system call, with buffers of its own.
    fn plain(&self, words: Words<'_>) -> Step<i64> {
        let fd = raw_fd(self.named(words.need("fd")?)?);
        let offset = match Self::at(words)? {
            Position::Offset(offset) => offset as i64,
            Position::Current => return fail("no plain call at the current position"),
        };
        let len = || words.number("len").map(|len| len as i64);
        let kind = words.at(0)?;
        let (mut memory, skew) = match kind {
            "read" | "write" | "readv" | "writev" => Self::memory(words)?,
            _ => (Vec::new(), 0),
        };
        let part = |memory: &mut AlignedBuffer| {
            let bytes = &mut memory[skew..];
            libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
        };
        let parts: Vec<libc::iovec> = memory.iter_mut().map(part).collect();
        // SAFETY: the buffers live through the calls; all else is numbers.
        let result = unsafe {
            match kind {
                "read" => libc::pread64(fd, parts[0].iov_base, parts[0].iov_len, offset) as i64,
                "write" => libc::pwrite64(fd, parts[0].iov_base, parts[0].iov_len, offset) as i64,
                "readv" => libc::preadv64(fd, parts.as_ptr(), parts.len() as i32, offset) as i64,
                "writev" => libc::pwritev64(fd, parts.as_ptr(), parts.len() as i32, offset) as i64,
                "fallocate" => {
                    i64::from(libc::fallocate64(fd, words.flags("mode")? as i32, offset, len()?))
                }
                "ftruncate" => i64::from(libc::ftruncate64(fd, len()?)),
                _ => return fail(format!("no plain call of {kind}")),
            }
        };
        Ok(if result < 0 {
            -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
        } else {
            result
        })
    }
}

fn lengths(words: Words<'_>) -> Step<Vec<usize>> {
    if let Some(lens) = words.get("lens") {
        let mut all = Vec::new();
        for part in lens.split(',').filter(|part| *part != "none") {
            match part.split_once('x').filter(|(times, _)| *times != "0") {
                Some((times, len)) => {
                    all.resize(all.len() + number(times)? as usize, number(len)? as usize)
                }
                None => all.push(number(part)? as usize),
            }
        }
        return Ok(all);
    }
    match words.get("data") {
        Some(data) => Ok(vec![content(data)?.len()]),
        None => Ok(vec![words.number("len")? as usize]),
    }
}

fn advice(number: i32) -> Option<op::Advice> {
    use op::Advice::*;
    [Normal, Random, Sequential, WillNeed, DontNeed, NoReuse]
        .into_iter()
        .find(|advice| *advice as i32 == number)
}

/// Returns `None` for flags that `OpenOptions` cannot express.
fn open_options(flags: i32, mode: u32, resolve: u64) -> Option<OpenOptions> {
    let mut options = OpenOptions::new();
    let has = |flag: i32| flags & flag == flag;
    let access = flags & libc::O_ACCMODE;
    let writes = access != libc::O_RDONLY;
    let makes = has(libc::O_CREAT) || has(libc::O_TMPFILE);
    if (!writes && (makes || has(libc::O_TRUNC)))
        || (!makes && mode != 0)
        || (has(libc::O_EXCL) && !has(libc::O_CREAT))
    {
        return None;
    }
    options.read(access != libc::O_WRONLY && !has(libc::O_PATH));
    options.write(writes && !has(libc::O_APPEND)).append(has(libc::O_APPEND));
    options
        .create(has(libc::O_CREAT))
        .create_new(has(libc::O_CREAT | libc::O_EXCL))
        .truncate(has(libc::O_TRUNC));
    let said = libc::O_ACCMODE | libc::O_APPEND | libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;
    options.mode(mode).resolve(resolve).custom_flags(flags & !said);
    Some(options)
}

fn open_plain(path: &str, how: i32) -> Step<File> {
    let access = how & libc::O_ACCMODE;
    let mut options = fs::OpenOptions::new();
    options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY);
    system::set_flags(&mut options, how & !libc::O_ACCMODE);
    match options.open(path) {
        Ok(file) => Ok(file.into()),
        Err(error) if how & libc::O_DIRECT != 0 && error.raw_os_error() == Some(libc::EINVAL) => {
            Err(Stop::Skipped("no direct I/O on this file system".into()))
        }
        Err(error) => fail(format!("{path}: {error}")),
    }
}

/// Whether the result is among the expected ones. `plain` is the result of the plain system call.
fn expected(wanted: &str, result: i64, plain: Option<i64>) -> Step<bool> {
    for one in wanted.split('/') {
        let fits = match one {
            "fd" => result >= 0,
            "plain" => plain == Some(result),
            _ => match one.strip_prefix('-') {
                Some(name) => match errnos().find(|(known, _)| *known == name) {
                    Some((_, errno)) => result == -(*errno as i64),
                    None => return fail(format!("no errno: {one}")),
                },
                None if one.starts_with("POLL") => result == flags(one)? as i64,
                None => result == number(one)? as i64,
            },
        };
        if fits {
            return Ok(true);
        }
    }
    Ok(false)
}

// Around the queue.

fn make(words: Words<'_>) -> Step {
    let path = path(words.at(2)?)?;
    match words.at(1)? {
        "file" => checked(fs::File::create_new(&path).and_then(|mut file| {
            let bytes = content(words.at(3).unwrap_or("?"))
                .map_err(|_| std::io::ErrorKind::InvalidInput)?;
            system::make_readable(&file)?;
            file.write_all(&bytes)
        })),
        "sparse" => {
            let file = checked(fs::File::create_new(&path))?;
            checked(file.set_len(number(words.at(3)?)?))
        }
        "dir" => checked(fs::create_dir(&path)),
        "symlink" => checked(system::symlink(words.at(3)?, &path)),
        "fifo" => system::make_fifo(path),
        other => fail(format!("no such thing to make: {other}")),
    }
}

// All of them.

/// The steps of a case, with repeats expanded.
fn steps(case: &Case) -> Vec<(usize, String)> {
    let mut steps = Vec::new();
    let mut lines = case.lines.iter();
    while let Some((number, line)) = lines.next() {
        let Some(rounds) = line.strip_prefix("repeat ") else {
            steps.push((*number, line.clone()));
            continue;
        };
        let body: Vec<_> = lines.by_ref().take_while(|(_, line)| line != "again").collect();
        for round in 0..rounds.parse::<usize>().unwrap_or_else(|_| panic!("{rounds} rounds")) {
            steps.extend(
                body.iter().map(|(number, line)| (*number, line.replace('$', &round.to_string()))),
            );
        }
    }
    steps
}

/// Runs a case on the backend `kind` in the directory `scratch`, which it creates and removes.
/// Returns how many operations were made from addresses.
pub fn run(
    case: &Case,
    options: Options,
    kind: BackendKind,
    scratch: &Path,
) -> Result<usize, Stop> {
    fs::create_dir(scratch).unwrap();
    system::open_to_all(scratch);
    let result = run_in(case, options, kind, scratch);
    fs::remove_dir_all(scratch).unwrap();
    result.map_err(|(line, stop)| match stop {
        Stop::Failed(why) => {
            Stop::Failed(format!("{}:{line}: {}: {why}", case.file.display(), case.name))
        }
        Stop::Skipped(why) => Stop::Skipped(format!("{}: {why}", case.name)),
    })
}

/// Whether the case injects faults.
#[allow(dead_code, reason = "only the test on other file systems asks")]
pub fn injects_faults(case: &Case) -> bool {
    case.lines.iter().any(|(_, line)| line.contains("faults="))
}

/// Whether the case can run in a file system in memory.
pub fn runs_in_memory(case: &Case) -> bool {
    ON_DISK.iter().all(|(name, _)| case.name != *name)
}

fn run_in(
    case: &Case,
    options: Options,
    kind: BackendKind,
    scratch: &Path,
) -> Result<usize, (usize, Stop)> {
    let _process = Process::new(scratch);
    let mut run = Run {
        queue: None,
        options,
        kind,
        pushed: Vec::new(),
        names: HashMap::new(),
        chain: None,
        delivered: 0,
        raw: 0,
        line: case.line,
    };
    let mut go = || -> Step {
        for (number, line) in steps(case) {
            run.line = number;
            run.step(&line.split_whitespace().collect::<Vec<_>>())?;
        }
        run.line = case.line;
        run.rest()
    };
    let result = go();
    // The queue is dropped before the memory of operations made from addresses.
    drop(run.queue.take());
    result.map(|()| run.raw).map_err(|stop| (run.line, stop))
}

/// What systems other than Linux lack, so that cases with these words or names do not run there.
/// `tests/other_systems.rs` tests the results of the operations among them.
const ABSENT: &[&str] = if cfg!(ringway_linux) {
    &[]
} else if cfg!(windows) {
    &[
        "O_TMPFILE",
        "O_PATH",
        "O_DIRECT",
        "resolve=",
        "sync_range",
        "fallocate",
        "fadvise",
        "RENAME_EXCHANGE",
        // Handles cannot be polled, and what waits for a pipe cannot be cancelled.
        "poll ",
        "pipe ",
        "sockets ",
        "fifo ",
        "as ordinary",
        "limit ",
        "chmod ",
        "mode ",
        "nlink ",
        // Windows permits them to administrators only, and Wine does not follow them.
        "symlink ",
        // Unknown flags.
        "0x40000000",
    ]
} else {
    &[
        "O_TMPFILE",
        "O_PATH",
        "resolve=",
        "sync_range",
        "FALLOC_",
        "flags=RENAME_",
        // Unknown flags, which other systems ignore.
        "0x40000000",
    ]
};

/// A word of the case that stands for something that this system lacks.
fn absent(case: &Case) -> Option<&'static str> {
    let is_word_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let has = |word: &str| {
        // A part of a line ends with a space, an equals sign or an underscore; all else is a word.
        let is_part = word.ends_with([' ', '=', '_']);
        case.lines.iter().any(|(_, line)| {
            if is_part {
                line.contains(word)
            } else {
                line.split(is_word_end).any(|found| found == word)
            }
        })
    };
    ABSENT.iter().copied().find(|word| case.name == *word || has(word))
}

/// Cases with another result in Rust, and why. `conformance/errors.rs` tests that result.
const OTHER_RESULT: [(&str, &str); 2] = [
    ("too many buffers", "as in std, more than 1024 buffers are a short transfer"),
    ("too many direct buffers", "as in std, more than 1024 buffers are a short transfer"),
];

/// Cases that do not run in memory, and why.
const ON_DISK: [(&str, &str); 3] = [
    ("names on another file system", "the other file system is the one in memory"),
    ("an offset near INT64_MAX", "tmpfs has files of this length"),
    ("a direct offset near INT64_MAX", "tmpfs has files of this length"),
];
