//! Tracks the kernel's worker threads (io-wq) of a ring: how many of their jobs hang, and how many
//! workers are needed for the others.
//!
//! The kernel limits workers for files (to four for each processor, or to what the program sets),
//! so a file system that hangs can occupy all of them. Hung jobs do not count: the limit is raised
//! for them, up to [`MAX_WORKERS`]. Buffered writes of different files may still wait behind one
//! another, since the kernel has 64 groups of files with one worker each; while jobs hang, such
//! writes go to the threads ([`Workers::has_hung_jobs`]).

use crate::op::{Opcode, Raw};
use std::time::Duration;

/// The interval of checks while there may be too few workers.
pub(super) const TICK: Duration = Duration::from_millis(25);

/// The most workers.
const MAX_WORKERS: u32 = 1024;

/// True for operations that a worker may have to do, and hang in. Reads are not among them unless
/// they are passed to a worker: a read that waits does so without one.
fn may_need_worker(raw: &Raw) -> bool {
    raw.is_write()
        || !raw.is_transfer()
            && !matches!(raw.opcode(), Opcode::Nop | Opcode::Poll | Opcode::Timeout)
}

/// Jobs in flight of one slot.
#[derive(Clone, Copy, Default)]
struct SlotJobs {
    jobs: u32,
    /// The tick at which the first of them started.
    began: u32,
}

pub(super) struct Workers {
    /// The current limit; `None` if the kernel cannot change it (before 5.15).
    limit: Option<u32>,
    /// The limit without hung jobs.
    base_limit: u32,
    /// By slot, as far as any has had a job for a worker.
    slots: Vec<SlotJobs>,
    jobs: u32,
    tick: u32,
}

impl Workers {
    pub fn new(limit: Option<u32>) -> Self {
        Self { limit, base_limit: limit.unwrap_or(0), slots: Vec::new(), jobs: 0, tick: 0 }
    }

    /// Counts a job. `by_worker`: a worker does it in any case.
    pub fn begin(&mut self, slot: u32, raw: &Raw, by_worker: bool) {
        if by_worker || may_need_worker(raw) {
            let slot = slot as usize;
            if self.slots.len() <= slot {
                self.slots.resize(slot + 1, SlotJobs::default());
            }
            let slot_jobs = &mut self.slots[slot];
            if slot_jobs.jobs == 0 {
                slot_jobs.began = self.tick;
            }
            slot_jobs.jobs += 1;
            self.jobs += 1;
        }
    }

    #[inline]
    pub fn end(&mut self, slot: u32) {
        if let Some(slot_jobs) =
            self.slots.get_mut(slot as usize).filter(|slot_jobs| slot_jobs.jobs > 0)
        {
            slot_jobs.jobs -= 1;
            self.jobs -= 1;
        }
    }

    /// Jobs in flight that a worker may have to do.
    pub fn jobs(&self) -> u32 {
        self.jobs
    }

    /// True while all workers may be busy: then ticks are needed.
    pub fn may_be_exhausted(&self) -> bool {
        self.limit.is_some_and(|limit| self.jobs >= limit && limit < MAX_WORKERS)
    }

    /// True while hung jobs have made more workers necessary.
    pub fn has_hung_jobs(&self) -> bool {
        self.limit.is_some_and(|limit| limit > self.base_limit) && self.jobs >= self.base_limit
    }

    /// Advances the tick. Returns a new limit if jobs that have lasted for a whole tick may occupy
    /// all workers.
    pub fn tick(&mut self) -> Option<u32> {
        let limit = self.limit?;
        let before = self.tick;
        self.tick = self.tick.wrapping_add(1);
        let old = self
            .slots
            .iter()
            .filter(|slot_jobs| slot_jobs.jobs > 0 && slot_jobs.began != before)
            .map(|slot_jobs| slot_jobs.jobs)
            .sum::<u32>();
        let wanted = old.saturating_add(self.base_limit).min(MAX_WORKERS);
        (old >= limit && wanted > limit).then(|| {
            self.limit = Some(wanted);
            wanted
        })
    }

    /// The kernel cannot change the limit.
    pub fn disable(&mut self) {
        self.limit = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Nop, Timeout, Write, WriteDsync};

    fn write() -> Raw {
        Raw::Write(Write { fd: 3, buf: std::ptr::null(), len: 1, offset: 0 })
    }

    #[test]
    fn hung_jobs_do_not_count() {
        let mut workers = Workers::new(Some(8));
        (0..8).for_each(|slot| workers.begin(slot, &write(), false));
        assert!(workers.may_be_exhausted());
        // Jobs that have just started may still end.
        assert_eq!(workers.tick(), None);
        assert!(!workers.has_hung_jobs());
        assert_eq!(workers.tick(), Some(16));
        assert!(!workers.may_be_exhausted() && workers.has_hung_jobs());
        (8..20).for_each(|slot| workers.begin(slot, &write(), false));
        assert!(workers.may_be_exhausted());
        assert_eq!((workers.tick(), workers.tick()), (None, Some(28)));
        (0..20).for_each(|slot| workers.end(slot));
        assert!(!workers.may_be_exhausted() && !workers.has_hung_jobs());
        assert_eq!((workers.tick(), workers.tick()), (None, None));
    }

    #[test]
    fn durable_writes_count() {
        let mut workers = Workers::new(Some(8));
        let write =
            Raw::WriteDsync(WriteDsync(Write { fd: 3, buf: std::ptr::null(), len: 1, offset: 0 }));
        (0..8).for_each(|slot| workers.begin(slot, &write, false));
        assert!(workers.may_be_exhausted());
    }

    #[test]
    fn the_limit_is_bounded_and_other_jobs_do_not_count() {
        let mut workers = Workers::new(Some(8));
        workers.begin(0, &Raw::Nop(Nop), false);
        workers.begin(1, &Raw::Timeout(Timeout { duration: TICK }), false);
        workers.end(0);
        workers.end(5000);
        assert_eq!(workers.jobs, 0);
        (0..4096).for_each(|slot| workers.begin(slot, &write(), false));
        assert_eq!((workers.tick(), workers.tick()), (None, Some(MAX_WORKERS)));
        assert!(!workers.may_be_exhausted());
        let mut unknown = Workers::new(None);
        (0..64).for_each(|slot| unknown.begin(slot, &write(), false));
        assert!(!unknown.may_be_exhausted());
        assert_eq!((unknown.tick(), unknown.tick()), (None, None));
    }
}
