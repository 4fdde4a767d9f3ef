//! Keeps the storage transfers that a shard has in one device below the size of the device's
//! queue. Beyond that, the kernel makes the thread that submits a transfer wait, also where it was
//! asked not to. Transfers that would be too many wait here, in order, without I/O and locks.

use super::limiter::Limiter;
use super::submission::{Pending, Waiter};
use ringway_core::{OpId, Operation, Table};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// A device that completes nothing for this long does not take its transfers in order. Further ones
/// are then submitted by threads that may wait.
const DEVICE_HUNG_AFTER: Duration = Duration::from_secs(1);

/// The share of a queue that all shards use together. The rest is for other programs, and for the
/// schedulers that leave a part of it to some kinds of requests.
const SHARE: [usize; 2] = [3, 4];

/// The devices of a shard's transfers.
#[derive(Debug)]
pub(super) struct Devices {
    list: Vec<DeviceQueue>,
    /// Shards that use each device; `None` without limits.
    shards: Option<NonZeroUsize>,
    /// The most transfers of one device that may count as hung.
    max_hung: usize,
    /// Transfers that wait for their devices.
    pending: usize,
}

#[derive(Debug)]
struct DeviceQueue {
    id: u64,
    /// The size of its queue.
    requests: u32,
    limiter: Limiter,
    /// Transfers that wait for this device.
    pending: Pending,
}

impl DeviceQueue {
    /// Transfers that wait and have room now.
    fn ready(&self) -> usize {
        self.pending.len().min(self.limiter.available())
    }
}

/// How many transfers at most each of `shards` shards has in a device with such a queue.
fn limit(requests: u32, shards: NonZeroUsize) -> usize {
    let [share, of] = SHARE;
    (requests as usize / of * share / shards).max(1)
}

impl Devices {
    /// For one of `shards` shards; at most `max_hung` transfers of a device count as hung.
    pub(super) fn shared_by(shards: usize, max_hung: usize) -> Self {
        Self { list: Vec::new(), shards: NonZeroUsize::new(shards), max_hung, pending: 0 }
    }

    /// Where submitting does not wait for devices.
    pub(super) fn without_limits() -> Self {
        Self { list: Vec::new(), shards: None, max_hung: 0, pending: 0 }
    }

    /// Whether a transfer may be submitted now. If not, it waits for its device.
    pub(super) fn admit(&mut self, table: &mut Table<Waiter>, id: OpId, now: Instant) -> bool {
        let Some(shards) = self.shards else { return true };
        let queue = table.operation(id).and_then(Operation::request_queue);
        let Some((device, requests)) = queue else { return true };
        let at = self.find(device, requests, shards);
        let device = &mut self.list[at];
        let has_room = device.limiter.available() > 0 && device.pending.len() == 0;
        if has_room {
            self.acquire(table, id, at, now)
        } else {
            device.pending.push(table, id);
            self.pending += 1;
            if let Some(waiter) = table.attachment(id) {
                (waiter.device, waiter.waits_for_device) = (u16::try_from(at).ok(), true);
            }
        }
        has_room
    }

    /// A transfer that waited and may be submitted now.
    #[inline]
    pub(super) fn next(&mut self, table: &mut Table<Waiter>, now: Instant) -> Option<OpId> {
        if self.pending == 0 { None } else { self.next_of_many(table, now) }
    }

    fn next_of_many(&mut self, table: &mut Table<Waiter>, now: Instant) -> Option<OpId> {
        let at = self.list.iter().position(|device| device.ready() > 0)?;
        let id = self.list[at].pending.pop(table)?;
        self.pending -= 1;
        if let Some(waiter) = table.attachment(id) {
            waiter.waits_for_device = false;
        }
        self.acquire(table, id, at, now);
        Some(id)
    }

    /// Counts a transfer that is about to be submitted. If others of its device are hung, the
    /// device's queue may be full.
    fn acquire(&mut self, table: &mut Table<Waiter>, id: OpId, at: usize, now: Instant) {
        let limiter = &mut self.list[at].limiter;
        let requests = table.operation(id).map_or(1, Operation::device_requests);
        let permit = limiter.acquire_many(1, requests, now);
        if limiter.has_hung() {
            table.submit_by_worker(id);
        }
        if let Some(waiter) = table.attachment(id) {
            (waiter.device, waiter.device_permit) = (u16::try_from(at).ok(), permit);
        }
    }

    /// A submitted transfer has completed.
    pub(super) fn release(&mut self, waiter: &Waiter, now: Instant) {
        if let Some(device) = waiter.device.and_then(|at| self.list.get_mut(usize::from(at))) {
            device.limiter.release(waiter.device_permit, now);
        }
    }

    /// Removes a transfer that waits for its device.
    pub(super) fn remove(&mut self, table: &mut Table<Waiter>, id: OpId) {
        let device = table.attachment(id).and_then(|waiter| waiter.device);
        if let Some(device) = device.and_then(|at| self.list.get_mut(usize::from(at))) {
            device.pending.remove(table, id);
            self.pending -= 1;
        }
    }

    /// Transfers that wait for their devices.
    #[inline]
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Those of them that have room now.
    #[inline]
    pub(super) fn ready(&self) -> usize {
        if self.pending == 0 { 0 } else { self.list.iter().map(DeviceQueue::ready).sum() }
    }

    /// Whether transfers wait for a device of which others may soon count as hung.
    pub(super) fn is_blocked(&self) -> bool {
        if self.pending == 0 {
            return false;
        }
        let is_blocked = |device: &DeviceQueue| {
            device.pending.len() > 0 && device.ready() == 0 && device.limiter.may_exclude()
        };
        self.list.iter().any(is_blocked)
    }

    /// Excludes hung transfers of devices that others wait for. Returns true if that makes room.
    pub(super) fn exclude_hung(&mut self, now: Instant) -> bool {
        let waiting = self.list.iter_mut().filter(|device| device.pending.len() > 0);
        waiting.fold(false, |freed, device| device.limiter.exclude_hung(now) | freed)
    }

    /// The device's place in the list, with the limit of a queue of this size from now on.
    fn find(&mut self, id: u64, requests: u32, shards: NonZeroUsize) -> usize {
        if let Some(at) = self.list.iter().position(|device| device.id == id) {
            let device = &mut self.list[at];
            if device.requests != requests {
                device.requests = requests;
                device.limiter.set_limit(limit(requests, shards));
            }
            return at;
        }
        // A device that nothing uses makes place.
        let unused = |device: &DeviceQueue| device.pending.len() == 0 && device.limiter.is_unused();
        let limiter = Limiter::new(limit(requests, shards));
        let limiter = limiter.exclude_hung_after(DEVICE_HUNG_AFTER, self.max_hung);
        let device = DeviceQueue { id, requests, limiter, pending: Pending::default() };
        match self.list.iter().position(unused) {
            Some(at) => {
                self.list[at] = device;
                at
            }
            None => {
                self.list.push(device);
                self.list.len() - 1
            }
        }
    }
}

#[cfg(all(test, not(ringway_loom)))]
mod tests {
    use super::*;
    use ringway_core::{BackendKind, Options, op};

    /// A table, and a file on a disk whose queue is known; `None` without one.
    fn table() -> Option<(Table<Waiter>, ringway_core::Backends, ringway_core::File)> {
        let file = ringway_core::File::from(tempfile::tempfile().unwrap());
        let requests = || op::read(&file, vec![0], 0).request_queue().map(|(_, requests)| requests);
        let Some(assumed) = requests() else {
            println!("skipped: the temporary folder is not on a disk");
            return None;
        };
        // A thread reads its size. (It may be the assumed one.)
        let until = Instant::now() + Duration::from_secs(2);
        while requests() == Some(assumed) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        if requests().is_none() {
            println!("skipped: the size of the disk's queue is not known");
            return None;
        }
        let options = Options::new().backend(BackendKind::Null);
        let (table, backends) = options.build_parts::<Waiter>().unwrap();
        Some((table, backends, file))
    }

    #[test]
    fn a_share_of_the_queue_is_divided_among_the_shards() {
        let limit = |requests, shards| limit(requests, NonZeroUsize::new(shards).unwrap());
        assert_eq!(limit(64, 1), 48);
        assert_eq!(limit(64, 2), 24);
        assert_eq!((limit(1, 8), limit(u32::MAX, 1) > 1 << 20), (1, true));
    }

    /// A long direct transfer is several requests to the device at once.
    #[cfg(target_os = "linux")]
    #[test]
    fn long_direct_transfers_count_as_their_requests() {
        use std::os::unix::fs::OpenOptionsExt as _;
        let Some((mut table, mut backends, _file)) = table() else { return };
        let named = tempfile::NamedTempFile::new().unwrap();
        let open = std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(&named);
        let Ok(open) = open else { return println!("skipped: no direct I/O on this file system") };
        let file = ringway_core::File::from(open);
        let Some(largest) = file.largest_request() else {
            return println!("skipped: the device states no largest request");
        };
        let read = |requests: usize| op::read(&file, vec![0; largest as usize * requests], 0);
        let counts = [1, 2, 8, 20].map(|requests| read(requests).device_requests());
        assert_eq!(counts, [1, 2, 8, 8]);
        let write = op::write(&file, vec![0; largest as usize * 20], 0);
        assert_eq!(write.device_requests(), 20);
        let most = limit(read(1).request_queue().unwrap().1, NonZeroUsize::MIN);
        let mut devices = Devices::shared_by(1, 8);
        let now = Instant::now();
        let admitted = (0..most).take_while(|_| {
            let id = table.insert(read(8), Waiter::default()).unwrap();
            devices.admit(&mut table, id, now)
        });
        assert_eq!(admitted.count(), most.div_ceil(8));
        table.shut_down(&mut backends, Duration::ZERO);
    }

    #[test]
    fn transfers_beyond_the_limit_wait_in_order() {
        let Some((mut table, mut backends, file)) = table() else { return };
        let mut devices = Devices::shared_by(1, 8);
        let now = Instant::now();
        let insert = |table: &mut Table<Waiter>| {
            table.insert(op::read(&file, vec![0], 0), Waiter::default()).unwrap()
        };
        let all: Vec<OpId> = (0..5000).map(|_| insert(&mut table)).collect();
        let (admitted, waiting): (Vec<OpId>, Vec<OpId>) =
            all.into_iter().partition(|id| devices.admit(&mut table, *id, now));
        assert!((1..5000).contains(&admitted.len()));
        assert_eq!((devices.pending(), devices.ready()), (waiting.len(), 0));
        assert_eq!(devices.next(&mut table, now), None);
        devices.release(table.attachment(admitted[0]).unwrap(), now);
        assert_eq!(devices.ready(), 1);
        let late = insert(&mut table);
        assert!(!devices.admit(&mut table, late, now), "others were first");
        assert_eq!(devices.next(&mut table, now), Some(waiting[0]));
        devices.remove(&mut table, waiting[1]);
        devices.release(table.attachment(admitted[1]).unwrap(), now);
        assert_eq!(devices.next(&mut table, now), Some(waiting[2]));
        assert!(devices.is_blocked() && devices.exclude_hung(now + DEVICE_HUNG_AFTER));
        assert!(devices.ready() > 0, "hung transfers use no room");
        table.shut_down(&mut backends, Duration::ZERO);
    }
}
