//! The rows of the comparison, and how options select them.

use crate::options::Options;
use crate::workload::{Operation, Workload};
use anyhow::ensure;
use ringway_core::refusal::bytes_text;
use ringway_measure::offsets::Order;

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

const READERS: [usize; 6] = [1, 32, 128, 1000, 10_000, 100_000];
/// Each write waits for the disk, so more writers would only wait longer.
const WRITERS: [usize; 4] = [1, 32, 128, 1000];
/// The most bytes of all buffers of a row.
const MOST_BUFFERS: usize = 1 << 30;

/// Rows to measure, and rows that cannot be measured with the reason.
pub type Rows = (Vec<Workload>, Vec<(Workload, String)>);

/// The rows that the options select.
pub fn selected(options: &Options) -> anyhow::Result<Rows> {
    let all = if options.all || !options.only.is_empty() { every() } else { main_rows() };
    let (rows, too_large): (Vec<_>, Vec<_>) = all
        .into_iter()
        .filter(|row| matches(row, &options.only))
        .partition(|row| row.buffers() <= MOST_BUFFERS);
    ensure!(
        !rows.is_empty() || !too_large.is_empty(),
        "no row has these words: {}; see compare/README.md for the rows",
        options.only.join(" or ")
    );
    let reason =
        |row: Workload| (row, format!("its buffers need {}", bytes_text(row.buffers() as u64)));
    Ok((rows, too_large.into_iter().map(reason).collect()))
}

/// The rows that have these words.
pub fn rows(words: &str) -> Vec<Workload> {
    let mut rows = every();
    rows.retain(|row| matches(row, &[words.into()]));
    rows
}

/// The only row that has these words.
pub fn row(words: &str) -> anyhow::Result<Workload> {
    let rows = rows(words);
    ensure!(rows.len() == 1, "{} rows have these words: {words}; give words of one", rows.len());
    Ok(rows[0])
}

/// The rows that have a target.
pub fn main_rows() -> Vec<Workload> {
    let mut rows: Vec<_> = null().collect();
    rows.push(Workload::polls());
    rows.extend([1, 32, 128, 1000, 100_000].map(|readers| Workload::reads(4 * KIB, true, readers)));
    for block in [4 * KIB, 64 * KIB, MIB] {
        rows.extend([1, 32].map(|readers| Workload::reads(block, false, readers)));
    }
    rows.extend(mixed());
    rows
}

/// The rows that are neither plain reads nor plain writes.
fn mixed() -> Vec<Workload> {
    let mut rows = vec![Workload::ranges(), Workload::sum()];
    rows.extend(streams());
    rows.extend(busy());
    rows.push(Workload::puts());
    rows
}

/// Reads on the null backend, which show what the engine and the runtime cost.
pub fn null() -> impl Iterator<Item = Workload> {
    [2, 1]
        .into_iter()
        .flat_map(|workers| [1, 32, 128, 1000].map(|readers| Workload::null(workers, readers)))
}

/// Readers next to a worker that computes.
pub fn busy() -> [Workload; 3] {
    [Operation::Busy, Operation::BlockOn, Operation::Submitted].map(Workload::busy)
}

/// Timers and small reads next to streams.
pub fn streams() -> [Workload; 4] {
    let timer = |readers| Workload::streams(Operation::Timer, readers);
    let small = Workload::streams(Operation::Small, 200);
    [timer(2), timer(64), small, Workload::streams(Operation::Cold, 1)]
}

fn every() -> Vec<Workload> {
    let mut rows: Vec<_> = null().collect();
    rows.push(Workload::polls());
    for direct in [true, false] {
        for block in [4 * KIB, 64 * KIB, MIB] {
            for order in [Order::Random, Order::Sequential] {
                let row = |readers| Workload { order, ..Workload::reads(block, direct, readers) };
                rows.extend(READERS.map(row));
            }
        }
        let operation = Operation::Write;
        let row = |readers| Workload { operation, ..Workload::reads(4 * KIB, direct, readers) };
        rows.extend(WRITERS.map(row));
    }
    rows.extend(mixed());
    rows
}

/// Whether a row has all words of one of the choices. Without choices, every row matches.
fn matches(row: &Workload, choices: &[String]) -> bool {
    let words = row.words();
    let has_all = |choice: &String| {
        choice.split([',', ' ']).all(|wanted| words.iter().any(|word| word == wanted))
    };
    choices.is_empty() || choices.iter().any(has_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_select_rows() {
        let row = Workload::reads(4 * KIB, true, 128);
        assert!(matches(&row, &[]));
        assert!(matches(&row, &["ranges".into(), "4k,direct,128".into()]));
        assert!(!matches(&row, &["4k,cached".into()]));
    }

    #[test]
    fn the_whole_matrix_has_the_main_rows() {
        let every = every();
        assert!(main_rows().iter().all(|row| every.contains(row)));
    }
}
