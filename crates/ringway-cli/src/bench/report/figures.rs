//! The figures of a cell as the reports compare them: the median run, how far the runs lie apart,
//! and when two cells count as equal; and the cells put together for comparing.

use super::words::{self, Setting};
use crate::bench::result::{Cell, Report, Run};
use crate::bench::workload::Backend;
use hdrhistogram::Histogram;

/// Below this share two medians count as equal however close the runs of each lie: three runs
/// show only a part of the spread.
const EQUAL_WITHIN: f64 = 0.02;

/// The same where one run was made and the spread is unknown.
const EQUAL_WITHIN_ONE_RUN: f64 = 0.10;

/// A figure over all runs of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// That of the median run.
    pub value: f64,
    /// The least of all runs.
    pub low: f64,
    /// The greatest of all runs.
    pub high: f64,
    /// How many runs.
    pub runs: usize,
}

impl Spread {
    fn new(value: f64, all: impl Iterator<Item = f64>) -> Self {
        let mut spread = Self { value, low: value, high: value, runs: 0 };
        for one in all {
            spread.low = spread.low.min(one);
            spread.high = spread.high.max(one);
            spread.runs += 1;
        }
        spread
    }

    /// Half the distance between the least and the greatest.
    pub(super) fn half_range(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// `±1.2 %`: half the range as a share of the median; nothing where one run shows no range.
    pub(super) fn percent(&self) -> Option<String> {
        let share = self.half_range() / self.value * 100.0;
        (self.runs > 1 && share.is_finite()).then(|| format!("±{share:.1} %"))
    }

    /// Whether the runs do not allow to say which of the two is greater: the runs overlap, or the
    /// medians lie closer together than the runs of one of them, or closer than is worth a word.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let difference = (self.value - other.value).abs();
        let one_run = self.runs < 2 || other.runs < 2;
        let within = if one_run { EQUAL_WITHIN_ONE_RUN } else { EQUAL_WITHIN };
        let overlap = self.low <= other.high && other.low <= self.high;
        overlap
            || difference <= self.half_range().max(other.half_range())
            || difference <= within * self.value.abs().max(other.value.abs())
    }

    /// Clearly less than the other.
    pub(super) fn below(&self, other: &Self) -> bool {
        self.value < other.value && !self.equals(other)
    }
}

/// The figures of a cell that completed at least one operation.
#[derive(Clone, Debug)]
pub(super) struct Figures<'a> {
    pub cell: &'a Cell,
    pub run: &'a Run,
    pub ops: Spread,
    pub cpu_us: Spread,
    /// Reads and writes together.
    pub latency: Histogram<u64>,
}

impl<'a> Figures<'a> {
    /// Nothing when the cell did not run, or completed nothing: there is nothing to compare then.
    pub(super) fn new(cell: &'a Cell) -> Option<Self> {
        let run = cell.median().filter(|run| run.ops() > 0)?;
        // A run without a single operation has a rate, zero, but no cost an operation.
        let worked = cell.runs.iter().filter(|run| run.ops() > 0);
        Some(Self {
            cell,
            run,
            ops: Spread::new(run.ops_per_second(), cell.runs.iter().map(Run::ops_per_second)),
            cpu_us: Spread::new(run.cpu_us_per_op(), worked.map(Run::cpu_us_per_op)),
            latency: run.latency(),
        })
    }

    /// Bytes a second of the median run.
    pub(super) fn bytes_per_second(&self) -> f64 {
        self.run.bytes() as f64 / self.run.usage.real.as_secs_f64().max(1e-9)
    }

    /// System calls an operation, where they are counted.
    pub(super) fn system_calls(&self) -> Option<f64> {
        self.run.usage.system_calls.map(|calls| calls as f64 / self.run.ops() as f64)
    }

    /// Context switches an operation.
    pub(super) fn context_switches(&self) -> f64 {
        self.run.usage.context_switches as f64 / self.run.ops() as f64
    }

    /// A percentile in nanoseconds; nothing without samples.
    pub(super) fn percentile(&self, percent: f64) -> Option<u64> {
        (!self.latency.is_empty()).then(|| self.latency.value_at_percentile(percent))
    }
}

/// One backend with its flags within a group.
#[derive(Clone, Debug)]
pub(super) struct Contender<'a> {
    pub label: String,
    pub cells: Vec<&'a Cell>,
}

impl Contender<'_> {
    /// The harness alone, not a way of doing I/O.
    pub(super) fn is_null(&self) -> bool {
        self.cells.iter().all(|cell| cell.workload.backend == Backend::Null)
    }
}

/// Cells alike in everything but the backend, its flags and one setting: those that answer one
/// question.
#[derive(Clone, Debug)]
pub(super) struct Group<'a> {
    /// What they have in common, in words.
    pub title: String,
    pub contenders: Vec<Contender<'a>>,
}

/// Put the cells together that can be compared. `along` is the setting that may differ within a
/// group.
pub(super) fn groups(report: &Report, along: Setting) -> Vec<Group<'_>> {
    let common: Vec<Setting> =
        Setting::ALL.into_iter().filter(|&setting| setting != along).collect();
    // A target that is the same everywhere is named once, above the report.
    let said: Vec<Setting> = common
        .iter()
        .copied()
        .filter(|&setting| setting != Setting::Target || setting.varies(report))
        .collect();

    let mut groups: Vec<(Vec<String>, Group)> = Vec::new();
    for cell in &report.cells {
        let key: Vec<String> = common.iter().map(|setting| setting.short(&cell.workload)).collect();
        let at = groups.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            let title = words::phrase(&cell.workload, &said);
            groups.push((key, Group { title, contenders: Vec::new() }));
            groups.len() - 1
        });
        let group = &mut groups[at].1;
        let plain = words::contender(&cell.workload);
        // Two sections of a job file may ask for the same thing; their names tell them apart.
        let twin = |other: &&Contender| {
            other.label == plain
                && other
                    .cells
                    .iter()
                    .any(|seen| along.short(&seen.workload) == along.short(&cell.workload))
        };
        let label = match group.contenders.iter().find(twin) {
            Some(_) => format!("{plain} ({})", words::clean(&cell.workload.name)),
            None => plain,
        };
        match group.contenders.iter_mut().find(|known| known.label == label) {
            Some(known) => known.cells.push(cell),
            None => group.contenders.push(Contender { label, cells: vec![cell] }),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples;

    fn spread(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Spread::new(sorted[(sorted.len() - 1) / 2], values.iter().copied())
    }

    #[test]
    fn equal_is_what_the_runs_cannot_tell_apart() {
        let a = spread(&[100.0, 110.0, 120.0]);
        assert_eq!(a.half_range(), 10.0);
        assert_eq!(a.percent().unwrap(), "±9.1 %");
        assert_eq!(spread(&[100.0]).percent(), None);
        assert!(a.equals(&spread(&[119.0, 125.0, 130.0])), "overlap");
        assert!(!a.equals(&spread(&[121.0, 131.0, 132.0])), "apart");
        assert!(
            spread(&[100.0, 100.0, 100.0]).equals(&spread(&[90.0, 99.9, 99.9])),
            "closer than its runs"
        );
        assert!(spread(&[100.0, 100.0]).equals(&spread(&[101.9, 101.9])), "not worth a word");
        assert!(!spread(&[100.0, 100.0]).equals(&spread(&[103.0, 103.0])));
    }

    #[test]
    fn one_run_needs_a_greater_difference() {
        assert!(spread(&[100.0]).equals(&spread(&[108.0])));
        assert!(!spread(&[100.0]).equals(&spread(&[120.0])));
        assert!(spread(&[100.0]).below(&spread(&[120.0])));
    }

    #[test]
    fn cells_are_grouped_by_question() {
        let report = samples::block_sizes();
        let by_depth = groups(&report, Setting::Depth);
        assert_eq!(by_depth.len(), 6, "a group for each block size");
        let by_size = groups(&report, Setting::BlockSize);
        assert_eq!(by_size.len(), 1);
        assert_eq!(by_size[0].contenders[0].cells.len(), 6);
        assert_eq!(by_size[0].title, "random reads, direct, depth 32, 1 job");
    }

    #[test]
    fn twins_are_told_apart_by_name() {
        let mut report = samples::depths();
        let mut twin = report.cells[0].clone();
        twin.workload.name = "again".into();
        report.cells.push(twin);
        let groups = groups(&report, Setting::Depth);
        let labels: Vec<&str> = groups[0].contenders.iter().map(|c| c.label.as_str()).collect();
        assert_eq!(
            labels.iter().filter(|label| label.ends_with("(again)")).count(),
            1,
            "{labels:?}"
        );
    }

    #[test]
    fn no_operation_no_figures() {
        let mut report = samples::depths();
        for run in &mut report.cells[0].runs {
            run.read.ops = 0;
        }
        assert!(Figures::new(&report.cells[0]).is_none());
    }
}
