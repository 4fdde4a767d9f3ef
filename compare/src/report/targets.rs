//! What ringway is to reach, and whether it does.

use super::table::{factor, value};
use crate::contest::Row;
use crate::contestants::{self, BARE, RINGWAY, SPAWN_BLOCKING, TOKIO_FS};
use crate::figures::{Median, Metric};
use crate::shape::Shape;
use crate::suite::{self, KIB, MIB};
use std::fmt::Write;

/// No runtime that owns its threads is to be faster by more than this.
const SLOWEST: f64 = 1.0 / 1.2;

/// A ratio that is wanted.
struct Target {
    shape: Shape,
    against: &'static str,
    metric: Metric,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}
use Bound::{AtLeast, AtMost};

impl Bound {
    fn holds(self, ratio: f64) -> bool {
        match self {
            AtLeast(least) => ratio >= least,
            AtMost(most) => ratio <= most,
        }
    }

    fn text(self) -> String {
        match self {
            AtLeast(least) => format!(">= {}", factor(least)),
            AtMost(most) => format!("<= {}", factor(most)),
        }
    }
}

fn targets() -> Vec<Target> {
    use Metric::{CpuPerOp, OpsPerSecond, P50, P99};
    let mut targets = Vec::new();
    let mut want = |shape, wanted: &[(&'static str, Metric, Bound)]| {
        let target = |&(against, metric, bound)| Target { shape, against, metric, bound };
        targets.extend(wanted.iter().map(target));
    };
    want(
        Shape::reads(4 * KIB, true, 128),
        &[
            (SPAWN_BLOCKING, CpuPerOp, AtMost(0.25)),
            (SPAWN_BLOCKING, OpsPerSecond, AtLeast(1.0)),
            (BARE, CpuPerOp, AtMost(1.3)),
        ],
    );
    for readers in [1000, 100_000] {
        want(
            Shape::reads(4 * KIB, true, readers),
            &[
                (SPAWN_BLOCKING, OpsPerSecond, AtLeast(1.5)),
                (SPAWN_BLOCKING, CpuPerOp, AtMost(0.25)),
                (BARE, CpuPerOp, AtMost(1.4)),
            ],
        );
    }
    want(
        Shape::reads(4 * KIB, true, 1),
        &[(SPAWN_BLOCKING, CpuPerOp, AtMost(0.5)), (SPAWN_BLOCKING, P50, AtMost(1.0)), (BARE, P50, AtMost(1.1))],
    );
    want(
        Shape::reads(4 * KIB, false, 1),
        &[(SPAWN_BLOCKING, OpsPerSecond, AtLeast(12.0)), (BARE, OpsPerSecond, AtLeast(0.8))],
    );
    want(
        Shape::reads(4 * KIB, false, 32),
        &[(SPAWN_BLOCKING, OpsPerSecond, AtLeast(7.0)), (BARE, OpsPerSecond, AtLeast(1.1))],
    );
    for block in [64 * KIB, MIB] {
        for readers in [1, 32] {
            want(Shape::reads(block, false, readers), &[(SPAWN_BLOCKING, OpsPerSecond, AtLeast(1.3))]);
        }
    }
    want(Shape::ranges(), &[(SPAWN_BLOCKING, CpuPerOp, AtMost(0.2))]);
    for shape in suite::streams() {
        want(
            shape,
            &[
                (TOKIO_FS, P50, AtMost(1.0)),
                (TOKIO_FS, P99, AtMost(1.0)),
                (TOKIO_FS, OpsPerSecond, AtLeast(1.0)),
                (TOKIO_FS, CpuPerOp, AtMost(1.0)),
            ],
        );
    }
    for shape in suite::busy() {
        want(shape, &[(SPAWN_BLOCKING, P50, AtMost(1.5))]);
    }
    targets
}

/// Every target of the rows that there are.
pub fn table(rows: &[Row]) -> String {
    let mut text = "Targets of ringway\n\n".to_string();
    let _ = writeln!(text, "{:<52} {:<31} {:>9} {:>9} {:>6}", "row", "against", "wanted", "measured", "spread");
    for Target { shape, against, metric, bound } in targets() {
        if let Some(row) = rows.iter().find(|row| row.shape == shape) {
            line(&mut text, &shape, against, metric, bound, row.ratio(RINGWAY, against, metric));
        }
    }
    for row in rows {
        if let Some((runtime, ratio)) = fastest_runtime(row) {
            line(&mut text, &row.shape, runtime, Metric::OpsPerSecond, AtLeast(SLOWEST), Some(ratio));
        }
    }
    text
}

fn line(text: &mut String, shape: &Shape, against: &str, metric: Metric, bound: Bound, ratio: Option<Median>) {
    let metric = match metric {
        Metric::OpsPerSecond => "ops/s",
        Metric::CpuPerOp => "CPU/op",
        Metric::P99 => "latency (p99)",
        _ => "latency (p50)",
    };
    let (spread, verdict) = match ratio {
        Some(ratio) if bound.holds(ratio.value) => (spread(ratio), "reached"),
        Some(ratio) => (spread(ratio), "missed"),
        None => ("-".into(), "not measured"),
    };
    let against = format!("{metric} vs {against}");
    let (shape, wanted, ratio) = (shape.to_string(), bound.text(), value(ratio, factor));
    let _ = writeln!(text, "{shape:<52} {against:<31} {wanted:>9} {ratio:>9} {spread:>6}  {verdict}");
}

fn spread(ratio: Median) -> String {
    format!("±{:.0}%", 100.0 * ratio.spread)
}

/// The runtime against which ringway does worst in this row, and how it does.
fn fastest_runtime(row: &Row) -> Option<(&'static str, Median)> {
    let runtimes = contestants::ALL.iter().filter(|contestant| contestant.is_runtime());
    let ratio = |name| Some((name, row.ratio(RINGWAY, name, Metric::OpsPerSecond)?));
    runtimes.filter_map(|runtime| ratio(runtime.name())).min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value))
}
