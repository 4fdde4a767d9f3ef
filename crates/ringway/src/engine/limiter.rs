//! Limiter for operations of one kind: how many more of them the queue may have. Pure data.
//!
//! Operations that hang, on a frozen file system or a dead device, must not keep others of their
//! kind waiting. So one that has not completed for long is written off: it takes no room any more,
//! up to a bound. A slow device completes in order, more or less: an operation hangs if others that
//! entered long after it have completed, or if none completes at all.

use std::time::{Duration, Instant};

/// Between two looks at all operations there is this share of the shortest time after which they
/// may be stuck.
const CHECKS: u32 = 4;

#[derive(Debug)]
pub(crate) struct Limiter {
    limit: usize,
    /// Operations that take limiter.
    in_use: usize,
    /// Operations that are stuck, and how many of them there may be.
    stuck: usize,
    max_stuck: usize,
    /// So much older than one that has completed an operation is stuck, or when none has completed
    /// for so long.
    stuck_after: Duration,
    /// Operations with the queue, by number.
    permits: Vec<Option<Permit>>,
    /// Numbers that are free.
    free: Vec<u32>,
    /// When one completed last.
    completed: Option<Instant>,
    /// When the latest of those that have completed was entered.
    overtaken: Option<Instant>,
    checked_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Permit {
    at: Instant,
    stuck: bool,
    /// Operations that have not completed.
    members: u32,
}

impl Limiter {
    /// Limiter for `limit` operations that may take as long as they like.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            in_use: 0,
            stuck: 0,
            max_stuck: 0,
            stuck_after: Duration::ZERO,
            permits: Vec::new(),
            free: Vec::new(),
            completed: None,
            overtaken: None,
            checked_at: None,
        }
    }

    /// At most `most` operations are written off: those that are so much older than one that has
    /// completed, or, when none has completed for so long, than that.
    pub(crate) fn exclude_stuck_after(self, stuck_after: Duration, most: usize) -> Self {
        Self { stuck_after, max_stuck: most, ..self }
    }

    /// How many more there is room for.
    pub(crate) fn available(&self) -> usize {
        self.limit.saturating_sub(self.in_use)
    }

    /// Operations that the queue has and that are not written off.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Half of the room, or more, is taken.
    pub(crate) fn is_half_used(&self) -> bool {
        self.available() <= self.limit / 2
    }

    /// The queue has taken so many operations, which have room together; the number of that.
    pub(crate) fn acquire(&mut self, members: u32, now: Instant) -> u32 {
        self.in_use += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.permits.push(None);
            self.permits.len() as u32 - 1
        });
        self.permits[number as usize] = Some(Permit { at: now, stuck: false, members });
        number
    }

    /// An operation that has entered under this number has completed: with the last of them the
    /// room is free.
    pub(crate) fn release(&mut self, number: u32, now: Instant) {
        self.completed = Some(now);
        let Some(entered) = self.permits.get_mut(number as usize) else { return };
        match entered {
            Some(Permit { members: 2.., .. }) => {
                entered.iter_mut().for_each(|entered| entered.members -= 1)
            }
            _ => {
                let Some(entered) = entered.take() else {
                    debug_assert!(false, "nothing has entered as number {number}");
                    return;
                };
                self.free.push(number);
                self.overtaken = self.overtaken.max(Some(entered.at));
                match entered.stuck {
                    true => self.stuck -= 1,
                    false => self.in_use -= 1,
                }
            }
        }
    }

    /// Some may be written off, now or later.
    pub(crate) fn may_exclude(&self) -> bool {
        self.in_use > 0 && self.stuck < self.max_stuck
    }

    /// Writes off what is stuck; true if that leaves limiter. To be called now and then while more
    /// operations wait.
    pub(crate) fn exclude_stuck(&mut self, now: Instant) -> bool {
        if !self.may_exclude()
            || self
                .checked_at
                .is_some_and(|checked_at| now < checked_at + self.stuck_after / CHECKS)
        {
            return false;
        }
        self.checked_at = Some(now);
        let is_stalled = self.completed.is_none_or(|completed| now >= completed + self.stuck_after);
        let late = if is_stalled { Some(now) } else { self.overtaken };
        let is_late = |at: Instant| late.is_some_and(|late| late >= at + self.stuck_after);
        let before = self.stuck;
        for entered in self.permits.iter_mut().flatten().filter(|entered| !entered.stuck) {
            if self.stuck < self.max_stuck && is_late(entered.at) {
                entered.stuck = true;
                self.stuck += 1;
                self.in_use -= 1;
            }
        }
        self.stuck > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONG: Duration = Duration::from_millis(100);

    #[test]
    fn what_hangs_takes_no_room() {
        let mut limiter = Limiter::new(2).exclude_stuck_after(LONG, 3);
        let start = Instant::now();
        (0..2).for_each(|number| assert_eq!(limiter.acquire(1, start), number));
        assert_eq!((limiter.available(), limiter.is_half_used()), (0, true));
        assert!(!limiter.exclude_stuck(start + LONG / 2), "they may complete yet");
        assert!(limiter.exclude_stuck(start + LONG));
        assert_eq!((limiter.available(), limiter.in_use()), (2, 0));
        // Up to a bound.
        (2..4).for_each(|number| assert_eq!(limiter.acquire(1, start + LONG), number));
        assert!(limiter.exclude_stuck(start + LONG * 2));
        assert_eq!((limiter.available(), limiter.may_exclude()), (1, false));
        assert!(!limiter.exclude_stuck(start + LONG * 99));
        // They complete after all.
        (0..4).for_each(|number| limiter.release(number, start + LONG * 100));
        assert_eq!((limiter.available(), limiter.stuck), (2, 0));
    }

    #[test]
    fn what_is_slow_is_not_stuck() {
        let mut limiter = Limiter::new(4).exclude_stuck_after(LONG, 1000);
        let start = Instant::now();
        (0..4).for_each(|number| assert_eq!(limiter.acquire(1, start), number));
        // A device that is slow completes one after the other.
        limiter.release(0, start + LONG * 9);
        assert_eq!(limiter.acquire(1, start + LONG * 9), 0);
        assert!(!limiter.exclude_stuck(start + LONG * 9 + LONG / 2));
        limiter.release(1, start + LONG * 10);
        assert!(!limiter.exclude_stuck(start + LONG * 10));
        // What was entered long after the others overtakes them.
        limiter.release(0, start + LONG * 10);
        assert!(limiter.exclude_stuck(start + LONG * 10 + LONG / 2));
        assert_eq!((limiter.in_use(), limiter.stuck), (0, 2));
    }

    #[test]
    fn what_may_take_for_ever_takes_room_for_ever() {
        let mut limiter = Limiter::new(1);
        let start = Instant::now();
        let number = limiter.acquire(1, start);
        assert!(!limiter.may_exclude() && !limiter.exclude_stuck(start + LONG * 99));
        limiter.release(number, start);
        assert_eq!(limiter.available(), 1);
    }

    #[test]
    fn the_last_of_a_chain_leaves_whatever_the_order() {
        let mut limiter = Limiter::new(2).exclude_stuck_after(LONG, 1);
        let start = Instant::now();
        let chain = limiter.acquire(2, start);
        // Its sync is called off, while its write hangs.
        limiter.release(chain, start);
        assert_eq!(limiter.available(), 1);
        assert_ne!(limiter.acquire(1, start), chain);
        limiter.release(chain, start);
        assert_eq!(limiter.available(), 1);
    }

    proptest! {
        /// Whatever enters, completes and is written off, none is counted twice or lost.
        #[test]
        fn it_adds_up(steps in proptest::collection::vec((0u8..3, 0u32..8, 0u32..300), 1..200)) {
            let mut limiter = Limiter::new(5).exclude_stuck_after(LONG, 2);
            let (mut inside, mut now) = (Vec::new(), Instant::now());
            for (step, which, time) in steps {
                now += Duration::from_millis(u64::from(time));
                match step {
                    0 if limiter.available() > 0 => inside.push(limiter.acquire(1, now)),
                    1 if !inside.is_empty() => limiter.release(inside.swap_remove(which as usize % inside.len()), now),
                    _ => {
                        let before = limiter.available();
                        prop_assert_eq!(limiter.exclude_stuck(now), limiter.available() > before);
                    }
                }
                prop_assert_eq!(limiter.in_use + limiter.stuck, inside.len());
                prop_assert!(limiter.stuck <= 2 && limiter.in_use <= 5);
            }
        }
    }
}
