//! Passing operations on NVMe namespaces to the device as commands: a transfer is cut to what one
//! command does, and to the end of the namespace.

use super::options::Explanation;
use crate::backend::Job;
use crate::file::{File, FileKind};
use crate::op::{Flush, Fsync, NvmePlan as Plan, Operation, Raw, plan_nvme};
use crate::refusal::Feature;

/// Whether a queue passes commands to namespaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passthrough {
    is_on: bool,
}

impl Passthrough {
    pub(super) fn of(explanation: &Explanation) -> Self {
        Self { is_on: explanation.available.contains(&Feature::Passthrough) }
    }

    /// Whether the backend takes the job as it is: it is not on a namespace, or one command.
    #[inline]
    pub(super) fn takes(self, operation: &Operation, job: &Job) -> bool {
        !self.is_on || matches!(plan(operation, job), Plan::Whole)
    }

    /// Makes a job on a namespace one command, or `by_thread` a system call. Returns the result if
    /// nothing is to be submitted.
    #[inline]
    pub(super) fn cut(self, operation: &Operation, job: &mut Job, by_thread: bool) -> Option<i64> {
        let FileKind::Namespace { id: nsid, .. } = job.file else { return None };
        if !self.is_on {
            return None;
        }
        if let (true, Raw::Fsync(Fsync { fd, .. })) = (by_thread, job.raw) {
            job.raw = Flush { fd, nsid }.into();
        }
        match plan(operation, job) {
            Plan::Whole => None,
            Plan::Part(raw) => {
                job.raw = raw;
                None
            }
            Plan::Done(result) => Some(result),
        }
    }

    /// Whether the file is an NVMe generic device that gets no commands.
    pub(super) fn lacks(self, file: &File) -> bool {
        let gets_commands = self.is_on && matches!(file.traits().kind, FileKind::Namespace { .. });
        !gets_commands && file.namespace().is_some()
    }

    /// Whether the errors of the ring may be the device's.
    pub(super) fn is_on(self) -> bool {
        self.is_on
    }
}

/// What becomes of a job.
fn plan(operation: &Operation, job: &Job) -> Plan {
    let namespace = match job.file {
        FileKind::Namespace { .. } => operation.file.as_ref().and_then(File::namespace),
        _ => None,
    };
    match namespace {
        Some(Ok(namespace)) => plan_nvme(namespace, &job.raw),
        _ => Plan::Whole,
    }
}
