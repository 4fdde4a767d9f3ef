//! Whether a read is worth a try in the page cache.

use std::sync::atomic::{AtomicU32, Ordering};

/// After misses in a row, fewer and fewer reads of a file are tried in the page cache, until there is a hit again.
#[derive(Debug, Default)]
pub(super) struct Cache {
    misses: AtomicU32,
    skip: AtomicU32,
}

/// Misses in a row after which it does not become rarer: one try in 256.
const MOST: u32 = 12;

impl Cache {
    /// Whether to try. Several threads may count at once, and miss one another: it is a guess in any case.
    #[inline]
    pub(super) fn is_worth_a_try(&self) -> bool {
        match self.skip.load(Ordering::Relaxed) {
            0 => true,
            skip => {
                self.skip.store(skip - 1, Ordering::Relaxed);
                false
            }
        }
    }

    /// It was there.
    #[inline]
    pub(super) fn hit(&self) {
        // Written only when it changes, for the cache line is everybody's.
        if self.misses.load(Ordering::Relaxed) != 0 {
            self.misses.store(0, Ordering::Relaxed);
        }
    }

    /// It was not.
    #[cold]
    pub(super) fn miss(&self) {
        let misses = (self.misses.load(Ordering::Relaxed) + 1).min(MOST);
        self.misses.store(misses, Ordering::Relaxed);
        self.skip.store((1 << misses) >> 4, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_make_tries_rare_and_a_hit_makes_them_common() {
        let cache = Cache::default();
        let tries = |count: u32| {
            (0..count)
                .filter(|_| {
                    let tried = cache.is_worth_a_try();
                    if tried {
                        cache.miss();
                    }
                    tried
                })
                .count()
        };
        assert_eq!(tries(3), 3, "a few misses say nothing");
        assert!((4..60).contains(&tries(10_000)), "many do");
        cache.hit();
        cache.skip.store(0, Ordering::Relaxed);
        assert_eq!(tries(3), 3);
    }
}
