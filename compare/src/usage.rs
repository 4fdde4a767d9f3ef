//! What this process has cost so far: all its threads, and the kernel's io_uring workers, which are
//! threads of it too.

use serde::{Deserialize, Serialize};
use std::fs;
use std::mem::MaybeUninit;
use std::ops::Sub;

/// Figures of `getrusage(2)`; times in seconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Usage {
    pub user: f64,
    pub system: f64,
    pub voluntary_switches: i64,
    pub involuntary_switches: i64,
}

impl Usage {
    pub fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes one `rusage` into the live value, of which every bit pattern is
        // valid.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self {
            user: seconds(usage.ru_utime),
            system: seconds(usage.ru_stime),
            voluntary_switches: usage.ru_nvcsw,
            involuntary_switches: usage.ru_nivcsw,
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
        }
    }
}

/// Seconds of processor time that the whole machine has spent, or lost to others beside it; none
/// where it does not tell.
pub fn of_machine() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    // user, nice, system, idle, iowait, irq, softirq, steal
    let times: Vec<f64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .map_while(|time| time.parse().ok())
        .collect();
    let busy: f64 = times.iter().take(8).sum::<f64>() - times.get(3)? - times.get(4)?;
    // SAFETY: sysconf reads a constant of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Some(busy / per_second as f64)
}

/// Nanoseconds of processor time that the calling thread has spent.
pub fn of_thread() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` into the live value.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
