//! Which paths are on local file systems, from the mounts of this process.

use super::file_systems::by_name;
use super::mounts::{MountInfo, Mounts};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The mounts of this process at one moment, to tell a path on a local file system from one that a
/// server or a FUSE program answers for.
///
/// ```
/// use ringway_core::device::LocalMounts;
/// let mounts = LocalMounts::read()?;
/// assert_eq!(mounts.of_path("/proc/version"), None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct LocalMounts {
    /// By mount point: the mount's id if its file system is local.
    points: HashMap<Box<[u8]>, Option<u64>>,
}

impl LocalMounts {
    /// Reads the mounts that the calling thread sees, and looks for symbolic links in the paths of
    /// the layers of overlays: blocking calls, some microseconds for each mount and layer. Without
    /// `/proc`, no path is local.
    ///
    /// # Errors
    ///
    /// EMFILE, ENFILE, ENOMEM: they could not be read now.
    pub fn read() -> io::Result<Self> {
        Ok(Self::new(&Mounts::of_this_thread()?, is_no_link))
    }

    /// `is_no_link` tells whether a place is no symbolic link.
    fn new(mounts: &Mounts, is_no_link: impl Fn(&Path) -> bool) -> Self {
        // Of several mounts on one point the last one is on top.
        let on_top: HashMap<_, _> =
            mounts.iter().map(|mount| (mount.mount_point.as_slice(), mount)).collect();
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
                let has_layers = local.has_layers(mount, &is_no_link);
                local.insert(mount, has_layers);
            }
        }
        local
    }

    fn insert(&mut self, mount: &MountInfo, is_local: bool) {
        self.points.insert(mount.mount_point.as_slice().into(), is_local.then_some(mount.id()));
    }

    /// Whether all layers of an overlay are local. In a container they are often out of sight: then
    /// they seem to be on the overlay itself. A layer's path is shown as it was given, so that a
    /// symbolic link in it may lead anywhere; what an overlay escapes is not undone here.
    fn has_layers(&self, overlay: &MountInfo, is_no_link: impl Fn(&Path) -> bool) -> bool {
        let is_layer =
            |name: &[u8]| matches!(name, b"lowerdir" | b"lowerdir+" | b"datadir+" | b"upperdir");
        // (It is on the way to each of them.)
        let is_root_local = matches!(self.points.get(&b"/"[..]), Some(Some(_)));
        let is_certain = |path: &Path| {
            is_root_local
                && self.of_path(path).is_some_and(|id| id != overlay.id())
                && path.ancestors().filter(|place| *place != Path::new("/")).all(|place| {
                    // (Nobody looks at a place that is not local, which may take long.)
                    self.of_path(place).is_some() && is_no_link(place)
                })
        };
        let mut layers = overlay
            .options
            .iter()
            .filter(|(name, _)| is_layer(name))
            .flat_map(|(_, paths)| paths.split(|byte| *byte == b':'))
            .filter(|path| !path.is_empty())
            .peekable();
        layers.peek().is_some()
            && layers.all(|layer| {
                let path = Path::new(OsStr::from_bytes(layer));
                !layer.contains(&b'\\') && is_certain(path)
            })
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

/// Whether a place exists and is no symbolic link. Blocks.
fn is_no_link(place: &Path) -> bool {
    fs::symlink_metadata(place).is_ok_and(|metadata| !metadata.is_symlink())
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

    fn local(mounts: &str) -> LocalMounts {
        LocalMounts::new(&Mounts::parse(mounts.as_bytes()), |_| true)
    }

    #[test]
    fn the_innermost_mount_decides() {
        let mounts = local(TEXT);
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
            local(&text).of_path("/merged/file")
        };
        assert_eq!(overlay("rw,lowerdir=/a:/b,upperdir=/c/up,workdir=/c/work"), Some(50));
        assert_eq!(overlay("rw,lowerdir+=/a,lowerdir+=/c/x"), Some(50));
        // The way to it is on a server.
        assert_eq!(overlay("rw,lowerdir+=/a,lowerdir+=/mnt/share/fast/x"), None);
        assert_eq!(overlay("rw,lowerdir=/a:/mnt/share/lower,upperdir=/c/up,workdir=/w"), None);
        assert_eq!(overlay("rw,lowerdir=/a,upperdir=/under/up,workdir=/under/w"), None);
        assert_eq!(overlay("rw,lowerdir=l/ABC:l/DEF,upperdir=/c/up,workdir=/w"), None);
        assert_eq!(overlay("rw"), None);
        // What is mounted over one decides.
        assert_eq!(overlay("rw,lowerdir=/a:/b\n51 27 0:61 / /merged rw - nfs4 server:/ rw"), None);
        // A container's root, whose layers are the host's.
        let root = "27 1 0:60 / / rw - overlay overlay rw,lowerdir=/var/a,upperdir=/var/b\n";
        assert_eq!(local(root).of_path("/file"), None);
        // An overlay over an overlay.
        let two = format!(
            "{TEXT}51 27 0:61 / /outer rw - overlay overlay rw,lowerdir=/inner/a:/b\n\
             50 27 0:60 / /inner rw - overlay overlay rw,lowerdir=/a:/b\n"
        );
        assert_eq!(local(&two).of_path("/outer/file"), Some(51));
    }

    /// Only the text of a layer's path is known.
    #[test]
    fn a_layer_whose_path_may_lead_elsewhere_is_not_local() {
        let overlay = |options: &str, link: &str| {
            let text = format!("{TEXT}50 27 0:60 / /merged rw - overlay overlay {options}\n");
            let mounts = Mounts::parse(text.as_bytes());
            LocalMounts::new(&mounts, |place| place != Path::new(link)).of_path("/merged/file")
        };
        assert_eq!(overlay("rw,lowerdir=/a/x:/b", "/c"), Some(50));
        assert_eq!(overlay("rw,lowerdir=/a/x:/b", "/b"), None);
        assert_eq!(overlay("rw,lowerdir=/a/x:/b", "/a"), None);
        // The name of a layer has a comma, which the overlay wants escaped.
        assert_eq!(overlay(r"rw,lowerdir=/mnt\134\054x:/b", "/c"), None);
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        fs::create_dir(dir.join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.join("link")).unwrap();
        assert!(is_no_link(&dir.join("real")));
        assert!(!is_no_link(&dir.join("link")));
        assert!(!is_no_link(&dir.join("missing")));
    }

    #[test]
    fn paths_that_are_not_plain_are_not_local() {
        let mounts = local(TEXT);
        for path in ["", "file", "/", "//file", "/a/../b", "/./a", "/a/", "/a/."] {
            assert_eq!(mounts.of_path(path), None, "{path}");
        }
        assert_eq!(mounts.of_path("/.hidden/..b"), Some(27));
        assert_eq!(LocalMounts::default().of_path("/file"), None);
    }
}
