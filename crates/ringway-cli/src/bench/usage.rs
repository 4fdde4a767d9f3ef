//! What a run cost the processors: the process's own figures, and of them what the kernel's helper
//! threads took.
//!
//! The SQPOLL thread (`iou-sqp-*`) and the io-wq workers (`iou-wrk-*`) are threads of this process,
//! so `getrusage(RUSAGE_SELF)` includes their time, while they live and after; `/proc/self/task`
//! only says whose share is whose.

use super::result::Usage;
use std::collections::HashMap;
use std::fs;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The figures of the process, or of a thread, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    at: u64,
    user: Duration,
    system: Duration,
    context_switches: u64,
}

impl Moment {
    /// Of the process.
    fn now() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    /// Of the calling thread.
    pub fn of_thread() -> Self {
        Self::of(libc::RUSAGE_THREAD)
    }

    fn of(whom: libc::c_int) -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes one `rusage` into the live value, of which every bit pattern is
        // valid.
        let usage = unsafe {
            libc::getrusage(whom, usage.as_mut_ptr());
            usage.assume_init()
        };
        let time =
            |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        Self {
            at: super::clock::now(),
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
        }
    }

    /// The figures since an earlier moment; without helpers and system calls, which are counted
    /// elsewhere.
    pub fn since(&self, opened: &Self) -> Usage {
        Usage {
            real: Duration::from_nanos(self.at.saturating_sub(opened.at)),
            user: self.user.saturating_sub(opened.user),
            system: self.system.saturating_sub(opened.system),
            context_switches: self.context_switches.saturating_sub(opened.context_switches),
            ..Usage::default()
        }
    }
}

/// The measured part of a run: from the first job that begins it to the last that is done. Jobs
/// take the figures themselves, at that moment: another thread would be late by as long as it takes
/// to get a processor.
#[derive(Debug)]
pub struct Window {
    opened: OnceLock<Moment>,
    closed: OnceLock<Moment>,
    running: AtomicUsize,
}

impl Window {
    /// For this many jobs.
    pub fn new(jobs: usize) -> Self {
        Self { opened: OnceLock::new(), closed: OnceLock::new(), running: AtomicUsize::new(jobs) }
    }

    /// A job begins what is measured.
    pub fn open(&self) {
        self.opened.get_or_init(Moment::now);
    }

    /// A job is done; each says so once.
    pub fn close(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.closed.get_or_init(Moment::now);
        }
    }

    /// The figures between the two. Zeros before it is over.
    pub fn usage(&self) -> Usage {
        match (self.opened.get(), self.closed.get()) {
            (Some(opened), Some(closed)) => closed.since(opened),
            _ => Usage::default(),
        }
    }
}

/// Which kernel thread it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Helper {
    SqPoll,
    IoWq,
}

/// Watches the kernel's helper threads; asked a few times a second.
#[derive(Debug, Default)]
pub struct Helpers {
    /// Time of each at the beginning and when last seen, by thread id.
    seen: HashMap<u32, (Helper, Duration, Duration)>,
    most_workers: u32,
}

impl Helpers {
    /// Starts to watch: what the helpers did before does not count.
    pub fn begin() -> Self {
        let mut helpers = Self::default();
        for (tid, helper, time) in living() {
            helpers.seen.insert(tid, (helper, time, time));
        }
        helpers.most_workers = helpers.workers();
        helpers
    }

    /// Looks again.
    pub fn look(&mut self) {
        let mut workers = 0;
        for (tid, helper, time) in living() {
            workers += u32::from(helper == Helper::IoWq);
            // One that was not there before has done all of its work since.
            self.seen.entry(tid).or_insert((helper, Duration::ZERO, time)).2 = time;
        }
        self.most_workers = self.most_workers.max(workers);
    }

    /// Adds what was seen.
    pub fn add_to(&self, usage: &mut Usage) {
        usage.sqpoll += self.time(Helper::SqPoll);
        usage.io_wq += self.time(Helper::IoWq);
        usage.io_wq_workers = usage.io_wq_workers.max(self.most_workers);
    }

    fn workers(&self) -> u32 {
        self.seen.values().filter(|(helper, ..)| *helper == Helper::IoWq).count() as u32
    }

    fn time(&self, of: Helper) -> Duration {
        let of_kind = self.seen.values().filter(|(helper, ..)| *helper == of);
        of_kind.map(|(_, first, last)| last.saturating_sub(*first)).sum()
    }
}

/// The helper threads of this process with the processor time of each.
fn living() -> Vec<(u32, Helper, Duration)> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let of_task = |task: fs::DirEntry| {
        let path = task.path();
        let helper = helper(&fs::read_to_string(path.join("comm")).ok()?)?;
        Some((task.file_name().to_str()?.parse().ok()?, helper, run_time(&path)?))
    };
    tasks.filter_map(|task| of_task(task.ok()?)).collect()
}

/// Which helper has this name: `iou-sqp-` or `iou-wrk-` and the id of the thread that made it.
fn helper(name: &str) -> Option<Helper> {
    if name.starts_with("iou-sqp-") {
        Some(Helper::SqPoll)
    } else if name.starts_with("iou-wrk-") {
        Some(Helper::IoWq)
    } else {
        None
    }
}

/// Processor time of a thread: exact from `schedstat`; in clock ticks from `stat` on a kernel
/// without that.
fn run_time(task: &std::path::Path) -> Option<Duration> {
    if let Ok(text) = fs::read_to_string(task.join("schedstat")) {
        return Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?));
    }
    let ticks = ticks(&fs::read_to_string(task.join("stat")).ok()?)?;
    // SAFETY: sysconf reads a constant of the system.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) })
        .ok()
        .filter(|ticks| *ticks > 0)?;
    Some(Duration::from_millis(ticks * 1000 / per_second))
}

/// User and system time in a `stat` line, whose second field, the name, may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_time_spent_between_opening_and_closing() {
        let window = Window::new(2);
        window.open();
        let until = std::time::Instant::now() + Duration::from_millis(50);
        while std::time::Instant::now() < until {}
        window.close();
        assert_eq!(window.usage().real, Duration::ZERO, "one job still runs");
        window.close();
        let usage = window.usage();
        assert!(usage.real >= Duration::from_millis(50));
        assert!(usage.user + usage.system > Duration::ZERO);
    }

    #[test]
    fn helpers_are_told_by_their_names() {
        assert_eq!(helper("iou-wrk-123\n"), Some(Helper::IoWq));
        assert_eq!(helper("iou-sqp-123\n"), Some(Helper::SqPoll));
        assert_eq!(helper("ringway\n"), None);
    }

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 40 2 13 14 20";
        assert_eq!(ticks(stat), Some(42));
        let own = std::path::Path::new("/proc/thread-self");
        assert!(ticks(&fs::read_to_string(own.join("stat")).unwrap()).is_some());
        assert!(run_time(own).is_some());
    }
}
