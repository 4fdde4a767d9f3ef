//! The cases, the legs and how they run.

mod cancel;
#[path = "../common/cases.rs"]
mod cases;
mod chains;
mod closing;
#[path = "../common/mod.rs"]
mod common;
mod dont_cache;
mod errors;
mod fixed;
mod full;
mod hung;
mod large;
mod options;
mod paths;
mod process;
mod raw;
mod transfers;
mod untorn;
mod waiting;
mod world;

use common::{
    KAIO, REGISTER_BUFFERS2, URING, become_ordinary, in_child, in_child_beside_others,
    kill_at_unlisted, leave_mounts, limit_memlock, refuse, refuse_registration,
};
use libtest_mimic::{Arguments, Trial};
use ringway_core::refusal::Feature;
use ringway_core::{BackendKind, BuildError, FaultPlan, Options};
use ringway_torture::{is_long, watchdog::Watchdog};
use std::env;
use std::fs;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use world::{World, skip};

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    run: fn(&World),
    /// Runs in a child process, because it changes something that all threads share.
    apart: bool,
    /// Runs in the leg without restrictions only: it is expensive, or restrictions do not affect
    /// it.
    once: bool,
    /// Takes much of the machine's memory or disk: no other test runs meanwhile.
    alone: bool,
}

macro_rules! cases {
    ($($set:ident { $($module:ident::$name:ident,)* })*) => {
        &[$($(Case {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: $module::$name,
            ..$set
        },)*)*]
    };
}

const fn set(apart: bool, once: bool) -> Case {
    Case { name: "", run: |_| {}, apart, once, alone: false }
}

const EVERYWHERE: Case = set(false, false);
const EVERYWHERE_APART: Case = set(true, false);
const ONCE: Case = set(false, true);
const ONCE_APART: Case = set(true, true);
const ALONE: Case = Case { alone: true, ..ONCE };

const CASES: &[Case] = cases! {
    EVERYWHERE {
        transfers::all_buffer_types,
        transfers::exact_under_faults,
        transfers::on_a_pipe_beside_what_depends_on_them,
        dont_cache::reads_leave_no_pages,
        dont_cache::cached_pages_stay,
        dont_cache::writes_leave_no_pages,
        dont_cache::every_piece_has_the_flag,
        dont_cache::a_refused_flag_is_left_out,
        dont_cache::other_errors_are_not_refusals,
        untorn::refused_before_submission,
        untorn::never_a_plain_write,
        errors::addresses_outside_the_process,
        errors::too_many_buffers,
        errors::invalid_operations,
        paths::open,
        paths::close,
        paths::write_file,
        paths::link_of_an_unnamed_file,
        chains::read_then_close,
        chains::deadlines_of_reap,
        cancel::completed_operations,
        cancel::abandoned_opens_are_closed,
        cancel::slots_are_free_at_the_completion,
        cancel::while_a_worker_takes_the_operation,
        cancel::that_miss_the_operation,
        cancel::of_transfers_with_the_device,
        cancel::that_never_find_the_operation,
        full::a_refused_push_returns_the_operation,
        full::after_close,
        full::reap_of_more_than_are_in_flight,
        full::completion_queue_overflow,
        waiting::no_lost_wakeup,
        waiting::for_what_depends_on_a_closure,
        waiting::for_more_than_the_completion_queue_holds,
        waiting::an_eventfd_to_poll,
        waiting::readable_for_undelivered_completions,
        waiting::readable_for_cancels,
        waiting::polls_of_one_descriptor,
        fixed::buffers,
        fixed::buffers_while_operations_are_in_flight,
        fixed::sixty_four_buffers,
        fixed::files,
        fixed::sixty_four_files,
        options::refused_options_are_explained,
        options::strict,
        options::out_of_range,
        raw::borrowed_descriptors,
        raw::kept_memory,
        raw::registered_memory,
        raw::reaping_selected_operations,
        raw::reaping_selected_operations_while_others_wait,
        raw::a_panic_while_reaping_selected_operations,
        raw::ids_are_numbers,
        closing::with_operations_in_flight,
        closing::close_returns_how_many_are_left,
        closing::without_waiting,
        closing::by_a_thread_other_than_the_issuer,
        closing::of_a_backend_that_fails,
    }
    EVERYWHERE_APART {
        process::fork,
        process::forked_child_drops,
        process::fork_during_direct_reads,
        process::forked_children_keep_no_descriptors,
        waiting::signals_do_not_end_a_wait,
        waiting::signals_end_an_interruptible_wait,
        waiting::more_polls_than_descriptors,
        process::few_descriptors,
        process::without_openat2,
        process::the_environment_selects_the_backend,
    }
    ONCE {
        large::direct_reads_over_the_largest_request,
        large::direct_writes_over_the_largest_request,
        process::the_pushing_thread_has_ended,
        process::single_issuer,
        cancel::before_the_fallback_to_threads,
        options::sqpoll,
        options::sqpoll_shared,
        closing::drop_waits_no_longer_than_close_wait,
        hung::idle_pipes,
        hung::full_streams,
    }
    ONCE_APART {
        errors::no_space_left,
        large::on_a_loop_device,
        large::one_late_piece,
        large::a_late_piece_is_cancelled,
        large::long_appends,
        large::a_short_write_changes_nothing_beyond_its_count,
        process::no_more_threads,
        process::no_kaio_requests_left,
        process::signals_without_threads,
        process::fork_of_the_same_number,
        process::fork_while_threads_start_and_end,
        hung::opens_of_fifos,
        hung::the_number_of_blocked_opens_is_bounded,
        hung::an_open_behind_a_lease,
        hung::a_frozen_file_system,
        hung::durable_writes,
        untorn::whole_or_nothing,
        untorn::a_part_is_an_error,
        untorn::busy_pages_are_an_error,
        untorn::the_sizes_may_change,
    }
    ALONE {
        closing::a_thousand_queues,
        large::over_two_gibibytes,
        large::over_four_gibibytes_direct,
    }
};

/// A leg runs one of so many shares of the data. `RINGWAY_LONG=1`: all of it.
const SHARES: usize = 6;

/// Set in a child process that runs one case: its title.
const ONE_CASE: &str = "RINGWAY_TEST_ONE_CASE";
const SHM: &str = "RINGWAY_TEST_SHM";

const KINDS: &[BackendKind] = if cfg!(ringway_linux) {
    &[BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads]
} else {
    &[BackendKind::Threads]
};

/// Cases about what only Linux has, and which: `ringway_portable` leaves them out.
const LINUX_ONLY: &[(&str, &str)] = &[
    ("paths::link_of_an_unnamed_file", "O_TMPFILE"),
    ("dont_cache::reads_leave_no_pages", "RWF_DONTCACHE"),
    ("dont_cache::cached_pages_stay", "RWF_DONTCACHE"),
    ("dont_cache::writes_leave_no_pages", "RWF_DONTCACHE"),
    ("dont_cache::every_piece_has_the_flag", "RWF_DONTCACHE"),
    ("dont_cache::a_refused_flag_is_left_out", "RWF_DONTCACHE"),
    ("dont_cache::other_errors_are_not_refusals", "RWF_DONTCACHE"),
    ("untorn::refused_before_submission", "RWF_ATOMIC"),
    ("untorn::never_a_plain_write", "RWF_ATOMIC"),
    ("untorn::whole_or_nothing", "RWF_ATOMIC"),
    ("untorn::a_part_is_an_error", "RWF_ATOMIC"),
    ("untorn::busy_pages_are_an_error", "RWF_ATOMIC"),
    ("untorn::the_sizes_may_change", "RWF_ATOMIC"),
    ("process::without_openat2", "openat2"),
    ("process::fork_during_direct_reads", "registered buffers"),
    ("process::fork_while_threads_start_and_end", "threads of its own"),
    ("large::direct_reads_over_the_largest_request", "facts about devices"),
    ("large::direct_writes_over_the_largest_request", "facts about devices"),
    ("large::on_a_loop_device", "facts about devices"),
    ("large::one_late_piece", "facts about devices"),
    ("large::a_late_piece_is_cancelled", "facts about devices"),
    ("large::long_appends", "facts about devices"),
    ("large::a_short_write_changes_nothing_beyond_its_count", "facts about devices"),
    ("hung::full_streams", "RWF_NOWAIT"),
];

fn is_absent(case: &str) -> bool {
    cfg!(not(ringway_linux)) && LINUX_ONLY.iter().any(|(name, _)| *name == case)
}

/// Cases in which `open(2)`, which is called where `openat2(2)` is missing, has other results.
const NEED_OPENAT2: &[&str] = &["open with an unknown flag", "open beneath a directory"];

/// Whether the kernel has `openat2(2)` (5.6), or there is none on this system.
fn has_openat2() -> bool {
    #[cfg(ringway_linux)]
    {
        // SAFETY: without a path the kernel reads nothing.
        let result = unsafe { libc::syscall(libc::SYS_openat2, -1, std::ptr::null::<u8>(), 0, 0) };
        assert_eq!(result, -1);
        std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
    }
    #[cfg(not(ringway_linux))]
    true
}

/// The list of cases under some restrictions.
#[derive(Clone, Copy)]
struct Leg {
    test: &'static str,
    /// Changes the process irrevocably.
    restrict: fn(),
    /// Backends that must be refused, with the errno.
    refused: &'static [(BackendKind, i32)],
    /// Part of each explanation.
    because: &'static str,
    little_memory: bool,
    /// Runs only the cases with these names.
    only: Option<&'static [&'static str]>,
}

/// Cases with code, or of `conformance/`.
#[derive(Clone, Copy)]
enum Which<'a> {
    Code(&'a Case),
    Data(&'a cases::Case),
}

impl Which<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Code(case) => case.name,
            Self::Data(case) => &case.name,
        }
    }
}

/// What one test runs.
struct Run<'a> {
    /// The name of the test.
    test: &'a str,
    leg: &'a Leg,
    cases: Vec<Which<'a>>,
    /// All restrictions are off: the cases marked `once` run too, all run through the
    /// fault-injecting backend, and those of `conformance/` also in memory.
    full: bool,
}

impl Leg {
    const fn new(test: &'static str, restrict: fn()) -> Self {
        Self { test, restrict, refused: &[], because: "", little_memory: false, only: None }
    }

    /// The cases that run under the restrictions.
    fn cases<'a>(&self, data: &'a [cases::Case]) -> Vec<Which<'a>> {
        let code = CASES.iter().filter(|case| !case.once && !is_absent(case.name)).map(Which::Code);
        let turn = LEGS.iter().position(|leg| leg.test == self.test).unwrap_or_default();
        // Without restrictions all of them run.
        let is_its_turn =
            |number: usize| is_long() || self.only.is_some() || number % SHARES == turn % SHARES;
        let data = data.iter().enumerate().filter(|(number, _)| is_its_turn(*number));
        code.chain(data.map(|(_, case)| Which::Data(case)))
            .filter(|case| self.only.is_none_or(|only| only.contains(&case.name())))
            .collect()
    }

    fn world(&self, kind: BackendKind, faulty: bool) -> World {
        let shm = PathBuf::from(env::var_os(SHM).unwrap());
        World { kind, faulty, little_memory: self.little_memory, disk: PathBuf::from("."), shm }
    }

    /// Checks which backend is chosen by default and whether the refused ones are explained.
    /// Returns the available ones.
    fn chosen(&self) -> Vec<BackendKind> {
        let _watched = Watchdog::new("the choice of a backend");
        let mut there = Vec::new();
        for &kind in KINDS {
            let built = Options::new().backend(kind).build();
            match (built, self.refused.iter().find(|(refused, _)| *refused == kind)) {
                (Ok(queue), None) => {
                    assert_eq!(queue.backend(), kind);
                    there.push(kind);
                }
                (Err(BuildError::Refused(refusal)), Some((_, errno))) => {
                    assert_eq!(
                        (refusal.feature, refusal.errno),
                        (feature(kind), *errno),
                        "{refusal}"
                    );
                    assert!(!refusal.meaning.is_empty() && !refusal.fix.is_empty(), "{refusal}");
                    assert!(refusal.meaning.contains(self.because), "{refusal}");
                }
                (Err(error), None) => skip(&format!("{kind}: {error}")),
                (other, _) => panic!("{kind}: {other:?}"),
            }
        }
        let queue = Options::new().build().unwrap();
        assert_eq!(Some(&queue.backend()), there.first(), "{}", queue.explain());
        for (kind, errno) in self.refused {
            let explanation = queue.explain();
            let refusal = explanation
                .refusals
                .iter()
                .find(|refusal| refusal.feature == feature(*kind))
                .unwrap();
            assert_eq!(refusal.errno, *errno, "{explanation}");
            assert!(explanation.to_string().contains(&refusal.fix), "{explanation}");
        }
        there
    }
}

impl Run<'_> {
    /// Runs the cases in a child process.
    fn run(&self) {
        if let Ok(alone) = env::var(ONE_CASE) {
            return self.run_alone(&alone);
        }
        let scratch = || {
            let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let shm = tempfile::tempdir_in("/dev/shm").unwrap();
            for dir in [&disk, &shm] {
                cases::open_to_all(dir.path());
            }
            (disk, shm)
        };
        let mut dirs = None;
        let prepare = |command: &mut Command| {
            let (disk, shm) = dirs.insert(scratch());
            command.current_dir(disk.path()).env(SHM, shm.path());
        };
        let body = || {
            short_panics();
            cases::prepare_process();
            (self.leg.restrict)();
            self.run_all();
        };
        let is_alone = |case: &Which<'_>| matches!(case, Which::Code(case) if case.alone);
        if self.cases.iter().any(is_alone) {
            in_child(self.test, prepare, body);
        } else {
            in_child_beside_others(self.test, prepare, body);
        }
    }

    fn run_all(&self) {
        let kinds = self.leg.chosen();
        let wanted = env::var("RINGWAY_CASE").unwrap_or_default();
        let mut failed = Vec::new();
        let mut count = 0;
        for (kind, faulty) in kinds.iter().flat_map(|kind| [(*kind, false), (*kind, true)]) {
            if faulty && !self.full {
                continue;
            }
            let world = self.leg.world(kind, faulty);
            for case in &self.cases {
                let name = title(kind, faulty, case.name());
                let is_left_out = matches!(case, Which::Code(case)
                    if faulty && (case.once || case.apart));
                if is_left_out || !name.contains(&wanted) {
                    continue;
                }
                count += 1;
                let passed = match case {
                    Which::Code(case) if case.apart => self.apart(&name),
                    Which::Code(case) => passes(case, &world, &name),
                    Which::Data(case) => self.passes_data(case, &world, &name),
                };
                if !passed {
                    println!("FAILED {name}");
                    failed.push(name);
                }
            }
        }
        assert!(failed.is_empty(), "{} of {count} failed: {failed:#?}", failed.len());
    }

    /// Runs a case of `conformance/` on disk and, in the full leg, in memory.
    fn passes_data(&self, case: &cases::Case, world: &World, name: &str) -> bool {
        let _watched = Watchdog::new(name);
        if NEED_OPENAT2.contains(&case.name.as_str()) && !has_openat2() {
            skip("openat2 is of Linux 5.6");
            return true;
        }
        let in_memory = self.full && cases::runs_in_memory(case);
        let dirs = [Some(&world.disk), in_memory.then_some(&world.shm)];
        dirs.into_iter().flatten().all(|dir| {
            let mut options = Options::new();
            if world.faulty {
                options = options.faults(FaultPlan::new(0));
            }
            match cases::run(case, options, world.kind, &dir.join("case")) {
                Ok(_) => true,
                Err(cases::Stop::Skipped(why)) => {
                    skip(&why);
                    true
                }
                Err(cases::Stop::Failed(why)) => {
                    println!("{name} in {}: {why}", dir.display());
                    false
                }
            }
        })
    }

    /// Runs a case in a child process, which inherits the restrictions.
    fn apart(&self, name: &str) -> bool {
        let _watched = Watchdog::new(name);
        let mut command = Command::new("/proc/self/exe");
        // Otherwise the harness might start another thread after the case has limited them.
        command.args([self.test, "--exact", "--nocapture", "--test-threads=1"]).env(ONE_CASE, name);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines()
            .filter(|line| line.starts_with("skipped:"))
            .for_each(|line| println!("{line}"));
        if !output.status.success() {
            println!(
                "{name}: {}\n{text}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        output.status.success()
    }

    fn run_alone(&self, alone: &str) {
        let (kind, faulty, case) = KINDS
            .iter()
            .flat_map(|kind| [(*kind, false), (*kind, true)])
            .flat_map(|(kind, faulty)| CASES.iter().map(move |case| (kind, faulty, case)))
            .find(|(kind, faulty, case)| title(*kind, *faulty, case.name) == alone)
            .unwrap();
        short_panics();
        let _watched = Watchdog::new(alone);
        (case.run)(&self.leg.world(kind, faulty));
    }
}

/// Shortens panic messages, which may contain a whole file.
fn short_panics() {
    std::panic::set_hook(Box::new(|info| {
        for line in info.to_string().lines() {
            eprintln!("{}", line.chars().take(300).collect::<String>());
        }
    }));
}

fn feature(kind: BackendKind) -> Feature {
    match kind {
        BackendKind::Uring => Feature::Uring,
        BackendKind::Kaio => Feature::Kaio,
        _ => Feature::Threads,
    }
}

fn title(kind: BackendKind, faulty: bool, name: &str) -> String {
    format!("{}{kind} {name}", if faulty { "faulty " } else { "" })
}

fn passes(case: &Case, world: &World, name: &str) -> bool {
    let _watched = Watchdog::new(name);
    catch_unwind(AssertUnwindSafe(|| (case.run)(world))).is_ok()
}

const UNRESTRICTED: Leg = Leg::new("unrestricted", || {});

const LEGS: &[Leg] = &[
    Leg::new("leg::an_ordinary_user", become_ordinary),
    #[cfg(ringway_linux)]
    Leg {
        little_memory: true,
        ..Leg::new("leg::an_ordinary_user_with_little_lockable_memory", || {
            become_ordinary();
            limit_memlock(64 << 10);
        })
    },
    #[cfg(ringway_linux)]
    Leg {
        refused: &[(BackendKind::Uring, libc::EPERM)],
        ..Leg::new("leg::a_filter_that_forbids_io_uring", || refuse(&URING, libc::EPERM))
    },
    #[cfg(ringway_linux)]
    Leg {
        refused: &[(BackendKind::Uring, libc::ENOSYS)],
        ..Leg::new("leg::a_filter_that_hides_io_uring", || refuse(&URING, libc::ENOSYS))
    },
    #[cfg(ringway_linux)]
    Leg {
        refused: &[(BackendKind::Uring, libc::EPERM), (BackendKind::Kaio, libc::EPERM)],
        ..Leg::new("leg::a_filter_that_leaves_threads_only", || {
            refuse(&[URING.as_slice(), &KAIO].concat(), libc::EPERM);
        })
    },
    #[cfg(ringway_linux)]
    Leg {
        only: Some(&[
            "nop",
            "transfers::all_buffer_types",
            "a chain runs in order",
            "paths::open",
            "paths::close",
            "paths::write_file",
        ]),
        ..Leg::new("leg::a_filter_that_ends_the_process", kill_at_unlisted)
    },
    // A kernel before 5.19, as far as registering is concerned.
    #[cfg(ringway_linux)]
    Leg {
        only: Some(&[
            "fixed::buffers",
            "fixed::buffers_while_operations_are_in_flight",
            "fixed::sixty_four_buffers",
            "fixed::files",
            "fixed::sixty_four_files",
            "raw::registered_memory",
        ]),
        ..Leg::new("leg::a_kernel_without_sparse_tables", || refuse_registration(REGISTER_BUFFERS2))
    },
    #[cfg(ringway_linux)]
    Leg {
        refused: &[(BackendKind::Uring, libc::EPERM)],
        because: "kernel.io_uring_disabled is 2",
        only: Some(&["nop", "transfers::all_buffer_types", "a chain runs in order"]),
        ..Leg::new(WITHOUT_URING, disable_uring)
    },
];

const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

const WITHOUT_URING: &str = "leg::io_uring_disabled_by_sysctl";

/// This process sees a sysctl and meets a refusal as if io_uring were disabled. (The sysctl itself
/// is of the whole machine, and so of other programs.)
#[cfg(ringway_linux)]
fn disable_uring() {
    leave_mounts().unwrap();
    let disabled = env::current_dir().unwrap().join("disabled");
    fs::write(&disabled, "2\n").unwrap();
    let mounted = Command::new("mount").arg("--bind").arg(disabled).arg(DISABLED).status().unwrap();
    assert!(mounted.success(), "mount: {mounted}");
    refuse(&[libc::SYS_io_uring_setup], libc::EPERM);
}

fn run_leg(leg: &Leg, data: &[cases::Case]) {
    if leg.test == WITHOUT_URING {
        // (On a thread of its own, which ends. Root in a container may have no capabilities.)
        if let Err(error) = thread::spawn(leave_mounts).join().unwrap() {
            return skip(&format!("only root may mount: {error}"));
        }
        if !Path::new(DISABLED).exists() {
            return skip("this kernel has no kernel.io_uring_disabled");
        }
    }
    Run { test: leg.test, leg, cases: leg.cases(data), full: false }.run();
}

pub fn main() {
    let mut arguments = Arguments::from_args();
    // Most tests wait: for a disk, or for a while in which nothing may happen. (At most as many as
    // a machine without devtmpfs has loop devices, and with requests for Linux AIO to spare.)
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    arguments.test_threads.get_or_insert((2 * processors).min(6));
    let data: &'static [cases::Case] = cases::load().leak();
    let wanted = env::var("RINGWAY_CASE").unwrap_or_default();
    let names = CASES.iter().map(|case| case.name).chain(data.iter().map(|case| &*case.name));
    let titles = KINDS.iter().flat_map(|kind| {
        let names = names.clone();
        names.flat_map(|name| [title(*kind, false, name), title(*kind, true, name)])
    });
    assert!(titles.into_iter().any(|title| title.contains(&wanted)), "no case is named {wanted}");
    let code = CASES.iter().filter(|case| !is_absent(case.name)).map(Which::Code);
    let cases = code.chain(data.iter().map(Which::Data)).map(|case| {
        let test = case.name().to_owned();
        Trial::test(test.clone(), move || {
            Run { test: &test, leg: &UNRESTRICTED, cases: vec![case], full: true }.run();
            Ok(())
        })
    });
    let legs = LEGS.iter().map(|leg| {
        Trial::test(leg.test, move || {
            run_leg(leg, data);
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, cases.chain(legs).collect()).exit();
}
