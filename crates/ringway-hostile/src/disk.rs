//! A disk that is as slow as a test says: an ext4 file system on a loop device whose image is in a
//! hostile file system.

use crate::Hostile;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Dropping it unmounts, at the latest when what uses it ends.
///
/// Only the thread that made it, and the threads and processes that this thread starts afterwards,
/// see what is mounted: it ends with them. Were it mounted for all, a test that is killed would
/// leave a device on which each answer is ENOTCONN, and programs that look at every mounted device
/// fail there (`mkfs.btrfs`).
#[derive(Debug)]
pub struct HostileDisk {
    hostile: Hostile,
    mount: TempDir,
}

impl HostileDisk {
    /// One of `len` bytes. With `direct`, each read of the device reaches the server.
    ///
    /// # Errors
    ///
    /// Why there is none here: no FUSE, no loop device, no ext4, or no permission.
    pub fn new(len: u64, direct: bool) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        // Before, or the end of the server would unmount what needs the server.
        let hostile = Hostile::mount(&[]).map_err(text)?;
        unshare(CloneFlags::CLONE_NEWNS).map_err(|errno| format!("unshare: {errno}"))?;
        let disk = Self { hostile, mount: TempDir::new().map_err(text)? };
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&Path>, "/", None::<&Path>, private, None::<&Path>)
            .map_err(|errno| format!("mount --make-rprivate /: {errno}"))?;
        let backing = disk.hostile.backing().join("image");
        File::create(&backing).and_then(|image| image.set_len(len)).map_err(text)?;
        run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), &backing])?;
        let direct = if direct { "--direct-io=on" } else { "--direct-io=off" };
        let options = ["--find", "--show", direct].map(Path::new);
        let image = disk.hostile.path().join("image");
        let device = run("losetup", &[&options[..], &[image.as_path()]].concat())?;
        let mounted = run("mount", &[device.as_ref(), disk.mount.path()]);
        // The device ends with its last user.
        run("losetup", &["--detach".as_ref(), device.as_ref()])?;
        mounted.map(|_| disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// The file system of its image, whose name there is `image`.
    pub fn hostile(&self) -> &Hostile {
        &self.hostile
    }
}

impl Drop for HostileDisk {
    fn drop(&mut self) {
        let _ = self.hostile.set("clear");
        // An engine that was dropped may still close files, and closing writes to the disk.
        for _ in 0..50 {
            if run("umount", &[self.path()]).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        // This thread has a mount of its own of the hostile file system too.
        for path in [self.path(), &self.hostile.path()] {
            let _ = run("umount", &["--lazy".as_ref(), path]);
        }
    }
}

/// Runs a command and returns what it printed. Errors: what it printed there.
fn run(program: &str, arguments: &[&Path]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
