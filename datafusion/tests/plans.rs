//! Physical plans that a program builds itself, under the rule `OneVersion`.

use arrow::array::{Int64Array, RecordBatch};
use datafusion::config::ConfigOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use parquet::arrow::ArrowWriter;
use ringway_datafusion_tests::session;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The columns `a` and `b`, in one order or the other: the files have the same length.
fn batch(first: &str, second: &str) -> RecordBatch {
    let column = |name: &str| {
        let start = if name == "a" { 0 } else { 1000 };
        Arc::new(Int64Array::from_iter_values(start..start + 100)) as _
    };
    RecordBatch::try_from_iter([(first, column(first)), (second, column(second))]).unwrap()
}

fn write(path: &Path, rows: &RecordBatch) -> u64 {
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
    path.metadata().unwrap().len()
}

/// A scan of a file of which the program knows the length, and nothing else.
fn scan(path: &Path, len: u64, rows: &RecordBatch) -> Arc<dyn ExecutionPlan> {
    let source = Arc::new(ParquetSource::new(rows.schema()));
    let path = path.to_str().unwrap();
    let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
        .with_file(PartitionedFile::new(path, len))
        .build();
    DataSourceExec::from_data_source(config)
}

/// The session's plan for the program's one.
fn optimized(session: &SessionContext, plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let state = session.state();
    let rules = state.physical_optimizers();
    let rule = rules.last().unwrap();
    assert_eq!(rule.name(), "ringway_one_version");
    rule.optimize(plan, &ConfigOptions::default()).unwrap()
}

/// DataFusion's cache knows versions of a file by length and modification time, and such a scan
/// has no time.
#[tokio::test]
async fn a_scan_without_a_time_of_the_file_uses_no_cached_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let session = session::local(1);
    ringway_datafusion::register(&session);
    let mut lengths = Vec::new();
    for (first, second) in [("a", "b"), ("b", "a")] {
        let rows = batch(first, second);
        let len = write(&path, &rows);
        lengths.push(len);
        let scan = scan(&path, len, &rows);
        let plan = optimized(&session, scan.clone());
        assert!(!Arc::ptr_eq(&plan, &scan), "the rule applies");
        let found = collect(plan, session.task_ctx()).await.unwrap();
        assert_eq!(found, [rows]);
    }
    assert_eq!(lengths[0], lengths[1]);
}

#[tokio::test]
async fn a_plan_may_be_optimized_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let session = session::local(1);
    ringway_datafusion::register(&session);
    let rows = batch("a", "b");
    let once = optimized(&session, scan(&path, write(&path, &rows), &rows));
    let twice = optimized(&session, once.clone());
    assert!(Arc::ptr_eq(&once, &twice));
    assert_eq!(collect(twice, session.task_ctx()).await.unwrap(), [rows]);
}
