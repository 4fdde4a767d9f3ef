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
use ringway_measure::rounds::{self, Bound, CPU, MACHINE, Measure, OPS, Row, SWITCHES, Target};
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

/// Targets of a contestant in a row.
fn want(contestant: &str, workload: Workload, wanted: &[Wanted]) -> Vec<Target> {
    let target = |(figure, measure, bound): &Wanted| Target {
        row: workload.to_string(),
        contestant: contestant.into(),
        figure: (*figure).into(),
        measure: measure.clone(),
        bound: *bound,
    };
    wanted.iter().map(target).collect()
}

fn targets() -> Vec<Target> {
    [overhead(), direct_reads(), cached_reads(), others()].concat()
}

/// The rows on the null backend, and those next to a worker that computes.
fn overhead() -> Vec<Target> {
    let mut targets = want(QUEUE, Workload::null(1, 32), &[value(CPU, Most(0.045))]);
    for workload in suite::null() {
        let most = match (workload.readers, workload.operation) {
            (1, _) => 0.3,
            (32, _) => continue,
            (_, Operation::Null { workers: 1 }) => 0.3,
            _ => 0.5,
        };
        targets.extend(want(RINGWAY, workload, &[value(CPU, Most(most))]));
    }
    targets.extend(want(RINGWAY, Workload::polls(), &[value(LONG_POLLS, Most(100.0))]));
    for workload in suite::busy() {
        for contestant in [RINGWAY, RINGWAY_KAIO, RINGWAY_THREADS] {
            targets.extend(want(contestant, workload, &[ratio(P50, SPAWN_BLOCKING, Most(1.5))]));
        }
    }
    targets
}

fn direct_reads() -> Vec<Target> {
    let spawn = |figure, bound| ratio(figure, SPAWN_BLOCKING, bound);
    let many = || vec![spawn(OPS, Least(1.5)), spawn(CPU, Most(0.25))];
    let one = vec![
        spawn(CPU, Most(0.5)),
        spawn(P50, Most(1.0)),
        ratio(P50, BARE, Most(1.1)),
        ratio(P50, COMPIO, Most(1.05)),
        ratio(CPU, COMPIO, Most(1.05)),
    ];
    let compio = |figure| ratio(figure, COMPIO, Most(1.1));
    let rivals = || vec![compio(CPU), compio(MACHINE), ratio(MACHINE, BARE, Most(1.3))];
    let wanted = [
        (1, one),
        (32, vec![value(SWITCHES, Most(0.05)), compio(CPU)]),
        (128, [vec![spawn(CPU, Most(0.25)), spawn(OPS, Least(1.0))], rivals()].concat()),
        (1000, [many(), rivals()].concat()),
        (100_000, [many(), vec![ratio(CPU, BARE, Most(1.4))]].concat()),
    ];
    let row = |(readers, wanted): (usize, Vec<Wanted>)| {
        want(RINGWAY, Workload::reads(4 * KIB, true, readers), &wanted)
    };
    wanted.into_iter().flat_map(row).collect()
}

fn cached_reads() -> Vec<Target> {
    let spawn = |least| ratio(OPS, SPAWN_BLOCKING, Least(least));
    let mut wanted = vec![
        (4 * KIB, 1, vec![spawn(12.0), ratio(CPU, BARE, Most(1.17))]),
        (4 * KIB, 32, vec![spawn(7.0), ratio(OPS, BARE, Least(1.6))]),
    ];
    wanted.extend([
        (64 * KIB, 1, vec![spawn(1.3)]),
        (64 * KIB, 32, vec![spawn(1.3)]),
        (MIB, 1, vec![spawn(1.4), ratio(CPU, SPAWN_BLOCKING, Most(0.9))]),
        (MIB, 32, vec![spawn(1.3)]),
    ]);
    let row = |(block, readers, wanted): (usize, usize, Vec<Wanted>)| {
        want(RINGWAY, Workload::reads(block, false, readers), &wanted)
    };
    wanted.into_iter().flat_map(row).collect()
}

fn others() -> Vec<Target> {
    let ranges = [ratio(CPU, SPAWN_BLOCKING, Most(0.2)), ratio(CPU, BARE, Most(1.5))];
    let puts = [
        ratio(OPS, SPAWN_BLOCKING, Least(5.0)),
        ratio(CPU, SPAWN_BLOCKING, Most(1.0)),
        ratio(OPS, GROUP_COMMIT, Least(1.0)),
    ];
    let streams = [
        ratio(P50, TOKIO_FS, Most(1.0)),
        ratio(P99, TOKIO_FS, Most(1.0)),
        ratio(OPS, TOKIO_FS, Least(1.0)),
        ratio(CPU, TOKIO_FS, Most(1.0)),
    ];
    let streams = suite::streams().into_iter().flat_map(|row| want(RINGWAY, row, &streams));
    want(RINGWAY, Workload::ranges(), &ranges)
        .into_iter()
        .chain(streams)
        .chain(want(RINGWAY, Workload::puts(), &puts))
        .chain(want(RINGWAY_LOG, Workload::puts(), &[ratio(OPS, GROUP_COMMIT, Least(1.0))]))
        .collect()
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
    /// A target in the table of CONTRIBUTING.md: `row`, `contestant`, figure, and `at most 1.1x
    /// other` or `at least 45`.
    fn parse(line: &str) -> Option<Target> {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [_, row, contestant, figure, bound, _] = &cells[..] else { return None };
        let figure = match &figure[..] {
            "operations" => OPS,
            "CPU" => CPU,
            "machine" => MACHINE,
            "switches" => SWITCHES,
            "p50" => P50,
            "longest polls" => LONG_POLLS,
            _ => return None,
        };
        let (least, rest) = match bound.strip_prefix("at least ") {
            Some(rest) => (true, rest),
            None => (false, bound.strip_prefix("at most ")?),
        };
        let (number, unit) = rest.split_once(' ').unwrap_or((rest, ""));
        let (number, measure) = match number.strip_suffix('x') {
            Some(number) => (number, Measure::Ratio(unit.into())),
            None => (number, Measure::Value),
        };
        let number = number.parse().unwrap();
        Some(Target {
            row: suite::row(row).unwrap().to_string(),
            contestant: contestant.clone(),
            figure: figure.into(),
            measure,
            bound: if least { Least(number) } else { Most(number) },
        })
    }

    #[test]
    fn the_targets_of_contributing_are_these() {
        let page = include_str!("../../CONTRIBUTING.md");
        let has_target = |line: &&str| line.starts_with("| `") && line.matches('|').count() == 5;
        let parsed = |line| parse(line).unwrap_or_else(|| panic!("not a target: {line}"));
        let stated: Vec<_> = page.lines().filter(has_target).map(parsed).collect();
        assert!(!stated.is_empty(), "CONTRIBUTING.md has no targets");
        for target in stated {
            assert!(targets().contains(&target), "not in targets.rs: {target:?}");
        }
    }
}
