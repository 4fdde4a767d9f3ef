//! Files that are replaced, rewritten, added or removed between queries.

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use ringway_datafusion::LISTING_TTL;
use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// DataFusion answers it from statistics.
const STATISTICS: &str = "SELECT count(*), min(a), max(a) FROM t";
/// DataFusion reads the files.
const SCAN: &str = "SELECT sum(a), sum(b) FROM t";
/// Far more than a time to live, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The table `t`: a folder of Parquet files.
struct Table {
    folder: TempDir,
    session: SessionContext,
}

impl Table {
    /// A table of the file `1`, with the numbers 1 to 9 in column `a`.
    async fn new(session: SessionContext) -> Self {
        let table = Self { folder: tempfile::tempdir().unwrap(), session };
        write(&table.file(1), "a, a + 100 AS b", 1..=9).await;
        let folder = table.folder.path().to_str().unwrap();
        let options = ParquetReadOptions::default();
        table.session.register_parquet("t", folder, options).await.unwrap();
        table
    }

    fn file(&self, number: u32) -> PathBuf {
        self.folder.path().join(format!("{number}.parquet"))
    }

    /// Replaces a file by one with these numbers, or adds it.
    async fn replace(&self, number: u32, a: RangeInclusive<i64>) {
        let staged = self.folder.path().join("staged.tmp");
        write(&staged, "a, a + 100 AS b", a).await;
        fs::rename(staged, self.file(number)).unwrap();
    }

    async fn query(&self, sql: &str) -> Result<String> {
        query(&self.session, sql).await
    }

    /// Repeats the query until this is the answer. Until then it is the old one, or the error of a
    /// file that has changed.
    async fn becomes(&self, sql: &str, old: &str, new: &str) {
        let start = Instant::now();
        loop {
            match self.query(sql).await {
                Ok(answer) if answer == new => return,
                Ok(answer) => assert_eq!(answer, old),
                Err(error) => assert_changed(&error.to_string()),
            }
            assert!(start.elapsed() < PATIENCE, "{sql}: not {new}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn assert_changed(error: &str) {
    assert!(error.contains(".parquet"), "{error}");
    let changed = "the file has changed since it was listed; the next query lists it again";
    assert!(error.contains(changed) || error.contains("not found"), "{error}");
}

/// Writes a Parquet file with a session of its own.
async fn write(path: &Path, columns: &str, a: RangeInclusive<i64>) {
    let (first, last, path) = (a.start(), a.end(), path.display());
    let rows = format!("SELECT {columns} FROM generate_series({first}, {last}) AS n(a)");
    let copy = format!("COPY ({rows}) TO '{path}' STORED AS PARQUET");
    query(&SessionContext::new(), &copy).await.unwrap();
}

/// The values of the only row.
async fn query(session: &SessionContext, sql: &str) -> Result<String> {
    let table = pretty_format_batches(&session.sql(sql).await?.collect().await?)?.to_string();
    Ok(table.lines().nth(3).unwrap().split(['|', ' ']).filter(|v| !v.is_empty()).fold(
        String::new(),
        |row, value| {
            if row.is_empty() { value.to_owned() } else { format!("{row} {value}") }
        },
    ))
}

fn registered() -> SessionContext {
    let session = SessionContext::new();
    ringway_datafusion::register(&session);
    session
}

/// A session whose program wants each list for an hour.
fn with_long_ttl() -> SessionContext {
    let hour = Duration::from_secs(3600);
    let runtime = RuntimeEnvBuilder::new().with_object_list_cache_ttl(Some(hour));
    let runtime = runtime.build_arc().unwrap();
    let session = SessionContext::new_with_config_rt(SessionConfig::new(), runtime.clone());
    ringway_datafusion::register(&session);
    assert_eq!(runtime.cache_manager.get_list_files_cache_ttl(), Some(hour));
    session
}

#[tokio::test]
async fn statistics_are_no_older_than_the_time_to_live() {
    let table = Table::new(registered()).await;
    assert_eq!(table.query(STATISTICS).await.unwrap(), "9 1 9");
    table.replace(1, 11..=30).await;
    table.becomes(STATISTICS, "9 1 9", "20 11 30").await;
    // Another length of the same inode.
    write(&table.file(3), "a, a + 100 AS b", 41..=90).await;
    fs::write(table.file(1), fs::read(table.file(3)).unwrap()).unwrap();
    fs::remove_file(table.file(3)).unwrap();
    table.becomes(STATISTICS, "20 11 30", "50 41 90").await;
    table.replace(2, 1..=1).await;
    table.becomes(STATISTICS, "50 41 90", "51 1 90").await;
    fs::remove_file(table.file(1)).unwrap();
    table.becomes(STATISTICS, "51 1 90", "1 1 1").await;
}

#[tokio::test]
async fn a_scan_reads_the_new_files() {
    let table = Table::new(registered()).await;
    assert_eq!(table.query(SCAN).await.unwrap(), "45 945");
    table.replace(1, 1..=10).await;
    table.becomes(SCAN, "an error", "55 1055").await;
    table.replace(2, 1..=1).await;
    table.becomes(SCAN, "55 1055", "56 1156").await;
    fs::remove_file(table.file(1)).unwrap();
    table.becomes(SCAN, "an error", "1 101").await;
}

/// Whatever the time to live is.
#[tokio::test]
async fn a_scan_that_finds_another_version_fails_once() {
    let table = Table::new(with_long_ttl()).await;
    table.replace(2, 10..=11).await;
    // Registering the table has listed its files.
    assert_eq!(table.query(STATISTICS).await.unwrap(), "9 1 9");
    table.replace(1, 1..=8).await;
    assert_eq!(table.query(STATISTICS).await.unwrap(), "9 1 9");
    assert_changed(&table.query(SCAN).await.unwrap_err().to_string());
    assert_eq!(table.query(SCAN).await.unwrap(), "57 1057");
    assert_eq!(table.query(STATISTICS).await.unwrap(), "10 1 11");
    fs::remove_file(table.file(2)).unwrap();
    assert_changed(&table.query(SCAN).await.unwrap_err().to_string());
    assert_eq!(table.query(SCAN).await.unwrap(), "36 836");
    assert_eq!(table.query(STATISTICS).await.unwrap(), "8 1 8");
}

/// The files' footers differ, their lengths and times do not.
#[tokio::test]
async fn metadata_of_another_version_is_not_used() {
    let table = Table::new(with_long_ttl()).await;
    assert_eq!(table.query(SCAN).await.unwrap(), "45 945");
    let listed = table.file(1).metadata().unwrap();
    let staged = table.folder.path().join("staged.tmp");
    write(&staged, "a + 100 AS b, a", 1..=9).await;
    let file = File::options().write(true).open(&staged).unwrap();
    file.set_modified(listed.modified().unwrap()).unwrap();
    assert_eq!(file.metadata().unwrap().len(), listed.len());
    fs::rename(staged, table.file(1)).unwrap();
    assert_changed(&table.query(SCAN).await.unwrap_err().to_string());
    assert_eq!(table.query(SCAN).await.unwrap(), "45 945");
}

#[tokio::test]
async fn lists_from_before_the_registration_expire() {
    let table = Table::new(SessionContext::new()).await;
    assert_eq!(table.query(STATISTICS).await.unwrap(), "9 1 9");
    ringway_datafusion::register(&table.session);
    table.replace(1, 11..=30).await;
    table.becomes(STATISTICS, "9 1 9", "20 11 30").await;
}

/// The statement that the documentation shows, which gives the session another runtime.
#[tokio::test]
async fn a_program_sets_the_time_to_live_later() {
    let table = Table::new(registered()).await;
    let ttl =
        |session: &SessionContext| session.runtime_env().cache_manager.get_list_files_cache_ttl();
    assert_eq!(ttl(&table.session), Some(LISTING_TTL));
    let set = "SET datafusion.runtime.list_files_cache_ttl = '60m'";
    table.session.sql(set).await.unwrap();
    assert_eq!(ttl(&table.session), Some(Duration::from_secs(3600)));
    ringway_datafusion::register(&table.session);
    assert_eq!(ttl(&table.session), Some(Duration::from_secs(3600)));
    table.replace(1, 1..=10).await;
    table.becomes(SCAN, "45 945", "55 1055").await;

    let unlimited = "SET datafusion.runtime.list_files_cache_limit = '0'";
    table.session.sql(unlimited).await.unwrap();
    table.replace(1, 1..=11).await;
    assert_eq!(table.query(STATISTICS).await.unwrap(), "11 1 11");
    assert_eq!(table.query(SCAN).await.unwrap(), "66 1166");

    // A new cache.
    let limited = "SET datafusion.runtime.list_files_cache_limit = '1M'";
    table.session.sql(limited).await.unwrap();
    assert_eq!(ttl(&table.session), None);
    ringway_datafusion::register(&table.session);
    assert_eq!(ttl(&table.session), Some(LISTING_TTL));
    table.session.sql(set).await.unwrap();
    assert_eq!(table.query(SCAN).await.unwrap(), "66 1166");
    table.replace(1, 1..=12).await;
    table.becomes(SCAN, "66 1166", "78 1278").await;
}
