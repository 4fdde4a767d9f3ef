//! Synthetic reports for the tests; nothing here was measured. Latencies have a log-normal
//! distribution from a generator with a fixed seed, so every test run sees the same figures.

use crate::bench::result::{Direction, Interrupted, Machine, Measurement, Report, Run};
use crate::bench::workload::{Access, Backend, Rate, Sizes, Stop, Sync, Target, Workload};
use clap::ValueEnum;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use ringway_measure::usage::Usage;
use std::time::Duration;

/// The default backends, in their order.
pub(crate) const BACKENDS: [Backend; 4] =
    [Backend::Uring, Backend::Kaio, Backend::Threads, Backend::Null];

/// Direct random reads of 4 KiB.
pub(crate) fn workload(backend: Backend, depth: u32) -> Workload {
    Workload {
        name: format!("randread-4k-{depth}"),
        backend,
        depth,
        stop: Stop::After(Duration::from_secs(5)),
        ramp: Duration::from_secs(1),
        target: Target::Scratch { size: 1 << 30 },
        ..Workload::default()
    }
}

/// `ops` operations whose latency has this median.
pub(crate) fn direction(ops: u64, block: u64, median_ns: f64, seed: u64) -> Direction {
    let mut out = Direction { ops, bytes: ops * block, ..Direction::default() };
    let mut state = seed | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    // A few thousand draws, each counted often, are as good as millions.
    let draws = ops.clamp(1, 5_000);
    for i in 0..draws {
        let normal =
            (-2.0 * uniform().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        let slow = if i % 997 == 0 { 12.0 } else { 1.0 };
        let ns = (median_ns * (0.25 * normal).exp() * slow) as u64;
        let times = ops / draws + u64::from(i < ops % draws);
        out.latency.saturating_record_n(ns, times);
    }
    out
}

/// One run of about this many operations a second, at this cost.
pub(crate) fn run(workload: &Workload, ops_per_second: f64, cpu_us: f64, seed: u64) -> Run {
    let seconds = 5.0;
    let ops = (ops_per_second * seconds) as u64;
    let (reads, writes) = match workload.access {
        Access::Read | Access::RandRead => (ops, 0),
        Access::Write | Access::RandWrite => (0, ops),
        Access::ReadWrite | Access::RandRw => {
            let reads = ops * u64::from(workload.read_percent) / 100;
            (reads, ops - reads)
        }
    };
    let median = f64::from(workload.depth * workload.jobs) / ops_per_second * 1e9;
    let syncs = workload.sync.map_or(0, |sync| writes / u64::from(sync.every.max(1)));
    let cpu = ops as f64 * cpu_us / 1e6;
    let busy = Duration::from_secs_f64(if workload.sqpoll { seconds * 0.97 } else { 0.0 });
    let threads = workload.backend == Backend::Threads;
    Run {
        read: direction(reads, workload.block_size, median, seed),
        write: direction(writes, workload.block_size, median * 1.4, seed + 7),
        sync: direction(syncs, 0, 900_000.0, seed + 11),
        usage: Usage {
            real: Duration::from_secs_f64(seconds),
            user: Duration::from_secs_f64(cpu * 0.2),
            system: Duration::from_secs_f64(cpu * 0.8) + busy,
            sqpoll: busy,
            voluntary_switches: if threads { ops * 2 } else { ops / 3 },
            ..Usage::default()
        },
        system_calls: match workload.backend {
            Backend::Null => 0,
            Backend::Threads => ops,
            _ => ops * 2 / u64::from(workload.depth.clamp(1, 16)),
        },
        ..Run::default()
    }
}

/// A measurement whose runs differ from a rate by the share `spread`.
pub(crate) fn measurement(
    workload: Workload,
    ops_per_second: f64,
    cpu_us: f64,
    runs: u64,
    spread: f64,
) -> Measurement {
    let seed =
        0x9e37_79b9 ^ (workload.depth as u64) << 8 ^ workload.block_size ^ workload.backend as u64;
    let runs = (0..runs)
        .map(|i| {
            let off = [0.0, -1.0, 1.0][i as usize % 3] * spread;
            run(&workload, ops_per_second * (1.0 + off), cpu_us * (1.0 - off / 2.0), seed + i)
        })
        .collect();
    Measurement { runs, ..Measurement::new(workload) }
}

/// Operations a second and CPU µs an operation of a backend at a depth.
fn plausible(backend: Backend, depth: u32) -> (f64, f64) {
    let (most, half, cpu) = match backend {
        Backend::Uring | Backend::Auto => (480_000.0, 38.0, 3.9),
        Backend::Kaio => (430_000.0, 34.0, 4.8),
        Backend::Threads | Backend::Psync => (190_000.0, 18.0, 15.0),
        Backend::Null => (9_500_000.0, 0.3, 0.1),
    };
    let depth = f64::from(depth);
    (most * depth / (depth + half), cpu * (1.0 + 1.1 / depth))
}

/// A report of these measurements.
pub(crate) fn report(measurements: Vec<Measurement>) -> Report {
    Report {
        machine: Machine {
            kernel: "6.12.9".into(),
            cpus: 8,
            file_system: "ext4".into(),
            device: "nvme0n1, scheduler none, nr_requests 1023".into(),
            target_size: 1 << 30,
            remarks: vec!["scratch file in /var/tmp, written with random bytes beforehand".into()],
            refused: Vec::new(),
        },
        measurements,
        command: "ringway bench --rw randread --bs 4k --depth 1,32,128 --runs 3".into(),
        interrupted: None,
    }
}

/// Four backends, three depths, three runs each: the default report.
pub(crate) fn depths() -> Report {
    along_depths(&[1, 32, 128], |_| {})
}

/// Four backends at these depths, with a change to every workload.
pub(crate) fn along_depths(depths: &[u32], change: impl Fn(&mut Workload)) -> Report {
    let mut measurements = Vec::new();
    for backend in BACKENDS {
        for &depth in depths {
            let mut workload = self::workload(backend, depth);
            change(&mut workload);
            let (ops, cpu) = plausible(backend, depth);
            measurements.push(measurement(workload, ops, cpu, 3, 0.012));
        }
    }
    report(measurements)
}

/// Six block sizes at one depth.
pub(crate) fn block_sizes() -> Report {
    let mut measurements = Vec::new();
    for backend in BACKENDS {
        for shift in [9, 12, 14, 16, 18, 20] {
            let mut workload = self::workload(backend, 32);
            workload.block_size = 1 << shift;
            let (ops, cpu) = plausible(backend, 32);
            let larger = 1.0 + (1u64 << shift) as f64 / 16384.0;
            measurements.push(measurement(workload, ops / larger, cpu * larger.sqrt(), 3, 0.02));
        }
    }
    report(measurements)
}

/// Reads and writes mixed, with fsync.
pub(crate) fn mixed() -> Report {
    along_depths(&[1, 32], |workload| {
        workload.access = Access::RandRw;
        workload.read_percent = 70;
        workload.sync = Some(Sync { data_only: false, every: 16 });
        workload.name = format!("mixed-{}", workload.depth);
    })
}

/// Several accesses with options, a refusal, an error and several jobs: the widest report.
pub(crate) fn everything() -> Report {
    let mut measurements = Vec::new();
    for access in [Access::RandRead, Access::Write, Access::RandRw] {
        for (backend, flags) in [
            (Backend::Uring, false),
            (Backend::Uring, true),
            (Backend::Kaio, false),
            (Backend::Threads, false),
            (Backend::Null, false),
        ] {
            for depth in [1, 4, 32, 128] {
                let mut workload = self::workload(backend, depth);
                workload.access = access;
                workload.jobs = 2;
                (workload.sqpoll, workload.fixed_buffers, workload.fixed_files) =
                    (flags, flags, flags);
                let (ops, cpu) = plausible(backend, depth);
                let gain = if flags { 1.09 } else { 1.0 };
                let mut measured = measurement(workload, ops * gain, cpu, 3, 0.015);
                if flags && access == Access::Write {
                    measured.runs.clear();
                    measured.notes.push("SQPOLL refused: EPERM; fix: run with CAP_SYS_NICE".into());
                }
                measurements.push(measured);
            }
        }
    }
    measurements[0].runs[0].errors.push((5, 3));
    let mut report = report(measurements);
    report.machine.refused.push("iopoll: EOPNOTSUPP; fix: load nvme with poll_queues=4".into());
    report.command = "ringway bench --rw randread,write,randrw --depth 1,4,32,128 --jobs 2".into();
    report
}

/// One measurement with one run.
pub(crate) fn one_measurement() -> Report {
    report(vec![measurement(workload(Backend::Uring, 32), 219_000.0, 4.1, 1, 0.0)])
}

/// Reports of runs in which something went wrong.
pub(crate) fn odd() -> Vec<Report> {
    let changed = |change: &dyn Fn(&mut Measurement)| {
        let mut report = depths();
        for measured in &mut report.measurements {
            change(measured);
        }
        report
    };
    let refuse = |measured: &mut Measurement, why: &str| {
        measured.runs.clear();
        measured.notes.push(why.to_owned());
    };
    let none_ran = changed(&|measured| refuse(measured, "io_uring_setup: EPERM"));
    let no_time = changed(&|measured| {
        for run in &mut measured.runs {
            run.usage = Usage::default();
            run.read.latency.reset();
            run.read.latency.record_n(0, 1000).expect("zero is within the bounds");
        }
    });
    let nothing_done = changed(&|measured| {
        for run in &mut measured.runs {
            run.read = Direction::default();
        }
    });
    let refused = changed(&|measured| {
        if measured.workload.backend == Backend::Kaio {
            refuse(measured, "io_setup: EAGAIN; fix: raise fs.aio-max-nr");
        }
    });
    let bare = Report {
        machine: Machine::default(),
        measurements: Vec::new(),
        command: String::new(),
        interrupted: Some(Interrupted { finished: 0, planned: 3 }),
    };
    vec![none_ran, no_time, nothing_done, refused, bare, one_measurement(), report(Vec::new())]
}

/// Without the letter n, so that no text of a report spells "nan" or "inf" by chance.
const TEXT: &str = "[a-m<>&\"',;: \n\u{1b}\u{0}é]{0,12}";

/// Reports of any content that the types allow, with figures that hours of running could produce.
pub(crate) fn anything() -> impl Strategy<Value = Report> {
    let machine = (TEXT, 0usize..300, TEXT, TEXT, any::<u64>(), vec(TEXT, 0..3));
    let machine = machine.prop_map(|(kernel, cpus, file_system, device, target_size, lines)| {
        let remarks = lines.clone();
        Machine { kernel, cpus, file_system, device, target_size, remarks, refused: lines }
    });
    let measurement = (any_workload(), vec(any_run(), 0..4), vec(TEXT, 0..3)).prop_map(
        |(workload, runs, notes)| Measurement { runs, notes, ..Measurement::new(workload) },
    );
    (machine, vec(measurement, 0..8), TEXT).prop_map(|(machine, measurements, command)| Report {
        machine,
        measurements,
        command,
        interrupted: None,
    })
}

fn any_workload() -> impl Strategy<Value = Workload> {
    let choices = (select(&BACKENDS[..]), select(Access::value_variants()), 0..4, TEXT, TEXT);
    let numbers = (any::<u8>(), 0u32..300, 0u32..300, any::<Option<u32>>(), 0u32..4);
    let bytes = (prop_oneof![Just(4096), any::<u64>()], any::<Option<u64>>(), 0u64..1 << 40);
    (choices, numbers, bytes, any::<Option<u32>>(), any::<[bool; 6]>()).prop_map(
        |((backend, access, kind, name, path), numbers, (block_size, rate, size), sync, flags)| {
            let mut w = workload(backend, 1);
            (w.name, w.access, w.block_size) = (name, access, block_size);
            (w.read_percent, w.depth, w.jobs, w.batch, w.complete_min) = numbers;
            [w.direct, w.sqpoll, w.iopoll, w.fixed_buffers, w.fixed_files, w.verify] = flags;
            w.group_reporting = w.sqpoll;
            if w.iopoll {
                w.sizes = Sizes::UpTo(block_size.saturating_mul(2));
            }
            w.rate = rate.map(if w.direct { Rate::Requests } else { Rate::Bytes });
            w.sync = sync.map(|every| Sync { data_only: !w.verify, every });
            let files = |size| Target::Files { paths: vec![(&path).into(); 2], size };
            let limit = w.direct.then_some(Duration::from_secs(1));
            (w.stop, w.target) = match kind {
                0 => (Stop::After(Duration::from_nanos(size)), Target::Scratch { size }),
                1 => (Stop::Requests(size), files(None)),
                2 => (Stop::Bytes(size, limit), files(Some(size))),
                _ => (Stop::Whole(None), Target::Directory { path: path.into(), size, files: 2 }),
            };
            w
        },
    )
}

fn any_direction() -> impl Strategy<Value = Direction> {
    (0u64..1 << 40, 0u64..1 << 50, vec(any::<u64>(), 0..20)).prop_map(|(ops, bytes, latencies)| {
        let mut out = Direction { ops, bytes, ..Direction::default() };
        for ns in latencies {
            out.latency.saturating_record(ns >> (ns % 64));
            let submitted = out.submitted.get_or_insert_with(|| out.latency.clone());
            submitted.saturating_record(ns >> (ns % 60));
        }
        out
    })
}

fn any_run() -> impl Strategy<Value = Run> {
    let times = [(); 5].map(|()| (0u64..1 << 45).prop_map(Duration::from_nanos));
    let directions = [(); 3].map(|()| any_direction());
    let errors = vec(any::<(i32, u64)>(), 0..3);
    let counts = any::<([u64; 2], [u32; 2], Option<(u64, u64)>, bool)>();
    (times, directions, errors, counts).prop_map(|(times, directions, errors, counts)| {
        let mut run = Run { errors, ..Run::default() };
        [run.read, run.write, run.sync] = directions;
        let usage = &mut run.usage;
        [usage.real, usage.user, usage.system, usage.sqpoll, usage.io_wq] = times;
        let ([not_started, system_calls], [workers, switches], verified, are_separate) = counts;
        (usage.io_wq_workers, usage.voluntary_switches) = (workers, switches.into());
        (run.not_started, run.system_calls, run.verified) = (not_started, system_calls, verified);
        if are_separate {
            run.jobs = vec![run.clone(); 2];
        }
        run
    })
}

/// Whether a text has a figure that is not a number.
pub(crate) fn has_no_number(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| matches!(word, "NaN" | "inf" | "Infinity"))
}
