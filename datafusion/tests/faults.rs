//! Files that change, vanish or cannot be read during a query: an error with the file's path, or
//! the answer of the file as it was; never anything else.

use anyhow::Result;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use futures::StreamExt;
use ringway_datafusion::RingwayFileSystem;
use ringway_datafusion::ringway::{BackendKind, Engine, FaultPlan};
use ringway_datafusion_tests::{Answer, files, session, user};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Rows of each of the two files.
const ROWS: i64 = 20 * files::ROW_GROUP as i64;

/// A table of two files, and a session that reads them one after the other.
struct Table {
    folder: TempDir,
    session: SessionContext,
    engine: Engine,
}

impl Table {
    async fn new(engine: Engine, direct: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        files::write_numbers(&folder.path().join("1.parquet"), 0..ROWS)?;
        files::write_numbers(&folder.path().join("2.parquet"), ROWS..2 * ROWS)?;
        let session = SessionContext::new_with_config(
            SessionConfig::new().with_target_partitions(1).with_batch_size(files::ROW_GROUP),
        );
        let store = RingwayFileSystem::new().with_engine(&engine).with_direct(direct);
        ringway_datafusion::register_store(&session, store);
        let path = folder.path().to_str().unwrap();
        session.register_parquet("numbers", path, ParquetReadOptions::default()).await?;
        Ok(Self { folder, session, engine })
    }

    async fn on_default_engine() -> Result<Self> {
        Self::new(Engine::builder().build()?, false).await
    }

    fn file(&self, number: u32) -> PathBuf {
        self.folder.path().join(format!("{number}.parquet"))
    }

    /// Starts reading all rows and takes the first batch, of the first file.
    async fn start(&self) -> Result<(SendableRecordBatchStream, i64)> {
        let mut stream = self.session.sql("SELECT * FROM numbers").await?.execute_stream().await?;
        let first = stream.next().await.unwrap()?;
        Ok((stream, sum(&first)))
    }

    /// Reads the rest; the sum of all numbers, or the error.
    async fn rest(&self, mut stream: SendableRecordBatchStream, first: i64) -> Result<i64> {
        let mut total = first;
        let mut result = Ok(());
        while let Some(batch) = stream.next().await {
            match batch {
                Ok(batch) => total += sum(&batch),
                Err(error) => result = result.and(Err(error)),
            }
        }
        drop(stream);
        session::idle(&self.engine).await?;
        result?;
        Ok(total)
    }
}

fn sum(batch: &RecordBatch) -> i64 {
    batch.column(0).as_primitive::<Int64Type>().values().iter().sum()
}

/// The sum of all numbers.
fn all() -> i64 {
    (0..2 * ROWS).sum()
}

fn assert_names(result: Result<i64>, file: &Path, cause: &str) {
    let error = format!("{:#}", result.expect_err("the file was changed"));
    let file = file.to_str().unwrap().trim_start_matches('/');
    assert!(error.contains(file) && error.contains(cause), "{error}");
}

#[tokio::test]
async fn a_file_replaced_before_it_is_opened_is_an_error() {
    let table = Table::on_default_engine().await.unwrap();
    let (stream, first) = table.start().await.unwrap();
    // As many rows, so that only its identity differs.
    let staged = table.folder.path().join("staged");
    files::write_numbers(&staged, 3 * ROWS..4 * ROWS).unwrap();
    fs::rename(staged, table.file(2)).unwrap();
    let result = table.rest(stream, first).await;
    assert_names(result, &table.file(2), "the file has changed since it was listed");
}

#[tokio::test]
async fn a_file_replaced_while_it_is_open_is_read_as_it_was() {
    let table = Table::on_default_engine().await.unwrap();
    let (stream, first) = table.start().await.unwrap();
    let staged = table.folder.path().join("staged");
    files::write_numbers(&staged, 3 * ROWS..4 * ROWS).unwrap();
    fs::rename(staged, table.file(1)).unwrap();
    assert_eq!(table.rest(stream, first).await.unwrap(), all());
}

#[tokio::test]
async fn a_truncated_file_is_an_error() {
    // The file that is open, and the one that is opened after it.
    for file in [1, 2] {
        let table = Table::on_default_engine().await.unwrap();
        let (stream, first) = table.start().await.unwrap();
        let truncated = fs::OpenOptions::new().write(true).open(table.file(file)).unwrap();
        truncated.set_len(10).unwrap();
        let result = table.rest(stream, first).await;
        assert_names(result, &table.file(file), "changed since it was listed");
    }
}

#[tokio::test]
async fn a_removed_file_is_an_error() {
    let table = Table::on_default_engine().await.unwrap();
    let (stream, first) = table.start().await.unwrap();
    fs::remove_file(table.file(2)).unwrap();
    let result = table.rest(stream, first).await;
    assert_names(result, &table.file(2), "not found");
}

#[test]
fn an_unreadable_file_is_an_error() {
    user::as_ordinary("faults::an_unreadable_file_is_an_error", || {
        Runtime::new().unwrap().block_on(async {
            let table = Table::on_default_engine().await.unwrap();
            let (stream, first) = table.start().await.unwrap();
            fs::set_permissions(table.file(2), fs::Permissions::from_mode(0o000)).unwrap();
            let result = table.rest(stream, first).await;
            assert_names(result, &table.file(2), "Permission denied");
        });
    });
}

#[tokio::test]
async fn a_file_that_becomes_a_loop_of_links_is_an_error() {
    let table = Table::on_default_engine().await.unwrap();
    let (stream, first) = table.start().await.unwrap();
    fs::remove_file(table.file(2)).unwrap();
    std::os::unix::fs::symlink(table.file(2), table.file(2)).unwrap();
    let result = table.rest(stream, first).await;
    assert_names(result, &table.file(2), "Too many levels of symbolic links");
}

/// A device error in each read of a query in turn, on each backend.
#[tokio::test]
async fn a_device_error_is_an_error() {
    for backend in session::BACKENDS {
        let mut failed = 0;
        for read in (0..).step_by(7) {
            let plan: FaultPlan = format!("fail=read.{read}/EIO").parse().unwrap();
            let builder = Engine::builder().shards(1).try_cached(false).faults(plan);
            let Some(engine) = session::build(backend, builder) else { break };
            let result = read_all(engine, backend).await;
            match result {
                Ok(sum) if sum == all() => break,
                Ok(sum) => panic!("{backend:?}, read {read}: the sum is {sum}"),
                Err(error) => {
                    let error = format!("{error:#}");
                    assert!(error.contains(".parquet"), "{backend:?}, read {read}: {error}");
                    assert!(error.contains("Input/output error"), "{backend:?}: {error}");
                    failed += 1;
                }
            }
        }
        println!("{backend:?}: {failed} reads failed");
    }
}

async fn read_all(engine: Engine, backend: BackendKind) -> Result<i64> {
    // Linux AIO reads only direct files in the kernel.
    let table = Table::new(engine, backend == BackendKind::Kaio).await?;
    let (stream, first) = table.start().await?;
    table.rest(stream, first).await
}

/// A file that is replaced between two queries: the second one reads the new file, or says that it
/// has changed (DataFusion caches lists of files).
#[tokio::test]
async fn a_file_replaced_between_queries_is_no_wrong_answer() {
    let table = Table::on_default_engine().await.unwrap();
    let query = "SELECT sum(id) AS total FROM numbers";
    let before = Answer::of(&table.session, query).await.unwrap();
    assert_eq!(before.rows, [[all().to_string()]]);
    let staged = table.folder.path().join("staged");
    files::write_numbers(&staged, 3 * ROWS..4 * ROWS).unwrap();
    fs::rename(staged, table.file(2)).unwrap();
    let new: i64 = (0..ROWS).chain(3 * ROWS..4 * ROWS).sum();
    match Answer::of(&table.session, query).await {
        Ok(answer) => assert_eq!(answer.rows, [[new.to_string()]]),
        Err(error) => assert_names(Err(error), &table.file(2), "changed since it was listed"),
    }
}
