//! The keys of job files: how the value of each is written, and what it sets.

use super::JobFileError;
use super::entry::{Entry, similar};
use super::settings::Settings;
use crate::bench::workload::{Advice, Amount, Backend, MAX_FILE, MAX_REQUEST, Sizes};
use std::ops::RangeInclusive;
use std::time::Duration;

/// fio's own limit for `numjobs`.
const MAX_JOBS: u32 = 4096;

/// A process cannot open more files than this for a job.
const MAX_FILES: u32 = 65_536;

/// Names of values that mean yes or no.
type Switch = &'static [(&'static str, bool)];

/// Whether a job continues after a failed request.
const ON_ERROR: Switch = &[("0", false), ("none", false), ("1", true), ("io", true), ("all", true)];

/// Whether space is allocated before the run.
const ALLOCATION: Switch =
    &[("0", false), ("none", false), ("1", true), ("native", true), ("posix", true)];

/// How a value is written, and what it sets.
enum Value {
    /// 0 or 1; 1 without a value.
    Flag(fn(&mut Settings, bool)),
    /// One of these names.
    Choice(Switch, fn(&mut Settings, bool)),
    Number(RangeInclusive<u64>, fn(&mut Settings, u64)),
    Small(RangeInclusive<u32>, fn(&mut Settings, u32)),
    /// The unit of a time without one, and its name.
    Time(&'static str, &'static str, fn(&mut Settings, Duration)),
    Text(fn(&mut Settings, String)),
    /// Written in its own way.
    Own(fn(&mut Settings, &mut Entry<'_, '_>) -> Result<(), JobFileError>),
}

use Value::{Choice, Flag, Number, Own, Small, Text, Time};

const BOOLEAN: Switch = &[("0", false), ("1", true)];

/// All keys, each with its other name.
#[rustfmt::skip]
const KEYS: &[(&[&str], Value)] = &[
    (&["bs", "blocksize"], Number(1..=MAX_REQUEST, |s, size| {
        (s.workload.block_size, s.workload.sizes) = (size, Sizes::One);
    })),
    (&["bsrange", "blocksize_range"], Own(block_size_range)),
    (&["bssplit"], Own(block_size_split)),
    (&["buffered"], Choice(BOOLEAN, |s, on| s.workload.direct = !on)),
    (&["continue_on_error"], Choice(ON_ERROR, |s, on| s.workload.stop_on_error = !on)),
    (&["description"], Text(|s, text| s.description = Some(text))),
    (&["direct"], Choice(BOOLEAN, |s, on| s.workload.direct = on)),
    (&["directory"], Own(directory)),
    (&["fadvise_hint"], Own(|s, entry| {
        entry.choice(ADVICE).map(|advice| s.workload.advice = advice)
    })),
    (&["fallocate"], Choice(ALLOCATION, |s, on| s.workload.preallocate = on)),
    (&["fdatasync"], Small(0..=u32::MAX, |s, writes| s.fdatasync = writes)),
    (&["filename"], Own(filename)),
    (&["filesize"], Number(1..=MAX_FILE, |s, size| s.file_size = Some(size))),
    (&["fixedbufs"], Flag(|s, on| s.workload.fixed_buffers = on)),
    (&["fsync"], Small(0..=u32::MAX, |s, writes| s.fsync = writes)),
    (&["group_reporting"], Flag(|s, on| s.workload.group_reporting = on)),
    (&["hipri"], Flag(|s, on| s.workload.iopoll = on)),
    (&["io_size"], Number(1..=MAX_FILE, |s, size| s.io_size = Some(size))),
    (&["iodepth"], Small(1..=u32::MAX, |s, depth| s.workload.depth = depth)),
    (&["iodepth_batch", "iodepth_batch_submit"], Small(0..=u32::MAX, |s, most| s.batch = most)),
    (&["iodepth_batch_complete_min", "iodepth_batch_complete"],
        Small(0..=u32::MAX, |s, least| s.workload.complete_min = least)),
    (&["ioengine"], Own(engine)),
    (&["name"], Text(|s, name| s.name = Some(name))),
    (&["norandommap"], Flag(|s, on| s.workload.no_random_map = on)),
    (&["nrfiles"], Small(1..=MAX_FILES, |s, files| s.files = files)),
    (&["numjobs"], Small(1..=MAX_JOBS, |s, jobs| s.workload.jobs = jobs)),
    (&["offset"], Own(|s, entry| entry.amount(0).map(|start| s.workload.start = start))),
    (&["overwrite"], Flag(|s, on| s.workload.lay_out = on)),
    (&["ramp_time"], Time("s", "seconds", |s, time| s.workload.ramp = time)),
    (&["randrepeat"], Choice(BOOLEAN, |s, on| s.workload.rand_repeat = on)),
    (&["randseed"], Number(0..=u64::MAX, |s, seed| s.workload.seed = seed)),
    (&["rate"], Number(0..=u64::MAX, |s, bytes| s.rate = bytes)),
    (&["rate_iops"], Number(0..=u64::MAX, |s, requests| s.rate_iops = requests)),
    (&["registerfiles"], Flag(|s, on| s.workload.fixed_files = on)),
    (&["runtime", "timeout"], Time("s", "seconds", |s, time| s.runtime = time)),
    (&["rw", "readwrite"], Own(|s, entry| entry.access().map(|rw| s.workload.access = rw))),
    (&["rwmixread"], Small(0..=100, |s, percent| s.workload.read_percent = percent as u8)),
    (&["rwmixwrite"], Small(0..=100, |s, percent| s.workload.read_percent = 100 - percent as u8)),
    (&["size"], Own(size)),
    (&["sqthread_poll"], Flag(|s, on| s.workload.sqpoll = on)),
    (&["stonewall", "wait_for_previous"], Flag(|s, on| s.stonewall = on)),
    (&["thinktime"], Time("us", "microseconds", |s, time| s.pause = time)),
    (&["thinktime_blocks"], Number(1..=u64::MAX, |s, requests| s.pause_after = requests)),
    (&["thread"], Own(thread)),
    (&["threads"], Own(threads)),
    (&["time_based"], Flag(|s, on| s.time_based = on)),
];

pub(super) const ENGINES: &[(&str, Backend)] = &[
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

/// All supported keys, sorted, for the help and for error messages.
pub fn keys() -> Vec<&'static str> {
    let mut names: Vec<&str> = KEYS.iter().flat_map(|(names, _)| *names).copied().collect();
    names.sort_unstable();
    names
}

/// Sets one key and returns its main name. The last line of a repeated key counts, as in fio.
pub(super) fn set(
    settings: &mut Settings,
    entry: &mut Entry<'_, '_>,
) -> Result<&'static str, JobFileError> {
    let Some((names, value)) = KEYS.iter().find(|(names, _)| names.contains(&entry.key)) else {
        let keys = keys();
        return Err(entry.error(
            match similar(entry.key, keys.iter().copied().chain(["include"])) {
                Some(key) => format!("this key is not supported; did you mean `{key}`?"),
                None => format!(
                    "this key is not supported; fio's supported keys are: {}, include",
                    keys.join(", ")
                ),
            },
        ));
    };
    match value {
        Flag(set) => set(settings, entry.value.is_none() || entry.choice(BOOLEAN)?),
        Choice(names, set) => set(settings, entry.choice(names)?),
        Number(range, set) => set(settings, entry.number(range.clone())?),
        Small(range, set) => set(settings, entry.small(range.clone())?),
        Time(unit, name, set) => set(settings, entry.time(unit, name)?),
        Text(set) => set(settings, entry.text()?.to_owned()),
        Own(set) => set(settings, entry)?,
    }
    Ok(names[0])
}

fn engine(settings: &mut Settings, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
    settings.workload.backend = entry.choice(ENGINES)?;
    if matches!(entry.value, Some("sync" | "pvsync" | "pvsync2")) {
        entry.differs("uses pread and pwrite, like psync");
    }
    Ok(())
}

fn block_size_range(s: &mut Settings, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
    let (least, largest) = entry.range()?;
    (s.workload.block_size, s.workload.sizes) = (least, Sizes::UpTo(largest));
    Ok(())
}

fn block_size_split(s: &mut Settings, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
    let sizes = entry.split()?;
    if let Some(least) = sizes.iter().map(|(size, _)| *size).min() {
        s.workload.block_size = least;
    }
    s.workload.sizes = Sizes::Split(sizes);
    Ok(())
}

fn size(settings: &mut Settings, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
    (settings.size, settings.workload.percent) = match entry.amount(1)? {
        Amount::Bytes(size) => (Some(size), 100),
        Amount::Percent(percent) => (None, percent),
    };
    Ok(())
}

fn filename(settings: &mut Settings, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
    let names = entry.names()?;
    if names.iter().any(|name| name == "-") {
        return Err(entry.refuse("-", "give files or block devices, not a pipe"));
    }
    settings.filenames = names;
    Ok(())
}

fn directory(settings: &mut Settings, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
    let mut names = entry.names()?;
    if names.len() > 1 {
        let message = "give one folder; write `\\:` for a colon in its name";
        return Err(entry.error(message.to_owned()));
    }
    settings.directory = names.pop();
    Ok(())
}

fn thread(_: &mut Settings, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
    if entry.value.is_some() && !entry.choice(BOOLEAN)? {
        entry.differs("jobs are always threads, never processes");
    }
    Ok(())
}

fn threads(_: &mut Settings, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
    entry.small(0..=MAX_JOBS)?;
    entry.differs("has no effect: jobs are always threads; `numjobs` is their number");
    Ok(())
}
