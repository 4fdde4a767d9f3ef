//! File systems of a test's own, on loop devices. Only root may mount them.

use super::{scratch, skip};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A file system of its own on a loop device, which is unmounted when it is dropped.
pub struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    /// `None` where it cannot be made or mounted.
    pub fn new(make: &[&str]) -> Option<Self> {
        let dir = scratch();
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let mounted = Self { dir };
        fs::create_dir(mounted.path()).unwrap();
        let run = |command: &mut Command| match command.output() {
            Ok(output) if output.status.success() => true,
            Ok(output) => {
                skip(&String::from_utf8_lossy(&output.stderr));
                false
            }
            Err(error) => {
                skip(&format!("{make:?}: {error}"));
                false
            }
        };
        let is_mounted = run(Command::new(make[0]).args(&make[1..]).arg(&image))
            && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(mounted.path()));
        is_mounted.then_some(mounted)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: an engine may still close files, of a test that has failed for example.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).output();
    }
}
