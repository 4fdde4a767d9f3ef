//! The figures of one measurement, and the metrics that reports derive from them.

use ringway_measure::usage::Usage;
use serde::{Deserialize, Serialize};

/// One measurement, as the child process prints it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Figures {
    pub operations: u64,
    /// Wall time, CPU time and context switches.
    pub usage: Usage,
    /// `None` if nothing was timed, or if the run was too short for the number of readers.
    pub latency: Option<Latency>,
    /// `None` unless the row times polls.
    pub polls: Option<Polls>,
    /// Readers that ran: fewer than the row's if the contestant limits them.
    pub readers: usize,
    /// Operations of the reader with the fewest, as a share of the mean.
    pub least_share: f64,
    /// Operations in the first half of the time, as a share of all.
    pub first_half: f64,
    /// Processors that other programs kept busy meanwhile, on average.
    pub others: f64,
}

/// Latencies in microseconds; `None` without enough samples.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Latency {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// The longest polls in microseconds: p99.9, p99.99 and the longest.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Polls {
    /// Wall time, which includes the time in which other threads ran.
    pub wall: [f64; 3],
    /// CPU time of the polling thread.
    pub cpu: [f64; 3],
}

/// A figure that can be compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Metric {
    OpsPerSecond,
    /// Microseconds of CPU time of all threads for each operation.
    CpuPerOp,
    P50,
    P99,
    SwitchesPerOp,
    VoluntarySwitchesPerOp,
    /// CPU time of polls: p99.99.
    LongPolls,
}

impl Metric {
    /// The metric's value in a measurement, if it was measured.
    pub fn of(self, figures: &Figures) -> Option<f64> {
        let operations = figures.operations as f64;
        let usage = &figures.usage;
        Some(match self {
            Self::OpsPerSecond => operations / usage.real.as_secs_f64(),
            Self::CpuPerOp => usage.cpu().as_secs_f64() * 1e6 / operations,
            Self::P50 => figures.latency?.p50?,
            Self::P99 => figures.latency?.p99?,
            Self::SwitchesPerOp => usage.context_switches() as f64 / operations,
            Self::VoluntarySwitchesPerOp => usage.voluntary_switches as f64 / operations,
            Self::LongPolls => figures.polls?.cpu[1],
        })
    }
}
