//! The files of all workloads, before anything is measured.

use super::input::NULL_SIZE;
use super::options::BenchArgs;
use super::progress::Progress;
use super::result::add_note;
use super::target::{JobFiles, Targets};
use super::workload::Workload;
use std::path::Path;

/// Checks, creates and fills the files. A bench of the null backend alone needs none.
pub fn prepare(
    workloads: &[Workload],
    args: &BenchArgs,
    folder: &Path,
    progress: &Progress,
) -> anyhow::Result<Vec<JobFiles>> {
    let mut targets = Targets::new(folder.to_owned(), args.overwrite, args.fill, progress);
    if workloads.iter().all(Workload::is_null) {
        return workloads.iter().map(|null| targets.nothing(null.jobs, NULL_SIZE)).collect();
    }
    targets.prepare(workloads)
}

/// Replaces direct by buffered I/O where the file system does not support it, and adds a remark.
pub fn use_buffered_where_direct_fails(
    workloads: &mut Vec<Workload>,
    files: Vec<JobFiles>,
    remarks: &mut Vec<String>,
) -> Vec<JobFiles> {
    let mut kept: Vec<Workload> = Vec::new();
    let mut kept_files = Vec::new();
    for (mut workload, files) in std::mem::take(workloads).into_iter().zip(files) {
        let without = files.iter().flatten().find(|source| !source.facts.direct.supported);
        if let Some(source) = without.filter(|_| workload.direct) {
            let file_system = &source.facts.file_system;
            let remark = format!("{file_system} does not support direct I/O: measured buffered");
            add_note(remarks, remark);
            (workload.direct, workload.iopoll) = (false, false);
            if kept.contains(&workload) {
                continue;
            }
        }
        kept.push(workload);
        kept_files.push(files);
    }
    *workloads = kept;
    kept_files
}
