//! The mounts of this process: unlike `statfs(2)` they tell ext2 from ext4 and name the device.

use std::fs;

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountInfo {
    id: u64,
    /// Major and minor number of the files on the mount.
    pub(super) device: (u32, u32),
    /// Where it is mounted.
    pub(super) mount_point: String,
    /// `ext4`, `fuse.sshfs`.
    pub(super) file_system: String,
    /// The source of the mount: the device's path for a file system on a disk.
    pub(super) source: String,
    /// The options of the file system: `rw,lowerdir=/a:/b`.
    pub(super) options: String,
}

impl MountInfo {
    /// The mount's id, which `statx(2)` reports for each file.
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

/// All mounts; empty if `/proc` cannot be read.
pub(super) struct Mounts(Vec<MountInfo>);

impl Mounts {
    pub(super) fn of_this_process() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// Skips lines that it cannot parse (the format: `proc_pid_mountinfo(5)`).
    pub(super) fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(parse_line).collect())
    }

    /// The mount of a file: by the mount's id where the kernel reports it (5.8), otherwise by the
    /// file's device number.
    pub(super) fn of_file(&self, id: Option<u64>, device: (u32, u32)) -> Option<&MountInfo> {
        id.and_then(|id| self.with_id(id))
            .or_else(|| self.0.iter().find(|mount| mount.device == device))
    }

    /// The mount with this number.
    pub(super) fn with_id(&self, id: u64) -> Option<&MountInfo> {
        self.0.iter().find(|mount| mount.id == id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &MountInfo> {
        self.0.iter()
    }
}

/// `36 35 98:0 /root /mount/point options optional-fields - type source super-options`
fn parse_line(line: &str) -> Option<MountInfo> {
    // The optional fields end with a single hyphen; fields contain no blanks, which are escaped.
    let (place, what) = line.split_once(" - ")?;
    let mut place = place.split(' ');
    let id = place.next()?.parse().ok()?;
    let (major, minor) = place.nth(1)?.split_once(':')?;
    let mount_point = place.nth(1)?;
    let mut what = what.split(' ');
    Some(MountInfo {
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        mount_point: unescape(mount_point),
        file_system: unescape(what.next()?),
        source: unescape(what.next()?),
        options: unescape(what.next().unwrap_or_default()),
    })
}

/// Blanks, tabs, newlines, backslashes and hashes are written as `\` and three octal digits.
pub(super) fn unescape(field: &str) -> String {
    let mut nodes = field.split('\\');
    let mut plain = nodes.next().unwrap_or_default().to_owned();
    for node in nodes {
        match node.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&node[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(node);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
30 27 0:40 /sub /mnt/with\\040blank rw - btrfs /dev/sdb1 rw
garbage
31 27 bad / /x rw - xfs /dev/sdc rw
";

    #[test]
    fn optional_fields_and_escapes_are_parsed() {
        let mounts = Mounts::parse(TEXT);
        assert_eq!(mounts.iter().count(), 3);
        let root = mounts.of_file(Some(27), (0, 0)).unwrap();
        assert_eq!(
            (root.file_system.as_str(), root.source.as_str(), root.mount_point.as_str()),
            ("ext4", "/dev/vda", "/")
        );
        assert_eq!(mounts.of_file(None, (0, 40)).unwrap().mount_point, "/mnt/with blank");
    }

    #[test]
    fn a_file_on_an_unknown_mount_has_none() {
        assert_eq!(Mounts::parse(TEXT).of_file(Some(99), (9, 9)), None);
        assert_eq!(Mounts::parse("").of_file(None, (254, 0)), None);
    }

    #[test]
    fn a_backslash_without_an_escape_is_kept() {
        assert_eq!(unescape(r"a\134b\x\04"), r"a\b\x\04");
    }
}
