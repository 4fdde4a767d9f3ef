//! The facts about the machine and the files that a report is about.

use super::memory::available_memory;
use super::result::{Machine, Measurement, add_note};
use super::target::JobFiles;
use super::workload::{Cache, Target, Workload};
use anyhow::Context;
use ringway_core::refusal::bytes_text;
use std::fs;
use std::path::Path;

pub fn machine(
    measurements: &[Measurement],
    files: &[JobFiles],
    folder: &Path,
    mut remarks: Vec<String>,
) -> anyhow::Result<Machine> {
    let only_null = measurements.iter().all(|measurement| measurement.workload.is_null());
    let target = measurements.first().map(|measurement| &measurement.workload.target);
    remarks.insert(
        0,
        match target {
            _ if only_null => "no file: the null backend does no I/O".to_owned(),
            Some(target) => target_remark(target, folder)?,
            None => String::new(),
        },
    );
    let (mut file_systems, mut devices, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for source in files.iter().flatten().flatten().filter(|_| !only_null) {
        add_note(&mut file_systems, source.facts.file_system.clone());
        if let Some(device) = &source.facts.device {
            add_note(&mut devices, device.to_string());
        }
    }
    for measurement in measurements {
        if let Some(reason) = &measurement.refused {
            add_note(&mut refused, format!("{}: {reason}", measurement.workload.backend.name()));
        }
    }
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(Machine {
        kernel: kernel.trim().to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        file_system: file_systems.join("; "),
        device: devices.join("; "),
        target_size: if only_null { 0 } else { largest(files) },
        remarks,
        refused,
    })
}

/// What is measured on, in words.
fn target_remark(target: &Target, folder: &Path) -> anyhow::Result<String> {
    Ok(match target {
        Target::Scratch { size } => {
            let folder = fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
            let (size, folder) = (bytes_text(*size), folder.display());
            format!("target: a scratch file of {size} in {folder}, removed afterwards")
        }
        Target::Files { paths, .. } => {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("target: {}", paths.join(", "))
        }
        Target::Directory { path, .. } => {
            format!("target: files in {}, which are kept", path.display())
        }
    })
}

/// The size of the largest file.
fn largest(files: &[JobFiles]) -> u64 {
    files.iter().flatten().flatten().map(|source| source.size).max().unwrap_or(0)
}

/// What `--cache` means for these workloads, which are direct only if their files support that.
pub fn cache_remark(
    cache: Cache,
    is_given: bool,
    workloads: &[Workload],
    files: &[JobFiles],
) -> Option<String> {
    if !workloads.iter().any(|w| !w.direct && !w.is_null() && w.access.reads()) {
        let without = "--cache has no effect on direct I/O and on workloads that only write";
        return is_given.then(|| without.to_owned());
    }
    let state = match cache {
        Cache::Warm if largest(files) > available_memory() / 2 => {
            "the file is too large for the page cache, which is left as it is"
        }
        Cache::Warm => "the file is in the page cache",
        Cache::Cold => "the file is dropped from the page cache before each run",
        Cache::Keep => "the page cache is left as it is after the previous run",
    };
    Some(format!("buffered runs: {state}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::{Access, Backend};

    #[test]
    fn the_cache_matters_to_buffered_reads() {
        let remark = |is_given, direct, access, backend| {
            let workload = Workload { direct, access, backend, ..Workload::default() };
            cache_remark(Cache::Cold, is_given, &[workload], &[])
        };
        let read = remark(false, false, Access::RandRead, Backend::Threads).unwrap();
        assert!(read.starts_with("buffered runs: the file is dropped"), "{read}");
        for (direct, access, backend) in [
            (true, Access::RandRead, Backend::Threads),
            (false, Access::Write, Backend::Threads),
            (false, Access::RandRead, Backend::Null),
        ] {
            let given = remark(true, direct, access, backend).unwrap();
            assert!(given.starts_with("--cache has no effect"), "{given}");
            assert_eq!(remark(false, direct, access, backend), None);
        }
    }
}
