//! What to run: the combinations of the options, or the jobs of the job files among the arguments.

use super::job_file;
use super::options::BenchArgs;
use super::plan::{self, Plan};
use super::workload::{Backend, Target};
use anyhow::{Context, bail};
use ringway_measure::scratch;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The maximum size of a job file.
const MAX_JOB_FILE: u64 = 1 << 20;
/// The size of the file that the null backend pretends to read.
pub const NULL_SIZE: u64 = 1 << 30;

/// The plan, and whether it comes from job files.
pub fn plan(args: &BenchArgs) -> anyhow::Result<(Plan, bool)> {
    let mut jobs = Plan::default();
    let mut data = Vec::new();
    for path in &args.files {
        match job_text(path)? {
            Some(text) => {
                let files = &mut jobs.included;
                let mut include = |from: Option<&Path>, name: &str| {
                    let (file, text) = included(from.unwrap_or(path), name)?;
                    files.push(file.clone());
                    Ok((file, text))
                };
                let parsed = job_file::parse(&text, &mut include)
                    .with_context(|| path.display().to_string())?;
                jobs.workloads.extend(parsed.workloads);
                jobs.notes.extend(parsed.notes);
                jobs.differences.extend(parsed.differences);
            }
            None => data.push(path.clone()),
        }
    }
    if jobs.workloads.is_empty() {
        return Ok((plan::plan(args, &target(args, data)?), false));
    }
    if let Some(path) = data.first() {
        bail!(
            "{} is not a job file; give job files or files to measure on, not both",
            path.display()
        );
    }
    let given = args.job_options();
    if !given.is_empty() {
        bail!("{} cannot be used with a job file; set it in the job file", given.join(", "));
    }
    for workload in &mut jobs.workloads {
        workload.verify = args.verify;
    }
    Ok((jobs, true))
}

/// The text of a job file; `None` for anything else.
fn job_text(path: &Path) -> anyhow::Result<Option<String>> {
    let name = || path.display().to_string();
    if path.extension().is_some_and(|extension| extension == "fio") {
        return fs::read_to_string(path).with_context(name).map(Some);
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_JOB_FILE => {
            let text = fs::read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            Ok(text.filter(|text| begins_with_section(text)))
        }
        // Errors are reported when the file is opened to measure on.
        _ => Ok(None),
    }
}

/// The path and the text of a file that `from` includes. As in fio, it is in the current folder or
/// in the folder of the file that includes it.
fn included(from: &Path, name: &str) -> Result<(PathBuf, String), String> {
    let here = PathBuf::from(name);
    let path = if here.exists() { here } else { from.with_file_name(name) };
    let text = fs::File::open(&path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(MAX_JOB_FILE + 1).read_to_end(&mut bytes)?;
        // Without its end it would be another measurement.
        if bytes.len() as u64 > MAX_JOB_FILE {
            return Err(io::Error::other("is larger than 1 MiB"));
        }
        String::from_utf8(bytes).map_err(|_| io::Error::other("is not UTF-8"))
    });
    match text {
        Ok(text) => Ok((path, text)),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn begins_with_section(text: &str) -> bool {
    let first =
        text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with([';', '#']));
    first.is_some_and(|line| line.starts_with('[') && line.contains(']'))
}

fn target(args: &BenchArgs, data: Vec<PathBuf>) -> anyhow::Result<Target> {
    Ok(match (data.is_empty(), args.size) {
        (false, size) => Target::Files { paths: data, size },
        (true, Some(size)) => Target::Scratch { size },
        (true, None) if only_null(&args.backend) => Target::Scratch { size: NULL_SIZE },
        (true, None) => {
            let folder = args.scratch.as_deref().unwrap_or(Path::new("."));
            Target::Scratch { size: scratch::default_size(folder)? }
        }
    })
}

fn only_null(backends: &[Backend]) -> bool {
    !backends.is_empty() && backends.iter().all(|backend| *backend == Backend::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_included_file_is_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let (job_file, large) = (folder.path().join("job.fio"), folder.path().join("large"));
        let hashes = "#".repeat(MAX_JOB_FILE as usize);
        let read = |content: &[u8]| {
            fs::write(&large, content).unwrap();
            included(&job_file, "large")
        };
        assert_eq!(read(hashes.as_bytes()), Ok((large.clone(), hashes.clone())));
        // The cut falls between characters, or into one.
        for end in ["#", "é"] {
            let error = read(format!("{hashes}{end}").as_bytes()).unwrap_err();
            assert!(error.ends_with("is larger than 1 MiB"), "{error}");
        }
        assert!(read(b"bs=\xff").unwrap_err().ends_with("is not UTF-8"));
    }

    #[test]
    fn job_files_are_recognised_by_their_first_line() {
        assert!(begins_with_section("; a comment\n\n [global]\nrw=read\n"));
        assert!(!begins_with_section("text\n[global]\n"));
        assert!(!begins_with_section(""));
    }
}
