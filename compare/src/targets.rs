//! The targets of ringway, and whether a run reaches them.

use crate::contestants::{
    self, BARE, COMPIO, GROUP_COMMIT, QUEUE, RINGWAY, RINGWAY_KAIO, RINGWAY_LOG, RINGWAY_THREADS,
    SPAWN_BLOCKING, TOKIO_FS,
};
use crate::figures::{LONG_POLLS, P50, P99};
use crate::report::three_decimals;
use crate::suite::{self, KIB, MIB};
use crate::workload::{Operation, Workload};
use ringway_measure::rounds::Bound::{Least, Most};
use ringway_measure::rounds::{self, Bound, CPU, Measure, OPS, Row, SWITCHES, Target};
use ringway_measure::text::significant;

/// ringway reaches at least this share of the operations per second of the fastest runtime that
/// owns its threads.
const LEAST_OF_FASTEST: f64 = 1.0 / 1.2;

type Wanted = (&'static str, Measure, Bound);

fn value(figure: &'static str, bound: Bound) -> Wanted {
    (figure, Measure::Value, bound)
}

fn ratio(figure: &'static str, to: &str, bound: Bound) -> Wanted {
    (figure, Measure::Ratio(to.into()), bound)
}

fn targets() -> Vec<Target> {
    let mut targets = Vec::new();
    let mut want_of = |contestant: &str, workload: Workload, wanted: &[Wanted]| {
        let target = |(figure, measure, bound): &Wanted| Target {
            row: workload.to_string(),
            contestant: contestant.into(),
            figure: (*figure).into(),
            measure: measure.clone(),
            bound: *bound,
        };
        targets.extend(wanted.iter().map(target));
    };
    for workload in suite::null() {
        let most = match (workload.readers, workload.operation) {
            (1, _) => 0.3,
            (32, _) => continue,
            (_, Operation::Null { workers: 1 }) => 0.3,
            _ => 0.5,
        };
        want_of(RINGWAY, workload, &[value(CPU, Most(most))]);
    }
    want_of(QUEUE, Workload::null(1, 32), &[value(CPU, Most(0.045))]);
    for workload in suite::busy() {
        for contestant in [RINGWAY, RINGWAY_KAIO, RINGWAY_THREADS] {
            want_of(contestant, workload, &[ratio(P50, SPAWN_BLOCKING, Most(1.5))]);
        }
    }
    let mut want = |workload, wanted: &[Wanted]| want_of(RINGWAY, workload, wanted);
    want(Workload::polls(), &[value(LONG_POLLS, Most(100.0))]);
    let direct = |readers| Workload::reads(4 * KIB, true, readers);
    want(
        direct(128),
        &[ratio(CPU, SPAWN_BLOCKING, Most(0.25)), ratio(OPS, SPAWN_BLOCKING, Least(1.0))],
    );
    for readers in [1000, 100_000] {
        want(
            direct(readers),
            &[ratio(OPS, SPAWN_BLOCKING, Least(1.5)), ratio(CPU, SPAWN_BLOCKING, Most(0.25))],
        );
    }
    want(direct(100_000), &[ratio(CPU, BARE, Most(1.4))]);
    for readers in [128, 1000] {
        want(
            direct(readers),
            &[(CPU, Measure::Above(BARE.into()), Most(0.5)), ratio(CPU, COMPIO, Most(1.0))],
        );
    }
    want(direct(32), &[value(SWITCHES, Most(0.05)), ratio(CPU, COMPIO, Most(1.0))]);
    want(
        direct(1),
        &[
            ratio(CPU, SPAWN_BLOCKING, Most(0.5)),
            ratio(P50, SPAWN_BLOCKING, Most(1.0)),
            ratio(P50, BARE, Most(1.1)),
            ratio(P50, COMPIO, Most(1.1)),
            ratio(CPU, COMPIO, Most(1.1)),
        ],
    );
    let cached = |block, readers| Workload::reads(block, false, readers);
    want(
        cached(4 * KIB, 1),
        &[ratio(OPS, SPAWN_BLOCKING, Least(12.0)), ratio(CPU, BARE, Most(1.17))],
    );
    want(
        cached(4 * KIB, 32),
        &[ratio(OPS, SPAWN_BLOCKING, Least(7.0)), ratio(OPS, BARE, Least(1.6))],
    );
    for block in [64 * KIB, MIB] {
        for readers in [1, 32] {
            want(cached(block, readers), &[ratio(OPS, SPAWN_BLOCKING, Least(1.3))]);
        }
    }
    want(Workload::ranges(), &[ratio(CPU, SPAWN_BLOCKING, Most(0.2)), ratio(CPU, BARE, Most(1.3))]);
    for workload in suite::streams() {
        want(
            workload,
            &[
                ratio(P50, TOKIO_FS, Most(1.0)),
                ratio(P99, TOKIO_FS, Most(1.0)),
                ratio(OPS, TOKIO_FS, Least(1.0)),
                ratio(CPU, TOKIO_FS, Most(1.0)),
            ],
        );
    }
    want(
        Workload::puts(),
        &[
            ratio(OPS, SPAWN_BLOCKING, Least(1.3)),
            ratio(CPU, SPAWN_BLOCKING, Most(1.0)),
            ratio(OPS, GROUP_COMMIT, Least(1.0)),
        ],
    );
    want_of(RINGWAY_LOG, Workload::puts(), &[ratio(OPS, GROUP_COMMIT, Least(1.0))]);
    targets
}

/// All targets of the rows that were measured.
pub fn table(rows: &[Row]) -> String {
    let fastest = rows.iter().filter_map(|row| {
        Some(Target {
            row: row.title.clone(),
            contestant: RINGWAY.into(),
            figure: OPS.into(),
            measure: Measure::Ratio(fastest_runtime(row)?.into()),
            bound: Least(LEAST_OF_FASTEST),
        })
    });
    let targets: Vec<Target> = targets().into_iter().chain(fastest).collect();
    let table = rounds::targets(rows, &targets, |figure, value| match figure {
        SWITCHES => three_decimals(value),
        OPS => significant(value),
        _ => format!("{} µs", significant(value)),
    });
    format!("### Targets of ringway\n\n{}", table.markdown())
}

/// The runtime with the most operations per second compared with ringway.
fn fastest_runtime(row: &Row) -> Option<&'static str> {
    let runtimes =
        contestants::of(Operation::Read).iter().filter(|contestant| contestant.is_runtime);
    let ratio = |name| Some((row.ratio(RINGWAY, name, OPS)?.median, name));
    let ratios = runtimes.filter_map(|runtime| ratio(runtime.name));
    ratios.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_contestants_of_a_target_take_part_in_a_main_row() {
        let rows = suite::main_rows();
        for Target { row, contestant, measure, .. } in targets() {
            let workload = rows.iter().find(|workload| workload.to_string() == row);
            let workload = workload.unwrap_or_else(|| panic!("{row}: only with options"));
            let other = match measure {
                Measure::Value => None,
                Measure::Ratio(to) | Measure::Above(to) => Some(to),
            };
            for name in [contestant].into_iter().chain(other) {
                let contestant = contestants::by_name(workload.operation, &name).unwrap();
                let takes_part =
                    contestant.concerns(workload) && (contestant.leaves_out)(workload).is_none();
                assert!(takes_part, "{name} takes no part in: {row}");
            }
        }
    }
}
