//! Splits a transfer into pieces and combines their results. Pure data: submitting the pieces is
//! left to the queue.
//!
//! A transfer longer than the device's largest request goes to the kernel in pieces, several at a
//! time. An *attempt* is a run of pieces from one position on. It ends when no piece is in flight
//! and either all bytes were requested or a piece was short; what counts is the unbroken prefix.
//! The queue decides whether another attempt follows (`exact`, a retry).
//!
//! Pieces complete in any order, and one may be late while many others come and go. A piece's
//! number has 8 bits and wraps around at 256, so the distance between the oldest and the newest
//! piece in flight is bounded too.

use crate::sys::libc;

/// The most pieces of one transfer in flight at a time.
pub(crate) const WINDOW: u8 = 8;

/// The most pieces from the oldest to the newest in flight, both included: the bits of
/// [`SplitProgress::in_flight`].
const SPAN: u32 = u32::BITS;

/// The progress of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitProgress {
    total: u64,
    /// Bytes done before this attempt.
    base: u64,
    /// Length of each piece but the last; 0: one piece of any length.
    limit: u64,
    /// Pieces issued in this attempt.
    issued: u32,
    /// A bit for each piece in flight; the lowest one is the piece issued last.
    in_flight: u32,
    /// The end of the prefix: the lowest position at which a piece stopped.
    end: u64,
    /// The errno of the piece that stopped at `end`; 0 for a short transfer.
    errno: i32,
    /// The most pieces in flight at a time.
    window: u8,
    /// A piece was short or failed: no more pieces are issued.
    stopped: bool,
    /// A piece was submitted without some of its buffers, so it is short for that reason.
    pub was_cut_short: bool,
    /// This attempt asks the ring whether it denies such operations. (In the queue's part of a slot
    /// there is no room for it.)
    pub asks_ring: bool,
}

/// A part of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub number: u8,
    pub start: u64,
    pub len: u64,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Bytes done from the start of the transfer, without a gap.
    pub done: u64,
    /// Bytes done in this attempt.
    pub gained: u64,
    /// The errno that ended it; 0 at the end of the transfer or after a short piece.
    pub errno: i32,
}

impl SplitProgress {
    /// A transfer of `total` bytes in pieces of `limit` bytes; 0: in one piece.
    #[inline]
    pub fn new(total: u64, limit: u64) -> Self {
        // Pieces are counted in `issued`, a u32: for a huge transfer, a piece is a multiple of
        // `limit`.
        let limit = limit * (total.checked_div(limit).unwrap_or(0) / u64::from(u32::MAX) + 1);
        Self {
            total,
            base: 0,
            limit,
            issued: 0,
            in_flight: 0,
            end: total,
            errno: 0,
            window: WINDOW,
            stopped: false,
            was_cut_short: false,
            asks_ring: false,
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

    /// True if the rest is one piece.
    #[inline]
    pub fn is_single(&self) -> bool {
        self.limit == 0 || self.total - self.base <= self.limit
    }

    /// The same transfer, with one piece in flight at a time.
    pub fn in_order(self) -> Self {
        Self { window: 1, ..self }
    }

    /// The next piece to issue, if one may be issued now.
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
            let full = self.in_flight.count_ones() >= u32::from(self.window)
                || self.in_flight >> (SPAN - 1) != 0;
            if self.stopped || start >= left || full {
                return None;
            }
            (start, self.limit.min(left - start))
        };
        let number = self.issued as u8;
        self.issued += 1;
        self.in_flight = self.in_flight << 1 | 1;
        Some(Piece { number, start: self.base + start, len })
    }

    /// The piece in flight with this number.
    pub fn in_flight_piece(&self, number: u8) -> Option<Piece> {
        let behind = self.distance(number);
        if self.in_flight & 1u32.checked_shl(behind).unwrap_or(0) == 0 {
            return None;
        }
        let start = self.base + u64::from(self.issued - 1 - behind) * self.limit;
        let len = if self.is_single() {
            self.total - self.base
        } else {
            self.limit.min(self.total - start)
        };
        Some(Piece { number, start, len })
    }

    /// Undoes the last `next_piece`: the backend was full.
    pub fn unissue(&mut self) {
        self.issued -= 1;
        self.in_flight >>= 1;
    }

    /// Records the result of a piece. Returns the result of the attempt if that was its last piece.
    ///
    /// `result` is a number of bytes or minus errno.
    #[inline]
    pub fn complete(&mut self, number: u8, result: i64) -> Option<Attempt> {
        let behind = self.distance(number);
        let bit = 1u32.checked_shl(behind).unwrap_or(0);
        if self.in_flight & bit == 0 {
            debug_assert!(false, "piece {number} is not in flight");
            return None;
        }
        self.in_flight &= !bit;
        let start = self.base + u64::from(self.issued - 1 - behind) * self.limit;
        let len = if self.is_single() {
            self.total - self.base
        } else {
            self.limit.min(self.total - start)
        };
        // More bytes than requested would be a kernel bug; it must not corrupt the accounting.
        let done = u64::try_from(result).unwrap_or(0).min(len);
        if done < len || result < 0 {
            self.stopped = true;
            if start + done < self.end || (start + done == self.end && self.errno == 0) {
                self.end = start + done;
                self.errno =
                    if result < 0 { i32::try_from(-result).unwrap_or(libc::EIO) } else { 0 };
            }
        }
        let all_issued = self.stopped
            || self.is_single()
            || u64::from(self.issued) * self.limit >= self.total - self.base;
        if self.in_flight != 0 || !all_issued {
            return None;
        }
        Some(self.attempt())
    }

    /// True if another piece can be issued now.
    pub fn has_more(&self) -> bool {
        let mut copy = *self;
        copy.next_piece().is_some()
    }

    /// Cancels the pieces that are not issued yet. Returns the result of the attempt if no piece is
    /// in flight.
    pub fn stop(&mut self) -> Option<Attempt> {
        let issued_end = if self.is_single() {
            if self.issued > 0 { self.total } else { self.base }
        } else {
            self.total.min(self.base + u64::from(self.issued) * self.limit)
        };
        if issued_end < self.end || self.issued == 0 {
            self.end = self.end.min(issued_end);
            self.errno = libc::ECANCELED;
        }
        self.stopped = true;
        (self.in_flight == 0).then(|| self.attempt())
    }

    /// The numbers of the pieces in flight.
    pub fn in_flight_numbers(&self) -> impl Iterator<Item = u8> + use<> {
        let (issued, in_flight) = (self.issued, self.in_flight);
        (0..SPAN)
            .filter(move |behind| in_flight >> behind & 1 != 0)
            .map(move |behind| (issued - 1 - behind) as u8)
    }

    #[inline]
    fn attempt(&self) -> Attempt {
        Attempt { done: self.end, gained: self.end - self.base, errno: self.errno }
    }

    /// Starts another attempt at `done`, in pieces of `limit`.
    pub fn restart(&mut self, done: u64, limit: u64) {
        debug_assert_eq!(self.in_flight, 0);
        let Self { window, was_cut_short, .. } = *self;
        *self = Self { base: done, window, was_cut_short, ..Self::new(self.total, limit) };
    }

    /// How many pieces were issued after the piece with this number.
    #[inline]
    fn distance(&self, number: u8) -> u32 {
        u32::from((self.issued.wrapping_sub(1) as u8).wrapping_sub(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_piece_is_one_attempt() {
        let mut progress = SplitProgress::new(100, 0);
        assert_eq!(progress.next_piece(), Some(Piece { number: 0, start: 0, len: 100 }));
        assert_eq!(progress.next_piece(), None);
        assert_eq!(progress.complete(0, 40), Some(Attempt { done: 40, gained: 40, errno: 0 }));
        progress.restart(40, 0);
        assert_eq!(progress.next_piece(), Some(Piece { number: 0, start: 40, len: 60 }));
        assert_eq!(progress.complete(0, -5), Some(Attempt { done: 40, gained: 0, errno: 5 }));
    }

    #[test]
    fn a_length_of_zero_is_one_piece() {
        let mut progress = SplitProgress::new(0, 4096);
        assert_eq!(progress.next_piece(), Some(Piece { number: 0, start: 0, len: 0 }));
        assert_eq!(progress.next_piece(), None);
        assert_eq!(progress.complete(0, -9), Some(Attempt { done: 0, gained: 0, errno: 9 }));
    }

    /// One piece is late: others are issued only as long as its number is unambiguous.
    #[test]
    fn a_late_piece_keeps_its_number() {
        let mut progress = SplitProgress::new(1000, 1);
        let first = progress.next_piece().unwrap();
        let mut newest = first;
        while let Some(piece) = progress.next_piece() {
            newest = piece;
            assert_eq!(progress.complete(piece.number, 1), None);
        }
        assert_eq!(newest.start, u64::from(SPAN) - 1);
        assert_eq!(Vec::from_iter(progress.in_flight_numbers()), [first.number]);
        assert_eq!(
            progress.complete(first.number, -11),
            Some(Attempt { done: 0, gained: 0, errno: 11 })
        );
    }

    #[test]
    fn pieces_are_longer_if_there_would_be_too_many() {
        let total = u64::from(u32::MAX) * 4096 * 3 / 2;
        let progress = SplitProgress::new(total, 4096);
        assert_eq!(progress.limit(), 8192);
        assert_eq!(SplitProgress::new(total / 2, 4096).limit(), 4096);
    }

    proptest! {
        /// Pieces complete in any order, some short or failed. They never overlap or leave a gap,
        /// and the result is the prefix up to the first incomplete piece.
        #[test]
        fn the_result_of_an_attempt_is_its_unbroken_prefix(
            total in 1u64..100_000,
            limit in 1u64..5_000,
            order in proptest::collection::vec(any::<prop::sample::Index>(), 1..64),
            faults in proptest::collection::hash_map(
                0u64..400,
                prop_oneof![Just(-1i64), 0..5_000i64],
                0..4,
            ),
        ) {
            let mut progress = SplitProgress::new(total, limit);
            let mut in_flight: Vec<Piece> = Vec::new();
            let mut expected = (total, 0);
            let mut issued_end = 0;
            let mut step = 0;
            let attempt = loop {
                while let Some(piece) = progress.next_piece() {
                    prop_assert_eq!(piece.start, issued_end);
                    issued_end += piece.len;
                    in_flight.push(piece);
                }
                prop_assert!(!in_flight.is_empty() && in_flight.len() <= WINDOW as usize);
                let piece = in_flight.remove(order[step % order.len()].index(in_flight.len()));
                step += 1;
                let result = match faults.get(&(piece.start / limit)) {
                    Some(-1) => -5,
                    Some(short) => (*short).min(piece.len as i64),
                    None => piece.len as i64,
                };
                let stop = piece.start + result.max(0) as u64;
                if (result < 0 || (result as u64) < piece.len) && stop < expected.0 {
                    expected = (stop, if result < 0 { 5 } else { 0 });
                }
                if let Some(attempt) = progress.complete(piece.number, result) {
                    break attempt;
                }
            };
            prop_assert!(in_flight.is_empty());
            prop_assert_eq!((attempt.done, attempt.errno), expected);
            prop_assert_eq!(attempt.gained, attempt.done);
            if expected.0 == total { prop_assert_eq!(issued_end, total) }
        }

        /// As `exact` does: another attempt after each retry and short transfer. Some pieces
        /// complete only when no other is in flight, with any result. In any order, all bytes that
        /// count as done were transferred, and a cancel reaches exactly the pieces in flight.
        #[test]
        fn late_pieces_lose_nothing(
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
            let mut progress = SplitProgress::new(total, limit);
            if in_order {
                progress = progress.in_order();
            }
            let window = if in_order { 1 } else { WINDOW };
            let mut in_flight: Vec<Piece> = Vec::new();
            let mut step = 0;
            let (done, errno) = loop {
                while let Some(piece) = progress.next_piece() {
                    in_flight.push(piece);
                }
                prop_assert!(!in_flight.is_empty() && in_flight.len() <= window as usize);
                let mut numbers: Vec<u8> = progress.in_flight_numbers().collect();
                let mut expected: Vec<u8> = in_flight.iter().map(|piece| piece.number).collect();
                numbers.sort();
                expected.sort();
                prop_assert_eq!(numbers, expected);
                let ready: Vec<usize> = in_flight
                    .iter()
                    .enumerate()
                    .filter(|(_, piece)| !starving.contains(&(piece.start / limit)))
                    .map(|(at, _)| at)
                    .collect();
                let index = order[step % order.len()];
                let at = if ready.is_empty() {
                    index.index(in_flight.len())
                } else {
                    *index.get(&ready)
                };
                let piece = in_flight.remove(at);
                step += 1;
                let result = match faults.get_mut(&(piece.start / limit)) {
                    Some((result, times)) if *times > 0 => {
                        *times -= 1;
                        (*result).min(piece.len as i64)
                    }
                    _ => piece.len as i64,
                };
                let end = piece.start + result.max(0) as u64;
                transferred[piece.start as usize..end as usize].fill(true);
                let Some(attempt) = progress.complete(piece.number, result) else { continue };
                prop_assert!(in_flight.is_empty());
                let is_done = transferred[..attempt.done as usize].iter().all(|there| *there);
                prop_assert!(is_done, "a hole before {}", attempt.done);
                let continues = match attempt.errno {
                    0 => attempt.done < total && attempt.gained > 0,
                    errno => RETRIED.contains(&errno),
                };
                if !continues {
                    break (attempt.done, attempt.errno);
                }
                progress.restart(attempt.done, limit);
            };
            let is_short = faults.values().any(|(result, _)| *result == 0);
            prop_assert!(done == total || errno != 0 || is_short);
        }

        /// A cancel in the middle of an attempt: the pieces in flight complete, and the result is
        /// the unbroken prefix.
        #[test]
        fn the_result_of_a_stopped_attempt_is_its_unbroken_prefix(
            pieces in 2u64..700,
            limit in 1u64..20,
            completed in 0usize..700,
            late in 0u64..700,
            failed in any::<bool>(),
        ) {
            let total = pieces * limit;
            let mut progress = SplitProgress::new(total, limit);
            let mut in_flight: Vec<Piece> = Vec::new();
            let mut transferred = vec![false; total as usize];
            for _ in 0..completed {
                in_flight.extend(std::iter::from_fn(|| progress.next_piece()));
                let is_other = |piece: &Piece| piece.start / limit != late;
                let Some(at) = in_flight.iter().position(is_other) else { break };
                let piece = in_flight.remove(at);
                transferred[piece.start as usize..(piece.start + piece.len) as usize].fill(true);
                if progress.complete(piece.number, piece.len as i64).is_some() {
                    prop_assert!(in_flight.is_empty());
                    return Ok(());
                }
            }
            let mut attempt = progress.stop();
            prop_assert_eq!(attempt.is_some(), in_flight.is_empty());
            while let Some(piece) = in_flight.pop() {
                prop_assert!(progress.in_flight_numbers().any(|number| number == piece.number));
                prop_assert_eq!(progress.next_piece(), None);
                let result = if failed { -i64::from(libc::ECANCELED) } else { piece.len as i64 };
                if !failed {
                    let end = piece.start + piece.len;
                    transferred[piece.start as usize..end as usize].fill(true);
                }
                prop_assert!(attempt.is_none());
                attempt = progress.complete(piece.number, result);
            }
            let Attempt { done, errno, .. } = attempt.expect("all has been answered");
            let prefix = transferred.iter().take_while(|there| **there).count() as u64;
            let expected = if prefix < total { libc::ECANCELED } else { 0 };
            prop_assert_eq!((done, errno), (prefix, expected));
        }
    }
}
