//! Finds the tables in folders: which files belong together, under which name, in which format.

use anyhow::{Context, Result, bail};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::prelude::SessionContext;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use url::Url;

/// A file or a folder of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its path, absolute.
    pub path: PathBuf,
    /// The extension of its files, with the leading dot: `.parquet`, `.csv.gz`.
    pub extension: String,
}

/// Finds the tables in these folders; a path may also be a single file. Hidden files, files whose
/// names start with `_` and files of other formats are no tables.
pub fn find(paths: &[PathBuf]) -> Result<BTreeMap<String, Table>> {
    let mut tables = BTreeMap::new();
    for path in paths {
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        if path.is_dir() {
            for entry in sorted(&path)? {
                add(&mut tables, entry)?;
            }
        } else {
            let file = path.clone();
            if !add(&mut tables, file)? {
                bail!("{}: neither Parquet nor CSV nor JSON by its extension", path.display());
            }
        }
    }
    Ok(tables)
}

/// Adds the table at this path, if there is one.
fn add(tables: &mut BTreeMap<String, Table>, path: PathBuf) -> Result<bool> {
    let Some(name) = visible_name(&path) else { return Ok(false) };
    let (name, extension) = if path.is_dir() {
        let Some(extension) = first_extension(&path)? else { return Ok(false) };
        (name, extension)
    } else {
        let Some((stem, extension)) = split_extension(&name) else { return Ok(false) };
        (stem.to_owned(), extension.to_owned())
    };
    let table = Table { path, extension };
    if let Some(other) = tables.get(&name) {
        bail!("{} and {} are both named {name}", other.path.display(), table.path.display());
    }
    tables.insert(name, table);
    Ok(true)
}

/// The extension of the first file, in the order of names, that has one of ours; sub-folders come
/// after files. Folders that this user may not read, such as `lost+found`, are reported and have
/// none.
fn first_extension(folder: &Path) -> Result<Option<String>> {
    let entries = match sorted(folder) {
        Err(error) if is_permission_denied(&error) => {
            eprintln!("ringway-sql: {error:#}: no table");
            return Ok(None);
        }
        entries => entries?,
    };
    let (folders, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|path| path.is_dir());
    for file in files {
        let name = visible_name(&file);
        if let Some((_, extension)) = name.as_deref().and_then(split_extension) {
            return Ok(Some(extension.to_owned()));
        }
    }
    for folder in folders.iter().filter(|folder| visible_name(folder).is_some()) {
        if let Some(extension) = first_extension(folder)? {
            return Ok(Some(extension));
        }
    }
    Ok(None)
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = folder.read_dir().and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
    });
    let mut entries = entries.with_context(|| folder.display().to_string())?;
    entries.sort();
    Ok(entries)
}

fn is_permission_denied(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// The last component of a path, unless it is hidden, starts with `_` or is not UTF-8.
fn visible_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    (!name.starts_with(['.', '_'])).then(|| name.to_owned())
}

/// Splits a file's name before its format: `orders.csv.gz` into `orders` and `.csv.gz`.
fn split_extension(name: &str) -> Option<(&str, &str)> {
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
        let state = session.state();
        let url = if self.path.is_dir() {
            Url::from_directory_path(&self.path)
        } else {
            Url::from_file_path(&self.path)
        };
        let url = url.ok().with_context(|| format!("{}: not a path", self.path.display()))?;
        let url = ListingTableUrl::try_new(url, None)?;
        let mut options =
            ListingOptions::new(self.format()).with_file_extension(self.extension.clone());
        if self.path.is_dir() {
            let columns = options.infer_partitions(&state, &url).await?;
            let text = datafusion::arrow::datatypes::DataType::Utf8;
            options = options.with_table_partition_cols(
                columns.into_iter().map(|column| (column, text.clone())).collect(),
            );
        }
        let config = ListingTableConfig::new(url).with_listing_options(options);
        let config = config.infer_schema(&state).await;
        let table = config.and_then(ListingTable::try_new);
        let table = table.with_context(|| self.path.display().to_string())?;
        // A reference of one part, so that a dot or upper case in the name means itself.
        let name = datafusion::common::TableReference::bare(name);
        session.register_table(name, Arc::new(table))?;
        Ok(())
    }

    fn format(&self) -> Arc<dyn FileFormat> {
        let extension = self.extension.to_ascii_lowercase();
        let compression = match extension.rsplit('.').next() {
            Some("gz") => FileCompressionType::GZIP,
            Some("bz2") => FileCompressionType::BZIP2,
            Some("xz") => FileCompressionType::XZ,
            Some("zst") => FileCompressionType::ZSTD,
            _ => FileCompressionType::UNCOMPRESSED,
        };
        if extension.starts_with(".parquet") {
            Arc::new(ParquetFormat::default())
        } else if extension.starts_with(".csv") {
            let format = CsvFormat::default().with_has_header(true);
            Arc::new(format.with_file_compression_type(compression))
        } else {
            Arc::new(JsonFormat::default().with_file_compression_type(compression))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let tables = find(std::slice::from_ref(&root)).unwrap();
        let names: Vec<_> = tables.keys().collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(tables["a"], Table { path: root.join("a"), extension: ".csv".into() });

        std::fs::write(root.join("b.csv"), "").unwrap();
        let error = find(std::slice::from_ref(&root)).unwrap_err().to_string();
        assert!(error.ends_with("b.json are both named b"), "{error}");
        let error = find(&[root.join("readme.txt")]).unwrap_err().to_string();
        assert!(error.contains("readme.txt: neither Parquet"), "{error}");
        let error = format!("{:#}", find(&[root.join("missing")]).unwrap_err());
        assert!(error.contains("missing: No such file"), "{error}");
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_no_table() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (file, closed) = (folder.path().join("a.csv"), folder.path().join("lost+found"));
        std::fs::write(file, "").unwrap();
        std::fs::create_dir(&closed).unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
        if closed.read_dir().is_ok() {
            return as_other_user("tables::tests::a_folder_that_cannot_be_read_is_no_table");
        }
        let tables = find(&[folder.path().to_owned()]);
        let asked_for = find(std::slice::from_ref(&closed));
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(tables.unwrap().keys().collect::<Vec<_>>(), ["a"]);
        assert!(asked_for.is_err());
    }

    /// Runs a test as a user to whom permissions apply.
    fn as_other_user(test: &str) {
        use std::os::unix::process::CommandExt;
        const CHILD: &str = "RINGWAY_TEST_CHILD";
        assert!(std::env::var_os(CHILD).is_none(), "that user may read any folder, too");
        // The link, since that user may not be allowed to search the path.
        let mut command = std::process::Command::new("/proc/self/exe");
        command.args([test, "--exact"]).env(CHILD, "1").uid(65534).gid(65534);
        match command.output() {
            Err(error) => println!("skipped: no process of another user: {error}"),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success() && text.contains("1 passed"), "{text}");
            }
        }
    }
}
