//! The values of all keys of a section, with fio's defaults, and the files that it includes.

use super::entry::Entry;
use super::{Include, JobFileError, content, included, keys};
use crate::bench::plan::Plan;
use crate::bench::workload::{Access, Backend, Workload};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// fio's default for `randseed`.
pub(super) const DEFAULT_SEED: u64 = 0x89;

/// The values of all keys so far. Most are in `workload`; the others need more than one key.
#[derive(Clone, Default)]
pub(super) struct Settings {
    /// The line of each key that was given, under its main name.
    pub lines: BTreeMap<&'static str, usize>,
    pub workload: Workload,
    pub name: Option<String>,
    pub description: Option<String>,
    pub size: Option<u64>,
    pub file_size: Option<u64>,
    pub io_size: Option<u64>,
    pub files: u32,
    pub filenames: Vec<String>,
    pub directory: Option<String>,
    pub batch: u32,
    pub runtime: Duration,
    pub time_based: bool,
    pub pause: Duration,
    pub pause_after: u64,
    pub fsync: u32,
    pub fdatasync: u32,
    pub rate: u64,
    pub rate_iops: u64,
    pub stonewall: bool,
}

impl Settings {
    /// The defaults of fio.
    pub(super) fn of_fio() -> Self {
        let workload = Workload {
            backend: Backend::Psync,
            access: Access::Read,
            direct: false,
            seed: DEFAULT_SEED,
            stop_on_error: true,
            lay_out: false,
            group_reporting: false,
            ..Workload::default()
        };
        Self { workload, files: 1, batch: 1, pause_after: 1, ..Self::default() }
    }

    /// Reads the lines of an included file. Errors have the line that includes it.
    pub(super) fn include(
        &mut self,
        from: Option<&Path>,
        name: &str,
        line: usize,
        include: Include<'_>,
        plan: &mut Plan,
        depth: u32,
    ) -> Result<(), JobFileError> {
        let refuse =
            |message: String| JobFileError { line, key: Some("include".to_owned()), message };
        if depth == 0 {
            return Err(refuse(format!("`{name}` is included by a file that it includes")));
        }
        let (path, text) = include(from, name).map_err(refuse)?;
        for (number, text) in (1..).zip(text.lines()) {
            let inside = |error: JobFileError| JobFileError {
                line,
                message: format!("in {}, line {number}: {}", path.display(), error.message),
                ..error
            };
            let content = content(text, line, plan).map_err(inside)?;
            if content.starts_with('[') {
                return Err(inside(refuse("an included file has no sections".to_owned())));
            }
            if let Some(inner) = included(content) {
                self.include(Some(&path), inner, line, include, plan, depth - 1)?;
            } else if !content.is_empty() {
                self.set(&mut Entry::new(content, line, plan)).map_err(inside)?;
            }
        }
        Ok(())
    }

    /// Sets one key.
    pub(super) fn set(&mut self, entry: &mut Entry<'_, '_>) -> Result<(), JobFileError> {
        let key = keys::set(self, entry)?;
        self.lines.insert(key, entry.line);
        Ok(())
    }
}
