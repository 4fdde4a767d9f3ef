//! `ringway probe`: what this machine supports and refuses, why, and how to fix it.

mod advice;
mod file_system;
mod json;
#[cfg(test)]
mod samples;
mod text;

pub use json::render_json;
pub use text::render_text;

use crate::cli::print;
use anyhow::Context;
use ringway_core::device::{AlignmentSource, PathFacts, StorageKind};
use ringway_core::probe::{self, Machine, PathProbe};
use ringway_measure::text::clean;
use std::path::{Path, PathBuf};

/// The options of `ringway probe`.
#[derive(clap::Args, Clone, Debug)]
pub struct ProbeArgs {
    /// Also examine this file or block device, which is only read, or this directory, in which a
    /// file without a name is made for a moment
    pub path: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The data of a report.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The machine.
    pub machine: Machine,
    /// The path on the command line.
    pub path: Option<(PathBuf, PathProbe)>,
}

/// Whether files have direct I/O. `None` for a directory in which none could be made, and whose
/// file system has no device to derive it from: tmpfs, overlays and others.
fn has_direct_io(probed: &PathProbe) -> Option<bool> {
    let PathFacts { kind, direct, .. } = &probed.facts;
    let was_tried = *kind != StorageKind::Directory || probed.direct_read.is_some();
    let is_known = was_tried || direct.source != AlignmentSource::Assumed;
    is_known.then_some(direct.supported)
}

/// A path in a report, where control characters of its name have no effect.
fn shown(path: &Path) -> String {
    clean(&path.to_string_lossy())
}

/// Probes the machine, and the path if one is given, and prints the report.
///
/// # Errors
///
/// A path that cannot be examined, or an output that cannot be written to. Refusals are a part of
/// the report.
pub fn run(args: &ProbeArgs) -> anyhow::Result<()> {
    // The path comes first, because probing the machine takes longer.
    let path = match &args.path {
        Some(path) => {
            let probed = probe::path(path).with_context(|| path.display().to_string())?;
            Some((path.clone(), probed))
        }
        None => None,
    };
    let probe = Probe { machine: probe::machine(), path };
    let report = if args.json { render_json(&probe) } else { render_text(&probe) };
    Ok(print(&report)?)
}
