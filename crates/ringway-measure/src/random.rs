//! Random numbers for offsets and patterns: cheap enough not to disturb a measurement, and the same
//! in every run with the same seed. They are not suitable for secrets.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A random number generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}

/// A hash of `x`; different numbers have different hashes.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_below_their_bound(seed: u64, bound in 1u64..) {
            let mut random = Random::new(seed);
            prop_assert!((0..100).all(|_| random.below(bound) < bound));
        }
    }

    #[test]
    fn numbers_are_evenly_distributed() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
