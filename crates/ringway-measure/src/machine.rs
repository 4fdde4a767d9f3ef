//! CPU time of the whole machine: all processors, all programs, interrupts included.
//!
//! `getrusage` charges most interrupts to whatever runs on the processor that takes them, and the
//! kernel's own threads to nobody. A program that runs elsewhere seems cheaper then, although the
//! machine spends the same. The machine's time has no such gaps, but counts everything that runs.

use crate::clock;
use std::fs;
use std::time::Duration;

/// The idle time of all processors at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    at: u64,
    /// Since the system started, with waiting for I/O.
    idle: Duration,
    processors: u32,
}

impl Machine {
    /// Now; `None` where `/proc/stat` does not show it.
    pub fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let (ticks, processors) = idle(&stat)?;
        // SAFETY: sysconf reads a constant of the system.
        let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
        let idle = Duration::from_millis((ticks * 1000).checked_div(per_second)?);
        Some(Self { at: clock::now(), idle, processors })
    }

    /// The time in which processors were busy since then: what is left of the time of all of them.
    /// With dynamic ticks the kernel counts idle time exactly, but busy time by sampling at ticks.
    pub fn busy(&self) -> Option<Duration> {
        let now = Self::now()?;
        let all = Duration::from_nanos(now.at.saturating_sub(self.at)) * self.processors;
        Some(all.saturating_sub(now.idle.saturating_sub(self.idle)))
    }
}

/// The idle ticks of all processors, and how many processors there are.
fn idle(stat: &str) -> Option<(u64, u32)> {
    // cpu user nice system idle iowait irq softirq steal
    let times: Vec<&str> = stat.lines().next()?.split_whitespace().collect();
    let ticks = times.get(4)?.parse::<u64>().ok()? + times.get(5)?.parse::<u64>().ok()?;
    let processors = stat.lines().skip(1).filter(|line| line.starts_with("cpu")).count();
    Some((ticks, processors as u32)).filter(|_| processors > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_io_is_idle() {
        let stat = "cpu  100 20 3 5000 600 70 80 9 1 1\ncpu0 50 10\ncpu1 50 10\nintr 1\n";
        assert_eq!(idle(stat), Some((5600, 2)));
        assert_eq!(idle("cpu 1 2"), None);
    }

    #[test]
    fn a_busy_loop_keeps_a_processor_busy() {
        let (begun, started) = (Machine::now().unwrap(), std::time::Instant::now());
        while started.elapsed() < Duration::from_millis(200) {}
        let busy = begun.busy().unwrap();
        // Up to two ticks of each processor.
        let ticks = Duration::from_millis(20) * begun.processors;
        assert!(busy + ticks >= Duration::from_millis(200), "{busy:?}");
        assert!(busy <= started.elapsed() * begun.processors + Duration::from_secs(1), "{busy:?}");
    }
}
