//! The namespace behind an NVMe generic character device (`/dev/ng0n1`): its identifier, its blocks
//! and its limits. The commands to it are in `op::nvme`.
//!
//! References: the NVM Command Set Specification ("Identify Namespace"), `linux/nvme_ioctl.h`.

use super::{Inode, StorageKind, block};
use crate::refusal::{Feature, Refusal, errno_of};
use crate::sys::RawFd;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// A namespace as one open file shows it.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// Its identifier (NSID).
    pub id: u32,
    /// The size of a logical block is 2 to the power of this.
    pub block_shift: u8,
    /// Its size in bytes.
    pub len: u64,
    /// Bytes of the longest command, in whole blocks. At least
    /// [`MIN_LARGEST`].
    pub largest: u32,
    /// The most pages that the data of one command may be in.
    pub pages: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// The file is open for reading; for writing. Before kernel 6.2 nothing else prevents that a
    /// command of a privileged process writes through a descriptor that is open for reading.
    pub readable: bool,
    pub writable: bool,
    /// Whether its device has queues to poll.
    pub polls: bool,
}

/// A namespace with shorter commands than this is refused: shorter transfers are never split.
const MIN_LARGEST: u32 = 64 << 10;

/// A command has 16 bits for its number of blocks, less one.
const MAX_BLOCKS: u32 = 1 << 16;

/// The namespace behind a descriptor, or why it cannot be used. `None` if the descriptor is not one
/// of an NVMe generic device.
pub(super) fn namespace(fd: BorrowedFd<'_>, inode: &Inode) -> Option<Result<Namespace, Refusal>> {
    Some(read(fd, &name(inode)?))
}

/// The name of an NVMe generic device (`ng0n1`); `None` for anything else.
pub(super) fn name(inode: &Inode) -> Option<String> {
    if inode.kind != StorageKind::Character {
        return None;
    }
    let (major, minor) = inode.special;
    let device = PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
    let class = fs::read_link(device.join("subsystem")).ok()?;
    if class.file_name()? != "nvme-generic" {
        return None;
    }
    Some(fs::read_link(&device).ok()?.file_name()?.to_str()?.to_owned())
}

/// Reads the facts about the namespace of the device `name` (`ng0n1`).
fn read(fd: BorrowedFd<'_>, name: &str) -> Result<Namespace, Refusal> {
    let refuse = |error: io::Error| Refusal::new(Feature::Passthrough, errno_of(&error));
    let id = identifier(fd).map_err(refuse)?;
    let description = identify(fd, id).map_err(refuse)?;
    let format = Format::parse(&description).map_err(unsuitable)?;
    let disk = name.replacen("ng", "nvme", 1);
    let queue = Path::new("/sys/class/block").join(disk).join("queue");
    let limit = |name: &str| block::read_number::<u32>(&queue.join(name)).map_err(refuse);
    let (Some(kib), Some(segments)) = (limit("max_sectors_kb")?, limit("max_segments")?) else {
        return Err(unsuitable("its block device, which shows its limits, is not in /sys"));
    };
    let polls = limit("io_poll")? == Some(1);
    let page_size = page_size();
    let largest = largest_command(kib, segments, page_size, format.block_shift);
    if largest < MIN_LARGEST {
        return Err(unsuitable("its longest command has less than 64 KiB"));
    }
    // SAFETY: `fcntl` with F_GETFL takes numbers only, and the borrow keeps `fd` open.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    let access = flags & libc::O_ACCMODE;
    Ok(Namespace {
        id,
        block_shift: format.block_shift,
        len: format.blocks << format.block_shift,
        largest,
        pages: segments,
        page_size,
        readable: access == libc::O_RDONLY || access == libc::O_RDWR,
        writable: access == libc::O_WRONLY || access == libc::O_RDWR,
        polls,
    })
}

/// Bytes of the longest command: at most one request of the device, at most as many pages as it
/// takes, wherever in a page the buffer begins, and at most as many blocks as a command can name.
/// (A device without a limit of its own leaves the request's to the administrator.)
fn largest_command(kib: u32, segments: u32, page_size: u32, block_shift: u8) -> u32 {
    let most = kib.saturating_mul(1024).min(segments.saturating_sub(1).saturating_mul(page_size));
    (most >> block_shift).min(MAX_BLOCKS) << block_shift
}

fn unsuitable(why: &str) -> Refusal {
    Refusal {
        feature: Feature::Passthrough,
        errno: libc::EOPNOTSUPP,
        meaning: format!("the namespace is not suitable: {why}"),
        fix: "open the block device (/dev/nvme0n1) for direct I/O".to_owned(),
    }
}

fn page_size() -> u32 {
    // SAFETY: sysconf returns a constant of the system and accesses no memory of this process.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// `_IO('N', 0x40)`: returns the identifier of the namespace.
const NVME_IOCTL_ID: libc::Ioctl = 0x4e40;

/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)`: makes an administrative command.
const NVME_IOCTL_ADMIN_CMD: libc::Ioctl = 0xc048_4e41_u32 as libc::Ioctl;

/// The command Identify.
const IDENTIFY: u8 = 0x06;

fn identifier(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the request takes no argument, and the borrow keeps `fd` open.
    let id = unsafe { libc::ioctl(fd.as_raw_fd(), NVME_IOCTL_ID) };
    u32::try_from(id).map_err(|_| io::Error::last_os_error())
}

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct Command {
    opcode: u8,
    flags: u8,
    _reserved: u16,
    nsid: u32,
    cdw2: [u32; 2],
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    /// Zeroes: the data structure of the namespace is wanted (CNS 0).
    cdw10: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// Asks the controller for the description of a namespace. Errors: EACCES without CAP_SYS_ADMIN
/// (before kernel 6.2); EIO if the controller refuses it.
fn identify(fd: BorrowedFd<'_>, nsid: u32) -> io::Result<Box<[u8; 4096]>> {
    let mut data = Box::new([0; 4096]);
    let mut command = Command {
        opcode: IDENTIFY,
        nsid,
        addr: data.as_mut_ptr().expose_provenance() as u64,
        data_len: data.len() as u32,
        ..Command::default()
    };
    // SAFETY: the kernel reads and writes one command, and writes at most `data_len` bytes to
    // `data`; both live until the call returns, and the borrow keeps `fd` open.
    match unsafe { libc::ioctl(fd.as_raw_fd(), NVME_IOCTL_ADMIN_CMD, &raw mut command) } {
        0 => Ok(data),
        ..0 => Err(io::Error::last_os_error()),
        _status => Err(io::Error::from_raw_os_error(libc::EIO)),
    }
}

/// `_IOWR('N', 0x43, struct nvme_passthru_cmd)`: makes a command to a namespace.
const NVME_IOCTL_IO_CMD: libc::Ioctl = 0xc048_4e43_u32 as libc::Ioctl;

/// The command Flush.
pub(crate) const FLUSH: u8 = 0x00;

/// Makes everything durable that was written to the namespace. Blocks until the device has done it.
/// Returns the status field of its completion: 0 for success.
///
/// Errors, as errno: EBADF; ENOTTY if the descriptor is of something else; EACCES without
/// CAP_SYS_ADMIN (before kernel 6.2); EAGAIN if a multipath device has no path; EINTR if the device
/// did not answer in time, and what was written may be lost.
pub(crate) fn flush(fd: RawFd, nsid: u32) -> Result<u16, i32> {
    let mut command = Command { opcode: FLUSH, nsid, ..Command::default() };
    // SAFETY: the kernel reads and writes one command, which lives until the call returns.
    match unsafe { libc::ioctl(fd, NVME_IOCTL_IO_CMD, &raw mut command) } {
        ..0 => Err(errno_of(&io::Error::last_os_error())),
        status => Ok(status as u16),
    }
}

/// The blocks of a namespace.
#[derive(Debug, PartialEq, Eq)]
struct Format {
    block_shift: u8,
    blocks: u64,
}

impl Format {
    /// Reads the description that Identify returns, or says why such blocks are not supported.
    fn parse(data: &[u8; 4096]) -> Result<Self, &'static str> {
        const LBA_FORMAT_SIZE: usize = 26;
        const PROTECTION: usize = 29;
        const FORMATS: usize = 128;
        let blocks = u64::from_le_bytes(std::array::from_fn(|at| data[at]));
        let in_use = data[LBA_FORMAT_SIZE];
        let index = usize::from(in_use & 0xf | in_use >> 1 & 0x30);
        let format: [u8; 4] = std::array::from_fn(|at| data[FORMATS + index * 4 + at]);
        let block_shift = format[2];
        if data[PROTECTION] & 7 != 0 {
            return Err("it has protection information");
        }
        if format[..2] != [0, 0] {
            return Err("its blocks have metadata");
        }
        if !(9..=16).contains(&block_shift) {
            return Err("its blocks have less than 512 bytes, or more than 64 KiB");
        }
        // Offsets of files end there.
        if blocks > i64::MAX as u64 >> block_shift {
            return Err("its size is wrong");
        }
        Ok(Self { block_shift, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A description: LBA format, its metadata bytes, its block shift, protection, blocks.
    fn description(index: u8, metadata: u8, shift: u8, protection: u8, blocks: u64) -> [u8; 4096] {
        let mut data = [0; 4096];
        data[..8].copy_from_slice(&blocks.to_le_bytes());
        data[26] = index & 0xf | (index & 0x30) << 1;
        data[29] = protection;
        data[128 + usize::from(index) * 4] = metadata;
        data[128 + usize::from(index) * 4 + 2] = shift;
        data
    }

    #[test]
    fn the_description_of_a_namespace() {
        for index in [0, 4, 15, 16, 63] {
            assert_eq!(
                Format::parse(&description(index, 0, 12, 0, 1 << 20)),
                Ok(Format { block_shift: 12, blocks: 1 << 20 })
            );
        }
        assert!(Format::parse(&description(1, 8, 9, 0, 8)).unwrap_err().contains("metadata"));
        assert!(Format::parse(&description(1, 0, 9, 1, 8)).unwrap_err().contains("protection"));
        assert!(Format::parse(&description(1, 0, 0, 0, 8)).is_err());
        assert!(Format::parse(&description(1, 0, 200, 0, 8)).is_err());
        assert!(Format::parse(&description(1, 0, 9, 0, u64::MAX)).is_err());
        assert!(Format::parse(&[0xff; 4096]).is_err());
    }

    #[test]
    fn the_longest_command_fits_the_device_wherever_its_buffer_begins() {
        assert_eq!(largest_command(128, 127, 4096, 9), 128 << 10);
        assert_eq!(largest_command(1280, 127, 4096, 9), 126 * 4096);
        assert_eq!(largest_command(1280, 127, 4096, 16), 7 << 16);
        assert_eq!(largest_command(4, 0, 4096, 9), 0);
        assert_eq!(largest_command(64 << 10, u32::MAX, 4096, 9), 32 << 20);
        assert_eq!(largest_command(u32::MAX, u32::MAX, 4096, 12), 256 << 20);
        assert_eq!(largest_command(u32::MAX, u32::MAX, 4096, 16), u32::MAX >> 16 << 16);
    }

    #[test]
    fn other_devices_have_no_namespace() {
        use std::os::fd::AsFd;
        let null = fs::File::open("/dev/null").unwrap();
        let inode = Inode::of(&super::super::fstat(null.as_fd()).unwrap());
        assert!(namespace(null.as_fd(), &inode).is_none());
    }

    #[test]
    fn commands_have_the_size_that_their_numbers_say() {
        assert_eq!(size_of::<Command>(), (NVME_IOCTL_ADMIN_CMD as u32 >> 16 & 0x3fff) as usize);
    }

    /// Only an NVMe device knows the request.
    #[test]
    fn nothing_else_is_flushed() {
        let null = fs::File::open("/dev/null").unwrap();
        assert_eq!(flush(null.as_raw_fd(), 1), Err(libc::ENOTTY));
        assert_eq!(flush(-1, 1), Err(libc::EBADF));
    }
}
