//! Medians of repeated runs, how far the runs lie apart, and latency histograms.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Medians closer than this share count as equal, however close the runs of each lie: a few runs
/// show only a part of the spread.
const EQUAL_WITHIN: f64 = 0.02;

/// The same where one run was made and the spread is unknown.
const EQUAL_WITHIN_ONE_RUN: f64 = 0.10;

/// A figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lowest of all runs.
    pub low: f64,
    /// The highest of all runs.
    pub high: f64,
    /// How many runs.
    pub runs: usize,
}

impl Spread {
    /// The median and the extremes of some values; `None` without a value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median, low, high, runs: values.len() })
    }

    /// Half the distance between the lowest and the highest run.
    pub fn half_range(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Half the range as a share of the median.
    pub fn share(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { self.half_range() / self.median }
    }

    /// `±1.2 %`: half the range in percent of the median. `None` for a single run, which shows no
    /// range.
    pub fn percent(&self) -> Option<String> {
        let percent = self.share() * 100.0;
        (self.runs > 1 && percent.is_finite()).then(|| format!("±{percent:.1} %"))
    }

    /// Whether the runs do not show which figure is greater: the runs overlap, the medians lie
    /// closer together than the runs of one of them, or the difference is too small to matter.
    pub fn equals(&self, other: &Self) -> bool {
        let difference = (self.median - other.median).abs();
        let one_run = self.runs < 2 || other.runs < 2;
        let within = if one_run { EQUAL_WITHIN_ONE_RUN } else { EQUAL_WITHIN };
        let overlap = self.low <= other.high && other.low <= self.high;
        overlap
            || difference <= self.half_range().max(other.half_range())
            || difference <= within * self.median.abs().max(other.median.abs())
    }
}

/// An empty histogram of nanoseconds from 1 ns to 100 s with three significant digits. All have the
/// same bounds, so any two can be added.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> Spread {
        Spread::of(values.iter().copied()).unwrap()
    }

    #[test]
    fn medians_of_odd_even_and_no_numbers() {
        let three = spread(&[3.0, 1.0, 2.0]);
        assert_eq!((three.median, three.share(), three.runs), (2.0, 0.5, 3));
        assert_eq!(spread(&[4.0, 1.0, 3.0, 1.0]).median, 2.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn figures_are_equal_if_the_runs_show_no_difference() {
        let a = spread(&[100.0, 110.0, 120.0]);
        assert_eq!(a.half_range(), 10.0);
        assert_eq!(a.percent().unwrap(), "±9.1 %");
        assert_eq!(spread(&[100.0]).percent(), None);
        assert!(a.equals(&spread(&[119.0, 125.0, 130.0])), "the runs overlap");
        assert!(!a.equals(&spread(&[121.0, 131.0, 132.0])), "the runs lie apart");
        assert!(
            spread(&[100.0, 100.0, 100.0]).equals(&spread(&[90.0, 99.9, 99.9])),
            "the medians are closer than the runs"
        );
        assert!(spread(&[100.0, 100.0]).equals(&spread(&[101.9, 101.9])), "too small to matter");
        assert!(!spread(&[100.0, 100.0]).equals(&spread(&[103.0, 103.0])));
    }

    #[test]
    fn a_single_run_needs_a_greater_difference() {
        assert!(spread(&[100.0]).equals(&spread(&[108.0])));
        assert!(!spread(&[100.0]).equals(&spread(&[120.0])));
    }
}
