//! The answer in plain words: which way of doing I/O suits this machine, at which depth, and what
//! it costs. It claims no more than the runs show: where they cannot tell two backends apart it
//! says that they are equal, and it speaks only of what was measured.

use super::figures::{Contender, Figures, Group, groups};
use super::words::{self, Setting, digits, list, rate, ratio};
use crate::bench::result::{Report, Run};
use crate::bench::workload::Backend;

/// Where a line of text ends.
const COLUMNS: usize = 100;

/// A fixed rate counts as kept from this share of it on.
const KEPT: f64 = 0.98;

/// From this share of the cheapest backend's cost on, the harness hides a part of the differences.
const HARNESS_PERCENT: f64 = 5.0;

/// The verdict before it is written down.
pub(super) struct Verdict {
    /// The shortest answer.
    pub summary: String,
    /// For each question (a workload at several depths) its answer.
    pub groups: Vec<Answer>,
    /// How the words are meant, and what the harness costs.
    pub reading: Vec<String>,
    /// What to know before believing any of it, each with its fix where there is one.
    pub warnings: Vec<String>,
}

/// What was found out about one workload.
pub(super) struct Answer {
    /// The workload.
    pub title: String,
    /// Which backend.
    pub choice: String,
    /// Why.
    pub reasons: Vec<String>,
}

/// Which backend suits this machine, in plain words.
pub fn render(report: &Report) -> String {
    let verdict = Verdict::new(report);
    let mut out = String::new();
    wrap(&mut out, "", &verdict.summary);
    for answer in &verdict.groups {
        out.push('\n');
        wrap(&mut out, "", &answer.title);
        // With one workload the summary has said it.
        if answer.choice != verdict.summary {
            wrap(&mut out, "  ", &answer.choice);
        }
        for reason in &answer.reasons {
            wrap(&mut out, "  - ", reason);
        }
    }
    for (title, lines) in [("Warnings", &verdict.warnings), ("How to read this", &verdict.reading)]
    {
        if !lines.is_empty() {
            out.push('\n');
            wrap(&mut out, "", title);
            for line in lines {
                wrap(&mut out, "  - ", line);
            }
        }
    }
    out
}

/// The contenders at one depth.
struct Round<'a> {
    depth: u32,
    /// The fastest first.
    entries: Vec<(&'a str, Figures<'a>)>,
}

impl<'a> Round<'a> {
    /// The fastest and those equal to it.
    fn fastest(&self) -> Vec<&(&'a str, Figures<'a>)> {
        self.entries
            .iter()
            .filter(|(_, figures)| figures.ops.equals(&self.entries[0].1.ops))
            .collect()
    }

    /// Those that cost the least, whatever they do in a second.
    fn thrifty(&self) -> Vec<&(&'a str, Figures<'a>)> {
        cheapest(&self.entries.iter().collect::<Vec<_>>())
    }

    /// Of the fastest, those that cost the least, or what cannot be told from it.
    fn suited(&self) -> Vec<&(&'a str, Figures<'a>)> {
        cheapest(&self.fastest())
    }
}

/// Those with the least processor time an operation, the very least first.
fn cheapest<'a, 'b>(of: &[&'b (&'a str, Figures<'a>)]) -> Vec<&'b (&'a str, Figures<'a>)> {
    let mut order = of.to_vec();
    order.sort_by(|a, b| a.1.cpu_us.value.total_cmp(&b.1.cpu_us.value));
    let least = order.first().map(|(_, figures)| figures.cpu_us);
    order.retain(|(_, figures)| least.is_some_and(|least| figures.cpu_us.equals(&least)));
    order
}

impl Verdict {
    pub(super) fn new(report: &Report) -> Self {
        let groups = groups(report, Setting::Depth);
        let mut answers = Vec::new();
        // In how many rounds each was the fastest or equal to it.
        let mut wins: Vec<(String, usize)> = Vec::new();
        let mut contests = 0;
        for group in &groups {
            let rounds = rounds(group);
            if rounds.is_empty() {
                continue;
            }
            for round in rounds.iter().filter(|round| round.entries.len() > 1) {
                contests += 1;
                for (label, _) in round.fastest() {
                    match wins.iter_mut().find(|(known, _)| known == label) {
                        Some((_, count)) => *count += 1,
                        None => wins.push((label.to_string(), 1)),
                    }
                }
            }
            answers.push(answer(report, group, &rounds));
        }
        wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));

        let summary = match &answers[..] {
            [] => nothing(report),
            [only] => only.choice.clone(),
            _ if contests == 0 => {
                "One backend was measured, so there is nothing to compare it with.".to_owned()
            }
            _ => {
                let wins: Vec<String> =
                    wins.iter().map(|(label, count)| format!("{label} in {count}")).collect();
                format!(
                    "Of {contests} comparisons (one for each workload and depth), the fastest or equal to it: {}.",
                    list(&wins)
                )
            }
        };
        Self {
            summary,
            groups: answers,
            reading: reading(report, contests > 0),
            warnings: warnings(report),
        }
    }
}

/// Why there is no answer.
fn nothing(report: &Report) -> String {
    if report.cells.is_empty() {
        "Nothing was measured.".to_owned()
    } else if report.cells.iter().any(|cell| Figures::new(cell).is_some()) {
        "No backend was measured, only the harness.".to_owned()
    } else {
        "Nothing was measured: none of the cells completed an operation.".to_owned()
    }
}

/// The depths of a group at which something was measured, in order.
fn rounds<'a>(group: &'a Group<'a>) -> Vec<Round<'a>> {
    let real: Vec<&Contender> =
        group.contenders.iter().filter(|contender| !contender.is_null()).collect();
    let mut depths: Vec<u32> = real
        .iter()
        .flat_map(|contender| &contender.cells)
        .map(|cell| cell.workload.depth)
        .collect();
    depths.sort_unstable();
    depths.dedup();
    let round = |depth| {
        let mut entries: Vec<(&str, Figures)> = real
            .iter()
            .filter_map(|contender| {
                let cell = contender.cells.iter().find(|cell| cell.workload.depth == depth)?;
                Some((contender.label.as_str(), Figures::new(cell)?))
            })
            .collect();
        entries.sort_by(|a, b| b.1.ops.value.total_cmp(&a.1.ops.value));
        Round { depth, entries }
    };
    depths.into_iter().map(round).filter(|round| !round.entries.is_empty()).collect()
}

fn answer(report: &Report, group: &Group, rounds: &[Round]) -> Answer {
    let fixed_rate = group.contenders.iter().flat_map(|c| &c.cells).find_map(|cell| {
        let of = &cell.workload;
        of.rate.map(|rate| rate.requests(of.block_size) * f64::from(of.jobs.max(1)))
    });
    let mut reasons: Vec<String> = rounds
        .iter()
        .map(|round| match fixed_rate {
            Some(asked) => at_a_rate(round, asked),
            None => at_full_speed(round),
        })
        .collect();
    if fixed_rate.is_none() {
        reasons.extend(cheaper_elsewhere(rounds));
        reasons.extend(enough_depth(group, rounds));
    }
    let choice = choice(rounds, fixed_rate);
    let refused: Vec<&str> = group
        .contenders
        .iter()
        .filter(|contender| {
            !contender.is_null() && contender.cells.iter().all(|cell| Figures::new(cell).is_none())
        })
        .map(|contender| contender.label.as_str())
        .collect();
    if !refused.is_empty() {
        let refused: Vec<String> = refused.iter().map(|label| label.to_string()).collect();
        reasons.push(format!("Not compared, because nothing was measured: {}.", list(&refused)));
    }
    if !Setting::Depth.varies(report) {
        // One depth is said with the workload, not in front of every sentence.
        let depth = format!("Depth {}: ", rounds[0].depth);
        for reason in &mut reasons {
            if let Some(rest) = reason.strip_prefix(&depth) {
                *reason = rest.to_owned();
            }
        }
        return Answer {
            title: format!("{}, depth {}", group.title, rounds[0].depth),
            choice,
            reasons,
        };
    }
    Answer { title: group.title.clone(), choice, reasons }
}

/// Which backend at which depth. Where the fastest is not the cheapest, which of the two matters
/// is the reader's to say.
fn choice(rounds: &[Round], fixed_rate: Option<f64>) -> String {
    let compared: Vec<&Round> = rounds.iter().filter(|round| round.entries.len() > 1).collect();
    if compared.is_empty() {
        let mut labels: Vec<String> =
            rounds.iter().map(|round| round.entries[0].0.to_owned()).collect();
        labels.dedup();
        return format!(
            "Only {} was measured, so there is nothing to compare it with.",
            list(&labels)
        );
    }
    let names = |of: Vec<&(&str, Figures)>| {
        of.iter().map(|(label, _)| label.to_string()).collect::<Vec<_>>()
    };
    if let Some(asked) = fixed_rate {
        let pick = |round: &&Round| {
            let kept: Vec<_> =
                round.entries.iter().filter(|(_, f)| f.ops.value >= asked * KEPT).collect();
            (round.depth, names(if kept.is_empty() { round.suited() } else { cheapest(&kept) }))
        };
        let picks = place(&compared.iter().map(pick).collect::<Vec<_>>());
        return format!("Keeps the rate at the least CPU time an operation: {picks}.");
    }
    let fastest: Vec<(u32, Vec<String>)> =
        compared.iter().map(|round| (round.depth, names(round.suited()))).collect();
    let least: Vec<(u32, Vec<String>)> =
        compared.iter().map(|round| (round.depth, names(round.thrifty()))).collect();

    let no_difference =
        compared.iter().zip(&fastest).all(|(round, (_, pick))| pick.len() == round.entries.len());
    let both = fastest
        .iter()
        .zip(&least)
        .all(|((_, fast), (_, least))| fast.iter().all(|label| least.contains(label)));
    if no_difference {
        format!("No difference that these runs can show: {}.", place(&fastest))
    } else if both {
        format!("Fastest and least CPU time an operation: {}.", place(&fastest))
    } else {
        format!("Fastest: {}. Least CPU time an operation: {}.", place(&fastest), place(&least))
    }
}

/// `kaio at depth 1; uring at depth 32 and 128`: who, and where unless it is everywhere.
fn place(picks: &[(u32, Vec<String>)]) -> String {
    let mut everywhere = picks[0].1.clone();
    everywhere.retain(|label| picks.iter().all(|(_, pick)| pick.contains(label)));
    if !everywhere.is_empty() {
        let all = if picks.len() > 1 { " at every depth measured" } else { "" };
        let equal = if everywhere.len() > 1 { " (equal)" } else { "" };
        return format!("{}{equal}{all}", list(&everywhere));
    }
    // Depths with the same answer are said together.
    let mut by_pick: Vec<(String, Vec<String>)> = Vec::new();
    for (depth, pick) in picks {
        let equal = if pick.len() > 1 { " (equal)" } else { "" };
        let who = format!("{}{equal}", list(pick));
        match by_pick.iter_mut().find(|(known, _)| *known == who) {
            Some((_, depths)) => depths.push(depth.to_string()),
            None => by_pick.push((who, vec![depth.to_string()])),
        }
    }
    let said: Vec<String> =
        by_pick.iter().map(|(who, depths)| format!("{who} at depth {}", list(depths))).collect();
    said.join("; ")
}

/// Operations a second with the spread.
fn speed(of: &Figures) -> String {
    let spread = of.ops.percent().map(|percent| format!(" {percent}")).unwrap_or_default();
    format!("{} ops/s{spread}", rate(of.ops.value))
}

fn cost(of: &Figures) -> String {
    format!("{} CPU µs an operation", digits(of.cpu_us.value))
}

/// By how much one is ahead of others, in operations a second and in cost.
fn ahead(of: &Figures, others: &[&(&str, Figures)]) -> String {
    let mut said = Vec::new();
    for (at, (label, other)) in others.iter().enumerate() {
        // The first one names the units.
        let (unit, each) =
            if at == 0 { (" the ops/s", " the CPU time an operation") } else { ("", "") };
        let speed = ratio(of.ops.value, other.ops.value);
        let cost = if of.cpu_us.equals(&other.cpu_us) {
            "equal CPU time".to_owned()
        } else {
            format!("{}{each}", ratio(of.cpu_us.value, other.cpu_us.value))
        };
        said.push(format!("{speed}{unit} of {label} at {cost}"));
    }
    said.join(", ")
}

fn p99(of: &Figures) -> String {
    of.percentile(99.0)
        .map(|ns| format!(", p99 {}", words::nanoseconds(ns as f64)))
        .unwrap_or_default()
}

/// Who is the fastest at a depth, and by how much.
fn at_full_speed(round: &Round) -> String {
    let (label, first) = &round.entries[0];
    let depth = format!("Depth {}: ", round.depth);
    let own = format!("{}, {}{}", speed(first), cost(first), p99(first));
    if round.entries.len() == 1 {
        return format!("{depth}{label}: {own}.");
    }
    let fastest = round.fastest();
    let behind: Vec<_> =
        round.entries.iter().filter(|(_, figures)| !figures.ops.equals(&first.ops)).collect();
    if fastest.len() == 1 {
        return format!("{depth}{label} is the fastest: {own}; {}.", ahead(first, &behind));
    }
    let names: Vec<String> = fastest.iter().map(|(label, _)| label.to_string()).collect();
    let mut said = format!("{depth}{} are equal in ops/s: {}", list(&names), speed(first));
    let suited = round.suited();
    if suited.len() == fastest.len() {
        said.push_str(&format!("; and in cost: {}", cost(&suited[0].1)));
    } else {
        let dearer: Vec<String> = fastest
            .iter()
            .filter(|(label, _)| suited.iter().all(|(suited, _)| suited != label))
            .map(|(label, figures)| format!("{} for {label}", digits(figures.cpu_us.value)))
            .collect();
        let names: Vec<String> = suited.iter().map(|(label, _)| label.to_string()).collect();
        let verb = if names.len() == 1 { "costs" } else { "cost" };
        said.push_str(&format!(
            "; {} {verb} less: {} against {}",
            list(&names),
            cost(&suited[0].1),
            list(&dearer)
        ));
    }
    if !behind.is_empty() {
        said.push_str(&format!("; {label} has {}", ahead(first, &behind)));
    }
    said + "."
}

/// Who keeps a fixed rate at a depth, and at what cost.
fn at_a_rate(round: &Round, asked: f64) -> String {
    let (kept, behind): (Vec<_>, Vec<_>) =
        round.entries.iter().partition(|(_, figures)| figures.ops.value >= asked * KEPT);
    let mut said = Vec::new();
    if !kept.is_empty() {
        let names: Vec<String> = kept.iter().map(|(label, _)| label.to_string()).collect();
        said.push(format!("{} kept the rate of {} requests a second", list(&names), rate(asked)));
    }
    if !behind.is_empty() {
        let names: Vec<String> =
            behind.iter().map(|(label, figures)| format!("{label} ({})", speed(figures))).collect();
        said.push(format!(
            "{} fell behind the {} requests a second asked for",
            list(&names),
            rate(asked)
        ));
    }
    let mut order: Vec<_> = round.entries.iter().collect();
    order.sort_by(|a, b| a.1.cpu_us.value.total_cmp(&b.1.cpu_us.value));
    let equal = order.len() > 1 && cheapest(&order).len() == order.len();
    let costs: Vec<String> = order
        .iter()
        .map(|(label, figures)| format!("{label} {}", digits(figures.cpu_us.value)))
        .collect();
    let note = if equal { " (equal)" } else { "" };
    said.push(format!("CPU µs an operation: {}{note}", costs.join(", ")));
    let latencies: Vec<String> = round
        .entries
        .iter()
        .filter_map(|(label, figures)| {
            Some(format!("{label} {}", words::nanoseconds(figures.percentile(99.0)? as f64)))
        })
        .collect();
    if !latencies.is_empty() {
        said.push(format!("p99: {}", latencies.join(", ")));
    }
    format!("Depth {}: {}.", round.depth, said.join("; "))
}

/// Who costs less than those that are the fastest, and what is lost by taking it.
fn cheaper_elsewhere(rounds: &[Round]) -> Vec<String> {
    let mut by_pair: Vec<((&str, &str), Vec<String>)> = Vec::new();
    for round in rounds {
        let (fast, chosen) = round.suited()[0];
        let (thrifty, least) = round.thrifty()[0];
        if !least.cpu_us.below(&chosen.cpu_us) {
            continue;
        }
        let said = format!(
            "{} against {} CPU µs at {} the ops/s (depth {})",
            digits(least.cpu_us.value),
            digits(chosen.cpu_us.value),
            ratio(least.ops.value, chosen.ops.value),
            round.depth
        );
        match by_pair.iter_mut().find(|(pair, _)| *pair == (*thrifty, *fast)) {
            Some((_, depths)) => depths.push(said),
            None => by_pair.push(((thrifty, fast), vec![said])),
        }
    }
    by_pair
        .into_iter()
        .map(|((thrifty, fast), depths)| {
            format!("{thrifty} costs less an operation than the faster {fast}: {}.", list(&depths))
        })
        .collect()
}

/// The depth from which on more depth brings nothing to the fastest contender.
fn enough_depth(group: &Group, rounds: &[Round]) -> Option<String> {
    let top = rounds
        .iter()
        .map(|round| &round.entries[0])
        .max_by(|a, b| a.1.ops.value.total_cmp(&b.1.ops.value))?;
    let label = top.0;
    let contender = group.contenders.iter().find(|contender| contender.label == label)?;
    let mut points: Vec<(u32, Figures)> = contender
        .cells
        .iter()
        .filter_map(|cell| Some((cell.workload.depth, Figures::new(cell)?)))
        .collect();
    points.sort_by_key(|(depth, _)| *depth);
    let [.., before, (deepest, last)] = &points[..] else { return None };
    let (enough, there) = points.iter().find(|(_, figures)| figures.ops.equals(&top.1.ops))?;
    if enough == deepest {
        return Some(format!(
            "{label} still gains at depth {deepest}, the deepest measured: {} the ops/s of depth {}.",
            ratio(last.ops.value, before.1.ops.value),
            before.0
        ));
    }
    let latency = match (there.percentile(99.0), last.percentile(99.0)) {
        (Some(here), Some(deep)) => format!(
            "; p99 is {} there and {} at depth {deepest}",
            words::nanoseconds(here as f64),
            words::nanoseconds(deep as f64)
        ),
        _ => String::new(),
    };
    Some(format!("Depth {enough} is enough for {label}: more brings no more ops/s{latency}."))
}

/// How the words are meant, and what the harness costs.
fn reading(report: &Report, compared: bool) -> Vec<String> {
    let mut said = Vec::new();
    let figures: Vec<Figures> = report.cells.iter().filter_map(Figures::new).collect();
    if compared {
        let mut equal = "Equal means that the runs cannot tell them apart: they overlap, or the medians lie within \
                         half the range of the runs or within 2 %."
            .to_owned();
        if figures.iter().any(|figures| figures.ops.runs > 1) {
            equal.push_str(" ± is half the range, in percent of the median.");
        }
        said.push(equal);
        if figures.iter().any(|figures| figures.ops.runs == 1) {
            said.push(
                "A cell that was run once shows no spread: differences below 10 % from it count as equal. \
                 More runs would tell."
                    .to_owned(),
            );
        }
    }

    let null = || figures.iter().filter(|figures| figures.cell.workload.backend == Backend::Null);
    let costs = || null().map(|figures| figures.cpu_us.value);
    if let (Some(least), Some(most)) =
        (costs().min_by(f64::total_cmp), costs().max_by(f64::total_cmp))
    {
        let (from, to) = (digits(least), digits(most));
        let range = if from == to { from } else { format!("{from} to {to}") };
        let mut harness = format!(
            "The harness itself costs {range} CPU µs an operation (the null rows); it is in every figure."
        );
        // Of each null row its share in the cheapest of the rows that did the same.
        let share = |null: &Figures| {
            let same = figures
                .iter()
                .filter(|f| f.cell.workload.backend != Backend::Null && alike(f, null));
            let cheapest = same.map(|figures| figures.cpu_us.value).min_by(f64::total_cmp);
            cheapest.filter(|&cost| cost > 0.0).map(|cost| null.cpu_us.value / cost * 100.0)
        };
        if let Some(share) = null().filter_map(share).max_by(f64::total_cmp) {
            harness.push_str(&format!(
                " That is up to {} % of what the cheapest backend costs",
                digits(share)
            ));
            harness.push_str(if share >= HARNESS_PERCENT {
                "; without it the backends differ by more than the ratios say."
            } else {
                "."
            });
        }
        said.push(harness);
    }
    said
}

/// Whether two cells differ in nothing but the backend and its flags.
fn alike(a: &Figures, b: &Figures) -> bool {
    Setting::ALL
        .iter()
        .all(|setting| setting.short(&a.cell.workload) == setting.short(&b.cell.workload))
}

/// What to know before believing any of it.
fn warnings(report: &Report) -> Vec<String> {
    let machine = &report.machine;
    let mut said: Vec<String> =
        machine.refused.iter().map(|refused| words::clean(refused)).collect();
    for (note, cells) in words::notes(report.cells.iter()) {
        said.push(format!("{}: {note}", words::cells(report, &cells)));
    }
    let ran: Vec<Figures> = report.cells.iter().filter_map(Figures::new).collect();
    let any = |of: &dyn Fn(&Figures) -> bool| ran.iter().any(of);

    if any(&|f| f.cell.workload.backend == Backend::Kaio && !f.cell.workload.direct) {
        said.push(
            "Linux KAIO is asynchronous with direct I/O alone: the buffered kaio rows do not show what it can do."
                .to_owned(),
        );
    }
    // One that was started and did next to nothing is no news.
    let busy = |run: &Run| run.usage.io_wq * 50 > run.usage.user + run.usage.system;
    let runs = ran.iter().map(|figures| figures.run).filter(|run| busy(run));
    let workers = runs.map(|run| run.usage.io_wq_workers).max().unwrap_or(0);
    if workers > 0 {
        said.push(format!(
            "io_uring handed requests to {} of its own: those were not asynchronous in the file system or the device.",
            words::plural(u64::from(workers), "worker thread")
        ));
    }
    if machine.cpus > 0 && machine.cpus <= 2 && any(&|f| f.cell.workload.sqpoll) {
        said.push(format!(
            "SQPOLL keeps a processor busy, and this machine has {}: its rows compete with themselves.",
            machine.cpus
        ));
    }
    if ["tmpfs", "ramfs"].contains(&machine.file_system.as_str()) {
        said.push(format!(
            "{} has no device: the figures show the way through the kernel, and nothing about a disk.",
            machine.file_system
        ));
    }
    if let Some(scheduler) = after(&machine.device, "scheduler ")
        && scheduler != "none"
    {
        said.push(format!(
            "Every request passes the {} scheduler, and its cost is in the figures; `none` may cost less.",
            words::clean(scheduler)
        ));
    }
    if let Some(slots) = after(&machine.device, "nr_requests ").and_then(|n| n.parse::<u64>().ok())
    {
        let in_flight =
            |f: &Figures| u64::from(f.cell.workload.depth) * u64::from(f.cell.workload.jobs);
        if any(&|f| f.cell.workload.direct && in_flight(f) > slots) {
            said.push(format!(
                "The device's queue holds {}: deeper direct rows wait for room in it (nr_requests).",
                words::plural(slots, "request")
            ));
        }
    }
    let slow_harness = |f: &Figures| {
        f.cell.workload.backend != Backend::Null
            && ran.iter().any(|null| {
                null.cell.workload.backend == Backend::Null
                    && alike(null, f)
                    && null.cell.workload.rate.is_none()
                    && null.ops.value < 2.0 * f.ops.value
            })
    };
    if any(&slow_harness) {
        said.push(
            "The harness alone does less than twice the operations a second of the fastest backend: it limits the \
             figures."
                .to_owned(),
        );
    }
    said
}

/// The word that follows a name in a list such as `vda, scheduler none, nr_requests 256`.
fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = &text[text.find(name)? + name.len()..];
    rest.split([',', ' ']).next().filter(|word| !word.is_empty())
}

/// Write a line that is broken between words, with later lines as far to the right as the first.
fn wrap(out: &mut String, lead: &str, text: &str) {
    let indent = " ".repeat(lead.chars().count());
    out.push_str(lead);
    let mut used = lead.chars().count();
    for (at, word) in text.split_whitespace().enumerate() {
        let wide = word.chars().count();
        if at > 0 && used + 1 + wide > COLUMNS {
            out.push('\n');
            out.push_str(&indent);
            used = indent.len();
        } else if at > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += wide;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::samples::{self, cell, workload};
    use crate::bench::result::Cell;
    use proptest::prelude::*;

    /// Cells at one depth with these operations a second and costs.
    fn duel(backends: &[(Backend, f64, f64)], spread: f64) -> Report {
        let cells: Vec<Cell> = backends
            .iter()
            .map(|&(backend, ops, cpu)| cell(workload(backend, 32), ops, cpu, 3, spread))
            .collect();
        samples::report(cells)
    }

    /// The verdict as one line, so that it does not matter where lines are broken.
    fn flat(report: &Report) -> String {
        render(report).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn within_the_spread_they_are_equal() {
        let text =
            flat(&duel(&[(Backend::Uring, 100_000.0, 5.0), (Backend::Kaio, 103_000.0, 5.1)], 0.02));
        assert!(text.starts_with("No difference that these runs can show: "), "{text}");
        assert!(text.contains("are equal in ops/s"), "{text}");
        assert!(!text.contains("Fastest") && !text.contains("fastest"), "{text}");
    }

    #[test]
    fn beyond_the_spread_one_is_the_fastest_by_its_ratio() {
        let text =
            flat(&duel(&[(Backend::Uring, 150_000.0, 4.0), (Backend::Kaio, 100_000.0, 8.0)], 0.02));
        assert!(text.starts_with("Fastest and least CPU time an operation: uring."), "{text}");
        assert!(
            text.contains("1.50× the ops/s of kaio at 0.50× the CPU time an operation"),
            "{text}"
        );
        assert!(!text.contains("equal in ops/s"), "{text}");
    }

    #[test]
    fn among_equals_the_cheaper_one_is_chosen() {
        let text =
            flat(&duel(&[(Backend::Uring, 100_000.0, 8.0), (Backend::Kaio, 100_100.0, 4.0)], 0.02));
        assert!(text.starts_with("Fastest and least CPU time an operation: kaio."), "{text}");
        assert!(
            text.contains("kaio costs less: 4.00 CPU µs an operation against 8.00 for uring"),
            "{text}"
        );
    }

    #[test]
    fn the_price_of_speed_is_said() {
        let text =
            flat(&duel(&[(Backend::Uring, 150_000.0, 8.0), (Backend::Kaio, 100_000.0, 4.0)], 0.02));
        assert!(text.starts_with("Fastest: uring. Least CPU time an operation: kaio."), "{text}");
        assert!(
            text.contains("kaio costs less an operation than the faster uring: 4.00 against 8.00"),
            "{text}"
        );
        assert!(text.contains("at 0.67× the ops/s"), "{text}");
    }

    #[test]
    fn one_run_proves_little() {
        let mut report =
            duel(&[(Backend::Uring, 100_000.0, 5.0), (Backend::Kaio, 107_000.0, 5.0)], 0.0);
        for cell in &mut report.cells {
            cell.runs.truncate(1);
        }
        let text = flat(&report);
        assert!(text.contains("No difference"), "{text}");
        assert!(text.contains("differences below 10 %"), "{text}");
        assert!(!text.contains('±'), "{text}");
    }

    #[test]
    fn depths_have_answers_of_their_own() {
        let mut cells = Vec::new();
        for (depth, uring, kaio) in
            [(1, 10_000.0, 12_000.0), (32, 200_000.0, 150_000.0), (128, 201_000.0, 150_000.0)]
        {
            cells.push(cell(workload(Backend::Uring, depth), uring, 4.0, 3, 0.01));
            cells.push(cell(workload(Backend::Kaio, depth), kaio, 4.0, 3, 0.01));
        }
        let text = flat(&samples::report(cells));
        assert!(
            text.contains("Fastest and least CPU time an operation: kaio at depth 1; uring at depth 32 and 128."),
            "{text}"
        );
        assert!(text.contains("Depth 32 is enough for uring: more brings no more ops/s"), "{text}");
    }

    #[test]
    fn several_workloads_are_counted() {
        let text = flat(&samples::block_sizes());
        assert!(text.starts_with("Of 6 comparisons"), "{text}");
        assert!(text.contains("64 KiB random reads, direct, 1 job, depth 32 "), "{text}");
    }

    #[test]
    fn one_backend_is_not_compared() {
        let text = flat(&samples::one_cell());
        assert!(
            text.starts_with("Only uring was measured, so there is nothing to compare it with."),
            "{text}"
        );
        assert!(!text.contains("Fastest") && !text.contains("fastest"), "{text}");
    }

    #[test]
    fn nothing_measured_is_said() {
        let mut report = samples::depths();
        report.cells.clear();
        assert!(flat(&report).starts_with("Nothing was measured."));
        let mut harness = samples::depths();
        harness.cells.retain(|cell| cell.workload.backend == Backend::Null);
        assert!(flat(&harness).starts_with("No backend was measured, only the harness."));
    }

    #[test]
    fn refusals_come_with_their_mend() {
        let text = flat(&samples::odd()[3]);
        assert!(text.contains("Not compared, because nothing was measured: kaio."), "{text}");
        assert!(text.contains("kaio: io_setup: EAGAIN; fix: raise fs.aio-max-nr"), "{text}");
        assert_eq!(text.matches("EAGAIN").count(), 1, "{text}");
    }

    #[test]
    fn the_harness_is_said_to_cost_what_the_null_rows_show() {
        let text = flat(&samples::depths());
        assert!(text.contains("The harness itself costs 0.10"), "{text}");
        assert!(!text.contains("it limits the figures"), "{text}");
        let slow = duel(&[(Backend::Uring, 100_000.0, 5.0), (Backend::Null, 150_000.0, 3.0)], 0.01);
        assert!(flat(&slow).contains("it limits the figures"));
    }

    #[test]
    fn a_fixed_rate_is_judged_by_cost_and_latency() {
        let mut report = duel(
            &[
                (Backend::Uring, 20_000.0, 9.0),
                (Backend::Kaio, 20_000.0, 5.0),
                (Backend::Threads, 12_000.0, 20.0),
            ],
            0.0,
        );
        for cell in &mut report.cells {
            cell.workload.rate = Some(crate::bench::workload::Rate::Requests(20_000));
        }
        let text = flat(&report);
        assert!(
            text.starts_with("Keeps the rate at the least CPU time an operation: kaio."),
            "{text}"
        );
        assert!(
            text.contains("threads (12.0 k ops/s ±0.0 %) fell behind the 20.0 k requests"),
            "{text}"
        );
        assert!(
            text.contains("CPU µs an operation: kaio 5.00, uring 9.00, threads 20.0"),
            "{text}"
        );
    }

    #[test]
    fn the_machine_is_warned_of() {
        let mut report = samples::depths();
        report.machine.device = "sda, scheduler mq-deadline, nr_requests 64".into();
        report.machine.file_system = "tmpfs".into();
        for cell in &mut report.cells {
            for run in &mut cell.runs {
                run.usage.io_wq_workers = 3;
                run.usage.io_wq = run.usage.system / 2;
            }
        }
        let text = flat(&report);
        for said in [
            "the mq-deadline scheduler",
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
    fn lines_are_broken() {
        for report in [samples::depths(), samples::everything()] {
            let text = render(&report);
            let wide = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(wide <= COLUMNS, "{wide}\n{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_report_has_a_verdict(report in samples::anything()) {
            let text = flat(&report);
            prop_assert!(!samples::has_no_number(&text));
            prop_assert!(!text.is_empty());
        }
    }

    #[test]
    fn odd_reports_have_a_verdict() {
        for report in samples::odd() {
            let text = flat(&report);
            assert!(!samples::has_no_number(&text) && !text.is_empty(), "{text}");
        }
    }
}
