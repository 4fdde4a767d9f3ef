//! The file systems, each mounted for a moment.

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
}

/// A block device.
#[derive(Clone, Copy)]
enum Device {
    /// A loop device with direct I/O to its image.
    Loop,
    /// The same with sectors of 4 KiB.
    Loop4K,
    /// A loop device whose image goes through the page cache.
    LoopCached,
    Zram,
}

/// A file system that is only read, made from a directory.
#[derive(Clone, Copy)]
enum Image {
    Squashfs,
    Erofs,
    ErofsLz4,
}

const EXT4: Kind = Kind::Device(Device::Loop, &["mkfs.ext4", "-q"], "");
const XFS: Kind = Kind::Device(Device::Loop, &["mkfs.xfs", "-q"], "");
const BTRFS: &[&str] = &["mkfs.btrfs", "-q"];
const TMPFS: Kind = Kind::Memory("tmpfs");

/// The rows: their names, types and kinds.
const PLACES: &[(&str, &str, Kind)] = &[
    ("ext4", "ext4", EXT4),
    (
        "ext4, data=journal",
        "ext4",
        Kind::Device(Device::Loop, &["mkfs.ext4", "-q"], "data=journal"),
    ),
    ("ext4, sectors of 4 KiB", "ext4", Kind::Device(Device::Loop4K, &["mkfs.ext4", "-q"], "")),
    (
        "ext4, cached loop device",
        "ext4",
        Kind::Device(Device::LoopCached, &["mkfs.ext4", "-q"], ""),
    ),
    ("ext4 on zram", "ext4", Kind::Device(Device::Zram, &["mkfs.ext4", "-q"], "")),
    ("XFS", "xfs", XFS),
    (SHARED, "xfs", XFS),
    ("btrfs", "btrfs", Kind::Device(Device::Loop, BTRFS, "")),
    ("btrfs, nodatacow", "btrfs", Kind::Device(Device::Loop, BTRFS, "nodatacow")),
    ("btrfs, compressed", "btrfs", Kind::Device(Device::Loop, BTRFS, "compress-force=zstd")),
    ("tmpfs", "tmpfs", TMPFS),
    ("ramfs", "ramfs", Kind::Memory("ramfs")),
    ("overlay on ext4", "overlay", Kind::Overlay(&EXT4)),
    ("overlay on XFS", "overlay", Kind::Overlay(&XFS)),
    ("overlay on tmpfs", "overlay", Kind::Overlay(&TMPFS)),
    ("overlay, file in squashfs", "overlay", Kind::OverlayAbove(Image::Squashfs)),
    ("overlay, file in erofs", "overlay", Kind::OverlayAbove(Image::Erofs)),
    ("squashfs", "squashfs", Kind::Image(Image::Squashfs)),
    ("erofs", "erofs", Kind::Image(Image::Erofs)),
    ("erofs, lz4", "erofs", Kind::Image(Image::ErofsLz4)),
    ("FUSE", "fuse", Kind::Fuse(&[], "")),
    ("FUSE, direct I/O", "fuse", Kind::Fuse(&[], "* direct on")),
    ("FUSE, write-back cache", "fuse", Kind::Fuse(&["writeback-cache"], "")),
];

const SHARED: &str = "XFS, blocks shared with a copy";

/// A part of the names of those that are wanted.
pub fn wanted() -> String {
    env::var("RINGWAY_PLACE").unwrap_or_default()
}

/// Calls `test` with each that this kernel has and these tools make. `skip` gets the reasons why
/// one is missing.
fn each_mounted(skip: impl Fn(&str), mut test: impl FnMut(&'static (&str, &str, Kind), &Mounted)) {
    let wanted = wanted();
    for place in PLACES.iter().filter(|(name, ..)| name.contains(&wanted)) {
        match Mounted::new(&place.2) {
            Ok(mounted) => test(place, &mounted),
            Err(error) => skip(&format!("{}: {error}", place.0)),
        }
    }
}

/// Calls `test` with the name and directory of each that can be written to, but for zram: its
/// direct transfers are wrong for memory that is not aligned to a page (6.18), whoever makes them.
#[allow(dead_code, reason = "tests of other crates use it")]
pub fn each_writable(skip: impl Fn(&str), mut test: impl FnMut(&'static str, &Path)) {
    each_mounted(skip, |(name, _, kind), mounted| {
        let is_wrong = matches!(kind, Kind::Device(Device::Zram, ..));
        if is_writable(kind) && !is_wrong && *name != SHARED {
            test(name, &mounted.dir);
        }
    });
}

fn is_writable(kind: &Kind) -> bool {
    !matches!(kind, Kind::Image(_) | Kind::OverlayAbove(_))
}

/// Calls `observe` with each.
#[allow(dead_code, reason = "tests of other crates do not observe")]
pub fn each(skip: impl Fn(&str), mut observe: impl FnMut(&Place)) {
    each_mounted(skip, |(name, file_system, kind), mounted| {
        observe(&Place {
            name: (*name).to_owned(),
            file_system: (*file_system).to_owned(),
            dir: mounted.dir.clone(),
            writable: is_writable(kind),
            shared: *name == SHARED,
            device: mounted.device.clone(),
        });
    });
}

/// A mounted file system, and what it consists of.
struct Mounted {
    dir: PathBuf,
    /// The device below, as in "loop0".
    device: Option<String>,
    /// Dropped in this order.
    parts: Vec<Part>,
}

/// To be released.
enum Part {
    MountPoint(PathBuf),
    Loop(String),
    Zram(String),
    /// Releases itself when it is dropped: a server, a directory, or what is mounted below.
    Other(#[expect(dead_code, reason = "it is only dropped")] Box<dyn std::any::Any>),
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for part in self.parts.drain(..) {
            let released = match &part {
                Part::MountPoint(dir) => run("umount", &[dir.as_path()]).map(drop),
                Part::Loop(device) => run("losetup", &["-d", device]).map(drop),
                Part::Zram(device) => release_zram(device),
                Part::Other(_) => Ok(()),
            };
            // Another failure is on its way, if there is one.
            if let Err(error) = released {
                println!("not released: {error}");
            }
        }
    }
}

fn release_zram(device: &str) -> io::Result<()> {
    fs::write(format!("/sys/block/{device}/reset"), "1")?;
    fs::write("/sys/class/zram-control/hot_remove", device.trim_start_matches("zram"))
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
                    parts: vec![Part::Other(Box::new(server))],
                })
            }
        }
    }

    /// An empty mount point on the disk.
    fn in_dir() -> io::Result<Self> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let mount_point = dir.path().join("mount");
        fs::create_dir(&mount_point)?;
        Ok(Self { dir: mount_point, device: None, parts: vec![Part::Other(Box::new(dir))] })
    }

    fn mount(&mut self, arguments: &[&str]) -> io::Result<()> {
        let mut command = Command::new("mount");
        command.args(arguments).arg(&self.dir);
        output(command)?;
        self.parts.insert(0, Part::MountPoint(self.dir.clone()));
        Ok(())
    }

    fn on_device(device: Device, make: &[&str], options: &str) -> io::Result<Self> {
        const BYTES: u64 = 512 << 20;
        let mut mounted = Self::in_dir()?;
        let path = match device {
            Device::Zram => {
                let number = fs::read_to_string("/sys/class/zram-control/hot_add")?;
                let name = format!("zram{}", number.trim());
                mounted.parts.insert(0, Part::Zram(name.clone()));
                fs::write(format!("/sys/block/{name}/disksize"), BYTES.to_string())?;
                format!("/dev/{name}")
            }
            Device::Loop | Device::Loop4K | Device::LoopCached => {
                let image = mounted.dir.with_file_name("image");
                fs::File::create(&image)?.set_len(BYTES)?;
                let options: &[&str] = match device {
                    Device::Loop4K => &["--direct-io=on", "--sector-size=4096"],
                    Device::LoopCached => &[],
                    Device::Loop | Device::Zram => &["--direct-io=on"],
                };
                mounted.attach(&image, options)?
            }
        };
        run(make[0], &make[1..].iter().copied().chain([path.as_str()]).collect::<Vec<_>>())?;
        mounted.device = Some(path.trim_start_matches("/dev/").to_owned());
        let with: &[&str] = if options.is_empty() { &[&path] } else { &["-o", options, &path] };
        mounted.mount(with)?;
        Ok(mounted)
    }

    /// Attaches a loop device to the image.
    fn attach(&mut self, image: &Path, options: &[&str]) -> io::Result<String> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).args(options).arg(image);
        let path = output(command)?.trim().to_owned();
        self.parts.insert(0, Part::Loop(path.clone()));
        Ok(path)
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
