//! The names of configurations and their settings in all reports.

use super::model::gather;
use crate::bench::result::{Machine, Measurement, Report, count_error};
use crate::bench::workload::{Rate, Sizes, Target, Workload};
use ringway_core::refusal::{bytes_text, errno_text};
use ringway_measure::text::{clean, count, list, plural};

/// A setting by which measurements differ, apart from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Access,
    BlockSize,
    Direct,
    Depth,
    Jobs,
    Rate,
    Sync,
    Verify,
    Target,
}

impl Setting {
    pub(super) const ALL: [Self; 9] = {
        use Setting::{Access, BlockSize, Depth, Direct, Jobs, Rate, Sync, Target, Verify};
        [Access, BlockSize, Direct, Depth, Jobs, Rate, Sync, Verify, Target]
    };

    /// The heading of its column.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Access => "rw",
            Self::BlockSize => "block",
            Self::Direct => "I/O",
            Self::Depth => "depth",
            Self::Jobs => "jobs",
            Self::Rate => "rate of a job",
            Self::Sync => "sync",
            Self::Verify => "verify",
            Self::Target => "target",
        }
    }

    /// The value, the same for workloads with the same setting; empty for a setting that is not in
    /// use.
    pub(super) fn value(self, workload: &Workload) -> String {
        match self {
            Self::Access if workload.access.is_mixed() => {
                let writes = 100 - workload.read_percent.min(100);
                format!("{} {}/{writes}", workload.access.name(), workload.read_percent)
            }
            Self::Access => workload.access.name().to_owned(),
            Self::BlockSize => match workload.sizes {
                Sizes::One => bytes_text(workload.block_size),
                _ => [workload.block_size, workload.largest_request()].map(bytes_text).join(" to "),
            },
            Self::Direct => if workload.direct { "direct" } else { "buffered" }.to_owned(),
            Self::Depth => workload.depth.to_string(),
            Self::Jobs => workload.jobs.to_string(),
            Self::Rate => match workload.rate {
                Some(Rate::Requests(rate)) => format!("{} requests/s", count(rate)),
                Some(Rate::Bytes(rate)) => format!("{}/s", bytes_text(rate)),
                None => String::new(),
            },
            Self::Sync => workload.sync.map_or(String::new(), |sync| {
                format!("{} after {}", sync.name(), plural(sync.every.into(), "write"))
            }),
            Self::Verify => if workload.verify { "every byte checked" } else { "" }.to_owned(),
            Self::Target => clean(&target(&workload.target)),
        }
    }

    /// The value as a part of a description: `depth 32`, `1 job`, `direct`.
    fn phrase(self, workload: &Workload) -> String {
        match self {
            Self::Depth => format!("depth {}", workload.depth),
            Self::Jobs => plural(workload.jobs.into(), "job"),
            Self::Rate if workload.rate.is_some() => {
                format!("{} of each job", self.value(workload))
            }
            _ => self.value(workload),
        }
    }

    /// Whether measurements of the report differ in it.
    pub(super) fn varies(self, report: &Report) -> bool {
        let mut values = report.measurements.iter().map(|row| self.value(&row.workload));
        let first = values.next();
        values.any(|next| Some(next) != first)
    }
}

/// `randread, 4 KiB, direct, depth 32, 1 job`: these settings in words.
pub(super) fn describe(workload: &Workload, settings: &[Setting]) -> String {
    let phrases =
        settings.iter().map(|setting| setting.phrase(workload)).filter(|text| !text.is_empty());
    phrases.collect::<Vec<_>>().join(", ")
}

/// All settings of a workload, its backend first.
pub fn describe_all(workload: &Workload) -> String {
    format!("{}, {}", configuration(workload), describe(workload, &Setting::ALL))
}

/// The backend with its options: `uring +sqpoll +fixedbufs`.
pub(super) fn configuration(workload: &Workload) -> String {
    let mut name = workload.backend.name().to_owned();
    let both = workload.fixed_buffers && workload.fixed_files;
    for (on, option) in [
        (workload.sqpoll, " +sqpoll"),
        (workload.iopoll, " +iopoll"),
        (workload.passthrough, " +passthrough"),
        (both, " +fixed"),
        (workload.fixed_buffers && !both, " +fixedbufs"),
        (workload.fixed_files && !both, " +fixedfiles"),
    ] {
        name += if on { option } else { "" };
    }
    if let Some(batch) = workload.batch {
        name += &format!(" batch={batch}");
    }
    if workload.complete_min > 1 {
        name += &format!(" min={}", workload.complete_min);
    }
    name
}

fn target(target: &Target) -> String {
    match target {
        Target::Scratch { size } => format!("scratch file of {}", bytes_text(*size)),
        Target::Files { paths, size } => {
            let names = paths.iter().map(|path| path.to_string_lossy());
            let names = names.collect::<Vec<_>>().join(" ");
            size.map_or(names.clone(), |size| format!("{} of {names}", bytes_text(size)))
        }
        Target::Directory { path, size, files } => {
            let files = plural(u64::from(*files), "file");
            format!("{files} a job of {} in {}", bytes_text(*size), path.to_string_lossy())
        }
    }
}

/// The machine in lines, the kernel first.
pub(super) fn machine(machine: &Machine) -> Vec<String> {
    let kernel = format!("Linux {}, {}", machine.kernel, plural(machine.cpus as u64, "processor"));
    let mut target = machine.file_system.clone();
    for (is_known, part) in [
        (!machine.device.is_empty(), format!("on {}", machine.device)),
        (machine.target_size > 0, format!("target of {}", bytes_text(machine.target_size))),
    ] {
        if is_known {
            target += if target.is_empty() { "" } else { ", " };
            target += &part;
        }
    }
    let lines = [kernel, target].into_iter().chain(machine.remarks.iter().cloned());
    lines.filter(|line| !line.is_empty()).map(|line| clean(&line)).collect()
}

/// What went wrong in the runs of a measurement.
fn failures(measurement: &Measurement) -> Vec<String> {
    let mut errors: Vec<(i32, u64)> = Vec::new();
    for &(errno, times) in measurement.runs.iter().flat_map(|run| &run.errors) {
        count_error(&mut errors, errno, times);
    }
    let failed = errors.into_iter().map(|(errno, times)| {
        format!("{} failed: {}", plural(times, "request"), errno_text(errno))
    });
    let sums =
        measurement.runs.iter().filter_map(|run| run.verified).fold((0u64, 0u64), |sums, run| {
            (sums.0.saturating_add(run.0), sums.1.saturating_add(run.1))
        });
    let wrong = (sums.1 > 0).then(|| {
        format!("{} of {} had wrong bytes", count(sums.1), plural(sums.0, "checked block"))
    });
    failed.chain(wrong).collect()
}

/// The notes and failures of all measurements, each with the configurations that it is about. A
/// note that several share appears once.
pub(super) fn notes(report: &Report) -> Vec<String> {
    let notes = report.measurements.iter().flat_map(|measurement| {
        let own = measurement.notes.iter().map(|note| clean(note)).chain(failures(measurement));
        own.map(move |note| (note, measurement))
    });
    let notes = gather(notes).into_iter();
    notes.map(|(note, rows)| format!("{}: {note}", names(report, &rows))).collect()
}

/// The names of some measurements: `kaio at depth 1 and 32; threads`. Those that differ in depth
/// alone are named together.
pub(super) fn names(report: &Report, some: &[&Measurement]) -> String {
    let is_named = |setting: &Setting| *setting != Setting::Depth && setting.varies(report);
    let named: Vec<Setting> = Setting::ALL.into_iter().filter(is_named).collect();
    let key = |row: &Measurement| (configuration(&row.workload), describe(&row.workload, &named));
    let all: Vec<_> = report.measurements.iter().map(key).collect();
    let chosen: Vec<_> = some.iter().map(|row| key(row)).collect();
    let depths = gather(some.iter().map(|row| (key(row), row.workload.depth.to_string())));
    let mut names: Vec<String> = Vec::new();
    for (key, depths) in depths {
        let (mut name, settings) = key.clone();
        let has_backend = |other: &&(String, String)| other.0 == key.0;
        let is_whole =
            chosen.iter().filter(has_backend).count() == all.iter().filter(has_backend).count();
        if !is_whole && !named.is_empty() {
            name += &format!(", {settings}");
        }
        if depths.len() < all.iter().filter(|other| **other == key).count() {
            name += &format!(" at depth {}", list(&depths));
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join("; ")
}
