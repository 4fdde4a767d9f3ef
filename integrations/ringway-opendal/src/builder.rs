//! The builder of the service. It blocks: it creates and looks up directories.

use crate::config::{Durability, RingwayFsConfig};
use crate::disk::Disk;
use crate::service::FsService;
use opendal_core::raw::Service;
use opendal_core::{Builder, Error, ErrorKind, Result};
use ringway::Engine;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Builds the service: pass it to [`Operator::new`](opendal_core::Operator::new), which blocks
/// while it creates the directories that are missing.
///
/// Errors of `Operator::new`: `ConfigInvalid` without a root, or if `atomic_write_dir` is on
/// another file system than the root, or on another mount; those of creating the directories,
/// and of starting the engine.
#[derive(Clone, Debug, Default)]
pub struct RingwayFs {
    config: RingwayFsConfig,
    engine: Option<Engine>,
}

impl RingwayFs {
    pub(crate) fn from_config(config: RingwayFsConfig) -> Self {
        Self { config, engine: None }
    }

    /// Sets the directory of the objects, which is created if it is missing. Required.
    pub fn root(mut self, dir: &str) -> Self {
        self.config.root = Some(dir.to_owned()).filter(|dir| !dir.is_empty());
        self
    }

    /// Sets the directory of files that are being written, which is created if it is missing. It
    /// must be on the same file system and mount as the root. Default: the directory of each
    /// object.
    ///
    /// Writes are atomic in any case. Set it where the file system has no `O_TMPFILE` and other
    /// programs must not see temporary names among the objects.
    pub fn atomic_write_dir(mut self, dir: &str) -> Self {
        self.config.atomic_write_dir = Some(dir.to_owned()).filter(|dir| !dir.is_empty());
        self
    }

    /// Sets what survives a power failure. Default: [`Durability::Content`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.config.durability = durability;
        self
    }

    /// Sets the engine that runs the operations. Default: [`Engine::global`].
    pub fn engine(mut self, engine: &Engine) -> Self {
        self.engine = Some(engine.clone());
        self
    }
}

impl Builder for RingwayFs {
    type Config = RingwayFsConfig;

    fn build(self) -> Result<impl Service> {
        let invalid = |message: &str| Error::new(ErrorKind::ConfigInvalid, message);
        let RingwayFsConfig { root, atomic_write_dir, durability } = self.config;
        let root = root.ok_or_else(|| invalid("root is not set"))?;
        let (root, place) = prepare(&root).map_err(|error| refused("root", &root, error))?;
        let staging = match atomic_write_dir {
            None => None,
            Some(dir) => {
                let (path, other) =
                    prepare(&dir).map_err(|error| refused("atomic_write_dir", &dir, error))?;
                if other != place {
                    let error = invalid("atomic_write_dir is on another mount than the root");
                    return Err(error
                        .with_context("atomic_write_dir", dir)
                        .with_context("root", root.display()));
                }
                Some(path)
            }
        };
        let engine = match self.engine {
            Some(engine) => engine,
            None => Engine::global()
                .map_err(|error| {
                    Error::new(ErrorKind::Unexpected, "ringway's engine does not start")
                        .set_source(error)
                })?
                .clone(),
        };
        Ok(FsService::new(Arc::new(Disk::new(engine, root, staging, durability))))
    }
}

/// Creates a directory that is missing. Returns its canonical path, its device and its mount: a
/// file can be renamed within both, but not between two mounts of one file system, nor between
/// subvolumes of Btrfs.
fn prepare(dir: &str) -> io::Result<(PathBuf, (u64, Option<u64>))> {
    let dir = Path::new(dir);
    std::fs::create_dir_all(dir)?;
    let path = dir.canonicalize()?;
    let device = path.metadata()?.dev();
    // Since Linux 5.8.
    let found = statx(CWD, &path, AtFlags::empty(), StatxFlags::MNT_ID).ok();
    let found = found.filter(|found| found.stx_mask & StatxFlags::MNT_ID.bits() != 0);
    let mount = found.map(|found| found.stx_mnt_id);
    Ok((path, (device, mount)))
}

fn refused(option: &'static str, dir: &str, error: io::Error) -> Error {
    crate::error::failed("prepare the directory")(error)
        .with_operation("Builder::build")
        .with_context(option, dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use opendal_core::Operator;
    use std::process::Command;

    const DIR: &str = "RINGWAY_OPENDAL_TEST_MOUNTS";

    /// Files cannot be renamed between two mounts of one file system.
    #[test]
    fn another_mount_of_the_file_system_is_refused() {
        let build = |dir: &Path, staging| {
            let [root, staging] = ["root", staging].map(|name| dir.join(name));
            let builder = RingwayFs::default().root(root.to_str().unwrap());
            Operator::new(builder.atomic_write_dir(staging.to_str().unwrap()))
        };
        if let Some(dir) = std::env::var_os(DIR) {
            let refused = build(dir.as_ref(), "mounted").unwrap_err();
            return assert_eq!(refused.kind(), ErrorKind::ConfigInvalid);
        }
        let dir = tempfile::tempdir().unwrap();
        build(dir.path(), "staging").unwrap();
        std::fs::create_dir(dir.path().join("mounted")).unwrap();
        let mount = "cd \"$1\" && mount --bind staging mounted && exec \"$2\" --exact \"$3\"";
        let test = "builder::tests::another_mount_of_the_file_system_is_refused";
        let mut child = Command::new("unshare");
        child.args(["--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]);
        child.arg(dir.path()).arg(std::env::current_exe().unwrap()).arg(test);
        // Without the program, as without the right to mount, there is no output.
        let stdout = child.env(DIR, dir.path()).output().map_or(Vec::new(), |output| output.stdout);
        let stdout = String::from_utf8_lossy(&stdout);
        if !stdout.contains("running 1 test") {
            return println!("skipped: no mounts can be made here");
        }
        assert!(stdout.contains("1 passed"), "{stdout}");
    }
}
