//! Block devices as sysfs describes them, and whether one is in use.

use super::answers::{found, is_transient};
use super::mounts::{Mounts, unescape};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind::NotFound, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the kernel lists block devices by number.
const BY_NUMBER: &str = "/sys/dev/block";

/// A block device and its request queue. A partition shows the queue of its disk; a stacked device
/// (dm, md) its own. A field is `None` if this kernel or device does not report it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct DeviceFacts {
    /// `vda`, `nvme0n1p2`, `dm-0`.
    pub name: String,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// The current scheduler: `none`, `mq-deadline`.
    pub scheduler: Option<String>,
    /// Requests that the queue holds before a submitter must wait.
    pub nr_requests: Option<u32>,
    /// Whether completions can be polled for, as IOPOLL requires.
    pub io_poll: Option<bool>,
    /// KiB of the largest request that is not split.
    pub max_sectors_kb: Option<u32>,
    /// Whether it is a spinning disk.
    pub rotational: Option<bool>,
    /// Whether it has a cache that loses its content with the power: a durable write flushes it.
    pub write_back: Option<bool>,
    /// Whether one write can go past that cache (FUA), instead of a flush.
    pub fua: Option<bool>,
    /// Bytes of the smallest addressable unit.
    pub logical_block_size: Option<u32>,
    /// Bytes of the smallest unit that is written without a read first.
    pub physical_block_size: Option<u32>,
}

impl DeviceFacts {
    /// Facts about the device with this number; `None` if sysfs does not have it, or cannot be read
    /// for want of a descriptor.
    pub fn of_number(major: u32, minor: u32) -> Option<Self> {
        Self::read(major, minor).ok().flatten()
    }

    /// The same. Errors: those after which another try may succeed.
    pub(super) fn read(major: u32, minor: u32) -> io::Result<Option<Self>> {
        Self::from_sysfs(Path::new(BY_NUMBER), major, minor)
    }

    fn from_sysfs(by_number: &Path, major: u32, minor: u32) -> io::Result<Option<Self>> {
        let device = by_number.join(format!("{major}:{minor}"));
        let Some(queue) = queue_of(&device) else { return Ok(None) };
        let text = |name| found(fs::read_to_string(queue.join(name)));
        let number = |name| text(name).map(|text| text?.trim().parse::<u32>().ok());
        let flag = |name| number(name).map(|flag| flag.map(|flag| flag != 0));
        Ok(Some(Self {
            name: name_of(&device)?.unwrap_or_else(|| format!("{major}:{minor}")),
            major,
            minor,
            scheduler: text("scheduler")?.and_then(|text| bracketed(&text)),
            nr_requests: number("nr_requests")?,
            io_poll: flag("io_poll")?,
            max_sectors_kb: number("max_sectors_kb")?,
            rotational: flag("rotational")?,
            write_back: text("write_cache")?.map(|text| text.trim() == "write back"),
            fua: flag("fua")?,
            logical_block_size: number("logical_block_size")?,
            physical_block_size: number("physical_block_size")?,
        }))
    }
}

/// `vda, scheduler mq-deadline, nr_requests 256`
impl fmt::Display for DeviceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(scheduler) = &self.scheduler {
            write!(f, ", scheduler {scheduler}")?;
        }
        if let Some(requests) = self.nr_requests {
            write!(f, ", nr_requests {requests}")?;
        }
        Ok(())
    }
}

/// Reads `max_sectors_kb` only. Errors, as of the next ones: another try may succeed.
pub(super) fn max_sectors_kb(major: u32, minor: u32) -> io::Result<Option<u32>> {
    limit(major, minor, "max_sectors_kb")
}

/// Reads `logical_block_size` only.
pub(super) fn logical_block_size(major: u32, minor: u32) -> io::Result<Option<u32>> {
    limit(major, minor, "logical_block_size")
}

/// Reads `io_poll` only: whether the device polls for completions.
pub(super) fn io_poll(major: u32, minor: u32) -> Option<bool> {
    limit(major, minor, "io_poll").ok().flatten().map(|flag| flag != 0)
}

/// Reads `nr_requests` only.
pub(super) fn nr_requests(major: u32, minor: u32) -> io::Result<Option<u32>> {
    limit(major, minor, "nr_requests")
}

/// Whether the driver of a device takes whole pages only and does not refuse others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WholePages {
    pub required: bool,
    /// What the device is stacked on may be replaced while it is in use (dm, md).
    pub may_change: bool,
}

/// Whether a device takes whole pages only: zram, and what is stacked on it. Errors: that cannot be
/// read.
pub(super) fn takes_whole_pages(major: u32, minor: u32) -> io::Result<WholePages> {
    let always = |required| WholePages { required, may_change: false };
    if is_plain(major) {
        return Ok(always(false));
    }
    let drivers = match fs::read_to_string("/proc/devices") {
        Err(error) if is_transient(&error) => return Err(error),
        drivers => drivers.unwrap_or_default(),
    };
    match Driver::of(major, &drivers) {
        Driver::Zram => Ok(always(true)),
        Driver::Plain => {
            PLAIN.insert(major);
            Ok(always(false))
        }
        driver => {
            let device = Path::new(BY_NUMBER).join(format!("{major}:{minor}"));
            let below = Below::of(&device, STACKED)?;
            // (A mapped device may be on nothing for now.)
            let may_change = driver == Driver::Stacked || below != Below::Nothing;
            Ok(WholePages { required: below == Below::Zram, may_change })
        }
    }
}

/// What [`takes_whole_pages`] is taken to be where it cannot be read: true, except where there is
/// no sysfs.
pub(super) fn assumed_whole_pages(error: &io::Error) -> bool {
    error.kind() != NotFound
}

/// Whether the driver with this major number is known to take any memory.
pub(super) fn is_plain(major: u32) -> bool {
    PLAIN.has(major)
}

/// What the driver with a major number makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Zram,
    /// Devices that are stacked on others.
    Stacked,
    /// Partitions of any disks, or disks; or it is not known.
    Any,
    /// Disks.
    Plain,
}

impl Driver {
    /// `devices` is the text of `/proc/devices`: the character devices, then the block devices.
    fn of(major: u32, devices: &str) -> Self {
        let block = devices.split_once("Block devices:").map_or("", |(_, block)| block);
        let mut lines = block.lines().filter_map(|line| line.trim().split_once(' '));
        match lines.find(|(number, _)| number.parse() == Ok(major)) {
            Some((_, "zram")) => Self::Zram,
            Some((_, "device-mapper" | "md" | "mdp")) => Self::Stacked,
            Some((_, "blkext")) | None => Self::Any,
            Some(_) => Self::Plain,
        }
    }
}

/// Majors of drivers that were found to be [`Driver::Plain`]. A driver keeps its major while there
/// are devices of it.
static PLAIN: Majors = Majors([const { AtomicU64::new(0) }; 64]);

/// A set of majors, which have 12 bits.
struct Majors([AtomicU64; 64]);

impl Majors {
    fn has(&self, major: u32) -> bool {
        let bits = self.0.get(major as usize / 64);
        bits.is_some_and(|bits| bits.load(Ordering::Relaxed) & 1 << (major % 64) != 0)
    }

    fn insert(&self, major: u32) {
        if let Some(bits) = self.0.get(major as usize / 64) {
            bits.fetch_or(1 << (major % 64), Ordering::Relaxed);
        }
    }
}

/// Devices on top of each other that are looked through.
const STACKED: usize = 8;

/// What a device is, or is stacked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Below {
    Nothing,
    Others,
    Zram,
}

impl Below {
    /// That of a device of sysfs, a link. More than `depth` devices on top of each other may be on
    /// zram.
    fn of(device: &Path, depth: usize) -> io::Result<Self> {
        let is_zram = |part: &OsStr| part.to_str().is_some_and(|name| name.starts_with("zram"));
        if depth == 0 || fs::read_link(device)?.iter().any(is_zram) {
            return Ok(Self::Zram);
        }
        let mut found = Self::Nothing;
        // (What is below a partition is below its disk.)
        for folder in ["slaves", "../slaves"] {
            let below = match fs::read_dir(device.join(folder)) {
                Err(error) if error.kind() == NotFound => continue,
                below => below?,
            };
            for other in below {
                if Self::of(&other?.path(), depth - 1)? == Self::Zram {
                    return Ok(Self::Zram);
                }
                found = Self::Others;
            }
        }
        Ok(found)
    }
}

/// Reads a number of a device's queue. (`read_to_string` would make twice as many system calls.)
fn limit(major: u32, minor: u32, name: &str) -> io::Result<Option<u32>> {
    let device = Path::new(BY_NUMBER).join(format!("{major}:{minor}"));
    for queue in queues(&device) {
        let Some(mut file) = found(fs::File::open(queue.join(name)))? else { continue };
        let mut text = [0; 32];
        let len = found(file.read(&mut text))?.unwrap_or(0);
        let text = str::from_utf8(&text[..len]).ok();
        return Ok(text.and_then(|text| text.trim().parse().ok()));
    }
    Ok(None)
}

/// Major and minor number of the block device at a path; `None` for anything else.
pub(super) fn number_of_path(path: &Path) -> Option<(u32, u32)> {
    let metadata = fs::metadata(path).ok()?;
    metadata
        .file_type()
        .is_block_device()
        .then(|| (libc::major(metadata.rdev()), libc::minor(metadata.rdev())))
}

/// The `queue` directory of a device.
fn queue_of(device: &Path) -> Option<PathBuf> {
    queues(device).into_iter().find(|queue| queue.is_dir())
}

/// Where it may be: a partition has none, and is in the directory of its disk.
fn queues(device: &Path) -> [PathBuf; 2] {
    [device.join("queue"), device.join("../queue")]
}

/// The device's name below `/dev`. Unlike the name of the directory it is right for devices such as
/// `cciss/c0d0`, which sysfs writes with a `!`. Errors: those after which another try may succeed.
fn name_of(device: &Path) -> io::Result<Option<String>> {
    let uevent = found(fs::read_to_string(device.join("uevent")))?.unwrap_or_default();
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    Ok(name.map(str::to_owned))
}

/// The entry in brackets of a list such as `none [mq-deadline] kyber`; a single word is returned as
/// it is.
fn bracketed(list: &str) -> Option<String> {
    let list = list.trim();
    match list.split_once('[') {
        Some((_, rest)) => rest.split_once(']').map(|(bracketed, _)| bracketed.to_owned()),
        None => (!list.is_empty()).then(|| list.to_owned()),
    }
}

/// The number in a file; `None` if there is none. Errors: those after which another try may
/// succeed.
pub(super) fn read_number<N: FromStr>(path: &Path) -> io::Result<Option<N>> {
    Ok(found(fs::read_to_string(path))?.and_then(|text| text.trim().parse().ok()))
}

/// Whether a block device or a partition of it is in use, and how: mounted, as swap, held by a
/// stacked device, or opened exclusively. `None` means that no use is known at this moment; it is
/// no promise.
///
/// A device that another container has mounted is found only by the exclusive open, and a program
/// that has it open without `O_EXCL` is not found.
///
/// # Errors
///
/// Those of `stat(2)` on the path; `InvalidInput` if it is not a block device; those of opening it
/// for reading (EACCES, ENOMEDIUM) if no other use was found; EMFILE, ENFILE or ENOMEM of reading
/// the mounts. Blocks as long as that open does.
pub fn block_device_in_use(path: impl AsRef<Path>) -> io::Result<Option<String>> {
    let path = path.as_ref();
    let metadata = fs::metadata(path)?;
    if !metadata.file_type().is_block_device() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not a block device", path.display()),
        ));
    }
    let number = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    let nodes = DeviceNode::all(Path::new(BY_NUMBER), number);
    let mut found = find_holder(&nodes);
    if found.is_none() {
        found = find_mount(&nodes, &Mounts::of_this_thread()?)
            .or_else(|| find_swap(&nodes, &fs::read("/proc/swaps").unwrap_or_default()));
    }
    if found.is_some() {
        return Ok(found);
    }
    // Without O_CREAT, O_EXCL on a block device requests exclusive use, which file systems, swap
    // and stacked devices hold.
    let opened =
        OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path);
    match opened {
        Ok(_) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Ok(Some("opened exclusively (by a file system, RAID or LVM)".to_owned()))
        }
        Err(error) => Err(error),
    }
}

/// A device or one of its partitions.
struct DeviceNode {
    name: String,
    number: (u32, u32),
    /// Its sysfs directory.
    folder: PathBuf,
}

impl DeviceNode {
    /// The device and its partitions; only the device if sysfs cannot be read.
    fn all(by_number: &Path, (major, minor): (u32, u32)) -> Vec<Self> {
        let folder = by_number.join(format!("{major}:{minor}"));
        let partitions = entries(&folder).into_iter().filter_map(|name| {
            let folder = folder.join(name);
            if !folder.join("partition").is_file() {
                return None;
            }
            let text = fs::read_to_string(folder.join("dev")).ok()?;
            let (major, minor) = text.trim().split_once(':')?;
            Some(Self {
                name: name_of(&folder).ok()??,
                number: (major.parse().ok()?, minor.parse().ok()?),
                folder,
            })
        });
        let mut all: Vec<_> = partitions.collect();
        all.insert(
            0,
            Self {
                name: name_of(&folder).ok().flatten().unwrap_or_else(|| format!("{major}:{minor}")),
                number: (major, minor),
                folder,
            },
        );
        all
    }
}

/// The names in a directory; none if it cannot be read.
fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn find_holder(nodes: &[DeviceNode]) -> Option<String> {
    nodes.iter().find_map(|node| {
        let holder = entries(&node.folder.join("holders")).into_iter().next()?;
        Some(format!("{} is part of {holder}", node.name))
    })
}

fn find_mount(nodes: &[DeviceNode], mounts: &Mounts) -> Option<String> {
    mounts.iter().find_map(|mount| {
        let node = nodes.iter().find(|node| {
            // A file system on several devices has an anonymous number, but names one of its
            // devices.
            node.number == mount.device
                || (mount.source.starts_with("/dev/")
                    && number_of_path(&mount.source) == Some(node.number))
        })?;
        let mount_point = String::from_utf8_lossy(&mount.mount_point);
        Some(format!("{} is mounted on {mount_point}", node.name))
    })
}

/// `swaps` is the text of `/proc/swaps`: a header line, then a line for each, starting with its
/// path, whose bytes may have any encoding.
fn find_swap(nodes: &[DeviceNode], swaps: &[u8]) -> Option<String> {
    swaps.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let path = unescape(line.split(u8::is_ascii_whitespace).next()?);
        let number = number_of_path(Path::new(OsStr::from_bytes(&path)))?;
        let node = nodes.iter().find(|node| node.number == number)?;
        Some(format!("{} is used as swap", node.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A disk 8:0 with a queue, a partition 8:1 of it and a stacked device 253:0 that holds the
    /// partition.
    fn sysfs() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("sda/uevent", "MAJOR=8\nMINOR=0\nDEVNAME=sda\n");
        file("sda/queue/scheduler", "none [mq-deadline] kyber\n");
        file("sda/queue/nr_requests", "256\n");
        file("sda/queue/max_sectors_kb", "1280\n");
        file("sda/queue/io_poll", "0\n");
        file("sda/queue/rotational", "1\n");
        file("sda/queue/write_cache", "write back\n");
        file("sda/queue/fua", "0\n");
        file("sda/queue/logical_block_size", "512\n");
        file("sda/queue/physical_block_size", "4096\n");
        file("sda/sda1/uevent", "DEVNAME=sda1\n");
        file("sda/sda1/partition", "1\n");
        file("sda/sda1/dev", "8:1\n");
        file("sda/sda1/holders/dm-0", "");
        file("dm-0/uevent", "DEVNAME=dm-0\n");
        file("dm-0/queue/scheduler", "none\n");
        file("dm-0/queue/max_sectors_kb", "512\n");
        file("dm-0/queue/write_cache", "write through\n");
        fs::create_dir(root.path().join("block")).unwrap();
        for (number, target) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("253:0", "dm-0")] {
            symlink(Path::new("..").join(target), root.path().join("block").join(number)).unwrap();
        }
        root
    }

    fn facts(sysfs: &tempfile::TempDir, major: u32, minor: u32) -> Option<DeviceFacts> {
        DeviceFacts::from_sysfs(&sysfs.path().join("block"), major, minor).unwrap()
    }

    #[test]
    fn zram_is_found_below_partitions_and_stacked_devices() {
        let root = tempfile::tempdir().unwrap();
        let folder = |path: &str| fs::create_dir_all(root.path().join(path)).unwrap();
        let link = |to: &str, at: &str| symlink(to, root.path().join(at)).unwrap();
        for path in ["sda/sda1", "zram1", "dm-0/slaves", "md0/slaves", "md0/md0p1", "x/slaves"] {
            folder(path);
        }
        folder("dm-1/slaves");
        let devices = ["sda", "sda/sda1", "zram1", "dm-0", "md0", "md0/md0p1", "x", "dm-1"];
        folder("dev");
        for (at, device) in devices.iter().enumerate() {
            link(&format!("../{device}"), &format!("dev/{at}"));
        }
        link("../../sda", "dm-0/slaves/sda");
        link("../../sda", "dm-1/slaves/sda");
        link("../../zram1", "dm-0/slaves/zram1");
        link("../../dm-0", "md0/slaves/dm-0");
        link("../../x", "x/slaves/x"); // As no kernel has it.
        let found = |at: usize| Below::of(&root.path().join(format!("dev/{at}")), STACKED);
        let found: Vec<Below> = (0..devices.len()).map(|at| found(at).unwrap()).collect();
        let (zram, nothing) = (Below::Zram, Below::Nothing);
        assert_eq!(found, [nothing, nothing, zram, zram, zram, zram, zram, Below::Others]);
        assert_eq!(Below::of(&root.path().join("dev/8"), STACKED).unwrap_err().kind(), NotFound);
    }

    #[test]
    fn drivers_are_those_of_block_devices() {
        let text = "Character devices:\n  9 st\n254 zram\n\nBlock devices:\n  9 md\n259 blkext\n\
                    253 zram\n254 virtblk\n";
        let of = |major| Driver::of(major, text);
        assert_eq!([9, 259, 7].map(of), [Driver::Stacked, Driver::Any, Driver::Any]);
        assert_eq!((of(253), of(254)), (Driver::Zram, Driver::Plain));
        assert_eq!(Driver::of(253, ""), Driver::Any);
        let majors = Majors(std::array::from_fn(|_| AtomicU64::new(0)));
        for major in [0, 63, 64, 4095, 4096, u32::MAX] {
            assert!(!majors.has(major));
            majors.insert(major);
            assert_eq!(majors.has(major), major < 4096);
        }
        assert!(!majors.has(1) && !majors.has(65));
    }

    #[test]
    fn a_partition_has_its_own_name_and_its_disks_queue() {
        let root = sysfs();
        let disk = facts(&root, 8, 0).unwrap();
        let partition = facts(&root, 8, 1).unwrap();
        assert_eq!(
            disk,
            DeviceFacts {
                name: "sda".to_owned(),
                major: 8,
                minor: 0,
                scheduler: Some("mq-deadline".to_owned()),
                nr_requests: Some(256),
                io_poll: Some(false),
                max_sectors_kb: Some(1280),
                rotational: Some(true),
                write_back: Some(true),
                fua: Some(false),
                logical_block_size: Some(512),
                physical_block_size: Some(4096),
            }
        );
        assert_eq!(partition, DeviceFacts { name: "sda1".to_owned(), minor: 1, ..disk });
    }

    #[test]
    fn a_stacked_device_has_its_own_queue_and_may_report_less() {
        let root = sysfs();
        let stacked = facts(&root, 253, 0).unwrap();
        assert_eq!(stacked.max_sectors_kb, Some(512));
        assert_eq!(stacked.scheduler.as_deref(), Some("none"));
        assert_eq!((stacked.nr_requests, stacked.fua), (None, None));
        assert_eq!(stacked.write_back, Some(false));
        assert_eq!(stacked.to_string(), "dm-0, scheduler none");
    }

    #[test]
    fn an_unknown_number_is_no_device() {
        let root = sysfs();
        assert_eq!(facts(&root, 9, 9), None);
    }

    #[test]
    fn a_disk_is_held_if_its_partition_is() {
        let root = sysfs();
        let nodes = DeviceNode::all(&root.path().join("block"), (8, 0));
        assert_eq!(nodes.len(), 2);
        assert_eq!(find_holder(&nodes).as_deref(), Some("sda1 is part of dm-0"));
        let stacked = DeviceNode::all(&root.path().join("block"), (253, 0));
        assert_eq!(find_holder(&stacked), None);
    }

    #[test]
    fn a_disk_is_mounted_if_its_partition_is() {
        let root = sysfs();
        let nodes = DeviceNode::all(&root.path().join("block"), (8, 0));
        let mounts = Mounts::parse(b"27 1 8:1 / /home rw - ext4 /dev/none rw");
        assert_eq!(find_mount(&nodes, &mounts).as_deref(), Some("sda1 is mounted on /home"));
        let mounts = Mounts::parse(b"27 1 8:2 / /home rw - ext4 /dev/none rw");
        assert_eq!(find_mount(&nodes, &mounts), None);
    }

    #[test]
    fn the_chosen_scheduler_is_the_one_in_brackets() {
        assert_eq!(bracketed("[none] mq-deadline kyber \n").as_deref(), Some("none"));
        assert_eq!(bracketed("none\n").as_deref(), Some("none"));
        assert_eq!(bracketed("\n"), None);
    }

    #[test]
    fn only_block_devices_can_be_in_use() {
        let error = block_device_in_use(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
