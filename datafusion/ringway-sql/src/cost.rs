//! What a statement cost, or registering the tables: time, memory, and the I/O that the kernel and
//! ringway's engine counted.

use ringway_datafusion::ringway::{Engine, Stats};
use ringway_measure::usage::{Snapshot, Usage};
use serde::Serialize;
use std::fmt;

/// The cost of one statement, or of registering the tables. Sizes are bytes and times are seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// What was done.
    #[serde(flatten)]
    pub work: Work,
    /// Wall time.
    pub wall: f64,
    /// CPU time in the program.
    pub user: f64,
    /// CPU time in the kernel.
    pub system: f64,
    /// The most memory that the process had while the statement ran. Where the kernel does not
    /// allow resetting the mark: since the program started.
    pub peak_rss: Option<u64>,
    /// Bytes that the device delivered for this process.
    pub device_read: Option<u64>,
    /// Context switches because a thread waited.
    pub voluntary_switches: u64,
    /// Context switches because another thread needed the processor.
    pub involuntary_switches: u64,
    /// What ringway's engine did; with `--store local` there is none.
    pub engine: Option<EngineCost>,
}

/// What a cost was paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// A statement with a result of this many rows.
    Rows(u64),
    /// Finding and registering this many tables.
    Tables(u64),
}

/// What ringway's engine did meanwhile.
#[derive(Clone, Debug, Serialize)]
pub struct EngineCost {
    /// Reads answered from the page cache, with one system call each.
    pub cached: u64,
    /// Operations submitted: reads, but also opening, closing and advice to read ahead.
    pub operations: u64,
    /// System calls, except those of cached reads.
    pub system_calls: u64,
    /// Submissions; each has one or more operations.
    pub batches: u64,
    /// Operations in flight when the statement ended.
    pub in_flight: u64,
}

/// The counters at the start of a statement.
#[derive(Debug)]
pub struct Start {
    usage: Snapshot,
    device_read: Option<u64>,
    engine: Option<Stats>,
}

impl Start {
    /// Takes the counters, and resets the mark of the memory used.
    pub fn now(engine: Option<&Engine>) -> Self {
        // 5: the peak of the resident set becomes its size of now (proc_pid_clear_refs(5)).
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Self {
            device_read: field("/proc/self/io", "read_bytes:"),
            engine: engine.map(Engine::stats),
            usage: Snapshot::of_process(),
        }
    }

    /// The cost since the start.
    pub fn cost(&self, engine: Option<&Engine>, work: Work) -> Cost {
        let Usage { real, user, system, voluntary_switches, involuntary_switches, .. } =
            Snapshot::of_process().since(&self.usage);
        let device_read = field("/proc/self/io", "read_bytes:");
        Cost {
            work,
            wall: real.as_secs_f64(),
            user: user.as_secs_f64(),
            system: system.as_secs_f64(),
            peak_rss: field("/proc/self/status", "VmHWM:").map(|kib| kib * 1024),
            device_read: device_read
                .zip(self.device_read)
                .map(|(now, then)| now.saturating_sub(then)),
            voluntary_switches,
            involuntary_switches,
            engine: engine
                .zip(self.engine.as_ref())
                .map(|(engine, then)| EngineCost::between(then, &engine.stats())),
        }
    }
}

impl EngineCost {
    fn between(then: &Stats, now: &Stats) -> Self {
        Self {
            cached: now.cached - then.cached,
            operations: now.counts.pushed - then.counts.pushed,
            system_calls: now.system_calls - then.system_calls,
            batches: now.batches.count - then.batches.count,
            in_flight: now.counts.in_flight,
        }
    }
}

/// The number after a name in a file of `/proc`.
fn field(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:.3} s", self.work, self.wall)?;
        write!(f, ", CPU {:.3} s user, {:.3} s system", self.user, self.system)?;
        if let Some(peak) = self.peak_rss {
            write!(f, "; peak memory {}", mebibytes(peak))?;
        }
        if let Some(read) = self.device_read {
            write!(f, "; read from the device {}", mebibytes(read))?;
        }
        write!(f, "; context switches {}", self.voluntary_switches + self.involuntary_switches)?;
        let Some(engine) = &self.engine else { return Ok(()) };
        write!(
            f,
            "\nengine: {} reads answered from the page cache, {} operations in {} batches with {} \
             system calls, {} in flight",
            engine.cached, engine.operations, engine.batches, engine.system_calls, engine.in_flight
        )
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match self {
            Self::Rows(rows) => (rows, "row"),
            Self::Tables(tables) => (tables, "table"),
        };
        write!(f, "{number} {unit}{}", if *number == 1 { "" } else { "s" })
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts() {
        let start = Start::now(None);
        let cost = start.cost(None, Work::Rows(7));
        assert_eq!(serde_json::to_value(&cost).unwrap()["rows"], 7);
        assert!(cost.peak_rss.unwrap() > 1 << 20);
        assert!(cost.to_string().starts_with("7 rows in 0."), "{cost}");
        assert!(cost.engine.is_none());
    }
}
