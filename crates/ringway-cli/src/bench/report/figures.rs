//! The figures that reports compare, and which measurements can be compared.

use super::configuration::{Setting, configuration, describe};
use crate::bench::result::{Measurement, Report, Run};
use hdrhistogram::Histogram;
use ringway_measure::stats::{Spread, percentile};
use ringway_measure::text::clean;

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

impl<'a> Figures<'a> {
    /// `None` if it did not run, or completed nothing.
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
}

/// Measurements that differ only in their configuration and one setting.
#[derive(Clone, Debug)]
pub(super) struct Group<'a> {
    /// What they have in common.
    pub title: String,
    /// Each with its configuration's name.
    pub measurements: Vec<(String, &'a Measurement)>,
}

/// All measurements in groups. `along` is the setting that may differ within a group.
pub(super) fn groups(report: &Report, along: Setting) -> Vec<Group<'_>> {
    let common: Vec<Setting> = Setting::ALL.into_iter().filter(|of| *of != along).collect();
    // A common target is named once, above the report.
    let is_named = |of: &Setting| *of != Setting::Target || of.varies(report);
    let named: Vec<Setting> = common.iter().copied().filter(is_named).collect();
    let mut groups: Vec<(Vec<String>, Group)> = Vec::new();
    for measurement in &report.measurements {
        let of = &measurement.workload;
        let key: Vec<String> = common.iter().map(|setting| setting.value(of)).collect();
        let at = groups.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            let group = Group { title: describe(of, &named), measurements: Vec::new() };
            groups.push((key, group));
            groups.len() - 1
        });
        let group = &mut groups[at].1;
        let plain = configuration(of);
        // Two sections of a job file may be alike; then their names distinguish them.
        let is_twin = |(name, other): &(String, &Measurement)| {
            *name == plain && along.value(&other.workload) == along.value(of)
        };
        let name = match group.measurements.iter().any(is_twin) {
            true => format!("{plain} ({})", clean(&of.name)),
            false => plain,
        };
        group.measurements.push((name, measurement));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;

    #[test]
    fn a_group_holds_what_can_be_compared() {
        let report = samples::block_sizes();
        assert_eq!(groups(&report, Setting::Depth).len(), 6, "one for each block size");
        let by_size = groups(&report, Setting::BlockSize);
        assert_eq!(by_size.len(), 1);
        assert_eq!(by_size[0].measurements.len(), 4 * 6);
        assert_eq!(by_size[0].title, "randread, direct, depth 32, 1 job");
    }

    #[test]
    fn equal_sections_are_distinguished_by_name() {
        let mut report = samples::depths();
        let mut twin = report.measurements[0].clone();
        twin.workload.name = "again".into();
        report.measurements.push(twin);
        let groups = groups(&report, Setting::Depth);
        let again = |(name, _): &&(String, &Measurement)| name.ends_with("(again)");
        assert_eq!(groups[0].measurements.iter().filter(again).count(), 1);
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
