//! Buffers that detect when the kernel writes to them after they were freed, which no sanitizer
//! sees.
//!
//! Their memory comes from a pool and is never unmapped. A freed buffer is filled with a mark and
//! set aside; if the mark has changed when the buffer is inspected, something wrote to it after it
//! was freed. The core's test `no_write_after_free` shows that this detects a program that frees
//! too early. Leaked buffers never return, which is harmless.

use ringway_core::Buffer;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// The fill byte of a freed buffer.
const MARK: u8 = 0xc3;

/// A pool of buffers that outlive everything.
#[derive(Clone, Debug, Default)]
pub struct Pages(Arc<Mutex<Pool>>);

#[derive(Debug, Default)]
struct Pool {
    /// Addresses of buffers that were inspected and can be reused.
    clean: Vec<usize>,
    /// Marked buffers, their lengths, and when they were freed.
    freed: Vec<(usize, usize, Instant)>,
    borrowed: usize,
    inspected: usize,
}

/// A buffer of so many pages, borrowed from the pool.
struct Page<const COUNT: usize> {
    address: usize,
    pages: Pages,
}

#[derive(Clone)]
#[repr(align(4096))]
struct Aligned(#[expect(dead_code, reason = "it is used by its address")] [u8; PAGE]);

/// Fills a buffer that is not in use.
fn fill(address: usize, len: usize, with: u8) {
    // SAFETY: the pool's memory is leaked and has this length, and only the caller uses it.
    unsafe { (address as *mut u8).write_bytes(with, len) };
}

impl Pages {
    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Borrows a zeroed page.
    pub fn take(&self) -> Buffer {
        self.take_many::<1>()
    }

    /// Borrows a zeroed buffer of so many pages. A pool has buffers of one length.
    pub fn take_many<const COUNT: usize>(&self) -> Buffer {
        let mut pool = self.lock();
        pool.borrowed += 1;
        let address = pool.clean.pop();
        drop(pool);
        let address = address.unwrap_or_else(|| {
            let pages = vec![Aligned([0; PAGE]); COUNT].into_boxed_slice();
            Box::into_raw(pages).cast::<u8>().expose_provenance()
        });
        fill(address, COUNT * PAGE, 0);
        Buffer::custom(Box::new(Page::<COUNT> { address, pages: self.clone() }))
    }

    /// Inspects the buffers that were freed at least `age` ago. Panics if one of them was written
    /// to.
    pub fn inspect(&self, age: Duration) {
        if let Err(text) = self.check(age) {
            panic!("{text}");
        }
    }

    /// As [`inspect`](Self::inspect).
    ///
    /// # Errors
    ///
    /// A freed buffer was written to.
    pub fn check(&self, age: Duration) -> Result<(), String> {
        let mut pool = self.lock();
        let freed = std::mem::take(&mut pool.freed);
        let (old, young): (Vec<_>, Vec<_>) =
            freed.into_iter().partition(|(_, _, since)| since.elapsed() >= age);
        pool.freed = young;
        pool.inspected += old.len();
        for (address, len, _) in old {
            let word = |at: usize| {
                // SAFETY: the address is within memory that is never unmapped, and aligned: it is
                // that of a page. The read is volatile because the kernel may write there at any
                // time.
                unsafe { (address as *const u64).add(at).read_volatile() }
            };
            const MARKS: u64 = u64::from_ne_bytes([MARK; 8]);
            if let Some(at) = (0..len / 8).find(|at| word(*at) != MARKS) {
                let found = word(at).to_ne_bytes();
                return Err(format!("bytes from {} of a freed buffer are {found:x?}", at * 8));
            }
            pool.clean.push(address);
        }
        Ok(())
    }

    /// How many buffers are borrowed, and how many were inspected after they were freed.
    pub fn counts(&self) -> (usize, usize) {
        let pool = self.lock();
        (pool.borrowed, pool.inspected)
    }
}

impl<const COUNT: usize> Drop for Page<COUNT> {
    fn drop(&mut self) {
        fill(self.address, COUNT * PAGE, MARK);
        let mut pool = self.pages.lock();
        pool.borrowed -= 1;
        pool.freed.push((self.address, COUNT * PAGE, Instant::now()));
    }
}

impl<const COUNT: usize> Page<COUNT> {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is never unmapped, was initialised when it was borrowed, and belongs
        // to this value alone while it lives.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, COUNT * PAGE) }
    }
}

crate::custom_buffer!([const COUNT: usize] Page<COUNT>, |this| this.bytes(), true);

/// Implements [`CustomBuffer`](ringway_core::CustomBuffer) for a type of the caller, who has to
/// make sure that its bytes stay in place while it lives, also when it moves, and that it alone
/// owns them.
#[macro_export]
macro_rules! custom_buffer {
    ([$($generics:tt)*] $type:ty, |$this:ident| $bytes:expr, $writable:literal) => {
        // SAFETY: as the caller has made sure.
        unsafe impl<$($generics)*> ringway_core::CustomBuffer for $type {
            fn as_ptr(&self) -> *const u8 {
                let $this = self;
                $bytes.as_ptr()
            }
            fn len(&self) -> usize {
                let $this = self;
                $bytes.len()
            }
            fn writable(&self) -> bool {
                $writable
            }
            fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
                self
            }
        }
    };
    ($type:ty, |$this:ident| $bytes:expr, $writable:literal) => {
        $crate::custom_buffer!([] $type, |$this| $bytes, $writable);
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_to_any_byte_of_a_freed_buffer_is_found() {
        for at in [0, 1, 63, 100, PAGE - 1] {
            let pages = Pages::default();
            let buffer = pages.take();
            let address = buffer.as_slice().as_ptr().expose_provenance();
            drop(buffer);
            fill(address + at, 1, 7);
            assert!(pages.check(Duration::ZERO).is_err(), "byte {at}");
        }
    }
}
