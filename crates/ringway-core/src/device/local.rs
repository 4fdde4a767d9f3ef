//! Which paths are on local file systems, from the mounts of this process.

use super::file_systems::by_name;
use super::mounts::{MountInfo, Mounts};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The mounts of this process at one moment, to tell a path on a local file system from one that a
/// server or a FUSE program answers for.
///
/// ```
/// use ringway_core::device::LocalMounts;
/// let mounts = LocalMounts::read();
/// assert_eq!(mounts.of_path("/proc/version"), None);
/// ```
#[derive(Debug, Default)]
pub struct LocalMounts {
    /// By mount point: the mount's id if its file system is local.
    points: HashMap<Box<[u8]>, Option<u64>>,
}

impl LocalMounts {
    /// Reads the mounts: a blocking call, some microseconds for each mount. Without `/proc`, no
    /// path is local.
    pub fn read() -> Self {
        Self::new(&Mounts::of_this_process())
    }

    fn new(mounts: &Mounts) -> Self {
        // Of several mounts on one point the last one is on top.
        let on_top: HashMap<_, _> =
            mounts.iter().map(|mount| (mount.mount_point.as_str(), mount)).collect();
        let is_overlay = |mount: &MountInfo| mount.file_system == "overlay";
        let mut local = Self::default();
        // An overlay does what its layers do, and until these are known it is not local.
        for mount in on_top.values() {
            let is_local = by_name(&mount.file_system).is_some_and(|known| known.is_local);
            local.insert(mount, is_local && !is_overlay(mount));
        }
        // Twice, for an overlay of overlays.
        for _ in 0..2 {
            for mount in on_top.values().filter(|mount| is_overlay(mount)) {
                let has_layers = local.has_layers(mount);
                local.insert(mount, has_layers);
            }
        }
        local
    }

    fn insert(&mut self, mount: &MountInfo, is_local: bool) {
        self.points.insert(mount.mount_point.as_bytes().into(), is_local.then_some(mount.id()));
    }

    /// Whether all layers of an overlay are local. In a container they are often out of sight: then
    /// they seem to be on the overlay itself.
    fn has_layers(&self, overlay: &MountInfo) -> bool {
        let mut options = overlay.options.split(',').filter_map(|option| option.split_once('='));
        let mut count = 0;
        let are_local = options.all(|(name, value)| {
            let is_list = matches!(name, "lowerdir" | "lowerdir+" | "datadir+");
            if !is_list && name != "upperdir" {
                return true;
            }
            value.split(':').filter(|path| !path.is_empty()).all(|path| {
                count += 1;
                self.of_path(path).is_some_and(|id| id != overlay.id())
            })
        });
        are_local && count > 0
    }

    /// The id of the mount that an absolute path leads to, if its file system is local. This is
    /// about the path's text: symbolic links are not followed, and a path with empty components,
    /// `.` or `..` is not local.
    ///
    /// The mount's id as `statx(2)` reports it for the file (`STATX_MNT_ID`) shows whether the
    /// answer is still right.
    pub fn of_path(&self, path: impl AsRef<Path>) -> Option<u64> {
        let path = path.as_ref().as_os_str().as_bytes();
        let names = path.strip_prefix(b"/")?;
        if names.split(|byte| *byte == b'/').any(|name| matches!(name, b"" | b"." | b"..")) {
            return None;
        }
        let mut prefix = path;
        loop {
            if let Some(mount) = self.points.get(prefix) {
                return *mount;
            }
            prefix = match prefix.iter().rposition(|byte| *byte == b'/')? {
                0 if prefix.len() == 1 => return None,
                0 => &path[..1],
                slash => &path[..slash],
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
27 1 254:0 / / rw - ext4 /dev/vda rw
22 27 0:21 / /proc rw - proc proc rw
40 27 0:50 / /mnt/share rw - nfs4 server:/ rw
41 40 0:51 / /mnt/share/fast rw - tmpfs tmpfs rw
42 27 0:52 / /under rw - ext4 /dev/vdb rw
43 42 0:53 / /under rw - fuse.sshfs host: rw
";

    #[test]
    fn the_innermost_mount_decides() {
        let mounts = LocalMounts::new(&Mounts::parse(TEXT));
        let found = |path: &str| mounts.of_path(path);
        assert_eq!(["/file", "/mnt/share.txt", "/procfs"].map(found), [Some(27); 3]);
        assert_eq!(["/proc/version", "/mnt/share/file", "/under/file"].map(found), [None; 3]);
        assert_eq!(found("/mnt/share/fast/a/b"), Some(41));
    }

    /// An overlay is local if all its layers are in sight and local.
    #[test]
    fn an_overlay_is_what_its_layers_are() {
        let overlay = |options: &str| {
            let text = format!("{TEXT}50 27 0:60 / /merged rw - overlay overlay {options}\n");
            LocalMounts::new(&Mounts::parse(&text)).of_path("/merged/file")
        };
        assert_eq!(overlay("rw,lowerdir=/a:/b,upperdir=/c/up,workdir=/c/work"), Some(50));
        assert_eq!(overlay("rw,lowerdir+=/a,lowerdir+=/mnt/share/fast/x"), Some(50));
        assert_eq!(overlay("rw,lowerdir=/a:/mnt/share/lower,upperdir=/c/up,workdir=/w"), None);
        assert_eq!(overlay("rw,lowerdir=/a,upperdir=/under/up,workdir=/under/w"), None);
        assert_eq!(overlay("rw,lowerdir=l/ABC:l/DEF,upperdir=/c/up,workdir=/w"), None);
        assert_eq!(overlay("rw"), None);
        // What is mounted over one decides.
        assert_eq!(overlay("rw,lowerdir=/a:/b\n51 27 0:61 / /merged rw - nfs4 server:/ rw"), None);
        // A container's root, whose layers are the host's.
        let root = "27 1 0:60 / / rw - overlay overlay rw,lowerdir=/var/a,upperdir=/var/b\n";
        assert_eq!(LocalMounts::new(&Mounts::parse(root)).of_path("/file"), None);
        // An overlay over an overlay.
        let two = format!(
            "{TEXT}51 27 0:61 / /outer rw - overlay overlay rw,lowerdir=/inner/a:/b\n\
             50 27 0:60 / /inner rw - overlay overlay rw,lowerdir=/a:/b\n"
        );
        assert_eq!(LocalMounts::new(&Mounts::parse(&two)).of_path("/outer/file"), Some(51));
    }

    #[test]
    fn paths_that_are_not_plain_are_not_local() {
        let mounts = LocalMounts::new(&Mounts::parse(TEXT));
        for path in ["", "file", "/", "//file", "/a/../b", "/./a", "/a/", "/a/."] {
            assert_eq!(mounts.of_path(path), None, "{path}");
        }
        assert_eq!(mounts.of_path("/.hidden/..b"), Some(27));
        assert_eq!(LocalMounts::default().of_path("/file"), None);
    }
}
