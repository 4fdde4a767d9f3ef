//! What is measured: a query, or reading all files of a folder. Its answer is compared between
//! contestants.

use crate::contestant::Contestant;
use anyhow::{Context, bail};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::{CsvReadOptions, ParquetReadOptions, SessionContext};
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectStoreExt, path};
use ringway_measure::random::mix;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Gets in flight when a folder is read.
const GETS: usize = 32;

/// What one turn does.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Work {
    /// Registers the tables in a new session, which reads their metadata or infers their schema,
    /// and runs the query.
    Query { tables: Vec<Table>, sql: String },
    /// Lists the folder and gets all its files, 32 at a time.
    Get { folder: PathBuf },
}

/// A table: a folder of files that end in `.parquet` or `.csv`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Table {
    pub name: String,
    pub folder: PathBuf,
    pub format: Format,
}

/// The format of a table's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Format {
    Parquet,
    Csv,
}

/// The number of rows or files, and a digest that does not depend on their order: queries leave
/// the order of equal rows open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Answer {
    pub count: u64,
    pub digest: u64,
}

/// An answer of which the digest is computed later, so that this is not measured.
pub enum Done {
    Rows(Vec<RecordBatch>),
    Files(Answer),
}

impl Work {
    /// Does the work once.
    pub async fn run(&self, contestant: Contestant) -> anyhow::Result<Done> {
        match self {
            Self::Query { tables, sql } => {
                let session = contestant.session();
                for table in tables {
                    table.register(&session).await.with_context(|| table.name.clone())?;
                }
                let rows = session.sql(sql).await?.collect().await?;
                Ok(Done::Rows(rows))
            }
            Self::Get { folder } => get_all(contestant, folder).await.map(Done::Files),
        }
    }
}

impl Table {
    /// A table that is the folder of its name.
    pub fn new(parent: &Path, name: &str, format: Format) -> Self {
        Self { name: name.into(), folder: parent.join(name), format }
    }

    async fn register(&self, session: &SessionContext) -> anyhow::Result<()> {
        let folder = self.folder.to_str().context("a path that is not UTF-8")?;
        match self.format {
            Format::Parquet => {
                session.register_parquet(&self.name, folder, ParquetReadOptions::new()).await?;
            }
            Format::Csv => session.register_csv(&self.name, folder, CsvReadOptions::new()).await?,
        }
        Ok(())
    }
}

async fn get_all(contestant: Contestant, folder: &Path) -> anyhow::Result<Answer> {
    let store = contestant.store();
    let prefix = path::Path::from_filesystem_path(folder)?;
    let found = store.list(Some(&prefix));
    let gets = found.map(|object| async {
        let object = object?;
        let bytes = store.get(&object.location).await?.bytes().await?;
        if bytes.len() as u64 != object.size {
            bail!("{}: {} bytes instead of {}", object.location, bytes.len(), object.size);
        }
        Ok(Answer { count: 1, digest: digest(&bytes) })
    });
    let all = gets.buffer_unordered(GETS);
    all.try_fold(Answer::default(), |all, one| async move { Ok(all.and(one)) }).await
}

impl Done {
    /// The answer.
    ///
    /// # Errors
    ///
    /// Rows of a type that has no text.
    pub fn answer(&self) -> anyhow::Result<Answer> {
        match self {
            Self::Files(answer) => Ok(*answer),
            Self::Rows(batches) => {
                batches.iter().try_fold(Answer::default(), |all, rows| Ok(all.and(of_rows(rows)?)))
            }
        }
    }
}

impl Answer {
    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, digest: self.digest.wrapping_add(other.digest) }
    }
}

fn of_rows(rows: &RecordBatch) -> anyhow::Result<Answer> {
    let options = FormatOptions::new().with_null("NULL");
    let columns = rows.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let mut all = Answer::default();
    for row in 0..rows.num_rows() {
        let cells = columns.iter().map(|column| column.value(row).try_to_string());
        let row = cells.collect::<Result<Vec<_>, _>>()?.join("|");
        all = all.and(Answer { count: 1, digest: digest(row.as_bytes()) });
    }
    Ok(all)
}

/// Eight bytes at a time: all bytes are looked at, and that costs little next to reading them.
fn digest(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let all = words.iter().fold(bytes.len() as u64, |all: u64, word| {
        (all ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    mix(rest.iter().fold(all, |all, byte| mix(all ^ u64::from(*byte))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};
    use std::sync::Arc;

    fn rows(numbers: &[i64], texts: &[Option<&str>]) -> RecordBatch {
        let numbers = Arc::new(Int64Array::from(numbers.to_vec())) as _;
        let texts = Arc::new(StringArray::from(texts.to_vec())) as _;
        RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap()
    }

    #[test]
    fn an_answer_depends_on_each_cell_and_not_on_the_order() {
        let answer = |batches: Vec<RecordBatch>| Done::Rows(batches).answer().unwrap();
        let whole = answer(vec![rows(&[1, 2, 2], &[Some("a"), None, None])]);
        let parts = answer(vec![rows(&[2], &[None]), rows(&[2, 1], &[None, Some("a")])]);
        assert_eq!(whole, parts);
        assert_eq!(whole.count, 3);
        assert_ne!(whole, answer(vec![rows(&[1, 2, 2], &[Some("b"), None, None])]));
        assert_ne!(whole, answer(vec![rows(&[1, 2], &[Some("a"), None])]));
        assert_ne!(digest(b"123456789"), digest(b"123456780"));
        assert_ne!(digest(&[0; 8]), digest(&[0; 16]));
    }

    #[test]
    fn a_folder_is_read_by_each_store() {
        let folder = tempfile::tempdir().unwrap();
        for file in 0..40 {
            std::fs::write(folder.path().join(file.to_string()), vec![file; 1000]).unwrap();
        }
        let work = Work::Get { folder: folder.path().to_owned() };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let run = |contestant| runtime.block_on(work.run(contestant)).unwrap().answer().unwrap();
        let answer = run(Contestant::Local);
        assert_eq!(answer.count, 40);
        assert_eq!(run(Contestant::Ringway), answer);
        assert_eq!(run(Contestant::RingwayDirect), answer);
    }
}
