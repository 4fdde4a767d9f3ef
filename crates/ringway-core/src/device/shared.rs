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
pub(super) type DeviceNumber = (u32, u32);

/// What files on one device share. Each fact is asked for when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// The block device: not that of the files where a file system is on several.
    block: OnceLock<Option<DeviceNumber>>,
    largest_request: OnceLock<Option<u32>>,
    block_size: OnceLock<Option<u32>>,
}

impl Device {
    /// The one with this number, shared with all who have it. `block` finds the block device's own
    /// number.
    pub(super) fn of(
        number: DeviceNumber,
        block: impl FnOnce() -> Option<DeviceNumber>,
    ) -> Arc<Self> {
        let device = DEVICES.of(number);
        device.block.get_or_init(block);
        device
    }

    /// Bytes of the largest request that it takes undivided; `None` where that is not devices.
    pub(crate) fn largest_request(&self) -> Option<u32> {
        let read = |(major, minor)| block::max_sectors_kb(major, minor)?.checked_mul(1024);
        *self.largest_request.get_or_init(|| self.number().and_then(read))
    }

    /// Bytes of the smallest unit it addresses; `None` where that is not devices.
    pub(super) fn block_size(&self) -> Option<u32> {
        let read = |(major, minor)| block::logical_block_size(major, minor);
        *self.block_size.get_or_init(|| self.number().and_then(read))
    }

    fn number(&self) -> Option<DeviceNumber> {
        self.block.get().copied().flatten()
    }
}

static DEVICES: DeviceCache = DeviceCache(Mutex::new(BTreeMap::new()));

/// Those that somebody has.
struct DeviceCache(Mutex<BTreeMap<DeviceNumber, Weak<Device>>>);

impl DeviceCache {
    /// No system call is made while the lock is held.
    fn of(&self, number: DeviceNumber) -> Arc<Device> {
        let mut devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = devices.get(&number).and_then(Weak::upgrade) {
            return device;
        }
        devices.retain(|_, device| device.strong_count() > 0);
        let device = Arc::default();
        devices.insert(number, Arc::downgrade(&device));
        device
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_device_is_asked_once_for_all_who_have_it_and_again_when_nobody_has() {
        let devices = DeviceCache(Mutex::default());
        let asked = AtomicU32::new(0);
        let read = |device: &Device| {
            *device.largest_request.get_or_init(|| Some(asked.fetch_add(1, Ordering::Relaxed)))
        };
        let first = devices.of((8, 1));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(read(&devices.of((8, 1))), Some(0)));
            }
        });
        assert_eq!(read(&devices.of((8, 2))), Some(1), "another device");
        assert_eq!(read(&first), Some(0));
        drop(first);
        assert_eq!(read(&devices.of((8, 1))), Some(2), "it may be another one by now");
    }

    #[test]
    fn those_that_nobody_has_take_no_memory() {
        let devices = DeviceCache(Mutex::default());
        let kept = devices.of((8, 0));
        (0..1000).for_each(|minor| drop(devices.of((7, minor))));
        assert!(devices.0.lock().unwrap().len() <= 2);
        assert!(Arc::ptr_eq(&kept, &devices.of((8, 0))));
    }
}
