//! The buffer that each reader owns: aligned to a page, as direct I/O wants it.

use std::ops::{Deref, DerefMut};
use std::slice;

const PAGE: usize = 4096;

#[derive(Clone)]
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "read as bytes of the whole buffer")] [u8; PAGE]);

/// So many bytes, at an address that is a multiple of 4096. It does not move when it is moved.
pub struct Buffer(Vec<Page>);

impl Buffer {
    /// `len` is a multiple of 4096. The bytes are not 0: so each page is really there before
    /// anything is measured.
    pub fn new(len: usize) -> Self {
        assert!(len.is_multiple_of(PAGE), "a buffer of {len} bytes");
        Self(vec![Page([1; PAGE]); len / PAGE])
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a page is 4096 initialised bytes without padding, and the vector owns that many
        // of them in a row.
        unsafe { slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * PAGE) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; any bytes are a page, and the vector is borrowed for as long as the
        // slice.
        unsafe { slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * PAGE) }
    }
}
