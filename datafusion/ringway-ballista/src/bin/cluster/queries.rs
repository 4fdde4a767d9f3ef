//! The queries that a cluster runs, and their answers.

use anyhow::{Context, ensure};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::SessionContext;
use std::path::Path;
use std::time::{Duration, Instant};

/// A file of SQL: one query.
#[derive(Debug)]
pub struct Query {
    /// The name of the file, without its extension.
    pub name: String,
    sql: String,
}

/// The rows of an answer, as text and in an order of their own: two correct answers may differ in
/// the order of rows that `ORDER BY` does not tell apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer(Vec<Vec<String>>);

/// Reads all `*.sql` files of a folder, in the order of their names.
pub fn load(folder: &Path) -> anyhow::Result<Vec<Query>> {
    let about = || format!("read {}", folder.display());
    let mut queries = Vec::new();
    for entry in folder.read_dir().with_context(about)? {
        let path = entry.with_context(about)?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            let sql = std::fs::read_to_string(&path);
            let sql = sql.with_context(|| format!("read {}", path.display()))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            queries.push(Query { name, sql });
        }
    }
    ensure!(!queries.is_empty(), "no *.sql file in {}", folder.display());
    queries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(queries)
}

impl Query {
    /// Runs the query, and measures the time until all rows are here.
    pub async fn run(&self, session: &SessionContext) -> anyhow::Result<(Answer, Duration)> {
        let start = Instant::now();
        let batches = session.sql(&self.sql).await?.collect().await?;
        let time = start.elapsed();
        Ok((Answer::of(&batches)?, time))
    }
}

impl Answer {
    fn of(batches: &[RecordBatch]) -> anyhow::Result<Self> {
        let options = FormatOptions::new().with_null("NULL").with_display_error(false);
        let mut rows = Vec::new();
        for batch in batches {
            let columns: Result<Vec<_>, _> = batch
                .columns()
                .iter()
                .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
                .collect();
            let columns = columns?;
            for row in 0..batch.num_rows() {
                let values = columns.iter().map(|column| column.value(row).try_to_string());
                rows.push(values.collect::<Result<_, _>>()?);
            }
        }
        rows.sort();
        Ok(Self(rows))
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.0.len()
    }
}
