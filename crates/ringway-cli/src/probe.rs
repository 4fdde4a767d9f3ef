//! `ringway probe`: what this machine grants and refuses, why, and what to do about it.

mod advice;
mod json;
#[cfg(test)]
mod samples;
mod text;

pub use json::render_json;
pub use text::render_text;

use anyhow::Context;
use ringway_core::probe::{self, Machine, PathProbe};
use std::io::Write;
use std::path::PathBuf;

/// What can be asked of `ringway probe`.
#[derive(clap::Args, Clone, Debug)]
pub struct ProbeArgs {
    /// A file, directory or block device to look at as well; it is only read
    pub path: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// All that a report is made of.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The machine.
    pub machine: Machine,
    /// The path that was asked about.
    pub path: Option<(PathBuf, PathProbe)>,
}

/// Probes the machine, and the path if there is one, and prints what was found.
///
/// # Errors
///
/// A path that cannot be looked at, or an output that cannot be written to. What is refused is part
/// of the report.
pub fn run(args: &ProbeArgs) -> anyhow::Result<()> {
    // The path first: a mistyped one should be told at once.
    let path = match &args.path {
        Some(path) => {
            let probed = probe::path(path).with_context(|| path.display().to_string())?;
            Some((path.clone(), probed))
        }
        None => None,
    };
    let probe = Probe { machine: probe::machine(), path };
    let report = if args.json { render_json(&probe) } else { render_text(&probe) };
    std::io::stdout().write_all(report.as_bytes())?;
    Ok(())
}
