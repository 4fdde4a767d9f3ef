//! `ParquetReader` next to parquet's own reader on `std::fs::File`: the same rows and the same
//! metadata on each backend, buffered and direct; how many reads and submissions it makes; errors,
//! clones and cancelled reads.

use arrow_array::builder::{BooleanBufferBuilder, StringBuilder};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch};
use futures_util::TryStreamExt;
use parquet::arrow::arrow_reader::{
    ArrowPredicateFn, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowFilter, RowSelection,
    RowSelector,
};
use parquet::arrow::async_reader::{AsyncFileReader, MetadataFetch, MetadataSuffixFetch};
use parquet::arrow::{ArrowWriter, ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::ParquetError;
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use ringway::fs::OpenOptions;
use ringway::{BackendKind, Coalesce, Engine};
use ringway_object_store::ParquetReader;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// An engine on each backend that this machine supports.
fn engines() -> impl Iterator<Item = Engine> {
    [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads].into_iter().filter_map(|kind| {
        match Engine::builder().shards(1).backend(kind).build() {
            Ok(engine) => Some(engine),
            Err(error) => {
                println!("skipped: {kind:?}: {error}");
                assert!(std::env::var_os("CI").is_none(), "skipped with CI set");
                None
            }
        }
    })
}

/// A directory on a file system with direct I/O.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Columns of several types. Strings are of any length, and some are null.
fn batch(rows: usize, seed: i64) -> RecordBatch {
    let numbers = || (0..rows as i64).map(move |row| row * 31 + seed);
    let mut names = StringBuilder::new();
    for number in numbers() {
        match number % 7 {
            0 => names.append_null(),
            _ => names.append_value("name ".repeat((number % 9) as usize) + &number.to_string()),
        }
    }
    let prices = Float64Array::from_iter(numbers().map(|n| (n % 5 != 0).then_some(n as f64 / 3.0)));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(numbers()))),
        ("name", Arc::new(names.finish())),
        ("price", Arc::new(prices)),
        (
            "group",
            Arc::new(Int64Array::from_iter(numbers().map(|n| (n % 3 > 0).then_some(n % 11)))),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Writes a file of this many rows, in row groups of 1000 rows and pages of 100.
fn write(dir: &Path, name: &str, rows: usize) -> PathBuf {
    let path = dir.join(name);
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(1000))
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(100)
        .set_dictionary_enabled(false)
        .set_bloom_filter_enabled(true)
        .build();
    let batch = batch(rows, 5);
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(&file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    // Dirty pages would be written back by the first direct read.
    file.sync_all().unwrap();
    path
}

async fn open(engine: &Engine, path: &Path, direct: bool) -> ParquetReader {
    let mut options = OpenOptions::new();
    let file = options.read(true).direct(direct).engine(engine).open(path).await.unwrap();
    ParquetReader::new(file).with_path(path)
}

/// What to read.
#[derive(Clone, Debug, Default)]
struct Scan {
    columns: Option<Vec<usize>>,
    row_groups: Option<Vec<usize>>,
    /// Rows to skip and to select in turn.
    selection: Option<Vec<usize>>,
    /// Keeps only rows with this value of column 3.
    group: Option<i64>,
    page_index: bool,
    batch_size: Option<usize>,
}

impl Scan {
    fn options(&self) -> ArrowReaderOptions {
        let policy =
            if self.page_index { PageIndexPolicy::Required } else { PageIndexPolicy::Skip };
        ArrowReaderOptions::new().with_page_index_policy(policy)
    }

    /// Applies it to a builder of either reader.
    fn apply<T>(
        &self,
        mut builder: parquet::arrow::arrow_reader::ArrowReaderBuilder<T>,
    ) -> parquet::arrow::arrow_reader::ArrowReaderBuilder<T> {
        let schema = builder.parquet_schema();
        let mask = |columns: &[usize]| ProjectionMask::leaves(schema, columns.iter().copied());
        let (columns, filter) = (self.columns.as_deref().map(mask), mask(&[3]));
        if let Some(columns) = columns {
            builder = builder.with_projection(columns);
        }
        if let Some(row_groups) = &self.row_groups {
            builder = builder.with_row_groups(row_groups.clone());
        }
        if let Some(selection) = &self.selection {
            let selectors = selection.iter().enumerate().map(|(index, rows)| match index % 2 {
                0 => RowSelector::skip(*rows),
                _ => RowSelector::select(*rows),
            });
            builder = builder.with_row_selection(RowSelection::from(selectors.collect::<Vec<_>>()));
        }
        if let Some(group) = self.group {
            let equals = move |batch: RecordBatch| {
                let values = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
                let mut equal = BooleanBufferBuilder::new(values.len());
                for value in values {
                    equal.append(value == Some(group));
                }
                Ok(BooleanArray::new(equal.finish(), None))
            };
            let predicate = Box::new(ArrowPredicateFn::new(filter, equals));
            builder = builder.with_row_filter(RowFilter::new(vec![predicate]));
        }
        if let Some(batch_size) = self.batch_size {
            builder = builder.with_batch_size(batch_size);
        }
        builder
    }

    /// The rows that parquet's own reader gives.
    fn expected(&self, path: &Path) -> Vec<RecordBatch> {
        let file = std::fs::File::open(path).unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, self.options());
        let batches = self.apply(builder.unwrap()).build().unwrap();
        batches.map(Result::unwrap).filter(|batch| batch.num_rows() > 0).collect()
    }

    async fn run(&self, reader: ParquetReader) -> Result<Vec<RecordBatch>, ParquetError> {
        let builder = ParquetRecordBatchStreamBuilder::new_with_options(reader, self.options());
        let batches = self.apply(builder.await?).build()?;
        batches.try_filter(|batch| std::future::ready(batch.num_rows() > 0)).try_collect().await
    }
}

/// The rows of batches one after the other, however they are divided.
fn rows(batches: &[RecordBatch]) -> Vec<RecordBatch> {
    batches.iter().flat_map(|all| (0..all.num_rows()).map(|row| all.slice(row, 1))).collect()
}

#[tokio::test]
async fn bloom_filters_and_dictionaries_are_read() {
    let dir = scratch();
    let path = write(dir.path(), "some.parquet", 1500);
    for engine in engines() {
        let reader = open(&engine, &path, true).await;
        let mut builder = ParquetRecordBatchStreamBuilder::new(reader).await.unwrap();
        let filter = builder.get_row_group_column_bloom_filter(1, 0).await.unwrap().unwrap();
        assert!(filter.check(&(1200 * 31 + 5i64)));
        assert!((0..100).any(|row| !filter.check(&(row * 31 + 6i64))));
    }
}

/// Direct reads are never answered by the page cache, so operations and submissions show each of
/// them.
#[tokio::test]
async fn a_row_group_is_one_submission() {
    let dir = scratch();
    let path = write(dir.path(), "some.parquet", 3000);
    for engine in engines() {
        let reader = open(&engine, &path, true).await.with_coalesce(Coalesce::never());
        let size = std::fs::metadata(&path).unwrap().len();
        let before = engine.stats();
        let scan = Scan {
            columns: Some(vec![0, 1]),
            // A page of the first row group, two that are not neighbours of the second.
            selection: Some(vec![150, 20, 1000, 10, 400, 10]),
            page_index: true,
            ..Scan::default()
        };
        let builder = ParquetRecordBatchStreamBuilder::new_with_options(
            reader.clone().with_file_size(size),
            scan.options(),
        );
        let builder = builder.await.unwrap();
        let metadata = engine.stats();
        assert_eq!(metadata.counts.pushed - before.counts.pushed, 1, "one read for all metadata");
        let mut batches = scan.apply(builder).build().unwrap();
        let mut submissions = Vec::new();
        let mut last = metadata;
        while let Some(batch) = batches.next_row_group().await.unwrap() {
            let now = engine.stats();
            submissions.push((
                now.batches.count - last.batches.count,
                now.counts.pushed - last.counts.pushed,
            ));
            last = now;
            assert!(batch.map(Result::unwrap).map(|batch| batch.num_rows()).sum::<usize>() > 0);
        }
        assert_eq!(submissions.len(), 2, "the third row group is not selected");
        for (count, operations) in submissions {
            assert_eq!(count, 1, "{:?}: {operations} operations", engine.backend());
            assert!((2..=4).contains(&operations), "pages only: {operations} operations");
        }
    }
}

#[tokio::test]
async fn metadata_takes_few_reads() {
    let dir = scratch();
    let path = write(dir.path(), "some.parquet", 2500);
    let size = std::fs::metadata(&path).unwrap().len();
    let Some(engine) = engines().next() else { return };
    let operations = async |mut reader: ParquetReader, options: &ArrowReaderOptions| {
        let before = engine.stats().counts.pushed;
        let metadata = reader.get_metadata(Some(options)).await.unwrap();
        (engine.stats().counts.pushed - before, metadata)
    };
    let reader = open(&engine, &path, true).await;
    let plain = ArrowReaderOptions::new();
    let index = plain.clone().with_page_index_policy(PageIndexPolicy::Required);
    let sized = reader.clone().with_file_size(size);
    let (reads, metadata) = operations(sized.clone(), &plain).await;
    assert_eq!((reads, metadata.page_index().is_some()), (1, false));
    let (reads, metadata) = operations(sized.clone(), &index).await;
    assert_eq!((reads, metadata.page_index().is_some()), (1, true));
    // The footer's length, the footer, the page index.
    assert_eq!(operations(sized.clone().with_footer_size_hint(0), &index).await.0, 3);
    let (reads, metadata) =
        operations(sized.with_page_index_policy(PageIndexPolicy::Optional), &plain).await;
    assert_eq!((reads, metadata.page_index().is_some()), (1, true), "the reader's own policy");
    let (reads, other) = operations(reader, &index).await;
    assert!(reads <= 2, "the size and one read");
    assert_eq!(other, metadata);
}

#[tokio::test]
async fn bytes_are_fetched_from_either_end() {
    let dir = scratch();
    let path = dir.path().join("bytes");
    let content: Vec<u8> = (0..20_000u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    for engine in engines() {
        let mut reader = open(&engine, &path, false).await;
        let mut fetch = &mut reader;
        assert_eq!(fetch.fetch(5..9).await.unwrap(), content[5..9]);
        assert_eq!(fetch.fetch_suffix(100).await.unwrap(), content[19_900..]);
        assert_eq!(fetch.fetch_suffix(1 << 20).await.unwrap(), content);
        let ranges = vec![7000..7000, 19_000..20_000, 3..5, 0..12_000, 3..5];
        let found = reader.get_byte_ranges(ranges.clone()).await.unwrap();
        for (range, bytes) in ranges.into_iter().zip(found) {
            assert_eq!(bytes, content[range.start as usize..range.end as usize]);
        }
    }
}

/// The I/O error in an error of parquet.
fn io_error(error: &ParquetError) -> &std::io::Error {
    match error {
        ParquetError::External(error) => error.downcast_ref().unwrap(),
        other => panic!("not an I/O error: {other}"),
    }
}

#[tokio::test]
async fn errors_name_the_file() {
    let dir = scratch();
    let path = write(dir.path(), "some.parquet", 1500);
    let name = path.display().to_string();
    let error = ParquetReader::open(dir.path().join("none")).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(
        error.to_string().ends_with("/none: No such file or directory (os error 2)"),
        "{error}"
    );
    let load = async |path: &Path| {
        let mut reader = ParquetReader::open(path).await.unwrap();
        reader.get_metadata(None).await.unwrap_err()
    };
    let error = load(dir.path()).await;
    assert_eq!(io_error(&error).kind(), std::io::ErrorKind::IsADirectory);
    let empty = dir.path().join("empty");
    for (content, text) in [
        (&b""[..], "empty: file size of 0 is less than footer"),
        (b"PAR1", "empty: file size of 4 is less than footer"),
        (&[b'x'; 100], "empty: Invalid Parquet file. Corrupt footer"),
        (b"0123\xff\0\0\0PAR1", "empty: file size of 12 is less than footer + metadata"),
        (b"0123\x04\0\0\0PAR1", "empty: "),
    ] {
        std::fs::write(&empty, content).unwrap();
        let error = load(&empty).await.to_string();
        assert!(error.contains(text), "{error}");
    }
    // The file shrinks between the metadata and the data.
    let reader = ParquetReader::open(&path).await.unwrap();
    let builder = ParquetRecordBatchStreamBuilder::new(reader.clone()).await.unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1000).unwrap();
    let error = builder.build().unwrap().try_collect::<Vec<_>>().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("of {name}: the file ends at 1000")), "{text}");
    let error = reader.clone().get_bytes(990..1010).await.unwrap_err();
    assert_eq!(io_error(&error).kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(
        error.to_string(),
        format!("External: read 990..1010 of {name}: the file ends at 1000")
    );
    // A size that is not the file's.
    let error = reader.clone().with_file_size(5000).get_metadata(None).await.unwrap_err();
    assert!(error.to_string().contains("the file ends at 1000"), "{error}");
    let reversed = std::ops::Range { start: 10, end: 5 };
    for range in [reversed, u64::MAX - 5..u64::MAX] {
        let error = reader.clone().get_bytes(range.clone()).await.unwrap_err();
        assert_eq!(io_error(&error).kind(), std::io::ErrorKind::InvalidInput);
        let error = reader.clone().get_byte_ranges(vec![0..5, range]).await.unwrap_err();
        assert_eq!(io_error(&error).kind(), std::io::ErrorKind::InvalidInput);
    }
    // As damaged metadata may want it.
    for end in [1 << 40, 1 << 47, i64::MAX as u64] {
        for error in [
            reader.clone().get_bytes(5..end).await.unwrap_err(),
            reader.clone().get_byte_ranges(vec![0..5, 5..end]).await.unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(text.contains(&format!("of {name}: ")), "{text}");
        }
    }
    // The errno is that of the source.
    let write_only = ringway::fs::File::from_std(file).unwrap();
    let error = ParquetReader::new(write_only).get_bytes(0..5).await.unwrap_err();
    assert_eq!(error.to_string(), "External: read 0..5: Bad file descriptor (os error 9)");
    let source = std::error::Error::source(io_error(&error).get_ref().unwrap()).unwrap();
    assert_eq!(source.downcast_ref::<std::io::Error>().unwrap().raw_os_error(), Some(9));
}

#[tokio::test]
async fn a_dropped_scan_leaves_nothing_behind() {
    let dir = scratch();
    let path = write(dir.path(), "some.parquet", 3000);
    for engine in engines() {
        let scan = Scan::default();
        // Dropped at each of its polls in turn, until one runs to its end.
        for most in 1.. {
            let reader = open(&engine, &path, true).await;
            let mut run = pin!(scan.run(reader));
            let mut polls = 0;
            let over = std::future::poll_fn(|cx| {
                polls += 1;
                match run.as_mut().poll(cx) {
                    Poll::Ready(rows) => Poll::Ready(Some(rows.unwrap())),
                    Poll::Pending if polls >= most => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            });
            if over.await.is_some() {
                break;
            }
        }
        // A read that is only polled once, and whose future is dropped with the read in flight.
        let mut reader = open(&engine, &path, true).await;
        let mut read = reader.get_byte_ranges(vec![0..100, 30_000..40_000]);
        let _ = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(read);
        drop(reader);
        // The engine waits for cancelled reads in the background.
        loop {
            let stats = engine.stats();
            if stats.counts.in_flight == 0 && stats.pool.in_use == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any scan of a file of any number of rows.
    #[test]
    fn any_scan_is_that_of_parquets_reader(
        size in 0usize..2500,
        columns in proptest::option::of(proptest::sample::subsequence(vec![0, 1, 2, 3], 1..=4)),
        cuts in proptest::option::of(proptest::collection::vec(1usize..600, 1..6)),
        group in proptest::option::of(0i64..11),
        page_index: bool,
        batch_size in 1usize..2000,
        direct: bool,
        gap in 0u64..100_000,
        hint in 0usize..40_000,
    ) {
        let dir = scratch();
        let path = write(dir.path(), "any.parquet", size);
        // A selection must not be longer than the file.
        let selection = cuts.filter(|cuts| cuts.iter().sum::<usize>() <= size);
        let batch_size = Some(batch_size);
        let scan = Scan { columns, selection, group, page_index, batch_size, row_groups: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found = runtime.block_on(async {
            let reader = open(Engine::global().unwrap(), &path, direct).await;
            let coalesce = Coalesce::default().max_gap(gap).max_amplification(f64::INFINITY);
            scan.run(reader.with_coalesce(coalesce).with_footer_size_hint(hint)).await
        });
        prop_assert_eq!(rows(&found.unwrap()), rows(&scan.expected(&path)));
    }
}
