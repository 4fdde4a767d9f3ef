//! What all reports show, computed once: the figures of each measurement, which measurements can be
//! compared, and the conclusions. The writers only lay it out.

use super::conclusions::Summary;
use super::configuration::{Setting, configuration, describe};
use super::rows::Rows;
use crate::bench::result::{Measurement, Report, Run};
use hdrhistogram::Histogram;
use ringway_measure::stats::{Spread, percentile};
use ringway_measure::text::clean;

/// The results of a bench.
#[derive(Clone, Debug)]
pub struct Model<'a> {
    /// What was measured.
    pub report: &'a Report,
    /// The measurements in the order of the plan.
    pub(super) entries: Vec<Entry<'a>>,
    /// The same as rows of texts; `None` without measurements.
    pub(super) rows: Option<Rows>,
    /// The conclusions in words.
    pub(super) summary: Summary,
}

/// A measurement with its figures.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub measurement: &'a Measurement,
    /// `None` if it did not run, or completed nothing.
    pub figures: Option<Figures<'a>>,
}

/// The figures of a measurement that completed at least one operation.
#[derive(Clone, Debug)]
pub(super) struct Figures<'a> {
    pub measurement: &'a Measurement,
    /// The median run.
    pub run: &'a Run,
    /// Operations a second.
    pub ops: Spread,
    /// CPU microseconds an operation.
    pub cpu_us: Spread,
    /// Reads and writes together.
    pub latency: Histogram<u64>,
}

/// Measurements that differ only in their configuration and one setting.
#[derive(Clone, Debug)]
pub(super) struct Group<'a> {
    /// What they have in common.
    pub title: String,
    /// Each with its configuration's name.
    pub entries: Vec<(String, &'a Entry<'a>)>,
}

impl<'a> Model<'a> {
    /// The figures and conclusions of a report.
    pub fn new(report: &'a Report) -> Self {
        let entries = report.measurements.iter().map(|measurement| {
            let figures = Figures::new(measurement);
            Entry { measurement, figures }
        });
        let entries: Vec<_> = entries.collect();
        let rows = Rows::new(report, &entries);
        let mut model = Self { report, entries, rows, summary: Summary::default() };
        model.summary = Summary::new(&model);
        model
    }

    /// The figures of the measurements that completed something.
    pub(super) fn figures(&self) -> impl Iterator<Item = &Figures<'a>> {
        self.entries.iter().filter_map(|entry| entry.figures.as_ref())
    }

    /// All measurements in groups. `along` is the setting that may differ within a group.
    pub(super) fn groups(&self, along: Setting) -> Vec<Group<'_>> {
        let common: Vec<Setting> =
            Setting::ALL.into_iter().filter(|setting| *setting != along).collect();
        // A common target is named once, above the report.
        let is_named =
            |setting: &Setting| *setting != Setting::Target || setting.varies(self.report);
        let named: Vec<Setting> = common.iter().copied().filter(is_named).collect();
        let key = |entry: &Entry| -> Vec<String> {
            common.iter().map(|setting| setting.value(&entry.measurement.workload)).collect()
        };
        let groups = gather(self.entries.iter().map(|entry| (key(entry), entry)));
        let groups = groups.into_iter();
        groups.map(|(_, alike)| Group::new(&alike, &named, along)).collect()
    }
}

impl<'a> Group<'a> {
    fn new(alike: &[&'a Entry<'a>], named: &[Setting], along: Setting) -> Self {
        let title = describe(&alike[0].measurement.workload, named);
        let mut group = Self { title, entries: Vec::new() };
        for entry in alike {
            group.add(entry, along);
        }
        group
    }

    fn add(&mut self, entry: &'a Entry<'a>, along: Setting) {
        let workload = &entry.measurement.workload;
        let mut name = configuration(workload);
        // Two sections of a job file may be alike; then their names distinguish them.
        let is_twin = |(known, other): &(String, &Entry)| {
            *known == name && along.value(&other.measurement.workload) == along.value(workload)
        };
        if self.entries.iter().any(is_twin) {
            name += &format!(" ({})", clean(&workload.name));
        }
        self.entries.push((name, entry));
    }
}

/// The values of each key, in the order in which the keys come first.
pub(super) fn gather<K: PartialEq, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut gathered: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match gathered.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => gathered.push((key, vec![value])),
        }
    }
    gathered
}

impl<'a> Figures<'a> {
    pub(super) fn new(measurement: &'a Measurement) -> Option<Self> {
        let run = measurement.median().filter(|run| run.ops() > 0)?;
        // A run without an operation has a rate, zero, but no cost of an operation.
        let worked = measurement.runs.iter().filter(|run| run.ops() > 0);
        let ops = Spread::of(measurement.runs.iter().map(Run::ops_per_second))?;
        let cpu_us = Spread::of(worked.map(Run::cpu_us_per_op))?;
        Some(Self {
            measurement,
            run,
            // Of an even number of runs, the median run is one of the two in the middle.
            ops: Spread { median: run.ops_per_second(), ..ops },
            cpu_us: Spread { median: run.cpu_us_per_op(), ..cpu_us },
            latency: run.latency(),
        })
    }

    /// Whether it is a run of the harness alone.
    pub(super) fn is_null(&self) -> bool {
        self.measurement.workload.is_null()
    }

    /// A percentile of latency in nanoseconds; `None` without enough samples.
    pub(super) fn percentile(&self, percent: f64) -> Option<f64> {
        percentile(&self.latency, percent).map(|ns| ns as f64)
    }

    /// Whether another measurement differs only in its configuration.
    pub(super) fn has_settings_of(&self, other: &Self) -> bool {
        let value = |figures: &Self, setting: Setting| setting.value(&figures.measurement.workload);
        // Nothing is read on the null backend, so direct I/O and checks make no difference there.
        let matters = |setting: &Setting| !matches!(setting, Setting::Direct | Setting::Verify);
        let mut settings = Setting::ALL.into_iter().filter(matters);
        settings.all(|setting| value(self, setting) == value(other, setting))
    }
}
