//! Decides whether to try a read in the page cache first, from the outcome of earlier tries. Pure
//! data: the tries themselves are made elsewhere.

use std::sync::atomic::{AtomicU32, Ordering};

/// Decides whether the next read is worth a try in the page cache
/// ([`File::read_now`](crate::File::read_now)). Use one for each file, or for reads that are likely
/// to be cached together.
///
/// A hit costs one system call and does not wait; a miss wastes one system call. So after several
/// misses in a row fewer and fewer reads are tried, until there is a hit again.
///
/// ```
/// # use ringway_core::{CacheHint, File};
/// # fn main() -> std::io::Result<()> {
/// let (file, hint) = (File::open("/etc/passwd")?, CacheHint::default());
/// let mut bytes = [0; 16];
/// if hint.should_try() {
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

/// Misses in a row after which tries get no rarer: one in 256.
const MAX_MISSES: u32 = 12;

impl CacheHint {
    /// Whether to try; call it once for each read. Threads may race here and miscount: the result
    /// is a guess in any case.
    #[inline]
    pub fn should_try(&self) -> bool {
        match self.skip.load(Ordering::Relaxed) {
            0 => true,
            skip => {
                self.skip.store(skip - 1, Ordering::Relaxed);
                false
            }
        }
    }

    /// The try found all bytes.
    #[inline]
    pub fn hit(&self) {
        // Written only when it changes, since all threads share the cache line.
        if self.misses.load(Ordering::Relaxed) != 0 {
            self.misses.store(0, Ordering::Relaxed);
        }
    }

    /// The try did not find all bytes.
    #[cold]
    pub fn miss(&self) {
        let misses = (self.misses.load(Ordering::Relaxed) + 1).min(MAX_MISSES);
        self.misses.store(misses, Ordering::Relaxed);
        self.skip.store((1 << misses) >> 4, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_make_tries_rarer_until_a_hit() {
        let cache = CacheHint::default();
        let attempts = |count: u32| {
            (0..count)
                .filter(|_| {
                    let attempted = cache.should_try();
                    if attempted {
                        cache.miss();
                    }
                    attempted
                })
                .count()
        };
        assert_eq!(attempts(3), 3, "a few misses say nothing");
        assert!((4..60).contains(&attempts(10_000)), "many do");
        cache.hit();
        cache.skip.store(0, Ordering::Relaxed);
        assert_eq!(attempts(3), 3);
    }
}
