//! Whether a read is worth a try in the page cache, learnt from the tries before it: pure data.

use std::sync::atomic::{AtomicU32, Ordering};

/// Whether the next read is worth a try in the page cache
/// ([`File::read_now`](crate::File::read_now)), for one file or for reads that are likely to share
/// their luck.
///
/// A hit costs one system call and no waiting; a miss costs one for nothing. So after some misses
/// in a row fewer and fewer reads are tried, until there is a hit again.
///
/// ```
/// # use ringway_core::{CacheHint, File};
/// # fn main() -> std::io::Result<()> {
/// let (file, hint) = (File::open("/etc/passwd")?, CacheHint::default());
/// let mut bytes = [0; 16];
/// if hint.is_worth_a_try() {
///     match file.read_now(&mut bytes, 0) {
///         Some(_) => hint.hit(),
///         None => hint.miss(),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct CacheHint {
    misses: AtomicU32,
    skip: AtomicU32,
}

/// Misses in a row after which it does not become rarer: one try in 256.
const MOST: u32 = 12;

impl CacheHint {
    /// Whether to try; to be asked once for each read. Several threads may ask at once, and miss
    /// one another: it is a guess in any case.
    #[inline]
    pub fn is_worth_a_try(&self) -> bool {
        match self.skip.load(Ordering::Relaxed) {
            0 => true,
            skip => {
                self.skip.store(skip - 1, Ordering::Relaxed);
                false
            }
        }
    }

    /// A try found all of it.
    #[inline]
    pub fn hit(&self) {
        // Written only when it changes, for the cache line is everybody's.
        if self.misses.load(Ordering::Relaxed) != 0 {
            self.misses.store(0, Ordering::Relaxed);
        }
    }

    /// A try did not.
    #[cold]
    pub fn miss(&self) {
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
        let cache = CacheHint::default();
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
