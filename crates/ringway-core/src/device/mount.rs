//! Which mount, and with it which file system, a file is on. Finding it calls no server: `fstat(2)`
//! and `fstatfs(2)` of a file on FUSE, NFS and the like would wait for one.

use super::answers::{Answer, Answers, MOMENT, found};
use super::file_systems::{FileSystem, by_name};
use super::mounts::{MountOptions, Mounts};
use super::shared::DeviceNumber;
use super::{StatxMask, block, now, quick_statx};
use crate::sys::libc;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, TryLockError, Weak};

/// A mount, as far as it decides about its files.
#[derive(Debug)]
pub(crate) struct Mount {
    /// `None` if nothing is known of it.
    pub(super) file_system: Option<&'static FileSystem>,
    /// It is an overlay each of whose files is in one layer.
    pub(super) has_whole_files: bool,
    id: MountId,
    /// The block device that it names.
    block: Answers<(), Option<DeviceNumber>>,
}

/// What identifies a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MountId {
    /// No other mount ever has this number (kernel 6.8).
    Unique(u64),
    /// Another mount may have this number once no file of this one is open.
    Reused(u64),
}

impl Mount {
    /// The mount of an open file; `None` if it is not visible to this process: one of another
    /// namespace, above the root directory, or of the kernel's own (memory of `memfd_create(2)`).
    ///
    /// It must be dropped before the file is closed: then its number may become another mount's.
    ///
    /// Errors: as for [`Mounts::of_this_thread`].
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Option<Arc<Self>>> {
        let Some(id) = MountId::of(fd)? else { return Ok(None) };
        let mut failed = None;
        let found = MOUNTS.of(id, || {
            // (`statmount(2)`, 6.8, is quicker, but a filter may end the process for a call that is
            // newer than its list.)
            let mounts = Mounts::of_this_thread().map_err(|error| failed = Some(error)).ok()?;
            let reused = reused_id(fd).map_err(|error| failed = Some(error)).ok()??;
            let found = mounts.with_id(reused)?;
            let file_system = by_name(&found.file_system);
            let default = |option: &str| {
                module_default(option).map_err(|error| failed = Some(error)).ok().flatten()
            };
            let has_whole_files =
                found.file_system == OVERLAY && has_whole_files(&found.options, default);
            failed.is_none().then_some(Self {
                file_system,
                has_whole_files,
                id,
                block: Answers::new(),
            })
        });
        failed.map_or(Ok(found), Err)
    }

    /// Whether the number of the mount may become another's, so that it is looked up again unless
    /// somebody holds it.
    pub(super) fn is_reused(&self) -> bool {
        matches!(self.id, MountId::Reused(_))
    }

    /// The block device that the mount names; a file system on several devices has others too, and
    /// names another one when this one is removed from it.
    ///
    /// Errors: as for [`Mounts::of_this_thread`].
    pub(super) fn block_device(&self, fd: BorrowedFd<'_>) -> io::Result<Option<DeviceNumber>> {
        let now = now();
        let look_up = || {
            let id = match self.id {
                MountId::Reused(id) => Some(id),
                MountId::Unique(_) => reused_id(fd)?,
            };
            let mounts = Mounts::of_this_thread()?;
            let mount = id.and_then(|id| mounts.with_id(id));
            let value = mount.and_then(|mount| block::number_of_path(&mount.source));
            Ok(Answer { value, until: now + MOMENT })
        };
        self.block.of(now, (), look_up).map(|answer| answer.value)
    }
}

const OVERLAY: &str = "overlay";

/// Whether no file of an overlay has its metadata in one layer and its data in another
/// (`metacopy`, layers with data only). `default` returns what an option is that is not shown.
fn has_whole_files(options: &MountOptions, default: impl FnOnce(&str) -> Option<bool>) -> bool {
    const OPTION: &str = "metacopy";
    let shown = options.iter().find(|(name, _)| *name == OPTION.as_bytes());
    let metacopy = shown.map_or_else(|| default(OPTION), |(_, value)| Some(value != b"off"));
    let has_data = |(name, value): (&[u8], &[u8])| {
        name.starts_with(b"datadir") || value.windows(2).any(|pair| pair == b"::")
    };
    metacopy == Some(false) && !options.iter().any(has_data)
}

/// An overlay shows the options that differ from those of the module.
/// Errors: those after which another try may succeed.
fn module_default(option: &str) -> io::Result<Option<bool>> {
    let text = found(fs::read_to_string(format!("/sys/module/overlay/parameters/{option}")))?;
    Ok(match text.as_deref().map(str::trim) {
        Some("N") => Some(false),
        Some("Y") => Some(true),
        _ => None,
    })
}

impl MountId {
    /// Errors: those after which another try may succeed.
    fn of(fd: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let statx = quick_statx(fd, StatxMask::UNIQUE_MOUNT);
        match statx.filter(|statx| statx.stx_mask & StatxMask::UNIQUE_MOUNT != 0) {
            Some(statx) => Ok(Some(Self::Unique(statx.stx_mnt_id))),
            None => reused_id(fd).map(|id| id.map(Self::Reused)),
        }
    }
}

/// The number of a file's mount in `/proc/thread-self/mountinfo`: from `statx(2)` (5.8), otherwise
/// from `/proc`. Errors: those after which another try may succeed.
fn reused_id(fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    let statx = quick_statx(fd, libc::STATX_MNT_ID);
    match statx.filter(|statx| statx.stx_mask & libc::STATX_MNT_ID != 0) {
        Some(statx) => Ok(Some(statx.stx_mnt_id)),
        None => {
            let path = format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd());
            let text = found(fs::read_to_string(path))?.unwrap_or_default();
            let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
            Ok(id.and_then(|id| id.trim().parse().ok()))
        }
    }
}

static MOUNTS: MountCache = MountCache(Mutex::new(BTreeMap::new()));

/// How many mounts are kept that no open file uses.
const KEPT: usize = 64;

/// The mounts of open files. One whose number is never reused is kept longer.
struct MountCache(Mutex<BTreeMap<MountId, Entry>>);

enum Entry {
    Kept(Arc<Mount>),
    InUse(Weak<Mount>),
}

impl MountCache {
    /// The mount with this number. Holds no lock during system calls, and waits for none, as in a
    /// forked child it may be held by a thread that the child does not have.
    fn of(&self, id: MountId, look_up: impl FnOnce() -> Option<Mount>) -> Option<Arc<Mount>> {
        let known = self.with(|mounts| match mounts.get(&id) {
            Some(Entry::Kept(mount)) => Some(mount.clone()),
            Some(Entry::InUse(mount)) => mount.upgrade(),
            None => None,
        });
        if let Some(known) = known.flatten() {
            return Some(known);
        }
        let found = Arc::new(look_up()?);
        self.with(|mounts| {
            if mounts.len() >= KEPT {
                mounts.retain(
                    |_, entry| matches!(entry, Entry::InUse(mount) if mount.strong_count() > 0),
                );
            }
            let entry = match id {
                MountId::Unique(_) => Entry::Kept(found.clone()),
                MountId::Reused(_) => Entry::InUse(Arc::downgrade(&found)),
            };
            mounts.insert(id, entry);
        });
        Some(found)
    }

    fn with<R>(&self, work: impl FnOnce(&mut BTreeMap<MountId, Entry>) -> R) -> Option<R> {
        match self.0.try_lock() {
            Ok(mut mounts) => Some(work(&mut mounts)),
            Err(TryLockError::Poisoned(mounts)) => Some(work(&mut mounts.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::os::fd::AsFd;

    fn mount(id: MountId) -> Option<Mount> {
        let block = Answers::new();
        Some(Mount { file_system: by_name("ext4"), has_whole_files: false, id, block })
    }

    #[test]
    fn a_number_that_is_reused_is_known_while_a_file_is_open() {
        let mounts = MountCache(Mutex::default());
        let asked = Cell::new(0);
        let find = |id| {
            let look_up = || {
                asked.set(asked.get() + 1);
                mount(id)
            };
            mounts.of(id, look_up).unwrap()
        };
        let file = find(MountId::Reused(7));
        drop(find(MountId::Reused(7)));
        assert_eq!(asked.get(), 1);
        drop(file);
        drop(find(MountId::Reused(7)));
        assert_eq!(asked.get(), 2, "it may be another mount by now");
        drop(find(MountId::Unique(7)));
        drop(find(MountId::Unique(7)));
        assert_eq!(asked.get(), 3, "it is the same mount for ever");
    }

    #[test]
    fn unused_mounts_take_little_memory() {
        let mounts = MountCache(Mutex::default());
        let file = mounts.of(MountId::Reused(0), || mount(MountId::Reused(0)));
        for id in 1..1000 {
            mounts.of(MountId::Unique(id), || mount(MountId::Unique(id)));
            mounts.of(MountId::Reused(id), || mount(MountId::Reused(id)));
        }
        assert!(mounts.0.lock().unwrap().len() <= 2 * KEPT);
        let again = mounts.of(MountId::Reused(0), || panic!("it is in use"));
        assert!(Arc::ptr_eq(&file.unwrap(), &again.unwrap()));
    }

    #[test]
    fn a_lock_that_is_held_is_not_waited_for() {
        let mounts = MountCache(Mutex::default());
        let _held = mounts.0.lock();
        assert!(mounts.of(MountId::Unique(1), || mount(MountId::Unique(1))).is_some());
    }

    #[test]
    fn files_of_two_layers_are_not_whole() {
        let of = |options: &str| MountOptions::parse(options.as_bytes());
        let whole = |options| has_whole_files(&of(options), |_| Some(false));
        assert!(whole("rw,lowerdir=/a:/b,upperdir=/c/up,workdir=/c/work,uuid=null"));
        assert!(whole("ro,lowerdir+=/a,lowerdir+=/b"));
        assert!(has_whole_files(&of("rw,lowerdir=/a,metacopy=off"), |_| panic!("it is shown")));
        assert!(!whole("rw,lowerdir=/a,upperdir=/b,workdir=/c,metacopy=on"));
        assert!(!whole("ro,lowerdir=/a::/data"));
        assert!(!whole("ro,lowerdir+=/a,datadir+=/data"));
        for default in [Some(true), None] {
            assert!(!has_whole_files(&of("rw,lowerdir=/a,upperdir=/b,workdir=/c"), |_| default));
        }
    }

    #[test]
    fn the_mount_of_a_file_is_found() {
        let file = fs::File::open("/proc/self/status").unwrap();
        let found = Mount::of(file.as_fd()).unwrap().unwrap();
        assert_eq!(found.file_system.map(|known| known.name), Some("proc"));
        let mounts = Mounts::of_this_thread().unwrap();
        let id = reused_id(file.as_fd()).unwrap().unwrap();
        assert_eq!(mounts.with_id(id).unwrap().file_system, "proc");
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(Mount::of(reader.as_fd()).unwrap().is_none(), "a mount of the kernel's own");
    }
}
