//! Cutting a transfer into pieces and adding up what came of them, as pure data.
//!
//! A transfer longer than the device's largest request goes to the kernel in pieces, several at a time. A
//! *round* is a run of pieces from one position on. It ends when no piece is in flight and either everything
//! has been asked for or a piece came back short; what counts is the unbroken prefix. Whether a new
//! round follows from there (`exact`, a retry) is for the queue to decide.

/// The most pieces of one transfer that are in flight together; their numbers have 8 bits.
const WINDOW: u32 = 8;

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
    in_flight: u32,
    /// The end of the prefix: the lowest position at which a piece stopped.
    end: u64,
    /// What stopped the piece at `end`: 0 for a short transfer.
    errno: i32,
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
        Self { total, base: 0, limit, issued: 0, in_flight: 0, end: total, errno: 0, cut: false }
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
            if self.cut || start >= left || self.in_flight >= WINDOW {
                return None;
            }
            (start, self.limit.min(left - start))
        };
        let number = self.issued as u8;
        self.issued += 1;
        self.in_flight += 1;
        Some(Piece { number, start: self.base + start, len })
    }

    /// Takes back the piece handed out last: the backend had no room.
    pub fn put_back(&mut self) {
        self.issued -= 1;
        self.in_flight -= 1;
    }

    /// The answer for one piece; the round's outcome when that was its end.
    ///
    /// `result` is a count of bytes or minus errno.
    #[inline]
    pub fn answered(&mut self, number: u8, result: i64) -> Option<Round> {
        debug_assert!(self.in_flight > 0);
        self.in_flight = self.in_flight.saturating_sub(1);
        let start = self.start_of(number);
        let len = if self.is_single() { self.total - self.base } else { self.limit.min(self.total - start) };
        // An answer longer than what was asked for would be the kernel's error; nothing may come of it.
        let done = u64::try_from(result).unwrap_or(0).min(len);
        if done < len || result < 0 {
            self.cut = true;
            if start + done < self.end || (start + done == self.end && self.errno == 0) {
                self.end = start + done;
                self.errno = if result < 0 { i32::try_from(-result).unwrap_or(libc::EIO) } else { 0 };
            }
        }
        let asked_for_all =
            self.cut || self.is_single() || u64::from(self.issued) * self.limit >= self.total - self.base;
        if self.in_flight > 0 || !asked_for_all {
            return None;
        }
        Some(self.round())
    }

    /// True when there is no answer to come and no piece to hand out before [`answered`](Self::answered) says so.
    pub fn has_more(&self) -> bool {
        let mut copy = *self;
        copy.next_piece().is_some()
    }

    /// No more pieces are to be handed out: what has not been asked for is cancelled. The round's outcome, when
    /// nothing is in flight.
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
        (self.in_flight == 0).then(|| self.round())
    }

    /// The numbers that pieces in flight may have.
    pub fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        (self.issued.saturating_sub(WINDOW)..self.issued).map(|number| number as u8)
    }

    #[inline]
    fn round(&self) -> Round {
        Round { done: self.end, gained: self.end - self.base, errno: self.errno }
    }

    /// A new round from `done` on, in pieces of `limit`.
    pub fn restart(&mut self, done: u64, limit: u64) {
        debug_assert_eq!(self.in_flight, 0);
        *self = Self { base: done, ..Self::new(self.total, limit) };
    }

    /// Where the piece with this number began: numbers are counted modulo 256, and fewer than that are
    /// in flight.
    #[inline]
    fn start_of(&self, number: u8) -> u64 {
        let last = self.issued.wrapping_sub(1);
        let behind = (last as u8).wrapping_sub(number);
        self.base + u64::from(last.wrapping_sub(u32::from(behind))) * self.limit
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

    proptest! {
        /// Pieces answered in any order, some of them short or failed: the pieces of a round never overlap or
        /// leave a gap, and its outcome is the prefix up to the first that was not full.
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
    }
}
