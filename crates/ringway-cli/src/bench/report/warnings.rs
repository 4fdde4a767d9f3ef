//! What distorts the figures of a bench, and how to read them.

use super::configuration;
use super::model::{Figures, Model};
use crate::bench::result::Measurement;
use crate::bench::workload::Backend;
use ringway_measure::stats::Spread;
use ringway_measure::text::{clean, plural, significant};
use ringway_measure::usage;

/// From this share of the cheapest backend's cost on, the harness distorts the ratios.
const HARNESS_PERCENT: f64 = 5.0;

pub(super) fn warnings(model: &Model) -> Vec<String> {
    let own = [
        busy(model),
        unsteady(model),
        buffered_kaio(model),
        workers(model),
        sqpoll(model),
        in_memory(model),
        scheduler(model),
        device_queue(model),
        harness(model),
    ];
    configuration::notes(model.report).into_iter().chain(own.into_iter().flatten()).collect()
}

fn unsteady(model: &Model) -> Option<String> {
    let unsteady = model.figures().filter(|f| !f.is_null() && !f.ops.is_steady());
    let unsteady: Vec<&Measurement> = unsteady.map(|f| f.measurement).collect();
    let why = "the runs lie further than a fifth from their median, so that comparisons are \
               undecided.";
    (!unsteady.is_empty())
        .then(|| format!("{}: {why}", configuration::names(model.report, &unsteady)))
}

fn buffered_kaio(model: &Model) -> Option<String> {
    let mut workloads = model.figures().map(|f| &f.measurement.workload);
    let warning = "Linux AIO is asynchronous with direct I/O only: buffered kaio rows do not show \
                   what it can do.";
    workloads.any(|w| w.backend == Backend::Kaio && !w.direct).then(|| warning.to_owned())
}

fn workers(model: &Model) -> Option<String> {
    // A worker that was started and did next to nothing does not matter.
    let busy = model.figures().filter(|f| f.run.usage.io_wq * 50 > f.run.usage.cpu());
    let workers = busy.map(|f| f.run.usage.io_wq_workers).max().filter(|workers| *workers > 0)?;
    Some(format!(
        "io_uring executed requests on {} of the kernel: the file system or the device did not \
         take them asynchronously.",
        plural(workers.into(), "worker thread")
    ))
}

fn sqpoll(model: &Model) -> Option<String> {
    let cpus = model.report.machine.cpus;
    let competes = (1..=2).contains(&cpus)
        && model.figures().any(|figures| figures.measurement.workload.sqpoll);
    competes.then(|| {
        format!(
            "SQPOLL keeps a processor busy, and this machine has {cpus}: its rows compete with \
             themselves."
        )
    })
}

fn in_memory(model: &Model) -> Option<String> {
    let file_system = &model.report.machine.file_system;
    ["tmpfs", "ramfs"].contains(&&file_system[..]).then(|| {
        format!("{file_system} has no device: the figures show the kernel's cost, not a disk's.")
    })
}

/// The word that follows a name in the description of the device.
fn device_has<'a>(model: &'a Model, name: &str) -> Option<&'a str> {
    let (_, rest) = model.report.machine.device.split_once(name)?;
    rest.split([',', ' ']).next().filter(|word| !word.is_empty())
}

fn scheduler(model: &Model) -> Option<String> {
    let scheduler = device_has(model, "scheduler ").filter(|name| *name != "none")?;
    let scheduler = clean(scheduler);
    Some(format!("The {scheduler} scheduler is in every figure; `none` may cost less."))
}

fn device_queue(model: &Model) -> Option<String> {
    let slots = device_has(model, "nr_requests ")?.parse::<u64>().ok()?;
    let mut workloads = model.figures().map(|f| &f.measurement.workload);
    let exceeds = workloads.any(|w| w.direct && u64::from(w.depth) * u64::from(w.jobs) > slots);
    let slots = plural(slots, "request");
    exceeds.then(|| {
        format!(
            "The device's queue holds {slots} (nr_requests): deeper direct rows wait for slots."
        )
    })
}

fn harness(model: &Model) -> Option<String> {
    let nulls = || model.figures().filter(|f| f.is_null() && f.measurement.workload.rate.is_none());
    let is_limited = |f: &Figures| {
        nulls().any(|null| null.has_settings_of(f) && null.ops.median < 2.0 * f.ops.median)
    };
    let warning = "The harness alone does less than twice the operations a second of the fastest \
                   backend: it limits the figures.";
    model.figures().any(|f| !f.is_null() && is_limited(f)).then(|| warning.to_owned())
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
