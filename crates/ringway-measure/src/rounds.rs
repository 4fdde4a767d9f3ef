//! Contestants that take turns in rounds: the figures of each turn, medians, ratios round by round,
//! tables, targets and bars of them. What a figure measures is for the programs to decide.

use crate::machine::Machine;
use crate::plot::{self, Bar, Bars};
use crate::stats::Spread;
use crate::table::Table;
use crate::text::{self, ABSENT, significant};
use crate::usage::{Others, Snapshot, Usage, busy};
use anyhow::ensure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The figure of operations per second.
pub const OPS: &str = "ops/s";
/// The CPU time of the process for each operation.
pub const CPU: &str = "CPU µs/op";
/// The CPU time of the whole machine for each operation.
pub const MACHINE: &str = "machine µs/op";
/// Context switches for each operation.
pub const SWITCHES: &str = "ctx/op";
/// Processors that other programs kept busy, on average. Reports do not show it, unless it is much.
pub const OTHERS: &str = "others";

/// What one turn measured.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Turn {
    /// By name; a name has the unit. A figure that was not measured is missing.
    pub figures: BTreeMap<String, f64>,
    /// What the work found; it must be the same for all contestants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What else is of interest, for the file with all figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Turn {
    /// What operations cost, of which there is at least one.
    pub fn of_operations(operations: u64, usage: &Usage, machine: Option<Duration>) -> Self {
        let each = |total: f64| total / operations as f64;
        let micros = |time: Duration| each(time.as_secs_f64() * 1e6);
        let mut turn = Self::default();
        turn.set(OPS, operations as f64 / usage.real.as_secs_f64());
        turn.set(CPU, micros(usage.cpu()));
        turn.set(SWITCHES, each(usage.context_switches() as f64));
        turn.set(MACHINE, machine.map(micros));
        turn
    }

    /// What it costs to do these operations, of which there is at least one.
    pub fn measure(operations: u64, work: impl FnOnce()) -> Self {
        let (others, machine, begun) = (Others::start(), Machine::now(), Snapshot::of_process());
        work();
        let usage = Snapshot::of_process().since(&begun);
        let machine = machine.and_then(|since| since.busy());
        let mut turn = Self::of_operations(operations, &usage, machine);
        turn.set(OTHERS, others.processors());
        turn
    }

    /// Adds a figure, unless it is `None` or no number.
    pub fn set(&mut self, figure: &str, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.figures.insert(figure.into(), value);
        }
    }

    /// The figure of this name, if it was measured.
    pub fn get(&self, figure: &str) -> Option<f64> {
        self.figures.get(figure).copied()
    }
}

/// The turns of one contestant in a row.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Entry {
    /// Its name.
    pub contestant: String,
    /// One for each round.
    pub turns: Vec<Turn>,
}

impl Entry {
    /// A figure over all turns; `None` if a turn did not measure it.
    pub fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.turns.iter().map(|turn| turn.get(figure)).collect::<Option<Vec<_>>>()?)
    }

    /// The median as text.
    pub fn median(&self, figure: &str, text: impl Fn(f64) -> String) -> String {
        shown(self.spread(figure), text)
    }
}

/// The results of one row.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Row {
    /// Its heading.
    pub title: String,
    /// The contestants that took part.
    pub entries: Vec<Entry>,
    /// The others, with the reason.
    pub left_out: Vec<(String, String)>,
}

impl Row {
    /// Measures a row: in each round, every contestant has one turn. One that fails, or finds
    /// another answer than the first turn (or `answer`), is left out.
    pub fn measure<C>(
        title: String,
        rounds: u32,
        contestants: Vec<(&str, C)>,
        mut answer: Option<String>,
        mut turn: impl FnMut(&C) -> anyhow::Result<Turn>,
    ) -> Self {
        let mut row = Self { title, ..Self::default() };
        let mut running: Vec<_> =
            contestants.into_iter().map(|(name, who)| (name, who, Vec::new())).collect();
        for round in 1..=rounds {
            eprint!("  round {round} of {rounds}:");
            running.retain_mut(|(name, contestant, turns)| {
                eprint!(" {name}");
                match turn(contestant).and_then(|turn| agreed(turn, &mut answer)) {
                    Ok(turn) => turns.push(turn),
                    Err(error) => row.left_out.push(((*name).into(), format!("{error:#}"))),
                }
                turns.len() == round as usize
            });
            eprintln!();
        }
        let entry = |(name, _, turns): (&str, C, _)| Entry { contestant: name.into(), turns };
        row.entries = running.into_iter().map(entry).collect();
        row
    }

    /// The turns of a contestant, if it took part.
    pub fn entry(&self, contestant: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.contestant == contestant)
    }

    /// The ratios of two contestants' turns in each round. If the disk's speed changes, it changes
    /// for both turns of a round. `None` if one of them has no turn in a round.
    pub fn ratio(&self, of: &str, to: &str, figure: &str) -> Option<Spread> {
        self.compared(of, to, figure, |of, to| of / to)
    }

    /// The differences between two contestants' turns in each round, as [`ratio`](Self::ratio).
    pub fn difference(&self, of: &str, to: &str, figure: &str) -> Option<Spread> {
        self.compared(of, to, figure, |of, to| of - to)
    }

    fn compared(&self, of: &str, to: &str, name: &str, how: fn(f64, f64) -> f64) -> Option<Spread> {
        let (of, to) = (&self.entry(of)?.turns, &self.entry(to)?.turns);
        // With a round missing, the turns at one position may be those of different rounds.
        if of.len() != to.len() {
            return None;
        }
        let rounds = of.iter().zip(to);
        let compared = rounds.map(|(of, to)| Some(how(of.get(name)?, to.get(name)?)));
        let compared = compared.collect::<Option<Vec<_>>>()?;
        Spread::of(compared).filter(|spread| spread.median.is_finite())
    }

    /// Notes on a busy machine, and on who was left out.
    pub fn notes(&self) -> Vec<String> {
        let turns = self.entries.iter().flat_map(|entry| &entry.turns);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let others = busy(turns.filter_map(|turn| turn.get(OTHERS)), cpus);
        let others = others.map(|others| {
            format!("the machine is busy: other programs used {others:.1} processors")
        });
        let left_out = self.left_out.iter().map(|(name, why)| format!("{name}: left out; {why}"));
        others.into_iter().chain(left_out).collect()
    }

    /// The table of this row as Markdown, below its title and above its notes.
    pub fn markdown(&self, columns: &[Column], notes: &[String]) -> String {
        let table = table(std::slice::from_ref(self), &["contestant"], columns).markdown();
        let notes: String = notes.iter().map(|note| format!("- {note}\n")).collect();
        let gap = if notes.is_empty() { "" } else { "\n" };
        format!("### {}\n\n{table}{gap}{notes}", self.title)
    }
}

fn agreed(turn: Turn, answer: &mut Option<String>) -> anyhow::Result<Turn> {
    if let Some(found) = &turn.answer {
        let first = answer.get_or_insert_with(|| found.clone());
        ensure!(first == found, "it has found {found} instead of {first}");
    }
    Ok(turn)
}

type Cell = Box<dyn Fn(&Row, &Entry) -> String>;

/// A column of a table.
pub struct Column {
    heading: String,
    cell: Cell,
}

impl Column {
    /// A column of any text.
    pub fn new(heading: &str, cell: impl Fn(&Row, &Entry) -> String + 'static) -> Self {
        Self { heading: heading.into(), cell: Box::new(cell) }
    }

    /// The median of the figure that is the heading, in three digits.
    pub fn figure(name: &str) -> Self {
        Self::median(name, name, significant)
    }

    /// The median of a figure.
    pub fn median(heading: &str, figure: &str, text: fn(f64) -> String) -> Self {
        let figure = figure.to_owned();
        Self::new(heading, move |_, entry| entry.median(&figure, text))
    }

    /// Half the range of a figure in percent of the median.
    pub fn range(figure: &str) -> Self {
        let figure = figure.to_owned();
        Self::new("±", move |_, entry| percent(entry.spread(&figure)))
    }

    /// The ratio to another contestant's figure.
    pub fn ratio(heading: &str, figure: &str, to: &str) -> Self {
        let (figure, to) = (figure.to_owned(), to.to_owned());
        Self::new(heading, move |row, entry| {
            shown(row.ratio(&entry.contestant, &to, &figure), times)
        })
    }

    /// Half the range of such a ratio.
    pub fn ratio_range(figure: &str, to: &str) -> Self {
        let (figure, to) = (figure.to_owned(), to.to_owned());
        Self::new("±", move |row, entry| percent(row.ratio(&entry.contestant, &to, &figure)))
    }
}

/// Columns of what operations cost: their rate and CPU time, and the ratios to a contestant's.
pub fn costs(to: &str) -> Vec<Column> {
    vec![
        Column::figure(OPS),
        Column::range(OPS),
        Column::figure(CPU),
        Column::range(CPU),
        Column::ratio(&format!("ops/s vs {to}"), OPS, to),
        Column::ratio(&format!("CPU vs {to}"), CPU, to),
    ]
}

/// A line for each contestant of each row. `names` has the heading of the contestants' names, and
/// before it that of the rows' titles, if they are to be shown.
pub fn table(rows: &[Row], names: &[&str], columns: &[Column]) -> Table {
    let headings = columns.iter().map(|column| column.heading.clone());
    let line = |row: &Row, entry: &Entry| {
        let texts = [&row.title, &entry.contestant].map(Clone::clone);
        let cells = columns.iter().map(|column| (column.cell)(row, entry));
        texts.into_iter().skip(2 - names.len()).chain(cells).collect()
    };
    let entries = rows.iter().flat_map(|row| row.entries.iter().map(move |entry| (row, entry)));
    Table {
        text_columns: names.len(),
        headings: names.iter().map(|name| (*name).to_owned()).chain(headings).collect(),
        rows: entries.map(|(row, entry)| line(row, entry)).collect(),
    }
}

/// Bars of some figures: their headings and their names. `colour` is that of a contestant.
///
/// # Errors
///
/// Those of drawing.
pub fn bars(
    rows: &[&Row],
    figures: &[(&str, &str)],
    colour: fn(&str) -> Option<usize>,
) -> anyhow::Result<String> {
    let bar = |entry: &Entry| {
        let value = |(_, figure): &(_, &str)| {
            Some((entry.spread(figure)?.median, entry.median(figure, significant)))
        };
        Bar {
            label: entry.contestant.clone(),
            colour: colour(&entry.contestant),
            values: figures.iter().map(value).collect(),
        }
    };
    let panel = |row: &&Row| Bars {
        title: row.title.clone(),
        columns: figures.iter().map(|(heading, _)| (*heading).into()).collect(),
        bars: row.entries.iter().map(bar).collect(),
    };
    plot::bars(&rows.iter().map(panel).collect::<Vec<_>>())
}

/// The number that a target bounds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The figure itself.
    Value,
    /// Its ratio to another contestant's.
    Ratio(String),
    /// Its difference from another contestant's.
    Above(String),
}

/// A bound of it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// At least this.
    Least(f64),
    /// At most this.
    Most(f64),
}

/// A figure of a contestant in a row, and its bound.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Target {
    /// The row's title.
    pub row: String,
    /// The contestant.
    pub contestant: String,
    /// The figure's name.
    pub figure: String,
    /// What is compared with the bound.
    pub measure: Measure,
    /// The bound.
    pub bound: Bound,
}

/// A line for each target of a row that was measured: whether it is reached. `unit` writes a figure
/// with this name.
pub fn targets(rows: &[Row], targets: &[Target], unit: fn(&str, f64) -> String) -> Table {
    let line = |target: &Target| {
        let row = rows.iter().find(|row| row.title == target.row)?;
        Some(target.line(row, unit))
    };
    let headings = ["row", "contestant", "figure", "result", "target", "measured", "±"];
    Table {
        text_columns: 4,
        headings: headings.map(String::from).into(),
        rows: targets.iter().filter_map(line).collect(),
    }
}

impl Target {
    /// What is compared with the bound; `None` if it was not measured.
    pub fn measured(&self, row: &Row) -> Option<Spread> {
        let Self { contestant, figure, .. } = self;
        match &self.measure {
            Measure::Value => row.entry(contestant)?.spread(figure),
            Measure::Ratio(to) => row.ratio(contestant, to, figure),
            Measure::Above(to) => row.difference(contestant, to, figure),
        }
    }

    fn line(&self, row: &Row, unit: fn(&str, f64) -> String) -> Vec<String> {
        let Self { contestant, figure, .. } = self;
        let measured = self.measured(row);
        let name = match &self.measure {
            Measure::Value => figure.clone(),
            Measure::Ratio(to) => format!("{figure} vs {to}"),
            Measure::Above(to) => format!("{figure} above {to}"),
        };
        let number = |number| match self.measure {
            Measure::Ratio(_) => times(number),
            _ => unit(figure, number),
        };
        let (holds, bound): (fn(&f64, &f64) -> bool, _) = match self.bound {
            Bound::Least(least) => (|median, bound| median >= bound, (least, ">=")),
            Bound::Most(most) => (|median, bound| median <= bound, (most, "<=")),
        };
        let result = match measured {
            Some(measured) if holds(&measured.median, &bound.0) => "reached",
            Some(_) => "missed",
            None => "not measured",
        };
        // A share of a difference would mean little where the difference is near zero.
        let range = match (&self.measure, measured) {
            (Measure::Above(_), Some(measured)) => number(measured.half_range()),
            _ => percent(measured),
        };
        let bound = format!("{} {}", bound.1, number(bound.0));
        let measured = shown(measured, number);
        [&row.title, contestant, &name, result, &bound, &measured, &range].map(str::to_owned).into()
    }
}

fn shown(spread: Option<Spread>, text: impl Fn(f64) -> String) -> String {
    spread.map_or(ABSENT.into(), |spread| text(spread.median))
}

fn percent(spread: Option<Spread>) -> String {
    spread.and_then(|spread| spread.unsigned_percent()).unwrap_or(ABSENT.into())
}

fn times(ratio: f64) -> String {
    text::ratio(ratio, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(value: f64) -> Turn {
        let mut turn = Turn::default();
        turn.set("x", value);
        turn
    }

    fn row(a: [f64; 3], b: [f64; 3]) -> Row {
        let entry = |name: &str, values: [f64; 3]| Entry {
            contestant: name.into(),
            turns: values.map(turn).to_vec(),
        };
        Row { title: "r".into(), entries: vec![entry("a", a), entry("b", b)], left_out: vec![] }
    }

    #[test]
    fn ratios_are_those_of_a_round() {
        // The ratio of the medians would be 2.
        let row = row([300.0, 100.0, 200.0], [100.0, 100.0, 400.0]);
        assert_eq!(row.ratio("a", "b", "x").unwrap().median, 1.0);
        assert_eq!(row.difference("a", "b", "x").unwrap().median, 0.0);
        assert_eq!(row.ratio("a", "b", "y"), None, "not measured");
        assert_eq!(row.ratio("a", "c", "x"), None, "no such contestant");
        let mut shorter = row.clone();
        shorter.entries[1].turns.remove(0);
        assert_eq!(shorter.ratio("a", "b", "x"), None, "turns of different rounds");
        assert_eq!(shorter.difference("b", "a", "x"), None, "turns of different rounds");
        let columns = [Column::figure("x"), Column::range("x"), Column::ratio("to b", "x", "b")];
        let table = table(&[row], &["row", "who"], &columns);
        assert_eq!(table.headings, ["row", "who", "x", "±", "to b"]);
        assert_eq!(table.rows[0], ["r", "a", "200", "50.0 %", "1.00×"]);
    }

    #[test]
    fn what_work_costs_is_measured_and_shown() {
        let busy = |time: Duration| {
            let begun = std::time::Instant::now();
            while begun.elapsed() < time {}
        };
        let time = Duration::from_millis(20);
        let row = Row::measure("r".into(), 1, vec![("a", 1), ("b", 4)], None, |times| {
            Ok(Turn::measure(10, || busy(time * *times)))
        });
        let turn = &row.entry("a").unwrap().turns[0];
        assert!(turn.get(OPS).unwrap() <= 500.0 && turn.get(CPU).unwrap() > 0.0, "{turn:?}");
        let table = table(&[row], &["who"], &costs("a"));
        let headings = ["who", OPS, "±", CPU, "±", "ops/s vs a", "CPU vs a"];
        assert_eq!(table.headings, headings);
        assert_eq!(table.rows[0][5..], ["1.00×", "1.00×"]);
    }

    #[test]
    fn who_fails_or_finds_something_else_is_left_out() {
        let mut turns = 0;
        let contestants = vec![("good", 1), ("wrong", 2), ("failed", 3)];
        let row = Row::measure("r".into(), 2, contestants, None, |number| {
            turns += 1;
            ensure!(*number < 3, "why");
            Ok(Turn { answer: Some(number.to_string()), ..turn(1.0) })
        });
        assert_eq!(turns, 4, "two of three have no second turn");
        assert_eq!(row.entries.len(), 1);
        let notes = ["wrong: left out; it has found 2 instead of 1", "failed: left out; why"];
        assert_eq!(row.notes(), notes);
    }

    #[test]
    fn targets_say_whether_they_are_reached() {
        let rows = [row([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])];
        let target = |measure, bound| Target {
            row: "r".into(),
            contestant: "a".into(),
            figure: "x".into(),
            measure,
            bound,
        };
        let all = [
            target(Measure::Value, Bound::Most(2.0)),
            target(Measure::Ratio("b".into()), Bound::Least(0.6)),
            target(Measure::Above("c".into()), Bound::Least(0.0)),
        ];
        let table = targets(&rows, &all, |name, value| format!("{value} {name}"));
        assert_eq!(table.rows[0][2..], ["x", "reached", "<= 2 x", "2 x", "50.0 %"]);
        assert_eq!(table.rows[1][2..], ["x vs b", "missed", ">= 0.60×", "0.50×", "0.0 %"]);
        assert_eq!(table.rows[2][3..5], ["not measured", ">= 0 x"]);
    }
}
