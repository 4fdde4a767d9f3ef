//! Available memory: that of the machine, within the limits of this process's control groups.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of memory available without swapping; `u64::MAX` where the kernel does not report it.
pub fn available_memory() -> u64 {
    available_under(Path::new("/"))
}

/// Like [`available_memory`], with `/proc` and `/sys` below this folder.
fn available_under(root: &Path) -> u64 {
    let text = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib =
        line.and_then(|line| line.trim().trim_end_matches("kB").trim_end().parse::<u64>().ok());
    let available = kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024));
    groups(root).iter().map(|group| left_in(root, group)).fold(available, u64::min)
}

/// The names of a control group's files, which depend on the version.
struct Names {
    limit: &'static str,
    used: &'static str,
    inactive: &'static str,
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    inactive: "total_inactive_file",
};
const V2: Names = Names { limit: "memory.max", used: "memory.current", inactive: "inactive_file" };

/// A hierarchy with the memory controller: its mount point, and this process's group below it.
struct Group {
    names: Names,
    mount: PathBuf,
    path: PathBuf,
}

fn groups(root: &Path) -> Vec<Group> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    // (A mount point may be in any encoding.)
    let mounts = fs::read(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mounts = String::from_utf8_lossy(&mounts);
    let group = |line: &str| {
        // `hierarchy:controllers:path`; in version 2 the controllers are empty.
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_v1 = controllers.split(',').any(|controller| controller == "memory");
        if !is_v1 && !controllers.is_empty() {
            return None;
        }
        let (mount, mount_root) = mounts.lines().find_map(|line| mount(line, is_v1))?;
        // In a container the mount may begin at the container's group, while the path is that of
        // the host.
        let path = path.strip_prefix(mount_root.trim_end_matches('/')).unwrap_or(path);
        let names = if is_v1 { V1 } else { V2 };
        Some(Group { names, mount: mount.into(), path: path.trim_start_matches('/').into() })
    };
    own.lines().filter_map(group).collect()
}

/// The mount point and the mounted root of a hierarchy, from a line of `mountinfo`: `id parent dev
/// root point options ... - type source super-options`.
fn mount(line: &str, is_v1: bool) -> Option<(&str, &str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut file_system = file_system.split(' ');
    let matches = match (file_system.next()?, is_v1) {
        ("cgroup", true) => file_system.nth(1)?.split(',').any(|option| option == "memory"),
        ("cgroup2", false) => true,
        _ => false,
    };
    let mut mount = mount.split(' ').skip(3);
    let root = mount.next()?;
    matches.then_some((mount.next()?, root))
}

/// The memory within the limits of a group and its ancestors. Inactive page cache counts as
/// available.
fn left_in(root: &Path, group: &Group) -> u64 {
    let mount = root.join(group.mount.strip_prefix("/").unwrap_or(&group.mount));
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |folder: &Path| {
        let limit = number(folder.join(group.names.limit))?;
        let used = number(folder.join(group.names.used)).unwrap_or(0);
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let inactive = stat
            .lines()
            .find_map(|line| line.strip_prefix(group.names.inactive)?.trim().parse::<u64>().ok());
        Some(limit.saturating_sub(used.saturating_sub(inactive.unwrap_or(0))))
    };
    let groups = group.path.ancestors().map(|path| mount.join(path));
    groups.filter_map(|folder| left(&folder)).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder in the place of `/`, with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in
            [("proc/meminfo", "MemTotal: 9999999 kB\nMemAvailable:    1048576 kB\n")]
                .iter()
                .chain(files)
        {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const V2: (&str, &str) =
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");

    #[test]
    fn limits_of_control_groups_apply() {
        assert!(available_memory() > 0);
        for (files, expected) in [
            (&[][..], 1024),
            (
                &[
                    V2,
                    ("proc/self/cgroup", "0::/user.slice\n"),
                    ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
                ],
                1024,
            ),
            (
                // Those of all ancestors in version 2.
                &[
                    V2,
                    ("proc/self/cgroup", "0::/a/b\n"),
                    ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                    ("sys/fs/cgroup/a/memory.max", "104857600\n"),
                    ("sys/fs/cgroup/a/memory.current", "62914560\n"),
                    (
                        "sys/fs/cgroup/a/memory.stat",
                        "anon 1\ninactive_file 20971520\nactive_file 5\n",
                    ),
                ],
                60,
            ),
            (
                // Version 1, in a container.
                &[
                    ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/\n"),
                    (
                        "proc/self/mountinfo",
                        "1 2 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                         2 2 0:4 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
                    ),
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "52428800\n"),
                    ("sys/fs/cgroup/memory/memory.usage_in_bytes", "10485760\n"),
                    ("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1048576\n"),
                ],
                41,
            ),
        ] {
            assert_eq!(available_under(root(files).path()) >> 20, expected, "{files:?}");
        }
    }
}
