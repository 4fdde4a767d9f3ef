//! The reports to write, and where to.

use super::options::BenchArgs;
use super::report::{self, Model};
use super::result::Report;
use super::target;
use super::workload::Workload;
use anyhow::{Context, bail};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

/// The reports to write. Their files are opened before anything is measured: a wrong path must not
/// lose the results.
pub struct Outputs(Vec<(Render, Output)>);

type Render = fn(&Model) -> anyhow::Result<String>;

/// A file with its path; `None` for standard output, instead of the table.
type Output = Option<(PathBuf, fs::File)>;

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
            // It is truncated when the report is written.
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
            let file = file.with_context(|| path.display().to_string())?;
            if file.metadata()?.file_type().is_block_device() {
                bail!("{} is a block device; give a file for the report", path.display());
            }
            outputs.0.push((render, Some((path.clone(), file))));
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
        for (path, file) in self.0.iter().filter_map(|(_, output)| output.as_ref()) {
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

    pub fn write(self, report: &Report) -> anyhow::Result<()> {
        let model = Model::new(report);
        let mut printed = None;
        for (render, output) in &self.0 {
            let text = render(&model)?;
            match output {
                None => printed = Some(text),
                Some((path, file)) => {
                    // A pipe or a terminal cannot be truncated.
                    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
                    let truncated = if is_file { file.set_len(0) } else { Ok(()) };
                    let written = truncated.and_then(|()| (&*file).write_all(text.as_bytes()));
                    written.with_context(|| path.display().to_string())?;
                }
            }
        }
        // Last: after Ctrl-C nobody may read standard output any more.
        let printed = printed.unwrap_or_else(|| report::terminal::render(&model));
        match std::io::stdout().write_all(printed.as_bytes()) {
            // A reader that closes the pipe early (`| head`) is not a failure.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }
}
