//! Limits how many operations of one kind the queue has at a time. Pure data, without I/O and
//! locks.
//!
//! Operations that hang, on a frozen file system or a dead device, must not keep others of their
//! kind waiting. So an operation that has not completed for long counts as hung and uses no
//! capacity, up to a bound. A slow device completes operations roughly in order: an operation is
//! hung if others that started long after it have completed, or if none completes at all.
//!
//! Hundreds may hang, and an operation elsewhere may wait behind them. So a limiter may
//! [grow](Limiter::growing): once some operations are hung, it finds others sooner, and allows as
//! many more as are hung. The number that it has tried then doubles each time.

use std::time::{Duration, Instant};

/// How often `exclude_hung` checks all operations: this many times in `hung_after`.
const CHECKS: u32 = 4;

#[derive(Debug)]
pub(crate) struct Limiter {
    limit: usize,
    /// Operations that use capacity.
    in_use: usize,
    /// Operations that are hung.
    hung: usize,
    /// The most operations that may count as hung.
    max_hung: usize,
    /// An operation is hung if it is this much older than one that has completed, or if none has
    /// completed for this long.
    hung_after: Duration,
    /// The same, while some operations are hung. If shorter, the limit grows too.
    further_after: Duration,
    /// The operations that the queue has, by permit.
    permits: Vec<Option<Permit>>,
    /// Unused permits.
    free: Vec<u32>,
    /// When an operation last completed.
    completed: Option<Instant>,
    /// The latest start of all operations that have completed.
    overtaken: Option<Instant>,
    checked_at: Option<Instant>,
}

/// One operation, or a chain of them.
#[derive(Clone, Copy, Debug)]
struct Permit {
    started: Instant,
    hung: bool,
    /// Operations that have not completed.
    members: u32,
    /// The capacity that it uses.
    weight: u32,
}

impl Limiter {
    /// Allows `limit` operations at a time, which may take as long as they like.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            in_use: 0,
            hung: 0,
            max_hung: 0,
            hung_after: Duration::ZERO,
            further_after: Duration::ZERO,
            permits: Vec::new(),
            free: Vec::new(),
            completed: None,
            overtaken: None,
            checked_at: None,
        }
    }

    /// Excludes at most `most` hung operations: those that are `hung_after` older than one that
    /// has completed, or than now if none has completed for that long.
    pub(crate) fn exclude_hung_after(self, hung_after: Duration, most: usize) -> Self {
        Self { hung_after, further_after: hung_after, max_hung: most, ..self }
    }

    /// While some operations are hung, excludes others after this shorter time, and allows as many
    /// as are hung: they probably hang for the same reason.
    pub(crate) fn growing(self, further_after: Duration) -> Self {
        Self { further_after: further_after.min(self.hung_after), ..self }
    }

    /// How many more operations may start.
    pub(crate) fn available(&self) -> usize {
        self.current_limit().saturating_sub(self.in_use)
    }

    /// All operations together never exceed `limit` and `max_hung`.
    fn current_limit(&self) -> usize {
        if self.hung > 0 && self.further_after < self.hung_after {
            self.limit.max(self.hung.min(self.max_hung.saturating_sub(self.hung)))
        } else {
            self.limit
        }
    }

    /// Operations that use capacity: those that the queue has, except the hung ones.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Allows this many operations from now on.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
    }

    /// Whether operations count as hung.
    pub(crate) fn has_hung(&self) -> bool {
        self.hung > 0
    }

    /// Whether the queue has no operation, hung or not.
    pub(crate) fn is_unused(&self) -> bool {
        self.in_use + self.hung == 0
    }

    /// Whether at least half of the capacity is in use, or will be once `pending` more operations
    /// have started.
    pub(crate) fn is_half_used(&self, pending: usize) -> bool {
        self.available().saturating_sub(pending) <= self.limit / 2
    }

    /// Takes capacity for a chain of `members` operations, which use it together. Returns the
    /// permit.
    pub(crate) fn acquire(&mut self, members: u32, now: Instant) -> u32 {
        self.acquire_many(members, 1, now)
    }

    /// As [`acquire`](Self::acquire), for operations that use as much capacity as `weight` others.
    /// They may use more than is available, so that one which is larger than the limit can start.
    pub(crate) fn acquire_many(&mut self, members: u32, weight: u32, now: Instant) -> u32 {
        self.in_use += weight as usize;
        let permit = self.free.pop().unwrap_or_else(|| {
            self.permits.push(None);
            self.permits.len() as u32 - 1
        });
        self.permits[permit as usize] = Some(Permit { started: now, hung: false, members, weight });
        permit
    }

    /// Records that an operation with this permit has completed. The last one of the chain frees
    /// the capacity.
    pub(crate) fn release(&mut self, permit: u32, now: Instant) {
        self.completed = Some(now);
        let Some(entry) = self.permits.get_mut(permit as usize) else { return };
        match entry {
            Some(Permit { members: members @ 2.., .. }) => *members -= 1,
            _ => {
                let Some(entry) = entry.take() else {
                    debug_assert!(false, "permit {permit} is not in use");
                    return;
                };
                self.free.push(permit);
                self.overtaken = self.overtaken.max(Some(entry.started));
                if entry.hung { self.hung -= 1 } else { self.in_use -= entry.weight as usize }
            }
        }
    }

    /// Whether operations may count as hung, now or later.
    pub(crate) fn may_exclude(&self) -> bool {
        self.in_use > 0 && self.hung < self.max_hung
    }

    /// Excludes operations that are hung. Returns true if that frees capacity. Call it now and
    /// then while operations wait.
    pub(crate) fn exclude_hung(&mut self, now: Instant) -> bool {
        let hung_after = if self.hung > 0 { self.further_after } else { self.hung_after };
        let check_interval = hung_after / CHECKS;
        if !self.may_exclude()
            || self.checked_at.is_some_and(|checked_at| now < checked_at + check_interval)
        {
            return false;
        }
        self.checked_at = Some(now);
        let all_hang = self.completed.is_none_or(|completed| now >= completed + hung_after);
        let late = if all_hang { Some(now) } else { self.overtaken };
        let is_late = |started: Instant| late.is_some_and(|late| late >= started + hung_after);
        let before = self.available();
        for entry in self.permits.iter_mut().flatten().filter(|entry| !entry.hung) {
            if self.hung < self.max_hung && is_late(entry.started) {
                entry.hung = true;
                self.hung += 1;
                self.in_use -= entry.weight as usize;
            }
        }
        self.available() > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONG: Duration = Duration::from_millis(100);

    #[test]
    fn hung_operations_use_no_capacity() {
        let mut limiter = Limiter::new(2).exclude_hung_after(LONG, 3);
        let start = Instant::now();
        assert!(!limiter.is_half_used(0) && limiter.is_half_used(1));
        for permit in 0..2 {
            assert_eq!(limiter.acquire(1, start), permit);
        }
        assert_eq!((limiter.available(), limiter.is_half_used(0)), (0, true));
        assert!(!limiter.exclude_hung(start + LONG / 2), "they may still complete");
        assert!(limiter.exclude_hung(start + LONG));
        assert_eq!((limiter.available(), limiter.in_use()), (2, 0));
        // At most three count as hung.
        for permit in 2..4 {
            assert_eq!(limiter.acquire(1, start + LONG), permit);
        }
        assert!(limiter.exclude_hung(start + LONG * 2));
        assert_eq!((limiter.available(), limiter.may_exclude()), (1, false));
        assert!(!limiter.exclude_hung(start + LONG * 99));
        // They complete after all.
        for permit in 0..4 {
            limiter.release(permit, start + LONG * 100);
        }
        assert_eq!((limiter.available(), limiter.hung), (2, 0));
    }

    /// One that counts as several keeps others back; it starts itself as soon as there is room for
    /// one.
    #[test]
    fn a_heavy_operation_uses_the_capacity_of_several() {
        let mut limiter = Limiter::new(4).exclude_hung_after(LONG, 2);
        let start = Instant::now();
        let light = limiter.acquire(1, start);
        let heavy = limiter.acquire_many(1, 8, start);
        assert_eq!((limiter.in_use(), limiter.available()), (9, 0));
        limiter.release(light, start);
        assert_eq!((limiter.in_use(), limiter.available()), (8, 0));
        assert!(limiter.exclude_hung(start + LONG));
        assert_eq!((limiter.in_use(), limiter.available()), (0, 4));
        limiter.release(heavy, start + LONG);
        assert!(limiter.is_unused());
    }

    /// A thousand operations that hang, 16 at a time, delay the next one by less than a second.
    #[test]
    fn a_growing_limit_passes_many_hung_operations() {
        let new = || Limiter::new(16).exclude_hung_after(LONG, 1024);
        let time_to_start = |mut limiter: Limiter, operations: usize| {
            let (start, mut started) = (Instant::now(), 0);
            (0..100_000).map(Duration::from_millis).find(|time| {
                limiter.exclude_hung(start + *time);
                let most = limiter.available().min(operations - started);
                for _ in 0..most {
                    _ = limiter.acquire(1, start + *time);
                }
                started += most;
                started == operations
            })
        };
        let [grows, stays] =
            [new().growing(LONG / 4), new()].map(|limiter| time_to_start(limiter, 1001));
        assert!(grows < Some(LONG * 4), "{grows:?}");
        assert!(stays > Some(LONG * 60), "{stays:?}");
        // All have started, and there is room for 16 more. Then for none.
        assert!(time_to_start(new().growing(LONG / 4), 1040).is_some());
        assert_eq!(time_to_start(new().growing(LONG / 4), 1041), None);
    }

    #[test]
    fn slow_operations_are_not_hung() {
        let mut limiter = Limiter::new(4).exclude_hung_after(LONG, 1000);
        let start = Instant::now();
        for permit in 0..4 {
            assert_eq!(limiter.acquire(1, start), permit);
        }
        // A slow device completes one operation after the other.
        limiter.release(0, start + LONG * 9);
        assert_eq!(limiter.acquire(1, start + LONG * 9), 0);
        assert!(!limiter.exclude_hung(start + LONG * 9 + LONG / 2));
        limiter.release(1, start + LONG * 10);
        assert!(!limiter.exclude_hung(start + LONG * 10));
        // An operation that started long after the others overtakes them.
        limiter.release(0, start + LONG * 10);
        assert!(limiter.exclude_hung(start + LONG * 10 + LONG / 2));
        assert_eq!((limiter.in_use(), limiter.hung), (0, 2));
    }

    #[test]
    fn without_a_bound_on_hung_operations_none_is_excluded() {
        let mut limiter = Limiter::new(1);
        let start = Instant::now();
        let permit = limiter.acquire(1, start);
        assert!(!limiter.may_exclude() && !limiter.exclude_hung(start + LONG * 99));
        limiter.release(permit, start);
        assert_eq!(limiter.available(), 1);
    }

    #[test]
    fn the_last_of_a_chain_frees_the_capacity_in_any_order() {
        let mut limiter = Limiter::new(2).exclude_hung_after(LONG, 1);
        let start = Instant::now();
        let chain = limiter.acquire(2, start);
        // Its sync is cancelled while its write hangs.
        limiter.release(chain, start);
        assert_eq!(limiter.available(), 1);
        assert_ne!(limiter.acquire(1, start), chain);
        limiter.release(chain, start);
        assert_eq!(limiter.available(), 1);
    }

    /// Steps: start, complete, exclude; which one; after so many milliseconds.
    fn steps() -> impl Strategy<Value = Vec<(u8, u32, u32)>> {
        proptest::collection::vec((0u8..3, 0u32..8, 0u32..300), 1..200)
    }

    /// Runs steps with operations that use the capacity of at most `heaviest` others.
    fn adds_up(steps: Vec<(u8, u32, u32)>, heaviest: u32) -> Result<(), TestCaseError> {
        let mut limiter = Limiter::new(5).exclude_hung_after(LONG, 2);
        let (mut inside, mut now) = (Vec::new(), Instant::now());
        for (step, which, time) in steps {
            now += Duration::from_millis(u64::from(time));
            match step {
                0 if limiter.available() > 0 => {
                    inside.push(limiter.acquire_many(1, 1 + which % heaviest, now));
                }
                1 if !inside.is_empty() => {
                    let permit = inside.swap_remove(which as usize % inside.len());
                    limiter.release(permit, now);
                }
                _ => {
                    let before = limiter.available();
                    prop_assert_eq!(limiter.exclude_hung(now), limiter.available() > before);
                }
            }
            let permits = || limiter.permits.iter().flatten();
            let used: u32 = permits().filter(|one| !one.hung).map(|one| one.weight).sum();
            prop_assert_eq!(limiter.in_use, used as usize);
            prop_assert_eq!(limiter.hung, permits().filter(|one| one.hung).count());
            prop_assert_eq!(permits().count(), inside.len());
            prop_assert!(limiter.hung <= 2 && limiter.in_use < 5 + heaviest as usize);
        }
        Ok(())
    }

    proptest! {
        /// Whatever starts, completes and is excluded, no operation is counted twice or lost.
        #[test]
        fn capacity_adds_up(steps in steps()) {
            adds_up(steps, 1)?;
        }

        #[test]
        fn capacity_of_heavy_operations_adds_up(steps in steps()) {
            adds_up(steps, 4)?;
        }
    }
}
