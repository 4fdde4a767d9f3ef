//! The conclusions of a bench in words. They claim no more than the runs show: ties are reported as
//! ties, what the runs do not order as undecided, and nothing is said about what was not measured.

use super::configuration::Setting;
use super::model::{Figures, Group, Model};
use super::warnings::{reading, warnings};
use crate::bench::result::Interrupted;
use ringway_measure::stats::{Comparison, Spread};
use ringway_measure::text::{count, list, nanoseconds, plural, rate, ratio, significant};

/// A fixed rate is kept from this share of it on.
const KEPT: f64 = 0.98;

/// What a bench shows, in words.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    /// The conclusion in one sentence.
    pub headline: String,
    /// The conclusion for each workload.
    pub groups: Vec<Conclusion>,
    /// What to know before believing the figures.
    pub warnings: Vec<String>,
    /// How the words are meant, and what the harness costs.
    pub reading: Vec<String>,
}

/// The conclusion for one workload at all its depths.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Conclusion {
    pub title: String,
    pub choice: String,
    pub reasons: Vec<String>,
}

impl Summary {
    pub(super) fn new(model: &Model) -> Self {
        let groups = model.groups(Setting::Depth);
        let mut fastest: Vec<Best> = Vec::new();
        let mut conclusions = Vec::new();
        for group in &groups {
            let rounds = rounds(group);
            let compared = rounds.iter().filter(|round| round.entries.len() > 1);
            fastest.extend(compared.map(Round::fastest));
            conclusions.extend(conclude(model, group, &rounds));
        }
        let mut headline = match &conclusions[..] {
            [] if model.figures().next().is_some() => {
                "No backend was measured, only the harness.".to_owned()
            }
            [] => "Nothing was measured: no configuration completed an operation.".to_owned(),
            [only] => only.choice.clone(),
            _ if fastest.is_empty() => "Only one configuration was measured.".to_owned(),
            _ => wins(&fastest),
        };
        if let Some(Interrupted { finished, planned }) = model.report.interrupted {
            headline = format!("Interrupted: {finished} of {planned} runs finished. {headline}");
        }
        Self {
            headline,
            groups: conclusions,
            warnings: warnings(model),
            reading: reading(model, !fastest.is_empty()),
        }
    }
}

/// A configuration's name and figures.
type Entry<'a> = (&'a str, &'a Figures<'a>);

/// The configurations at one depth, the fastest first.
struct Round<'a> {
    depth: u32,
    entries: Vec<Entry<'a>>,
}

impl<'a> Round<'a> {
    fn fastest(&self) -> Best<'a> {
        Best::of(&self.entries, |figures| figures.ops, Comparison::Smaller)
    }

    fn cheapest(&self) -> Best<'a> {
        cheapest(&self.entries)
    }
}

/// Those with the least CPU time an operation.
fn cheapest<'a>(entries: &[Entry<'a>]) -> Best<'a> {
    Best::of(entries, |figures| figures.cpu_us, Comparison::Greater)
}

/// The best configuration by one figure, or several that the runs do not order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Best<'a> {
    names: Vec<&'a str>,
    is_undecided: bool,
}

impl<'a> Best<'a> {
    /// Of entries in the order of the table. An entry whose comparison with the best is `worse` is
    /// left out.
    fn of(entries: &[Entry<'a>], figure: fn(&Figures) -> Spread, worse: Comparison) -> Self {
        let medians = entries.iter().map(|(_, figures)| figure(figures));
        let best = match worse {
            Comparison::Smaller => medians.max_by(|a, b| a.median.total_cmp(&b.median)),
            _ => medians.min_by(|a, b| a.median.total_cmp(&b.median)),
        };
        let (mut names, mut is_undecided) = (Vec::new(), false);
        for (name, figures) in entries {
            let comparison = best.map(|best| figure(figures).compare(&best));
            if comparison != Some(worse) {
                names.push(*name);
                is_undecided |= comparison == Some(Comparison::Undecided);
            }
        }
        // Without a rival there is nothing to decide.
        Self { is_undecided: is_undecided && names.len() > 1, names }
    }

    /// `uring`, `uring and kaio (equal)` or `undecided between uring and kaio`.
    fn text(&self) -> String {
        match (self.names.len(), self.is_undecided) {
            (_, true) => format!("undecided between {}", list(&self.names)),
            (2.., false) => format!("{} (equal)", list(&self.names)),
            _ => list(&self.names),
        }
    }
}

/// In how many comparisons each configuration was the fastest.
fn wins(fastest: &[Best]) -> String {
    let mut wins: Vec<(&str, usize)> = Vec::new();
    for best in fastest.iter().filter(|best| best.names.len() == 1) {
        match wins.iter_mut().find(|(known, _)| *known == best.names[0]) {
            Some((_, count)) => *count += 1,
            None => wins.push((best.names[0], 1)),
        }
    }
    wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let undecided = fastest.iter().filter(|best| best.is_undecided).count();
    let decided: usize = wins.iter().map(|(_, count)| count).sum();
    let others = [("equal", fastest.len() - decided - undecided), ("undecided", undecided)];
    let all = wins.into_iter().chain(others).filter(|(_, count)| *count > 0);
    let parts: Vec<String> =
        all.map(|(name, comparisons)| format!("{name} in {}", count(comparisons as u64))).collect();
    format!(
        "The fastest of {} (one for each workload and depth): {}.",
        plural(fastest.len() as u64, "comparison"),
        list(&parts)
    )
}

/// The depths at which something other than the harness was measured, in ascending order.
fn rounds<'a>(group: &'a Group<'a>) -> Vec<Round<'a>> {
    let mut rounds: Vec<Round> = Vec::new();
    for (name, entry) in &group.entries {
        let Some(figures) = entry.figures.as_ref().filter(|figures| !figures.is_null()) else {
            continue;
        };
        let depth = entry.measurement.workload.depth;
        match rounds.iter_mut().find(|round| round.depth == depth) {
            Some(round) => round.entries.push((name, figures)),
            None => rounds.push(Round { depth, entries: vec![(name, figures)] }),
        }
    }
    rounds.sort_by_key(|round| round.depth);
    for round in &mut rounds {
        round.entries.sort_by(|(_, a), (_, b)| b.ops.median.total_cmp(&a.ops.median));
    }
    rounds
}

/// `None` where nothing was measured.
fn conclude(model: &Model, group: &Group, rounds: &[Round]) -> Option<Conclusion> {
    let workload = &rounds.first()?.entries[0].1.measurement.workload;
    let jobs = f64::from(workload.jobs.max(1));
    let fixed_rate = workload.rate.map(|rate| rate.requests(workload.block_size) * jobs);
    let varies = Setting::Depth.varies(model.report);
    let mut reasons = Vec::new();
    for round in rounds {
        let depth = if varies { format!("Depth {}: ", round.depth) } else { String::new() };
        let entry =
            |(name, figures): &Entry| format!("{name} {}", entry(figures, round.entries[0].1));
        let entries: Vec<String> = round.entries.iter().map(entry).collect();
        reasons.push(format!("{depth}{}.", entries.join("; ")));
    }
    if fixed_rate.is_none() {
        reasons.extend(enough_depth(rounds));
    }
    let ran = |name: &str| rounds.iter().any(|round| round.entries.iter().any(|(n, _)| *n == name));
    let mut absent: Vec<&str> = Vec::new();
    for (name, entry) in &group.entries {
        if !entry.measurement.workload.is_null() && !ran(name) && !absent.contains(&&name[..]) {
            absent.push(name);
        }
    }
    if !absent.is_empty() {
        reasons.push(format!("Nothing was measured of {}.", list(&absent)));
    }
    let mut title = group.title.clone();
    if !varies {
        title += &format!(", depth {}", rounds[0].depth);
    }
    Some(Conclusion { title, choice: choice(rounds, fixed_rate), reasons })
}

/// The figures of one configuration, with their ratios to the fastest.
fn entry(figures: &Figures, first: &Figures) -> String {
    let compared = |own: &Spread, to: &Spread| match own.compare(to) {
        _ if std::ptr::eq(figures, first) => String::new(),
        Comparison::Equal => " (equal)".to_owned(),
        Comparison::Undecided => " (undecided)".to_owned(),
        Comparison::Smaller | Comparison::Greater => {
            format!(" ({})", ratio(own.median, to.median))
        }
    };
    let spread = figures.ops.percent().map(|percent| format!(" {percent}")).unwrap_or_default();
    let p99 = figures.percentile(99.0).map(|p99| format!(", p99 {}", nanoseconds(p99)));
    format!(
        "{} ops/s{spread}{} at {} CPU µs/op{}{}",
        rate(figures.ops.median),
        compared(&figures.ops, &first.ops),
        significant(figures.cpu_us.median),
        compared(&figures.cpu_us, &first.cpu_us),
        p99.unwrap_or_default()
    )
}

/// The fastest and the cheapest. Where they differ, the choice is the reader's.
fn choice(rounds: &[Round], fixed_rate: Option<f64>) -> String {
    let compared: Vec<&Round> = rounds.iter().filter(|round| round.entries.len() > 1).collect();
    if compared.is_empty() {
        let mut names: Vec<&str> = rounds.iter().map(|round| round.entries[0].0).collect();
        names.dedup();
        return format!("Only {} was measured, so there is nothing to compare.", list(&names));
    }
    if let Some(rate) = fixed_rate {
        return keeps_rate(&compared, rate);
    }
    let (mut fastest, mut cheapest) = (Vec::new(), Vec::new());
    let (mut are_same, mut are_equal) = (true, true);
    for round in compared {
        let (fast, cheap) = (round.fastest(), round.cheapest());
        // The fastest one may cost as much as others.
        let is_cheap =
            !cheap.is_undecided && fast.names.len() == 1 && cheap.names.contains(&fast.names[0]);
        are_same &= fast == cheap || is_cheap;
        are_equal &= !fast.is_undecided && fast.names.len() == round.entries.len();
        fastest.push((round.depth, fast));
        cheapest.push((round.depth, cheap));
    }
    let (fastest, cheapest) = (places(&fastest), places(&cheapest));
    if !are_same {
        format!("Fastest: {fastest}. Least CPU time an operation: {cheapest}.")
    } else if are_equal {
        format!("The runs show no difference: {fastest}.")
    } else {
        format!("Fastest and least CPU time an operation: {fastest}.")
    }
}

/// The cheapest of those that keep a fixed rate, and those that do not keep it.
fn keeps_rate(rounds: &[&Round], asked: f64) -> String {
    let keeps = |figures: &Figures| figures.ops.median >= asked * KEPT;
    let (mut kept, mut slow) = (Vec::new(), Vec::new());
    for round in rounds {
        let (fast, behind): (Vec<Entry>, Vec<Entry>) =
            round.entries.iter().partition(|(_, figures)| keeps(figures));
        if !fast.is_empty() {
            kept.push((round.depth, cheapest(&fast)));
        }
        slow.extend(behind.into_iter().map(|(name, _)| name));
    }
    slow.dedup();
    let asked = format!("the rate of {} requests a second", rate(asked));
    let mut text = if kept.is_empty() {
        format!("Nothing keeps {asked}.")
    } else {
        format!("Keeps {asked} at the least CPU time an operation: {}.", places(&kept))
    };
    if !slow.is_empty() {
        text += &format!(" {} fell behind the rate.", list(&slow));
    }
    text
}

/// `kaio at depth 1; uring at depth 32 and 128`.
fn places(picks: &[(u32, Best)]) -> String {
    let mut depths_of: Vec<(&Best, Vec<String>)> = Vec::new();
    for (depth, pick) in picks {
        match depths_of.iter_mut().find(|(known, _)| *known == pick) {
            Some((_, depths)) => depths.push(depth.to_string()),
            None => depths_of.push((pick, vec![depth.to_string()])),
        }
    }
    if let [(pick, depths)] = &depths_of[..] {
        let all = if depths.len() > 1 { " at every depth measured" } else { "" };
        return pick.text() + all;
    }
    let place = |(pick, depths): &(&Best, Vec<String>)| {
        format!("{} at depth {}", pick.text(), list(depths))
    };
    depths_of.iter().map(place).collect::<Vec<_>>().join("; ")
}

/// The depth beyond which the fastest configuration gains nothing.
fn enough_depth(rounds: &[Round]) -> Option<String> {
    let all = rounds.iter().map(|round| &round.entries[0]);
    let (name, top) = all.max_by(|(_, a), (_, b)| a.ops.median.total_cmp(&b.ops.median))?;
    let mut points: Vec<(u32, &Figures)> = Vec::new();
    for round in rounds {
        let entry = round.entries.iter().find(|(known, _)| known == name);
        points.extend(entry.map(|(_, figures)| (round.depth, *figures)));
    }
    let [.., (before, shallower), (deepest, _)] = &points[..] else { return None };
    let is_less = |figures: &Figures| figures.ops.compare(&top.ops) == Comparison::Smaller;
    let (enough, figures) = points.iter().find(|(_, figures)| !is_less(figures))?;
    if enough == deepest {
        return Some(format!(
            "{name} still gains at depth {deepest}, the deepest measured: {} the ops/s of depth \
             {before}.",
            ratio(top.ops.median, shallower.ops.median)
        ));
    }
    // Where the runs do not show which depth is faster, nothing is said.
    (figures.ops.compare(&top.ops) == Comparison::Equal)
        .then(|| format!("Depth {enough} is enough for {name}: more depth adds no ops/s."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples::{self, measurement, workload};
    use crate::bench::report::summary;
    use crate::bench::result::{Measurement, Report};
    use crate::bench::workload::Backend;

    /// Measurements at one depth with these operations a second and costs.
    fn duel(backends: &[(Backend, f64, f64)], spread: f64) -> Report {
        let measurements: Vec<Measurement> = backends
            .iter()
            .map(|&(backend, ops, cpu)| measurement(workload(backend, 32), ops, cpu, 3, spread))
            .collect();
        samples::report(measurements)
    }

    fn render(report: &Report) -> String {
        summary::render(&Model::new(report))
    }

    /// The summary as one line, so that it does not matter where lines are broken.
    fn flat(report: &Report) -> String {
        render(report).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_small_difference_is_a_tie() {
        let text =
            flat(&duel(&[(Backend::Uring, 100_000.0, 5.0), (Backend::Kaio, 101_000.0, 5.0)], 0.02));
        assert!(text.starts_with("The runs show no difference: kaio and uring (equal)."), "{text}");
        assert!(text.contains("uring 100 k ops/s ±2.0 % (equal)"), "{text}");
        assert!(!text.contains("Fastest"), "{text}");
    }

    #[test]
    fn a_difference_beyond_the_spread_is_shown_as_a_ratio() {
        let text =
            flat(&duel(&[(Backend::Uring, 150_000.0, 4.0), (Backend::Kaio, 100_000.0, 8.0)], 0.02));
        assert!(text.starts_with("Fastest and least CPU time an operation: uring."), "{text}");
        assert!(
            text.contains("kaio 100 k ops/s ±2.0 % (0.67×) at 8.00 CPU µs/op (2.00×)"),
            "{text}"
        );
        assert!(!text.contains("(equal)"), "{text}");
    }

    #[test]
    fn runs_that_overlap_are_undecided() {
        let text =
            flat(&duel(&[(Backend::Uring, 100_000.0, 5.0), (Backend::Kaio, 103_000.0, 5.0)], 0.02));
        let headline = "Fastest: undecided between kaio and uring. Least CPU time an operation: \
                        kaio and uring (equal).";
        assert!(text.starts_with(headline), "{text}");
        assert!(text.contains("uring 100 k ops/s ±2.0 % (undecided)"), "{text}");
    }

    #[test]
    fn runs_that_spread_by_more_than_a_fifth_are_undecided() {
        let of = |uring| duel(&[(Backend::Uring, uring, 4.0), (Backend::Kaio, 1e5, 4.0)], 0.25);
        let text = flat(&of(180_000.0));
        assert!(text.starts_with("Fastest: undecided between uring and kaio."), "{text}");
        assert!(text.contains("kaio 100 k ops/s ±25.0 % (undecided)"), "{text}");
        assert!(text.contains("uring; kaio: the runs lie further than a fifth"), "{text}");
        // Not even the runs of ten times as much.
        assert!(flat(&of(1e6)).contains("least CPU time an operation: uring."));
    }

    /// Whatever the table shows, the configuration that the headline calls the fastest is in its
    /// first place, and no other is equal.
    #[test]
    fn the_fastest_is_the_first_of_the_table() {
        for (uring, kaio) in [(100.0, 99.0), (99.0, 100.0), (100.0, 80.0), (80.0, 100.0)] {
            for spread in [0.0, 0.02, 0.3] {
                let report =
                    duel(&[(Backend::Uring, uring, 8.0), (Backend::Kaio, kaio, 4.0)], spread);
                let summary = Model::new(&report).summary;
                let fastest = if uring > kaio { "uring" } else { "kaio" };
                let other = if uring > kaio { "kaio" } else { "uring" };
                let headline = &summary.headline;
                let names = |name: &str| {
                    let both = "Fastest and least CPU time an operation";
                    headline.contains(&format!("Fastest: {name}."))
                        || headline.contains(&format!("{both}: {name}."))
                };
                assert!(!names(other), "{headline}");
                let is_decided = names(fastest);
                let others = summary.groups[0].reasons[0].split_once("; ").unwrap().1;
                let has_ratio = others.split_once(" at ").unwrap().0.contains('×');
                assert_eq!(is_decided, has_ratio, "{headline} {others}");
            }
        }
    }

    #[test]
    fn of_equally_fast_ones_the_cheaper_is_named() {
        let text =
            flat(&duel(&[(Backend::Uring, 100_000.0, 8.0), (Backend::Kaio, 100_100.0, 4.0)], 0.02));
        let headline = "Fastest: kaio and uring (equal). Least CPU time an operation: kaio.";
        assert!(text.starts_with(headline), "{text}");
        assert!(
            text.contains("uring 100 k ops/s ±2.0 % (equal) at 8.00 CPU µs/op (2.00×)"),
            "{text}"
        );
    }

    #[test]
    fn the_fastest_and_the_cheapest_may_differ() {
        let text =
            flat(&duel(&[(Backend::Uring, 150_000.0, 8.0), (Backend::Kaio, 100_000.0, 4.0)], 0.02));
        assert!(text.starts_with("Fastest: uring. Least CPU time an operation: kaio."), "{text}");
        assert!(
            text.contains("kaio 100 k ops/s ±2.0 % (0.67×) at 4.00 CPU µs/op (0.50×)"),
            "{text}"
        );
    }

    #[test]
    fn a_single_run_proves_little() {
        let mut report =
            duel(&[(Backend::Uring, 100_000.0, 5.0), (Backend::Kaio, 107_000.0, 5.0)], 0.0);
        for measured in &mut report.measurements {
            measured.runs.truncate(1);
        }
        let text = flat(&report);
        assert!(text.contains("undecided between kaio and uring"), "{text}");
        assert!(text.contains("differences below 10 % are undecided"), "{text}");
        assert!(!text.contains('±'), "{text}");
    }

    #[test]
    fn each_depth_has_its_own_conclusion() {
        let mut measurements = Vec::new();
        for (depth, uring, kaio) in
            [(1, 10_000.0, 12_000.0), (32, 200_000.0, 150_000.0), (128, 201_000.0, 150_000.0)]
        {
            measurements.push(measurement(workload(Backend::Uring, depth), uring, 4.0, 3, 0.01));
            measurements.push(measurement(workload(Backend::Kaio, depth), kaio, 4.0, 3, 0.01));
        }
        let text = flat(&samples::report(measurements));
        assert!(
            text.contains(
                "Fastest and least CPU time an operation: kaio at depth 1; uring at depth 32 and \
                 128."
            ),
            "{text}"
        );
        assert!(text.contains("Depth 32 is enough for uring: more depth adds no ops/s"), "{text}");
    }

    #[test]
    fn several_workloads_are_counted() {
        let text = flat(&samples::block_sizes());
        assert!(text.starts_with("The fastest of 6 comparisons (one for each"), "{text}");
        assert!(text.contains("randread, 64 KiB, direct, 1 job, depth 32 "), "{text}");
    }

    #[test]
    fn one_backend_is_not_compared() {
        let text = flat(&samples::one_measurement());
        assert!(
            text.starts_with("Only uring was measured, so there is nothing to compare."),
            "{text}"
        );
        assert!(!text.contains("Fastest"), "{text}");
    }

    #[test]
    fn a_report_without_measurements_says_so() {
        let mut report = samples::depths();
        report.measurements.clear();
        assert!(flat(&report).starts_with("Nothing was measured"));
        let mut harness = samples::depths();
        harness.measurements.retain(|measured| measured.workload.backend == Backend::Null);
        assert!(flat(&harness).starts_with("No backend was measured, only the harness."));
    }

    #[test]
    fn refusals_have_their_fix() {
        let text = flat(&samples::odd()[3]);
        assert!(text.contains("Nothing was measured of kaio."), "{text}");
        assert!(text.contains("kaio: io_setup: EAGAIN; fix: raise fs.aio-max-nr"), "{text}");
        assert_eq!(text.matches("EAGAIN").count(), 1, "{text}");
    }

    #[test]
    fn the_null_rows_show_what_the_harness_costs() {
        let text = flat(&samples::depths());
        assert!(text.contains("The harness itself costs 0.10"), "{text}");
        assert!(!text.contains("it limits the figures"), "{text}");
        let slow = duel(&[(Backend::Uring, 100_000.0, 5.0), (Backend::Null, 150_000.0, 3.0)], 0.01);
        assert!(flat(&slow).contains("it limits the figures"));
    }

    #[test]
    fn a_fixed_rate_is_judged_by_cost() {
        let mut report = duel(
            &[
                (Backend::Uring, 20_000.0, 9.0),
                (Backend::Kaio, 20_000.0, 5.0),
                (Backend::Threads, 12_000.0, 20.0),
            ],
            0.0,
        );
        for measured in &mut report.measurements {
            measured.workload.rate = Some(crate::bench::workload::Rate::Requests(20_000));
        }
        let text = flat(&report);
        assert!(
            text.starts_with(
                "Keeps the rate of 20.0 k requests a second at the least CPU time an operation: \
                 kaio. threads fell behind the rate."
            ),
            "{text}"
        );
        assert!(text.contains("threads 12.0 k ops/s ±0.0 % (0.60×)"), "{text}");
        assert!(
            text.contains("kaio 20.0 k ops/s ±0.0 % (equal) at 5.00 CPU µs/op (0.56×)"),
            "{text}"
        );
    }

    #[test]
    fn warnings_depend_on_the_machine() {
        let mut report = samples::depths();
        report.machine.device = "sda, scheduler mq-deadline, nr_requests 64".into();
        report.machine.file_system = "tmpfs".into();
        for measured in &mut report.measurements {
            for run in &mut measured.runs {
                run.usage.io_wq_workers = 3;
                run.usage.io_wq = run.usage.system / 2;
            }
        }
        let text = flat(&report);
        for said in [
            "The mq-deadline scheduler",
            "holds 64 requests",
            "tmpfs has no device",
            "3 worker threads",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let plain = flat(&samples::depths());
        assert!(!plain.contains("scheduler") && !plain.contains("Warnings"), "{plain}");
    }

    #[test]
    fn an_interrupted_bench_says_how_far_it_came() {
        let mut report = samples::depths();
        report.interrupted = Some(Interrupted { finished: 35, planned: 36 });
        let text = flat(&report);
        assert!(text.starts_with("Interrupted: 35 of 36 runs finished. Fastest: "), "{text}");
    }

    #[test]
    fn a_busy_machine_is_warned_about() {
        let mut report = samples::depths();
        let set = |measured: &mut [Measurement], processors| {
            for run in measured.iter_mut().flat_map(|measured| &mut measured.runs) {
                run.other_processors = Some(processors);
            }
        };
        set(&mut report.measurements, 0.75);
        assert!(!flat(&report).contains("busy"), "less than a tenth of 8 processors");
        set(&mut report.measurements[4..5], 1.5);
        let text = flat(&report);
        let warning = "The machine was busy: other programs used up to 1.50 of 8 processors during \
                       kaio at depth 32.";
        assert!(text.contains(warning), "{text}");
        set(&mut report.measurements, 1.0);
        assert!(flat(&report).contains("1.00 of 8 processors during all rows."));
    }
}
