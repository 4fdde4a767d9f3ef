//! What distorts the figures of a bench, and how to read them.

use super::configuration;
use super::model::{Figures, Model};
use crate::bench::result::Measurement;
use crate::bench::workload::Backend;
use ringway_measure::stats::Spread;
use ringway_measure::text::{plural, significant};
use ringway_measure::usage;

/// From this share of the cheapest backend's cost on, the harness distorts the ratios.
const HARNESS_PERCENT: f64 = 5.0;

pub(super) fn warnings(model: &Model) -> Vec<String> {
    let machine = &model.report.machine;
    let mut lines: Vec<String> = configuration::notes(model.report);
    let any = |is: &dyn Fn(&Figures) -> bool| model.figures().any(is);
    lines.extend(busy(model));
    let mut warn = |is: bool, text: String| {
        if is {
            lines.push(text)
        }
    };

    let unsteady = |f: &&Figures| !f.is_null() && !f.ops.is_steady();
    let unsteady: Vec<&Measurement> =
        model.figures().filter(unsteady).map(|f| f.measurement).collect();
    warn(
        !unsteady.is_empty(),
        format!(
            "{}: the runs lie further than a fifth from their median, so that comparisons are \
             undecided.",
            configuration::names(model.report, &unsteady)
        ),
    );
    warn(
        any(&|f| f.measurement.workload.backend == Backend::Kaio && !f.measurement.workload.direct),
        "Linux AIO is asynchronous with direct I/O only: buffered kaio rows do not show what it \
         can do."
            .to_owned(),
    );
    // A worker that was started and did next to nothing does not matter.
    let is_busy = |f: &&Figures| f.run.usage.io_wq * 50 > f.run.usage.cpu();
    let workers =
        model.figures().filter(is_busy).map(|f| f.run.usage.io_wq_workers).max().unwrap_or(0);
    warn(
        workers > 0,
        format!(
            "io_uring executed requests on {} of the kernel: the file system or the device did not \
             take them asynchronously.",
            plural(u64::from(workers), "worker thread")
        ),
    );
    warn(
        (1..=2).contains(&machine.cpus) && any(&|f| f.measurement.workload.sqpoll),
        format!(
            "SQPOLL keeps a processor busy, and this machine has {}: its rows compete with \
             themselves.",
            machine.cpus
        ),
    );
    let file_system = machine.file_system.as_str();
    warn(
        ["tmpfs", "ramfs"].contains(&file_system),
        format!("{file_system} has no device: the figures show the kernel's cost, not a disk's."),
    );
    let after = |name: &str| {
        let rest = &machine.device[machine.device.find(name)? + name.len()..];
        rest.split([',', ' ']).next().filter(|word| !word.is_empty())
    };
    if let Some(scheduler) = after("scheduler ").filter(|name| *name != "none") {
        let scheduler = ringway_measure::text::clean(scheduler);
        warn(true, format!("The {scheduler} scheduler is in every figure; `none` may cost less."));
    }
    if let Some(slots) = after("nr_requests ").and_then(|slots| slots.parse::<u64>().ok()) {
        let exceeds = |f: &Figures| {
            let workload = &f.measurement.workload;
            workload.direct && u64::from(workload.depth) * u64::from(workload.jobs) > slots
        };
        warn(
            any(&exceeds),
            format!(
                "The device's queue holds {} (nr_requests): deeper direct rows wait for slots.",
                plural(slots, "request")
            ),
        );
    }
    let is_limited = |f: &Figures| {
        let limits = |null: &Figures| {
            let free = null.measurement.workload.rate.is_none();
            null.is_null()
                && free
                && null.has_settings_of(f)
                && null.ops.median < 2.0 * f.ops.median
        };
        !f.is_null() && any(&limits)
    };
    warn(
        any(&is_limited),
        "The harness alone does less than twice the operations a second of the fastest backend: it \
         limits the figures."
            .to_owned(),
    );
    lines
}

/// The rows during which other programs kept a considerable share of the processors busy.
fn busy(model: &Model) -> Option<String> {
    let machine = &model.report.machine;
    let (mut most, mut disturbed) = (0.0, Vec::new());
    for Figures { measurement, .. } in model.figures() {
        let others = measurement.runs.iter().filter_map(|run| run.other_processors);
        if let Some(others) = usage::busy(others, machine.cpus) {
            most = f64::max(most, others);
            disturbed.push(*measurement);
        }
    }
    if disturbed.is_empty() {
        return None;
    }
    let rows = if disturbed.len() == model.figures().count() {
        "all rows".to_owned()
    } else {
        configuration::names(model.report, &disturbed)
    };
    Some(format!(
        "The machine was busy: other programs used up to {} of {} during {rows}. Measure again \
         without them.",
        significant(most),
        plural(machine.cpus as u64, "processor")
    ))
}

pub(super) fn reading(model: &Model, compared: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if compared {
        lines.push(
            "Ratios are to the fastest. Equal: the medians differ by less than 2 %. Undecided: the \
             runs overlap, the medians are closer than half the range of the runs, or half the \
             range is more than a fifth of the median."
                .to_owned(),
        );
        if model.figures().any(|figures| figures.ops.runs > 1) {
            lines.push("± is half the range of the runs.".to_owned());
        }
        if model.figures().any(|figures| figures.ops.runs == 1) {
            lines.push(
                "A single run shows no spread: differences below 10 % are undecided. More runs \
                 show smaller differences."
                    .to_owned(),
            );
        }
    }
    let costs = |null: &Figures| null.cpu_us.median;
    let nulls: Vec<&Figures> = model.figures().filter(|figures| figures.is_null()).collect();
    if let Some(Spread { low, high, .. }) = Spread::of(nulls.iter().map(|null| costs(null))) {
        let mut line = format!(
            "The harness itself costs {} to {} CPU µs/op (the null rows), which every figure \
             includes",
            significant(low),
            significant(high)
        );
        // The share of the harness in the cheapest row with the same settings.
        let share = |null: &&Figures| {
            let is_same = |figures: &&Figures| !figures.is_null() && figures.has_settings_of(null);
            let same = model.figures().filter(is_same);
            let cheapest = same.map(costs).filter(|cost| *cost > 0.0).min_by(f64::total_cmp)?;
            Some(costs(null) / cheapest * 100.0)
        };
        if let Some(share) = nulls.iter().filter_map(share).max_by(f64::total_cmp) {
            line += &format!(": up to {} % of the cheapest backend's cost", significant(share));
            if share >= HARNESS_PERCENT {
                line += ". Without it, the ratios would be larger";
            }
        }
        lines.push(line + ".");
    }
    lines
}
