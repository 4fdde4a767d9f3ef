//! Medians of repeated runs, how far the runs lie apart, and latency histograms.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Medians closer than this share are equal: the difference is too small to matter.
const EQUAL_WITHIN: f64 = 0.02;

/// A single run shows no spread, so that closer medians than this share decide nothing.
const UNDECIDED_WITHIN_ONE_RUN: f64 = 0.10;

/// Runs that spread further than this share around their median decide nothing, unless ...
const STEADY_WITHIN: f64 = 0.2;

/// ... every run of one figure is this many times every run of the other.
const FAR_APART: f64 = 2.0;

/// What the runs of two figures show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The difference is too small to matter.
    Equal,
    /// The runs do not show which figure is greater.
    Undecided,
    /// The first figure is smaller.
    Smaller,
    /// The first figure is greater.
    Greater,
}

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
        self.unsigned_percent().map(|percent| format!("±{percent}"))
    }

    /// As [`percent`](Self::percent), for a column whose heading is the sign.
    pub fn unsigned_percent(&self) -> Option<String> {
        let percent = self.share() * 100.0;
        (self.runs > 1 && percent.is_finite()).then(|| format!("{percent:.1} %"))
    }

    /// Whether the runs lie within a fifth of their median. A single run shows no spread.
    pub fn is_steady(&self) -> bool {
        self.half_range() <= STEADY_WITHIN * self.median.abs()
    }

    /// Compares two figures. It is undecided which is greater if the runs overlap, if the medians
    /// lie closer together than the runs of one figure, or if the runs of one are not steady.
    pub fn compare(&self, other: &Self) -> Comparison {
        let difference = (self.median - other.median).abs();
        let size = self.median.abs().max(other.median.abs());
        let (less, more) = if self.median < other.median { (self, other) } else { (other, self) };
        let steady = self.is_steady() && other.is_steady();
        let one_run = self.runs < 2 || other.runs < 2;
        if steady && !one_run && difference <= EQUAL_WITHIN * size {
            return Comparison::Equal;
        }
        let overlap = more.low <= less.high;
        let is_close = difference <= self.half_range().max(other.half_range())
            || (one_run && difference <= UNDECIDED_WITHIN_ONE_RUN * size);
        let is_far_apart = more.low >= FAR_APART * less.high;
        if overlap || is_close || (!steady && !is_far_apart) {
            return Comparison::Undecided;
        }
        if std::ptr::eq(less, self) { Comparison::Smaller } else { Comparison::Greater }
    }
}

/// An empty histogram of nanoseconds from 1 ns to 100 s with three significant digits. All have the
/// same bounds, so any two can be added.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds are valid")
}

/// A percentile of the samples; `None` if they are too few to show it. At least one sample must be
/// expected on either side: p50 needs 2 samples, p99 and p1 need 100, p99.9 needs 1,000.
pub fn percentile(samples: &Histogram<u64>, percent: f64) -> Option<u64> {
    let rarer_side = percent.min(100.0 - percent) / 100.0;
    // 100 - 99.9 is a little less than 0.1.
    let needed = (1.0 / rarer_side - 1e-6).ceil();
    (samples.len() as f64 >= needed).then(|| samples.value_at_percentile(percent))
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
    fn the_spread_of_runs_decides_comparisons() {
        use Comparison::{Equal, Greater, Smaller, Undecided};
        const A: &[f64] = &[100.0, 110.0, 120.0];
        const WIDE: &[f64] = &[70.0, 100.0, 120.0];
        for (a, b, expected, why) in [
            (&[100.0, 100.0][..], &[101.9, 101.9][..], Equal, "within 2 %"),
            (&[100.0, 100.0], &[103.0, 103.0], Smaller, "not within 2 %"),
            (&[103.0, 103.0], &[100.0, 100.0], Greater, "not within 2 %"),
            (&[95.0, 100.0, 105.0], &[96.0, 101.0, 106.0], Equal, "within 2 %"),
            (A, &[119.0, 125.0, 130.0], Undecided, "overlap"),
            (A, &[121.0, 131.0, 132.0], Smaller, "apart"),
            (&[100.0; 3], &[80.0, 97.0, 97.0], Undecided, "medians are closer than the runs"),
            (WIDE, &[130.0, 131.0, 132.0], Undecided, "not steady"),
            (WIDE, WIDE, Undecided, "not steady"),
            (WIDE, &[240.0, 241.0, 242.0], Smaller, "far apart"),
            (&[100.0], &[108.0], Undecided, "a single run needs a greater difference"),
            (&[100.0], &[120.0], Smaller, "a single run"),
        ] {
            assert_eq!(spread(a).compare(&spread(b)), expected, "{a:?} {b:?}: {why}");
        }
        assert_eq!((spread(A).half_range(), spread(A).percent().unwrap()), (10.0, "±9.1 %".into()));
        assert_eq!(spread(&[100.0]).percent(), None);
        assert!(!spread(WIDE).is_steady() && !spread(&[0.0, 0.0, 5.0]).is_steady());
    }

    #[test]
    fn percentiles_need_enough_samples() {
        let shown = |samples: u64, percent| {
            let mut histogram = latency_histogram();
            histogram.record_n(7, samples).unwrap();
            percentile(&histogram, percent)
        };
        for (needed, percents) in [
            (2, &[50.0][..]),
            (4, &[75.0]),
            (10, &[90.0]),
            (20, &[5.0, 95.0]),
            (100, &[1.0, 99.0]),
            (200, &[99.5]),
            (1_000, &[99.9]),
            (2_000, &[99.95]),
            (10_000, &[99.99]),
        ] {
            for percent in percents {
                assert_eq!(shown(needed, *percent), Some(7), "p{percent}");
                assert_eq!(shown(needed - 1, *percent), None, "p{percent}");
            }
        }
        assert_eq!(shown(1_000_000, 100.0), None, "the maximum is not a percentile");
    }
}
