//! What all reports show, computed once: the figures of each measurement, which measurements can be
//! compared, and the conclusions. The writers only put it into words, columns or charts.

use super::conclusions::Summary;
use super::configuration::{Setting, configuration, describe};
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
        let mut model = Self { report, entries: entries.collect(), summary: Summary::default() };
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
        let mut groups: Vec<(Vec<String>, Group)> = Vec::new();
        for entry in &self.entries {
            let workload = &entry.measurement.workload;
            let key: Vec<String> = common.iter().map(|setting| setting.value(workload)).collect();
            let at = groups.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                let title = describe(workload, &named);
                groups.push((key, Group { title, entries: Vec::new() }));
                groups.len() - 1
            });
            let group = &mut groups[at].1;
            let mut name = configuration(workload);
            // Two sections of a job file may be alike; then their names distinguish them.
            let is_twin = |(known, other): &(String, &Entry)| {
                *known == name && along.value(&other.measurement.workload) == along.value(workload)
            };
            if group.entries.iter().any(is_twin) {
                name += &format!(" ({})", clean(&workload.name));
            }
            group.entries.push((name, entry));
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }
}

impl<'a> Figures<'a> {
    fn new(measurement: &'a Measurement) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;

    #[test]
    fn a_group_holds_what_can_be_compared() {
        let report = samples::block_sizes();
        let model = Model::new(&report);
        assert_eq!(model.groups(Setting::Depth).len(), 6, "one for each block size");
        let by_size = model.groups(Setting::BlockSize);
        assert_eq!(by_size.len(), 1);
        assert_eq!(by_size[0].entries.len(), 4 * 6);
        assert_eq!(by_size[0].title, "randread, direct, depth 32, 1 job");
    }

    #[test]
    fn equal_sections_are_distinguished_by_name() {
        let mut report = samples::depths();
        let mut twin = report.measurements[0].clone();
        twin.workload.name = "again".into();
        report.measurements.push(twin);
        let model = Model::new(&report);
        let groups = model.groups(Setting::Depth);
        let again = |(name, _): &&(String, &Entry)| name.ends_with("(again)");
        assert_eq!(groups[0].entries.iter().filter(again).count(), 1);
    }

    #[test]
    fn without_operations_there_are_no_figures() {
        let mut report = samples::depths();
        for run in &mut report.measurements[0].runs {
            run.read.ops = 0;
        }
        assert!(Figures::new(&report.measurements[0]).is_none());
    }
}
