//! The targets of ringway, and whether this run reaches them.

use super::table::{formatted, percent, ratio, switches};
use crate::comparison::Row;
use crate::contestants::{
    self, BARE, COMPIO, GROUP_COMMIT, QUEUE, RINGWAY, RINGWAY_KAIO, RINGWAY_LOG, RINGWAY_THREADS,
    SPAWN_BLOCKING, TOKIO_FS,
};
use crate::figures::Metric;
use crate::suite::{self, KIB, MIB};
use crate::workload::{Operation, Workload};
use ringway_measure::table::Table;
use ringway_measure::text::significant;

/// ringway reaches at least this share of the operations per second of the fastest runtime that
/// owns its threads.
const LEAST_OF_FASTEST: f64 = 1.0 / 1.2;

/// A metric of a contestant, and its bound.
struct Target {
    workload: Workload,
    contestant: &'static str,
    metric: Metric,
    measure: Measure,
    bound: Bound,
}

/// The number that is compared with the bound.
#[derive(Clone, Copy)]
enum Measure {
    /// The metric itself.
    Value,
    /// Its ratio to another contestant's.
    Ratio(&'static str),
    /// Its difference from another contestant's.
    Above(&'static str),
}
use Measure::{Above, Ratio, Value};

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}
use Bound::{AtLeast, AtMost};

impl Bound {
    fn holds(self, measured: f64) -> bool {
        match self {
            AtLeast(least) => measured >= least,
            AtMost(most) => measured <= most,
        }
    }

    fn text(self, number: impl Fn(f64) -> String) -> String {
        match self {
            AtLeast(least) => format!(">= {}", number(least)),
            AtMost(most) => format!("<= {}", number(most)),
        }
    }
}

type Wanted = (Metric, Measure, Bound);

fn targets() -> Vec<Target> {
    use Metric::{CpuPerOp, LongPolls, OpsPerSecond, P50, P99, SwitchesPerOp};
    let mut targets = Vec::new();
    let mut want_of = |contestant, workload, wanted: &[Wanted]| {
        let target =
            |&(metric, measure, bound)| Target { workload, contestant, metric, measure, bound };
        targets.extend(wanted.iter().map(target));
    };
    for workload in suite::null() {
        let most = match (workload.readers, workload.operation) {
            (1, _) => 0.3,
            (32, _) => continue,
            (_, Operation::Null { workers: 1 }) => 0.3,
            _ => 0.5,
        };
        want_of(RINGWAY, workload, &[(CpuPerOp, Value, AtMost(most))]);
    }
    want_of(QUEUE, Workload::null(1, 32), &[(CpuPerOp, Value, AtMost(0.045))]);
    for workload in suite::busy() {
        for contestant in [RINGWAY, RINGWAY_KAIO, RINGWAY_THREADS] {
            want_of(contestant, workload, &[(P50, Ratio(SPAWN_BLOCKING), AtMost(1.5))]);
        }
    }
    let mut want = |workload, wanted: &[Wanted]| want_of(RINGWAY, workload, wanted);
    want(Workload::polls(), &[(LongPolls, Value, AtMost(100.0))]);
    let direct = |readers| Workload::reads(4 * KIB, true, readers);
    want(
        direct(128),
        &[
            (CpuPerOp, Ratio(SPAWN_BLOCKING), AtMost(0.25)),
            (OpsPerSecond, Ratio(SPAWN_BLOCKING), AtLeast(1.0)),
        ],
    );
    for readers in [1000, 100_000] {
        want(
            direct(readers),
            &[
                (OpsPerSecond, Ratio(SPAWN_BLOCKING), AtLeast(1.5)),
                (CpuPerOp, Ratio(SPAWN_BLOCKING), AtMost(0.25)),
            ],
        );
    }
    want(direct(100_000), &[(CpuPerOp, Ratio(BARE), AtMost(1.4))]);
    for readers in [128, 1000] {
        want(
            direct(readers),
            &[(CpuPerOp, Above(BARE), AtMost(0.5)), (CpuPerOp, Ratio(COMPIO), AtMost(1.0))],
        );
    }
    want(
        direct(32),
        &[(SwitchesPerOp, Value, AtMost(0.05)), (CpuPerOp, Ratio(COMPIO), AtMost(1.0))],
    );
    want(
        direct(1),
        &[
            (CpuPerOp, Ratio(SPAWN_BLOCKING), AtMost(0.5)),
            (P50, Ratio(SPAWN_BLOCKING), AtMost(1.0)),
            (P50, Ratio(BARE), AtMost(1.1)),
            (P50, Ratio(COMPIO), AtMost(1.1)),
            (CpuPerOp, Ratio(COMPIO), AtMost(1.1)),
        ],
    );
    let cached = |block, readers| Workload::reads(block, false, readers);
    want(
        cached(4 * KIB, 1),
        &[
            (OpsPerSecond, Ratio(SPAWN_BLOCKING), AtLeast(12.0)),
            (CpuPerOp, Ratio(BARE), AtMost(1.17)),
        ],
    );
    want(
        cached(4 * KIB, 32),
        &[
            (OpsPerSecond, Ratio(SPAWN_BLOCKING), AtLeast(7.0)),
            (OpsPerSecond, Ratio(BARE), AtLeast(1.6)),
        ],
    );
    for block in [64 * KIB, MIB] {
        for readers in [1, 32] {
            want(cached(block, readers), &[(OpsPerSecond, Ratio(SPAWN_BLOCKING), AtLeast(1.3))]);
        }
    }
    want(
        Workload::ranges(),
        &[(CpuPerOp, Ratio(SPAWN_BLOCKING), AtMost(0.2)), (CpuPerOp, Ratio(BARE), AtMost(1.3))],
    );
    for workload in suite::streams() {
        want(
            workload,
            &[
                (P50, Ratio(TOKIO_FS), AtMost(1.0)),
                (P99, Ratio(TOKIO_FS), AtMost(1.0)),
                (OpsPerSecond, Ratio(TOKIO_FS), AtLeast(1.0)),
                (CpuPerOp, Ratio(TOKIO_FS), AtMost(1.0)),
            ],
        );
    }
    want(
        Workload::puts(),
        &[
            (OpsPerSecond, Ratio(SPAWN_BLOCKING), AtLeast(1.3)),
            (CpuPerOp, Ratio(SPAWN_BLOCKING), AtMost(1.0)),
            (OpsPerSecond, Ratio(GROUP_COMMIT), AtLeast(1.0)),
        ],
    );
    want_of(RINGWAY_LOG, Workload::puts(), &[(OpsPerSecond, Ratio(GROUP_COMMIT), AtLeast(1.0))]);
    targets
}

/// All targets of the rows that were measured.
pub fn table(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    for target in targets() {
        if let Some(row) = rows.iter().find(|row| row.workload == target.workload) {
            lines.push(line(&target, row));
        }
    }
    for row in rows {
        if let Some(runtime) = fastest_runtime(row) {
            let target = Target {
                workload: row.workload,
                contestant: RINGWAY,
                metric: Metric::OpsPerSecond,
                measure: Ratio(runtime),
                bound: AtLeast(LEAST_OF_FASTEST),
            };
            lines.push(line(&target, row));
        }
    }
    let headings = ["row", "figure", "result", "target", "measured", "±"].map(String::from);
    let table = Table { text_columns: 3, headings: headings.into(), rows: lines };
    format!("### Targets of ringway\n\n{}", table.markdown())
}

fn line(target: &Target, row: &Row) -> Vec<String> {
    let Target { workload, contestant, metric, measure, bound } = *target;
    let measured = match measure {
        Value => row.entry(contestant).and_then(|entry| entry.spread(metric)),
        Ratio(to) => row.ratio(contestant, to, metric),
        Above(to) => row.difference(contestant, to, metric),
    };
    let number = |number: f64| match (measure, metric) {
        (Ratio(_), _) => ratio(number),
        (_, Metric::SwitchesPerOp) => switches(number),
        (_, Metric::OpsPerSecond) => significant(number),
        _ => format!("{} µs", significant(number)),
    };
    let result = match measured {
        Some(measured) if bound.holds(measured.median) => "reached",
        Some(_) => "missed",
        None => "not measured",
    };
    let name = match metric {
        Metric::OpsPerSecond => "ops/s",
        Metric::CpuPerOp => "CPU/op",
        Metric::P50 => "latency (p50)",
        Metric::P99 => "latency (p99)",
        Metric::SwitchesPerOp | Metric::VoluntarySwitchesPerOp => "context switches/op",
        Metric::LongPolls => "CPU of polls (p99.99)",
    };
    let name = match contestant {
        RINGWAY => name.to_owned(),
        _ => format!("{contestant}: {name}"),
    };
    let figure = match measure {
        Value => name,
        Ratio(to) => format!("{name} vs {to}"),
        Above(to) => format!("{name} above {to}"),
    };
    // A share of a difference would mean little where the difference is near zero.
    let spread = match (measure, measured) {
        (Above(_), Some(measured)) => number(measured.half_range()),
        _ => percent(measured),
    };
    vec![
        workload.to_string(),
        figure,
        result.into(),
        bound.text(number),
        formatted(measured, number),
        spread,
    ]
}

/// The runtime with the most operations per second compared with ringway.
fn fastest_runtime(row: &Row) -> Option<&'static str> {
    let runtimes = contestants::ALL.iter().filter(|contestant| contestant.is_runtime());
    let ratio = |name| Some((row.ratio(RINGWAY, name, Metric::OpsPerSecond)?.median, name));
    let ratios = runtimes.filter_map(|runtime| ratio(runtime.name()));
    ratios.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_contestants_of_a_target_take_part_in_a_main_row() {
        let rows = suite::main_rows();
        for Target { workload, contestant, measure, .. } in targets() {
            assert!(rows.contains(&workload), "{workload} is not measured without options");
            let other = match measure {
                Value => None,
                Ratio(to) | Above(to) => Some(to),
            };
            for name in [contestant].into_iter().chain(other) {
                let takes_part = contestants::concerns(&workload, name)
                    && contestants::by_name(name).unwrap().leaves_out(&workload).is_none();
                assert!(takes_part, "{name} takes no part in: {workload}");
            }
        }
    }
}
