//! Records of turns, as programs in other languages print them: JSON, one record in each line. Such
//! a program only measures; medians, ratios, tables, targets and charts are made here.
//!
//! ```text
//! {"head": "2 processors, Linux 6.18"}
//! {"columns": [{"figure": "reads/s", "range": true, "ratios": {"speed": "os"}}]}
//! {"turn": {"row": "direct 1", "contestant": "os", "round": 1, "figures": {"reads/s": 8013}}}
//! {"out": {"row": "direct 1", "contestant": "bare", "why": "io_uring is not permitted"}}
//! {"target": {"row": "direct 1", "contestant": "ringway", "figure": "reads/s",
//!             "measure": {"ratio": "os"}, "bound": {"least": 1.5}}}
//! {"about": ["direct 1", "Direct reads by one goroutine"]}
//! {"about": ["os", "os.File"]}
//! {"lines": {"file": "time.svg", "figure": "reads/s", "x_label": "goroutines",
//!            "logarithmic": true, "rows": [["direct 1", 1], ["direct 128", 128]]}}
//! ```
//!
//! Other lines, such as notes on what was skipped, are shown as they are.
//!
//! Columns are those of the rows that begin after them. Figures of round 0 come from a run that
//! measures nothing else, such as a count of system calls; they are added to the other rounds.

use crate::plot::{self, Line, Lines};
use crate::rounds::{self, Column, Entry, Row, Target, Turn};
use crate::stats::Comparison;
use crate::text::{self, ABSENT, significant};
use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Before a ratio of figures whose runs do not show a difference.
const TIE: &str = "≈";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Record {
    Head(String),
    Columns(Vec<Figure>),
    Turn(One),
    Out(Out),
    Target(Target),
    About(String, String),
    Lines(Chart),
}

/// The columns of a figure.
#[derive(Clone, Debug, Deserialize)]
struct Figure {
    figure: String,
    /// A column with half the range.
    #[serde(default)]
    range: bool,
    /// Headings of columns, and the contestants whose figure the ratios refer to.
    #[serde(default)]
    ratios: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct One {
    row: String,
    contestant: String,
    round: u32,
    figures: BTreeMap<String, f64>,
    answer: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Out {
    row: String,
    contestant: String,
    why: String,
}

/// A chart of a figure over rows, each with its place.
#[derive(Debug, Deserialize)]
struct Chart {
    file: String,
    figure: String,
    x_label: String,
    #[serde(default)]
    logarithmic: bool,
    /// Draws the ratio to this contestant in percent.
    relative: Option<String>,
    rows: Vec<(String, f64)>,
}

/// All that a program has printed.
#[derive(Debug, Default)]
pub struct Records {
    head: Vec<String>,
    rows: Vec<(Row, Vec<Figure>)>,
    targets: Vec<Target>,
    about: Vec<(String, String)>,
    charts: Vec<Chart>,
}

impl Records {
    /// Reads records.
    ///
    /// # Errors
    ///
    /// A line that is none.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut records = Self::default();
        let mut columns = Vec::new();
        let mut once = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if !line.starts_with('{') {
                records.head.push(line.into());
                continue;
            }
            let record = serde_json::from_str(line).with_context(|| line.to_owned())?;
            match record {
                Record::Head(text) => records.head.push(text),
                Record::Columns(new) => columns = new,
                Record::Turn(one) if one.round == 0 => once.push(one),
                Record::Turn(one) => {
                    let turn = Turn { figures: one.figures, answer: one.answer, note: None };
                    let row = records.row(&one.row, &columns);
                    match row.entries.iter_mut().find(|e| e.contestant == one.contestant) {
                        Some(entry) => entry.turns.push(turn),
                        None => {
                            row.entries
                                .push(Entry { contestant: one.contestant, turns: vec![turn] });
                        }
                    }
                }
                Record::Out(out) => {
                    records.row(&out.row, &columns).left_out.push((out.contestant, out.why));
                }
                Record::Target(target) => records.targets.push(target),
                Record::About(name, text) => records.about.push((name, text)),
                Record::Lines(chart) => records.charts.push(chart),
            }
        }
        for one in once {
            records.add_once(&one);
        }
        for (row, _) in &mut records.rows {
            row.entries.retain(|e| row.left_out.iter().all(|(name, _)| *name != e.contestant));
        }
        Ok(records)
    }

    /// The row with this title, which may be a new one.
    fn row(&mut self, title: &str, columns: &[Figure]) -> &mut Row {
        let at = self.rows.iter().position(|(row, _)| row.title == title);
        let at = at.unwrap_or_else(|| {
            let row = Row { title: title.into(), ..Row::default() };
            self.rows.push((row, columns.to_vec()));
            self.rows.len() - 1
        });
        &mut self.rows[at].0
    }

    fn add_once(&mut self, one: &One) {
        let row = self.rows.iter_mut().find(|(row, _)| row.title == one.row);
        let entries = row.into_iter().flat_map(|(row, _)| &mut row.entries);
        for entry in entries.filter(|entry| entry.contestant == one.contestant) {
            for turn in &mut entry.turns {
                turn.figures.extend(one.figures.clone());
            }
        }
    }

    /// Keeps the rows whose titles have one of these words.
    pub fn retain(&mut self, words: &[String]) {
        self.rows.retain(|(row, _)| words.iter().any(|word| row.title.contains(word)));
    }

    /// The head and the tables of the rows as Markdown.
    pub fn tables(&self) -> String {
        let mut text: String = self.head.iter().map(|line| format!("{line}\n")).collect();
        for (row, figures) in &self.rows {
            let columns: Vec<Column> = figures.iter().flat_map(Figure::columns).collect();
            let row = Row { title: self.heading(&row.title), ..row.clone() };
            text += &format!("\n{}", row.markdown(&columns, &row.notes()));
        }
        if text.contains(TIE) {
            text += &format!("\n{TIE}: the runs do not show a difference.\n");
        }
        text
    }

    /// The title of a row, after what it is.
    fn heading(&self, title: &str) -> String {
        match self.about.iter().find(|(name, _)| name == title) {
            Some((_, about)) => format!("{about} (`{title}`)"),
            None => title.into(),
        }
    }

    /// The tables, the targets, and what the contestants are.
    pub fn markdown(&self) -> String {
        let (mut text, rows) = (self.tables(), self.rows());
        let measured = |target: &&Target| {
            let row = rows.iter().find(|row| row.title == target.row);
            row.is_some_and(|row| target.measured(row).is_some())
        };
        let targets: Vec<Target> = self.targets.iter().filter(measured).cloned().collect();
        let targets = rounds::targets(&rows, &targets, |_, value| significant(value));
        if !targets.rows.is_empty() {
            text += &format!("\n### Targets\n\n{}", targets.markdown());
        }
        let took_part = |name: &str| rows.iter().any(|row| row.entry(name).is_some());
        let about = self.about.iter().filter(|(name, _)| took_part(name));
        let about: String = about.map(|(name, text)| format!("- `{name}`: {text}\n")).collect();
        if about.is_empty() { text } else { text + "\n" + &about }
    }

    /// All rows.
    pub fn rows(&self) -> Vec<Row> {
        self.rows.iter().map(|(row, _)| row.clone()).collect()
    }

    /// Whether a contestant failed.
    pub fn has_failures(&self) -> bool {
        self.rows.iter().any(|(row, _)| !row.left_out.is_empty())
    }

    /// Writes the charts into a folder: those that have at least two points of a line.
    ///
    /// # Errors
    ///
    /// Those of drawing and of writing.
    pub fn write_charts(&self, folder: &Path) -> anyhow::Result<()> {
        let rows = self.rows();
        for chart in &self.charts {
            let lines = chart.lines(&rows);
            if lines.lines.iter().any(|line| line.points.len() > 1) {
                let path = folder.join(&chart.file);
                fs::write(&path, plot::lines(&lines)?)
                    .with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }
}

impl Figure {
    fn columns(&self) -> Vec<Column> {
        let mut columns = vec![Column::figure(&self.figure)];
        columns.extend(self.range.then(|| Column::range(&self.figure)));
        let ratios = self.ratios.iter();
        columns.extend(ratios.map(|(heading, to)| self.ratio(heading, to)));
        columns
    }

    /// The ratio to a contestant, with a sign if the runs do not show a difference.
    fn ratio(&self, heading: &str, to: &str) -> Column {
        let (figure, to) = (self.figure.clone(), to.to_owned());
        Column::new(heading, move |row, entry| {
            let Some(ratio) = row.ratio(&entry.contestant, &to, &figure) else {
                return ABSENT.into();
            };
            let base = row.entry(&to).and_then(|entry| entry.spread(&figure));
            let compared = entry.spread(&figure).zip(base).map(|(one, base)| one.compare(&base));
            let is_tie = matches!(compared, Some(Comparison::Equal | Comparison::Undecided));
            let sign = if is_tie && entry.contestant != to { TIE } else { "" };
            sign.to_owned() + &text::ratio(ratio.median, 1.0)
        })
    }
}

impl Chart {
    fn lines(&self, rows: &[Row]) -> Lines {
        let places: Vec<(&Row, f64)> = self
            .rows
            .iter()
            .filter_map(|(title, x)| Some((rows.iter().find(|row| row.title == *title)?, *x)))
            .collect();
        let mut names: Vec<&str> = Vec::new();
        for entry in places.iter().flat_map(|(row, _)| &row.entries) {
            if !names.contains(&&*entry.contestant) {
                names.push(&entry.contestant);
            }
        }
        let value = |row: &Row, name: &str| match &self.relative {
            Some(to) => Some(100.0 * row.ratio(name, to, &self.figure)?.median),
            None => Some(row.entry(name)?.spread(&self.figure)?.median),
        };
        let line = |(number, name): (usize, &&str)| Line {
            label: (*name).into(),
            colour: Some(number),
            points: places.iter().filter_map(|(row, x)| Some((*x, value(row, name)?))).collect(),
        };
        Lines {
            x_label: self.x_label.clone(),
            ticks: places.iter().map(|(_, x)| (*x, significant(*x))).collect(),
            logarithmic: self.logarithmic,
            unit: significant,
            lines: names.iter().enumerate().map(line).collect(),
        }
    }
}

/// Replaces the text between two lines of a Markdown file.
///
/// # Errors
///
/// A file without these lines; those of reading and writing it.
pub fn replace_in(path: &Path, begin: &str, end: &str, text: &str) -> anyhow::Result<()> {
    let about = || path.display().to_string();
    let page = fs::read_to_string(path).with_context(about)?;
    let replaced = replaced(&page, begin, end, text)
        .with_context(|| format!("{}: no place for the text: {begin}", path.display()))?;
    fs::write(path, replaced).with_context(about)
}

fn replaced(page: &str, begin: &str, end: &str, text: &str) -> Option<String> {
    let begin = format!("{begin}\n");
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
skipped: b
{"head": "a machine"}
{"columns": [{"figure": "reads/s", "range": true, "ratios": {"speed": "os"}}, {"figure": "calls"}]}
{"turn": {"row": "direct 1", "contestant": "ringway", "round": 1, "figures": {"reads/s": 300}}}
{"turn": {"row": "direct 1", "contestant": "os", "round": 1, "figures": {"reads/s": 100}}}
{"turn": {"row": "direct 1", "contestant": "bad", "round": 1, "figures": {"reads/s": 1}}}
{"out": {"row": "direct 1", "contestant": "bad", "why": "failed"}}
{"turn": {"row": "direct 1", "contestant": "ringway", "round": 0, "figures": {"calls": 2}}}
{"turn": {"row": "direct 1", "contestant": "tied", "round": 1, "figures": {"reads/s": 103}}}
{"turn": {"row": "direct 9", "contestant": "os", "round": 1, "figures": {"reads/s": 200}}}
{"target": {"row": "direct 1", "contestant": "ringway", "figure": "reads/s",
"measure": {"ratio": "os"}, "bound": {"least": 1.5}}}
{"about": ["os", "os.File"]}
{"about": ["direct 1", "Direct reads"]}
{"about": ["absent", "takes no part"]}
{"lines": {"file": "x.svg", "figure": "reads/s", "x_label": "n", "relative": "os",
"rows": [["direct 1", 1], ["direct 9", 9], ["none", 10]]}}
"#;

    fn records() -> Records {
        Records::parse(&TEXT.replace(",\n\"", ",\"")).unwrap()
    }

    #[test]
    fn records_become_charts_and_a_report() {
        let mut records = records();
        let lines = records.charts[0].lines(&records.rows());
        assert_eq!(lines.ticks.len(), 2);
        assert_eq!(lines.lines[0].points, [(1.0, 300.0)]);
        assert_eq!(lines.lines[1].points, [(1.0, 100.0), (9.0, 100.0)]);
        records.retain(&["direct 1".into()]);
        let text = records.markdown();
        assert!(
            text.starts_with(
                "skipped: b\na machine\n\n### Direct reads (`direct 1`)\n\n| contestant | reads/s |"
            ),
            "{text}"
        );
        assert!(text.contains("| ringway    |     300 | – |  3.00× |  2.00 |"), "{text}");
        assert!(text.contains("| tied       |     103 | – | ≈1.03× |"), "{text}");
        assert!(text.contains("\n- bad: left out; failed\n"), "{text}");
        assert!(text.contains("| reached | >= 1.50× |"), "{text}");
        assert!(text.ends_with("\n- `os`: os.File\n") && !text.contains("direct 9"), "{text}");
        assert!(records.has_failures());
        assert!(Records::parse("{\"turn\": 1}").is_err());
    }

    #[test]
    fn only_the_text_between_the_lines_is_replaced() {
        let page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nz\n";
        let (begin, end) = ("<!-- x: begin -->", "<!-- x: end -->");
        let new = replaced(page, begin, end, "new\n").unwrap();
        assert_eq!(new, "a\n<!-- x: begin -->\n\nnew\n\n<!-- x: end -->\nz\n");
        assert_eq!(replaced(page, "<!-- y: begin -->", end, "new"), None);
    }
}
