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
use file_system::observed;
use ringway_core::device::{AlignmentSource, PathFacts, StorageKind};
use ringway_core::probe::{self, Machine, PathProbe};
use std::path::PathBuf;

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

/// Whether files have direct I/O. `None` if no trial showed it, as in a directory in which no file
/// could be made, and it can be derived neither from a device (tmpfs, overlays and others have
/// none) nor from what was observed of the file system.
fn has_direct_io(probed: &PathProbe, kernel: &str) -> Option<bool> {
    let PathFacts { kind, direct, file_system, .. } = &probed.facts;
    let was_tried = match &probed.direct_read {
        Some(Ok(())) => true,
        Some(Err(refusal)) => [libc::EINVAL, libc::EOPNOTSUPP].contains(&refusal.errno),
        None => *kind != StorageKind::Directory,
    };
    let is_known = match direct.source {
        _ if was_tried || *kind == StorageKind::Block => true,
        AlignmentSource::Statx => true,
        AlignmentSource::Assumed => false,
        // The device supports it, and the file system may not.
        _ => observed(file_system, kernel).is_none_or(|observed| observed.opens_direct()),
    };
    is_known.then_some(direct.supported)
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
