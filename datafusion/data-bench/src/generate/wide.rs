//! A table like that of ClickBench: page views with 105 columns, of which a query needs few. Most
//! columns are small numbers with few values; some are long texts.

use super::parquet_file::{self, Codec};
use anyhow::ensure;
use arrow::array::{ArrayRef, Date32Array, Int16Array, Int32Array, Int64Array, RecordBatch};
use arrow::array::{StringViewBuilder, TimestampMicrosecondArray};
use arrow::error::ArrowError;
use ringway_measure::random::{Random, mix};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Rows of a file.
const FILE: u64 = 1_000_000;
const BATCH: u64 = 8192;
/// The first moment of the table, 2026-01-01, in seconds since 1970.
const EPOCH: i64 = 1_767_225_600;
const DAY: i64 = 86_400;
/// Days that the whole table spans.
const DAYS: i64 = 31;
const WORDS: [&str; 16] = [
    "market", "weather", "search", "photo", "video", "city", "house", "travel", "music", "recipe",
    "garden", "school", "engine", "winter", "ticket", "letter",
];

/// What a column holds. Numbers below a bound are skewed: small ones are frequent.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The time of the view: it grows with the row.
    Time,
    /// The day of that time.
    Day,
    /// 1 in one of this many rows, else 0.
    Flag(u64),
    /// 16 bits, below this.
    Small(u64),
    /// 32 bits, below this.
    Medium(u64),
    /// 64 bits, one of this many.
    Id(u64),
    /// Words, one of this many texts, empty but in one of so many rows.
    Text { texts: u64, one_in: u64 },
    /// Addresses, one of this many.
    Address(u64),
}

/// The columns whose names queries use.
const NAMED: [(&str, Kind); 25] = [
    ("watch_id", Kind::Id(u64::MAX)),
    ("event_time", Kind::Time),
    ("event_date", Kind::Day),
    ("user_id", Kind::Id(2_000_000)),
    ("counter_id", Kind::Medium(6000)),
    ("client_ip", Kind::Medium(1_500_000)),
    ("region_id", Kind::Medium(5000)),
    ("counter_class", Kind::Small(3)),
    ("os", Kind::Small(90)),
    ("user_agent", Kind::Small(80)),
    ("url", Kind::Address(3_000_000)),
    ("referer", Kind::Address(2_000_000)),
    ("title", Kind::Text { texts: 1_000_000, one_in: 1 }),
    ("search_phrase", Kind::Text { texts: 600_000, one_in: 8 }),
    ("search_engine_id", Kind::Small(40)),
    ("adv_engine_id", Kind::Small(30)),
    ("is_refresh", Kind::Flag(7)),
    ("is_mobile", Kind::Flag(5)),
    ("is_download", Kind::Flag(300)),
    ("resolution_width", Kind::Small(2500)),
    ("resolution_height", Kind::Small(1600)),
    ("window_width", Kind::Small(2500)),
    ("mobile_phone_model", Kind::Text { texts: 160, one_in: 5 }),
    ("url_hash", Kind::Id(3_000_000)),
    ("send_timing", Kind::Medium(30_000)),
];
/// Kinds of the other columns, in turn.
const OTHERS: [Kind; 10] = [
    Kind::Flag(20),
    Kind::Small(200),
    Kind::Flag(1000),
    Kind::Medium(100_000),
    Kind::Text { texts: 2000, one_in: 20 },
    Kind::Flag(3),
    Kind::Small(30),
    Kind::Id(500_000),
    Kind::Medium(4000),
    Kind::Text { texts: 100, one_in: 100 },
];
/// Columns in all, as in ClickBench.
const COLUMNS: usize = 105;

/// Writes a table of this many rows into the empty `folder`: files of a million rows.
///
/// # Errors
///
/// No rows; those of writing files.
pub fn generate(folder: &Path, rows: u64, codec: Codec) -> anyhow::Result<()> {
    ensure!(rows > 0, "a table without rows");
    super::in_parallel(rows.div_ceil(FILE) as usize, |file| {
        let path = folder.join(format!("{file:03}.parquet"));
        let first = file as u64 * FILE;
        let end = rows.min(first + FILE);
        let batches = (first..end).step_by(BATCH as usize);
        let batches = batches.map(|first| batch(first..end.min(first + BATCH), rows));
        parquet_file::write(&path, codec, batches)
    })
}

/// The names and kinds of all columns.
fn columns() -> impl Iterator<Item = (String, Kind)> {
    let named = NAMED.into_iter().map(|(name, kind)| (name.to_owned(), kind));
    let others = OTHERS.into_iter().cycle().zip(NAMED.len()..COLUMNS);
    named.chain(others.map(|(kind, number)| (format!("detail_{number}"), kind)))
}

/// The rows of this range, of `of` rows in all.
fn batch(rows: Range<u64>, of: u64) -> Result<RecordBatch, ArrowError> {
    let column = |(number, (name, kind)): (usize, (String, Kind))| {
        let random = Random::new(mix(rows.start ^ mix(number as u64)));
        (name, array(kind, rows.clone(), of, random))
    };
    RecordBatch::try_from_iter(columns().enumerate().map(column))
}

fn array(kind: Kind, rows: Range<u64>, of: u64, mut random: Random) -> ArrayRef {
    let time = |row: u64| EPOCH + (u128::from(row) * (DAYS * DAY) as u128 / u128::from(of)) as i64;
    match kind {
        Kind::Time => Arc::new(TimestampMicrosecondArray::from_iter_values(
            rows.map(|row| time(row) * 1_000_000),
        )),
        Kind::Day => {
            Arc::new(Date32Array::from_iter_values(rows.map(|row| (time(row) / DAY) as i32)))
        }
        Kind::Flag(one_in) => Arc::new(Int16Array::from_iter_values(
            rows.map(|_| i16::from(random.below(one_in) == 0)),
        )),
        Kind::Small(bound) => {
            Arc::new(Int16Array::from_iter_values(rows.map(|_| skewed(&mut random, bound) as i16)))
        }
        Kind::Medium(bound) => {
            Arc::new(Int32Array::from_iter_values(rows.map(|_| skewed(&mut random, bound) as i32)))
        }
        Kind::Id(bound) => Arc::new(Int64Array::from_iter_values(
            rows.map(|_| mix(skewed(&mut random, bound)) as i64),
        )),
        Kind::Text { texts, one_in } => strings(rows, |text| {
            if random.below(one_in) == 0 {
                words(skewed(&mut random, texts), text);
            }
        }),
        Kind::Address(addresses) => strings(rows, |text| {
            let address = skewed(&mut random, addresses);
            let hash = mix(address);
            text.push_str("https://");
            text.push_str(WORDS[(address % 16) as usize]);
            text.push_str(".example/");
            words(hash, text);
            text.push_str(&format!("?id={address}"));
        }),
    }
}

/// A number below `bound`, small ones more often.
fn skewed(random: &mut Random, bound: u64) -> u64 {
    let bound = random.below(bound).max(1);
    random.below(bound)
}

/// Two to five words that the number determines.
fn words(number: u64, text: &mut String) {
    let mut rest = mix(number);
    for word in 0..2 + rest % 4 {
        rest /= 16;
        if word > 0 {
            text.push(' ');
        }
        text.push_str(WORDS[(rest % 16) as usize]);
    }
    text.push_str(&format!(" {number}"));
}

fn strings(rows: Range<u64>, mut write: impl FnMut(&mut String)) -> ArrayRef {
    let mut builder = StringViewBuilder::new();
    let mut text = String::new();
    for _ in rows {
        text.clear();
        write(&mut text);
        builder.append_value(&text);
    }
    Arc::new(builder.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_the_same_each_time_and_times_grow() {
        let rows = batch(8192..8292, 1_000_000).unwrap();
        assert_eq!((rows.num_columns(), rows.num_rows()), (COLUMNS, 100));
        assert_eq!(rows, batch(8192..8292, 1_000_000).unwrap());
        let times = rows.column(1).as_any().downcast_ref::<TimestampMicrosecondArray>().unwrap();
        assert!(times.values().is_sorted());
        assert!(times.value(0) >= EPOCH * 1_000_000);
    }

    #[test]
    fn numbers_are_below_their_bound_and_mostly_small() {
        let mut random = Random::new(1);
        let numbers: Vec<_> = (0..1000).map(|_| skewed(&mut random, 100)).collect();
        assert!(numbers.iter().all(|number| *number < 100));
        assert!(numbers.iter().filter(|number| **number < 50).count() > 700);
        assert_eq!(skewed(&mut random, 1), 0);
    }
}
