//! Room for operations of one kind: how many more of them the queue may have. Pure data.
//!
//! Operations that hang, on a frozen file system or a dead device, must not keep others of their
//! kind waiting. So one that has not completed for long is written off: it takes no room any more,
//! up to a bound. A slow device completes in order, more or less: an operation hangs if others that
//! entered long after it have completed, or if none completes at all.

use std::time::{Duration, Instant};

/// Between two looks at all operations there is this share of the shortest time after which they
/// may be stuck.
const LOOKS: u32 = 4;

#[derive(Debug)]
pub(crate) struct Room {
    size: usize,
    /// Operations that take room.
    taken: usize,
    /// Operations that are stuck, and how many of them there may be.
    stuck: usize,
    most_stuck: usize,
    /// So much older than one that has completed an operation is stuck, or when none has completed
    /// for so long.
    stalled: Duration,
    /// Operations with the queue, by number.
    entered: Vec<Option<Entered>>,
    /// Numbers that are free.
    free: Vec<u32>,
    /// When one completed last.
    completed: Option<Instant>,
    /// When the latest of those that have completed was entered.
    overtaken: Option<Instant>,
    looked: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Entered {
    at: Instant,
    stuck: bool,
    /// Operations that have not completed.
    members: u32,
}

impl Room {
    /// Room for `size` operations that may take as long as they like.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size: size.max(1),
            taken: 0,
            stuck: 0,
            most_stuck: 0,
            stalled: Duration::ZERO,
            entered: Vec::new(),
            free: Vec::new(),
            completed: None,
            overtaken: None,
            looked: None,
        }
    }

    /// At most `most` operations are written off: those that are so much older than one that has
    /// completed, or, when none has completed for so long, than that.
    pub(crate) fn write_off_after(self, stalled: Duration, most: usize) -> Self {
        Self { stalled, most_stuck: most, ..self }
    }

    /// How many more there is room for.
    pub(crate) fn left(&self) -> usize {
        self.size.saturating_sub(self.taken)
    }

    /// Operations that the queue has and that are not written off.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Half of the room, or more, is taken.
    pub(crate) fn is_crowded(&self) -> bool {
        self.left() <= self.size / 2
    }

    /// The queue has taken so many operations, which have room together; the number of that.
    pub(crate) fn enter(&mut self, members: u32, now: Instant) -> u32 {
        self.taken += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.entered.push(None);
            self.entered.len() as u32 - 1
        });
        self.entered[number as usize] = Some(Entered { at: now, stuck: false, members });
        number
    }

    /// An operation that has entered under this number has completed: with the last of them the
    /// room is free.
    pub(crate) fn leave(&mut self, number: u32, now: Instant) {
        self.completed = Some(now);
        let Some(entered) = self.entered.get_mut(number as usize) else { return };
        match entered {
            Some(Entered { members: 2.., .. }) => {
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
                    false => self.taken -= 1,
                }
            }
        }
    }

    /// Some may be written off, now or later.
    pub(crate) fn may_write_off(&self) -> bool {
        self.taken > 0 && self.stuck < self.most_stuck
    }

    /// Writes off what is stuck; true if that leaves room. To be called now and then while more
    /// operations wait.
    pub(crate) fn write_off(&mut self, now: Instant) -> bool {
        if !self.may_write_off()
            || self.looked.is_some_and(|looked| now < looked + self.stalled / LOOKS)
        {
            return false;
        }
        self.looked = Some(now);
        let is_stalled = self.completed.is_none_or(|completed| now >= completed + self.stalled);
        let late = if is_stalled { Some(now) } else { self.overtaken };
        let is_late = |at: Instant| late.is_some_and(|late| late >= at + self.stalled);
        let before = self.stuck;
        for entered in self.entered.iter_mut().flatten().filter(|entered| !entered.stuck) {
            if self.stuck < self.most_stuck && is_late(entered.at) {
                entered.stuck = true;
                self.stuck += 1;
                self.taken -= 1;
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
        let mut room = Room::new(2).write_off_after(LONG, 3);
        let start = Instant::now();
        (0..2).for_each(|number| assert_eq!(room.enter(1, start), number));
        assert_eq!((room.left(), room.is_crowded()), (0, true));
        assert!(!room.write_off(start + LONG / 2), "they may complete yet");
        assert!(room.write_off(start + LONG));
        assert_eq!((room.left(), room.taken()), (2, 0));
        // Up to a bound.
        (2..4).for_each(|number| assert_eq!(room.enter(1, start + LONG), number));
        assert!(room.write_off(start + LONG * 2));
        assert_eq!((room.left(), room.may_write_off()), (1, false));
        assert!(!room.write_off(start + LONG * 99));
        // They complete after all.
        (0..4).for_each(|number| room.leave(number, start + LONG * 100));
        assert_eq!((room.left(), room.stuck), (2, 0));
    }

    #[test]
    fn what_is_slow_is_not_stuck() {
        let mut room = Room::new(4).write_off_after(LONG, 1000);
        let start = Instant::now();
        (0..4).for_each(|number| assert_eq!(room.enter(1, start), number));
        // A device that is slow completes one after the other.
        room.leave(0, start + LONG * 9);
        assert_eq!(room.enter(1, start + LONG * 9), 0);
        assert!(!room.write_off(start + LONG * 9 + LONG / 2));
        room.leave(1, start + LONG * 10);
        assert!(!room.write_off(start + LONG * 10));
        // What was entered long after the others overtakes them.
        room.leave(0, start + LONG * 10);
        assert!(room.write_off(start + LONG * 10 + LONG / 2));
        assert_eq!((room.taken(), room.stuck), (0, 2));
    }

    #[test]
    fn what_may_take_for_ever_takes_room_for_ever() {
        let mut room = Room::new(1);
        let start = Instant::now();
        let number = room.enter(1, start);
        assert!(!room.may_write_off() && !room.write_off(start + LONG * 99));
        room.leave(number, start);
        assert_eq!(room.left(), 1);
    }

    #[test]
    fn the_last_of_a_chain_leaves_whatever_the_order() {
        let mut room = Room::new(2).write_off_after(LONG, 1);
        let start = Instant::now();
        let chain = room.enter(2, start);
        // Its sync is called off, while its write hangs.
        room.leave(chain, start);
        assert_eq!(room.left(), 1);
        assert_ne!(room.enter(1, start), chain);
        room.leave(chain, start);
        assert_eq!(room.left(), 1);
    }

    proptest! {
        /// Whatever enters, completes and is written off, none is counted twice or lost.
        #[test]
        fn it_adds_up(steps in proptest::collection::vec((0u8..3, 0u32..8, 0u32..300), 1..200)) {
            let mut room = Room::new(5).write_off_after(LONG, 2);
            let (mut inside, mut now) = (Vec::new(), Instant::now());
            for (step, which, time) in steps {
                now += Duration::from_millis(u64::from(time));
                match step {
                    0 if room.left() > 0 => inside.push(room.enter(1, now)),
                    1 if !inside.is_empty() => room.leave(inside.swap_remove(which as usize % inside.len()), now),
                    _ => {
                        let before = room.left();
                        prop_assert_eq!(room.write_off(now), room.left() > before);
                    }
                }
                prop_assert_eq!(room.taken + room.stuck, inside.len());
                prop_assert!(room.stuck <= 2 && room.taken <= 5);
            }
        }
    }
}
