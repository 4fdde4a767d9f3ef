//! The conclusions of a bench in words. They claim no more than the runs show: ties are reported as
//! ties, what the runs do not order as undecided, and nothing is said about what was not measured.

use super::configuration::Setting;
use super::model::{Figures, Group, Model, gather};
use super::warnings::{reading, warnings};
use crate::bench::result::Interrupted;
use crate::bench::workload::{Rate, Workload};
use ringway_core::refusal::bytes_text;
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
        let mut best: Vec<Best> = Vec::new();
        let mut conclusions = Vec::new();
        for group in &groups {
            let rounds = rounds(group);
            let compared = rounds.iter().filter(|round| round.entries.len() > 1);
            best.extend(compared.map(|round| fastest(&round.entries)));
            conclusions.extend(conclude(model, group, &rounds));
        }
        let mut headline = match &conclusions[..] {
            [] if model.figures().next().is_some() => {
                "No backend was measured, only the harness.".to_owned()
            }
            [] => "Nothing was measured: no configuration completed an operation.".to_owned(),
            [only] => only.choice.clone(),
            _ if best.is_empty() => "Only one configuration was measured.".to_owned(),
            _ => wins(&best),
        };
        if let Some(Interrupted { finished, planned }) = model.report.interrupted {
            headline = format!("Interrupted: {finished} of {planned} runs finished. {headline}");
        }
        Self {
            headline,
            groups: conclusions,
            warnings: warnings(model),
            reading: reading(model, !best.is_empty()),
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

/// Those with the most operations a second.
fn fastest<'a>(entries: &[Entry<'a>]) -> Best<'a> {
    Best::new(entries, |figures| figures.ops, Comparison::Smaller)
}

/// Those with the least CPU time an operation.
fn cheapest<'a>(entries: &[Entry<'a>]) -> Best<'a> {
    Best::new(entries, |figures| figures.cpu_us, Comparison::Greater)
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
    fn new(entries: &[Entry<'a>], figure: fn(&Figures) -> Spread, worse: Comparison) -> Self {
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
    let decided = fastest.iter().filter(|best| best.names.len() == 1);
    let wins = gather(decided.map(|best| (best.names[0], ())));
    let mut wins: Vec<_> = wins.into_iter().map(|(name, all)| (name, all.len())).collect();
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
    let measured = group.entries.iter().filter_map(|(name, entry)| {
        let figures = entry.figures.as_ref().filter(|figures| !figures.is_null())?;
        Some((entry.measurement.workload.depth, (name.as_str(), figures)))
    });
    let round = |(depth, mut entries): (_, Vec<Entry<'a>>)| {
        entries.sort_by(|(_, a), (_, b)| b.ops.median.total_cmp(&a.ops.median));
        Round { depth, entries }
    };
    let mut rounds: Vec<Round> = gather(measured).into_iter().map(round).collect();
    rounds.sort_by_key(|round| round.depth);
    rounds
}

/// `None` where nothing was measured.
fn conclude(model: &Model, group: &Group, rounds: &[Round]) -> Option<Conclusion> {
    let workload = &rounds.first()?.entries[0].1.measurement.workload;
    let varies = Setting::Depth.varies(model.report);
    let mut reasons = Vec::new();
    for round in rounds {
        let depth = if varies { format!("Depth {}: ", round.depth) } else { String::new() };
        let entry =
            |(name, figures): &Entry| format!("{name} {}", entry(figures, round.entries[0].1));
        let entries: Vec<String> = round.entries.iter().map(entry).collect();
        reasons.push(format!("{depth}{}.", entries.join("; ")));
    }
    if workload.rate.is_none() {
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
    Some(Conclusion { title, choice: choice(workload, rounds), reasons })
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
fn choice(workload: &Workload, rounds: &[Round]) -> String {
    let compared: Vec<&Round> = rounds.iter().filter(|round| round.entries.len() > 1).collect();
    if compared.is_empty() {
        let mut names: Vec<&str> = rounds.iter().map(|round| round.entries[0].0).collect();
        names.dedup();
        return format!("Only {} was measured, so there is nothing to compare.", list(&names));
    }
    if let Some(rate) = workload.rate {
        return keeps_rate(&compared, rate, workload.jobs);
    }
    let (mut speed, mut cost) = (Vec::new(), Vec::new());
    let (mut are_same, mut are_equal) = (true, true);
    for round in compared {
        let (fast, cheap) = (fastest(&round.entries), cheapest(&round.entries));
        // The fastest one may cost as much as others.
        let is_cheap =
            !cheap.is_undecided && fast.names.len() == 1 && cheap.names.contains(&fast.names[0]);
        are_same &= fast == cheap || is_cheap;
        are_equal &= !fast.is_undecided && fast.names.len() == round.entries.len();
        speed.push((fast, round.depth.to_string()));
        cost.push((cheap, round.depth.to_string()));
    }
    let (fastest, cheapest) = (places(speed), places(cost));
    if !are_same {
        format!("Fastest: {fastest}. Least CPU time an operation: {cheapest}.")
    } else if are_equal {
        format!("The runs show no difference: {fastest}.")
    } else {
        format!("Fastest and least CPU time an operation: {fastest}.")
    }
}

/// The cheapest of those that keep a fixed rate of each job, and those that do not keep it. A rate
/// in bytes is compared with bytes: requests may have different sizes.
fn keeps_rate(rounds: &[&Round], of_job: Rate, jobs: u32) -> String {
    let (Rate::Requests(each) | Rate::Bytes(each)) = of_job;
    let asked = each as f64 * f64::from(jobs.max(1));
    let keeps = |figures: &Figures| match of_job {
        Rate::Requests(_) => figures.ops.median >= asked * KEPT,
        Rate::Bytes(_) => figures.run.per_second(figures.run.bytes()) >= asked * KEPT,
    };
    let (mut kept, mut slow) = (Vec::new(), Vec::new());
    for round in rounds {
        let (fast, behind): (Vec<Entry>, Vec<Entry>) =
            round.entries.iter().partition(|(_, figures)| keeps(figures));
        if !fast.is_empty() {
            kept.push((cheapest(&fast), round.depth.to_string()));
        }
        slow.extend(behind.into_iter().map(|(name, _)| name));
    }
    slow.dedup();
    let asked = match of_job {
        Rate::Requests(_) => format!("the rate of {} requests a second", rate(asked)),
        Rate::Bytes(_) => format!("the rate of {} a second", bytes_text(asked as u64)),
    };
    let mut text = if kept.is_empty() {
        format!("Nothing keeps {asked}.")
    } else {
        format!("Keeps {asked} at the least CPU time an operation: {}.", places(kept))
    };
    if !slow.is_empty() {
        text += &format!(" {} fell behind the rate.", list(&slow));
    }
    text
}

/// `kaio at depth 1; uring at depth 32 and 128`, from the best at each depth.
fn places(picks: Vec<(Best, String)>) -> String {
    let picks = gather(picks);
    if let [(pick, depths)] = &picks[..] {
        let all = if depths.len() > 1 { " at every depth measured" } else { "" };
        return pick.text() + all;
    }
    let place =
        |(pick, depths): &(Best, Vec<String>)| format!("{} at depth {}", pick.text(), list(depths));
    picks.iter().map(place).collect::<Vec<_>>().join("; ")
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
