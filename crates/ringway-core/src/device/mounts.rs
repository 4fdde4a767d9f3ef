//! The mounts of this process: unlike `statfs(2)` they tell ext2 from ext4 and name the device.

use super::is_transient;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One line of `/proc/thread-self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountInfo {
    id: u64,
    /// Major and minor number of the files on the mount.
    pub(super) device: (u32, u32),
    /// The directory of the file system that is mounted. Names are bytes of any encoding.
    root: Vec<u8>,
    /// Where it is mounted.
    pub(super) mount_point: Vec<u8>,
    /// `ext4`, `fuse.sshfs`.
    pub(super) file_system: String,
    /// The source of the mount: the device's path for a file system on a disk.
    pub(super) source: PathBuf,
    /// The options of the file system.
    pub(super) options: MountOptions,
}

impl MountInfo {
    /// The mount's id, which `statx(2)` reports for each file.
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

/// The options of a file system, `rw,lowerdir=/a:/b`, without escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountOptions(Vec<Vec<u8>>);

impl MountOptions {
    /// As the kernel shows them.
    pub(super) fn parse(text: &[u8]) -> Self {
        // A comma within a value is escaped.
        Self(text.split(|byte| *byte == b',').map(unescape).collect())
    }

    /// Names and values; the value of an option that has none is empty.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|option| match option.iter().position(|byte| *byte == b'=') {
            Some(at) => (&option[..at], &option[at + 1..]),
            None => (&option[..], &[][..]),
        })
    }
}

/// All mounts; empty if `/proc` cannot be read.
pub(crate) struct Mounts(Vec<MountInfo>);

impl Mounts {
    /// Those that the calling thread sees. (The first thread of the process may see others.)
    ///
    /// Errors: those after which another try may succeed, so that nothing is concluded.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        match fs::read("/proc/thread-self/mountinfo") {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if is_transient(&error) => Err(error),
            Err(_) => Ok(Self(Vec::new())),
        }
    }

    /// Skips lines that it cannot parse (the format: `proc_pid_mountinfo(5)`).
    pub(crate) fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(parse_line).collect())
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

    /// The directory of a cgroup of the memory controller, version 1, if it is visible. `path`: as
    /// in `/proc/self/cgroup`.
    pub(crate) fn memory_cgroup(&self, path: &[u8]) -> Option<Vec<u8>> {
        let is_memory = |mount: &&MountInfo| {
            mount.file_system == "cgroup" && mount.options.iter().any(|(name, _)| name == b"memory")
        };
        self.0.iter().filter(is_memory).find_map(|mount| {
            let root = mount.root.strip_suffix(b"/").unwrap_or(&mount.root);
            let below = path.strip_prefix(root)?;
            let is_whole = below.is_empty() || below.starts_with(b"/");
            is_whole.then(|| [&mount.mount_point, below].concat())
        })
    }
}

/// `36 35 98:0 /root /mount/point options optional-fields - type source super-options`
fn parse_line(line: &[u8]) -> Option<MountInfo> {
    // Fields contain no blanks, which are escaped. The optional fields end with a single hyphen.
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let (major, minor) = std::str::from_utf8(fields.nth(1)?).ok()?.split_once(':')?;
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    fields.find(|field| *field == b"-")?;
    let file_system = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    Some(MountInfo {
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root,
        mount_point,
        file_system,
        source: OsString::from_vec(unescape(fields.next()?)).into(),
        options: MountOptions::parse(fields.next().unwrap_or_default()),
    })
}

/// Blanks, tabs, newlines, backslashes and others are written as `\` and three octal digits.
pub(super) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        rest = after;
        let byte = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        if byte.is_some() {
            rest = &after[3..];
        }
        plain.push(byte.unwrap_or(*first));
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
        let mounts = Mounts::parse(TEXT.as_bytes());
        assert_eq!(mounts.iter().count(), 3);
        let root = mounts.of_file(Some(27), (0, 0)).unwrap();
        assert_eq!((root.file_system.as_str(), &*root.mount_point), ("ext4", &b"/"[..]));
        assert_eq!(root.source.to_str(), Some("/dev/vda"));
        assert_eq!(mounts.of_file(None, (0, 40)).unwrap().mount_point, b"/mnt/with blank");
    }

    /// A name in another encoding, of a stick for example, hides no other mount.
    #[test]
    fn names_are_bytes() {
        let mut text = b"33 27 0:44 / /media/\xff\\377 rw - vfat /dev/\xfe rw\n".to_vec();
        text.extend_from_slice(TEXT.as_bytes());
        let mounts = Mounts::parse(&text);
        assert_eq!(mounts.iter().count(), 4);
        assert_eq!(mounts.with_id(33).unwrap().mount_point, b"/media/\xff\xff");
    }

    #[test]
    fn a_comma_within_a_value_ends_no_option() {
        let options = MountOptions::parse(br"rw,lowerdir=/a\054metacopy=off:/b,index=off");
        let found: Vec<_> = options.iter().collect();
        let expected: [(&[u8], &[u8]); 3] =
            [(b"rw", b""), (b"lowerdir", b"/a,metacopy=off:/b"), (b"index", b"off")];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_memory_cgroup_is_found_below_the_root_of_its_mount() {
        let mounts = Mounts::parse(
            b"40 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
              41 31 0:32 /docker/a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        );
        let found = |path: &str| mounts.memory_cgroup(path.as_bytes());
        assert_eq!(found("/docker/a").unwrap(), b"/sys/fs/cgroup/memory");
        assert_eq!(found("/docker/a/b").unwrap(), b"/sys/fs/cgroup/memory/b");
        assert_eq!((found("/docker/ab"), found("/")), (None, None));
        let whole = Mounts::parse(b"41 31 0:32 / /memory rw - cgroup cgroup rw,cpu,memory\n");
        assert_eq!(whole.memory_cgroup(b"/").unwrap(), b"/memory/");
        assert_eq!(whole.memory_cgroup(b"/a").unwrap(), b"/memory/a");
    }

    #[test]
    fn a_file_on_an_unknown_mount_has_none() {
        assert_eq!(Mounts::parse(TEXT.as_bytes()).of_file(Some(99), (9, 9)), None);
        assert_eq!(Mounts::parse(b"").of_file(None, (254, 0)), None);
    }

    #[test]
    fn a_backslash_without_an_escape_is_kept() {
        assert_eq!(unescape(br"a\134b\x\04"), br"a\b\x\04");
    }
}
