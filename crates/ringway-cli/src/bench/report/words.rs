//! Names and units as people read them: one place, so that the table, the verdict and the page
//! say the same thing in the same words.

use crate::bench::result::{Cell, Machine, Report};
use crate::bench::workload::{Access, Backend, Rate, Sizes, Sync, Target, Workload};
use std::path::PathBuf;
use std::time::Duration;

/// Shown where there is no figure.
pub(super) const ABSENT: &str = "–";

/// A setting by which cells differ, apart from the backend and its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Access,
    BlockSize,
    Depth,
    Jobs,
    Direct,
    Rate,
    Sync,
    Verify,
    Target,
}

impl Setting {
    pub(super) const ALL: [Setting; 9] = [
        Setting::Access,
        Setting::BlockSize,
        Setting::Direct,
        Setting::Depth,
        Setting::Jobs,
        Setting::Rate,
        Setting::Sync,
        Setting::Verify,
        Setting::Target,
    ];

    /// The heading of its column.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Setting::Access => "rw",
            Setting::BlockSize => "block",
            Setting::Depth => "depth",
            Setting::Jobs => "jobs",
            Setting::Direct => "I/O",
            Setting::Rate => "rate",
            Setting::Sync => "sync",
            Setting::Verify => "verify",
            Setting::Target => "target",
        }
    }

    /// As a table shows it. Cells with the same text have the same setting.
    pub(super) fn short(self, of: &Workload) -> String {
        match self {
            Setting::Access if is_mixed(of.access) => {
                format!(
                    "{} {}/{}",
                    of.access.name(),
                    of.read_percent,
                    100 - of.read_percent.min(100)
                )
            }
            Setting::Access => of.access.name().to_owned(),
            Setting::BlockSize => sizes(of),
            Setting::Depth => of.depth.to_string(),
            Setting::Jobs => of.jobs.to_string(),
            Setting::Direct => if of.direct { "direct" } else { "buffered" }.to_owned(),
            Setting::Rate => of.rate.map_or("free".to_owned(), |rate| match rate {
                Rate::Requests(rate) => format!("{}/s", count(rate)),
                Rate::Bytes(rate) => format!("{}/s", bytes(rate)),
            }),
            Setting::Sync => match of.sync {
                None => "none".to_owned(),
                Some(Sync::Fsync(every)) => format!("fsync/{every}"),
                Some(Sync::Fdatasync(every)) => format!("fdatasync/{every}"),
            },
            Setting::Verify => if of.verify { "yes" } else { "no" }.to_owned(),
            Setting::Target => target(&of.target),
        }
    }

    /// As a sentence says it; nothing for what goes without saying.
    fn phrase(self, of: &Workload) -> Option<String> {
        match self {
            Setting::Access => Some(match of.access {
                Access::Read => "sequential reads".to_owned(),
                Access::Write => "sequential writes".to_owned(),
                Access::RandRead => "random reads".to_owned(),
                Access::RandWrite => "random writes".to_owned(),
                Access::ReadWrite => {
                    format!("sequential reads and writes, {} % reads", of.read_percent)
                }
                Access::RandRw => format!("random reads and writes, {} % reads", of.read_percent),
            }),
            Setting::BlockSize => Some(sizes(of)),
            Setting::Depth => Some(format!("depth {}", of.depth)),
            Setting::Jobs => Some(plural(u64::from(of.jobs), "job")),
            Setting::Direct => Some(self.short(of)),
            Setting::Rate => of.rate.map(|rate| match rate {
                Rate::Requests(rate) => format!("{} requests a second of each job", count(rate)),
                Rate::Bytes(rate) => format!("{} a second of each job", bytes(rate)),
            }),
            Setting::Sync => of.sync.map(|sync| match sync {
                Sync::Fsync(every) => {
                    format!("fsync after every {}", plural(u64::from(every), "write"))
                }
                Sync::Fdatasync(every) => {
                    format!("fdatasync after every {}", plural(u64::from(every), "write"))
                }
            }),
            Setting::Verify => of.verify.then(|| "every byte checked".to_owned()),
            Setting::Target => None,
        }
    }

    /// Whether the cells do not all have the same.
    pub(super) fn varies(self, report: &Report) -> bool {
        let mut cells = report.cells.iter().map(|cell| self.short(&cell.workload));
        let first = cells.next();
        cells.any(|next| Some(next) != first)
    }
}

/// `4 KiB random reads, direct, 1 job`: these settings of a cell in words.
pub(super) fn phrase(of: &Workload, settings: &[Setting]) -> String {
    let mut parts = Vec::new();
    let has = |setting| settings.contains(&setting);
    // The block size and the kind of access are one noun when both are there.
    let block = has(Setting::BlockSize).then(|| sizes(of));
    let access = if has(Setting::Access) { Setting::Access.phrase(of) } else { None };
    match (block, access) {
        (Some(block), Some(access)) => parts.push(format!("{block} {access}")),
        (Some(block), None) => parts.push(format!("requests of {block}")),
        (None, Some(access)) => parts.push(access),
        (None, None) => {}
    }
    let others = settings.iter().filter(|s| !matches!(s, Setting::BlockSize | Setting::Access));
    parts.extend(others.filter_map(|setting| setting.phrase(of)));
    if has(Setting::Target) {
        parts.push(target(&of.target));
    }
    clean(&parts.join(", "))
}

/// The backend with its flags, `uring +sqpoll +fixed`: what is compared with what.
pub(super) fn contender(of: &Workload) -> String {
    let mut label = backend(of.backend).to_owned();
    let fixed = match (of.fixed_buffers, of.fixed_files) {
        (true, true) => " +fixed",
        (true, false) => " +fixedbufs",
        (false, true) => " +fixedfiles",
        (false, false) => "",
    };
    for (set, flag) in [(of.sqpoll, " +sqpoll"), (of.iopoll, " +iopoll"), (true, fixed)] {
        if set {
            label.push_str(flag);
        }
    }
    if let Some(batch) = of.batch {
        label.push_str(&format!(" batch={batch}"));
    }
    if of.complete_min > 1 {
        label.push_str(&format!(" min={}", of.complete_min));
    }
    label
}

/// The name of a backend.
pub(super) fn backend(backend: Backend) -> &'static str {
    match backend {
        Backend::Uring => "uring",
        Backend::Kaio => "kaio",
        Backend::Threads => "threads",
        Backend::Psync => "psync",
        Backend::Null => "null",
    }
}

/// The size of the requests, or from which to which they are.
fn sizes(of: &Workload) -> String {
    match of.sizes {
        Sizes::One => bytes(of.block_size),
        _ => format!("{} to {}", bytes(of.block_size), bytes(of.largest_request())),
    }
}

/// Whether reads and writes are mixed.
pub(super) fn is_mixed(access: Access) -> bool {
    matches!(access, Access::ReadWrite | Access::RandRw)
}

/// Where requests go, in a few words.
fn target(target: &Target) -> String {
    match target {
        Target::Scratch { size } => format!("scratch file of {}", bytes(*size)),
        Target::Files(paths) => names(paths, " "),
        Target::SizedFiles { paths, size } => {
            format!("{}, {} of each", names(paths, " "), bytes(*size))
        }
        Target::Directory { path, size, files } => {
            format!(
                "{}, {} a job of {}",
                path.to_string_lossy(),
                plural(u64::from(*files), "file"),
                bytes(*size)
            )
        }
    }
}

/// The names of files in a row.
pub(super) fn names(paths: &[PathBuf], between: &str) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
    names.join(between)
}

/// The machine in lines, the first one about the kernel.
pub(super) fn machine(of: &Machine) -> Vec<String> {
    let mut lines = Vec::new();
    let mut first = Vec::new();
    if !of.kernel.is_empty() {
        first.push(format!("Linux {}", of.kernel));
    }
    if of.cpus > 0 {
        first.push(plural(of.cpus as u64, "processor"));
    }
    let mut second = Vec::new();
    if !of.file_system.is_empty() {
        second.push(of.file_system.clone());
    }
    if !of.device.is_empty() {
        second.push(format!("on {}", of.device));
    }
    if of.target_size > 0 {
        second.push(format!("target of {}", bytes(of.target_size)));
    }
    for parts in [first, second] {
        if !parts.is_empty() {
            lines.push(clean(&parts.join(", ")));
        }
    }
    lines.extend(of.remarks.iter().map(|remark| clean(remark)));
    lines
}

/// What went wrong in the runs of a cell, in words.
pub(super) fn failures(cell: &Cell) -> Vec<String> {
    let mut errors: Vec<(i32, u64)> = Vec::new();
    for &(errno, times) in cell.runs.iter().flat_map(|run| &run.errors) {
        match errors.iter_mut().find(|(known, _)| *known == errno) {
            Some((_, sum)) => *sum = sum.saturating_add(times),
            None => errors.push((errno, times)),
        }
    }
    let mut said: Vec<String> = errors
        .into_iter()
        .map(|(errno, times)| {
            let error = std::io::Error::from_raw_os_error(errno);
            format!("{} failed: {error}", plural(times, "request"))
        })
        .collect();
    let verified = || cell.runs.iter().filter_map(|run| run.verified);
    let blocks = verified().fold(0u64, |sum, (blocks, _)| sum.saturating_add(blocks));
    let wrong = verified().fold(0u64, |sum, (_, wrong)| sum.saturating_add(wrong));
    if wrong > 0 {
        said.push(format!(
            "{} of {} checked held wrong bytes",
            count(wrong),
            plural(blocks, "block")
        ));
    }
    said
}

/// Notes of cells with the cells they belong to; a note that many cells share is said once.
pub(super) fn notes<'a>(cells: impl Iterator<Item = &'a Cell>) -> Vec<(String, Vec<&'a Cell>)> {
    let mut gathered = Vec::new();
    for cell in cells {
        let mut said: Vec<String> = cell.notes.iter().map(|note| clean(note)).collect();
        said.extend(failures(cell));
        for note in said {
            push(&mut gathered, note, cell);
        }
    }
    gathered
}

/// `kaio; threads at depth 1 and 32`: names of some cells of a report, as short as they can be.
pub(super) fn cells(report: &Report, of: &[&Cell]) -> String {
    let varying: Vec<Setting> =
        Setting::ALL.into_iter().filter(|&s| s != Setting::Depth && s.varies(report)).collect();
    // What a cell is apart from its depth.
    let kind = |cell: &Cell| (contender(&cell.workload), phrase(&cell.workload, &varying));
    let all =
        |wanted: &dyn Fn(&Cell) -> bool| report.cells.iter().filter(|cell| wanted(cell)).count();

    let mut by_label: Vec<(String, Vec<&Cell>)> = Vec::new();
    for &cell in of {
        push(&mut by_label, contender(&cell.workload), cell);
    }
    let named: Vec<String> = by_label
        .into_iter()
        .map(|(label, cells)| {
            if cells.len() >= all(&|cell| contender(&cell.workload) == label) {
                return label;
            }
            let mut by_kind: Vec<((String, String), Vec<&Cell>)> = Vec::new();
            for &cell in &cells {
                push(&mut by_kind, kind(cell), cell);
            }
            let kinds: Vec<String> = by_kind
                .into_iter()
                .map(|(known, cells)| {
                    let depths: Vec<String> =
                        cells.iter().map(|cell| cell.workload.depth.to_string()).collect();
                    let every = cells.len() >= all(&|cell| kind(cell) == known);
                    let depths =
                        if every { String::new() } else { format!(" at depth {}", list(&depths)) };
                    format!("{}{depths}", known.1)
                })
                .collect();
            let kinds = kinds.join("; ");
            if varying.is_empty() {
                format!("{label}{kinds}")
            } else {
                format!("{label} ({kinds})")
            }
        })
        .collect();
    named.join("; ")
}

/// Put an item with the others of its key.
fn push<K: PartialEq, T>(into: &mut Vec<(K, Vec<T>)>, key: K, item: T) {
    match into.iter_mut().find(|(known, _)| *known == key) {
        Some((_, items)) => items.push(item),
        None => into.push((key, vec![item])),
    }
}

/// `a, b and c`.
pub(super) fn list(of: &[String]) -> String {
    match of {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// Text from elsewhere without what could move the cursor of a terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// `1 job`, `3 jobs`.
pub(super) fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// `1,234,567`.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A figure with three significant digits and no more: `0.123`, `1.23`, `12.3`, `1,234`.
pub(super) fn digits(value: f64) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if size < 0.0005 {
        "<0.001".to_owned()
    } else if size < 0.9995 {
        format!("{value:.3}")
    } else if size < 9.995 {
        format!("{value:.2}")
    } else if size < 99.95 {
        format!("{value:.1}")
    } else {
        count(value.round() as u64)
    }
}

/// `9,812`, `412 k`, `1.25 M`: a rate in few digits.
pub(super) fn rate(value: f64) -> String {
    if value < 9_999.5 {
        digits(value)
    } else if value < 999_500.0 {
        format!("{} k", digits(value / 1e3))
    } else {
        format!("{} M", digits(value / 1e6))
    }
}

/// Nanoseconds in the unit that suits them.
pub(super) fn nanoseconds(ns: f64) -> String {
    // The limits are where three digits would round up to the next unit.
    let (value, unit) = if ns < 999.5 {
        return format!("{} ns", digits(ns.round()).trim_end_matches(".0").trim_end_matches(".00"));
    } else if ns < 999.5e3 {
        (ns / 1e3, "µs")
    } else if ns < 999.5e6 {
        (ns / 1e6, "ms")
    } else {
        (ns / 1e9, "s")
    };
    format!("{} {unit}", digits(value))
}

/// A duration in the unit that suits it.
pub(super) fn duration(of: Duration) -> String {
    nanoseconds(of.as_nanos() as f64)
}

/// `4 KiB`, `1.5 MiB`.
pub(super) fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut scale = 1u64;
    while unit + 1 < units.len() && n / scale >= 1024 {
        scale *= 1024;
        unit += 1;
    }
    if n.is_multiple_of(scale) {
        format!("{} {}", n / scale, units[unit])
    } else {
        format!("{:.1} {}", n as f64 / scale as f64, units[unit])
    }
}

/// `1.32×`; no figure without something to divide by.
pub(super) fn ratio(a: f64, b: f64) -> String {
    let ratio = if b > 0.0 { a / b } else { f64::NAN };
    if (0.005..9.995).contains(&ratio) {
        format!("{ratio:.2}×")
    } else {
        format!("{}×", digits(ratio))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;

    #[test]
    fn figures_have_three_digits_and_the_unit_that_suits() {
        assert_eq!(nanoseconds(0.0), "0 ns");
        assert_eq!(nanoseconds(7.0), "7 ns");
        assert_eq!(nanoseconds(870.0), "870 ns");
        assert_eq!(nanoseconds(999.6), "1.00 µs");
        assert_eq!(nanoseconds(81_234.0), "81.2 µs");
        assert_eq!(nanoseconds(999_700.0), "1.00 ms");
        assert_eq!(nanoseconds(5e9), "5.00 s");
        assert_eq!(rate(9_812.4), "9,812");
        assert_eq!(rate(412_345.0), "412 k");
        assert_eq!(rate(999_800.0), "1.00 M");
        assert_eq!(digits(f64::NAN), ABSENT);
        assert_eq!(digits(0.99996), "1.00");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(123), "123");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(ratio(1.0, 2.0), "0.50×");
        assert_eq!(ratio(300.0, 2.0), "150×");
        assert_eq!(ratio(3.0, 0.0), "–×");
    }

    #[test]
    fn a_cell_is_named_by_what_it_does() {
        let mut of = samples::workload(Backend::Uring, 32);
        assert_eq!(
            phrase(&of, &[Setting::BlockSize, Setting::Access, Setting::Jobs, Setting::Direct]),
            "4 KiB random reads, 1 job, direct"
        );
        of.sqpoll = true;
        of.fixed_buffers = true;
        assert_eq!(contender(&of), "uring +sqpoll +fixedbufs");
        of.fixed_files = true;
        of.batch = Some(8);
        of.complete_min = 4;
        assert_eq!(contender(&of), "uring +sqpoll +fixed batch=8 min=4");
    }

    #[test]
    fn a_note_of_many_cells_is_said_once() {
        let mut report = samples::depths();
        for cell in &mut report.cells {
            if cell.workload.backend == Backend::Kaio {
                cell.notes.push("ran on \x1b[31mthreads".into());
            }
        }
        let notes = notes(report.cells.iter());
        assert_eq!(notes.len(), 1);
        assert_eq!(notes[0].0, "ran on \u{fffd}[31mthreads");
        assert_eq!(cells(&report, &notes[0].1), "kaio");
        assert_eq!(cells(&report, &notes[0].1[..2]), "kaio at depth 1 and 32");

        let report = samples::everything();
        let absent: Vec<&Cell> = report.cells.iter().filter(|cell| cell.runs.is_empty()).collect();
        assert_eq!(cells(&report, &absent), "uring +sqpoll +fixed (sequential writes)");
        assert_eq!(
            cells(&report, &absent[..1]),
            "uring +sqpoll +fixed (sequential writes at depth 1)"
        );
    }
}
