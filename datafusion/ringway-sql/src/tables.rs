//! Finds the tables in folders: which files belong together, under which name, in which format.

use crate::folder::{self, Kind};
use anyhow::{Context, Error, Result, anyhow, bail};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::execution::SessionState;
use datafusion::prelude::{DataFrame, SessionContext};
use futures::TryStreamExt;
use futures::future::ready;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::FileType;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use url::Url;

/// A file or a folder of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its path, absolute.
    pub path: PathBuf,
    /// The extensions of its files as they are written, with the leading dot: `.parquet`,
    /// `.csv.gz`. All are of one format.
    pub extensions: BTreeSet<String>,
}

/// What the folders have under one name: a table, or the reason why there is none.
pub type Found = BTreeMap<String, Result<Table>>;

/// Finds the tables in these folders; a path may also be a single file. Hidden files, files whose
/// names start with `_` and files of other formats are no tables. An error if one of `paths` itself
/// cannot be read.
pub fn find(paths: &[PathBuf]) -> Result<Found> {
    let mut found: BTreeMap<String, Vec<(PathBuf, Result<Table>)>> = BTreeMap::new();
    for path in paths {
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        if path.is_dir() {
            let mut is_empty = true;
            for (path, kind) in entries(&path)? {
                let Some((name, table)) = table(&path, kind) else { continue };
                found.entry(name).or_default().push((path, table));
                is_empty = false;
            }
            if is_empty {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let error = anyhow!("{}: no Parquet, CSV or JSON files", path.display());
                found.entry(name).or_default().push((path, Err(error)));
            }
        } else {
            let kind = path.metadata().map(|metadata| metadata.file_type());
            let Some((name, table)) = table(&path, kind.map_err(anyhow::Error::from)) else {
                bail!("{}: neither Parquet nor CSV nor JSON by its extension", path.display());
            };
            found.entry(name).or_default().push((path, table));
        }
    }
    Ok(found.into_iter().map(|(name, found)| (name, only(found))).collect())
}

/// The table of a name, if only one path has the name.
fn only(mut found: Vec<(PathBuf, Result<Table>)>) -> Result<Table> {
    if found.len() > 1 {
        let paths: Vec<_> = found.iter().map(|(path, _)| path.display().to_string()).collect();
        bail!("{} have the same name", paths.join(" and "));
    }
    found.remove(0).1
}

/// The name of an entry of a folder, and its table; `None` if the entry is neither a folder nor
/// named like a file of a table.
fn table(path: &Path, kind: Result<FileType>) -> Option<(String, Result<Table>)> {
    let name = visible_name(path)?;
    let file = split_extension(&name);
    let extensions = match (kind, file) {
        (Ok(kind), _) if kind.is_dir() => {
            let table = folder::extensions(path)
                .map(|extensions| Table { path: path.to_owned(), extensions });
            return Some((name, table));
        }
        (Ok(kind), Some((_, extension))) if kind.is_file() => {
            Ok(BTreeSet::from([extension.to_owned()]))
        }
        (Ok(_), Some(_)) => Err(anyhow!("{}: not a regular file", path.display())),
        (Ok(_), None) => return None,
        (Err(error), _) => Err(error),
    };
    let name = file.map_or(name.as_str(), |(stem, _)| stem).to_owned();
    Some((name, extensions.map(|extensions| Table { path: path.to_owned(), extensions })))
}

/// The entries of a folder in the order of their names, with the type of what they link to.
pub fn entries(folder: &Path) -> Result<Vec<(PathBuf, Result<FileType>)>> {
    let entries = folder.read_dir().and_then(|entries| {
        // Not one `stat` for each: only links need it.
        entries
            .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
            .collect::<io::Result<Vec<_>>>()
    });
    let mut entries = entries.with_context(|| folder.display().to_string())?;
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(entries.into_iter().map(|(path, kind)| target(path, kind)).collect())
}

fn target(path: PathBuf, kind: FileType) -> (PathBuf, Result<FileType>) {
    if !kind.is_symlink() {
        return (path, Ok(kind));
    }
    let kind = path.metadata().map(|metadata| metadata.file_type()).with_context(|| {
        let target = path.read_link().unwrap_or_default();
        format!("{}: a link to {}", path.display(), target.display())
    });
    (path, kind)
}

/// The last component of a path, unless it is hidden, starts with `_` or is not UTF-8.
pub fn visible_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    (!name.starts_with(['.', '_'])).then(|| name.to_owned())
}

/// Splits a file's name before its format: `orders.csv.gz` into `orders` and `.csv.gz`.
pub fn split_extension(name: &str) -> Option<(&str, &str)> {
    let lower = name.to_ascii_lowercase();
    let plain = [".gz", ".bz2", ".xz", ".zst"].iter().find_map(|suffix| lower.strip_suffix(suffix));
    let stem = match plain {
        Some(plain) => strip_format(plain, &[".csv", ".json", ".jsonl", ".ndjson"]),
        None => strip_format(&lower, &[".parquet", ".csv", ".json", ".jsonl", ".ndjson"]),
    }?;
    // Lower case changes no length in ASCII.
    Some(name.split_at(stem.len())).filter(|(stem, _)| !stem.is_empty())
}

fn strip_format<'a>(name: &'a str, formats: &[&str]) -> Option<&'a str> {
    formats.iter().find_map(|format| name.strip_suffix(format))
}

impl Table {
    /// Registers the table in a session.
    pub async fn register(&self, session: &SessionContext, name: &str) -> Result<()> {
        let mut tables = Vec::new();
        for extension in &self.extensions {
            let table = self.listing(session, extension).await;
            tables.push(table.with_context(|| self.path.display().to_string())?);
        }
        // Files without a byte have no columns.
        tables.retain(|table| !table.schema().fields().is_empty());
        let table = match tables.len() {
            0 => bail!("{}: it has no columns, since it is empty", self.path.display()),
            1 => tables.remove(0),
            _ => union(session, tables).with_context(|| self.path.display().to_string())?,
        };
        // A reference of one part, so that a dot or upper case in the name means itself.
        session.register_table(TableReference::bare(name), table)?;
        Ok(())
    }

    /// The files of one extension: a `ListingTable` has one, and one compression.
    async fn listing(
        &self,
        session: &SessionContext,
        extension: &str,
    ) -> Result<Arc<dyn TableProvider>> {
        let state = session.state();
        let url = if self.path.is_dir() {
            Url::from_directory_path(&self.path)
        } else {
            Url::from_file_path(&self.path)
        };
        let url = url.ok().context("not a path")?;
        let url = ListingTableUrl::try_new(url, None)?;
        let mut options = ListingOptions::new(format(extension)).with_file_extension(extension);
        if self.path.is_dir() {
            let columns = options.infer_partitions(&state, &url).await?;
            let columns = columns.into_iter().map(|column| (column, DataType::Utf8)).collect();
            options = options.with_table_partition_cols(columns);
        }
        let config = ListingTableConfig::new(url.clone()).with_listing_options(options.clone());
        match config.infer_schema(&state).await {
            Ok(config) => Ok(Arc::new(ListingTable::try_new(config)?)),
            Err(error) => Err(blame(&state, &options, &url).await.unwrap_or(error.into())),
        }
    }
}

/// The error of the first file of a table that has no schema by itself. DataFusion's error does not
/// name the file.
async fn blame(
    state: &SessionState,
    options: &ListingOptions,
    url: &ListingTableUrl,
) -> Option<Error> {
    let store = state.runtime_env().object_store(url).ok()?;
    let files = url.list_all_files(state, &store, &options.file_extension).await.ok()?;
    let mut files = files.try_filter(|file| ready(file.size > 0));
    while let Some(file) = files.try_next().await.ok()? {
        let name = format!("/{}", file.location);
        if let Err(error) = options.format.infer_schema(state, &store, &[file]).await {
            return Some(Error::from(error).context(name));
        }
    }
    None
}

/// One table of several. Columns that some do not have are null there; columns of one name must
/// have one type.
fn union(
    session: &SessionContext,
    tables: Vec<Arc<dyn TableProvider>>,
) -> Result<Arc<dyn TableProvider>> {
    Schema::try_merge(tables.iter().map(|table| table.schema().as_ref().clone()))?;
    let mut all: Option<DataFrame> = None;
    for table in tables {
        let table = session.read_table(table)?;
        all = Some(match all {
            Some(all) => all.union_by_name(table)?,
            None => table,
        });
    }
    Ok(all.context("no tables")?.into_view())
}

fn format(extension: &str) -> Arc<dyn FileFormat> {
    let compression = match extension.to_ascii_lowercase().rsplit('.').next() {
        Some("gz") => FileCompressionType::GZIP,
        Some("bz2") => FileCompressionType::BZIP2,
        Some("xz") => FileCompressionType::XZ,
        Some("zst") => FileCompressionType::ZSTD,
        _ => FileCompressionType::UNCOMPRESSED,
    };
    match Kind::of(extension) {
        Kind::Parquet => Arc::new(ParquetFormat::default()),
        Kind::Csv => {
            let format = CsvFormat::default().with_has_header(true);
            Arc::new(format.with_file_compression_type(compression))
        }
        Kind::Json => Arc::new(JsonFormat::default().with_file_compression_type(compression)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_datafusion_tests::user::as_ordinary;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn formats_are_known_by_extension() {
        assert_eq!(split_extension("orders.csv.gz"), Some(("orders", ".csv.gz")));
        assert_eq!(split_extension("A.b.PARQUET"), Some(("A.b", ".PARQUET")));
        assert_eq!(split_extension("x.ndjson"), Some(("x", ".ndjson")));
        for other in ["orders.txt", ".parquet", "orders", "orders.parquet.gz", "orders.gz"] {
            assert_eq!(split_extension(other), None, "{other}");
        }
    }

    #[test]
    fn folders_and_files_become_tables() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for file in ["a/x=1/part.csv", "b.json", "_hidden.csv", "readme.txt", "c/.hidden.csv"] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), "").unwrap();
        }
        let found = find(std::slice::from_ref(&root)).unwrap();
        let names: Vec<_> = found.keys().collect();
        assert_eq!(names, ["a", "b", "c"]);
        let extensions = BTreeSet::from([".csv".to_owned()]);
        assert_eq!(found["a"].as_ref().unwrap(), &Table { path: root.join("a"), extensions });
        assert!(found["b"].is_ok());
        let error = found["c"].as_ref().unwrap_err().to_string();
        assert!(error.ends_with("c: no Parquet, CSV or JSON files"), "{error}");

        std::fs::write(root.join("b.csv"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("d.csv")).unwrap();
        let found = find(std::slice::from_ref(&root)).unwrap();
        assert!(found["a"].is_ok());
        let error = found["b"].as_ref().unwrap_err().to_string();
        assert!(error.ends_with("b.json have the same name"), "{error}");
        let error = format!("{:#}", found["d"].as_ref().unwrap_err());
        assert!(error.contains("d.csv: a link to nowhere: No such file"), "{error}");

        let error = find(&[root.join("readme.txt")]).unwrap_err().to_string();
        assert!(error.contains("readme.txt: neither Parquet"), "{error}");
        let error = format!("{:#}", find(&[root.join("missing")]).unwrap_err());
        assert!(error.contains("missing: No such file"), "{error}");
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_no_table() {
        as_ordinary("tables::tests::a_folder_that_cannot_be_read_is_no_table", || {
            let folder = tempfile::tempdir().unwrap();
            let (file, closed) = (folder.path().join("a.csv"), folder.path().join("lost+found"));
            std::fs::write(file, "").unwrap();
            std::fs::create_dir(&closed).unwrap();
            std::fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
            let tables = find(&[folder.path().to_owned()]);
            let asked_for = find(std::slice::from_ref(&closed));
            std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
            let tables = tables.unwrap();
            assert!(tables["a"].is_ok());
            let error = format!("{:#}", tables["lost+found"].as_ref().unwrap_err());
            assert!(error.contains("lost+found: Permission denied"), "{error}");
            assert!(asked_for.is_err());
        });
    }
}
