//! A buffer of the program's own that panics.

use ringway::Buffer;

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

// (The bytes of a boxed slice stay in place.)
ringway_torture::custom_buffer!(PanickingBuffer, |this| this.0, true);
