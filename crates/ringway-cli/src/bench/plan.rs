//! From options to the workloads of a bench. Pure: it looks neither at the machine nor at files.

use super::options::BenchArgs;
use super::report::configuration::describe_all;
use super::result::add_note;
use super::workload::{Access, Backend, Rate, Stop, Sync, Target, Workload};
use ringway_measure::text::{section, wrap};
use ringway_measure::units::size_text;
use std::path::PathBuf;
use std::time::Duration;

/// What to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The workloads in the order of the lists.
    pub workloads: Vec<Workload>,
    /// What was requested and is left out, and why.
    pub notes: Vec<String>,
    /// Keys of job files that do not mean the same as in fio.
    pub differences: Vec<String>,
    /// Files that job files include.
    pub included: Vec<PathBuf>,
}

const DEPTHS: [u32; 3] = [1, 32, 128];
/// The depth of the buffered configurations in a bench without options.
const BUFFERED_DEPTH: u32 = 32;
const RUNTIME: Duration = Duration::from_secs(1);
const RAMP: Duration = Duration::from_millis(100);
/// The default number of runs of each workload.
pub const REPEAT: u32 = 3;

/// Every combination of the lists, without those that mean the same as another one.
pub fn plan(args: &BenchArgs, target: &Target) -> Plan {
    let mut workloads = vec![base(args, target)];
    multiply(&mut workloads, &args.rw, &[Access::RandRead], |w, access| w.access = access);
    multiply(&mut workloads, &args.direct, &[true], |w, direct| w.direct = direct);
    multiply(&mut workloads, &args.bs, &[4096], |w, bytes| w.block_size = bytes);
    multiply(&mut workloads, &args.jobs, &[1], |w, jobs| w.jobs = jobs);
    multiply(&mut workloads, &args.depth, &DEPTHS, |w, depth| w.depth = depth);
    let backends = [Backend::Uring, Backend::Kaio, Backend::Threads, Backend::Null];
    multiply(&mut workloads, &args.backend, &backends, |w, backend| w.backend = backend);
    multiply(&mut workloads, &args.sqpoll, &[false], |w, on| w.sqpoll = on);
    multiply(&mut workloads, &args.iopoll, &[false], |w, on| w.iopoll = on);
    multiply(&mut workloads, &args.passthrough, &[false], |w, on| w.passthrough = on);
    multiply(&mut workloads, &args.fixed_buffers, &[false], |w, on| w.fixed_buffers = on);
    multiply(&mut workloads, &args.fixed_files, &[false], |w, on| w.fixed_files = on);
    if args.is_default_matrix() {
        let buffered = |backend| Workload {
            backend,
            direct: false,
            depth: BUFFERED_DEPTH,
            ..base(args, target)
        };
        workloads.extend(backends.map(buffered));
    }
    let mut plan = Plan::default();
    for workload in workloads {
        plan.add(workload);
    }
    let any = |is: fn(&Workload) -> bool| plan.workloads.iter().any(is);
    let without_effect = [
        (
            args.read_percent.is_some() && !any(|w| w.access.is_mixed()),
            "--read-percent has no effect without mixed workloads (randrw, rw)",
        ),
        (
            (args.overwrite || args.fill) && matches!(target, Target::Scratch { .. }),
            "--overwrite and --fill have no effect on a scratch file, which is new and filled",
        ),
    ];
    let notes = without_effect.into_iter().filter(|(is, _)| *is).map(|(_, note)| note.to_owned());
    plan.notes.extend(notes.collect::<Vec<_>>());
    plan
}

/// Makes of each workload one for each of the given values, or of the default ones.
fn multiply<T: Copy>(
    workloads: &mut Vec<Workload>,
    given: &[T],
    default: &[T],
    set: impl Fn(&mut Workload, T),
) {
    let values = if given.is_empty() { default } else { given };
    let with = |workload: &Workload, value| {
        let mut workload = workload.clone();
        set(&mut workload, value);
        workload
    };
    *workloads = workloads
        .iter()
        .flat_map(|workload| values.iter().map(move |value| with(workload, *value)))
        .collect();
}

/// The options that are not lists.
fn base(args: &BenchArgs, target: &Target) -> Workload {
    Workload {
        read_percent: args.read_percent.unwrap_or(50),
        batch: args.batch,
        complete_min: args.batch.unwrap_or(1),
        stop: match args.requests {
            Some(requests) => Stop::Requests(requests),
            None => Stop::After(args.runtime.unwrap_or(RUNTIME)),
        },
        ramp: args.ramp.unwrap_or(RAMP),
        rate: args.rate.map(Rate::Requests),
        sync: args
            .fsync
            .or(args.fdatasync)
            .map(|every| Sync { data_only: args.fsync.is_none(), every }),
        seed: args.seed.unwrap_or(1),
        verify: args.verify,
        target: target.clone(),
        ..Workload::default()
    }
}

impl Plan {
    /// Adds a workload without the options that its backend does not have, unless the result is
    /// there already.
    fn add(&mut self, mut workload: Workload) {
        let uring = workload.backend == Backend::Uring;
        for (name, on) in [
            ("--sqpoll", &mut workload.sqpoll),
            ("--iopoll", &mut workload.iopoll),
            ("--passthrough", &mut workload.passthrough),
            ("--fixed-buffers", &mut workload.fixed_buffers),
            ("--fixed-files", &mut workload.fixed_files),
        ] {
            if *on && !uring {
                self.note(format!("{name} is for uring only; the other backends run without it"));
                *on = false;
            }
        }
        if workload.iopoll && !workload.direct {
            self.note("--iopoll needs direct I/O; buffered runs go without it".to_owned());
            workload.iopoll = false;
        }
        if workload.passthrough && !workload.direct {
            self.note("--passthrough is direct I/O; buffered runs go without it".to_owned());
            workload.passthrough = false;
        }
        if workload.is_null() {
            // It does no I/O, so these make no difference.
            (workload.direct, workload.verify) = (false, false);
        }
        if workload.backend == Backend::Psync && workload.depth > 1 {
            self.note("psync has one request in flight in each job; --jobs adds more".to_owned());
            workload.depth = 1;
        }
        if workload.sync.is_some() && !workload.access.writes() {
            self.note("--fsync and --fdatasync have no effect on workloads that only read".into());
            workload.sync = None;
        }
        if workload.sync.is_some() && workload.depth > 1 {
            self.note(
                "a sync does not wait for writes in flight; at --depth 1 it follows its writes"
                    .to_owned(),
            );
        }
        if let Some(batch) = workload.batch.filter(|batch| *batch > workload.depth) {
            self.note(format!("--batch {batch} is reduced where the depth is smaller"));
            workload.batch = Some(workload.depth);
            workload.complete_min = workload.depth;
        }
        let size = size_text(workload.block_size);
        workload.name = format!("{}-{size}-{}", workload.access.name(), workload.depth);
        if !self.workloads.contains(&workload) {
            self.workloads.push(workload);
        }
    }

    /// What would run, and for job files how that differs from fio.
    pub fn text(&self, is_job_file: bool) -> String {
        let mut text = String::new();
        for workload in &self.workloads {
            text += &wrap(&format!("{}: ", workload.name), &describe_all(workload));
        }
        if is_job_file && self.differences.is_empty() {
            text += "\nAll keys have the meaning of fio.\n";
        }
        text + &section("Differences from fio", &self.differences) + &section("Notes", &self.notes)
    }

    fn note(&mut self, note: String) {
        add_note(&mut self.notes, note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::options::tests::parse;
    use proptest::prelude::*;

    const TARGET: Target = Target::Scratch { size: 1 << 30 };

    fn planned(options: &str) -> Plan {
        plan(&parse(options).unwrap(), &TARGET)
    }

    #[test]
    fn lists_multiply() {
        let lists = "--backend uring,kaio --rw randread,write --bs 512,64k --depth 1,32";
        let plan = planned(&format!("{lists} --jobs 1,2 --direct 0,1"));
        assert_eq!(plan.workloads.len(), 64);
        assert_eq!(plan.notes, Vec::<String>::new());
        let is_last = |w: &Workload| w.name == "write-64k-32" && w.jobs == 2 && w.direct;
        assert!(plan.workloads.iter().any(is_last));
    }

    #[test]
    fn the_default_compares_all_backends_direct_and_buffered() {
        let plan = planned("");
        let count =
            |backend| plan.workloads.iter().filter(|workload| workload.backend == backend).count();
        assert_eq!([Backend::Uring, Backend::Kaio, Backend::Threads].map(count), [4, 4, 4]);
        assert_eq!(count(Backend::Null), 3);
        let seconds: f64 =
            plan.workloads.iter().map(|workload| (RUNTIME + workload.ramp).as_secs_f64()).sum();
        assert!(seconds * f64::from(REPEAT) < 55.0, "with the scratch file, about a minute");
    }

    #[test]
    fn options_that_do_not_fit_are_left_out_with_a_note() {
        let settings = |w: &Workload| (w.backend, w.sqpoll, w.fixed_buffers, w.iopoll, w.batch);
        for (options, expected, notes) in [
            (
                "--depth 4 --backend uring,kaio --sqpoll 0,1 --fixed-buffers",
                &[
                    (Backend::Uring, false, true, false, None),
                    (Backend::Uring, true, true, false, None),
                    (Backend::Kaio, false, false, false, None),
                ][..],
                &["--fixed-buffers is for uring only", "--sqpoll is for uring only"][..],
            ),
            (
                "--depth 4 --backend uring --direct 0 --iopoll --fsync 1 --batch 16",
                &[(Backend::Uring, false, false, false, Some(4))],
                &["--iopoll needs direct I/O", "--fsync and --fdatasync", "--batch 16 is reduced"],
            ),
            (
                // (Whether --cache has an effect depends on the files too.)
                "--depth 4 --backend uring --read-percent 9 --cache cold --overwrite --fill",
                &[(Backend::Uring, false, false, false, None)],
                &["--read-percent has no", "--overwrite and --fill have no"],
            ),
        ] {
            let plan = planned(options);
            assert_eq!(plan.workloads.iter().map(settings).collect::<Vec<_>>(), expected);
            assert!(plan.workloads.iter().all(|w| w.sync.is_none()));
            assert_eq!(plan.notes.len(), notes.len(), "{:?}", plan.notes);
            assert!(plan.notes.iter().zip(notes).all(|(note, part)| note.starts_with(part)));
        }
        let used = planned("--rw randread,rw --direct 0,1 --read-percent 9 --cache cold");
        assert_eq!(used.notes, Vec::<String>::new());
    }

    fn some<T: Clone + std::fmt::Debug + 'static>(all: &[T]) -> impl Strategy<Value = Vec<T>> {
        proptest::sample::subsequence(all.to_vec(), 0..=all.len())
    }

    proptest! {
        #[test]
        fn workloads_are_unique_and_valid(
            backend in some(&[Backend::Uring, Backend::Kaio, Backend::Threads, Backend::Null]),
            rw in some(&[Access::Read, Access::RandWrite, Access::RandRw]),
            direct in some(&[false, true]),
            sqpoll in some(&[false, true]),
            iopoll in some(&[false, true]),
            fixed_buffers in some(&[false, true]),
            depth in some(&[1, 7]),
            batch in proptest::option::of(1u32..10),
            fsync in proptest::option::of(1u32..10),
        ) {
            let args = BenchArgs {
                backend, rw, direct, sqpoll, iopoll, fixed_buffers, depth, batch, fsync,
                ..BenchArgs::default()
            };
            let plan = plan(&args, &TARGET);
            prop_assert!(!plan.workloads.is_empty());
            for (index, workload) in plan.workloads.iter().enumerate() {
                prop_assert!(!plan.workloads[..index].contains(workload));
                let has_options = workload.sqpoll || workload.iopoll || workload.fixed_buffers;
                prop_assert!(workload.backend == Backend::Uring || !has_options);
                prop_assert!(!workload.iopoll || workload.direct);
                prop_assert!(workload.batch.is_none_or(|batch| batch <= workload.depth));
                prop_assert!(workload.complete_min <= workload.depth);
                prop_assert!(workload.sync.is_none() || workload.access.writes());
            }
        }
    }
}
