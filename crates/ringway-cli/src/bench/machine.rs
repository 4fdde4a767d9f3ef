//! The facts about the machine and the files that a report is about.

use super::memory::available_memory;
use super::result::{Machine, Measurement, add_note};
use super::target::JobFiles;
use super::workload::{Cache, Target, Workload};
use anyhow::Context;
use ringway_core::device::PathFacts;
use ringway_core::refusal::bytes_text;
use std::fs;
use std::path::Path;

pub fn machine(
    measurements: &[Measurement],
    files: &[JobFiles],
    folder: &Path,
    mut remarks: Vec<String>,
) -> anyhow::Result<Machine> {
    let mut facts: Vec<&PathFacts> = Vec::new();
    for source in files.iter().flatten().flatten() {
        if !facts.contains(&&source.facts) {
            facts.push(&source.facts);
        }
    }
    let size = files.iter().flatten().flatten().map(|source| source.size).max().unwrap_or(0);
    let only_null = measurements.iter().all(|measurement| measurement.workload.is_null());
    let named = match measurements.first().map(|measurement| &measurement.workload.target) {
        _ if only_null => "no file: the null backend does no I/O".to_owned(),
        Some(Target::Scratch { size }) => {
            let folder = fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
            format!(
                "target: a scratch file of {} in {}, removed afterwards",
                bytes_text(*size),
                folder.display()
            )
        }
        Some(Target::Files(paths) | Target::SizedFiles { paths, .. }) => {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("target: {}", paths.join(", "))
        }
        Some(Target::Directory { path, .. }) => {
            format!("target: files in {}, which are kept", path.display())
        }
        None => String::new(),
    };
    remarks.insert(0, named);
    if only_null {
        facts.clear();
    }
    let (mut file_systems, mut devices, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for facts in facts {
        add_note(&mut file_systems, facts.file_system.clone());
        if let Some(device) = &facts.device {
            add_note(&mut devices, device.to_string());
        }
    }
    for measurement in measurements {
        if let Some(reason) = &measurement.refused {
            add_note(&mut refused, format!("{}: {reason}", measurement.workload.backend.name()));
        }
    }
    Ok(Machine {
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        file_system: file_systems.join("; "),
        device: devices.join("; "),
        target_size: if only_null { 0 } else { size },
        remarks,
        refused,
    })
}

pub fn cache_remark(cache: Cache, workloads: &[Workload], files: &[JobFiles]) -> Option<String> {
    let is_cached = |of: &Workload| !of.direct && !of.is_null() && of.access.reads();
    let largest = files.iter().flatten().flatten().map(|source| source.size).max().unwrap_or(0);
    let state = match cache {
        Cache::Warm if largest > available_memory() / 2 => {
            "the file is too large for the page cache, which is left as it is"
        }
        Cache::Warm => "the file is in the page cache",
        Cache::Cold => "the file is dropped from the page cache before each run",
        Cache::Keep => "the page cache is left as it is after the previous run",
    };
    workloads.iter().any(is_cached).then(|| format!("buffered runs: {state}"))
}
