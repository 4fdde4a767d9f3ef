//! The files of a folder that is one table, and whether DataFusion reads all of them: it skips
//! files without an error if their extension or their partition columns differ from the table's.

use super::tables::{entries, split_extension, visible_name};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The formats of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Apache Parquet.
    Parquet,
    /// CSV with a header.
    Csv,
    /// One JSON object per line.
    Json,
}

impl Kind {
    /// The format of files with this extension, one that [`split_extension`] returned.
    pub fn of(extension: &str) -> Self {
        let extension = extension.to_ascii_lowercase();
        match extension.get(1..4) {
            Some("par") => Self::Parquet,
            Some("csv") => Self::Csv,
            _ => Self::Json,
        }
    }
}

/// The extensions of the files in a folder and its partitions. An error if there are none, or if
/// the files cannot be one table.
pub fn extensions(folder: &Path) -> Result<BTreeSet<String>> {
    let mut files = Files { first: None, extensions: BTreeSet::new() };
    files.walk(folder, &mut Vec::new(), &mut Vec::new())?;
    let none = || format!("{}: no Parquet, CSV or JSON files", folder.display());
    ensure!(!files.extensions.is_empty(), none());
    Ok(files.extensions)
}

struct Files {
    first: Option<File>,
    extensions: BTreeSet<String>,
}

struct File {
    path: PathBuf,
    kind: Kind,
    /// The names of its partition columns.
    columns: Vec<String>,
}

impl Files {
    /// Adds the files below a folder. `above` are the folders above it and `names` their names
    /// below the table's folder.
    fn walk(
        &mut self,
        folder: &Path,
        above: &mut Vec<PathBuf>,
        names: &mut Vec<String>,
    ) -> Result<()> {
        let real = folder.canonicalize().with_context(|| folder.display().to_string())?;
        ensure!(!above.contains(&real), "{}: a link to a folder above it", folder.display());
        above.push(real);
        for (path, kind) in entries(folder)? {
            let Some(name) = visible_name(&path) else { continue };
            let extension = split_extension(&name).map(|(_, extension)| extension);
            match (kind, extension) {
                (Ok(kind), _) if kind.is_dir() => {
                    names.push(name);
                    self.walk(&path, above, names)?;
                    names.pop();
                }
                (_, None) => {}
                (Ok(kind), Some(extension)) if kind.is_file() => {
                    self.add(&path, extension, names)?;
                }
                (Ok(_), Some(_)) => bail!("{}: not a regular file", path.display()),
                (Err(error), Some(_)) => return Err(error),
            }
        }
        above.pop();
        Ok(())
    }

    fn add(&mut self, path: &Path, extension: &str, names: &[String]) -> Result<()> {
        let mut columns = Vec::new();
        for name in names {
            let Some((column, _)) = name.split_once('=') else {
                bail!("{}: {name} is no partition, such as year=2026", path.display());
            };
            columns.push(column.to_owned());
        }
        let kind = Kind::of(extension);
        self.extensions.insert(extension.to_owned());
        let Some(first) = &self.first else {
            self.first = Some(File { path: path.to_owned(), kind, columns });
            return Ok(());
        };
        let both = || format!("{} and {}", first.path.display(), path.display());
        ensure!(kind == first.kind, "{} have different formats", both());
        ensure!(columns == first.columns, "{} have different partition columns", both());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        folder
    }

    fn found(folder: &Path) -> Vec<String> {
        extensions(folder).unwrap().into_iter().collect()
    }

    fn error(folder: &Path) -> String {
        format!("{:#}", extensions(folder).unwrap_err())
    }

    #[test]
    fn one_format_may_have_several_extensions() {
        let json = folder(&["1.json", "2.ndjson", "a=1/3.jsonl", "readme.txt", "notes/x.md"]);
        std::fs::rename(json.path().join("a=1/3.jsonl"), json.path().join("3.jsonl")).unwrap();
        assert_eq!(found(json.path()), [".json", ".jsonl", ".ndjson"]);
        assert_eq!(
            found(folder(&["1.csv", "2.csv.gz", "3.CSV"]).path()),
            [".CSV", ".csv", ".csv.gz"]
        );
        assert_eq!(found(folder(&["y=1/m=2/a=b.csv", "y=2/m=1/_x.json"]).path()), [".csv"]);
    }

    #[test]
    fn files_that_are_not_one_table_are_named() {
        for (files, end) in [
            (&["001.parquet", "1.csv"][..], "001.parquet and 1.csv have different formats"),
            (&["y=1/1.csv", "2.csv"], "2.csv and y=1/1.csv have different partition columns"),
            (&["1.csv", "old/2.csv"], "old/2.csv: old is no partition, such as year=2026"),
            (&["sub/sub2/1.csv"], "sub/sub2/1.csv: sub is no partition, such as year=2026"),
            (&["x/readme.txt"], "no Parquet, CSV or JSON files"),
        ] {
            let folder = folder(files);
            let error = error(folder.path());
            let error = error.replace(&format!("{}/", folder.path().display()), "");
            assert!(error.ends_with(end), "{error}");
        }
    }

    #[test]
    fn links_that_cannot_be_read_are_named() {
        let folder = folder(&["1.csv"]);
        symlink("nowhere", folder.path().join("other")).unwrap();
        assert_eq!(found(folder.path()), [".csv"]);
        symlink("nowhere", folder.path().join("2.csv")).unwrap();
        let dangling = error(folder.path());
        assert!(dangling.contains("2.csv: a link to nowhere: No such file"), "{dangling}");
        std::fs::remove_file(folder.path().join("2.csv")).unwrap();
        symlink(".", folder.path().join("again")).unwrap();
        let cycle = error(folder.path());
        assert!(cycle.ends_with("again: a link to a folder above it"), "{cycle}");
    }
}
