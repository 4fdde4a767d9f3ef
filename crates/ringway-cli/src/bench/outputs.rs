//! The reports to write, and where to.

use super::options::BenchArgs;
use super::report::{self, Model};
use super::result::Report;
use super::target;
use super::workload::Workload;
use crate::cli::print;
use anyhow::{Context, bail};
use std::fs;
use std::io::Write;
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
    is_new: bool,
}

impl ReportFile {
    /// It is truncated when the report is written.
    fn open(path: &Path) -> anyhow::Result<Self> {
        let is_new = path.symlink_metadata().is_err();
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| path.display().to_string())?;
        if file.metadata()?.file_type().is_block_device() {
            bail!("{} is a block device; give a file for the report", path.display());
        }
        Ok(Self { path: path.to_owned(), file, is_new })
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.is_new = false;
        // A pipe or a terminal cannot be truncated.
        let is_file = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let truncated = if is_file { self.file.set_len(0) } else { Ok(()) };
        let written = truncated.and_then(|()| self.file.write_all(text.as_bytes()));
        written.with_context(|| self.path.display().to_string())
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.is_new {
            let _ = fs::remove_file(&self.path);
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
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let targets = workloads.iter().flat_map(target::paths);
        let paths = named.iter().cloned().chain(targets);
        let mut taken: Vec<_> = paths.filter_map(|path| fs::metadata(path).ok()).map(id).collect();
        for ReportFile { path, file, .. } in self.0.iter().filter_map(|(_, output)| output.as_ref())
        {
            let metadata = file.metadata().with_context(|| path.display().to_string())?;
            if !metadata.is_file() {
                continue;
            }
            let id = id(metadata);
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

    /// Writes all reports. One that cannot be written does not lose the others.
    pub fn write(self, report: &Report) -> anyhow::Result<()> {
        let model = Model::new(report);
        let (mut printed, mut written) = (None, Ok(()));
        for (render, output) in self.0 {
            let text = render(&model)?;
            match output {
                None => printed = Some(text),
                Some(mut file) => written = written.and(file.write(&text)),
            }
        }
        // Last: after Ctrl-C nobody may read standard output any more.
        print(&printed.unwrap_or_else(|| report::terminal::render(&model)))?;
        written
    }
}
