//! The ranges that a turn reads, what has been found in them, and what that costs.

use super::list;
use crate::figures::{CPU_SECONDS, DEVICE, MACHINE_SECONDS, PEAK, SECONDS, SWITCHES, SYSTEM, USER};
use ringway_measure::machine::Machine;
use ringway_measure::process::{device_bytes, peak_memory};
use ringway_measure::rounds::{OTHERS, Turn};
use ringway_measure::usage::{Others, Snapshot};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What a scan reads.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Scan {
    /// The file with the list of ranges, which is too long for an argument.
    pub list: PathBuf,
    /// Bytes of all ranges.
    pub bytes: u64,
    /// Check every byte. The figures then mean nothing.
    pub whole: bool,
}

/// The ranges, which the tasks of a turn take one after the other. It lives as long as the process.
#[derive(Debug)]
pub struct Work {
    pub ranges: Vec<Range<u64>>,
    /// Whether all bytes are checked, not only the first and the last of each range.
    whole: bool,
    next: AtomicUsize,
    digest: AtomicU64,
    failure: OnceLock<String>,
}

impl Work {
    pub fn new(ranges: Vec<Range<u64>>, whole: bool) -> &'static Self {
        Box::leak(Box::new(Self {
            ranges,
            whole,
            next: AtomicUsize::new(0),
            digest: AtomicU64::new(0),
            failure: OnceLock::new(),
        }))
    }

    /// The next ranges, at most `most`; `None` when all are taken or a read has failed.
    pub fn take(&self, most: usize) -> Option<&[Range<u64>]> {
        if self.failure.get().is_some() {
            return None;
        }
        let first = self.next.fetch_add(most, Ordering::Relaxed);
        self.ranges.get(first..self.ranges.len().min(first + most)).filter(|some| !some.is_empty())
    }

    /// The next range.
    pub fn take_one(&self) -> Option<&Range<u64>> {
        self.take(1)?.first()
    }

    /// A range has been read.
    pub fn read(&self, range: &Range<u64>, bytes: &[u8]) {
        if bytes.len() as u64 != range.end - range.start {
            return self.fail(format!("{} bytes of {range:?}", bytes.len()));
        }
        self.digest.fetch_add(digest(range, bytes, self.whole), Ordering::Relaxed);
    }

    /// Ranges have been read.
    pub fn read_all(
        &self,
        ranges: &[Range<u64>],
        read: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) {
        for (range, bytes) in ranges.iter().zip(read) {
            self.read(range, bytes.as_ref());
        }
    }

    /// A read has failed. The first failure is reported.
    pub fn fail(&self, why: impl Display) {
        let _ = self.failure.set(why.to_string());
    }

    /// The sum of the digests of all ranges.
    pub fn result(&self) -> anyhow::Result<u64> {
        match self.failure.get() {
            Some(why) => anyhow::bail!("{why}"),
            None => Ok(self.digest.load(Ordering::Relaxed)),
        }
    }

    /// Measures one turn: `read` reads all ranges.
    pub fn measure(
        scan: &Scan,
        read: impl FnOnce(&'static Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Turn> {
        let work = Self::new(list::read(&scan.list)?, scan.whole);
        let (others, machine) = (Others::start(), Machine::now());
        let (device, begun) = (device_bytes()?, Snapshot::of_process());
        read(work)?;
        let usage = Snapshot::of_process().since(&begun);
        let machine = machine.and_then(|since| since.busy());
        let mut turn = Turn { answer: Some(answer(work.result()?)), ..Turn::default() };
        turn.set(SECONDS, usage.real.as_secs_f64());
        turn.set(USER, usage.user.as_secs_f64());
        turn.set(SYSTEM, usage.system.as_secs_f64());
        turn.set(CPU_SECONDS, usage.cpu().as_secs_f64());
        turn.set(MACHINE_SECONDS, machine.map(|time| time.as_secs_f64()));
        turn.set(SWITCHES, usage.context_switches() as f64);
        turn.set(PEAK, peak_memory()? as f64 / f64::from(1 << 20));
        turn.set(DEVICE, (device_bytes()? - device) as f64 / scan.bytes as f64);
        turn.set(OTHERS, others.processors());
        Ok(turn)
    }
}

/// The digest as the answer of a turn.
pub fn answer(digest: u64) -> String {
    format!("{digest:016x}")
}

/// A hash of a range and of its bytes; unless `whole`, only of the first and last eight, so that
/// what is measured is the reading.
pub fn digest(range: &Range<u64>, bytes: &[u8], whole: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(range.start);
    if whole {
        hasher.write(bytes);
    } else {
        hasher.write(&bytes[..bytes.len().min(8)]);
        hasher.write(&bytes[bytes.len().saturating_sub(8)..]);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_is_taken_once() {
        let work = Work::new(vec![0..1, 1..2, 2..3], false);
        assert_eq!(work.take(2), Some(&[0..1, 1..2][..]));
        assert_eq!(work.take_one(), Some(&(2..3)));
        assert_eq!(work.take(2), None);
    }

    #[test]
    fn a_short_read_is_a_failure() {
        let work = Work::new(vec![0..2, 4..6], false);
        work.read(&(0..2), b"a");
        assert!(work.take_one().is_none() && work.result().is_err());
    }
}
