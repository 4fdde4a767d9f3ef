//! What a measurement found, and what several of them come to.

use crate::usage::Usage;
use serde::{Deserialize, Serialize};

/// One measurement: what a child process prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Figures {
    pub operations: u64,
    pub seconds: f64,
    pub usage: Usage,
    /// None where the run was too short for the number of readers.
    pub latency: Option<Latency>,
    /// Where polls were timed.
    pub polls: Option<Polls>,
    /// Those that there were: fewer than the shape wants where a contestant cannot have so many.
    pub readers: usize,
    /// Operations of the reader that had fewest, as a share of the mean.
    pub least_share: f64,
    /// Operations of the first half of the time, as a share of all.
    pub first_half: f64,
    /// Processors that other programs kept busy meanwhile, on average.
    pub others: f64,
}

/// In microseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}

/// The longest polls, in microseconds: p99.9, p99.99 and the longest of all.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Polls {
    pub wall: [f64; 3],
    /// Processor time of the polling thread. Wall time includes other threads' turns.
    pub cpu: [f64; 3],
}

/// A figure of a measurement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Metric {
    OpsPerSecond,
    /// Microseconds of processor time, of all threads, an operation.
    CpuPerOp,
    P50,
    P99,
    SwitchesPerOp,
    VoluntarySwitchesPerOp,
    /// Processor time of polls: p99.99.
    LongPolls,
}

impl Metric {
    pub fn of(self, figures: &Figures) -> Option<f64> {
        let operations = figures.operations as f64;
        let usage = &figures.usage;
        Some(match self {
            Self::OpsPerSecond => operations / figures.seconds,
            Self::CpuPerOp => (usage.user + usage.system) * 1e6 / operations,
            Self::P50 => figures.latency?.p50,
            Self::P99 => figures.latency?.p99,
            Self::SwitchesPerOp => {
                (usage.voluntary_switches + usage.involuntary_switches) as f64 / operations
            }
            Self::LongPolls => figures.polls?.cpu[1],
            Self::VoluntarySwitchesPerOp => usage.voluntary_switches as f64 / operations,
        })
    }
}

/// A median, with half the way from the least to the greatest as a share of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Median {
    pub value: f64,
    pub spread: f64,
}

impl Median {
    /// None of no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, greatest) = (*values.first()?, *values.last()?);
        let value = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        let spread = if value == 0.0 { 0.0 } else { (greatest - least) / 2.0 / value };
        Some(Self { value, spread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_numbers() {
        assert_eq!(Median::of([3.0, 1.0, 2.0]), Some(Median { value: 2.0, spread: 0.5 }));
        assert_eq!(Median::of([4.0, 1.0, 3.0, 1.0]).unwrap().value, 2.0);
        assert_eq!(Median::of([]), None);
    }
}
