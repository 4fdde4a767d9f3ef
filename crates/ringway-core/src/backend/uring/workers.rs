//! The kernel's worker threads (io-wq) of a ring: how many of what they may have to do has not come
//! back for long, and so how many there must be for what comes next.
//!
//! A kernel has so few workers for files (four for each processor, or what the program allows) that
//! a hanging file system keeps all of them. What hangs does not count: the limit is raised, up to
//! [`MOST`]. Buffered writes of different files may still stand behind one another, since the
//! kernel has 64 groups of files and a worker for each: while something hangs they are for the
//! threads ([`Workers::hang`]).

use crate::op::{Opcode, Raw};
use std::time::Duration;

/// How often it is looked at while there may be too few.
pub(super) const TICK: Duration = Duration::from_millis(25);

/// The most workers.
const MOST: u32 = 1024;

/// True for what a worker may have to do, and hang in. Reads are not among them, unless they are
/// given to a worker: those that wait do without one.
fn is_work(raw: &Raw) -> bool {
    raw.is_write()
        || !raw.is_transfer()
            && !matches!(raw.opcode(), Opcode::Nop | Opcode::Poll | Opcode::Timeout)
}

/// What is in flight of one slot.
#[derive(Clone, Copy, Default)]
struct Work {
    jobs: u32,
    /// The tick at which the first of them began.
    began: u32,
}

pub(super) struct Workers {
    /// The limit in force; none is known where the kernel cannot be told (before 5.15).
    limit: Option<u32>,
    /// What the limit is beyond what hangs.
    room: u32,
    /// By slot, as far as any has been for a worker.
    slots: Vec<Work>,
    jobs: u32,
    tick: u32,
}

impl Workers {
    pub fn new(limit: Option<u32>) -> Self {
        Self { limit, room: limit.unwrap_or(0), slots: Vec::new(), jobs: 0, tick: 0 }
    }

    /// `certain`: a worker has to do it, whatever it is.
    pub fn begin(&mut self, slot: u32, raw: &Raw, certain: bool) {
        if certain || is_work(raw) {
            let slot = slot as usize;
            if self.slots.len() <= slot {
                self.slots.resize(slot + 1, Work::default());
            }
            let work = &mut self.slots[slot];
            if work.jobs == 0 {
                work.began = self.tick;
            }
            work.jobs += 1;
            self.jobs += 1;
        }
    }

    #[inline]
    pub fn end(&mut self, slot: u32) {
        if let Some(work) = self.slots.get_mut(slot as usize).filter(|work| work.jobs > 0) {
            work.jobs -= 1;
            self.jobs -= 1;
        }
    }

    /// Jobs in flight that a worker may have to do.
    pub fn jobs(&self) -> u32 {
        self.jobs
    }

    /// True while all workers may be busy: then a tick is to come.
    pub fn are_few(&self) -> bool {
        self.limit.is_some_and(|limit| self.jobs >= limit && limit < MOST)
    }

    /// True while more hangs than there were to be workers for.
    pub fn hang(&self) -> bool {
        self.limit.is_some_and(|limit| limit > self.room) && self.jobs >= self.room
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
            .filter(|work| work.jobs > 0 && work.began != before)
            .map(|work| work.jobs)
            .sum::<u32>();
        let wanted = old.saturating_add(self.room).min(MOST);
        (old >= limit && wanted > limit).then(|| {
            self.limit = Some(wanted);
            wanted
        })
    }

    /// The kernel does not set limits.
    pub fn cannot_be_told(&mut self) {
        self.limit = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Nop, Timeout, Write, WriteDsync};

    fn write() -> Raw {
        Raw::Write(Write { fd: 3, addr: std::ptr::null(), len: 1, offset: 0 })
    }

    #[test]
    fn what_hangs_does_not_count() {
        let mut workers = Workers::new(Some(8));
        (0..8).for_each(|slot| workers.begin(slot, &write(), false));
        assert!(workers.are_few());
        // What has just begun may end by itself.
        assert_eq!(workers.tick(), None);
        assert!(!workers.hang());
        assert_eq!(workers.tick(), Some(16));
        assert!(!workers.are_few() && workers.hang());
        (8..20).for_each(|slot| workers.begin(slot, &write(), false));
        assert!(workers.are_few());
        assert_eq!((workers.tick(), workers.tick()), (None, Some(28)));
        (0..20).for_each(|slot| workers.end(slot));
        assert!(!workers.are_few() && !workers.hang());
        assert_eq!((workers.tick(), workers.tick()), (None, None));
    }

    #[test]
    fn durable_writes_count() {
        let mut workers = Workers::new(Some(8));
        let write =
            Raw::WriteDsync(WriteDsync(Write { fd: 3, addr: std::ptr::null(), len: 1, offset: 0 }));
        (0..8).for_each(|slot| workers.begin(slot, &write, false));
        assert!(workers.are_few());
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
        assert_eq!((workers.tick(), workers.tick()), (None, Some(MOST)));
        assert!(!workers.are_few());
        let mut unknown = Workers::new(None);
        (0..64).for_each(|slot| unknown.begin(slot, &write(), false));
        assert!(!unknown.are_few());
        assert_eq!((unknown.tick(), unknown.tick()), (None, None));
    }
}
