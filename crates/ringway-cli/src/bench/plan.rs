//! From options to the cells of the matrix. Pure: it asks neither the machine nor the file.

use super::options::BenchArgs;
use super::workload::{Access, Backend, Rate, Stop, Sync, Target, Workload};
use std::time::Duration;

/// What is to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The cells in the order of the matrix.
    pub cells: Vec<Workload>,
    /// What was asked for and is left out, and why.
    pub notes: Vec<String>,
}

const DEPTHS: [u32; 3] = [1, 32, 128];
/// Where the one buffered cell of the matrix that nobody asked for stands.
const BUFFERED_DEPTH: u32 = 32;
const RUNTIME: Duration = Duration::from_secs(1);
const RAMP: Duration = Duration::from_millis(100);
/// Runs of each cell where nothing else is said.
pub const REPEAT: u32 = 3;

/// Every combination of the lists, without those that would be another one by another name.
pub fn plan(args: &BenchArgs, target: &Target) -> Plan {
    let mut plan = Plan { cells: Vec::new(), notes: Vec::new() };
    let backends =
        or(&args.backend, &[Backend::Uring, Backend::Kaio, Backend::Threads, Backend::Null]);
    for &access in &or(&args.rw, &[Access::RandRead]) {
        for &direct in &or(&args.direct, &[true]) {
            for &block_size in &or(&args.bs, &[4096]) {
                for &jobs in &or(&args.jobs, &[1]) {
                    for &depth in &or(&args.depth, &DEPTHS) {
                        for &backend in &backends {
                            let cell = Workload {
                                backend,
                                access,
                                direct,
                                block_size,
                                jobs,
                                depth,
                                ..plain(args, target)
                            };
                            plan.add_with_switches(args, &cell);
                        }
                    }
                }
            }
        }
    }
    if args.asks_for_nothing() {
        for &backend in &backends {
            plan.add(Workload {
                backend,
                direct: false,
                depth: BUFFERED_DEPTH,
                ..plain(args, target)
            });
        }
    }
    plan
}

fn or<T: Copy>(given: &[T], default: &[T]) -> Vec<T> {
    if given.is_empty() { default.to_vec() } else { given.to_vec() }
}

/// What the lists do not say.
fn plain(args: &BenchArgs, target: &Target) -> Workload {
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
        sync: args.fsync.map(Sync::Fsync).or(args.fdatasync.map(Sync::Fdatasync)),
        seed: args.seed.unwrap_or(1),
        verify: args.verify,
        target: target.clone(),
        ..Workload::default()
    }
}

impl Plan {
    fn add_with_switches(&mut self, args: &BenchArgs, cell: &Workload) {
        for &sqpoll in &or(&args.sqpoll, &[false]) {
            for &iopoll in &or(&args.iopoll, &[false]) {
                for &fixed_buffers in &or(&args.fixed_buffers, &[false]) {
                    for &fixed_files in &or(&args.fixed_files, &[false]) {
                        self.add(Workload {
                            sqpoll,
                            iopoll,
                            fixed_buffers,
                            fixed_files,
                            ..cell.clone()
                        });
                    }
                }
            }
        }
    }

    /// Adds a cell as far as it makes sense, unless that is there already.
    fn add(&mut self, mut cell: Workload) {
        let uring = cell.backend == Backend::Uring;
        for (name, on) in [
            ("--sqpoll", &mut cell.sqpoll),
            ("--iopoll", &mut cell.iopoll),
            ("--fixed-buffers", &mut cell.fixed_buffers),
            ("--fixed-files", &mut cell.fixed_files),
        ] {
            if *on && !uring {
                self.note(format!("{name} is for uring alone: the other backends run without it"));
                *on = false;
            }
        }
        if cell.iopoll && !cell.direct {
            self.note("--iopoll needs direct I/O: the buffered runs go without it".to_owned());
            cell.iopoll = false;
        }
        if cell.backend == Backend::Null {
            // Nothing is done with the file, so it is all one how it would have been opened.
            cell.direct = false;
            cell.verify = false;
        }
        if cell.backend == Backend::Psync && cell.depth > 1 {
            self.note("psync has one request in flight for each job; --jobs makes more".to_owned());
            cell.depth = 1;
        }
        if cell.sync.is_some() && !cell.writes() {
            self.note(
                "--fsync and --fdatasync follow writes: workloads that only read go without them"
                    .to_owned(),
            );
            cell.sync = None;
        }
        if cell.sync.is_some() && cell.depth > 1 {
            self.note(
                "a sync does not wait for the writes in flight: at --depth 1 it comes behind its writes".to_owned(),
            );
        }
        if let Some(batch) = cell.batch
            && batch > cell.depth
        {
            self.note(format!("--batch {batch} is lowered where fewer requests are in flight"));
            cell.batch = Some(cell.depth);
            cell.complete_min = cell.depth;
        }
        cell.name = format!("{}-{}-{}", cell.access.name(), size_text(cell.block_size), cell.depth);
        if !self.cells.contains(&cell) {
            self.cells.push(cell);
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// `4k`, `512`, `1m`: as it would be given.
fn size_text(bytes: u64) -> String {
    for (shift, unit) in [(30, "g"), (20, "m"), (10, "k")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TARGET: Target = Target::Scratch { size: 1 << 30 };

    #[test]
    fn lists_multiply() {
        let args = BenchArgs {
            backend: vec![Backend::Uring, Backend::Kaio],
            rw: vec![Access::RandRead, Access::Write],
            bs: vec![512, 65_536],
            depth: vec![1, 32],
            jobs: vec![1, 2],
            direct: vec![false, true],
            ..BenchArgs::default()
        };
        let plan = plan(&args, &TARGET);
        assert_eq!(plan.cells.len(), 64);
        assert_eq!(plan.notes, Vec::<String>::new());
        assert!(
            plan.cells
                .iter()
                .any(|cell| cell.name == "write-64k-32" && cell.jobs == 2 && cell.direct)
        );
    }

    #[test]
    fn nothing_asked_for_compares_all_backends_direct_and_buffered() {
        let plan = plan(&BenchArgs::default(), &TARGET);
        let count = |backend| plan.cells.iter().filter(|cell| cell.backend == backend).count();
        assert_eq!([Backend::Uring, Backend::Kaio, Backend::Threads].map(count), [4, 4, 4]);
        assert_eq!(count(Backend::Null), 3);
        let seconds: f64 = plan.cells.iter().map(|cell| (RUNTIME + cell.ramp).as_secs_f64()).sum();
        assert!(seconds * f64::from(REPEAT) < 55.0, "with the scratch file, about a minute");
    }

    #[test]
    fn what_a_backend_has_not_is_left_out_with_a_note() {
        let args = BenchArgs {
            backend: vec![Backend::Uring, Backend::Kaio],
            depth: vec![8],
            sqpoll: vec![false, true],
            fixed_buffers: vec![true],
            ..BenchArgs::default()
        };
        let plan = plan(&args, &TARGET);
        let settings = |cell: &Workload| (cell.backend, cell.sqpoll, cell.fixed_buffers);
        assert_eq!(
            plan.cells.iter().map(settings).collect::<Vec<_>>(),
            [
                (Backend::Uring, false, true),
                (Backend::Uring, true, true),
                (Backend::Kaio, false, false)
            ]
        );
        assert_eq!(plan.notes.len(), 2);
        assert!(plan.notes[0].contains("--fixed-buffers is for uring alone"), "{:?}", plan.notes);
    }

    #[test]
    fn polling_needs_direct_io_and_syncs_need_writes() {
        let args = BenchArgs {
            backend: vec![Backend::Uring],
            depth: vec![4],
            direct: vec![false],
            iopoll: vec![true],
            fsync: Some(1),
            batch: Some(16),
            ..BenchArgs::default()
        };
        let plan = plan(&args, &TARGET);
        let cell = &plan.cells[0];
        assert_eq!(
            (cell.iopoll, cell.sync, cell.batch, cell.complete_min),
            (false, None, Some(4), 4)
        );
        assert_eq!(plan.notes.len(), 3);
    }

    fn some<T: Clone + std::fmt::Debug + 'static>(of: &[T]) -> impl Strategy<Value = Vec<T>> {
        proptest::sample::subsequence(of.to_vec(), 0..=of.len())
    }

    proptest! {
        #[test]
        fn no_cell_comes_twice_and_none_is_senseless(
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
            let args = BenchArgs { backend, rw, direct, sqpoll, iopoll, fixed_buffers, depth, batch, fsync, ..BenchArgs::default() };
            let plan = plan(&args, &TARGET);
            prop_assert!(!plan.cells.is_empty());
            for (index, cell) in plan.cells.iter().enumerate() {
                prop_assert!(!plan.cells[..index].contains(cell));
                prop_assert!(cell.backend == Backend::Uring || !(cell.sqpoll || cell.iopoll || cell.fixed_buffers));
                prop_assert!(!cell.iopoll || cell.direct);
                prop_assert!(cell.batch.is_none_or(|batch| batch <= cell.depth) && cell.complete_min <= cell.depth);
                prop_assert!(cell.sync.is_none() || cell.writes());
            }
        }
    }

    #[test]
    fn sizes_are_named_as_they_are_given() {
        assert_eq!(
            [512, 4096, 1 << 20, 3 << 30, 1000].map(size_text),
            ["512", "4k", "1m", "3g", "1000"]
        );
    }
}
