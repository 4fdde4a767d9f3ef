//! The bytes of a file that `--verify` can check. Every 512-byte block is a function of a seed and
//! of its own offset, so a misplaced or stale block is detected like a damaged one. The bytes look
//! random: compression and deduplication in the device gain nothing.

use crate::random::mix;
use std::ops::Range;

/// Bytes of a block, the unit of the pattern and of all counts.
pub const BLOCK: u64 = 512;
const WORDS: usize = (BLOCK / 8) as usize;

/// Fills `bytes` with the pattern at `offset`.
pub fn fill(seed: u64, offset: u64, bytes: &mut [u8]) {
    for (block, from, piece) in pieces(offset, bytes.len()) {
        let piece = &mut bytes[piece];
        piece.copy_from_slice(&content(seed, block)[from..from + piece.len()]);
    }
}

/// The number of blocks, whole or in part, in `bytes`, and how many of them differ from the pattern
/// at `offset`.
pub fn check(seed: u64, offset: u64, bytes: &[u8]) -> (u64, u64) {
    count(offset, bytes.len(), |block, from, piece| {
        content(seed, block)[from..from + piece.len()] == bytes[piece]
    })
}

/// Like [`check`], against given bytes instead of the pattern.
pub fn compare(offset: u64, bytes: &[u8], expected: &[u8]) -> (u64, u64) {
    count(offset, bytes.len(), |_, _, piece| expected.get(piece.clone()) == bytes.get(piece))
}

/// Counts blocks, and those that are wrong.
fn count(
    offset: u64,
    len: usize,
    is_right: impl Fn(u64, usize, Range<usize>) -> bool,
) -> (u64, u64) {
    pieces(offset, len).fold((0, 0), |(blocks, wrong), (block, from, piece)| {
        (blocks + 1, wrong + u64::from(!is_right(block, from, piece)))
    })
}

/// Splits `len` bytes at block boundaries: the block's number, the offset of the piece in the
/// block, and the piece.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let place = offset + at as u64;
        let from = (place % BLOCK) as usize;
        let piece = at..len.min(at + BLOCK as usize - from);
        at = piece.end;
        (!piece.is_empty()).then_some((place / BLOCK, from, piece))
    })
}

fn content(seed: u64, block: u64) -> [u8; BLOCK as usize] {
    let first = mix(seed ^ mix(block));
    let mut content = [0; BLOCK as usize];
    for (word, index) in content.as_chunks_mut::<8>().0.iter_mut().zip(0..WORDS as u64) {
        *word = mix(first.wrapping_add(index)).to_le_bytes();
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_that_are_filled_one_by_one_match_the_whole(
            seed: u64,
            offset in 0u64..5000,
            lens in proptest::collection::vec(1usize..1500, 1..8),
        ) {
            let total: usize = lens.iter().sum();
            let mut bytes = vec![0; total];
            let mut at = 0;
            for len in lens {
                fill(seed, offset + at as u64, &mut bytes[at..at + len]);
                at += len;
            }
            let (blocks, wrong) = check(seed, offset, &bytes);
            prop_assert_eq!(blocks, (offset + total as u64).div_ceil(BLOCK) - offset / BLOCK);
            prop_assert_eq!(wrong, 0);
        }

        #[test]
        fn one_wrong_byte_is_one_wrong_block(
            seed: u64,
            offset in 0u64..5000,
            len in 1usize..5000,
            at: prop::sample::Index,
            change in 1u8..,
        ) {
            let mut bytes = vec![0; len];
            fill(seed, offset, &mut bytes);
            let right = bytes.clone();
            bytes[at.index(len)] ^= change;
            prop_assert_eq!(check(seed, offset, &bytes).1, 1);
            prop_assert_eq!(compare(offset, &bytes, &right), check(seed, offset, &bytes));
            prop_assert_eq!(compare(offset, &right, &right).1, 0);
        }

        #[test]
        fn another_offset_or_seed_is_wrong(seed: u64, offset in 0u64..5000) {
            let mut bytes = vec![0; 4096];
            fill(seed, offset * BLOCK, &mut bytes);
            prop_assert_eq!(check(seed, (offset + 1) * BLOCK, &bytes), (8, 8));
            prop_assert_eq!(check(seed + 1, offset * BLOCK, &bytes), (8, 8));
        }
    }

    #[test]
    fn missing_bytes_are_wrong() {
        assert_eq!(compare(0, &[1; 1024], &[1; 512]), (2, 1));
    }
}
