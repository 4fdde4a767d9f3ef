//! Which rows there are.

use crate::options::Options;
use crate::shape::{Order, Shape, Work, size};
use anyhow::ensure;

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

const READERS: [usize; 6] = [1, 32, 128, 1000, 10_000, 100_000];
/// Each write waits for the disk to have it: more of them only wait longer.
const WRITERS: [usize; 4] = [1, 32, 128, 1000];
/// What all buffers of a row may take.
const MOST_BUFFERS: usize = 1 << 30;

/// Rows, and those that cannot be had, with the reason.
pub type Rows = (Vec<Shape>, Vec<(Shape, String)>);

/// The rows that were asked for.
pub fn chosen(options: &Options) -> anyhow::Result<Rows> {
    let all = if options.all || !options.only.is_empty() { every() } else { main_rows() };
    let (rows, too_large): (Vec<_>, Vec<_>) = all
        .into_iter()
        .filter(|shape| matches(shape, &options.only))
        .partition(|row| row.buffers() <= MOST_BUFFERS);
    ensure!(
        !rows.is_empty() || !too_large.is_empty(),
        "no row has these words: {}",
        options.only.join(" or ")
    );
    let why = |row: Shape| (row, format!("its buffers would take {}", size(row.buffers() as u64)));
    Ok((rows, too_large.into_iter().map(why).collect()))
}

/// The one row that has these words.
pub fn row(words: &str) -> anyhow::Result<Shape> {
    let mut rows = every();
    rows.retain(|row| matches(row, &[words.into()]));
    ensure!(rows.len() == 1, "{} rows have these words: {words}", rows.len());
    Ok(rows[0])
}

/// Those that have a target.
pub fn main_rows() -> Vec<Shape> {
    let mut rows: Vec<_> = null().collect();
    rows.push(Shape::polls());
    rows.extend([1, 32, 128, 1000, 100_000].map(|readers| Shape::reads(4 * KIB, true, readers)));
    for block in [4 * KIB, 64 * KIB, MIB] {
        rows.extend([1, 32].map(|readers| Shape::reads(block, false, readers)));
    }
    rows.extend(mixed());
    rows
}

/// What is no plain read or write.
fn mixed() -> Vec<Shape> {
    let mut rows = vec![Shape::ranges(), Shape::sum()];
    rows.extend(streams());
    rows.extend(busy());
    rows.push(Shape::puts());
    rows
}

/// The null backend: what is left is what the engine and the runtime cost.
pub fn null() -> impl Iterator<Item = Shape> {
    [2, 1]
        .into_iter()
        .flat_map(|workers| [1, 32, 128, 1000].map(|readers| Shape::null(workers, readers)))
}

/// Readers beside a worker that computes.
pub fn busy() -> [Shape; 3] {
    [Work::Busy, Work::BlockOn, Work::Submitted].map(Shape::busy)
}

/// What runs beside streams.
pub fn streams() -> [Shape; 4] {
    let timer = |readers| Shape::streams(Work::Timer, readers);
    [timer(2), timer(64), Shape::streams(Work::Small, 200), Shape::streams(Work::Cold, 1)]
}

fn every() -> Vec<Shape> {
    let mut rows: Vec<_> = null().collect();
    rows.push(Shape::polls());
    for direct in [true, false] {
        for block in [4 * KIB, 64 * KIB, MIB] {
            for order in [Order::Random, Order::Sequential] {
                let row = |readers| Shape { work: Work::Read, block, direct, readers, order };
                rows.extend(READERS.map(row));
            }
        }
        rows.extend(
            WRITERS.map(|readers| Shape {
                work: Work::Write,
                ..Shape::reads(4 * KIB, direct, readers)
            }),
        );
    }
    rows.extend(mixed());
    rows
}

/// Whether a row has all words of one of the choices; without a choice, each has.
fn matches(shape: &Shape, choices: &[String]) -> bool {
    let words = shape.words();
    let has = |choice: &String| {
        choice.split([',', ' ']).all(|word| words.iter().any(|of_row| of_row == word))
    };
    choices.is_empty() || choices.iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose_rows() {
        let row = Shape::reads(4 * KIB, true, 128);
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
