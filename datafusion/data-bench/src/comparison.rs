//! The parent process: measures each row, cold and cached, round by round with the contestants in
//! turn, and compares their answers.

use crate::contestant::Contestant;
use crate::suite::{Benchmark, Row};
use crate::turn::{self, Figures, Turn};
use anyhow::{Context, ensure};
use ringway_measure::stats::Spread;
use serde::{Deserialize, Serialize};

/// Whether the files are in the page cache when the work begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// No file is in the page cache
    Cold,
    /// All files are in the page cache
    Cached,
}

impl State {
    /// The name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Cached => "cached",
        }
    }
}

/// All figures of a run.
#[derive(Debug, Deserialize, Serialize)]
pub struct Results {
    pub benchmark: Benchmark,
    pub rows: Vec<Measured>,
}

/// The figures of one row.
#[derive(Debug, Deserialize, Serialize)]
pub struct Measured {
    pub group: String,
    pub name: String,
    pub state: State,
    pub entries: Vec<Entry>,
}

/// The figures of one contestant in a row, of each round.
#[derive(Debug, Deserialize, Serialize)]
pub struct Entry {
    pub contestant: Contestant,
    pub turns: Vec<Figures>,
}

/// A figure that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Seconds of wall time.
    Wall,
    /// Seconds of user and system time.
    Cpu,
    /// Seconds of user time.
    User,
    /// Seconds of system time.
    System,
    /// Bytes.
    PeakRss,
    /// Bytes.
    DeviceBytes,
    Switches,
}

impl Metric {
    /// The metric of one turn.
    pub fn of(self, figures: &Figures) -> f64 {
        let usage = &figures.usage;
        match self {
            Self::Wall => usage.real.as_secs_f64(),
            Self::Cpu => usage.cpu().as_secs_f64(),
            Self::User => usage.user.as_secs_f64(),
            Self::System => usage.system.as_secs_f64(),
            Self::PeakRss => figures.peak_rss as f64,
            Self::DeviceBytes => figures.device_bytes as f64,
            Self::Switches => usage.context_switches() as f64,
        }
    }
}

impl Entry {
    /// The metric over all rounds.
    pub fn spread(&self, metric: Metric) -> Option<Spread> {
        Spread::of(self.turns.iter().map(|turn| metric.of(turn)))
    }
}

impl Measured {
    /// The figures of this contestant.
    pub fn entry(&self, contestant: Contestant) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.contestant == contestant)
    }

    /// The ratios of two contestants in each round: if the disk's speed changes, it changes for
    /// both turns of a round.
    pub fn ratio(&self, of: Contestant, to: Contestant, metric: Metric) -> Option<Spread> {
        let rounds = self.entry(of)?.turns.iter().zip(&self.entry(to)?.turns);
        Spread::of(rounds.map(|(of, to)| metric.of(of) / metric.of(to)))
    }
}

/// Measures the rows in each of the states, and appends their figures to the results.
///
/// # Errors
///
/// Those of a turn; answers that differ between two turns of a row. The results have the rows
/// before it.
pub fn run(
    results: &mut Results,
    rows: &[Row],
    states: &[State],
    contestants: &[Contestant],
    rounds: u32,
) -> anyhow::Result<()> {
    for state in states {
        for row in rows {
            eprint!("{} {}:", row.name, state.name());
            let done = measure(row, *state, contestants, rounds);
            results.rows.push(done.with_context(|| format!("{} {}", row.name, state.name()))?);
            eprintln!();
        }
    }
    Ok(())
}

fn measure(
    row: &Row,
    state: State,
    contestants: &[Contestant],
    rounds: u32,
) -> anyhow::Result<Measured> {
    let entry = |contestant: &Contestant| Entry { contestant: *contestant, turns: Vec::new() };
    let mut entries: Vec<_> = contestants.iter().map(entry).collect();
    let mut answer = None;
    for _ in 0..rounds {
        for entry in &mut entries {
            let turn = Turn {
                contestant: entry.contestant,
                work: row.work.clone(),
                cold: (state == State::Cold).then(|| row.folders()),
            };
            let figures = turn::measure(&turn)?;
            let (name, answer) = (entry.contestant.name(), answer.get_or_insert(figures.answer));
            ensure!(
                figures.answer == *answer,
                "the answer of {name} is {:?}, that of an earlier turn {answer:?}",
                figures.answer
            );
            ensure!(figures.answer.count > 0, "{name} found nothing");
            eprint!(" {name} {:.3}s", figures.usage.real.as_secs_f64());
            entry.turns.push(figures);
        }
    }
    Ok(Measured { group: row.group.into(), name: row.name.clone(), state, entries })
}
