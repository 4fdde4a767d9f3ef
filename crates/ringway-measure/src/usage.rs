//! CPU time and context switches of the process or a thread, and the share of the kernel's helper
//! threads in them.
//!
//! SQPOLL threads (`iou-sqp-*`) and io-wq workers (`iou-wrk-*`) are threads of this process, so
//! `getrusage(RUSAGE_SELF)` includes their time, during their life and after it. `/proc/self/task`
//! only shows which part of that time is theirs.

use crate::clock;
use crate::machine::{self, from_ticks};
use crate::stats::Spread;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What an interval cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Usage {
    /// Wall time.
    pub real: Duration,
    /// User time.
    pub user: Duration,
    /// System time, kernel helpers included.
    pub system: Duration,
    /// Context switches because a thread waited.
    pub voluntary_switches: u64,
    /// Context switches because another thread needed the processor.
    pub involuntary_switches: u64,
    /// SQPOLL threads; a part of `system`.
    pub sqpoll: Duration,
    /// io-wq workers, until they were last seen; a part of `system`.
    pub io_wq: Duration,
    /// The most io-wq workers seen at one time.
    pub io_wq_workers: u32,
}

impl Usage {
    /// User and system time, kernel helpers included.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }

    /// Voluntary and involuntary context switches.
    pub fn context_switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
    }
}

/// The counters of the process, or of a thread, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    at: u64,
    user: Duration,
    system: Duration,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

impl Snapshot {
    /// The counters of all threads of the process.
    pub fn of_process() -> Self {
        Self::take(libc::RUSAGE_SELF)
    }

    /// The counters of the calling thread.
    pub fn of_thread() -> Self {
        Self::take(libc::RUSAGE_THREAD)
    }

    fn take(who: libc::c_int) -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes one `rusage` to a live local variable, and every bit pattern,
        // zeros included, is a valid `rusage`.
        let usage = unsafe {
            libc::getrusage(who, usage.as_mut_ptr());
            usage.assume_init()
        };
        let time =
            |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        Self {
            at: clock::now(),
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    /// What happened since an earlier snapshot. Helper threads are not separated here; see
    /// [`Helpers`].
    pub fn since(&self, earlier: &Self) -> Usage {
        let switches = |now: u64, then: u64| now.saturating_sub(then);
        Usage {
            real: Duration::from_nanos(self.at.saturating_sub(earlier.at)),
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: switches(self.voluntary_switches, earlier.voluntary_switches),
            involuntary_switches: switches(self.involuntary_switches, earlier.involuntary_switches),
            ..Usage::default()
        }
    }
}

/// How many processors other programs keep busy.
#[derive(Debug)]
pub struct Others {
    machine: Option<Duration>,
    own: Snapshot,
}

impl Others {
    /// Over less time than this, the kernel's ticks are too coarse.
    const LEAST: Duration = Duration::from_millis(100);

    /// Starts to measure.
    pub fn start() -> Self {
        Self { machine: machine::of_programs(), own: Snapshot::of_process() }
    }

    /// The average since the start; `None` where it is unknown, or after too short a time.
    pub fn processors(&self) -> Option<f64> {
        let own = Snapshot::of_process().since(&self.own);
        let machine = machine::of_programs()?.saturating_sub(self.machine?);
        let others = machine.saturating_sub(own.cpu());
        (own.real >= Self::LEAST).then(|| others.div_duration_f64(own.real))
    }
}

/// The median of the processors that other programs kept busy in some runs, if it is a considerable
/// share of the machine's processors: the figures are distorted then.
pub fn busy(others: impl IntoIterator<Item = f64>, cpus: usize) -> Option<f64> {
    const CONSIDERABLE: f64 = 0.1;
    let others = Spread::of(others)?.median;
    (others > CONSIDERABLE * cpus as f64).then_some(others)
}

/// The measured part of a run: from the first job that starts measuring to the last that ends. Jobs
/// take the snapshots themselves: another thread would be late by the time it takes to be
/// scheduled.
#[derive(Debug)]
pub struct Window {
    opened: OnceLock<Snapshot>,
    closed: OnceLock<Snapshot>,
    running: AtomicUsize,
}

impl Window {
    /// A window for this many jobs.
    pub fn new(jobs: usize) -> Self {
        Self { opened: OnceLock::new(), closed: OnceLock::new(), running: AtomicUsize::new(jobs) }
    }

    /// A job starts measuring.
    pub fn open(&self) {
        self.opened.get_or_init(Snapshot::of_process);
    }

    /// A job has ended; each job calls this once.
    pub fn close(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.closed.get_or_init(Snapshot::of_process);
        }
    }

    /// What happened in the window; zeros before all jobs have ended.
    pub fn usage(&self) -> Usage {
        match (self.opened.get(), self.closed.get()) {
            (Some(opened), Some(closed)) => closed.since(opened),
            _ => Usage::default(),
        }
    }
}

/// The kind of a helper thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Helper {
    SqPoll,
    IoWq,
}

/// Samples the CPU time of the kernel's helper threads.
#[derive(Debug, Default)]
pub struct Helpers {
    /// For each thread id, its kind and its CPU time at the start and when it was last seen.
    seen: HashMap<u32, (Helper, Duration, Duration)>,
    most_workers: u32,
}

impl Helpers {
    /// Starts: CPU time used before does not count.
    pub fn start() -> Self {
        let living = living();
        let most_workers = workers(&living);
        let seen = living.into_iter().map(|(tid, helper, time)| (tid, (helper, time, time)));
        Self { seen: seen.collect(), most_workers }
    }

    /// Samples all helper threads; called a few times a second.
    pub fn sample(&mut self) {
        let living = living();
        self.most_workers = self.most_workers.max(workers(&living));
        for (tid, helper, time) in living {
            // A thread that did not exist at the start has used all of its time since.
            self.seen.entry(tid).or_insert((helper, Duration::ZERO, time)).2 = time;
        }
    }

    /// Adds the time of the helpers to `usage`.
    pub fn add_to(&self, usage: &mut Usage) {
        for (helper, first, last) in self.seen.values() {
            match helper {
                Helper::SqPoll => usage.sqpoll += last.saturating_sub(*first),
                Helper::IoWq => usage.io_wq += last.saturating_sub(*first),
            }
        }
        usage.io_wq_workers = usage.io_wq_workers.max(self.most_workers);
    }
}

fn workers(living: &[(u32, Helper, Duration)]) -> u32 {
    living.iter().filter(|(_, helper, _)| *helper == Helper::IoWq).count() as u32
}

/// The helper threads of this process with the CPU time of each.
fn living() -> Vec<(u32, Helper, Duration)> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let of_task = |task: fs::DirEntry| {
        let path = task.path();
        let helper = helper(&fs::read_to_string(path.join("comm")).ok()?)?;
        Some((task.file_name().to_str()?.parse().ok()?, helper, run_time(&path)?))
    };
    tasks.filter_map(|task| of_task(task.ok()?)).collect()
}

/// The kind of the thread with this name; the kernel appends the id of the thread that created it.
fn helper(name: &str) -> Option<Helper> {
    if name.starts_with("iou-sqp-") {
        Some(Helper::SqPoll)
    } else if name.starts_with("iou-wrk-") {
        Some(Helper::IoWq)
    } else {
        None
    }
}

/// CPU time of a thread: exact from `schedstat`, or in clock ticks from `stat` on a kernel without
/// that.
fn run_time(task: &std::path::Path) -> Option<Duration> {
    if let Ok(text) = fs::read_to_string(task.join("schedstat")) {
        return Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?));
    }
    from_ticks(ticks(&fs::read_to_string(task.join("stat")).ok()?)?)
}

/// User and system time in a `stat` line. Its second field, the name, may contain anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_time_between_opening_and_closing() {
        let window = Window::new(2);
        window.open();
        let until = std::time::Instant::now() + Duration::from_millis(50);
        while std::time::Instant::now() < until {}
        window.close();
        assert_eq!(window.usage().real, Duration::ZERO, "one job still runs");
        window.close();
        let usage = window.usage();
        assert!(usage.real >= Duration::from_millis(50));
        assert!(usage.cpu() > Duration::ZERO);
        assert!(machine::of_programs().unwrap() >= usage.cpu());
    }

    #[test]
    fn other_programs_are_measured_without_this_one() {
        let others = Others::start();
        assert_eq!(others.processors(), None, "no time has passed");
        let until = std::time::Instant::now() + Duration::from_millis(150);
        while std::time::Instant::now() < until {}
        let cpus = std::thread::available_parallelism().unwrap().get() as f64;
        let processors = others.processors().unwrap();
        // The busy loop itself does not count, up to the ticks.
        assert!((0.0..=cpus).contains(&processors), "{processors}");
    }

    #[test]
    fn a_tenth_of_the_processors_distorts_figures() {
        assert_eq!(busy([0.1, 0.3, 9.0], 2), Some(0.3));
        assert_eq!(busy([0.1, 0.3, 9.0], 4), None);
        assert_eq!(busy([], 2), None);
    }

    #[test]
    fn helpers_are_recognised_by_their_names() {
        assert_eq!(helper("iou-wrk-123\n"), Some(Helper::IoWq));
        assert_eq!(helper("iou-sqp-123\n"), Some(Helper::SqPoll));
        assert_eq!(helper("ringway\n"), None);
    }

    #[test]
    fn times_are_found_after_any_name() {
        let stat = "7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 40 2 13 14 20";
        assert_eq!(ticks(stat), Some(42));
        let own = std::path::Path::new("/proc/thread-self");
        assert!(ticks(&fs::read_to_string(own.join("stat")).unwrap()).is_some());
        assert!(run_time(own).is_some());
    }
}
