//! Buffers that detect when the kernel writes to them after they were freed, which no sanitizer
//! sees.
//!
//! Their pages come from a pool and are never unmapped. A freed page is filled with a mark and set
//! aside; if the mark has changed when the page is inspected, something wrote to the page after it
//! was freed. The core's test `no_write_after_free` shows that this detects a program that frees
//! too early. Leaked buffers never return, which is harmless.

use super::PAGE;
use ringway::{Buffer, CustomBuffer};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The fill byte of a freed page.
const MARK: u8 = 0xc3;

/// A pool of pages that outlive everything.
#[derive(Clone, Default)]
pub struct Pages(Arc<Mutex<PoolState>>);

#[derive(Default)]
struct PoolState {
    /// Addresses of pages that were inspected and can be reused.
    clean: Vec<usize>,
    /// Marked pages and when they were freed.
    freed: Vec<(usize, Instant)>,
    borrowed: usize,
    inspected: usize,
}

/// One page, borrowed from the pool.
struct Page {
    address: usize,
    pages: Pages,
}

#[repr(align(4096))]
struct Aligned(#[expect(dead_code, reason = "it is used by its address")] [u8; PAGE]);

/// Fills a page that is not in use.
fn fill(address: usize, with: u8) {
    // SAFETY: a page of the pool is leaked memory of this length, and only the caller uses it.
    unsafe { (address as *mut u8).write_bytes(with, PAGE) };
}

impl Pages {
    /// Borrows a zeroed page.
    pub fn take(&self) -> Buffer {
        let mut pool = self.0.lock().unwrap();
        pool.borrowed += 1;
        let address = pool.clean.pop();
        drop(pool);
        let address = address
            .unwrap_or_else(|| Box::into_raw(Box::new(Aligned([0; PAGE]))).expose_provenance());
        fill(address, 0);
        Buffer::custom(Box::new(Page { address, pages: self.clone() }))
    }

    /// Inspects the pages that were freed at least `age` ago. Panics if one of them was written to.
    pub fn inspect(&self, age: Duration) {
        let mut pool = self.0.lock().unwrap();
        let freed = std::mem::take(&mut pool.freed);
        let (old, young): (Vec<_>, Vec<_>) =
            freed.into_iter().partition(|(_, since)| since.elapsed() >= age);
        pool.freed = young;
        pool.inspected += old.len();
        for (address, _) in old {
            let byte = |at: usize| {
                // SAFETY: the address is within a page that is never unmapped. The read is volatile
                // because the kernel may write there at any time.
                unsafe { (address as *const u8).add(at).read_volatile() }
            };
            if let Some(at) = (0..PAGE).step_by(64).find(|at| byte(*at) != MARK) {
                panic!("byte {at} of a freed buffer was overwritten with {:#x}", byte(at));
            }
            pool.clean.push(address);
        }
    }

    /// How many pages are borrowed, and how many were inspected after they were freed.
    pub fn counts(&self) -> (usize, usize) {
        let pool = self.0.lock().unwrap();
        (pool.borrowed, pool.inspected)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        fill(self.address, MARK);
        let mut pool = self.pages.0.lock().unwrap();
        pool.borrowed -= 1;
        pool.freed.push((self.address, Instant::now()));
    }
}

// SAFETY: the page is never unmapped, was initialised when it was borrowed, and belongs to this
// value alone while it lives.
unsafe impl CustomBuffer for Page {
    fn as_ptr(&self) -> *const u8 {
        self.address as *const u8
    }
    fn len(&self) -> usize {
        PAGE
    }
    fn writable(&self) -> bool {
        true
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
        self
    }
}

/// A custom buffer that panics when it is dropped.
pub struct PanickingBuffer(Box<[u8]>);

impl PanickingBuffer {
    pub fn buffer(content: &[u8]) -> Buffer {
        Buffer::custom(Box::new(Self(content.into())))
    }
}

impl Drop for PanickingBuffer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a buffer that panics, as the test wants");
        }
    }
}

// SAFETY: the bytes of a boxed slice stay in place when the box moves, and only this value owns
// them.
unsafe impl CustomBuffer for PanickingBuffer {
    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn writable(&self) -> bool {
        true
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send + Sync> {
        self
    }
}
