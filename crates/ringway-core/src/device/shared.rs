//! Facts about a device, read once for all files that are open on it.
//!
//! They are kept only while one of these files is open: until then no other device can take its
//! place (a loop device gets another image, with other block sizes, only after the file system on
//! it was unmounted). If an administrator changes a limit (`max_sectors_kb`), queues use the new
//! value after all files were closed; until then the kernel splits requests that are too long.
//!
//! What a caller that makes a [`File`](crate::File) for each operation would read for each is kept
//! a moment longer ([`answers`](super::answers)). So is whether the driver takes whole pages only,
//! which may change while a file is open, if the device is stacked on others.

use super::answers::{Answer, Answers, FOR_EVER, MOMENT, is_transient};
use super::block::{self, WholePages};
use super::now;
use crate::lookup::RepeatedLookup;
use crate::submit_waits::system::statx;
use crate::sys::{RawFd, libc};
use crate::thread;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::time::Duration;

/// Major and minor number.
pub(super) type DeviceNumber = (u32, u32);

/// Facts that the files of a device share; each is read when first needed.
#[derive(Debug)]
pub(crate) struct Device {
    number: DeviceNumber,
    largest_request: RepeatedLookup<Option<u32>>,
    block_size: RepeatedLookup<Option<Option<u32>>>,
    whole_pages: KnownPages,
    /// Requests that its queue holds; or one of the values below.
    requests: AtomicU32,
}

/// Values of `requests`: not read yet, being read, and not known.
const UNREAD: u32 = 0;
const READING: u32 = u32::MAX - 1;
const NOT_KNOWN: u32 = u32::MAX;

/// How many requests a queue surely holds.
const FEW_REQUESTS: u32 = 32;

impl Device {
    /// The block device with a number that holds files with the number `files`, shared by all of
    /// them. The two differ if the file system is on several devices: one of those may be removed
    /// and become another device, whose files share other facts.
    pub(super) fn of(files: DeviceNumber, number: DeviceNumber) -> Arc<Self> {
        DEVICES.of(files, number)
    }

    fn new(number: DeviceNumber) -> Self {
        Self {
            number,
            largest_request: RepeatedLookup::new(),
            block_size: RepeatedLookup::new(),
            whole_pages: KnownPages::default(),
            requests: AtomicU32::new(UNREAD),
        }
    }

    /// Requests that the device's queue holds before a submitter must wait; `None` if there is no
    /// such limit. Does not wait: while a thread reads it, it is few.
    pub(super) fn requests(self: &Arc<Self>) -> Option<u32> {
        match self.requests.load(Ordering::Relaxed) {
            UNREAD => {
                self.start_reading();
                Some(FEW_REQUESTS)
            }
            READING => Some(FEW_REQUESTS),
            NOT_KNOWN => None,
            requests => Some(requests),
        }
    }

    /// Reads the size of the queue on a thread: sysfs takes a lock of the device.
    fn start_reading(self: &Arc<Self>) {
        if self.requests.swap(READING, Ordering::Relaxed) != UNREAD {
            return;
        }
        let device = self.clone();
        let read = move || {
            let requests = match device.read_requests() {
                Ok(requests) => requests.unwrap_or(NOT_KNOWN).clamp(1, NOT_KNOWN),
                Err(_) => {
                    std::thread::sleep(Duration::from_nanos(MOMENT));
                    UNREAD
                }
            };
            device.requests.store(requests, Ordering::Relaxed);
        };
        // Without a thread it stays few.
        let _ = thread::start_thread(c"ringway-device", 64 << 10, read);
    }

    fn read_requests(&self) -> io::Result<Option<u32>> {
        block::nr_requests(self.number.0, self.number.1)
    }

    /// Bytes of the largest request that the device takes without splitting it; `None` if unknown.
    pub(crate) fn largest_request(&self) -> Option<u32> {
        static LARGEST: Answers<DeviceNumber, Option<u32>> = Answers::new();
        let read = || {
            let now = now();
            let answer = LARGEST.of(now, self.number, || {
                let kib = block::max_sectors_kb(self.number.0, self.number.1)?;
                let value = kib.and_then(|kib| kib.checked_mul(1024));
                Ok(Answer { value, until: now + MOMENT })
            });
            (answer.as_ref().ok().and_then(|answer| answer.value), answer.is_ok())
        };
        *self.largest_request.get_or_look_up((now, MOMENT), read)
    }

    /// Bytes of the smallest addressable unit, if it has one. `None`: that cannot be read now.
    pub(super) fn block_size(&self) -> Option<Option<u32>> {
        let read = || {
            let size = block::logical_block_size(self.number.0, self.number.1).ok();
            (size, size.is_some())
        };
        *self.block_size.get_or_look_up((now, MOMENT), read)
    }

    /// Whether its driver takes whole pages only ([`AlignmentSource::Driver`]), or that cannot be
    /// read now. `holder` finds what the file at hand is on.
    ///
    /// [`AlignmentSource::Driver`]: super::AlignmentSource::Driver
    pub(super) fn takes_whole_pages(&self, holder: impl FnOnce() -> Option<Holder>) -> bool {
        static ANSWERS: Answers<(Option<Holder>, DeviceNumber), WholePages> = Answers::new();
        let (major, minor) = self.number;
        if block::is_plain(major) {
            return false;
        }
        let now = now();
        if let Some(known) = self.whole_pages.get(now) {
            return known;
        }
        let until = |lasts: bool| if lasts { FOR_EVER } else { now + MOMENT };
        // What cannot be read any more is as it was.
        let last = self.whole_pages.last();
        let holder = holder();
        let look_up = || {
            let value = match block::takes_whole_pages(major, minor) {
                Err(error) if is_transient(&error) => return Err(error),
                Err(error) => {
                    let required = last.unwrap_or_else(|| block::assumed_whole_pages(&error));
                    WholePages { required, may_change: true }
                }
                Ok(found) => found,
            };
            Ok(Answer { value, until: until(!value.may_change && holder.is_some()) })
        };
        let found = ANSWERS.of(now, (holder, self.number), look_up);
        let unknown = WholePages { required: last.unwrap_or(true), may_change: true };
        let WholePages { required, may_change } = found.map_or(unknown, |answer| answer.value);
        // (While a file is open, no other device has its number.)
        self.whole_pages.set(Answer { value: required, until: until(!may_change) });
        required
    }

    /// Whether the device polls for completions; `None` if unknown. Opens one sysfs file.
    pub(crate) fn polls(&self) -> Option<bool> {
        block::io_poll(self.number.0, self.number.1)
    }
}

/// Whether the driver takes whole pages only, and until when that is known, in one word: the time,
/// whose lowest bit is the answer.
#[derive(Debug, Default)]
struct KnownPages(AtomicU64);

impl KnownPages {
    fn get(&self, now: u64) -> Option<bool> {
        let word = self.0.load(Ordering::Relaxed);
        (now | 1 < word | 1).then_some(word & 1 != 0)
    }

    /// The answer that was given last.
    fn last(&self) -> Option<bool> {
        let word = self.0.load(Ordering::Relaxed);
        (word != 0).then_some(word & 1 != 0)
    }

    fn set(&self, answer: Answer<bool>) {
        self.0.store(answer.until & !1 | u64::from(answer.value), Ordering::Relaxed);
    }
}

/// The request queue of a file's device.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    device: Arc<Device>,
}

impl RequestQueue {
    /// That of the device that holds a regular file, or that the file is. `None` for other files
    /// and for file systems without a device of their own. One system call, which does not wait.
    pub(crate) fn of(fd: RawFd) -> Option<Self> {
        let inode = statx(fd, libc::STATX_TYPE)?;
        let number = match u32::from(inode.stx_mode) & libc::S_IFMT {
            libc::S_IFREG => (inode.stx_dev_major, inode.stx_dev_minor),
            libc::S_IFBLK => (inode.stx_rdev_major, inode.stx_rdev_minor),
            _ => return None,
        };
        (number.0 != 0).then(|| Self { device: Device::of(number, number) })
    }

    /// The device, as a number.
    pub(crate) fn id(&self) -> u64 {
        let (major, minor) = self.device.number;
        u64::from(major) << 32 | u64::from(minor)
    }

    /// Requests that it holds before a submitter must wait; `None` if there is no such limit.
    #[inline]
    pub(crate) fn requests(&self) -> Option<u32> {
        self.device.requests()
    }
}

/// What keeps the number of a device from becoming another's while it exists. The kernel never uses
/// these numbers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    /// The mount of a file (`STATX_MNT_ID_UNIQUE`).
    Mount(u64),
    /// The disk that the file is, or a partition of (`BLKGETDISKSEQ`).
    Disk(u64),
}

static DEVICES: DeviceCache = DeviceCache(Mutex::new(BTreeMap::new()));

/// The devices in use, by the number of their files and their own.
struct DeviceCache(Mutex<BTreeMap<(DeviceNumber, DeviceNumber), Weak<Device>>>);

impl DeviceCache {
    /// Makes no system call while it holds the lock, and does not wait for it: in a forked child it
    /// may be held by a thread that the child does not have. Then the device is not shared, and its
    /// facts are read once more.
    fn of(&self, files: DeviceNumber, number: DeviceNumber) -> Arc<Device> {
        let mut devices = match self.0.try_lock() {
            Ok(devices) => devices,
            Err(TryLockError::Poisoned(devices)) => devices.into_inner(),
            Err(TryLockError::WouldBlock) => return Arc::new(Device::new(number)),
        };
        let key = (files, number);
        if let Some(device) = devices.get(&key).and_then(Weak::upgrade) {
            return device;
        }
        devices.retain(|_, device| device.strong_count() > 0);
        let device = Arc::new(Device::new(number));
        devices.insert(key, Arc::downgrade(&device));
        device
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn facts_are_read_once_while_a_device_is_in_use() {
        let devices = DeviceCache(Mutex::default());
        let asked = AtomicU32::new(0);
        let read = |device: &Device| {
            let read = || (Some(asked.fetch_add(1, Ordering::Relaxed)), true);
            *device.largest_request.get_or_look_up((now, MOMENT), read)
        };
        let first = devices.of((8, 1), (8, 1));
        for _ in 0..4 {
            assert_eq!(read(&devices.of((8, 1), (8, 1))), Some(0));
        }
        assert_eq!(read(&devices.of((8, 2), (8, 2))), Some(1), "another device");
        assert_eq!(read(&devices.of((0, 50), (8, 1))), Some(2), "it may be another one by now");
        assert_eq!(read(&first), Some(0));
        drop(first);
        assert_eq!(read(&devices.of((8, 1), (8, 1))), Some(3), "it may be another one by now");
    }

    #[test]
    fn whole_pages_are_known_for_a_while() {
        let known = KnownPages::default();
        assert_eq!((known.get(0), known.last()), (None, None));
        for value in [false, true] {
            known.set(Answer { value, until: 100 });
            assert_eq!(known.last(), Some(value));
            assert_eq!((known.get(98), known.get(100), known.get(101)), (Some(value), None, None));
            known.set(Answer { value, until: FOR_EVER });
            assert_eq!(known.get(FOR_EVER >> 1), Some(value));
        }
    }

    #[test]
    fn a_lock_that_is_held_is_not_waited_for() {
        let devices = DeviceCache(Mutex::default());
        let of = || devices.of((8, 1), (8, 1));
        let shared = of();
        let held = devices.0.lock();
        let other = of();
        drop(held);
        assert!(!Arc::ptr_eq(&shared, &other) && Arc::ptr_eq(&shared, &of()));
    }

    #[test]
    fn unused_devices_take_no_memory() {
        let devices = DeviceCache(Mutex::default());
        let kept = devices.of((8, 0), (8, 0));
        for minor in 0..1000 {
            drop(devices.of((7, minor), (7, minor)));
        }
        assert!(devices.0.lock().unwrap().len() <= 2);
        assert!(Arc::ptr_eq(&kept, &devices.of((8, 0), (8, 0))));
    }
}
