//! The kernel's worker threads (io-wq) of a ring: how many of what they may have to do has not come
//! back for long, and so how many there must be for what comes next.
//!
//! A kernel has so few workers for files (four for each processor, or what the program allows) that
//! a hanging file system keeps all of them. What hangs does not count: the limit is raised, up to
//! [`MAX_WORKERS`]. Buffered writes of different files may still stand behind one another, since the
//! kernel has 64 groups of files and a worker for each: while something hangs they are for the
//! threads ([`Workers::has_hung_jobs`]).

use crate::op::{Opcode, Raw};
use std::time::Duration;

/// How often it is looked at while there may be too few.
pub(super) const TICK: Duration = Duration::from_millis(25);

/// The most workers.
const MAX_WORKERS: u32 = 1024;

/// True for what a worker may have to do, and hang in. Reads are not among them, unless they are
/// given to a worker: those that wait do without one.
fn may_need_worker(raw: &Raw) -> bool {
    raw.is_write()
        || !raw.is_transfer()
            && !matches!(raw.opcode(), Opcode::Nop | Opcode::Poll | Opcode::Timeout)
}

/// What is in flight of one slot.
#[derive(Clone, Copy, Default)]
struct SlotJobs {
    jobs: u32,
    /// The tick at which the first of them began.
    began: u32,
}

pub(super) struct Workers {
    /// The limit in force; none is known where the kernel cannot be told (before 5.15).
    limit: Option<u32>,
    /// What the limit is beyond what hangs.
    base_limit: u32,
    /// By slot, as far as any has been for a worker.
    slots: Vec<SlotJobs>,
    jobs: u32,
    tick: u32,
}

impl Workers {
    pub fn new(limit: Option<u32>) -> Self {
        Self { limit, base_limit: limit.unwrap_or(0), slots: Vec::new(), jobs: 0, tick: 0 }
    }

    /// `by_worker`: a worker has to do it, whatever it is.
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

    /// True while all workers may be busy: then a tick is to come.
    pub fn may_be_exhausted(&self) -> bool {
        self.limit.is_some_and(|limit| self.jobs >= limit && limit < MAX_WORKERS)
    }

    /// True while more hangs than there were to be workers for.
    pub fn has_hung_jobs(&self) -> bool {
        self.limit.is_some_and(|limit| limit > self.base_limit) && self.jobs >= self.base_limit
    }

    /// A tick has come: the limit to set, if what has lasted for a tick or longer may keep all of
    /// them.
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

    /// The kernel does not set limits.
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
    fn what_hangs_does_not_count() {
        let mut workers = Workers::new(Some(8));
        (0..8).for_each(|slot| workers.begin(slot, &write(), false));
        assert!(workers.may_be_exhausted());
        // What has just begun may end by itself.
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
    fn there_is_a_bound_and_others_are_not_counted() {
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
