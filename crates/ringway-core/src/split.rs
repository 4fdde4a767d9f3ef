//! Cutting a transfer into pieces and adding up what came of them, as pure data.
//!
//! A transfer longer than the device's largest request goes to the kernel in pieces, several at a
//! time. A *round* is a run of pieces from one position on. It ends when no piece is in flight and
//! either everything has been asked for or a piece came back short; what counts is the unbroken
//! prefix. Whether a new round follows from there (`exact`, a retry) is for the queue to decide.
//!
//! Pieces are answered in any order, and one may be late while many others come and go. A piece's
//! number has 8 bits and is counted modulo 256, so the pieces between the oldest and the newest in
//! flight are bounded too.

/// The most pieces of one transfer that are in flight together.
const WINDOW: u8 = 8;

/// The most pieces from the oldest in flight to the newest, both included: the bits of
/// [`Progress::flying`].
const SPAN: u32 = u32::BITS;

/// How far a transfer has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    total: u64,
    /// Bytes done before this round.
    base: u64,
    /// Length of each piece but the last; 0: one piece, whatever it holds.
    limit: u64,
    /// Pieces handed out in this round.
    issued: u32,
    /// Those in flight: the lowest bit is the piece handed out last.
    flying: u32,
    /// The end of the prefix: the lowest position at which a piece stopped.
    end: u64,
    /// What stopped the piece at `end`: 0 for a short transfer.
    errno: i32,
    /// The most pieces in flight together.
    window: u8,
    /// A piece was short or failed: no more are handed out.
    cut: bool,
}

/// A part of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub number: u8,
    pub start: u64,
    pub len: u64,
}

/// What a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// Bytes done from the beginning of the transfer, without a gap.
    pub done: u64,
    /// Bytes done in this round.
    pub gained: u64,
    /// Why it stopped there: 0 for the end of the transfer or a short one.
    pub errno: i32,
}

impl Progress {
    /// A transfer of `total` bytes in pieces of `limit`; 0: in one piece.
    #[inline]
    pub fn new(total: u64, limit: u64) -> Self {
        // The number of pieces fits into `issued`: if need be, a piece is some times as long.
        let limit = limit * (total.checked_div(limit).unwrap_or(0) / u64::from(u32::MAX) + 1);
        Self {
            total,
            base: 0,
            limit,
            issued: 0,
            flying: 0,
            end: total,
            errno: 0,
            window: WINDOW,
            cut: false,
        }
    }

    /// An operation without a length.
    pub fn whole() -> Self {
        Self::new(0, 0)
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// Length of each piece but the last; 0: one piece.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// True when it goes out in one piece.
    #[inline]
    pub fn is_single(&self) -> bool {
        self.limit == 0 || self.total - self.base <= self.limit
    }

    /// The same, one piece after the other.
    pub fn in_order(self) -> Self {
        Self { window: 1, ..self }
    }

    /// The next piece to hand to a backend, if there is one now.
    #[inline]
    pub fn next_piece(&mut self) -> Option<Piece> {
        let left = self.total - self.base;
        let (start, len) = if self.is_single() {
            if self.issued > 0 {
                return None;
            }
            (0, left)
        } else {
            let start = u64::from(self.issued) * self.limit;
            let full = self.flying.count_ones() >= u32::from(self.window)
                || self.flying >> (SPAN - 1) != 0;
            if self.cut || start >= left || full {
                return None;
            }
            (start, self.limit.min(left - start))
        };
        let number = self.issued as u8;
        self.issued += 1;
        self.flying = self.flying << 1 | 1;
        Some(Piece { number, start: self.base + start, len })
    }

    /// Takes back the piece handed out last: the backend had no room.
    pub fn put_back(&mut self) {
        self.issued -= 1;
        self.flying >>= 1;
    }

    /// The answer for one piece; the round's outcome when that was its end.
    ///
    /// `result` is a count of bytes or minus errno.
    #[inline]
    pub fn answered(&mut self, number: u8, result: i64) -> Option<Round> {
        let behind = self.behind(number);
        let bit = 1u32.checked_shl(behind).unwrap_or(0);
        if self.flying & bit == 0 {
            debug_assert!(false, "piece {number} is not in flight");
            return None;
        }
        self.flying &= !bit;
        let start = self.base + u64::from(self.issued - 1 - behind) * self.limit;
        let len = if self.is_single() {
            self.total - self.base
        } else {
            self.limit.min(self.total - start)
        };
        // An answer longer than what was asked for would be the kernel's error; nothing may come of
        // it.
        let done = u64::try_from(result).unwrap_or(0).min(len);
        if done < len || result < 0 {
            self.cut = true;
            if start + done < self.end || (start + done == self.end && self.errno == 0) {
                self.end = start + done;
                self.errno =
                    if result < 0 { i32::try_from(-result).unwrap_or(libc::EIO) } else { 0 };
            }
        }
        let asked_for_all = self.cut
            || self.is_single()
            || u64::from(self.issued) * self.limit >= self.total - self.base;
        if self.flying != 0 || !asked_for_all {
            return None;
        }
        Some(self.round())
    }

    /// True when there is no answer to come and no piece to hand out before
    /// [`answered`](Self::answered) says so.
    pub fn has_more(&self) -> bool {
        let mut copy = *self;
        copy.next_piece().is_some()
    }

    /// No more pieces are to be handed out: what has not been asked for is cancelled. The round's
    /// outcome, when nothing is in flight.
    pub fn stop(&mut self) -> Option<Round> {
        let asked = if self.is_single() {
            if self.issued > 0 { self.total } else { self.base }
        } else {
            self.total.min(self.base + u64::from(self.issued) * self.limit)
        };
        if asked < self.end || self.issued == 0 {
            self.end = self.end.min(asked);
            self.errno = libc::ECANCELED;
        }
        self.cut = true;
        (self.flying == 0).then(|| self.round())
    }

    /// The numbers of the pieces in flight.
    pub fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        let (issued, flying) = (self.issued, self.flying);
        (0..SPAN)
            .filter(move |behind| flying >> behind & 1 != 0)
            .map(move |behind| (issued - 1 - behind) as u8)
    }

    #[inline]
    fn round(&self) -> Round {
        Round { done: self.end, gained: self.end - self.base, errno: self.errno }
    }

    /// A new round from `done` on, in pieces of `limit`.
    pub fn restart(&mut self, done: u64, limit: u64) {
        debug_assert_eq!(self.flying, 0);
        *self = Self { base: done, window: self.window, ..Self::new(self.total, limit) };
    }

    /// How many pieces were handed out after the one with this number.
    #[inline]
    fn behind(&self, number: u8) -> u32 {
        u32::from((self.issued.wrapping_sub(1) as u8).wrapping_sub(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_piece_is_one_round() {
        let mut progress = Progress::new(100, 0);
        assert_eq!(progress.next_piece(), Some(Piece { number: 0, start: 0, len: 100 }));
        assert_eq!(progress.next_piece(), None);
        assert_eq!(progress.answered(0, 40), Some(Round { done: 40, gained: 40, errno: 0 }));
        progress.restart(40, 0);
        assert_eq!(progress.next_piece(), Some(Piece { number: 0, start: 40, len: 60 }));
        assert_eq!(progress.answered(0, -5), Some(Round { done: 40, gained: 0, errno: 5 }));
    }

    #[test]
    fn a_length_of_zero_is_asked_for_once() {
        let mut progress = Progress::new(0, 4096);
        assert_eq!(progress.next_piece(), Some(Piece { number: 0, start: 0, len: 0 }));
        assert_eq!(progress.next_piece(), None);
        assert_eq!(progress.answered(0, -9), Some(Round { done: 0, gained: 0, errno: 9 }));
    }

    /// The oldest piece is late: the others go on until its number might be mistaken.
    #[test]
    fn a_straggler_keeps_its_number() {
        let mut progress = Progress::new(1000, 1);
        let first = progress.next_piece().unwrap();
        let mut newest = first;
        while let Some(piece) = progress.next_piece() {
            newest = piece;
            assert_eq!(progress.answered(piece.number, 1), None);
        }
        assert_eq!(newest.start, u64::from(SPAN) - 1);
        assert_eq!(Vec::from_iter(progress.numbers()), [first.number]);
        assert_eq!(
            progress.answered(first.number, -11),
            Some(Round { done: 0, gained: 0, errno: 11 })
        );
    }

    #[test]
    fn more_pieces_than_can_be_counted_are_longer() {
        let total = u64::from(u32::MAX) * 4096 * 3 / 2;
        let progress = Progress::new(total, 4096);
        assert_eq!(progress.limit(), 8192);
        assert_eq!(Progress::new(total / 2, 4096).limit(), 4096);
    }

    proptest! {
        /// Pieces answered in any order, some of them short or failed: the pieces of a round never
        /// overlap or leave a gap, and its outcome is the prefix up to the first that was not full.
        #[test]
        fn a_round_is_its_unbroken_prefix(
            total in 1u64..100_000,
            limit in 1u64..5_000,
            order in proptest::collection::vec(any::<prop::sample::Index>(), 1..64),
            faults in proptest::collection::hash_map(0u64..400, prop_oneof![Just(-1i64), 0..5_000i64], 0..4),
        ) {
            let mut progress = Progress::new(total, limit);
            let mut flying: Vec<Piece> = Vec::new();
            let mut expected = (total, 0);
            let mut asked = 0;
            let mut turn = 0;
            let round = loop {
                while let Some(piece) = progress.next_piece() {
                    prop_assert_eq!(piece.start, asked);
                    asked += piece.len;
                    flying.push(piece);
                }
                prop_assert!(!flying.is_empty() && flying.len() <= WINDOW as usize);
                let piece = flying.remove(order[turn % order.len()].index(flying.len()));
                turn += 1;
                let result = match faults.get(&(piece.start / limit)) {
                    Some(-1) => -5,
                    Some(short) => (*short).min(piece.len as i64),
                    None => piece.len as i64,
                };
                let stop = piece.start + result.max(0) as u64;
                if (result < 0 || (result as u64) < piece.len) && stop < expected.0 {
                    expected = (stop, if result < 0 { 5 } else { 0 });
                }
                if let Some(round) = progress.answered(piece.number, result) {
                    break round;
                }
            };
            prop_assert!(flying.is_empty());
            prop_assert_eq!((round.done, round.errno), expected);
            prop_assert_eq!(round.gained, round.done);
            if expected.0 == total { prop_assert_eq!(asked, total) }
        }

        /// As `exact` goes on: a round for each retry and each short transfer. Some pieces starve
        /// until the backend has nothing else, and then answer anything. Whatever the order, all
        /// that counts as done has been transferred, and a cancel reaches exactly the pieces that
        /// are in flight.
        #[test]
        fn stragglers_lose_nothing(
            pieces in 1u64..700,
            limit in 1u64..50,
            rest in 0u64..50,
            in_order in any::<bool>(),
            order in proptest::collection::vec(any::<prop::sample::Index>(), 1..64),
            starving in proptest::collection::hash_set(0u64..700, 0..12),
            faults in proptest::collection::hash_map(
                0u64..700,
                (prop::sample::select(&[-11i64, -4, -125, -5, -28, 0, 1, 30][..]), 1u8..4),
                0..12,
            ),
        ) {
            const RETRIED: [i32; 3] = [libc::EAGAIN, libc::EINTR, libc::ECANCELED];
            let total = pieces * limit - rest % limit;
            let mut faults = faults;
            let mut transferred = vec![false; total as usize];
            let mut progress = match in_order {
                true => Progress::new(total, limit).in_order(),
                false => Progress::new(total, limit),
            };
            let window = if in_order { 1 } else { WINDOW };
            let mut flying: Vec<Piece> = Vec::new();
            let mut turn = 0;
            let (done, errno) = loop {
                while let Some(piece) = progress.next_piece() {
                    flying.push(piece);
                }
                prop_assert!(!flying.is_empty() && flying.len() <= window as usize);
                let mut numbers: Vec<u8> = progress.numbers().collect();
                let mut expected: Vec<u8> = flying.iter().map(|piece| piece.number).collect();
                numbers.sort();
                expected.sort();
                prop_assert_eq!(numbers, expected);
                let awake: Vec<usize> = flying
                    .iter()
                    .enumerate()
                    .filter(|(_, piece)| !starving.contains(&(piece.start / limit)))
                    .map(|(at, _)| at)
                    .collect();
                let index = order[turn % order.len()];
                let at = if awake.is_empty() { index.index(flying.len()) } else { *index.get(&awake) };
                let piece = flying.remove(at);
                turn += 1;
                let result = match faults.get_mut(&(piece.start / limit)) {
                    Some((result, times)) if *times > 0 => {
                        *times -= 1;
                        (*result).min(piece.len as i64)
                    }
                    _ => piece.len as i64,
                };
                let end = piece.start + result.max(0) as u64;
                transferred[piece.start as usize..end as usize].fill(true);
                let Some(round) = progress.answered(piece.number, result) else { continue };
                prop_assert!(flying.is_empty());
                prop_assert!(transferred[..round.done as usize].iter().all(|there| *there), "a hole before {}", round.done);
                let goes_on = match round.errno {
                    0 => round.done < total && round.gained > 0,
                    errno => RETRIED.contains(&errno),
                };
                if !goes_on {
                    break (round.done, round.errno);
                }
                progress.restart(round.done, limit);
            };
            prop_assert!(done == total || errno != 0 || faults.values().any(|(result, _)| *result == 0));
        }

        /// A cancel in the middle of a round: what is in flight is answered, and the outcome is the
        /// unbroken prefix.
        #[test]
        fn a_stopped_round_is_its_unbroken_prefix(
            pieces in 2u64..700,
            limit in 1u64..20,
            answered in 0usize..700,
            straggler in 0u64..700,
            failed in any::<bool>(),
        ) {
            let total = pieces * limit;
            let mut progress = Progress::new(total, limit);
            let mut flying: Vec<Piece> = Vec::new();
            let mut transferred = vec![false; total as usize];
            for _ in 0..answered {
                flying.extend(std::iter::from_fn(|| progress.next_piece()));
                let Some(at) = flying.iter().position(|piece| piece.start / limit != straggler) else { break };
                let piece = flying.remove(at);
                transferred[piece.start as usize..(piece.start + piece.len) as usize].fill(true);
                if progress.answered(piece.number, piece.len as i64).is_some() {
                    prop_assert!(flying.is_empty());
                    return Ok(());
                }
            }
            let mut round = progress.stop();
            prop_assert_eq!(round.is_some(), flying.is_empty());
            while let Some(piece) = flying.pop() {
                prop_assert!(progress.numbers().any(|number| number == piece.number));
                prop_assert_eq!(progress.next_piece(), None);
                let result = if failed { -i64::from(libc::ECANCELED) } else { piece.len as i64 };
                if !failed {
                    transferred[piece.start as usize..(piece.start + piece.len) as usize].fill(true);
                }
                prop_assert!(round.is_none());
                round = progress.answered(piece.number, result);
            }
            let Round { done, errno, .. } = round.expect("all has been answered");
            let prefix = transferred.iter().take_while(|there| **there).count() as u64;
            prop_assert_eq!((done, errno), (prefix, if prefix < total { libc::ECANCELED } else { 0 }));
        }
    }
}
