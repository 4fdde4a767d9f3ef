//! Folders of many small files, as collectors of measurements leave them: the same rows as Parquet
//! and as CSV.

use super::parquet_file::{self, Codec};
use anyhow::{Context, ensure};
use arrow::array::{Int32Array, Int64Array, RecordBatch, StringArray, TimestampSecondArray};
use arrow::csv::Writer;
use arrow::error::ArrowError;
use ringway_measure::random::{Random, mix};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// The least and the most rows of a file.
const ROWS: std::ops::Range<u64> = 200..1000;
/// 2026-01-01 in seconds since 1970.
const EPOCH: i64 = 1_767_225_600;
const STATES: [&str; 4] = ["ok", "ok, calibrated", "drift", "no signal"];

/// Writes this many files to each of `folder`/parquet and `folder`/csv.
///
/// # Errors
///
/// No files; those of writing files.
pub fn generate(folder: &Path, files: u64) -> anyhow::Result<()> {
    ensure!(files > 0, "a folder without files");
    let (parquet, csv) = (folder.join("parquet"), folder.join("csv"));
    for folder in [&parquet, &csv] {
        fs::create_dir(folder).with_context(|| folder.display().to_string())?;
    }
    super::in_parallel(files as usize, |file| {
        let rows = rows(file as u64)?;
        let path = csv.join(format!("{file:05}.csv"));
        let about = || path.display().to_string();
        let sink = File::create_new(&path).with_context(about)?;
        Writer::new(sink).write(&rows).with_context(about)?;
        let path = parquet.join(format!("{file:05}.parquet"));
        parquet_file::write(&path, Codec::Snappy, [Ok(rows)].into_iter())
    })
}

/// The rows of one file.
fn rows(file: u64) -> Result<RecordBatch, ArrowError> {
    let mut random = Random::new(mix(file));
    let count = ROWS.start + random.below(ROWS.end - ROWS.start);
    let start = EPOCH + file as i64 * 60;
    let times = (0..count as i64).map(|row| start + row / 10);
    let times = TimestampSecondArray::from_iter_values(times);
    let ids = Int64Array::from_iter_values((0..count).map(|row| (file * ROWS.end + row) as i64));
    let sensors = Int32Array::from_iter_values((0..count).map(|_| random.below(500) as i32));
    let values = Int64Array::from_iter_values((0..count).map(|_| random.below(1 << 20) as i64));
    let states = (0..count).map(|_| STATES[random.below(4) as usize]);
    let states = StringArray::from_iter_values(states);
    RecordBatch::try_from_iter([
        ("id", Arc::new(ids) as _),
        ("at", Arc::new(times) as _),
        ("sensor", Arc::new(sensors) as _),
        ("value", Arc::new(values) as _),
        ("state", Arc::new(states) as _),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_folders_have_the_same_rows() {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), 3).unwrap();
        for file in 0..3 {
            let count = rows(file).unwrap().num_rows();
            assert!(ROWS.contains(&(count as u64)), "{count}");
            let csv = fs::read_to_string(folder.path().join(format!("csv/{file:05}.csv"))).unwrap();
            assert_eq!(csv.lines().count(), 1 + count, "a heading and the rows");
            let parquet = folder.path().join(format!("parquet/{file:05}.parquet"));
            let parquet = File::open(parquet).unwrap();
            let reader =
                parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(parquet);
            let read: usize =
                reader.unwrap().build().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(read, count);
        }
    }
}
