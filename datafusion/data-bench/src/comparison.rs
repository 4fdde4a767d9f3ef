//! The parent process: measures each row, cold and cached, round by round with the contestants in
//! turn, and compares their answers.

use crate::contestant::Contestant;
use crate::suite::{self, Benchmark};
use crate::turn::{self, Assignment};
use anyhow::bail;
use ringway_measure::rounds::Row;
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
    pub state: State,
    #[serde(flatten)]
    pub row: Row,
}

/// Measures the rows in each of the states, and appends their figures to the results.
///
/// # Errors
///
/// Those of a turn; answers that differ between two turns of a row. The results have the rows
/// before it.
pub fn run(
    results: &mut Results,
    rows: &[suite::Row],
    states: &[State],
    contestants: &[Contestant],
    rounds: u32,
) -> anyhow::Result<()> {
    for state in states {
        for row in rows {
            eprintln!("{} {}", row.name, state.name());
            let named = contestants.iter().map(|one| (one.name(), *one)).collect();
            let measured = Row::measure(row.name.clone(), rounds, named, None, |contestant| {
                turn::measure(&Assignment {
                    contestant: *contestant,
                    work: row.work.clone(),
                    cold: (*state == State::Cold).then(|| row.folders()),
                })
            });
            if let Some((contestant, why)) = measured.left_out.first() {
                bail!("{} {}: {contestant}: {why}", row.name, state.name());
            }
            results.rows.push(Measured { group: row.group.into(), state: *state, row: measured });
        }
    }
    Ok(())
}
