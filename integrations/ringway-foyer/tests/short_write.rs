//! A write of which the kernel takes a part. In a process of its own: the limit is the process's.

use foyer_common::spawn::Spawner;
use foyer_storage::{
    DeviceBuilder, FileDeviceBuilder, IoEngineBuildContext, IoEngineConfig, IoSliceMut,
};
use ringway::{BackendKind, Engine};
use ringway_foyer::RingwayIoEngineConfig;
use rustix::process::{Resource, Rlimit, setrlimit};

const LIMIT: u64 = 64 << 10;

/// foyer's io_uring engine takes the part for the whole, and the entry is lost (0.22.6).
#[tokio::test]
async fn a_short_write_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = FileDeviceBuilder::new(dir.path().join("file")).with_capacity(1 << 20);
    let device = file.build().unwrap();
    let partition = device.create_partition(1 << 20).unwrap();
    // SAFETY: ignoring a signal runs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), maximum: None }).unwrap();
    let threads = Engine::builder().backend(BackendKind::Threads).build().unwrap();
    for config in [RingwayIoEngineConfig::new(), RingwayIoEngineConfig::new().with_engine(&threads)]
    {
        let context = IoEngineBuildContext { spawner: Spawner::current() };
        let engine = config.boxed().build(context).await.unwrap();
        let buffer = Box::new(IoSliceMut::new(2 * LIMIT as usize));
        let (_, result) = engine.write(buffer, partition.as_ref(), 0).await;
        let error = result.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("os error 27"), "{error:?}");
        let buffer = Box::new(IoSliceMut::new(LIMIT as usize));
        engine.write(buffer, partition.as_ref(), 0).await.1.unwrap();
    }
}
