//! The file systems, each mounted for a moment.

#[path = "devices.rs"]
mod devices;
#[path = "nfs.rs"]
mod nfs;

use devices::{Device, Part};
use ringway_hostile::Hostile;
use ringway_survey::Place;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// How a file system is made.
#[derive(Clone, Copy)]
enum Kind {
    /// On a block device: made by a command, mounted with options.
    Device(Device, &'static [&'static str], &'static str),
    /// In memory, of this type.
    Memory(&'static str),
    /// An overlay whose upper directory is in a file system of its own.
    Overlay(&'static Kind),
    /// The same above an image; the file is below.
    OverlayAbove(Image),
    Image(Image),
    /// Options of a FUSE connection, and rules (`crates/ringway-hostile/README.md`).
    Fuse(&'static [&'static str], &'static str),
    /// The kernel makes the transfers of FUSE, on ext4.
    FusePassthrough,
    /// NFS 4.2 from a server of this machine, which has it on ext4.
    Nfs,
    /// A directory of the machine that QEMU runs on, from QEMU's server for 9p; with options.
    Shared9p(&'static str),
    /// Another one, from virtiofsd.
    Virtiofs,
    /// Of huge pages: its files are mapped and read, and `write(2)` is refused.
    Huge,
}

/// A file system that is only read, made from a directory.
#[derive(Clone, Copy)]
enum Image {
    Squashfs,
    Erofs,
    ErofsLz4,
}

const EXT4: Kind = ext4_on(Device::Loop);
const XFS: Kind = xfs_on(Device::Loop);
const F2FS: &[&str] = &["mkfs.f2fs", "-q"];
const BTRFS: &[&str] = &["mkfs.btrfs", "-q"];
const TMPFS: Kind = Kind::Memory("tmpfs");

const fn ext4_on(device: Device) -> Kind {
    Kind::Device(device, &["mkfs.ext4", "-q"], "")
}

const fn xfs_on(device: Device) -> Kind {
    Kind::Device(device, &["mkfs.xfs", "-q"], "")
}

/// The rows: their names, types and kinds.
const PLACES: &[(&str, &str, Kind)] = &[
    ("ext4", "ext4", EXT4),
    (
        "ext4, data=journal",
        "ext4",
        Kind::Device(Device::Loop, &["mkfs.ext4", "-q"], "data=journal"),
    ),
    ("ext4, sectors of 4 KiB", "ext4", ext4_on(Device::Loop4K)),
    ("ext4, cached loop device", "ext4", ext4_on(Device::LoopCached)),
    ("ext4 on zram", "ext4", ext4_on(Device::Zram)),
    ("ext4 on dm-linear", "ext4", ext4_on(Device::Linear)),
    ("ext4 on dm-crypt", "ext4", ext4_on(Device::Crypt)),
    ("ext4 on dm-integrity", "ext4", ext4_on(Device::Integrity)),
    ("ext4 on RAID 1", "ext4", ext4_on(Device::Raid1)),
    ("XFS", "xfs", XFS),
    ("XFS, cached loop device", "xfs", xfs_on(Device::LoopCached)),
    ("XFS on zram", "xfs", xfs_on(Device::Zram)),
    (SHARED, "xfs", XFS),
    ("XFS on dm-linear", "xfs", xfs_on(Device::Linear)),
    ("XFS on dm-crypt", "xfs", xfs_on(Device::Crypt)),
    ("XFS on dm-integrity", "xfs", xfs_on(Device::Integrity)),
    ("XFS on RAID 1", "xfs", xfs_on(Device::Raid1)),
    ("btrfs", "btrfs", Kind::Device(Device::Loop, BTRFS, "")),
    ("btrfs, nodatacow", "btrfs", Kind::Device(Device::Loop, BTRFS, "nodatacow")),
    ("btrfs, compressed", "btrfs", Kind::Device(Device::Loop, BTRFS, "compress-force=zstd")),
    ("f2fs", "f2fs", Kind::Device(Device::Loop, F2FS, "")),
    ("f2fs on dm-linear", "f2fs", Kind::Device(Device::Linear, F2FS, "")),
    ("tmpfs", "tmpfs", TMPFS),
    ("ramfs", "ramfs", Kind::Memory("ramfs")),
    ("hugetlbfs", "hugetlbfs", Kind::Huge),
    ("overlay on ext4", "overlay", Kind::Overlay(&EXT4)),
    ("overlay on XFS", "overlay", Kind::Overlay(&XFS)),
    ("overlay on tmpfs", "overlay", Kind::Overlay(&TMPFS)),
    ("overlay, file in squashfs", "overlay", Kind::OverlayAbove(Image::Squashfs)),
    ("overlay, file in erofs", "overlay", Kind::OverlayAbove(Image::Erofs)),
    ("overlay, file in erofs, lz4", "overlay", Kind::OverlayAbove(Image::ErofsLz4)),
    ("squashfs", "squashfs", Kind::Image(Image::Squashfs)),
    ("erofs", "erofs", Kind::Image(Image::Erofs)),
    ("erofs, lz4", "erofs", Kind::Image(Image::ErofsLz4)),
    ("FUSE", "fuse", Kind::Fuse(&[], "")),
    ("FUSE, direct I/O", "fuse", Kind::Fuse(&[], "* direct on")),
    ("FUSE, write-back cache", "fuse", Kind::Fuse(&["writeback-cache"], "")),
    ("FUSE, passthrough", "fuse", Kind::FusePassthrough),
    ("NFS 4.2", "nfs4", Kind::Nfs),
    ("9p", "9p", Kind::Shared9p("cache=none")),
    ("9p, cached", "9p", Kind::Shared9p("cache=loose")),
    ("virtiofs", "virtiofs", Kind::Virtiofs),
];

/// The names under which QEMU and virtiofsd share directories (`tests/kernels/guest.py`).
const SHARED_TAG: &str = "ringway";
const VIRTIOFS_TAG: &str = "ringway-virtiofs";
/// Of linux/virtio_ids.h, as sysfs shows it.
const VIRTIO_ID_FS: &str = "0x001a";

const SHARED: &str = "XFS, blocks shared with a copy";

/// Whether `RINGWAY_PLACE` has a part of the name, or one of several with a `|` between them.
pub fn is_wanted(name: &str) -> bool {
    env::var("RINGWAY_PLACE").unwrap_or_default().split('|').any(|part| name.contains(part))
}

/// The place of a row in the list.
#[allow(dead_code, reason = "tests of other crates do not record")]
pub fn position(name: &str) -> Option<usize> {
    PLACES.iter().position(|(one, ..)| *one == name)
}

/// Calls `test` with each of these that this kernel has and these tools make. `skip` gets the
/// reasons why one is missing, but for those that the kernel was built without.
fn each_mounted(
    is_one: impl Fn(&str, &Kind) -> bool,
    skip: impl Fn(&str),
    mut test: impl FnMut(&'static (&str, &str, Kind), &Mounted),
) {
    for place in PLACES.iter().filter(|(name, _, kind)| is_wanted(name) && is_one(name, kind)) {
        let (name, file_system, kind) = place;
        if let Some(missing) = missing(file_system, kind) {
            println!("skipped: {name}: {missing}");
            continue;
        }
        match Mounted::new(kind) {
            Ok(mounted) => test(place, &mounted),
            Err(error) => skip(&format!("{name}: {error}")),
        }
    }
}

/// Calls `test` with the name and directory of each that can be written to, but for zram: of memory
/// that does not begin at a page its direct transfers are wrong (6.18), also those that the tests
/// compare with.
#[allow(dead_code, reason = "tests of other crates use it")]
pub fn each_writable(skip: impl Fn(&str), mut test: impl FnMut(&'static str, &Path)) {
    each_mounted(is_written, skip, |(name, ..), mounted| test(name, &mounted.dir));
}

/// Why [`each_writable`] calls nothing, if `RINGWAY_PLACE` selects other rows only.
///
/// # Panics
///
/// If it selects no row at all.
#[allow(dead_code, reason = "tests of other crates use it")]
pub fn no_writable() -> Option<String> {
    is_none_selected(is_written).then(|| "no file system to write to is selected".to_owned())
}

fn is_written(name: &str, kind: &Kind) -> bool {
    is_writable(kind) && !matches!(kind, Kind::Device(Device::Zram, ..)) && name != SHARED
}

/// Calls `test` with the name of each that is only read, and with the file to read in it.
#[allow(dead_code, reason = "tests of other crates use it")]
pub fn each_read_only(skip: impl Fn(&str), mut test: impl FnMut(&'static str, &Path)) {
    each_mounted(is_only_read, skip, |(name, ..), mounted| {
        test(name, &mounted.dir.join(Place::FILE));
    });
}

/// Why [`each_read_only`] calls nothing, if `RINGWAY_PLACE` selects other rows only.
///
/// # Panics
///
/// If it selects no row at all.
#[allow(dead_code, reason = "tests of other crates use it")]
pub fn no_read_only() -> Option<String> {
    is_none_selected(is_only_read)
        .then(|| "no file system that is only read is selected".to_owned())
}

fn is_only_read(_: &str, kind: &Kind) -> bool {
    !is_writable(kind)
}

fn is_none_selected(is_one: impl Fn(&str, &Kind) -> bool) -> bool {
    let mut selected = PLACES.iter().filter(|(name, ..)| is_wanted(name)).peekable();
    assert!(selected.peek().is_some(), "RINGWAY_PLACE selects no file system");
    !selected.any(|(name, _, kind)| is_one(name, kind))
}

/// Calls `test` with the name and directory of each of these.
#[allow(dead_code, reason = "tests of other crates use it")]
pub fn on(names: &[&str], skip: impl Fn(&str), mut test: impl FnMut(&'static str, &Path)) {
    let is_one = |name: &str, _: &Kind| names.contains(&name);
    each_mounted(is_one, skip, |(name, ..), mounted| test(name, &mounted.dir));
}

/// Calls `test` with a directory on zram. `skip` gets the reason why there is none, unless the
/// kernel was built without.
#[allow(dead_code, reason = "tests of other crates use it")]
pub fn on_zram(skip: impl Fn(&str), test: impl FnOnce(&Path)) {
    let kind = ext4_on(Device::Zram);
    match missing("ext4", &kind) {
        Some(missing) => println!("skipped: {missing}"),
        None => match Mounted::new(&kind) {
            Ok(mounted) => test(&mounted.dir),
            Err(error) => skip(&format!("zram: {error}")),
        },
    }
}

fn is_writable(kind: &Kind) -> bool {
    !matches!(kind, Kind::Image(_) | Kind::OverlayAbove(_) | Kind::Huge)
}

/// Calls `observe` with each.
#[allow(dead_code, reason = "tests of other crates do not observe")]
pub fn each(skip: impl Fn(&str), mut observe: impl FnMut(&Place)) {
    each_mounted(
        |_, _| true,
        skip,
        |(name, file_system, kind), mounted| {
            observe(&Place {
                name: (*name).to_owned(),
                file_system: (*file_system).to_owned(),
                dir: mounted.dir.clone(),
                writable: is_writable(kind),
                shared: *name == SHARED,
                device: mounted.device.clone(),
                mapped: mounted.mapped.clone(),
                behind: mounted.behind.clone(),
            });
        },
    );
}

/// What the kernel was built without. A row that needs it is for other kernels.
fn missing(file_system: &str, kind: &Kind) -> Option<String> {
    let device = match kind {
        Kind::Device(device, ..) => device.missing(),
        Kind::Nfs => nfs::missing(),
        Kind::Shared9p(_) | Kind::Virtiofs if env::var_os("RINGWAY_GUEST").is_none() => {
            Some("QEMU shares a directory with guests only".to_owned())
        }
        Kind::Virtiofs => {
            (!has_virtio_device(VIRTIO_ID_FS)).then(|| "no virtiofsd serves this guest".to_owned())
        }
        Kind::Huge if env::var_os("RINGWAY_GUEST").is_none() => {
            Some("huge pages are reserved in guests only".to_owned())
        }
        Kind::Huge => {
            let reserved = fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
            matches!(reserved.trim(), "" | "0").then(|| "no huge pages are reserved".to_owned())
        }
        _ => None,
    };
    device.or_else(|| {
        // As the kernel itself does when it is to mount one.
        run("modprobe", &["-q", file_system]).ok();
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let has = known.split_whitespace().any(|name| name == file_system);
        (!has).then(|| no(file_system))
    })
}

/// Whether QEMU gave this machine a device of this kind.
fn has_virtio_device(id: &str) -> bool {
    let devices = fs::read_dir("/sys/bus/virtio/devices").into_iter().flatten().flatten();
    let ids = devices.filter_map(|device| fs::read_to_string(device.path().join("device")).ok());
    ids.into_iter().any(|text| text.trim() == id)
}

fn no(what: &str) -> String {
    format!("this kernel has no {what}")
}

/// A mounted file system, and what it consists of.
struct Mounted {
    dir: PathBuf,
    /// The device below, as in "loop0".
    device: Option<String>,
    /// The linear device of the device mapper on it.
    mapped: Option<String>,
    /// The directory that a server passes through.
    behind: Option<PathBuf>,
    /// Dropped in this order.
    parts: Vec<Part>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for part in self.parts.drain(..) {
            // Another failure is on its way, if there is one.
            if let Err(error) = part.release() {
                println!("not released: {error}");
            }
        }
    }
}

impl Mounted {
    fn new(kind: &Kind) -> io::Result<Self> {
        match kind {
            Kind::Device(device, make, options) => Self::on_device(*device, make, options),
            Kind::Memory(file_system) => {
                let mut mounted = Self::in_dir()?;
                mounted.mount(&["-t", file_system, file_system])?;
                Ok(mounted)
            }
            Kind::Overlay(below) => {
                let below = Self::new(below)?;
                let lower = below.dir.join("lower");
                fs::create_dir(&lower)?;
                Self::overlay(&lower, below)
            }
            Kind::OverlayAbove(image) => {
                let mut image = Self::of_image(*image)?;
                let mut mounted = Self::overlay(&image.dir, Self::new(&TMPFS)?)?;
                mounted.device = image.device.take();
                mounted.parts.push(Part::Other(Box::new(image)));
                Ok(mounted)
            }
            Kind::Image(image) => Self::of_image(*image),
            Kind::Fuse(options, rules) => {
                let server = Hostile::mount(options)?;
                server.set(rules)?;
                Ok(Self {
                    dir: server.path(),
                    device: None,
                    mapped: None,
                    behind: None,
                    parts: vec![Part::Other(Box::new(server))],
                })
            }
            Kind::FusePassthrough => {
                let below = Self::new(&EXT4)?;
                let server = Hostile::mount_in(&below.dir, &["passthrough"])?;
                Ok(Self {
                    dir: server.path(),
                    device: below.device.clone(),
                    mapped: None,
                    behind: Some(server.backing()),
                    parts: vec![Part::Other(Box::new(server)), Part::Other(Box::new(below))],
                })
            }
            Kind::Nfs => Self::nfs(Self::new(&EXT4)?),
            Kind::Shared9p(options) => {
                let mut mounted = Self::in_dir()?;
                let options = format!("trans=virtio,version=9p2000.L,msize=131072,{options}");
                mounted.mount(&["-t", "9p", "-o", &options, SHARED_TAG])?;
                Ok(mounted)
            }
            Kind::Virtiofs => {
                let mut mounted = Self::in_dir()?;
                mounted.mount(&["-t", "virtiofs", VIRTIOFS_TAG])?;
                Ok(mounted)
            }
            Kind::Huge => {
                let mut mounted = Self::in_dir()?;
                mounted.mount(&["-t", "hugetlbfs", "hugetlbfs"])?;
                // (Its length is a whole number of huge pages.)
                let file = mounted.dir.join(Place::FILE);
                run("fallocate", &["-l".as_ref(), "2097152".as_ref(), file.as_os_str()])?;
                Ok(mounted)
            }
        }
    }

    /// An empty mount point on the disk.
    fn in_dir() -> io::Result<Self> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let mount_point = dir.path().join("mount");
        fs::create_dir(&mount_point)?;
        let parts = vec![Part::Other(Box::new(dir))];
        Ok(Self { dir: mount_point, device: None, mapped: None, behind: None, parts })
    }

    fn mount(&mut self, arguments: &[&str]) -> io::Result<()> {
        let mut command = Command::new("mount");
        command.args(arguments).arg(&self.dir);
        output(command)?;
        self.parts.insert(0, Part::MountPoint(self.dir.clone()));
        Ok(())
    }

    fn on_device(device: Device, make: &[&str], options: &str) -> io::Result<Self> {
        let mut mounted = Self::in_dir()?;
        let path = mounted.attach_device(device)?;
        run(make[0], &make[1..].iter().copied().chain([path.as_str()]).collect::<Vec<_>>())?;
        let with: &[&str] = if options.is_empty() { &[&path] } else { &["-o", options, &path] };
        mounted.mount(with)?;
        Ok(mounted)
    }

    fn of_image(image: Image) -> io::Result<Self> {
        let mut mounted = Self::in_dir()?;
        let (content, path) =
            (mounted.dir.with_file_name("content"), mounted.dir.with_file_name("image"));
        fs::create_dir(&content)?;
        fs::write(content.join(Place::FILE), Place::content())?;
        let (file_system, command) = match image {
            Image::Squashfs => ("squashfs", "mksquashfs"),
            Image::Erofs | Image::ErofsLz4 => ("erofs", "mkfs.erofs"),
        };
        let mut command = Command::new(command);
        match image {
            Image::Squashfs => command.arg(&content).arg(&path).args(["-quiet", "-no-progress"]),
            Image::Erofs => command.arg("--quiet").arg(&path).arg(&content),
            Image::ErofsLz4 => command.args(["--quiet", "-zlz4"]).arg(&path).arg(&content),
        };
        output(command)?;
        let device = mounted.attach(&path, &["--direct-io=on", "--read-only"])?;
        mounted.mount(&["-t", file_system, "-o", "ro", &device])?;
        Ok(mounted)
    }

    fn overlay(lower: &Path, below: Self) -> io::Result<Self> {
        let mut mounted = Self::in_dir()?;
        for name in ["upper", "work"] {
            fs::create_dir(below.dir.join(name))?;
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            below.dir.join("upper").display(),
            below.dir.join("work").display()
        );
        mounted.mount(&["-t", "overlay", "-o", &options, "overlay"])?;
        mounted.device.clone_from(&below.device);
        mounted.parts.push(Part::Other(Box::new(below)));
        Ok(mounted)
    }
}

fn run(program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> io::Result<String> {
    let mut command = Command::new(program);
    command.args(arguments);
    output(command)
}

fn output(mut command: Command) -> io::Result<String> {
    // Some programs of the administrator are outside an ordinary PATH.
    let path = env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
