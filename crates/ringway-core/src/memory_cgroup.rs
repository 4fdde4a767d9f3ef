//! Whether io-wq workers may cache data, or would be the death of the process in its memory cgroup.
//!
//! In a cgroup whose memory is full of pages that are not written yet, whoever needs a page waits
//! for some of them to be written. Cgroups of version 1 have no other limit on such pages. The
//! kernel lets no worker wait (`reclaim_throttle()` returns at once for `PF_USER_WORKER`, since
//! 5.16): it tries sixteen times at once, and then kills a process of the cgroup. Threads of ours
//! wait.

use crate::device::Mounts;
use crate::fork::KnownOfProcess;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// False in a cgroup of version 1 that is known to have a limit which unwritten pages may reach.
/// Reads files below `/proc` and the cgroup's limit, once for a process; does not block on devices.
///
/// A process is moved into its cgroup before it runs its program, and rings, which last as long as
/// their programs, would not learn of a later move either. A forked child, which may be moved too,
/// looks for itself.
pub(crate) fn workers_may_cache() -> bool {
    static KNOWN: KnownOfProcess = KnownOfProcess::new();
    KNOWN.get_or_look_up(look_up).unwrap_or(true)
}

/// `None` if it cannot be read now, for want of a descriptor for example.
///
/// The kernel stops all writers of the machine when a fifth of its memory is unwritten
/// (`vm.dirty_ratio`), so pages that are not written cannot fill a larger cgroup.
fn look_up() -> Option<bool> {
    let limit = fs::read("/proc/self/cgroup").and_then(|cgroups| match version_1(&cgroups) {
        Some(path) => limit_of(&Mounts::of_this_thread()?, path),
        None => Ok(u64::MAX),
    });
    match limit {
        Ok(limit) => Some(limit >= machine_memory() / 2),
        // Where no cgroups are visible, as below a root directory of its own, nothing is known.
        Err(error) => is_final(&error).then_some(true),
    }
}

/// Whether another try would end in the same way.
fn is_final(error: &io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EINTR))
}

/// The process's cgroup of the memory controller, if that has version 1: cgroups(7).
fn version_1(cgroups: &[u8]) -> Option<&[u8]> {
    cgroups.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let controllers = fields.nth(1)?;
        let is_memory = controllers.split(|byte| *byte == b',').any(|one| one == b"memory");
        fields.next().filter(|_| is_memory)
    })
}

/// The lowest limit of the cgroup and those above it, in bytes.
fn limit_of(mounts: &Mounts, path: &[u8]) -> io::Result<u64> {
    let dir = mounts.memory_cgroup(path).ok_or(io::ErrorKind::NotFound)?;
    let file = PathBuf::from(OsStr::from_bytes(&dir)).join("memory.stat");
    parse_limit(&fs::read_to_string(file)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_limit(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit ")?.parse().ok())
}

/// The memory of the machine, in bytes. (`/proc/meminfo` may be that of a container.)
fn machine_memory() -> u64 {
    // SAFETY: sysconf returns values of the system and accesses no memory of this process.
    let [pages, page] = [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE]
        .map(|name| u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0));
    pages.saturating_mul(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_the_memory_controller() {
        let both = b"9:name=systemd:/\n4:cpu,memory:/docker/a:b\n0::/\n";
        assert_eq!(version_1(both), Some(&b"/docker/a:b"[..]));
        assert_eq!(version_1(b"1:name=memory:/x\n0::/system.slice\n"), None);
        assert_eq!(version_1(b""), None);
    }

    #[test]
    fn the_limit_includes_those_above() {
        let stat = "cache 4096\nhierarchical_memory_limit 50331648\ntotal_cache 4096\n";
        assert_eq!(parse_limit(stat), Some(48 << 20));
        assert_eq!(parse_limit("cache 4096\n"), None);
    }
}
