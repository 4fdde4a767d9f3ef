//! The content of writes. It depends on a mark and on the position in the file, so a read shows
//! which write it saw, and from which position.

/// The odd number nearest to 2^64 divided by the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64.
pub(crate) fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The content of a hole.
pub(crate) const ZEROES: u32 = 0;

/// Fills `bytes` with the content of `mark` from position `start` on.
pub(crate) fn fill(mark: u32, start: u64, bytes: &mut [u8]) {
    if mark == ZEROES {
        return bytes.fill(0);
    }
    let seed = mix(u64::from(mark));
    let mut at = start;
    let mut rest = bytes;
    while !rest.is_empty() {
        let word = mix(seed ^ (at / 8)).to_le_bytes();
        let skip = (at % 8) as usize;
        let count = rest.len().min(8 - skip);
        let (these, others) = rest.split_at_mut(count);
        these.copy_from_slice(&word[skip..skip + count]);
        at += count as u64;
        rest = others;
    }
}

/// The first position at which no mark has this content.
pub(crate) fn first_unexplained(marks: &[u32], start: u64, bytes: &[u8]) -> Option<u64> {
    let mut unexplained: Vec<bool> = Vec::new();
    let mut expected = vec![0; bytes.len()];
    for mark in marks {
        fill(*mark, start, &mut expected);
        if expected == bytes {
            return None;
        }
        unexplained.resize(bytes.len(), true);
        for (index, (one, other)) in expected.iter().zip(bytes).enumerate() {
            unexplained[index] &= one != other;
        }
    }
    if marks.is_empty() {
        return Some(start);
    }
    unexplained.iter().position(|unexplained| *unexplained).map(|index| start + index as u64)
}
