//! The reports to write, and where to.

use super::options::BenchArgs;
use super::report::{self, Model};
use super::result::Report;
use super::target;
use super::workload::Workload;
use crate::cli::print;
use anyhow::{Context, bail};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The reports to write. Their files are opened before anything is measured: a wrong path must not
/// lose the results.
pub struct Outputs(Vec<(Render, Output)>);

type Render = fn(&Model) -> anyhow::Result<String>;

/// `None` for standard output, instead of the table.
type Output = Option<ReportFile>;

/// A file for a report. If it was created here, it is removed again without one.
struct ReportFile {
    path: PathBuf,
    file: fs::File,
    /// The name under which it was created here, until a report is written.
    created: Option<PathBuf>,
}

impl ReportFile {
    /// It is truncated when the report is written.
    fn open(path: &Path) -> anyhow::Result<Self> {
        let (file, created) = open_or_create(path).with_context(|| path.display().to_string())?;
        if file.metadata()?.file_type().is_block_device() {
            bail!("{} is a block device; give a file for the report", path.display());
        }
        Ok(Self { path: path.to_owned(), file, created })
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.created = None;
        // A pipe or a terminal cannot be truncated.
        if self.file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}

/// Opens a file for writing, and returns its name if it is a new one.
fn open_or_create(path: &Path) -> io::Result<(fs::File, Option<PathBuf>)> {
    let mut options = fs::OpenOptions::new();
    options.write(true);
    if let Ok(file) = options.clone().create_new(true).open(path) {
        return Ok((file, Some(path.to_owned())));
    }
    let is_missing = fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    match fs::read_link(path) {
        // It is what the link leads to that is created.
        Ok(target) if is_missing => open_or_create(&path.with_file_name(target)),
        _ => Ok((options.create(true).truncate(false).open(path)?, None)),
    }
}

fn id(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        let Some(path) = &self.created else { return };
        // Another program may have written to it, or put another file in its place.
        if let (Ok(own), Ok(found)) = (self.file.metadata(), path.symlink_metadata())
            && id(&own) == id(&found)
            && found.len() == 0
        {
            let _ = fs::remove_file(path);
        }
    }
}

impl Outputs {
    pub fn open(args: &BenchArgs) -> anyhow::Result<Self> {
        let formats: [(&Option<PathBuf>, Render); 3] = [
            (&args.json, |model| Ok(report::json::render(model))),
            (&args.csv, |model| Ok(report::csv::render(model))),
            (&args.html, report::html::render),
        ];
        let mut outputs = Self(Vec::new());
        for (path, render) in formats {
            let Some(path) = path else { continue };
            if path.as_os_str() == "-" {
                if outputs.0.iter().any(|(_, output)| output.is_none()) {
                    bail!("only one report can go to standard output");
                }
                outputs.0.push((render, None));
                continue;
            }
            outputs.0.push((render, Some(ReportFile::open(path)?)));
        }
        Ok(outputs)
    }

    /// Fails if a report would overwrite a file that is measured on, a job file or another report;
    /// nothing has been written then.
    pub fn protect_files(&self, named: &[PathBuf], workloads: &[Workload]) -> anyhow::Result<()> {
        let targets = workloads.iter().flat_map(target::paths);
        let paths = named.iter().cloned().chain(targets);
        let existing = paths.filter_map(|path| fs::metadata(path).ok());
        let mut taken: Vec<_> = existing.map(|metadata| id(&metadata)).collect();
        for ReportFile { path, file, .. } in self.0.iter().filter_map(|(_, output)| output.as_ref())
        {
            let metadata = file.metadata().with_context(|| path.display().to_string())?;
            if !metadata.is_file() {
                continue;
            }
            let id = id(&metadata);
            if taken.contains(&id) {
                bail!(
                    "{} is a file of the bench or of another report; give another file for the \
                     report",
                    path.display()
                );
            }
            taken.push(id);
        }
        Ok(())
    }

    /// Writes all reports. One that cannot be written does not lose the others; the error names
    /// each.
    pub fn write(self, report: &Report) -> anyhow::Result<()> {
        const STANDARD_OUTPUT: &str = "standard output";
        let model = Model::new(report);
        let (mut printed, mut errors) = (None, Vec::new());
        let mut check = |name: &str, result: anyhow::Result<()>| {
            errors.extend(result.err().map(|error| format!("{name}: {error:#}")));
        };
        for (render, output) in self.0 {
            match (render(&model), output) {
                (Ok(text), Some(mut file)) => {
                    let written = file.write(&text).map_err(Into::into);
                    check(&file.path.display().to_string(), written);
                }
                (Ok(text), None) => printed = Some(text),
                (Err(error), Some(file)) => check(&file.path.display().to_string(), Err(error)),
                (Err(error), None) => check(STANDARD_OUTPUT, Err(error)),
            }
        }
        // Last: after Ctrl-C nobody may read standard output any more.
        let table = || report::terminal::render(&model);
        check(STANDARD_OUTPUT, print(&printed.unwrap_or_else(table)).map_err(Into::into));
        if !errors.is_empty() {
            bail!("{}", errors.join("; "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_another_program_wrote_meanwhile_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("report"), folder.path().join("other"));
        let opened = || ReportFile::open(&path).unwrap();
        drop(opened());
        assert!(!path.exists(), "without a report it is removed");

        let report = opened();
        fs::write(&path, "written to").unwrap();
        drop(report);
        assert_eq!(fs::read(&path).unwrap(), b"written to");
        drop(opened());
        assert!(path.exists(), "it existed before");

        fs::remove_file(&path).unwrap();
        let report = opened();
        fs::write(&other, "").unwrap();
        fs::rename(&other, &path).unwrap();
        drop(report);
        assert!(path.exists(), "it is another file");
    }

    #[test]
    fn what_a_link_leads_to_is_removed_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        symlink("second", path("first")).unwrap();
        symlink(path("target"), path("second")).unwrap();
        let report = ReportFile::open(&path("first")).unwrap();
        assert!(path("target").exists());
        drop(report);
        assert!(!path("target").exists() && path("first").is_symlink());

        symlink("loop", path("loop")).unwrap();
        assert!(ReportFile::open(&path("loop")).is_err());
    }
}
