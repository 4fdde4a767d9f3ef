//! Tracks the kernel's worker threads (io-wq) of a ring: how many of their jobs hang, and how many
//! workers are needed for the others.
//!
//! The kernel has two limits for each thread that submits, for bounded and for unbounded work.
//! Bounded is what it hands over itself on files. Unbounded is the rest, and also every transfer
//! that is handed over on purpose (`IOSQE_ASYNC`): its file is not looked up before. (Kernels
//! before 5.19 look it up, so there it is bounded.) A file system that hangs can occupy all workers
//! of either kind. Hung jobs do not count: the limits are raised for them, up to [`MAX_WORKERS`].
//! Buffered writes of different files may still wait behind one another, since the kernel has 64
//! groups of files with one worker each; while jobs hang, such writes go to the threads
//! ([`Workers::has_hung_jobs`]).

use crate::op::{Opcode, Raw};
use crate::slots::Token;
use std::time::Duration;

/// The interval of checks while there may be too few workers: a tick. Bounded jobs that have lasted
/// for a whole one are taken to hang if they may occupy all workers.
pub(super) const TICK_INTERVAL: Duration = Duration::from_millis(25);

/// Jobs that were handed over on purpose, this long before one that has ended, are taken to hang;
/// and all of them if none has ended for so long.
const HANDED_OVER_HUNG_AFTER: Duration = Duration::from_millis(100);
/// The same in ticks.
const HUNG_TICKS: u32 = (HANDED_OVER_HUNG_AFTER.as_millis() / TICK_INTERVAL.as_millis()) as u32;

/// The most workers.
pub(super) const MAX_WORKERS: u32 = 1024;

/// True for operations that a worker may have to do, and hang in. Reads are not among them unless
/// they are passed to a worker: a read that waits does so without one.
fn may_need_worker(raw: &Raw) -> bool {
    raw.is_write()
        || !raw.is_transfer()
            && !matches!(raw.opcode(), Opcode::Nop | Opcode::Poll | Opcode::Timeout)
}

/// Jobs in flight of one slot and one kind.
#[derive(Clone, Copy, Default)]
struct SlotJobs {
    jobs: u32,
    /// The tick at which the first of them started.
    began: u32,
}

/// Jobs of one kind that are in flight.
#[derive(Default)]
struct Jobs {
    /// By slot, as far as any has had such a job.
    slots: Vec<SlotJobs>,
    count: u32,
}

impl Jobs {
    fn begin(&mut self, slot: usize, tick: u32) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, SlotJobs::default());
        }
        let slot_jobs = &mut self.slots[slot];
        if slot_jobs.jobs == 0 {
            slot_jobs.began = tick;
        }
        slot_jobs.jobs += 1;
        self.count += 1;
    }

    /// Returns when the job began, if there is one.
    #[inline]
    fn end(&mut self, slot: usize) -> Option<u32> {
        let slot_jobs = self.slots.get_mut(slot).filter(|slot_jobs| slot_jobs.jobs > 0)?;
        slot_jobs.jobs -= 1;
        self.count -= 1;
        Some(slot_jobs.began)
    }

    /// How many have begun before a tick.
    fn before(&self, tick: u32) -> u32 {
        let older = |slot_jobs: &&SlotJobs| slot_jobs.jobs > 0 && slot_jobs.began < tick;
        self.slots.iter().filter(older).map(|slot_jobs| slot_jobs.jobs).sum()
    }
}

/// Bounded workers, and the jobs that may need them. Most need none.
#[derive(Default)]
struct Bounded {
    jobs: Jobs,
    /// The current limit, and the one without hung jobs.
    limit: u32,
    base_limit: u32,
}

impl Bounded {
    fn may_be_exhausted(&self) -> bool {
        self.jobs.count >= self.limit && self.limit < MAX_WORKERS
    }

    /// A new limit, if jobs that have lasted for the whole tick `before` may occupy all workers.
    fn raise(&mut self, before: u32) -> Option<u32> {
        let old = self.jobs.before(before);
        let wanted = old.saturating_add(self.base_limit).min(MAX_WORKERS);
        let raised = old >= self.limit && wanted > self.limit;
        raised.then(|| {
            self.limit = wanted;
            wanted
        })
    }
}

/// The jobs that are handed over on purpose. Each needs a worker, and workers take them in their
/// order.
#[derive(Default)]
struct HandedOver {
    jobs: Jobs,
    /// The limit without hung jobs.
    base_limit: u32,
    /// When the last one ended, and when the newest of those began that ended recently.
    ended: u32,
    newest_ended: u32,
    /// Hung jobs for which the limit has been raised.
    replaced: u32,
}

impl HandedOver {
    /// Others of the thread's rings may have as many, so a part of the limit is enough to look.
    fn may_be_exhausted(&self) -> bool {
        self.jobs.count > self.replaced.max(self.base_limit / 4).max(1)
            || self.replaced > self.jobs.count
    }

    fn end(&mut self, slot: usize, tick: u32) {
        if let Some(began) = self.jobs.end(slot) {
            self.newest_ended = self.newest_ended.max(began);
            self.ended = tick;
        }
    }

    /// By how much to raise or lower the limit.
    fn change(&mut self, tick: u32) -> i64 {
        let hung = if tick - self.ended < HUNG_TICKS {
            // The others wait for their turn, unless they began long before those that ended. (They
            // may be another thread's, whose workers have more to do: so not all at once.)
            let hung = self.jobs.before(self.newest_ended.saturating_sub(HUNG_TICKS));
            hung.min(self.replaced + self.base_limit)
        } else {
            self.newest_ended = 0;
            self.jobs.before(tick.saturating_sub(HUNG_TICKS))
        };
        let replaced = self.replaced.min(self.jobs.count).max(hung);
        i64::from(replaced) - i64::from(std::mem::replace(&mut self.replaced, replaced))
    }
}

/// The workers of the thread that submits, and the jobs of one ring that may need them. Other rings
/// have the same workers where the same thread submits to them.
pub(super) struct Workers {
    /// The kernel can change the limits (5.15).
    is_known: bool,
    /// What is handed over on purpose is bounded work too.
    all_are_bounded: bool,
    bounded: Bounded,
    handed_over: HandedOver,
    /// By slot, the pieces that were handed over: a bit each.
    pieces: Vec<u32>,
    tick: u32,
}

impl Workers {
    /// `limits`: those of bounded and of unbounded workers, where the kernel can change them.
    /// `all_are_bounded`: before 5.19.
    pub fn new(limits: Option<[u32; 2]>, all_are_bounded: bool) -> Self {
        let [bounded, unbounded] = limits.unwrap_or_default();
        let bounded = Bounded { limit: bounded, base_limit: bounded, ..Bounded::default() };
        let handed_over = HandedOver { base_limit: unbounded, ..HandedOver::default() };
        let is_known = limits.is_some();
        Self { is_known, all_are_bounded, bounded, handed_over, pieces: Vec::new(), tick: 0 }
    }

    /// Counts a job. `by_worker`: it is handed over to a worker in any case.
    pub fn begin(&mut self, token: Token, raw: &Raw, by_worker: bool) {
        let slot = token.index() as usize;
        if by_worker {
            if self.pieces.len() <= slot {
                self.pieces.resize(slot + 1, 0);
            }
            self.pieces[slot] |= bit(token);
            self.handed_over.jobs.begin(slot, self.tick);
        }
        if by_worker && self.all_are_bounded || !by_worker && may_need_worker(raw) {
            self.bounded.jobs.begin(slot, self.tick);
        }
    }

    #[inline]
    pub fn end(&mut self, token: Token) {
        let slot = token.index() as usize;
        let pieces = self.pieces.get_mut(slot).filter(|pieces| **pieces & bit(token) != 0);
        let by_worker = pieces.is_some();
        if let Some(pieces) = pieces {
            *pieces &= !bit(token);
            self.handed_over.end(slot, self.tick);
        }
        if !by_worker || self.all_are_bounded {
            self.bounded.jobs.end(slot);
        }
    }

    /// Jobs in flight that a worker may have to do.
    pub fn jobs(&self) -> u32 {
        if self.all_are_bounded {
            self.bounded.jobs.count
        } else {
            self.bounded.jobs.count + self.handed_over.jobs.count
        }
    }

    /// True while all workers of a kind may be busy: then ticks are needed.
    pub fn may_be_exhausted(&self) -> bool {
        self.is_known && (self.bounded.may_be_exhausted() || self.handed_over.may_be_exhausted())
    }

    /// True while hung jobs have made more bounded workers necessary.
    pub fn has_hung_jobs(&self) -> bool {
        let Bounded { jobs, limit, base_limit } = &self.bounded;
        self.is_known && limit > base_limit && jobs.count >= *base_limit
    }

    /// Advances the tick. Returns new limits of bounded and of unbounded workers, 0 for an
    /// unchanged one, if jobs hang. `current` asks for the thread's present limits.
    pub fn tick(&mut self, current: impl FnOnce() -> Option<[u32; 2]>) -> Option<[u32; 2]> {
        if !self.is_known {
            return None;
        }
        let before = self.tick;
        // (It takes three years of ticks to reach the end.)
        self.tick = self.tick.saturating_add(1);
        let bounded = self.bounded.raise(before);
        let change = self.handed_over.change(self.tick);
        if bounded.is_none() && change == 0 {
            return None;
        }
        let [current_bounded, unbounded] = current()?;
        let wanted = (i64::from(unbounded) + change)
            .clamp(i64::from(self.handed_over.base_limit), i64::from(MAX_WORKERS))
            as u32;
        // (Another ring may have set or raised it since.)
        let bounded = bounded.filter(|wanted| *wanted > current_bounded).unwrap_or(0);
        let unbounded = if change == 0 || wanted == unbounded { 0 } else { wanted };
        (bounded + unbounded > 0).then_some([bounded, unbounded])
    }

    /// The kernel cannot change the limits.
    pub fn disable(&mut self) {
        self.is_known = false;
    }
}

/// The bit of a piece. (At most 32 pieces of an operation are in flight, with numbers in turn.)
fn bit(token: Token) -> u32 {
    1 << (token.piece() % 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Nop, Read, RwFlags, Timeout, Write, WriteDsync};
    use crate::slots::Key;
    use std::num::NonZeroU32;

    fn token(slot: u32) -> Token {
        Token::new(Key { index: slot, generation: NonZeroU32::MIN }, 0)
    }

    fn write() -> Raw {
        Raw::Write(Write { fd: 3, buf: std::ptr::null(), len: 1, offset: 0, flags: RwFlags::NONE })
    }

    fn read() -> Raw {
        Raw::Read(Read {
            fd: 3,
            buf: std::ptr::null_mut(),
            len: 1 << 16,
            offset: 0,
            flags: RwFlags::NONE,
        })
    }

    /// The workers of a thread, with the limits that the kernel has.
    struct Thread {
        limits: [u32; 2],
        rings: Vec<Workers>,
    }

    impl Thread {
        fn new(limits: [u32; 2], rings: usize) -> Self {
            let rings = (0..rings).map(|_| Workers::new(Some(limits), false)).collect();
            Self { limits, rings }
        }

        fn begin(&mut self, ring: usize, slots: std::ops::Range<u32>, raw: &Raw, by_worker: bool) {
            for slot in slots {
                self.rings[ring].begin(token(slot), raw, by_worker);
            }
        }

        fn end(&mut self, ring: usize, slots: std::ops::Range<u32>) {
            for slot in slots {
                self.rings[ring].end(token(slot));
            }
        }

        /// So many ticks of those that need them.
        fn tick(&mut self, ticks: u32) -> [u32; 2] {
            for _ in 0..ticks {
                for ring in self.rings.iter_mut().filter(|ring| ring.may_be_exhausted()) {
                    let changed = ring.tick(|| Some(self.limits)).unwrap_or_default();
                    for (limit, changed) in self.limits.iter_mut().zip(changed) {
                        *limit = if changed == 0 { *limit } else { changed };
                    }
                }
            }
            self.limits
        }
    }

    #[test]
    fn hung_jobs_do_not_count() {
        let mut thread = Thread::new([8, 24], 1);
        thread.begin(0, 0..8, &write(), false);
        // Jobs that have just started may still end.
        assert_eq!(thread.tick(1), [8, 24]);
        assert!(!thread.rings[0].has_hung_jobs());
        assert_eq!(thread.tick(1), [16, 24]);
        assert!(!thread.rings[0].may_be_exhausted() && thread.rings[0].has_hung_jobs());
        thread.begin(0, 8..20, &write(), false);
        assert_eq!(thread.tick(1), [16, 24]);
        assert_eq!(thread.tick(1), [28, 24]);
        thread.end(0, 0..20);
        assert!(!thread.rings[0].may_be_exhausted() && !thread.rings[0].has_hung_jobs());
    }

    #[test]
    fn durable_writes_count() {
        let mut thread = Thread::new([8, 24], 1);
        let write = Raw::WriteDsync(WriteDsync(Write {
            fd: 3,
            buf: std::ptr::null(),
            len: 1,
            offset: 0,
            flags: RwFlags::NONE,
        }));
        thread.begin(0, 0..8, &write, false);
        assert!(thread.rings[0].may_be_exhausted());
    }

    #[test]
    fn the_limit_is_bounded_and_other_jobs_do_not_count() {
        let mut thread = Thread::new([8, 24], 1);
        thread.begin(0, 0..1, &Raw::Nop(Nop), false);
        thread.begin(0, 1..2, &Raw::Timeout(Timeout { duration: TICK_INTERVAL }), false);
        thread.end(0, 0..1);
        thread.end(0, 5000..5001);
        assert_eq!(thread.rings[0].jobs(), 0);
        thread.begin(0, 0..4096, &write(), false);
        thread.begin(0, 4096..8192, &read(), true);
        assert_eq!(thread.tick(10), [MAX_WORKERS; 2]);
        let mut unknown = Workers::new(None, false);
        for slot in 0..64 {
            unknown.begin(token(slot), &write(), false);
        }
        assert!(!unknown.may_be_exhausted());
        assert_eq!(unknown.tick(|| unreachable!()), None);
    }

    /// They hang like others, each piece of an operation counts, and the limit falls again.
    #[test]
    fn jobs_that_are_handed_over_have_a_limit_of_their_own() {
        let mut thread = Thread::new([64, 4], 1);
        let piece = |number| Token::new(Key { index: 0, generation: NonZeroU32::MIN }, number);
        let workers = &mut thread.rings[0];
        for number in 0..4 {
            workers.begin(piece(number), &read(), true);
        }
        workers.begin(piece(4), &read(), false);
        assert_eq!((workers.jobs(), workers.handed_over.jobs.count), (4, 4));
        assert_eq!(thread.tick(HUNG_TICKS), [64, 4]);
        assert_eq!(thread.tick(1), [64, 8]);
        assert!(!thread.rings[0].may_be_exhausted() && !thread.rings[0].has_hung_jobs());
        for number in 0..5 {
            thread.rings[0].end(piece(number));
        }
        assert_eq!((thread.rings[0].jobs(), thread.tick(2)), (0, [64, 4]));
        assert!(!thread.rings[0].may_be_exhausted());
    }

    /// A kernel before 5.19 takes them for bounded work.
    #[test]
    fn old_kernels_have_one_kind() {
        let mut workers = Workers::new(Some([8, 24]), true);
        for slot in 0..8 {
            workers.begin(token(slot), &read(), true);
        }
        assert_eq!((workers.jobs(), workers.bounded.jobs.count), (8, 8));
        let mut current = || workers.tick(|| Some([8, 24]));
        assert_eq!((current(), current()), (None, Some([16, 0])));
        for slot in 0..8 {
            workers.end(token(slot));
        }
        assert_eq!((workers.jobs(), workers.bounded.jobs.count), (0, 0));
    }

    /// Two workers of four hang; the others work on.
    #[test]
    fn workers_that_hang_beside_others_are_replaced() {
        let mut thread = Thread::new([64, 4], 1);
        thread.begin(0, 0..2, &read(), true);
        for later in 1..100 {
            thread.begin(0, later * 10..later * 10 + 9, &read(), true);
            thread.end(0, later * 10..later * 10 + 9);
            thread.tick(1);
        }
        assert_eq!(thread.limits, [64, 6]);
    }

    /// Thousands that wait for their turn need no more workers than there are.
    #[test]
    fn a_queue_that_moves_is_left_alone() {
        let mut thread = Thread::new([8, 24], 1);
        thread.begin(0, 0..4000, &read(), true);
        for first in (0..4000).step_by(40) {
            thread.end(0, first..first + 40);
            assert_eq!(thread.tick(1), [8, 24]);
        }
    }

    /// The limits are the thread's.
    #[test]
    fn rings_of_one_thread_share_their_workers() {
        let mut thread = Thread::new([8, 24], 2);
        for ring in 0..2 {
            thread.begin(ring, 0..12, &read(), true);
        }
        assert_eq!(thread.tick(HUNG_TICKS + 1), [8, 48]);
        thread.end(0, 0..12);
        assert_eq!(thread.tick(1), [8, 36]);
        thread.end(1, 0..12);
        assert_eq!(thread.tick(1), [8, 24]);
    }
}
