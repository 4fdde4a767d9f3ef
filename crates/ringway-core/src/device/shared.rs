//! Facts about a device, read once for all files that are open on it.
//!
//! They are kept only while one of these files is open: until then no other device can take its
//! place (a loop device gets another image, with other block sizes, only after the file system on
//! it was unmounted). If an administrator changes a limit (`max_sectors_kb`), queues use the new
//! value after all files were closed; until then the kernel splits requests that are too long.
//!
//! One fact is kept longer, because it takes many system calls to read and a caller that makes a
//! [`File`](crate::File) for each operation would read it for each: whether the driver takes whole
//! pages only.

use super::{block, is_transient};
use crate::lookup::Lookup;
use crate::submit_waits::system::statx;
use crate::sys::{RawFd, libc};
use crate::thread;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};

/// Major and minor number.
pub(super) type DeviceNumber = (u32, u32);

/// Facts that the files of a device share; each is read when first needed.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// The number of the block device. It differs from that of the files if the file system is on
    /// several devices.
    block: Lookup<Option<DeviceNumber>>,
    largest_request: Lookup<Option<u32>>,
    block_size: Lookup<Option<u32>>,
    whole_pages: Lookup<bool>,
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
    /// The device with this number, shared by all its users. `block` finds the number of the block
    /// device.
    pub(super) fn of(
        number: DeviceNumber,
        block: impl FnOnce() -> Option<DeviceNumber>,
    ) -> Arc<Self> {
        let device = DEVICES.of(number);
        device.block.get_or_look_up(block);
        device
    }

    /// The device with this number, of which nothing is looked up.
    pub(super) fn with_number(number: DeviceNumber) -> Arc<Self> {
        DEVICES.of(number)
    }

    /// Requests that the queue of the device with this number holds before a submitter must wait;
    /// `None` if there is no such limit. Does not wait: while a thread reads it, it is few.
    pub(super) fn requests(self: &Arc<Self>, number: DeviceNumber) -> Option<u32> {
        match self.requests.load(Ordering::Relaxed) {
            UNREAD => {
                self.start_reading(number);
                Some(FEW_REQUESTS)
            }
            READING => Some(FEW_REQUESTS),
            NOT_KNOWN => None,
            requests => Some(requests),
        }
    }

    /// Reads the size of the queue on a thread: sysfs takes a lock of the device.
    fn start_reading(self: &Arc<Self>, (major, minor): DeviceNumber) {
        if self.requests.swap(READING, Ordering::Relaxed) != UNREAD {
            return;
        }
        let device = self.clone();
        let read = move || {
            let requests = block::nr_requests(major, minor).unwrap_or(NOT_KNOWN);
            device.requests.store(requests.clamp(1, NOT_KNOWN), Ordering::Relaxed);
        };
        // Without a thread it stays few.
        let _ = thread::start_thread(c"ringway-device", 64 << 10, read);
    }

    /// Bytes of the largest request that the device takes without splitting it; `None` if unknown.
    pub(crate) fn largest_request(&self) -> Option<u32> {
        let read = |(major, minor)| block::max_sectors_kb(major, minor)?.checked_mul(1024);
        *self.largest_request.get_or_look_up(|| self.number().and_then(read))
    }

    /// Bytes of the smallest addressable unit; `None` if unknown.
    pub(super) fn block_size(&self) -> Option<u32> {
        let read = |(major, minor)| block::logical_block_size(major, minor);
        *self.block_size.get_or_look_up(|| self.number().and_then(read))
    }

    /// Whether its driver takes whole pages only ([`AlignmentSource::Driver`]). `holder` finds what
    /// the file at hand is on. `None`: that cannot be read now.
    ///
    /// [`AlignmentSource::Driver`]: super::AlignmentSource::Driver
    pub(super) fn takes_whole_pages(
        &self,
        holder: impl FnOnce() -> Option<Holder>,
    ) -> Option<bool> {
        if let Some(known) = self.whole_pages.get() {
            return Some(*known);
        }
        let Some((major, minor)) = self.number() else { return Some(false) };
        if block::is_plain(major) {
            return Some(false);
        }
        let key = holder().map(|holder| (holder, (major, minor)));
        let found = match WHOLE_PAGES.of(key, || block::takes_whole_pages(major, minor)) {
            Ok(found) => found,
            Err(error) if is_transient(&error) => return None,
            Err(error) => block::assumed_whole_pages(&error),
        };
        Some(*self.whole_pages.get_or_look_up(|| found))
    }

    /// Whether the device polls for completions; `None` if unknown. Opens one sysfs file.
    pub(crate) fn polls(&self) -> Option<bool> {
        self.number().and_then(|(major, minor)| block::io_poll(major, minor))
    }

    fn number(&self) -> Option<DeviceNumber> {
        self.block.get().copied().flatten()
    }
}

/// The request queue of a file's device.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    number: DeviceNumber,
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
        (number.0 != 0).then(|| Self { number, device: Device::with_number(number) })
    }

    /// The device, as a number.
    pub(crate) fn id(&self) -> u64 {
        u64::from(self.number.0) << 32 | u64::from(self.number.1)
    }

    /// Requests that it holds before a submitter must wait; `None` if there is no such limit.
    #[inline]
    pub(crate) fn requests(&self) -> Option<u32> {
        self.device.requests(self.number)
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

static WHOLE_PAGES: WholePages = WholePages(Mutex::new(BTreeMap::new()));

/// How many answers are kept.
const MOST_ANSWERS: usize = 64;

/// Whether the drivers of devices take whole pages only.
struct WholePages(Mutex<BTreeMap<(Holder, DeviceNumber), bool>>);

impl WholePages {
    /// The answer for a device, which is kept if its holder is known. Holds no lock while it is
    /// looked up, and waits for none, as [`DeviceCache::of`].
    fn of(
        &self,
        key: Option<(Holder, DeviceNumber)>,
        look_up: impl FnOnce() -> io::Result<bool>,
    ) -> io::Result<bool> {
        let Some(key) = key else { return look_up() };
        if let Some(known) = self.with(|answers| answers.get(&key).copied()).flatten() {
            return Ok(known);
        }
        let answer = look_up()?;
        self.with(|answers| {
            if answers.len() >= MOST_ANSWERS {
                answers.clear();
            }
            answers.insert(key, answer)
        });
        Ok(answer)
    }

    fn with<R>(
        &self,
        work: impl FnOnce(&mut BTreeMap<(Holder, DeviceNumber), bool>) -> R,
    ) -> Option<R> {
        match self.0.try_lock() {
            Ok(mut answers) => Some(work(&mut answers)),
            Err(TryLockError::Poisoned(answers)) => Some(work(&mut answers.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

static DEVICES: DeviceCache = DeviceCache(Mutex::new(BTreeMap::new()));

/// The devices in use.
struct DeviceCache(Mutex<BTreeMap<DeviceNumber, Weak<Device>>>);

impl DeviceCache {
    /// Makes no system call while it holds the lock, and does not wait for it: in a forked child it
    /// may be held by a thread that the child does not have. Then the device is not shared, and its
    /// facts are read once more.
    fn of(&self, number: DeviceNumber) -> Arc<Device> {
        let mut devices = match self.0.try_lock() {
            Ok(devices) => devices,
            Err(TryLockError::Poisoned(devices)) => devices.into_inner(),
            Err(TryLockError::WouldBlock) => return Arc::default(),
        };
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
    fn facts_are_read_once_while_a_device_is_in_use() {
        let devices = DeviceCache(Mutex::default());
        let asked = AtomicU32::new(0);
        let read = |device: &Device| {
            *device.largest_request.get_or_look_up(|| Some(asked.fetch_add(1, Ordering::Relaxed)))
        };
        let first = devices.of((8, 1));
        for _ in 0..4 {
            assert_eq!(read(&devices.of((8, 1))), Some(0));
        }
        assert_eq!(read(&devices.of((8, 2))), Some(1), "another device");
        assert_eq!(read(&first), Some(0));
        drop(first);
        assert_eq!(read(&devices.of((8, 1))), Some(2), "it may be another one by now");
    }

    #[test]
    fn whether_pages_must_be_whole_is_kept_for_a_mount_and_for_a_disk() {
        let answers = WholePages(Mutex::default());
        let asked = AtomicU32::new(0);
        let of = |key, answer: io::Result<bool>| {
            let look_up = || {
                asked.fetch_add(1, Ordering::Relaxed);
                answer
            };
            (answers.of(key, look_up).ok(), asked.load(Ordering::Relaxed))
        };
        let (mount, disk) = (Holder::Mount(1), Holder::Disk(1));
        let key = |holder| Some((holder, (259, 0)));
        assert_eq!(of(key(mount), Err(io::Error::from_raw_os_error(libc::EMFILE))), (None, 1));
        assert_eq!(of(key(mount), Ok(true)), (Some(true), 2), "an error is not kept");
        assert_eq!(of(key(mount), Ok(false)), (Some(true), 2));
        assert_eq!(of(key(disk), Ok(false)), (Some(false), 3));
        assert_eq!(of(key(disk), Ok(true)), (Some(false), 3));
        assert_eq!(of(Some((mount, (259, 1))), Ok(false)), (Some(false), 4), "another device");
        assert_eq!(of(key(Holder::Mount(2)), Ok(false)), (Some(false), 5), "another mount");
        assert_eq!(of(None, Ok(true)), (Some(true), 6));
        assert_eq!(of(None, Ok(false)), (Some(false), 7), "it may be another device by now");
        let held = answers.0.lock();
        assert_eq!(of(key(mount), Ok(false)), (Some(false), 8), "no lock is waited for");
        drop(held);
        for number in 0..1000 {
            of(key(Holder::Mount(number)), Ok(false));
        }
        assert!(answers.0.lock().unwrap().len() <= MOST_ANSWERS);
    }

    #[test]
    fn a_lock_that_is_held_is_not_waited_for() {
        let devices = DeviceCache(Mutex::default());
        let shared = devices.of((8, 1));
        let held = devices.0.lock();
        let other = devices.of((8, 1));
        drop(held);
        assert!(!Arc::ptr_eq(&shared, &other) && Arc::ptr_eq(&shared, &devices.of((8, 1))));
    }

    #[test]
    fn unused_devices_take_no_memory() {
        let devices = DeviceCache(Mutex::default());
        let kept = devices.of((8, 0));
        for minor in 0..1000 {
            drop(devices.of((7, minor)));
        }
        assert!(devices.0.lock().unwrap().len() <= 2);
        assert!(Arc::ptr_eq(&kept, &devices.of((8, 0))));
    }
}
