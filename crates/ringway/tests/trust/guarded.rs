//! Buffers that tell when the kernel writes to them after they were freed, which no sanitizer sees.
//!
//! Their memory is a pool's, and never unmapped. What is let go of is filled with a mark and set
//! apart; a mark that has changed by the time it is looked at was overwritten after its buffer had
//! been freed. (That this is seen with a program that frees too early, the core's `contract_one`
//! shows.) What is leaked never comes back, and harms nobody.

use ringway::{Buffer, CustomBuffer};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const PAGE: usize = 4096;
/// What a freed page is filled with.
const MARK: u8 = 0xc3;

/// Pages that outlive everything.
#[derive(Clone, Default)]
pub struct Pages(Arc<Mutex<Stock>>);

#[derive(Default)]
struct Stock {
    /// Addresses of pages that are free and safe to use again.
    clean: Vec<usize>,
    /// Freed and marked; since when.
    freed: Vec<(usize, Instant)>,
    out: usize,
    inspected: usize,
}

/// One page, lent.
struct Page {
    address: usize,
    pages: Pages,
}

#[repr(align(4096))]
struct Aligned(#[expect(dead_code, reason = "it is used by its address")] [u8; PAGE]);

/// Fills a page that nobody uses.
fn fill(address: usize, with: u8) {
    // SAFETY: a page of the pool is leaked memory of this length, and the caller's alone.
    unsafe { (address as *mut u8).write_bytes(with, PAGE) };
}

impl Pages {
    /// A page, zeroed.
    pub fn lend(&self) -> Buffer {
        let mut stock = self.0.lock().unwrap();
        stock.out += 1;
        let address = stock.clean.pop();
        drop(stock);
        let address = address
            .unwrap_or_else(|| Box::into_raw(Box::new(Aligned([0; PAGE]))).expose_provenance());
        fill(address, 0);
        Buffer::custom(Box::new(Page { address, pages: self.clone() }))
    }

    /// Looks at what was freed at least so long ago; it is as it was marked, or this panics.
    pub fn inspect(&self, age: Duration) {
        let mut stock = self.0.lock().unwrap();
        let freed = std::mem::take(&mut stock.freed);
        let (old, young): (Vec<_>, Vec<_>) =
            freed.into_iter().partition(|(_, since)| since.elapsed() >= age);
        stock.freed = young;
        stock.inspected += old.len();
        for (address, _) in old {
            let byte = |at: usize| {
                // SAFETY: within a page that is never unmapped; what the kernel does is done behind
                // the compiler's back.
                unsafe { (address as *const u8).add(at).read_volatile() }
            };
            if let Some(at) = (0..PAGE).step_by(64).find(|at| byte(*at) != MARK) {
                panic!("byte {at} of a freed buffer was overwritten with {:#x}", byte(at));
            }
            stock.clean.push(address);
        }
    }

    /// How many are lent out, and how many were looked at after they had been freed.
    pub fn tally(&self) -> (usize, usize) {
        let stock = self.0.lock().unwrap();
        (stock.out, stock.inspected)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        fill(self.address, MARK);
        let mut stock = self.pages.0.lock().unwrap();
        stock.out -= 1;
        stock.freed.push((self.address, Instant::now()));
    }
}

// SAFETY: the page is never unmapped, was initialised when it was lent, and is this value's alone
// while it lives.
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
