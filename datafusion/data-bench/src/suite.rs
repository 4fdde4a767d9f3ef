//! The rows of benchmarks B and C: each query of TPC-H and of the wide table, and the folders of
//! small files.

use crate::generate::tpch;
use crate::work::{Format, Table, Work};
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the queries are unless an option says otherwise.
const QUERIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../queries");
/// The query on the folders of small files.
const SMALL: &str = "SELECT state, count(*), count(DISTINCT sensor), sum(value), min(id), max(id) \
                     FROM small GROUP BY state";

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Benchmark {
    /// Queries of TPC-H and of a wide table in DataFusion
    B,
    /// A folder of small files
    C,
}

impl Benchmark {
    /// The name in the Markdown file and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::B => "b",
            Self::C => "c",
        }
    }
}

/// Where the data is, and what is measured of it.
#[derive(Clone, Debug, clap::Args)]
pub struct Selection {
    /// Folder of the tables of TPC-H (`data-bench generate tpch`)
    #[arg(long)]
    pub tpch: Option<PathBuf>,
    /// Folder of the wide table (`data-bench generate wide`)
    #[arg(long)]
    pub wide: Option<PathBuf>,
    /// Folder of small files (`data-bench generate small`)
    #[arg(long)]
    pub small: Option<PathBuf>,
    /// Folder with the queries, as tpch/*.sql and wide/*.sql
    #[arg(long, default_value = QUERIES)]
    pub queries: PathBuf,
    /// Only rows with one of these names, such as tpch-q06 or small-csv-get
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
}

/// What is measured, by name.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name of the group that a geometric mean is taken of.
    pub group: &'static str,
    pub name: String,
    pub work: Work,
}

impl Row {
    /// The folders of all files that the work may read.
    pub fn folders(&self) -> Vec<PathBuf> {
        match &self.work {
            Work::Query { tables, .. } => tables.iter().map(|table| table.folder.clone()).collect(),
            Work::Get { folder } => vec![folder.clone()],
        }
    }
}

/// The selected rows of a benchmark.
///
/// # Errors
///
/// No row; a folder of data or queries that is not there.
pub fn rows(benchmark: Benchmark, selection: &Selection) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    match benchmark {
        Benchmark::B => {
            if let Some(folder) = given(&selection.tpch)? {
                let table = |name: &&str| Table::new(&folder, name, Format::Parquet);
                let tables = tpch::TABLES.iter().map(table).collect();
                rows.extend(queries("tpch", &selection.queries.join("tpch"), tables)?);
            }
            if let Some(folder) = given(&selection.wide)? {
                let table = Table { name: "hits".into(), folder, format: Format::Parquet };
                rows.extend(queries("wide", &selection.queries.join("wide"), vec![table])?);
            }
        }
        Benchmark::C => {
            if let Some(folder) = given(&selection.small)? {
                rows.extend(small(&folder));
            }
        }
    }
    let unknown = |name: &&String| rows.iter().all(|row| row.name != **name);
    if let Some(unknown) = selection.only.iter().find(unknown) {
        let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
        bail!("there is no row {unknown:?}, only: {}", names.join(", "));
    }
    rows.retain(|row| selection.only.is_empty() || selection.only.contains(&row.name));
    ensure!(!rows.is_empty(), "no data: give --tpch or --wide for b, --small for c");
    Ok(rows)
}

/// The absolute path of a folder that an option may give.
fn given(folder: &Option<PathBuf>) -> anyhow::Result<Option<PathBuf>> {
    let absolute =
        |folder: &PathBuf| fs::canonicalize(folder).with_context(|| folder.display().to_string());
    folder.as_ref().map(absolute).transpose()
}

/// A row for each file of SQL in the folder, in the order of their names.
fn queries(group: &'static str, folder: &Path, tables: Vec<Table>) -> anyhow::Result<Vec<Row>> {
    let about = || folder.display().to_string();
    let entries = fs::read_dir(folder).with_context(about)?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut paths = paths.with_context(about)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    paths.sort();
    ensure!(!paths.is_empty(), "{}: no files of SQL", folder.display());
    let row = |path: PathBuf| {
        let sql = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let work = Work::Query { tables: tables.clone(), sql };
        Ok(Row { group, name: format!("{group}-{stem}"), work })
    };
    paths.into_iter().map(row).collect()
}

/// The folders of small files: through a query and through the store alone.
fn small(folder: &Path) -> Vec<Row> {
    let formats = [("parquet", Format::Parquet), ("csv", Format::Csv)];
    let query = formats.map(|(name, format)| {
        let table = Table { name: "small".into(), folder: folder.join(name), format };
        let work = Work::Query { tables: vec![table], sql: SMALL.into() };
        Row { group: "small", name: format!("small-{name}-query"), work }
    });
    let get = formats.map(|(name, _)| {
        let work = Work::Get { folder: folder.join(name) };
        Row { group: "small", name: format!("small-{name}-get"), work }
    });
    query.into_iter().chain(get).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection() -> Selection {
        Selection { tpch: None, wide: None, small: None, queries: QUERIES.into(), only: vec![] }
    }

    #[test]
    fn rows_are_selected_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut selection = Selection { small: Some(folder.path().into()), ..selection() };
        assert_eq!(rows(Benchmark::C, &selection).unwrap().len(), 4);
        selection.only = vec!["small-csv-get".into()];
        let row = rows(Benchmark::C, &selection).unwrap().remove(0);
        assert_eq!(row.folders(), [folder.path().canonicalize().unwrap().join("csv")]);
        selection.only = vec!["small-xml-get".into()];
        let error = rows(Benchmark::C, &selection).unwrap_err().to_string();
        assert!(error.contains("small-xml-get") && error.contains("small-csv-get"), "{error}");
        assert!(rows(Benchmark::B, &selection).is_err(), "no data");
    }

    #[test]
    fn missing_data_is_an_error_with_its_path() {
        let missing = Selection { wide: Some("/nonexistent/wide".into()), ..selection() };
        let error = format!("{:#}", rows(Benchmark::B, &missing).unwrap_err());
        assert!(error.contains("/nonexistent/wide"), "{error}");
    }
}
