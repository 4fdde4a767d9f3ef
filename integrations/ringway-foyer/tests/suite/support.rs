//! Engines, devices and buffers for the tests.

use foyer_common::spawn::Spawner;
use foyer_storage::{
    Device, DeviceBuilder, FileDeviceBuilder, FsDeviceBuilder, IoEngine, IoEngineBuildContext,
    IoEngineConfig, IoSliceMut, Partition, RawFile, Statistics, Throttle,
};
use ringway::{BackendKind, Engine};
use ringway_foyer::RingwayIoEngineConfig;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

pub const BLOCK: usize = 1 << 20;

pub fn configs() -> [RingwayIoEngineConfig; 2] {
    let threads = Engine::builder().backend(BackendKind::Threads).build().unwrap();
    [RingwayIoEngineConfig::new(), RingwayIoEngineConfig::new().with_engine(&threads)]
}

pub async fn engines() -> Vec<Arc<dyn IoEngine>> {
    let mut engines = Vec::new();
    for config in configs() {
        let context = IoEngineBuildContext { spawner: Spawner::current() };
        engines.push(config.boxed().build(context).await.unwrap());
    }
    engines
}

/// Devices of each kind, with two partitions.
pub fn devices(dir: &Path) -> Vec<Arc<dyn Device>> {
    let mut devices = Vec::new();
    for direct in [false, true] {
        let file = FileDeviceBuilder::new(dir.join(format!("file-{direct}")));
        devices.push(file.with_capacity(2 * BLOCK).with_direct(direct).build().unwrap());
        let files = FsDeviceBuilder::new(dir.join(format!("files-{direct}")));
        devices.push(files.with_capacity(2 * BLOCK).with_direct(direct).build().unwrap());
    }
    for device in &devices {
        for _ in 0..2 {
            device.create_partition(BLOCK).unwrap();
        }
    }
    devices
}

/// A block device over a file, while it lives.
pub struct BlockDevice(pub String);

impl BlockDevice {
    /// `None` where there are no loop devices for this user.
    pub fn over(path: &Path, bytes: usize) -> Option<Self> {
        File::create(path).unwrap().set_len(bytes as u64).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(path).output().ok()?;
        let name = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        made.status.success().then(|| Self(name))
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["--detach", &self.0]).status();
        assert!(detached.unwrap().success());
    }
}

/// A partition that is a whole file.
#[derive(Debug)]
pub struct WholeFile {
    pub file: File,
    statistics: Arc<Statistics>,
}

impl WholeFile {
    pub fn new(file: File) -> Self {
        Self { file, statistics: Arc::new(Statistics::new(Throttle::default())) }
    }
}

impl Partition for WholeFile {
    fn id(&self) -> u32 {
        0
    }

    fn size(&self) -> usize {
        BLOCK
    }

    fn translate(&self, address: u64) -> (RawFile, u64) {
        (RawFile(self.file.as_raw_fd()), address)
    }

    fn statistics(&self) -> &Arc<Statistics> {
        &self.statistics
    }
}

/// A buffer with bytes that depend on the seed.
pub fn buffer(len: usize, seed: u8) -> Box<IoSliceMut> {
    let mut buffer = Box::new(IoSliceMut::new(len));
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = (at / 7) as u8 ^ seed;
    }
    buffer
}

/// The system's error number of an error.
pub fn errno(error: &foyer_common::error::Error) -> Option<i32> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.raw_os_error();
        }
        source = error.source();
    }
    None
}
