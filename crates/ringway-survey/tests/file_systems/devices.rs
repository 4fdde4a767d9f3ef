//! The block devices below the file systems, and how all that was set up is released.

use super::{Mounted, no, output, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{any, fs, io, thread};

/// A block device.
#[derive(Clone, Copy)]
pub enum Device {
    /// A loop device with direct I/O to its image.
    Loop,
    /// The same with sectors of 4 KiB.
    Loop4K,
    /// A loop device whose image goes through the page cache.
    LoopCached,
    Zram,
    /// Targets of the device mapper, on a loop device.
    Linear,
    Crypt,
    Integrity,
    /// A mirror of two loop devices.
    Raid1,
}

const BYTES: u64 = 512 << 20;

impl Device {
    /// Why the kernel has none.
    pub fn missing(self) -> Option<String> {
        let target = match self {
            Self::Loop | Self::Loop4K | Self::LoopCached | Self::Zram => return None,
            Self::Linear => "linear",
            Self::Crypt => "crypt",
            Self::Integrity => "integrity",
            Self::Raid1 => {
                run("modprobe", &["-q", "raid1"]).ok();
                let known = fs::read_to_string("/proc/mdstat").unwrap_or_default();
                return (!known.contains("[raid1]")).then(|| no("raid1"));
            }
        };
        let module = format!("dm-{target}");
        run("modprobe", &["-q", &module]).ok();
        let known = run("dmsetup", &["targets"]).unwrap_or_default();
        let has = known.lines().any(|line| line.split_whitespace().next() == Some(target));
        (!has).then(|| no(&module))
    }
}

/// To be released.
pub enum Part {
    MountPoint(PathBuf),
    Loop(String),
    Zram(String),
    /// The name of a device of the device mapper.
    Mapped(String),
    /// The path of an array.
    Raid(String),
    /// Releases itself when it is dropped: a server, a directory, or what is mounted below.
    Other(#[expect(dead_code, reason = "it is only dropped")] Box<dyn any::Any>),
}

impl Part {
    pub fn release(self) -> io::Result<()> {
        match &self {
            Self::MountPoint(dir) => unmount(dir),
            Self::Loop(device) => run("losetup", &["-d", device]).map(drop),
            Self::Zram(device) => release_zram(device),
            Self::Mapped(name) => run("dmsetup", &["remove", "--retry", name]).map(drop),
            Self::Raid(array) => run("mdadm", &["--stop", array]).map(drop),
            Self::Other(_) => Ok(()),
        }
    }
}

/// Another program may have a file open for a moment: a descriptor that a child has inherited, for
/// example. What is still in use then goes with its last user, so that no directory is removed with
/// a mount in it.
fn unmount(dir: &Path) -> io::Result<()> {
    for _ in 0..50 {
        if run("umount", &[dir]).is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    run("umount", &[Path::new("-l"), dir]).map(drop)
}

fn release_zram(device: &str) -> io::Result<()> {
    let release = || {
        fs::write(format!("/sys/block/{device}/reset"), "1")?;
        fs::write("/sys/class/zram-control/hot_remove", device.trim_start_matches("zram"))
    };
    // Whoever looks at new devices may have it open for a moment.
    for _ in 0..100 {
        match release() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                thread::sleep(Duration::from_millis(10));
            }
            released => return released,
        }
    }
    release()
}

impl Mounted {
    /// Attaches an empty device and returns its path.
    pub fn attach_device(&mut self, device: Device) -> io::Result<String> {
        let below = match device {
            Device::Zram => self.attach_zram()?,
            Device::Loop4K => {
                self.attach_empty("image", &["--direct-io=on", "--sector-size=4096"])?
            }
            Device::LoopCached => self.attach_empty("image", &[])?,
            _ => self.attach_empty("image", &["--direct-io=on"])?,
        };
        self.device = Some(below.trim_start_matches("/dev/").to_owned());
        let (name, sectors) = (self.unique_name(), BYTES / 512);
        match device {
            Device::Linear => {
                self.mapped = Some(name.clone());
                self.map(name, &format!("0 {sectors} linear {below} 0"))
            }
            Device::Crypt => {
                let key = "5a".repeat(64);
                self.map(name, &format!("0 {sectors} crypt aes-xts-plain64 {key} 0 {below} 0"))
            }
            Device::Integrity => {
                run("integritysetup", &["format", "--batch-mode", &below])?;
                run("integritysetup", &["open", &below, &name])?;
                let path = format!("/dev/mapper/{name}");
                self.parts.insert(0, Part::Mapped(name));
                Ok(path)
            }
            Device::Raid1 => {
                let other = self.attach_empty("other-image", &["--direct-io=on"])?;
                let options = ["--run", "--level=1", "--raid-devices=2", "--assume-clean"];
                // (Of a name, mdadm makes an array with a number that is free.)
                let array = format!("/dev/md/{name}");
                let words = ["--create", &array].into_iter().chain(options);
                run("mdadm", &words.chain([below.as_str(), &other]).collect::<Vec<_>>())?;
                self.parts.insert(0, Part::Raid(array.clone()));
                Ok(array)
            }
            Device::Loop | Device::Loop4K | Device::LoopCached | Device::Zram => Ok(below),
        }
    }

    fn map(&mut self, name: String, table: &str) -> io::Result<String> {
        run("dmsetup", &["create", &name, "--table", table])?;
        // Where no udev does it.
        let made = run("dmsetup", &["mknodes", &name]);
        let path = format!("/dev/mapper/{name}");
        self.parts.insert(0, Part::Mapped(name));
        made.map(|_| path)
    }

    /// A name for what other programs of this machine see, too: no two directories have the same.
    fn unique_name(&self) -> String {
        let above = self.dir.parent().and_then(Path::file_name).unwrap_or_default();
        format!("ringway{}", above.to_string_lossy().replace('.', "-"))
    }

    fn attach_zram(&mut self) -> io::Result<String> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add")?;
        let name = format!("zram{}", number.trim());
        self.parts.insert(0, Part::Zram(name.clone()));
        fs::write(format!("/sys/block/{name}/disksize"), BYTES.to_string())?;
        Ok(format!("/dev/{name}"))
    }

    fn attach_empty(&mut self, name: &str, options: &[&str]) -> io::Result<String> {
        let image = self.dir.with_file_name(name);
        fs::File::create(&image)?.set_len(BYTES)?;
        self.attach(&image, options)
    }

    /// Attaches a loop device to the image.
    pub fn attach(&mut self, image: &Path, options: &[&str]) -> io::Result<String> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).args(options).arg(image);
        let path = output(command)?.trim().to_owned();
        self.parts.insert(0, Part::Loop(path.clone()));
        Ok(path)
    }
}
