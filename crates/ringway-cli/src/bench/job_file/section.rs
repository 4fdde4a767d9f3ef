//! A section of a job file, whose settings become a workload.

use super::JobFileError;
use super::settings::Settings;
use crate::bench::plan::Plan;
use crate::bench::workload::{Amount, Backend, Pause, Rate, Stop, Sync, Target, Workload};
use std::path::PathBuf;

/// A section that is a job.
pub(super) struct Section {
    pub line: usize,
    pub name: String,
    pub settings: Settings,
}

impl Section {
    /// The job's name: the key `name`, or the section's.
    fn name(&self) -> &str {
        self.settings.name.as_deref().unwrap_or(&self.name)
    }

    /// An error about a key, at its line or, if it is not given, at the section's header.
    fn error(&self, key: &str, message: &str) -> JobFileError {
        JobFileError {
            line: self.settings.lines.get(key).copied().unwrap_or(self.line),
            key: Some(key.to_owned()),
            message: format!("in [{}]: {message}", self.name),
        }
    }

    fn note(&self, plan: &mut Plan, message: &str) {
        plan.notes.push(format!("[{}]: {message}", self.name));
    }

    pub(super) fn workload(&self, plan: &mut Plan) -> Result<Workload, JobFileError> {
        let settings = &self.settings;
        let given = |key| settings.lines.contains_key(key);
        let mut workload = settings.workload.clone();
        workload.name = self.name().to_owned();
        if let Some(description) = &settings.description {
            self.note(plan, description);
        }
        if workload.backend == Backend::Psync && workload.depth > 1 {
            let message = format!(
                "`iodepth={}` has no effect with blocking calls: each job has one request in \
                 flight; use `numjobs` for more",
                workload.depth
            );
            self.note(plan, &message);
            workload.depth = 1;
        }
        self.uring_only(&mut workload, plan)?;
        (workload.target, workload.stop) = self.target_and_stop()?;
        workload.rate = self.rate(plan)?;
        // In fio `bssplit` overrides the other keys, wherever it is.
        if given("bssplit") && (given("bs") || given("bsrange")) {
            return Err(self.error("bssplit", "cannot be combined with `bs` or `bsrange`"));
        }
        let depth = workload.depth;
        workload.batch = Some(match settings.batch {
            // In fio 0 means `iodepth`.
            0 => depth,
            batch => self.at_most_depth("iodepth_batch_submit", batch, depth, plan),
        });
        let key = "iodepth_batch_complete_min";
        workload.complete_min = self.at_most_depth(key, workload.complete_min, depth, plan);
        let (time, after) = (settings.pause, settings.pause_after);
        workload.pause = (!time.is_zero()).then_some(Pause { time, after });
        workload.sync = match (settings.fsync, settings.fdatasync) {
            (0, 0) => None,
            (every, 0) => Some(Sync { data_only: false, every }),
            (0, every) => Some(Sync { data_only: true, every }),
            _ => {
                let message =
                    "cannot be combined with `fsync`; give one of them, or 0 for the other";
                return Err(self.error("fdatasync", message));
            }
        };
        // A given seed asks for repetition, whatever `randrepeat` is.
        workload.rand_repeat |= given("randseed");
        Ok(workload)
    }

    fn rate(&self, plan: &mut Plan) -> Result<Option<Rate>, JobFileError> {
        let rate = match (self.settings.rate, self.settings.rate_iops) {
            (0, 0) => return Ok(None),
            (0, requests) => Rate::Requests(requests),
            (bytes, 0) => Rate::Bytes(bytes),
            _ => {
                let message = "cannot be combined with `rate_iops`; give one of them";
                return Err(self.error("rate", message));
            }
        };
        if self.settings.workload.access.is_mixed() {
            plan.differences.push(format!(
                "[{}]: the rate limits reads and writes together; in fio it limits each",
                self.name
            ));
        }
        Ok(Some(rate))
    }

    fn at_most_depth(&self, key: &str, value: u32, depth: u32, plan: &mut Plan) -> u32 {
        if value > depth {
            self.note(plan, &format!("`{key}={value}` is reduced to {depth}, the `iodepth`"));
        }
        value.min(depth)
    }

    /// Removes io_uring's keys from other engines. In the job's own section they are an error;
    /// inherited from `[global]` they are left out, as in fio.
    fn uring_only(&self, workload: &mut Workload, plan: &mut Plan) -> Result<(), JobFileError> {
        if workload.backend == Backend::Uring {
            // fio registers the files for SQPOLL, because the first kernels with SQPOLL required
            // it.
            workload.fixed_files |= workload.sqpoll;
            return Ok(());
        }
        for (key, on) in [
            ("sqthread_poll", &mut workload.sqpoll),
            ("hipri", &mut workload.iopoll),
            ("fixedbufs", &mut workload.fixed_buffers),
            ("registerfiles", &mut workload.fixed_files),
        ] {
            if !std::mem::take(on) {
                continue;
            }
            if self.settings.lines.get(key).is_some_and(|&line| line > self.line) {
                return Err(self.error(key, "needs `ioengine=io_uring`"));
            }
            self.note(plan, &format!("`{key}` is left out: it needs `ioengine=io_uring`"));
        }
        Ok(())
    }

    /// The job's files, and when it ends.
    fn target_and_stop(&self) -> Result<(Target, Stop), JobFileError> {
        let settings = &self.settings;
        let workload = &settings.workload;
        let files = match settings.filenames.len() as u64 {
            0 => u64::from(settings.files),
            files => files,
        };
        let offset = match (workload.start, settings.file_size) {
            (Amount::Percent(_), Some(_)) => {
                return Err(self.error("offset", "cannot be a percentage with `filesize`"));
            }
            (Amount::Bytes(byte), _) => byte,
            (Amount::Percent(_), None) => 0,
        };
        // In fio `size` is the size of all files together, unless `filesize` is the size of each;
        // then `size` is only the amount to move. `filesize` includes the bytes before `offset`.
        let after_offset = settings.file_size.map(|each| each.saturating_sub(offset));
        let (file_size, amount) = match (after_offset, settings.size) {
            (None, None) => (None, None),
            // The amount is the size of the files.
            (None, Some(size)) => (Some(size / files), None),
            (Some(each), Some(size)) => (Some(each), Some(size)),
            (Some(each), None) => {
                let too_large = "is too large for so many files; give `size` too";
                let amount = each.checked_mul(files);
                (Some(each), Some(amount.ok_or_else(|| self.error("filesize", too_large))?))
            }
        };
        let short = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes < workload.block_size);
        if short(file_size) || short(settings.size) {
            let key = if short(after_offset) { "filesize" } else { "size" };
            let message = format!(
                "is less than one block after the offset; give at least {} bytes for each file, \
                 or a smaller `bs`",
                workload.block_size
            );
            return Err(self.error(key, &message));
        }

        // A percentage is an amount only once the file's size is known.
        let amount = settings.io_size.or(amount.filter(|_| workload.percent == 100));
        let runtime = (!settings.runtime.is_zero()).then_some(settings.runtime);
        let stop = match (settings.time_based, runtime, amount) {
            (true, Some(runtime), _) => Stop::After(runtime),
            (true, None, _) => {
                let message = "needs a `runtime`, such as `runtime=15s`";
                return Err(self.error("time_based", message));
            }
            (false, runtime, Some(amount)) => Stop::Bytes(amount, runtime),
            (false, runtime, None) => Stop::Whole(runtime),
        };
        Ok((self.target(file_size)?, stop))
    }

    fn target(&self, file_size: Option<u64>) -> Result<Target, JobFileError> {
        let settings = &self.settings;
        if settings.filenames.is_empty() {
            let Some(size) = file_size else {
                let message = "is missing; give the size of the file, such as `size=1g`, or an \
                               existing file with `filename`";
                return Err(self.error("size", message));
            };
            // The file has the name of the job and must be in the folder.
            if self.name().contains('/') {
                let message = "is missing, and the `/` in the job's name cannot be in a file name";
                return Err(self.error("filename", message));
            }
            let path = PathBuf::from(settings.directory.as_deref().unwrap_or("."));
            return Ok(Target::Directory { path, size, files: settings.files });
        }
        // Not `Path::join`: in fio even an absolute name is below the folder.
        let path = |name: &String| match &settings.directory {
            Some(directory) => PathBuf::from(format!("{directory}/{name}")),
            None => PathBuf::from(name),
        };
        let paths = settings.filenames.iter().map(path).collect();
        Ok(Target::Files { paths, size: file_size })
    }
}
