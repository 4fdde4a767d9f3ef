//! Facts about a device, asked once for all files that are open on it.
//!
//! They are kept for as long as one of these files is open, and no longer: while one is, nobody can
//! put another device in its place (a loop device has another image, with other blocks, only after
//! the file system on it was unmounted). Limits that an administrator changes meanwhile
//! (`max_sectors_kb`) are seen when all of them have been closed; a request that is too long by
//! then is cut by the kernel.

use super::block;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Major and minor number.
pub(super) type Number = (u32, u32);

/// What files on one device share. Each fact is asked for when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// The block device: not that of the files where a file system is on several.
    block: OnceLock<Option<Number>>,
    largest_request: OnceLock<Option<u32>>,
    block_size: OnceLock<Option<u32>>,
}

impl Device {
    /// The one with this number, shared with all who have it. `block` finds the block device's own
    /// number.
    pub(super) fn of(number: Number, block: impl FnOnce() -> Option<Number>) -> Arc<Self> {
        let device = KNOWN.of(number);
        device.block.get_or_init(block);
        device
    }

    /// Bytes of the largest request that it takes undivided; `None` where that is not known.
    pub(crate) fn largest_request(&self) -> Option<u32> {
        let ask = |(major, minor)| block::max_sectors_kb(major, minor)?.checked_mul(1024);
        *self.largest_request.get_or_init(|| self.number().and_then(ask))
    }

    /// Bytes of the smallest unit it addresses; `None` where that is not known.
    pub(super) fn block_size(&self) -> Option<u32> {
        let ask = |(major, minor)| block::logical_block_size(major, minor);
        *self.block_size.get_or_init(|| self.number().and_then(ask))
    }

    fn number(&self) -> Option<Number> {
        self.block.get().copied().flatten()
    }
}

static KNOWN: Known = Known(Mutex::new(BTreeMap::new()));

/// Those that somebody has.
struct Known(Mutex<BTreeMap<Number, Weak<Device>>>);

impl Known {
    /// No system call is made while the lock is held.
    fn of(&self, number: Number) -> Arc<Device> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = known.get(&number).and_then(Weak::upgrade) {
            return device;
        }
        known.retain(|_, device| device.strong_count() > 0);
        let device = Arc::default();
        known.insert(number, Arc::downgrade(&device));
        device
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_device_is_asked_once_for_all_who_have_it_and_again_when_nobody_has() {
        let known = Known(Mutex::default());
        let asked = AtomicU32::new(0);
        let ask = |device: &Device| {
            *device.largest_request.get_or_init(|| Some(asked.fetch_add(1, Ordering::Relaxed)))
        };
        let first = known.of((8, 1));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(ask(&known.of((8, 1))), Some(0)));
            }
        });
        assert_eq!(ask(&known.of((8, 2))), Some(1), "another device");
        assert_eq!(ask(&first), Some(0));
        drop(first);
        assert_eq!(ask(&known.of((8, 1))), Some(2), "it may be another one by now");
    }

    #[test]
    fn those_that_nobody_has_take_no_memory() {
        let known = Known(Mutex::default());
        let kept = known.of((8, 0));
        (0..1000).for_each(|minor| drop(known.of((7, minor))));
        assert!(known.0.lock().unwrap().len() <= 2);
        assert!(Arc::ptr_eq(&kept, &known.of((8, 0))));
    }
}
