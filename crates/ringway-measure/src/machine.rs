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
        let Stat { idle, processors, .. } = Stat::now()?;
        Some(Self { at: clock::now(), idle: from_ticks(idle)?, processors })
    }

    /// The time in which processors were busy since then: what is left of the time of all of them.
    /// With dynamic ticks the kernel counts idle time exactly, but busy time by sampling at ticks.
    pub fn busy(&self) -> Option<Duration> {
        let now = Self::now()?;
        let all = Duration::from_nanos(now.at.saturating_sub(self.at)) * self.processors;
        Some(all.saturating_sub(now.idle.saturating_sub(self.idle)))
    }
}

/// CPU time that all programs of the machine have used, and time stolen by its host. Interrupts do
/// not count: most are those of the I/O that is measured. `None` where `/proc/stat` does not show
/// it.
pub(crate) fn of_programs() -> Option<Duration> {
    from_ticks(Stat::now()?.programs)
}

/// Clock ticks of all processors.
#[derive(Debug, PartialEq)]
struct Stat {
    /// That programs used, or the host has stolen.
    programs: u64,
    /// Idle, with waiting for I/O.
    idle: u64,
    processors: u32,
}

impl Stat {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let times = lines.next()?.split_whitespace().skip(1);
        let times: Vec<u64> = times.map_while(|time| time.parse().ok()).collect();
        let [user, nice, system, idle, iowait, _irq, _softirq, steal, ..] = times[..] else {
            return None;
        };
        let processors = lines.filter(|line| line.starts_with("cpu")).count() as u32;
        let (programs, idle) = (user + nice + system + steal, idle + iowait);
        (processors > 0).then_some(Self { programs, idle, processors })
    }
}

pub(crate) fn from_ticks(ticks: u64) -> Option<Duration> {
    // SAFETY: sysconf reads a constant of the system.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    Some(Duration::from_millis((ticks * 1000).checked_div(per_second)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_io_is_idle_and_interrupts_are_not_those_of_programs() {
        let stat = "cpu  100 20 3 5000 600 70 80 9 1 1\ncpu0 50 10\ncpu1 50 10\nintr 1\n";
        let expected = Stat { programs: 100 + 20 + 3 + 9, idle: 5600, processors: 2 };
        assert_eq!(Stat::parse(stat), Some(expected));
        assert_eq!(Stat::parse("cpu 1 2"), None);
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
